"""The commit body: the bytes of the commit file.

A put with an unknown outcome is repeated with the same bytes, so they change only after a certain loss, if the winner
changes the actions to write. In-commit timestamps, row ids, and the versions that the preview of type widening records
change after each loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.reads import EVERY_ROW, recorded_reads
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log.actions import CommitInfo, DeletionVectorDescriptor, DomainMetadata, Metadata
from refdelta.core.log.assigned import CommitClock, RowIds, assigned
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.replay import validate_commit
from refdelta.core.rows.relocation import record


class CommitBody:
    """The commit for the next attempt.

    Args:
        prepared: the transaction.
        state: its state after the winners so far.

    Attributes:
        stale: whether ``data`` must be encoded again.
        data: the content of the commit file.
    """

    def __init__(self, prepared: PreparedCommit, state: TransactionState) -> None:
        self.prepared, self.state = prepared, state
        self.stale, self.data = True, b""
        self.clock: CommitClock | None = prepared.clock
        self.row_ids: RowIds | None = prepared.row_ids
        # The deletion vectors that were written, by the paths of their data files.
        self._vectors: dict[str, tuple[BitMap64, DeletionVectorDescriptor]] = {}

    @property
    def brings_timestamps(self) -> bool:
        """Whether it enables in-commit timestamps on a table that has versions without them."""
        return self.clock is not None and self.clock.since is None and not self.clock.creates

    def after(self, timestamps: Iterable[int | None], row_marks: Iterable[DomainMetadata]) -> None:
        """Record the timestamps of winners that do not conflict, and the row ids that they assigned.

        Raises ``InvalidLogError`` for a row mark without a row id.
        """
        self.stale = self.stale or self.prepared.metadata_at is not None
        if self.row_ids is not None:
            self.row_ids, self.stale = self.row_ids.after(row_marks), True
        if self.clock is not None:
            for winner_ms in timestamps:
                self.clock, self.stale = self.clock.after(winner_ms), True

    @property
    def descriptors(self) -> tuple[DeletionVectorDescriptor, ...]:
        """The deletion vectors that were written for it."""
        return tuple(descriptor for _, descriptor in self._vectors.values())

    def unwritten(self) -> dict[str, BitMap64]:
        """The deletion vectors that must be written before the commit can be encoded, by path."""
        if not self.stale:
            return {}
        wanted, known = self.state.vectors_wanted(), self._vectors
        self._vectors = {path: known[path] for path, rows in wanted.items() if path in known and known[path][0] == rows}
        return {path: rows for path, rows in wanted.items() if path not in self._vectors}

    def written(self, vectors: Mapping[str, BitMap64], descriptors: Sequence[DeletionVectorDescriptor]) -> None:
        """Record the descriptors of written vectors, in the same order."""
        for (path, rows), descriptor in zip(vectors.items(), descriptors, strict=True):
            self._vectors[path] = rows, descriptor

    def encode(self, version: int, waited_ms: int = 0) -> None:
        """Encode the state as ``data``. No vector may be :meth:`unwritten`.

        Args:
            version: the version of this attempt.
            waited_ms: milliseconds since the first attempt.

        Raises:
            InvalidLogError: the commit would break the protocol, or needs a version, a row id or a timestamp after
                the last one.
            InvalidArgumentError: a file without ``numRecords`` in a table with row tracking.
        """
        if not self.stale:
            return
        assigned(version, "version")
        actions = self.state.written({path: descriptor for path, (_, descriptor) in self._vectors.items()})
        validate_commit(actions, version=0 if self.prepared.read_version < 0 else None)
        if self.row_ids is not None:
            actions = self.row_ids.assigned(actions, version)
        if (metadata_at := self.prepared.metadata_at) is not None:
            actions = [metadata_at(a, version) if isinstance(a, Metadata) else a for a in actions]
        info = self._info()
        if self.clock is not None:
            stamp = info["inCommitTimestamp"] = self.clock.stamp(waited_ms)
            actions = [self.clock.noted(a, version, stamp) if isinstance(a, Metadata) else a for a in actions]
        self.data = encode_commit([CommitInfo(fields=info), *actions])
        self.stale = False

    def _info(self) -> dict[str, Any]:
        prepared, state = self.prepared, self.state
        info = {**prepared.commit_info, **self._reads(), **record(state.rearranged)}
        info["txnId"] = prepared.txn_id
        if "isolationLevel" in info:
            info["isolationLevel"] = state.level_name
        if (metrics := prepared.group_metrics(state.groups)) is not None:
            info["operationMetrics"] = dict(metrics)
        return info

    def _reads(self) -> dict[str, Any]:
        """The reads, for commitInfo; none for a blind append or a compaction."""
        state = self.state
        if state.blind or state.snapshot_isolation:
            return {}
        predicates = state.predicates
        if predicates and not self.prepared.records_predicates:
            predicates = (EVERY_ROW,)
        return recorded_reads(predicates, None if state.read.every_domain else state.read.domains)
