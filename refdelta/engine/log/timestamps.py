"""Commit times of a table's versions, and the version of a point in time.

:mod:`refdelta.core.log.timestamps` and :mod:`refdelta.table.in_commit_timestamp` have the rules; this module has
the listings and reads that they need.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from refdelta.core.log import timestamps as rules
from refdelta.core.log.assigned import Enablement
from refdelta.core.log.paths import commit_key, parse_log_name
from refdelta.engine.log.listing import Listing, list_log, timestamp_of_commit
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.errors import InvalidLogError, TableNotFoundError, VersionNotFoundError
from refdelta.table.in_commit_timestamp import enablement

if TYPE_CHECKING:
    from refdelta_storage.base import Store

# The number of commits before a given one that may have later file times: delta-spark looks no further.
_UNSORTED = 1000


def commit_time(store: Store, version: int) -> int:
    """The commit time of a version of a table without in-commit timestamps, in milliseconds since 1970 (UTC), adjusted
    as readers adjust it: later than the time of the version before it.

    Raises:
        InvalidLogError: the commit file does not exist.
    """
    times = dict(rules.rising(readable_commits(list_log(store))))
    if version not in times:
        raise InvalidLogError("the commit file no longer exists", file=commit_key(version))
    return times[version]


def version_at(store: Store, timestamp_ms: int, *, past_newest: bool = True) -> int:
    """The newest version that was committed at or before a time.

    Without in-commit timestamps, the time of a commit is the modification time of its file, moved forward where needed
    so that every version is later than the one before it. Only versions that can still be rebuilt count.

    Args:
        store: the table's folder.
        timestamp_ms: the time, in milliseconds since 1970 (UTC).
        past_newest: whether a time after the newest version stands for that version, as in deltalake; Spark's readers
            refuse it.

    Raises:
        VersionNotFoundError: the time is before the first of these versions, or after the newest one.
        TableNotFoundError: there is no log.
    """
    commits = readable_commits(list_log(store))
    if not commits:
        raise TableNotFoundError(f"there is no Delta table with commits at {store.uri}")
    since = _enablement(store, commits[-1][0])
    times = rules.rising(commits)

    def time_of(index: int) -> int:
        version, time = times[index]
        return time if since is None or version < since.version else timestamp_of_commit(store, version)

    first = time_of(0)
    if timestamp_ms < first:
        raise VersionNotFoundError(
            f"the time {_text(timestamp_ms)} is before the first version that can be read; there are versions "
            f"{commits[0][0]} ({_text(first)}) to {commits[-1][0]} ({_text(time_of(-1))})"
        )
    found = rules.version_at(timestamp_ms, commits, since, lambda version: timestamp_of_commit(store, version))
    if not past_newest and found == commits[-1][0] and timestamp_ms > (newest := time_of(-1)):
        raise VersionNotFoundError(
            f"the time {_text(timestamp_ms)} is after the newest version, {found} ({_text(newest)}); leave out the "
            "time to read the newest version"
        )
    return found


def file_times(store: Store, first: int) -> dict[int, int]:
    """The commit times of the versions from ``first`` on by the times of their files, in milliseconds since 1970 (UTC),
    made to rise as delta-spark does.
    """
    names = ((parse_log_name(key), mtime_ms) for key, _, mtime_ms in list_log(store, max(first - _UNSORTED, 0)))
    return dict(rules.rising((name.version, mtime) for name, mtime in names if name and name.kind == "commit"))


def version_since(store: Store, timestamp_ms: int) -> int:
    """The first version that was committed at or after a time; if there is none, the version after the newest.

    Args:
        store: the table's folder.
        timestamp_ms: the time, in milliseconds since 1970 (UTC).

    Raises:
        TableNotFoundError: there is no log.
    """
    try:
        return version_at(store, timestamp_ms - 1) + 1
    except VersionNotFoundError:
        return readable_commits(list_log(store))[0][0]


def readable_commits(listing: Listing) -> list[tuple[int, int]]:
    """Version and file time of each commit in a listing whose version can still be rebuilt, oldest first."""
    commits, checkpoints = [], []
    parts: dict[tuple[int, int], set[int]] = defaultdict(set)
    for key, _, mtime_ms in listing:
        name = parse_log_name(key)
        if name is None:
            continue
        if name.kind == "commit":
            commits.append((name.version, mtime_ms))
        elif name.is_checkpoint:
            found = parts[name.version, name.parts]
            found.add(name.part)
            if len(found) == name.parts:
                checkpoints.append(name.version)
    if not commits or commits[0][0] == 0:
        return commits
    return [commit for commit in commits if commit[0] >= min(checkpoints, default=commits[0][0])]


def _enablement(store: Store, newest: int) -> Enablement | None:
    """The version from which the table has in-commit timestamps. Reads only the newest commit if that has none."""
    try:
        timestamp_of_commit(store, newest)
    except InvalidLogError:
        return None
    snapshot = load_snapshot(store)
    return enablement(snapshot.protocol, snapshot.metadata)


def _text(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
