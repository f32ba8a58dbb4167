"""When versions were committed, and which version a time means, of a table in a store.

:mod:`refdelta.core.table.in_commit_timestamp` has the rules; here are the listing and the reads that they need.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from refdelta.core.log import timestamps as rules
from refdelta.core.log.assigned import Enablement
from refdelta.core.log.paths import commit_key, parse_log_name
from refdelta.core.table.in_commit_timestamp import enablement
from refdelta.engine.log.listing import Listing, list_log
from refdelta.engine.parquet.files import log_bytes, store_errors
from refdelta.errors import InvalidLogError, TableNotFoundError, VersionNotFoundError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store


def commit_timestamp(snapshot: Snapshot) -> int:
    """When a snapshot's version was committed, in milliseconds since 1970 (UTC).

    Raises:
        InvalidLogError: the table has in-commit timestamps, and the version's commit has none.
    """
    segment = snapshot.segment
    since = enablement(snapshot.protocol, snapshot.metadata)
    if since is not None and snapshot.version >= since.version:
        if snapshot.commit_info is not None:
            return rules.in_commit_timestamp([snapshot.commit_info], commit_key(snapshot.version))
        return _stamp(snapshot.store, snapshot.version)
    files = [segment.last_commit] if segment.last_commit else [*segment.commits[-1:]]
    files = files or (list(segment.checkpoint.files[-1:]) if segment.checkpoint else [])
    known = files[-1].mtime_ms
    return _file_time(snapshot.store, files[-1].key) if known is None else known


def commit_time(store: Store, version: int) -> int:
    """When a version of a table without in-commit timestamps was committed, as readers see it: in milliseconds since
    1970 (UTC).

    Raises:
        InvalidLogError: its commit is gone.
    """
    times = dict(rules.rising(readable_commits(list_log(store))))
    if version not in times:
        raise InvalidLogError("the commit is gone", file=commit_key(version))
    return times[version]


def _file_time(store: Store, key: str) -> int:
    # As a listing has it: some stores round what they answer about one object.
    with store_errors(f"look at {key}"):
        found = next(store.list(prefix=key), None)
    if found is None:
        raise InvalidLogError("the commit is gone", file=key)
    return found.mtime_ms


def version_at(store: Store, timestamp_ms: int) -> int:
    """The newest version that was committed at or before a time; for a time to come, the newest of all.

    Without in-commit timestamps a commit's time is its file's modification time, moved forward where needed so that
    every version is later than the one before. Only versions that can still be rebuilt count.

    Args:
        store: the table's folder.
        timestamp_ms: the time, in milliseconds since 1970 (UTC).

    Raises:
        VersionNotFoundError: the time is before the first of these versions.
        TableNotFoundError: there is no log.
    """
    commits = readable_commits(list_log(store))
    if not commits:
        raise TableNotFoundError(f"there is no Delta table with commits at {store.uri}")
    since = _enablement(store, commits[-1][0])
    times = rules.rising(commits)

    def time_of(index: int) -> int:
        version, time = times[index]
        return time if since is None or version < since.version else _stamp(store, version)

    first = time_of(0)
    if timestamp_ms < first:
        raise VersionNotFoundError(
            f"the time {_text(timestamp_ms)} is before the first version that can be read; there are versions "
            f"{commits[0][0]} ({_text(first)}) to {commits[-1][0]} ({_text(time_of(-1))})"
        )
    return rules.version_at(timestamp_ms, commits, since, lambda version: _stamp(store, version))


def file_times(store: Store, first: int) -> dict[int, int]:
    """When the versions from ``first`` on were committed by their files, in milliseconds since 1970 (UTC); rising, as
    delta-spark makes them rise.
    """
    names = ((parse_log_name(key), mtime_ms) for key, _, mtime_ms in list_log(store, max(first - _UNSORTED, 0)))
    return dict(rules.rising((name.version, mtime) for name, mtime in names if name and name.kind == "commit"))


# So many commits before one may have later times than it, as far as delta-spark looks.
_UNSORTED = 1000


def version_since(store: Store, timestamp_ms: int) -> int:
    """The first version that was committed at a time or behind it; the one behind the newest, where none was.

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
    """Version and file time of each commit of a listing whose version can still be rebuilt, oldest first."""
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
    """Since when the table has in-commit timestamps. Where its newest commit has none, nothing else need be read."""
    try:
        _stamp(store, newest)
    except InvalidLogError:
        return None
    from refdelta.engine.log.snapshot import load_snapshot

    snapshot = load_snapshot(store)
    return enablement(snapshot.protocol, snapshot.metadata)


def _stamp(store: Store, version: int) -> int:
    key = commit_key(version)
    try:
        return rules.in_commit_timestamp(log_bytes(store, key), key)
    except ObjectNotFoundError as error:
        raise InvalidLogError("the commit is gone", file=key) from error


def _text(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
