"""What a table asks of a commit that leaves it with these protocol and metadata: timestamps, row ids, tags."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from refdelta.core.log.actions import AnyAction, Metadata, Protocol
from refdelta.core.log.assigned import CommitClock, RowIds
from refdelta.core.table.in_commit_timestamp import enablement, kept
from refdelta.core.table.row_tracking import PRESERVED, is_assigned, is_enabled
from refdelta.transaction.commit_info import now_ms

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot


@dataclass(frozen=True)
class TableAfter:
    """A table after a commit.

    Attributes:
        snapshot: the version that the commit saw; None where it creates the table.
        protocol: after it; None for that of a commit which makes no table.
        metadata: likewise.
    """

    snapshot: Snapshot | None
    protocol: Protocol | None
    metadata: Metadata | None

    @classmethod
    def of(cls, snapshot: Snapshot | None, staged: Iterable[AnyAction]) -> Self:
        """The table after these actions over a snapshot."""
        protocol: Protocol | None = snapshot.protocol if snapshot else None
        metadata: Metadata | None = snapshot.metadata if snapshot else None
        for action in staged:
            if isinstance(action, Protocol):
                protocol = action
            elif isinstance(action, Metadata):
                metadata = action
        return cls(snapshot, protocol, metadata)

    def clock(self) -> CommitClock | None:
        """What the commit has to know of time, where each commit of the table has a timestamp; else None.

        Raises:
            InvalidLogError: the table has timestamps, and the commit of the snapshot's version has none.
        """
        if self.protocol is None or self.metadata is None or not kept(self.protocol, self.metadata):
            return None
        if self.snapshot is None:
            return CommitClock(now_ms=now_ms(), creates=True)
        since = enablement(self.snapshot.protocol, self.snapshot.metadata)
        return CommitClock(now_ms=now_ms(), latest=self.snapshot.timestamp_ms, since=since)

    def row_ids(self) -> RowIds | None:
        """What the commit has to know to give row ids to new files, where those of the table have them; else None.

        Raises:
            InvalidLogError: the table's highest row id cannot be read.
        """
        if self.protocol is None or self.metadata is None or not is_assigned(self.protocol, self.metadata):
            return None
        return RowIds.of(self.snapshot.domains if self.snapshot else {})

    def tags(self) -> dict[str, str]:
        """The tags of the commit, which say that rows kept their ids; none where the table does not keep them.

        All that this engine writes keeps them (PROTOCOL.md, "Writer Requirements for Row Tracking").
        """
        if self.protocol is None or self.metadata is None or not is_enabled(self.protocol, self.metadata):
            return {}
        return {PRESERVED: "true"}
