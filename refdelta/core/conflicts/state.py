"""The state of a transaction after the winners that were checked so far, and the check of the next one.

The reads never change. From winner to winner, the places of the rows change that the transaction knows, and so do the
actions that it will write and its place in a serial order: :meth:`TransactionState.advance` alone does that. The rules
ask a :class:`ConflictCheck`, which changes nothing.
"""

from __future__ import annotations

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
from refdelta.core.log.footprint import VACUUM_END, VACUUM_START, Footprint, fold
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import file_key
from refdelta.core.rows.deletes import RowDelete, known_vectors, take_over, tombstone, with_vector
from refdelta.core.rows.file_state import FileState, Renewed, vector_id
from refdelta.core.rows.rebase import CompactionRebase
from refdelta.core.rows.relocation import Group
from refdelta.core.rows.sets import ALL, any_of
from refdelta.core.rows.touched import Facts, KnownFiles, TouchedFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """What a transaction does to rows, apart from the actions that it stages ready to be written.

    Attributes:
        deletes: the rows that it takes out of files.
        groups: the files that it rearranges.
        vectors: whether deletion vectors may be written.
        row_level: whether rows decide over conflicts, not files.
        now_ms: the time of its tombstones, in milliseconds since 1970.
    """

    deletes: Sequence[RowDelete] = ()
    groups: Sequence[Group] = ()
    vectors: bool = False
    row_level: bool = False
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class AddedRows:
    """Rows that a winner brought, of which it takes a look to say whether the transaction would have read one.

    Attributes:
        add: the file that they are in.
        rows: their positions in the file, counted from 0; None for all that are live.
    """

    add: Add
    rows: BitMap64 | None = None


@dataclass(frozen=True, slots=True)
class Unlocated:
    """Files whose rows went elsewhere, without anybody saying where to.

    Attributes:
        inputs: the files, as the log says or is to say.
        outputs: the files that hold their rows.
        group: the number of the group of ours that they are of; None for files that the winner rearranged.
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
        read: what it read.
        actions: what it stages ready to be written, commitInfo included.
        level: the level that it asks for.
        table: the table as it saw it; without it no winner's file is ruled out.
        changes: what else it does.
        rests_on: metadata domains whose values its metaData action may make wrong: those that name columns, where it
            removes or retypes one. It conflicts with transactions that set them, as if it had read them.
        staged: all of it, folded like a winner's. The files that it removes have the statistics with which they were
            read, though a remove is written without.
        rows: asks files for rows that it would have read.
        blind: whether it read nothing of the table's data, and takes nothing away.
        snapshot_isolation: whether it only rearranges data. Then it conflicts over the files themselves only, as in
            delta-spark.
        one_writer: whether the table admits one writer at a time.
        everything: whether it read the whole table, or may have: files that it removes without saying what it read.
        domains: the metadata domains that it read or sets, and those that it rests on.
        precedence: see :mod:`refdelta.core.conflicts.precedence`.
        files: the files that it knows.
        vacuums: how many of the winners that were passed began a VACUUM of which none was the end.
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
    vacuums: int = 0
    # What the changes of rows come to, as far as others are concerned.
    _changed: tuple[Add | Remove, ...] = field(init=False)

    def __post_init__(self) -> None:
        groups = dict(enumerate(map(CompactionRebase.of, self.changes.groups)))
        self._changed = tuple(_as_actions(self.changes, groups.values()))
        ready = fold(self.read.version, self.actions)
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
        """Whether it may store what it read in the value of a domain, or under an application id."""
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
            everything=self.everything,
            vectors=self.changes.vectors,
            row_level=self.changes.row_level,
            drops_sorts=self.follows_sorts,
        )

    # --- what it is ---

    @property
    def follows_sorts(self) -> bool:
        """Whether rows that were sorted can be followed, and must be: there the matrices promise that OPTIMIZE never
        conflicts.
        """
        return self.table is not None and self.table.tracks_rows and self.table.clustered

    @property
    def level_name(self) -> str:
        """What ``commitInfo.isolationLevel`` says of it."""
        return "SnapshotIsolation" if self.snapshot_isolation else self.level.value

    @property
    def predicates(self) -> tuple[RowPredicate, ...]:
        """Predicates of which each row that it read satisfies one."""
        return (EVERY_ROW,) if self.everything else tuple(dict.fromkeys(one.predicate for one in self.read.rows))

    def has_seen(self, metadata: Metadata) -> bool:
        """Whether this is the table's metadata as it saw it. No winner that was passed has changed it."""
        return self.table is not None and self.table.metadata == metadata

    def is_apart(self, winner: Footprint) -> bool:
        """See :attr:`ConflictCheck.is_apart`."""
        return ConflictCheck(self, winner, Facts()).is_apart

    # --- going on ---

    def advance(self, passed: ConflictCheck) -> bool:
        """Advance past a winner that does not conflict and is not :attr:`apart <ConflictCheck.is_apart>`.

        Args:
            passed: the check by which the rules said that it does not conflict.

        Returns:
            Whether the commit must be encoded anew.
        """
        winner = passed.winner
        if not self.blind and not self.snapshot_isolation:
            skipped = passed.may_skip and bool(passed.should_have_read)
            if skipped:
                self.files.unseen.update(same_path(add.path) for add in winner.adds)
            self.precedence.pass_over(winner, skipped=skipped)
        if winner.operation == VACUUM_START:
            self.vacuums += 1
        elif winner.operation == VACUUM_END and self.vacuums:
            self.vacuums -= 1
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

    # --- what it writes ---

    @property
    def empty(self) -> bool:
        """Whether it came to rearrange files, and none of its groups is left."""
        return bool(self.changes.groups) and not (self.files.groups or self.changes.deletes or len(self.actions) > 1)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups that are left of those that it rearranges, with what it removes and adds of each."""
        return tuple(group.left for group in self.files.groups.values())

    @property
    def rearranged(self) -> tuple[Group, ...]:
        """The same groups as they were staged, with the places of all their rows."""
        return tuple(group.group for group in self.files.groups.values())

    @property
    def unused(self) -> tuple[Add, ...]:
        """The files that were written for it and that it does not name: of groups that were dropped, or without a live
        row.
        """
        left = self.files.groups
        dropped = [group for number, group in enumerate(self.changes.groups) if number not in left]
        outputs = [output.add for group in dropped for output in group.outputs]
        return (*outputs, *(add for group in left.values() for add in group.unused))

    def vectors_wanted(self) -> dict[str, BitMap64]:
        """The deletion vectors that it gives to files, by path. A file of which no row is left gets none."""
        known = ((path, state.hides) for path, state in self.files.states.items() if any_of(state.gone))
        wanted = {path: rows for path, rows in known if rows is not None}
        for group in self.files.groups.values():
            wanted.update(group.wanted())
        return wanted

    def written(self, vectors: Mapping[str, DeletionVectorDescriptor]) -> list[AnyAction]:
        """All that it does, without commitInfo.

        Args:
            vectors: where the deletion vectors are that are :meth:`vectors_wanted`, by path.
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
        return fold(self.read.version, actions)


def _with_statistics(remove: Remove, known: Mapping[str, str]) -> Remove:
    return msgspec.structs.replace(remove, stats=remove.stats or known.get(same_path(remove.path)))


def _as_actions(changes: RowChanges, groups: Iterable[CompactionRebase]) -> Iterator[Add | Remove]:
    """What changes of rows come to, as far as others are concerned: rows that are hidden are taken away, and no row is
    new.
    """
    for delete in changes.deletes:
        gone = tombstone(delete.add, now_ms=changes.now_ms, data_change=True)
        yield msgspec.structs.replace(gone, stats=delete.add.stats)
    for group in groups:
        yield from group.actions({}, changes.now_ms)


class ConflictCheck:
    """One winner against one transaction: what the rules ask. It is made for one question, and changes nothing.

    Args:
        state: how the transaction stands.
        winner: a commit that it did not see, the next one of the log.
        facts: what was found out about the winner.

    Attributes:
        touched: what the winner did to the files of which the transaction knows rows.
        candidates: the winner's adds that may have rows which it would have read, as far as is quick to see.
    """

    def __init__(self, state: TransactionState, winner: Footprint, facts: Facts) -> None:
        self.state, self.winner, self.facts = state, winner, facts
        self.touched = TouchedFiles(state.files, winner, facts)
        read_rows = not (state.blind or state.snapshot_isolation)
        self.candidates = state.rows.candidates(winner.adds) if read_rows else ()

    @property
    def is_apart(self) -> bool:
        """Whether the winner's files are surely none that concern the transaction: then no rule fires, and the state
        after the winner is the state before it. Most winners are such, and this is quick to see.
        """
        state, winner = self.state, self.winner
        return (
            winner.only_files
            and not (state.one_writer or state.read.version < 0 or state.precedence.first)
            and not (state.read.every_domain or state.read.unowned_since is not None)
            and not (state.everything and winner.removes)
            and self.touched.are_left_alone
            and not self.candidates
        )

    # --- what it makes of a winner's new rows ---

    @property
    def may_skip(self) -> bool:
        """Whether the level lets it pass over what this winner added, as it stands before it in the serial order."""
        state = self.state
        return self.winner.blind and state.level is IsolationLevel.WRITE_SERIALIZABLE and not state.staged.changes_table

    @property
    def overlooks(self) -> bool:
        """Whether nothing that the winner added concerns it."""
        return self.state.blind or self.state.snapshot_isolation or self.may_skip

    @functools.cached_property
    def should_have_read(self) -> Sequence[Add]:
        """The winner's adds with rows that are new and that it may have selected, as far as files tell."""
        # Most files are of other partitions than those that were read, and that is what is seen the quickest.
        return list(self._selected(self.candidates))

    def _selected(self, adds: Sequence[Add]) -> Iterator[Add]:
        winner, states, rows = self.winner, self.state.files.states, self.state.rows
        with_statistics = functools.partial(winner.with_statistics, among=len(adds))
        for add in adds:
            if not winner.brings_rows(add):
                continue
            path, vector = file_key(add)
            # A file that was read, and is added again as it was, brings nothing.
            if path in states and vector_id(states[path].vector) == vector:
                continue
            if rows.may_match(add, with_statistics):
                yield add

    def added_rows(self) -> tuple[list[Add], list[AddedRows]]:
        """By rows: the winner's adds that it should have read for certain, and those whose rows must tell.

        Of a file that was there before, only those rows are asked that its deletion vector hides no more.
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
            back = touched.back(path, add) if path in winner.removed else None
            if back is None:
                asked.append(AddedRows(add))
            elif len(back):
                asked.append(AddedRows(winner.with_statistics(add), back))
        if self.state.everything or EVERYTHING in self.state.read.rows:
            return [*certain, *(one.add for one in asked)], []
        return certain, asked

    def why_files(self, paths: Collection[str]) -> str | None:
        """Why files decided over these paths, where rows might have."""
        winner, changes, keys = self.winner, self.state.changes, set(map(same_path, paths))
        if not keys.isdisjoint(self.touched.unknown):
            return "VACUUM has removed deletion vectors that it takes to compare rows; other commits had replaced them"
        if not changes.vectors:
            return None
        if winner.rearranges and not keys <= self.facts.relocations.keys():
            return f"version {winner.version} does not say where the rows are that it moved"
        if not changes.row_level and not keys.isdisjoint(winner.added):
            return "the table has partition columns, or rows were not to be compared (row_level)"
        return None

    # --- what it takes to say more ---

    @functools.cached_property
    def unlocated(self) -> Unlocated | None:
        """The files whose rows must be found by their ids before it can be said what the winner did to them; None where
        there is nothing to be found, or no means to.
        """
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
        """The deletion vectors that must be read before it can be said what the winner did to rows."""
        by_rows = self.state.changes.row_level and self.winner.removes and not self.overlooks
        return self.touched.vectors_needed(self.should_have_read if by_rows else ())
