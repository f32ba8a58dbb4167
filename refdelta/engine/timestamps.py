"""When versions were committed, and which version a time means (PROTOCOL.md, "In-Commit Timestamps")."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from refdelta.engine.files import log_bytes
from refdelta.engine.listing import Listing, list_log
from refdelta.errors import TableNotFoundError, VersionNotFoundError
from refdelta.protocol.actions import CommitInfo
from refdelta.protocol.codec import decode_commit
from refdelta.protocol.paths import commit_key, parse_log_name
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from refdelta.engine.snapshot import Snapshot
    from refdelta_storage.base import Store

_ENABLED = "delta.enableInCommitTimestamps"
_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
_SINCE_TIME = "delta.inCommitTimestampEnablementTimestamp"


def commit_timestamp(snapshot: Snapshot) -> int:
    """When a snapshot's version was committed, in milliseconds since 1970 (UTC)."""
    segment = snapshot.segment
    if _in_commit(snapshot.metadata.configuration or {}):
        info = snapshot.commit_info
        stamp = _stamp(info) if info is not None else _read_stamp(snapshot.store, snapshot.version)
        if stamp is not None:
            return stamp
    if segment.last_commit is not None:
        return segment.last_commit.mtime_ms
    return segment.checkpoint.files[-1].mtime_ms if segment.checkpoint else 0


def version_at(store: Store, timestamp_ms: int) -> int:
    """The newest version that was committed at or before a time.

    Without in-commit timestamps a commit's time is its file's modification time, moved forward where needed so that
    every version is
    at least a millisecond after the one before. Only versions that can still be rebuilt count.

    Args:
        store: the table's folder.
        timestamp_ms: the time, in milliseconds since 1970 (UTC).

    Raises:
        VersionNotFoundError: the time is before the first of these versions or after the last.
        TableNotFoundError: there is no log.
    """
    times = _file_times(list_log(store))
    if not times:
        raise TableNotFoundError(f"there is no Delta table with commits at {store.uri}")
    last = times[-1][0]
    if _read_stamp(store, last) is None:
        return _search(times, timestamp_ms)
    from refdelta.engine.snapshot import load_snapshot

    configuration = load_snapshot(store).metadata.configuration or {}
    if not _in_commit(configuration):
        return _search(times, timestamp_ms)
    since_version = int(configuration.get(_SINCE_VERSION, 0))
    since_time = int(configuration.get(_SINCE_TIME, 0))
    before = [entry for entry in times if entry[0] < since_version]
    if before and timestamp_ms < since_time:
        # That part of the history has file times only; its last version counts up to the switch.
        return _search(before, min(timestamp_ms, before[-1][1]))
    versions = [version for version, _ in times if version >= since_version]
    return _search_stamps(store, versions, timestamp_ms)


def _search(times: Sequence[tuple[int, int]], timestamp_ms: int) -> int:
    (first, start), (last, end) = times[0], times[-1]
    _check_range(timestamp_ms, (first, start), (last, end))
    return times[bisect_right([time for _, time in times], timestamp_ms) - 1][0]


def _search_stamps(store: Store, versions: Sequence[int], timestamp_ms: int) -> int:
    """As :func:`_search` where each time costs a read: the stamps rise, so that a bisection reads few of them."""

    def stamp(version: int) -> int:
        found = _read_stamp(store, version)
        if found is None:
            raise VersionNotFoundError(f"version {version} has no in-commit timestamp, so its time cannot be told")
        return found

    _check_range(timestamp_ms, (versions[0], stamp(versions[0])), (versions[-1], stamp(versions[-1])))
    return versions[_bisect(len(versions), lambda i: stamp(versions[i]) <= timestamp_ms) - 1]


def _bisect(size: int, holds: Callable[[int], bool]) -> int:
    """The number of leading indices for which ``holds``, which is true up to somewhere and false from there on."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if holds(middle) else (low, middle)
    return low


def _check_range(timestamp_ms: int, first: tuple[int, int], last: tuple[int, int]) -> None:
    if first[1] <= timestamp_ms <= last[1]:
        return
    relation = "before the first" if timestamp_ms < first[1] else "after the last"
    raise VersionNotFoundError(
        f"the time {_text(timestamp_ms)} is {relation} version that can be read; "
        f"there are versions {first[0]} ({_text(first[1])}) to {last[0]} ({_text(last[1])})"
    )


def _file_times(listing: Listing) -> list[tuple[int, int]]:
    """Version and monotone time of each commit that can still be rebuilt, oldest first."""
    commits, checkpoints = [], []
    parts: dict[tuple[int, int], set[int]] = defaultdict(set)
    for key, _, mtime_ms in listing:
        name = parse_log_name(key)
        if name is None:
            continue
        if name.kind == "commit":
            commits.append((name.version, mtime_ms))
        elif name.is_checkpoint:
            parts[name.version, name.parts].add(name.part)
            if len(parts[name.version, name.parts]) == name.parts:
                checkpoints.append(name.version)
    if not commits:
        return []
    first = 0 if commits[0][0] == 0 else min(checkpoints, default=commits[0][0])
    times: list[tuple[int, int]] = []
    for version, mtime_ms in commits:
        if version >= first:
            times.append((version, max(mtime_ms, times[-1][1] + 1) if times else mtime_ms))
    return times


def _in_commit(configuration: Mapping[str, str]) -> bool:
    return configuration.get(_ENABLED, "false").lower() == "true"


def _read_stamp(store: Store, version: int) -> int | None:
    key = commit_key(version)
    try:
        actions = decode_commit(log_bytes(store, key), key)
    except ObjectNotFoundError:
        return None
    return next((_stamp(action) for action in actions if isinstance(action, CommitInfo)), None)


def _stamp(info: CommitInfo) -> int | None:
    value = info.fields.get("inCommitTimestamp")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
