"""The bytes that are put: made anew where a winner changed what there is to say, and the same until then.

A put whose outcome is open is repeated with the same bytes, so they change behind a settled loss only. On a table with
in-commit timestamps, or row ids, they change behind each loss, since both rise with versions; so do changes of type
that note their version, as the preview of type widening has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pyroaring import BitMap64

from refdelta.concurrency.places import record
from refdelta.concurrency.prepared import PreparedCommit
from refdelta.concurrency.recorded import recorded_reads
from refdelta.concurrency.standing import Standing
from refdelta.protocol.actions import CommitInfo, DeletionVectorDescriptor, DomainMetadata, Metadata
from refdelta.protocol.codec import encode_commit
from refdelta.protocol.evolution import moved_changes, notes_version
from refdelta.protocol.in_commit_timestamp import CommitClock
from refdelta.protocol.replay import validate_commit
from refdelta.protocol.row_tracking import RowIds


@dataclass(slots=True)
class Draft:
    """A commit as it is to be put next.

    Attributes:
        prepared: the transaction.
        standing: how it stands.
        stale: whether ``data`` is of an earlier standing.
        data: the content of the commit file.
    """

    prepared: PreparedCommit
    standing: Standing
    stale: bool = True
    data: bytes = b""
    clock: CommitClock | None = field(init=False)
    row_ids: RowIds | None = field(init=False)
    # The version of the first attempt, and whether changes of type note it.
    _first: int = field(init=False)
    _noted: bool = field(init=False)
    # The deletion vectors that were written, by the path of the file that they are for.
    _vectors: dict[str, tuple[BitMap64, DeletionVectorDescriptor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock, self.row_ids = self.prepared.clock, self.prepared.row_ids
        self._first = self.prepared.read_version + 1
        self._noted = any(
            isinstance(action, Metadata) and notes_version(action.schema_string, self._first)
            for action in self.prepared.actions
        )

    @property
    def brings_timestamps(self) -> bool:
        """Whether it turns in-commit timestamps on for a table that has versions without them."""
        return self.clock is not None and self.clock.since is None and not self.clock.creates

    def behind(self, timestamps: Iterable[int | None], row_marks: Iterable[DomainMetadata]) -> None:
        """Take note of the timestamps of winners that do not conflict, and of which row ids they gave out.

        Raises ``InvalidLogError`` for marks that say nothing of these.
        """
        self.stale = self.stale or self._noted
        if self.row_ids is not None:
            self.row_ids, self.stale = self.row_ids.behind(row_marks), True
        if self.clock is not None:
            for winner_ms in timestamps:
                self.clock, self.stale = self.clock.behind(winner_ms), True

    @property
    def descriptors(self) -> tuple[DeletionVectorDescriptor, ...]:
        """The deletion vectors that it names and that were written for it."""
        return tuple(descriptor for _, descriptor in self._vectors.values())

    def unwritten(self) -> dict[str, BitMap64]:
        """The deletion vectors that it takes to encode it, by path, less those that are written as they have to be."""
        if not self.stale:
            return {}
        wanted, known = self.standing.vectors_wanted(), self._vectors
        self._vectors = {path: known[path] for path, rows in wanted.items() if path in known and known[path][0] == rows}
        return {path: rows for path, rows in wanted.items() if path not in self._vectors}

    def written(self, vectors: Mapping[str, BitMap64], descriptors: Sequence[DeletionVectorDescriptor]) -> None:
        """Take note of where vectors were written, in their order."""
        for (path, rows), descriptor in zip(vectors.items(), descriptors, strict=True):
            self._vectors[path] = rows, descriptor

    def encode(self, version: int, waited_ms: int = 0) -> None:
        """Make ``data`` what the standing is; nothing is :meth:`unwritten`.

        Args:
            version: the version that it is to be.
            waited_ms: milliseconds since the first attempt.

        Raises:
            InvalidLogError: it would break the rules of a commit.
            InvalidArgumentError: it has a file to which no row ids can be given.
        """
        if not self.stale:
            return
        actions = self.standing.written({path: descriptor for path, (_, descriptor) in self._vectors.items()})
        validate_commit(actions, version=0 if self.prepared.read_version < 0 else None)
        if self.row_ids is not None:
            actions = self.row_ids.assigned(actions, version)
        if self._noted:
            actions = [self._with_version(a, version) if isinstance(a, Metadata) else a for a in actions]
        info = self._info()
        if self.clock is not None:
            stamp = info["inCommitTimestamp"] = self.clock.stamp(waited_ms)
            actions = [self.clock.noted(a, version, stamp) if isinstance(a, Metadata) else a for a in actions]
        self.data = encode_commit([CommitInfo(fields=info), *actions])
        self.stale = False

    def _with_version(self, metadata: Metadata, version: int) -> Metadata:
        schema = moved_changes(metadata.schema_string, self._first, version)
        return msgspec.structs.replace(metadata, schema_string=schema)

    def _info(self) -> dict[str, Any]:
        prepared, standing = self.prepared, self.standing
        info = {**prepared.commit_info, **recorded_reads(standing), **record(standing.rearranged)}
        info["txnId"] = prepared.txn_id
        if "isolationLevel" in info:
            info["isolationLevel"] = standing.level_name
        if (metrics := prepared.group_metrics(standing.groups)) is not None:
            info["operationMetrics"] = dict(metrics)
        return info
