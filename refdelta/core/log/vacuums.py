"""VACUUM in the log: the commits around the deletion of files, and the deletions that are still in progress.

A VACUUM commits VACUUM START, deletes files, and commits VACUUM END. Several can overlap. A START says how long files
must have been unreferenced to be deleted; an END of this engine names the STARTs that it ends, an END of another engine
names none. A VACUUM that was interrupted has no END. After :data:`LONGEST_MS` it counts as ended; a VACUUM of this
engine stops before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

VACUUM_START: Final = "VACUUM START"
"""``commitInfo.operation`` of the commit before the deletion of files."""

VACUUM_END: Final = "VACUUM END"
"""``commitInfo.operation`` of the commit after it."""

FULL: Final = "full"
"""The field of ``operationParameters`` in which VACUUM START of this engine says whether files go that the log does not
name. VACUUM of another engine may delete them.
"""

STARTS: Final = "startVersions"
"""The field of ``operationParameters`` in which VACUUM END of this engine names the STARTs that it ends: a JSON list of
their versions, as a string.
"""

LONGEST_MS: Final = 24 * 3_600_000
"""The time in milliseconds after its START at which a VACUUM without an END deletes nothing more."""

ANY_TIME: Final = 2**63 - 1

_VERSIONS = msgspec.json.Decoder(list[int])


class Vacuum(msgspec.Struct, frozen=True):
    """A VACUUM that has begun.

    Attributes:
        version: the version of its START.
        time_ms: the time of that commit by the clock of the store, in milliseconds since 1970.
        before_ms: see :func:`deletes_before`.
        removed_only: see :func:`deletes_removed_only`.
    """

    version: int
    time_ms: int
    before_ms: int
    removed_only: bool


def is_vacuum(info: Mapping[str, Any]) -> bool:
    """Whether a commit begins or ends a VACUUM, by its commitInfo."""
    return info.get("operation") in (VACUUM_START, VACUUM_END)


def deletes_before(info: Mapping[str, Any], time_ms: int | None = None) -> int:
    """The time, in milliseconds since 1970, until which a file must have become unreferenced to be deleted by a VACUUM.

    Args:
        info: the commitInfo of its START.
        time_ms: the time of that commit by the clock of the store. The later one of this and of the commit's own time
            counts.

    Returns:
        The greatest time, so that any file may be deleted, if the retention or the time is unknown.
    """
    parameters = _parameters(info)
    retention = _whole(parameters.get("specifiedRetentionMillis", parameters.get("defaultRetentionMillis")))
    stamp = _whole(info.get("inCommitTimestamp", info.get("timestamp")))
    times = [time for time in (stamp, time_ms) if time is not None]
    return max(times) - retention if times and retention is not None else ANY_TIME


def deletes_removed_only(info: Mapping[str, Any]) -> bool:
    """Whether a VACUUM deletes no data file that the log does not name, by the commitInfo of its START.

    Files of deletion vectors, of the change data feed and of interrupted writes may go in any case.
    """
    return _parameters(info).get(FULL) in (False, "false")


def ended_by(info: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The versions of the STARTs that a VACUUM END ends, by its commitInfo; None if it does not name them."""
    named = _parameters(info).get(STARTS)
    try:
        return tuple(_VERSIONS.decode(named)) if isinstance(named, str) else None
    except msgspec.DecodeError:
        return None


def in_progress(commits: Iterable[tuple[int, int, Mapping[str, Any]]], now_ms: int) -> list[Vacuum]:
    """The VACUUMs that may still delete files.

    An END without names ends one of the STARTs before it, and it is not known which: all of these count as long as
    there are more of them than of such ENDs. A START is too old for an END, and for the result, after
    :data:`LONGEST_MS`.

    Args:
        commits: version, time by the clock of the store, and commitInfo of consecutive commits, the oldest first: those
            of the last two times :data:`LONGEST_MS`, in which a VACUUM in progress and all that an END can belong to
            have begun.
        now_ms: the time, in milliseconds since 1970.
    """
    begun: list[Vacuum] = []
    ends = 0

    def forget(until_ms: int) -> None:
        nonlocal begun, ends
        young = [one for one in begun if one.time_ms >= until_ms]
        # The ENDs may have been those of the old ones.
        begun, ends = young, max(0, ends - (len(begun) - len(young)))

    for version, time_ms, info in commits:
        operation = info.get("operation")
        if operation == VACUUM_START:
            begun.append(Vacuum(version, time_ms, deletes_before(info, time_ms), deletes_removed_only(info)))
        elif operation == VACUUM_END:
            forget(time_ms - LONGEST_MS)
            named = ended_by(info)
            if named is None:
                ends += bool(begun)
            else:
                begun = [one for one in begun if one.version not in named]
            if ends >= len(begun):
                begun, ends = [], 0
    forget(now_ms - LONGEST_MS)
    return begun


def _parameters(info: Mapping[str, Any]) -> Mapping[str, Any]:
    found = info.get("operationParameters")
    return found if isinstance(found, dict) else {}


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else int(str(value))
    except ValueError:
        return None
