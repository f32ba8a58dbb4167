"""What a commit gets from the version that it becomes: a time and the ids of its rows, which rise with versions
(PROTOCOL.md, "In-Commit Timestamps", "Row Tracking").

A file's rows have ids counted from its ``baseRowId``. The highest id that was ever given out is the value of a metadata
domain, so each commit of new files takes the ids that follow those of the versions before it. Neither depends on what a
transaction read, but on where it lands: after each winner both are given anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from refdelta.core.log.actions import Add, AnyAction, DomainMetadata, Metadata
from refdelta.core.log.statistics import num_records
from refdelta.errors import InvalidArgumentError, InvalidLogError

DOMAIN: Final = "delta.rowTracking"
"""The metadata domain with the highest row id."""

_MARK: Final = "rowIdHighWaterMark"

SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
SINCE_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
ENABLEMENT = (SINCE_VERSION, SINCE_TIMESTAMP)
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
    """The time of a commit to a table that has in-commit timestamps after it.

    Attributes:
        now_ms: the time of the first attempt.
        latest: the timestamp of the version before; before the first of all, or where no commit that was passed over
            had a later one, that of the version that was read.
        since: since when the table has them, as before the commit; None where the commit itself brings them.
        creates: whether the commit creates the table, which then has had them from its creation.
    """

    now_ms: int
    latest: int = -1
    since: Enablement | None = None
    creates: bool = False

    def after(self, winner_ms: int | None) -> CommitClock:
        """The clock after another writer's commit, given the timestamp of that commit."""
        return (
            self if winner_ms is None or winner_ms <= self.latest else msgspec.structs.replace(self, latest=winner_ms)
        )

    def stamp(self, waited_ms: int) -> int:
        """The timestamp of an attempt so many milliseconds after the first: the time, or just after the version
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
        noted = {} if since is None else {SINCE_VERSION: str(since.version), SINCE_TIMESTAMP: str(since.timestamp)}
        kept = {k: v for k, v in (metadata.configuration or {}).items() if k not in (SINCE_VERSION, SINCE_TIMESTAMP)}
        return msgspec.structs.replace(metadata, configuration={**kept, **noted})


def mark_of(domain: DomainMetadata) -> int:
    """The highest row id that was given out, as the domain says.

    Raises:
        InvalidLogError: it says none.
    """
    try:
        content: Any = json.loads(domain.configuration)
    except (ValueError, RecursionError):
        content = None
    mark = content.get(_MARK) if isinstance(content, dict) else None
    if type(mark) is not int:
        raise InvalidLogError(f"the metadata domain {DOMAIN} has no {_MARK}: {domain.configuration[:200]}")
    return mark


class RowIds(msgspec.Struct, frozen=True):
    """The row ids that a commit may give to the rows that it adds.

    Attributes:
        mark: the highest id that was given out; -1 where there is none.
    """

    mark: int = -1

    @classmethod
    def of(cls, domains: Mapping[str, DomainMetadata]) -> RowIds:
        """Those of a table with these metadata domains."""
        domain = domains.get(DOMAIN)
        return cls() if domain is None else cls(mark_of(domain))

    def after(self, marks: Iterable[DomainMetadata]) -> RowIds:
        """The ids after other writers' commits, given the marks that these set."""
        return RowIds(max([self.mark, *map(mark_of, marks)]))

    def assigned(self, actions: Iterable[AnyAction], version: int) -> list[AnyAction]:
        """The actions with row ids and commit versions for the files that have none, and with the mark where it rises.

        Implements PROTOCOL.md, "Writer Requirements for Row Tracking". A file that is added again keeps its own.

        Args:
            actions: those of a commit.
            version: the version that it is to be.

        Raises:
            InvalidArgumentError: a new file without statistics that say how many rows it has.
        """
        mark, found = self.mark, list[AnyAction]()
        for action in actions:
            if not isinstance(action, Add):
                found.append(action)
                continue
            base, since = action.base_row_id, action.default_row_commit_version
            if base is None:
                base, mark = mark + 1, mark + _rows(action)
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
