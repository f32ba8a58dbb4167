"""The values of a commit that depend on its version: its timestamp and the ids of its rows (PROTOCOL.md, "In-Commit
Timestamps", "Row Tracking").

Both rise from version to version. The rows of a file have ids counted from its ``baseRowId``, and a metadata domain has
the highest id assigned so far, so each commit of new files continues from there. After each winner both values are
assigned again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from refdelta.core.errors import InvalidArgumentError, InvalidLogError
from refdelta.core.log.actions import Add, AnyAction, DomainMetadata, Metadata
from refdelta.core.log.json_text import read_json
from refdelta.core.log.statistics import num_records

LAST: Final = 2**63 - 1
"""The greatest number of the log: readers have 64 bits for versions, row ids, times, sizes and counts."""

LAST_COLUMN_ID: Final = 2**31 - 1
"""The greatest id of a column: the ``field_id`` of Parquet has 32 bits."""


def assigned(number: int, kind: str, last: int = LAST) -> int:
    """A number that a commit assigns, if it exists. Every counter of a table that only rises is assigned by this.

    Args:
        number: the number. Integers of Python have no end, those of readers have.
        kind: the kind of number, for the message.
        last: the greatest one.

    Raises:
        InvalidLogError: it is greater, so nothing may be committed.
    """
    if number > last:
        raise InvalidLogError(f"the table has no {kind} left: the last one is {last}, and this needs {number}")
    return number


DOMAIN: Final = "delta.rowTracking"
"""The metadata domain with the highest row id."""

_MARK: Final = "rowIdHighWaterMark"

SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
SINCE_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
ENABLEMENT = (SINCE_VERSION, SINCE_TIMESTAMP)
"""The table properties with the version and the time from which on there are in-commit timestamps."""


class Enablement(msgspec.Struct, frozen=True):
    """The start of in-commit timestamps in a table.

    Attributes:
        version: the first version with one.
        timestamp: that version's, in milliseconds since 1970; None if the table has had them from its creation.
    """

    version: int
    timestamp: int | None


class CommitClock(msgspec.Struct, frozen=True, kw_only=True):
    """The clock for the in-commit timestamp of a commit.

    Attributes:
        now_ms: the time of the first attempt, in milliseconds since 1970.
        latest: the latest timestamp of the version that was read and the winners; -1 before the first version.
        since: the start of in-commit timestamps before the commit; None if the commit enables them.
        creates: whether the commit creates the table.
    """

    now_ms: int
    latest: int = -1
    since: Enablement | None = None
    creates: bool = False

    def after(self, winner_ms: int | None) -> CommitClock:
        """The clock after a winner with this timestamp."""
        return (
            self if winner_ms is None or winner_ms <= self.latest else msgspec.structs.replace(self, latest=winner_ms)
        )

    def stamp(self, waited_ms: int) -> int:
        """The timestamp of an attempt ``waited_ms`` milliseconds after the first: the time, and at least one
        millisecond after the previous version, since clocks disagree.

        Raises:
            InvalidLogError: the previous version has the greatest timestamp of 64 bits.
        """
        return assigned(max(self.now_ms + waited_ms, self.latest + 1), "in-commit timestamp")

    def noted(self, metadata: Metadata, version: int, stamp: int) -> Metadata:
        """The metadata of the commit, with the two properties for the start of in-commit timestamps.

        Args:
            metadata: the staged metadata.
            version: the version of this attempt.
            stamp: its timestamp.
        """
        if self.creates:
            since = None
        elif self.since is None:
            since = Enablement(version, stamp)
        else:
            since = self.since if self.since.timestamp is not None else None
        noted = {} if since is None else {SINCE_VERSION: str(since.version), SINCE_TIMESTAMP: str(since.timestamp)}
        kept = {k: v for k, v in (metadata.configuration or {}).items() if k not in (SINCE_VERSION, SINCE_TIMESTAMP)}
        return msgspec.structs.replace(metadata, configuration={**kept, **noted})


def mark_of(domain: DomainMetadata) -> int:
    """The highest row id assigned so far, from the metadata domain.

    Raises:
        InvalidLogError: the domain has none.
    """
    try:
        content: Any = read_json(domain.configuration)
    except ValueError:
        content = None
    mark = content.get(_MARK) if isinstance(content, dict) else None
    if type(mark) is not int or not -1 <= mark <= LAST:
        raise InvalidLogError(f"the metadata domain {DOMAIN} has no {_MARK}: {domain.configuration[:200]}")
    return mark


class RowIds(msgspec.Struct, frozen=True):
    """The row ids that are free for the rows that a commit adds.

    Attributes:
        mark: the highest id assigned so far; -1 if there is none.
    """

    mark: int = -1

    @classmethod
    def of(cls, domains: Mapping[str, DomainMetadata]) -> RowIds:
        """The free ids of a table with these metadata domains."""
        domain = domains.get(DOMAIN)
        return cls() if domain is None else cls(mark_of(domain))

    def after(self, marks: Iterable[DomainMetadata]) -> RowIds:
        """The free ids after winners that set these domains."""
        return RowIds(max([self.mark, *map(mark_of, marks)]))

    def assigned(self, actions: Iterable[AnyAction], version: int) -> list[AnyAction]:
        """The actions with row ids and commit versions for the files without them, and with the new mark if it rises.

        Implements PROTOCOL.md, "Writer Requirements for Row Tracking". A file that is added again keeps its values.

        Args:
            actions: the actions of a commit.
            version: the version of this attempt.

        Raises:
            InvalidArgumentError: a new file without ``numRecords`` in its statistics.
            InvalidLogError: there are not as many row ids left.
        """
        mark, found = self.mark, list[AnyAction]()
        for action in actions:
            if not isinstance(action, Add):
                found.append(action)
                continue
            base, since = action.base_row_id, action.default_row_commit_version
            if base is None:
                base, mark = assigned(mark + 1, "row id"), assigned(mark + _rows(action), "row id")
            since = version if since is None else since
            found.append(msgspec.structs.replace(action, base_row_id=base, default_row_commit_version=since))
        return found if mark == self.mark else [*found, _domain(mark)]


def _rows(add: Add) -> int:
    found = num_records(add)
    if found is None:
        raise InvalidArgumentError(
            f"{add.path}: the table tracks rows, and a file gets row ids by the numRecords of its statistics"
        )
    return found


def _domain(mark: int) -> DomainMetadata:
    return DomainMetadata(domain=DOMAIN, configuration=json.dumps({_MARK: mark}, separators=(",", ":")), removed=False)
