"""The times of commits (PROTOCOL.md, "In-Commit Timestamps", "Commit Provenance Information").

With in-commit timestamps the commit has its time. Without them, and for the versions before they were enabled, it is
the modification time of the commit file, made strictly rising as in delta-spark, since copying a table changes it.
All times are in milliseconds since 1970, UTC.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from refdelta.core.errors import InvalidLogError, VersionNotFoundError
from refdelta.core.log.actions import AnyAction, CommitInfo
from refdelta.core.log.assigned import Enablement
from refdelta.core.log.codec import decode_action


def in_commit_timestamp(data: bytes | Sequence[AnyAction], file: str) -> int:
    """The timestamp in a commit of a table that has them.

    Args:
        data: the commit's bytes, or its actions; only the first is looked at.
        file: its key, for messages.

    Raises:
        InvalidLogError: the first action is not a commitInfo with an ``inCommitTimestamp``.
    """
    if isinstance(data, bytes):
        first = decode_action(data.lstrip().split(b"\n", 1)[0], file, 1)
    else:
        first = data[0] if data else None
    value = first.fields.get("inCommitTimestamp") if isinstance(first, CommitInfo) else None
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise InvalidLogError("its first action is not a commitInfo with an inCommitTimestamp", file=file, line=1)
    return value


def rising(commits: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Modification times made strictly rising: one that does not exceed its predecessor's becomes that plus 1 ms.

    Args:
        commits: version and modification time, oldest version first.
    """
    adjusted: list[tuple[int, int]] = []
    for version, mtime_ms in commits:
        adjusted.append((version, max(mtime_ms, adjusted[-1][1] + 1) if adjusted else mtime_ms))
    return adjusted


def commit_timestamps(
    commits: Iterable[tuple[int, int]], since: Enablement | None, read: Callable[[int], int]
) -> list[tuple[int, int]]:
    """The times of some commits, as (version, time).

    Args:
        commits: version and modification time of the commits, oldest version first.
        since: :func:`enablement` of the newest version.
        read: the :func:`in_commit_timestamp` of a version; called for those that have one.
    """
    listed = list(commits)
    split = (
        len(listed)
        if since is None
        else next((i for i, (v, _) in enumerate(listed) if v >= since.version), len(listed))
    )
    return rising(listed[:split]) + [(version, read(version)) for version, _ in listed[split:]]


def version_at(
    timestamp: int, commits: Sequence[tuple[int, int]], since: Enablement | None, read: Callable[[int], int]
) -> int:
    """The newest version that was committed at or before a time.

    Args:
        timestamp: the time.
        commits: version and modification time of the commits that can be read, oldest version first, at least one.
        since: :func:`enablement` of the newest version.
        read: the :func:`in_commit_timestamp` of a version; called for about log2(n) of them.

    Raises:
        VersionNotFoundError: the time is before the oldest of them.
    """
    early = [commit for commit in commits if since is None or commit[0] < since.version]
    late = [version for version, _ in commits[len(early) :]]
    after = since is not None and (since.timestamp is None or timestamp >= since.timestamp)
    if late and (after or not early):
        # In-commit timestamps rise by rule, so a search may trust them.
        position = bisect_right(late, timestamp, key=read)
        if position:
            return late[position - 1]
    times = rising(early)
    position = bisect_right([time for _, time in times], timestamp)
    if not position:
        raise VersionNotFoundError("the time is before the oldest version that can be read")
    return times[position - 1][0]
