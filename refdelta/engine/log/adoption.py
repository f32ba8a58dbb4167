"""The versions of a catalog-managed table after its catalog or its folder was restored from an older copy.

The folder decides about every version that it has published: a published file proves that a commit was ratified, and
readers have seen it. Later commits that the catalog holds stay, if they follow on these.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refdelta.core.log.paths import VERSIONED, commit_key, parse_log_name
from refdelta.engine.log.managed_log import STAGED, listed
from refdelta.errors import CatalogMismatchError
from refdelta_storage.errors import ObjectNotFoundError, StorageError

# Versions are claims, by the catalog and by file names: at most so many are listed one by one.
_MOST = 1_000_000

if TYPE_CHECKING:
    from refdelta.engine.log.managed_log import ManagedStore, Ratified, RatifiedCommit


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """The versions on which a catalog and a folder can agree.

    Attributes:
        latest: the latest version.
        published: the version up to which all are in the log.
        adopted: the versions that the folder has beyond the catalog's latest one.
        dropped: the versions of which the catalog has another commit than the folder, or of which the commit
            is nowhere any more, since it was ratified by a database that is gone, or published in a folder that is.
        commits: the commits of these that the catalog still holds.
        checksums: the checksum files that belong to no version any more.
        between: the commits to publish, since later ones are in the log.
    """

    latest: int
    published: int
    adopted: tuple[int, ...]
    dropped: tuple[int, ...]
    commits: tuple[RatifiedCommit, ...]
    checksums: tuple[str, ...]
    between: tuple[RatifiedCommit, ...]


def plan_adoption(log: ManagedStore, answer: Ratified) -> AdoptionPlan:
    """Work out the versions on which a catalog and its folder can agree.

    Args:
        log: the log of the table.
        answer: what the catalog knows.

    Raises:
        StorageError: the folder has a gap, or the store failed.
    """
    files, checkpoints, checksums = set(), {-1}, []
    for info in log.inner.list(VERSIONED):
        name = parse_log_name(info.key)
        if name is None:
            continue
        if name.kind == "commit":
            files.add(name.version)
        elif name.is_checkpoint:
            checkpoints.add(name.version)
        elif name.kind == "checksum":
            checksums.append((name.version, info.key))
    held = {commit.version: commit for commit in answer.commits}
    other = min((v for v in held if v in files and not log.is_published(held[v])), default=answer.latest + 1)
    latest = published = max(checkpoints)
    between: list[RatifiedCommit] = []
    while True:
        commit = held.get(latest + 1)
        if latest + 1 in files:
            published = latest + 1
        elif commit is not None and commit.version < other and _has_content(log, commit):
            between.append(commit)
        else:
            break
        latest += 1
    if abs(answer.latest - latest) > _MOST:
        raise StorageError(
            f"the latest version is {answer.latest} by the catalog, and {latest} by the folder: of those between them, "
            f"no more than {_MOST} versions can be adopted or dropped"
        )
    beyond = [version for version in files if version > latest]
    if beyond:
        raise StorageError(f"{commit_key(latest + 1)} is missing, but the log goes on: restore this file first")
    # Of a version with a checksum and without a commit it is known that it was ratified, and no more.
    known = max(answer.latest, *(version for version, _ in checksums if version <= answer.latest + _MOST), -1)
    dropped = [v for v in range(min(other, latest + 1), known + 1) if v > latest or v in held]
    return AdoptionPlan(
        latest,
        published,
        tuple(range(answer.latest + 1, latest + 1)),
        tuple(dropped),
        tuple(held[version] for version in dropped if version in held),
        tuple(key for version, key in checksums if version > latest or version >= other),
        tuple(commit for commit in between if commit.version < published),
    )


def _has_content(log: ManagedStore, commit: RatifiedCommit) -> bool:
    try:
        log.content(commit)
    except (ObjectNotFoundError, CatalogMismatchError):
        return False
    return True


def prepare_adoption(log: ManagedStore, plan: AdoptionPlan) -> tuple[str, ...]:
    """Publish the commits between published ones, set the contents of those aside that will be dropped, and delete the
    checksums. It can be repeated.

    Returns:
        The keys of the files with the contents; those whose content is nowhere are left out.
    """
    for commit in plan.between:
        log.inner.put_if_absent(commit_key(commit.version), log.content(commit))
    saved = []
    for commit in plan.commits:
        if commit.file_name is not None:
            key = f"{STAGED}/{commit.file_name}"
            if listed(log.inner, key) is None:
                continue
        elif commit.data is not None:
            name = uuid.uuid5(uuid.NAMESPACE_OID, commit.data.hex())
            key = f"{STAGED}/{commit.version:020d}.{name}.json"
            log.inner.put_if_absent(key, commit.data)
        else:
            continue
        saved.append(key)
    log.inner.delete(plan.checksums)
    return tuple(saved)
