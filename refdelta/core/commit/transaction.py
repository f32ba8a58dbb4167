"""The input and the result of the commit loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import ReadSet, ReadTable
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.log.actions import Add, AnyAction, DeletionVectorDescriptor, Metadata
from refdelta.core.log.assigned import CommitClock, RowIds
from refdelta.core.log.paths import commit_key
from refdelta.core.rows.relocation import Group


class PreparedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that is ready to commit.

    Attributes:
        read_version: the snapshot's version; -1 to create the table.
        read_set: its reads in that snapshot.
        actions: its actions, without commitInfo.
        commit_info: the fields of commitInfo (PROTOCOL.md, "Commit Provenance Information"), the same for all attempts:
            ``readVersion`` is the version that was read. An ``isolationLevel`` is replaced by the level that is used,
            and the reads are added.
        txn_id: a globally unique id of this transaction, recorded as ``commitInfo.txnId``. The loop identifies its own
            commit by it.
        level: its isolation level.
        table: the table that it read; None if it creates the table.
        changes: its row-level changes: deletes, and files that it rearranges.
        rests_on: metadata domains whose values its metaData action may invalidate.
        clock: the clock for the in-commit timestamp, if the table has them after the commit.
        row_ids: the free row ids, if new files get some.
        group_metrics: gives the ``operationMetrics`` for the groups that are not dropped; None to keep those of
            ``commit_info``.
        metadata_at: gives the metaData action for a version, if it records the version of a change of type; None if it
            is the same for all versions.
        records_predicates: whether commitInfo records the predicates of its reads; otherwise it says that every row was
            read, if any was.
        name_of: gives the name of the commit file of a version, for errors.
    """

    read_version: int
    read_set: ReadSet
    actions: list[AnyAction]
    commit_info: Mapping[str, Any]
    txn_id: str
    level: IsolationLevel = IsolationLevel.SERIALIZABLE
    table: ReadTable | None = None
    changes: RowChanges = msgspec.field(default_factory=RowChanges)
    rests_on: frozenset[str] = frozenset()
    clock: CommitClock | None = None
    row_ids: RowIds | None = None
    group_metrics: Callable[[Sequence[Group]], Mapping[str, str] | None] = lambda _: None
    metadata_at: Callable[[Metadata, int], Metadata] | None = None
    records_predicates: bool = True
    name_of: Callable[[int], str] = commit_key


class CommitTally(msgspec.Struct):
    """Counts of a commit, which grow while it runs, so that they are there, too, if it fails.

    Attributes:
        attempts: the number of versions that were tried.
        puts: the number of puts.
        bytes: the number of bytes of these puts.
        winners: the number of other writers' commits that were checked.
        rules: the number of rules that were asked of them: none of a winner whose files are no concern.
        rows: the number of rows of winners' new files that were compared with the reads.
    """

    attempts: int = 0
    puts: int = 0
    bytes: int = 0
    winners: int = 0
    rules: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """A commit that happened.

    Attributes:
        version: its version; None if nothing was committed since all groups to rearrange were dropped.
        member: its place among the transactions that share the version, from 0; None if it has the version for itself.
        attempts: the number of versions that were tried, this one included.
        rebased_over: the versions of the winners that it passed, ascending.
        recovered: whether the reply of the store was lost, and the commit was found by its id.
        puts: the number of puts.
        vectors: the deletion vectors that it wrote.
        groups: the groups of files that it rearranged.
        unused: data files that were written but not committed.
        fallbacks: the reasons why conflicts were decided by files and not by rows.
        log: the commits after the version that was read, up to its own; None if the shell does not have them all.
    """

    version: int | None
    attempts: int
    member: int | None = None
    rebased_over: tuple[int, ...] = ()
    recovered: bool = False
    puts: int = 1
    vectors: tuple[DeletionVectorDescriptor, ...] = ()
    groups: tuple[Group, ...] = ()
    unused: tuple[Add, ...] = ()
    fallbacks: tuple[str, ...] = ()
    log: tuple[bytes, ...] | None = field(default=None, repr=False, compare=False)
