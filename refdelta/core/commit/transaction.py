"""What goes into the commit loop, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import ReadSet, ReadTable
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.log.actions import Add, AnyAction, DeletionVectorDescriptor, Metadata
from refdelta.core.log.assigned import CommitClock, RowIds
from refdelta.core.log.paths import commit_key
from refdelta.core.rows.relocation import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """A transaction that is ready to commit.

    Attributes:
        read_version: the snapshot's version; -1 to create the table.
        read_set: what it read of that snapshot.
        actions: what it does, without commitInfo.
        commit_info: the fields of commitInfo (PROTOCOL.md, "Commit Provenance Information"). They stay as they are
            over all attempts: ``readVersion`` tells what was read, not over which version the commit landed. Where
            they have an ``isolationLevel``, it becomes the one that is used; what was read is added to them.
        txn_id: unique to this transaction for all time; recorded as ``commitInfo.txnId``. By it the loop knows its
            own file.
        level: the level that it asks for.
        table: the table of the snapshot, over which its predicates are asked; None where it creates the table.
        changes: the rows that it takes out of files, and the files that it rearranges.
        rests_on: metadata domains whose values its metaData action may make wrong.
        clock: the time of the commit, where the table has in-commit timestamps after it.
        row_ids: the row ids that it may give out, where new files of the table get some.
        group_metrics: the ``operationMetrics`` of a commit that rearranges files, by the groups that are left of it.
            None where those of ``commit_info`` hold for them too.
        metadata_at: what its metaData action says where it becomes a version, as one does that notes the version of a
            change of type; None where it says the same at each.
        name_of: what the log calls the commit of a version, for errors.
    """

    read_version: int
    read_set: ReadSet
    actions: list[AnyAction]
    commit_info: Mapping[str, Any]
    txn_id: str
    level: IsolationLevel = IsolationLevel.SERIALIZABLE
    table: ReadTable | None = None
    changes: RowChanges = field(default_factory=RowChanges)
    rests_on: frozenset[str] = frozenset()
    clock: CommitClock | None = None
    row_ids: RowIds | None = None
    group_metrics: Callable[[Sequence[Group]], Mapping[str, str] | None] = lambda _: None
    metadata_at: Callable[[Metadata, int], Metadata] | None = None
    name_of: Callable[[int], str] = commit_key


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """A commit that happened.

    Attributes:
        version: the version that it is. None: there was nothing left to commit, as each group of files that it came to
            rearrange had lost an input to a winner.
        attempts: how many versions were tried, this one included.
        rebased_over: the winners' versions over which it was moved, ascending.
        recovered: whether the store's answer had been lost, and the file was found to be ours.
        puts: how many puts it took.
        vectors: the deletion vectors that it wrote and names.
        groups: the groups of files that it rearranged.
        unused: data files that were written for it and that it does not name.
        fallbacks: why files decided somewhere and not rows.
        log: the commits after the version that was read, its own the last one; None where the
            shell did not hold them all.
    """

    version: int | None
    attempts: int
    rebased_over: tuple[int, ...] = ()
    recovered: bool = False
    puts: int = 1
    vectors: tuple[DeletionVectorDescriptor, ...] = ()
    groups: tuple[Group, ...] = ()
    unused: tuple[Add, ...] = ()
    fallbacks: tuple[str, ...] = ()
    log: tuple[bytes, ...] | None = field(default=None, repr=False, compare=False)
