"""Writing log compaction files: the reconciled actions of some commits in one file (PROTOCOL.md, "Log Compaction
Files").

Readers use such a file in place of its commits, which are kept. Since it continues earlier versions, it has to keep the
removal of files and domains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from refdelta.core.log.actions import Add, AnyAction, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import compacted_key, parse_log_name
from refdelta.core.log.replay import FileKey, file_key
from refdelta.core.log.segment import LogFile
from refdelta.engine.log.commits import read_commits
from refdelta.engine.log.identity import placed
from refdelta.engine.log.listing import find_segment, list_log
from refdelta.engine.log.managed_log import publish_through
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidArgumentError, VersionNotFoundError
from refdelta_storage.base import Committed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of commits that are compacted into one file, since all of them are held at once. For more, there are
checkpoints."""


def reconciled(commits: Iterable[Iterable[AnyAction]]) -> list[AnyAction]:
    """The reconciled actions of consecutive commits: the newest of all that refer to the same object.

    Implements PROTOCOL.md, "Action Reconciliation", for a part of the log. As in a checkpoint, ``dataChange`` is false,
    and there is no commitInfo and no cdc. Unlike in a checkpoint, removed domains and tombstones of any age are kept.
    """
    few: dict[tuple[type, str], AnyAction] = {}
    files: dict[FileKey, Add | Remove] = {}
    for action in (action for commit in commits for action in commit):
        match action:
            case Add() | Remove():
                key = file_key(action)
                files.pop(key, None)
                files[key] = structs.replace(action, data_change=False)
            case Protocol() | Metadata():
                few[type(action), ""] = action
            case Txn():
                few[Txn, action.app_id] = action
            case DomainMetadata():
                few[DomainMetadata, action.domain] = action
    return [*few.values(), *files.values()]


def compact_log(store: Store, snapshot: Snapshot, start: int | None = None, end: int | None = None) -> str | None:
    """Write the compaction file of some versions.

    Args:
        store: the table's folder.
        snapshot: the newest version.
        start: the first version; None for the one after the newest checkpoint.
        end: the last version; None for the snapshot's.

    Returns:
        The file's key; None if the file exists already, if there are no actions to write, or if ``start`` is None and
        there is only one version.

    Raises:
        VersionNotFoundError: a commit does not exist, or no longer; the table may have been replaced.
        InvalidArgumentError: not two versions or more in ascending order, or more than :data:`MOST_BYTES` of commits.
        InvalidLogError: a commit breaks the protocol.
        StoreError: the store refused or failed.
    """
    lo = _after_checkpoint(store) if start is None else start
    hi = snapshot.version if end is None else end
    if start is None and lo >= hi:
        return None
    if not 0 <= lo < hi:
        raise InvalidArgumentError(f"a compaction needs two or more versions in ascending order, not {lo} to {hi}")
    publish_through(store, hi)
    files = _commits(store, lo, hi)
    size = sum(file.size for file in files)
    if size > MOST_BYTES:
        raise InvalidArgumentError(
            f"the commits of versions {lo} to {hi} have {size:,} bytes, and at most {MOST_BYTES:,} are put together; a "
            "checkpoint takes any number"
        )
    actions = reconciled(read_commits(store, files))
    if not actions:
        return None  # readers refuse a file without actions
    key, data = compacted_key(lo, hi), encode_commit(actions)
    with placed(store, snapshot.identity, snapshot.version) as placement, store_errors(f"write {key}"):
        placement.writes(key, data)
        return key if isinstance(placement.store.put_if_absent(key, data), Committed) else None


def _after_checkpoint(store: Store) -> int:
    checkpoint = find_segment(store).checkpoint
    return 0 if checkpoint is None else checkpoint.version + 1


def _commits(store: Store, lo: int, hi: int) -> list[LogFile]:
    found = {}
    for key, size, mtime_ms in list_log(store, lo):
        name = parse_log_name(key)
        if name is not None and name.kind == "commit" and lo <= name.version <= hi:
            found[name.version] = LogFile(key, size, mtime_ms, name.version, name.hi)
    missing = next((version for version in range(lo, hi + 1) if version not in found), None)
    if missing is not None:
        raise VersionNotFoundError(f"there is no commit of version {missing}")
    return [found[version] for version in range(lo, hi + 1)]
