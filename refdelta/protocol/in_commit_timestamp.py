"""When a version was committed (PROTOCOL.md, "In-Commit Timestamps", "Commit Provenance Information").

Where in-commit timestamps are on, a commit says so itself; elsewhere, and for the versions before they were turned on,
it is the modification time of its file, made to rise as delta-spark does it, since copying a table may shuffle those.
All times are in milliseconds since 1970, UTC.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from refdelta.errors import InvalidLogError, VersionNotFoundError
from refdelta.protocol.actions import AnyAction, CommitInfo, Metadata, Protocol
from refdelta.protocol.codec import decode_action
from refdelta.protocol.features import features_of
from refdelta.protocol.properties import get

_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
_SINCE_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
ENABLEMENT = (_SINCE_VERSION, _SINCE_TIMESTAMP)
"""The properties that say since when a table has in-commit timestamps."""


class Enablement(msgspec.Struct, frozen=True):
    """Since when a table has in-commit timestamps.

    Attributes:
        version: the first version that has one.
        timestamp: that version's; None where the table has had them from its creation.
    """

    version: int
    timestamp: int | None


class CommitClock(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit has to know of time, on a table that has in-commit timestamps behind it.

    Attributes:
        now_ms: the time of the first attempt.
        latest: the timestamp of the version before; before the first of all, or where no commit that was passed over
            has told a later one, that of the version that was read.
        since: since when the table has them, as before the commit; None where the commit itself brings them.
        creates: whether the commit creates the table, which then has had them from its creation.
    """

    now_ms: int
    latest: int = -1
    since: Enablement | None = None
    creates: bool = False

    def behind(self, winner_ms: int | None) -> CommitClock:
        """The clock behind another writer's commit, with the timestamp that this one has."""
        return (
            self if winner_ms is None or winner_ms <= self.latest else msgspec.structs.replace(self, latest=winner_ms)
        )

    def stamp(self, waited_ms: int) -> int:
        """The timestamp of an attempt so many milliseconds after the first: the time, or just behind the version
        before where clocks disagree.

        Raises:
            InvalidLogError: that version has the last timestamp that there is.
        """
        stamp = max(self.now_ms + waited_ms, self.latest + 1)
        if stamp >= 2**63:
            raise InvalidLogError(f"no timestamp is later than that of the version before, {self.latest}")
        return stamp

    def noted(self, metadata: Metadata, version: int, stamp: int) -> Metadata:
        """What the commit says of the table, with the two properties that say since when it has timestamps.

        Args:
            metadata: as it is staged.
            version: the version that the commit tries to become.
            stamp: its timestamp.
        """
        if self.creates:
            since = None
        elif self.since is None:
            since = Enablement(version, stamp)
        else:
            since = self.since if self.since.timestamp is not None else None
        told = {} if since is None else {_SINCE_VERSION: str(since.version), _SINCE_TIMESTAMP: str(since.timestamp)}
        kept = {k: v for k, v in (metadata.configuration or {}).items() if k not in (_SINCE_VERSION, _SINCE_TIMESTAMP)}
        return msgspec.structs.replace(metadata, configuration={**kept, **told})


def kept(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether every commit of such a table has a timestamp."""
    on = get(metadata.configuration or {}, "delta.enableInCommitTimestamps")
    return bool(on) and "inCommitTimestamp" in features_of(protocol)


def enablement(protocol: Protocol, metadata: Metadata) -> Enablement | None:
    """Since when the table has in-commit timestamps; None if it has none.

    Raises:
        InvalidLogError: a property of theirs is not a number, or one of two is missing.
    """
    configuration = metadata.configuration or {}
    if not kept(protocol, metadata):
        return None
    version = get(configuration, _SINCE_VERSION)
    timestamp = get(configuration, _SINCE_TIMESTAMP)
    if (version is None) != (timestamp is None):
        raise InvalidLogError("of the two properties that say since when in-commit timestamps are on, one is missing")
    return Enablement(0, None) if version is None else Enablement(version, timestamp)


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
    """When each of some versions was committed.

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
