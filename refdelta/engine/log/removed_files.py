"""Versions whose files VACUUM removed: the reason of a missing file, from the commits after the version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refdelta.core.log.codec import commit_info_of
from refdelta.core.log.paths import commit_key
from refdelta.core.log.vacuums import ANY_TIME, VACUUM_START, deletes_before
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.timestamps import readable_commits, version_at
from refdelta.errors import DeltaError, VersionNotFoundError
from refdelta_storage.errors import StorageError

if TYPE_CHECKING:
    from refdelta_storage.base import Store

_MOST_COMMITS: Final = 1_000
"""The number of commits that are looked at, the newest ones: the look is for a message."""

_AT_ONCE: Final = 100


def removed_by_vacuum(store: Store, version: int) -> str:
    """The sentence that VACUUM removed files of a version, with the versions that can be read.

    Args:
        store: the table's folder.
        version: the version.

    Returns:
        The sentence; empty if the log shows no VACUUM that could have done so, or cannot be read.
    """
    try:
        commits = readable_commits(list_log(store))
        found = _vacuums(store, [commit for commit in commits if commit[0] > version])
        if not found:
            return ""
        newest, before = commits[-1][0], max(before for _, before in found)
        first = newest if before == ANY_TIME else _newest_at(store, before, commits[0][0])
    except (DeltaError, StorageError):
        return ""  # the error of the missing file says enough
    if first <= version:
        return ""
    by = f"the VACUUM of version {found[0][0]}"
    can = f"version {newest}" if first == newest else f"versions {first} to {newest}"
    return (
        f"{by} removed files of version {version}; {can} can be read. VACUUM keeps what the versions of the last "
        "delta.deletedFileRetentionDuration need, a week by default, or of its own retention_hours"
    )


def _newest_at(store: Store, time_ms: int, oldest: int) -> int:
    try:
        return version_at(store, time_ms)
    except VersionNotFoundError:
        return oldest


def _vacuums(store: Store, commits: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Version and :func:`deletes_before` of the VACUUMs among commits, newest first."""
    found = []
    latest = commits[::-1][:_MOST_COMMITS]
    for start in range(0, len(latest), _AT_ONCE):
        some = latest[start : start + _AT_ONCE]
        contents = store.get_many([commit_key(version) for version, _ in some])
        for (version, time_ms), data in zip(some, contents, strict=True):
            info = commit_info_of(data) if VACUUM_START.encode() in data else {}
            if info.get("operation") == VACUUM_START:
                found.append((version, deletes_before(info, time_ms)))
    return found
