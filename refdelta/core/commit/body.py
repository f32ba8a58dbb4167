"""The commit body: the bytes of the commit file.

A put with an unknown outcome is repeated with the same bytes, so they change only after a certain loss, if the winner
changes the actions to write. In-commit timestamps, row ids, and the versions that the preview of type widening records
change after each loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

from refdelta.core.commit.group import united, united_info
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.reads import EVERY_ROW, recorded_reads
from refdelta.core.conflicts.state import TransactionState
from refdelta.core.log.actions import AnyAction, CommitInfo, DeletionVectorDescriptor, Metadata
from refdelta.core.log.assigned import assigned
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.footprint import Footprint, fold
from refdelta.core.log.replay import validate_commit
from refdelta.core.rows.file_state import FileState
from refdelta.core.rows.relocation import record
from refdelta.core.rows.sets import NONE, Rows, any_of


class CommitBody:
    """The commit for the next attempt.

    Attributes:
        members: the transactions that share the version, in order. The state of each is that after the members before
            it.
        data: the content of the commit file.
        notes: more fields of its commitInfo.
    """

    def __init__(self) -> None:
        self.members: Sequence[Member] = ()
        self.data = b""
        self.notes: Mapping[str, Any] = {}
        # The deletion vectors that were written, by the paths of their data files.
        self._vectors: dict[str, tuple[BitMap64, DeletionVectorDescriptor]] = {}

    @property
    def descriptors(self) -> tuple[DeletionVectorDescriptor, ...]:
        """The deletion vectors that were written for it."""
        return tuple(descriptor for _, descriptor in self._vectors.values())

    def unwritten(self) -> dict[str, BitMap64]:
        """The deletion vectors that must be written before the commit can be encoded, by path."""
        wanted: dict[str, BitMap64] = {}
        for member in self.members:
            # Of several that change a file, the last one has the rows of all; where it leaves none, there is no vector.
            changed = member.state.files.states
            wanted = {path: rows for path, rows in wanted.items() if not any_of(_gone(changed, path))}
            wanted.update(member.state.vectors_wanted())
        known = self._vectors
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
        assigned(version, "version")
        first = self.members[0]
        vectors = {path: descriptor for path, (_, descriptor) in self._vectors.items()}
        infos = [info_of(member) for member in self.members]
        if len(infos) == 1:
            actions, info = first.state.written(vectors), infos[0]
        else:
            actions, lines = united([_written(member, vectors) for member in self.members])
            info = united_info(infos, lines)
        validate_commit(actions, version=0 if first.prepared.read_version < 0 else None)
        if first.row_ids is not None:
            actions = first.row_ids.assigned(actions, version)
        if (metadata_at := first.prepared.metadata_at) is not None:
            actions = [metadata_at(a, version) if isinstance(a, Metadata) else a for a in actions]
        if (clock := first.clock) is not None:
            clocks = (member.clock for member in self.members if member.clock is not None)
            stamp = info["inCommitTimestamp"] = max(one.stamp(waited_ms) for one in clocks)
            actions = [clock.noted(a, version, stamp) if isinstance(a, Metadata) else a for a in actions]
        self.data = encode_commit([CommitInfo(fields={**info, **self.notes}), *actions])


def _gone(states: Mapping[str, FileState], path: str) -> Rows:
    return states[path].gone if path in states else NONE


def _written(member: Member, vectors: Mapping[str, DeletionVectorDescriptor]) -> list[AnyAction]:
    """The actions of one of several members, with the vectors of the version for the files that it leaves."""
    wanted = member.state.vectors_wanted()
    return member.state.written({path: vector for path, vector in vectors.items() if path in wanted})


def as_version(member: Member, version: int) -> tuple[Footprint, dict[str, BitMap64]]:
    """A member as if it were a version of its own, for those after it, and its deletion vectors by their ids. These are
    written in no file: the version gets those of its last member for each data file.
    """
    vectors, rows = dict[str, DeletionVectorDescriptor](), dict[str, BitMap64]()
    for number, (path, hidden) in enumerate(member.state.vectors_wanted().items()):
        vectors[path] = vector = DeletionVectorDescriptor(
            storage_type="u",
            path_or_inline_dv=f"{member.prepared.txn_id}/{number}",
            size_in_bytes=0,
            cardinality=len(hidden),
        )
        rows[vector.unique_id] = hidden
    return fold(version, [CommitInfo(fields=info_of(member)), *member.state.written(vectors)]), rows


def info_of(member: Member) -> dict[str, Any]:
    """The fields of the commitInfo of a transaction."""
    prepared, state = member.prepared, member.state
    info = {**prepared.commit_info, **_reads(prepared, state), **record(state.rearranged)}
    info["txnId"] = prepared.txn_id
    if "isolationLevel" in info:
        info["isolationLevel"] = state.level_name
    if (metrics := prepared.group_metrics(state.groups)) is not None:
        info["operationMetrics"] = dict(metrics)
    return info


def _reads(prepared: PreparedCommit, state: TransactionState) -> dict[str, Any]:
    """The reads, for commitInfo; none for a blind append or a compaction."""
    # The part of a transaction over several tables is no blind append, whatever it reads of this one.
    if (state.blind and not prepared.spans_tables) or state.snapshot_isolation:
        return {}
    predicates = state.predicates
    if predicates and not prepared.records_predicates:
        predicates = (EVERY_ROW,)
    return recorded_reads(predicates, None if state.read.every_domain else state.read.domains)
