"""The state of a transaction after the winners that were checked so far, and the check of the next one.

The reads never change. :meth:`TransactionState.advance` moves the state past a winner: it updates the places of known
rows, the actions to write and the place in the serial order. The rules use a :class:`ConflictCheck`, which changes
nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from pyroaring import BitMap64

from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.precedence import Effects, Precedence
from refdelta.core.conflicts.reads import EVERY_ROW, EVERYTHING, AnyOf, ReadSet, ReadTable, RowPredicate
from refdelta.core.log.actions import Add, AnyAction, DeletionVectorDescriptor, Metadata, Remove
from refdelta.core.log.footprint import Footprint, fold
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import file_key
from refdelta.core.log.statistics import num_records
from refdelta.core.log.vacuums import VACUUM_START
from refdelta.core.rows.deletes import RowDelete, known_vectors, take_over, tombstone, with_vector
from refdelta.core.rows.file_state import FileState, Renewed, bits, vector_id
from refdelta.core.rows.rebase import CompactionRebase
from refdelta.core.rows.relocation import Group
from refdelta.core.rows.sets import ALL, MOST_ROWS, any_of
from refdelta.core.rows.touched import Facts, KnownFiles, TouchedFiles

FILES_DECIDE = "rows were not compared, which refdelta.rowLevelConcurrency or CommitProperties.row_level would ask for"
"""The reason for a conflict that rows might not have."""
ROWS_SORTED = (
    "OPTIMIZE sorts rows, which are followed only by their ids (delta.enableRowTracking together with "
    "delta.enableDeletionVectors)"
)
"""The reason for a conflict of a rewrite that sorts rows, in a table where they cannot be followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """The row-level changes of a transaction, besides its staged actions.

    Attributes:
        deletes: the rows that it deletes from files.
        groups: the files that it rearranges.
        vectors: whether deletion vectors may be written.
        row_level: whether conflicts are decided by rows, not by files.
        now_ms: the time of its tombstones, in milliseconds since 1970.
    """

    deletes: Sequence[RowDelete] = ()
    groups: Sequence[Group] = ()
    vectors: bool = False
    row_level: bool = False
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class AddedRows:
    """Rows that a winner added and that must be matched with the reads of the transaction.

    Attributes:
        add: their file.
        rows: their positions in the file, counted from 0; None for all live rows.
    """

    add: Add
    rows: BitMap64 | None = None

    @property
    def count(self) -> int:
        """The number of rows; 0 if their file does not say."""
        return (num_records(self.add) or 0) if self.rows is None else len(self.rows)


@dataclass(frozen=True, slots=True)
class Unlocated:
    """Files whose rows were moved to unknown places.

    Attributes:
        inputs: the files, by their remove actions.
        outputs: the files with their rows.
        group: the number of their group in this transaction; None for files that the winner rearranged.
    """

    inputs: tuple[Remove, ...]
    outputs: tuple[Add, ...]
    group: int | None = None

    def by(self, winner: Footprint) -> str:
        """The transaction that rearranged them, for a message."""
        return f"by version {winner.version}" if self.group is None else "by this transaction"


@dataclass(slots=True)
class TransactionState:
    """One transaction after the winners that were checked.

    Attributes:
        read: its reads.
        actions: its staged actions, commitInfo included.
        level: its isolation level.
        table: the table that it read; without it no file of a winner is ruled out.
        changes: its row-level changes.
        rests_on: metadata domains that name columns, if its metaData action removes or retypes one. It conflicts with
            transactions that set them, as if it had read them.
        staged: its footprint. The files that it removes have the statistics with which they were read, though a remove
            is written without.
        rows: the predicates of its reads.
        blind: whether it read no data of the table, and removes none.
        snapshot_isolation: whether it only rearranges data. Then it conflicts over its input files only, as in
            delta-spark.
        one_writer: whether the table admits one writer at a time.
        everything: whether it read the whole table, or may have: it removes files and recorded no reads.
        domains: the metadata domains that it read or sets, and ``rests_on``.
        precedence: the skipped blind appends, see :mod:`refdelta.core.conflicts.precedence`.
        files: the files that it knows.
    """

    read: ReadSet
    actions: Sequence[AnyAction]
    level: IsolationLevel = IsolationLevel.SERIALIZABLE
    table: ReadTable | None = None
    changes: RowChanges = field(default_factory=RowChanges)
    rests_on: frozenset[str] = frozenset()
    staged: Footprint = field(init=False)
    blind: bool = field(init=False)
    snapshot_isolation: bool = field(init=False)
    one_writer: bool = field(init=False)
    everything: bool = field(init=False)
    domains: frozenset[str] = field(init=False)
    rows: AnyOf = field(init=False)
    precedence: Precedence = field(init=False)
    files: KnownFiles = field(init=False)
    # The file actions of the row-level changes, for conflict checks.
    _changed: tuple[Add | Remove, ...] = field(init=False)

    def __post_init__(self) -> None:
        groups = dict(enumerate(map(CompactionRebase.of, self.changes.groups)))
        self._changed = tuple(_as_actions(self.changes, groups.values()))
        ready = fold(self.read.version, self.actions, is_staged=True)
        self.staged = staged = self._fold() if self._changed or self.read.statistics else ready
        self.blind = self.read.blind and not staged.removes
        self.snapshot_isolation = staged.rearranges and not (staged.changes_table or self._writes_what_it_read())
        self.everything = self.read.whole_table or (self.read.blind and not self.blind)
        self.one_writer = self.table is not None and self.table.one_writer
        self.rows = AnyOf(self.predicates)
        self.domains = self.read.domains | staged.domains | self.rests_on
        self.precedence = Precedence(Effects(self.staged, self.rows), self.table)
        self.files = self._known_files(groups, ready)

    def _writes_what_it_read(self) -> bool:
        """Whether it may store values that it read in a metadata domain, or under an application id."""
        return not self.read.blind and bool(self.staged.domains or self.staged.app_ids)

    def _known_files(self, groups: dict[int, CompactionRebase], ready: Footprint) -> KnownFiles:
        read = self.read.files
        deletes = {same_path(one.add.path): one for one in self.changes.deletes}
        states = {path: FileState.of(read.get(path), deletes.get(path)) for path in {**read, **deletes}}
        if self.everything:
            states = {path: dataclasses.replace(one, read=ALL) for path, one in states.items()}
        return KnownFiles(
            states=states,
            pinned=known_vectors(ready),
            groups=groups,
            statistics=self.read.statistics,
            everything=self.everything,
            vectors=self.changes.vectors,
            row_level=self.changes.row_level,
            drops_sorts=self.follows_sorts,
        )

    def copy(self) -> TransactionState:
        """A copy that can :meth:`advance` while this one stays."""
        copied = copy.copy(self)
        copied.files, copied.precedence = self.files.copy(), self.precedence.copy()
        return copied

    # --- properties ---

    @property
    def follows_sorts(self) -> bool:
        """Whether sorted rows are followed: in clustered tables with row tracking OPTIMIZE must never conflict."""
        return self.table is not None and self.table.tracks_rows and self.table.clustered

    @property
    def level_name(self) -> str:
        """The value of ``commitInfo.isolationLevel``."""
        return "SnapshotIsolation" if self.snapshot_isolation else self.level.value

    @property
    def predicates(self) -> tuple[RowPredicate, ...]:
        """The predicates of its reads: each row that it read satisfies one."""
        return (EVERY_ROW,) if self.everything else tuple(dict.fromkeys(one.predicate for one in self.read.rows))

    def deletable_since(self, *, removed_only: bool) -> int | None:
        """The earliest time, in milliseconds since 1970, at which a file that the transaction adds, and that VACUUM may
        delete, became unreferenced; None if there is no such file.

        Args:
            removed_only: whether the VACUUM deletes no data file that the log does not name.
        """
        written = self.read.written_since if self.staged.adds and not removed_only else None
        times = [self.read.unowned_since, written]
        if self.changes.vectors and (self.changes.deletes or self.changes.groups):
            times.append(self.changes.now_ms)  # files of deletion vectors, which the commit writes
        return min((time for time in times if time is not None), default=None)

    def has_seen(self, metadata: Metadata) -> bool:
        """Whether this is the metadata that it read, which no winner so far has changed."""
        return self.table is not None and self.table.metadata == metadata

    def is_apart(self, winner: Footprint) -> bool:
        """See :attr:`ConflictCheck.is_apart`."""
        return ConflictCheck(self, winner, Facts()).is_apart

    # --- after a winner ---

    def advance(self, passed: ConflictCheck) -> bool:
        """Advance past a winner that does not conflict and is not :attr:`apart <ConflictCheck.is_apart>`.

        Args:
            passed: the check that found no conflict.

        Returns:
            Whether the commit must be encoded again.
        """
        winner = passed.winner
        if not self.blind and not self.snapshot_isolation:
            skipped = passed.may_skip and bool(passed.should_have_read)
            if skipped:
                self.files.unseen.update(same_path(add.path) for add in winner.adds)
            self.precedence.pass_over(winner, skipped=skipped)
        renewed = self._renew(passed.touched)
        return self.files.advance(passed.touched) or renewed

    def _renew(self, touched: TouchedFiles) -> bool:
        news = {
            path: touched.winner.with_statistics(change.add)
            for path, change in touched.changes.items()
            if path in self.files.pinned and isinstance(change, Renewed)
        }
        if news:
            self.actions = take_over(self.actions, news)
            self.staged = self._fold()
            self.precedence.staged.commit = self.staged
        return bool(news)

    # --- its writes ---

    @property
    def empty(self) -> bool:
        """Whether it only rearranges files, and all of its groups were dropped."""
        return bool(self.changes.groups) and not (self.files.groups or self.changes.deletes or len(self.actions) > 1)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups that were not dropped, with the files that it removes and adds of each."""
        return tuple(group.left for group in self.files.groups.values())

    @property
    def rearranged(self) -> tuple[Group, ...]:
        """The same groups unchanged, with the places of all their rows."""
        return tuple(group.group for group in self.files.groups.values())

    @property
    def unused(self) -> tuple[Add, ...]:
        """The files that were written but are not committed: of dropped groups, or without a live row."""
        left = self.files.groups
        dropped = [group for number, group in enumerate(self.changes.groups) if number not in left]
        outputs = [output.add for group in dropped for output in group.outputs]
        return (*outputs, *(add for group in left.values() for add in group.unused))

    def vectors_wanted(self) -> dict[str, BitMap64]:
        """The deletion vectors to write, by normalized path. A file without a remaining row gets none."""
        known = ((path, state.hides) for path, state in self.files.states.items() if any_of(state.gone))
        wanted = {path: rows for path, rows in known if rows is not None}
        for group in self.files.groups.values():
            wanted.update(group.wanted())
        return wanted

    def written(self, vectors: Mapping[str, DeletionVectorDescriptor]) -> list[AnyAction]:
        """All actions to write, without commitInfo.

        Args:
            vectors: the descriptors of the :meth:`vectors_wanted`, by normalized path.
        """
        now_ms = self.changes.now_ms
        found = list(self.actions[1:])
        for path, state in self.files.states.items():
            if state.entry is not None and any_of(state.gone):
                found.append(tombstone(state.entry, now_ms=now_ms, data_change=True))
                if path in vectors:
                    found.append(with_vector(state.entry, vectors[path], records=state.records, data_change=True))
        for group in self.files.groups.values():
            found.extend(group.actions(vectors, now_ms))
        return found

    def _fold(self) -> Footprint:
        known = self.read.statistics
        actions: list[AnyAction] = [*self.actions, *self._changed]
        if known:
            actions = [_with_statistics(one, known) if isinstance(one, Remove) else one for one in actions]
        return fold(self.read.version, actions, is_staged=True)


def _with_statistics(remove: Remove, known: Mapping[str, str]) -> Remove:
    return msgspec.structs.replace(remove, stats=remove.stats or known.get(same_path(remove.path)))


def _as_actions(changes: RowChanges, groups: Iterable[CompactionRebase]) -> Iterator[Add | Remove]:
    """The file actions of row-level changes for conflict checks: they remove rows and add none."""
    for delete in changes.deletes:
        gone = tombstone(delete.add, now_ms=changes.now_ms, data_change=True)
        yield msgspec.structs.replace(gone, stats=delete.add.stats)
    for group in groups:
        yield from group.actions({}, changes.now_ms)


class ConflictCheck:
    """One winner and one transaction, with the values that the rules use. It changes neither.

    Args:
        state: the transaction after the winners before this one.
        winner: the next commit in the log.
        facts: further facts about the winner.

    Attributes:
        touched: the changes of known files by the winner.
        candidates: a fast preselection of the winner's adds that may have rows which the transaction would have read.
    """

    def __init__(self, state: TransactionState, winner: Footprint, facts: Facts) -> None:
        self.state, self.winner, self.facts = state, winner, facts
        self.touched = TouchedFiles(state.files, winner, facts)
        read_rows = not (state.blind or state.snapshot_isolation)
        self.candidates = state.rows.candidates(winner.adds) if read_rows else ()

    @property
    def is_apart(self) -> bool:
        """Whether the winner certainly does not concern the transaction: no rule fires and the state does not change. A
        fast check, which holds for most winners.
        """
        state, winner = self.state, self.winner
        return (
            winner.only_files
            and not (state.one_writer or state.read.version < 0 or state.precedence.first)
            and winner.operation != VACUUM_START
            and not state.read.every_domain
            and not (state.everything and winner.removes)
            and self.touched.are_left_alone
            and not self.candidates
        )

    # --- new rows of the winner ---

    @property
    def may_skip(self) -> bool:
        """Whether its level allows it to skip the winner's rows: it then precedes the winner in the serial order."""
        state = self.state
        return self.winner.blind and state.level is IsolationLevel.WRITE_SERIALIZABLE and not state.staged.changes_table

    @property
    def overlooks(self) -> bool:
        """Whether the rows that the winner added do not concern it."""
        return self.state.blind or self.state.snapshot_isolation or self.may_skip

    @functools.cached_property
    def should_have_read(self) -> Sequence[Add]:
        """The winner's adds with new rows that it may have read, decided by files."""
        # The preselection first: most files are of other partitions than the reads.
        return list(self._selected(self.candidates))

    def _selected(self, adds: Sequence[Add]) -> Iterator[Add]:
        winner, states, rows = self.winner, self.state.files.states, self.state.rows
        with_statistics = functools.partial(winner.with_statistics, among=len(adds))
        for add in adds:
            if not winner.brings_rows(add):
                continue
            path, vector = file_key(add)
            # A file that was read and is added again with the same rows brings nothing.
            if path in states and vector_id(states[path].vector) == vector:
                continue
            if rows.may_match(add, with_statistics):
                yield add

    def added_rows(self) -> tuple[list[Add], list[AddedRows]]:
        """The winner's adds that it certainly should have read, and the added rows that must be matched.

        Of a file that existed before, these are only the rows that its deletion vector no longer hides.
        """
        winner, touched, states, rows = self.winner, self.touched, self.state.files.states, self.state.rows
        asked, certain = list[AddedRows](), list[Add]()
        for path, outcome in touched.outcomes.items():
            if not len(outcome.back):
                continue
            add = winner.with_statistics(winner.added[path])
            if states[path].read is ALL:
                certain.append(add)
            elif rows.may_match(add):
                asked.append(AddedRows(add, outcome.back))
        for add in self.should_have_read:
            path = same_path(add.path)
            if path in states and path not in touched.unknown:
                continue
            back = touched.back(path, add) if path in winner.removed else self._not_moved(add)
            if back is None:
                asked.append(AddedRows(winner.with_statistics(add)))
            elif len(back):
                asked.append(AddedRows(winner.with_statistics(add), back))
        if self.state.everything or EVERYTHING in self.state.read.rows:
            return [*certain, *(one.add for one in asked)], []
        return certain, asked

    def _not_moved(self, add: Add) -> BitMap64 | None:
        """The rows of an added file without those that were read before and were moved there; None for all."""
        moved = self.touched.moved.get(same_path(add.path))
        records = num_records(self.winner.with_statistics(add)) if moved else None
        if moved is None or records is None:
            return None
        hidden = bits(add.deletion_vector, self.touched.vectors)
        return BitMap64(range(min(records, MOST_ROWS))) - hidden - moved

    def why_files(self, paths: Collection[str]) -> str | None:
        """The reason why these paths were decided by files; None if rows could not have decided."""
        winner, changes, keys = self.winner, self.state.changes, set(map(same_path, paths))
        if not keys.isdisjoint(self.touched.unknown):
            return "VACUUM has removed deletion vectors that it takes to compare rows; other commits had replaced them"
        if not changes.vectors:
            return None
        if self.facts.confirmed is False:
            return f"version {winner.version} moved rows to other places than it records"
        if winner.rearranges and not keys <= self.touched.relocations.keys():
            return f"version {winner.version} does not say where the rows are that it moved"
        if not changes.row_level and not keys.isdisjoint(winner.added):
            return FILES_DECIDE
        return None

    # --- facts that it needs ---

    @property
    def unconfirmed(self) -> tuple[AddedRows, ...]:
        """Rows that were read, at their new places, which must satisfy the reads there, too."""
        winner, moved = self.winner, self.touched.unconfirmed
        if not moved:
            return ()
        return tuple(AddedRows(winner.with_statistics(winner.added[path]), rows) for path, rows in moved.items())

    @functools.cached_property
    def unlocated(self) -> Unlocated | None:
        """The files whose rows must be located by their ids first; None if there are none, or rows have no ids."""
        table = self.state.table
        if table is None or not table.tracks_rows:
            return None
        return next((one for one in self._unlocated() if one.group not in self.facts.sought), None)

    def _unlocated(self) -> Iterator[Unlocated]:
        winner, now_ms = self.winner, self.state.changes.now_ms
        if inputs := self.touched.unlocated():
            yield Unlocated(tuple(inputs), tuple(map(winner.with_statistics, winner.adds)))
        for number, group in self.touched.scattered().items():
            own = [tombstone(one.add, now_ms=now_ms, data_change=False) for one in group.group.inputs]
            yield Unlocated(tuple(own), tuple(output.add for output in group.group.outputs), number)

    @functools.cached_property
    def vectors_needed(self) -> tuple[DeletionVectorDescriptor, ...]:
        """The deletion vectors that must be read first."""
        by_rows = self.state.changes.row_level and self.winner.removes and not self.overlooks
        return self.touched.vectors_needed(self.should_have_read if by_rows else ())
