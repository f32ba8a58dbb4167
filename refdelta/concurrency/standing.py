"""How a transaction stands behind the winners that were checked so far: what the rules ask of it.

What it read never changes. What changes from winner to winner is where the rows are that it knows, what it will write,
and where in the serial order it can still stand.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from pyroaring import BitMap64

from refdelta.concurrency.edits import Edit, tombstone, with_vector
from refdelta.concurrency.files import Files
from refdelta.concurrency.groups import Regrouping
from refdelta.concurrency.held import Held, Renewed, vector_id
from refdelta.concurrency.isolation import IsolationLevel
from refdelta.concurrency.lookout import Lookout, RowBudget, only, unfit
from refdelta.concurrency.matching import Matcher
from refdelta.concurrency.places import Group, Move
from refdelta.concurrency.precedence import Effects, Precedence
from refdelta.concurrency.read_set import EVERYTHING, ReadSet, ReadTable
from refdelta.concurrency.refresh import known_vectors, take_over
from refdelta.concurrency.rows import ALL, any_of
from refdelta.concurrency.summary import VACUUM_END, VACUUM_START, CommitSummary, fold
from refdelta.protocol.actions import Add, AnyAction, DeletionVectorDescriptor, Metadata, Remove
from refdelta.protocol.clustering import DOMAIN as CLUSTERING
from refdelta.protocol.evolution import keeps_columns
from refdelta.protocol.paths import same_path
from refdelta.protocol.predicate import TRUE, Predicate
from refdelta.protocol.replay import file_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a transaction does to rows, apart from the actions that it stages ready to be written.

    Attributes:
        edits: the rows that it takes out of files.
        groups: the files that it rearranges.
        vectors: whether deletion vectors may be written.
        row_level: whether rows decide over conflicts, not files.
        now_ms: the time of its tombstones, in milliseconds since 1970.
    """

    edits: Sequence[Edit] = ()
    groups: Sequence[Group] = ()
    vectors: bool = False
    row_level: bool = False
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Untold:
    """Files whose rows went elsewhere, without anybody saying where to.

    Attributes:
        inputs: the files, as the log says or is to say.
        outputs: the files that hold their rows.
        group: the number of the group of ours that they are of; None for files that the winner rearranged.
    """

    inputs: tuple[Remove, ...]
    outputs: tuple[Add, ...]
    group: int | None = None

    def who(self, winner: CommitSummary) -> str:
        """Who rearranged them, for a reason."""
        return f"by version {winner.version}" if self.group is None else "by this transaction"


@dataclass(slots=True)
class Standing:
    """One transaction on its way through its winners.

    Attributes:
        read: what it read.
        actions: what it stages ready to be written, commitInfo included.
        level: the level that it asks for.
        table: the table as it saw it; without it no winner's file is ruled out.
        work: what else it does.
        budget: how much of winners' data may be looked at to decide by rows.
        staged: all of it, folded like a winner's. The files that it removes have the statistics with which they were
            read, though a remove is written without.
        rows: asks files for rows that it would have read.
        lookout: whether rows of files are looked at, and what was found.
        blind: whether it read nothing of the table's data, and takes nothing away.
        snapshot_isolation: whether it only rearranges data. Then it conflicts over the files themselves only, as in
            delta-spark.
        one_writer: whether the table admits one writer at a time.
        everything: whether it read the whole table, or may have: files that it removes without saying what it read.
        domains: the metadata domains that it read or sets, and those that rest on columns which it removes or retypes.
        precedence: see :mod:`refdelta.concurrency.precedence`.
        files: the files that it knows.
        vacuums: how many of the winners that were passed began a VACUUM of which none was the end.
    """

    read: ReadSet
    actions: Sequence[AnyAction]
    level: IsolationLevel = IsolationLevel.SERIALIZABLE
    table: ReadTable | None = None
    work: Work = field(default_factory=Work)
    budget: RowBudget = field(default_factory=RowBudget)
    staged: CommitSummary = field(init=False)
    blind: bool = field(init=False)
    snapshot_isolation: bool = field(init=False)
    one_writer: bool = field(init=False)
    everything: bool = field(init=False)
    domains: frozenset[str] = field(init=False)
    rows: Matcher = field(init=False)
    lookout: Lookout = field(init=False)
    precedence: Precedence = field(init=False)
    files: Files = field(init=False)
    vacuums: int = 0
    _worked: tuple[Add | Remove, ...] = field(init=False)
    _asked: tuple[CommitSummary, Sequence[Add]] | None = None
    _open: tuple[CommitSummary, Sequence[Add]] | None = None
    _apart: CommitSummary | None = None
    # Of which winners, and which groups of ours, rows were looked for.
    _traced: set[tuple[int, int | None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        groups = dict(enumerate(map(Regrouping.of, self.work.groups)))
        self._worked = tuple(_worked(self.work, groups.values()))
        ready = fold(self.read.version, self.actions)
        self.staged = staged = self._fold() if self._worked or self.read.statistics else ready
        self.blind = self.read.blind and not staged.removes
        self.snapshot_isolation = staged.rearranges and not (staged.changes_table or self._writes_what_it_read())
        self.everything = self.read.whole_table or (self.read.blind and not self.blind)
        self.one_writer = self.table is not None and self.table.has_identity_columns
        self.rows = Matcher(self.predicates, self.table)
        self.lookout = Lookout(self.budget, unfit(self.read))
        self.domains = self.read.domains | staged.domains | self._domains_over_columns()
        self.precedence = Precedence(Effects(self.staged, self.rows), self.table)
        self.files = self._known_files(groups, ready)

    def _writes_what_it_read(self) -> bool:
        """Whether it may store what it read in the value of a domain, or under an application id."""
        return not self.read.blind and bool(self.staged.domains or self.staged.app_ids)

    def _domains_over_columns(self) -> frozenset[str]:
        """The domains whose values name columns, where it removes or retypes one."""
        metadata, seen = self.staged.metadata, self.table.metadata if self.table else None
        kept = metadata is None or (seen is not None and keeps_columns(seen, metadata))
        return frozenset() if kept else frozenset({CLUSTERING})

    def _known_files(self, groups: dict[int, Regrouping], ready: CommitSummary) -> Files:
        read = self.read.files
        edits = {same_path(edit.add.path): edit for edit in self.work.edits}
        held = {path: Held.of(read.get(path), edits.get(path)) for path in {**read, **edits}}
        if self.everything:
            held = {path: dataclasses.replace(one, read=ALL) for path, one in held.items()}
        return Files(
            held=held,
            pinned=known_vectors(ready),
            groups=groups,
            everything=self.everything,
            vectors=self.work.vectors,
            row_level=self.work.row_level,
            drops_sorts=self._follows_sorts,
        )

    # --- what it is ---

    @property
    def _follows_sorts(self) -> bool:
        """Whether rows that were sorted can be followed, and must be: there the matrices promise that OPTIMIZE never
        conflicts.
        """
        return self.table is not None and self.table.tracks_rows and self.table.clustered

    @property
    def level_name(self) -> str:
        """What ``commitInfo.isolationLevel`` says of it."""
        return "SnapshotIsolation" if self.snapshot_isolation else self.level.value

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """Predicates of which each row that it read satisfies one."""
        return (TRUE,) if self.everything else tuple(dict.fromkeys(one.predicate for one in self.read.rows))

    def has_seen(self, metadata: Metadata) -> bool:
        """Whether this is the table's metadata as it saw it. No winner that was passed has changed it."""
        return self.table is not None and self.table.metadata == metadata

    def is_apart(self, winner: CommitSummary) -> bool:
        """Whether the winner's files are surely none that concern it: then no rule fires, and it stands behind the
        winner as it stands now. Most winners are such, and this is quick to see.
        """
        apart = (
            winner.only_files
            and not (self.one_writer or self.read.version < 0 or self.precedence.first)
            and not (self.read.every_domain or self.read.unowned_since is not None)
            and not (self.everything and winner.removes)
            and self.files.left_alone(winner)
            and (self.blind or self.snapshot_isolation or not self._in_open_partitions(winner))
        )
        self._apart = winner if apart else None
        return apart

    # --- what it makes of a winner's new rows ---

    def may_skip(self, winner: CommitSummary) -> bool:
        """Whether the level lets it pass over what this winner added, as it stands before it in the serial order."""
        return winner.blind and self.level is IsolationLevel.WRITE_SERIALIZABLE and not self.staged.changes_table

    def overlooks(self, winner: CommitSummary) -> bool:
        """Whether nothing that the winner added concerns it."""
        return self.blind or self.snapshot_isolation or self.may_skip(winner)

    def should_have_read(self, winner: CommitSummary) -> Sequence[Add]:
        """The winner's adds with rows that are new and that it may have selected, as far as files tell."""
        if self._asked is None or self._asked[0] is not winner:
            self._asked = winner, list(self._selected(self._in_open_partitions(winner), winner))
        return self._asked[1]

    def _in_open_partitions(self, winner: CommitSummary) -> Sequence[Add]:
        # Most files are of other partitions than those that were read, and that is what is seen the quickest.
        if self._open is None or self._open[0] is not winner:
            self._open = winner, self.rows.in_open_partitions(winner.adds)
        return self._open[1]

    def _selected(self, adds: Sequence[Add], winner: CommitSummary) -> Iterator[Add]:
        held = self.files.held
        with_statistics = functools.partial(winner.with_statistics, among=len(adds))
        for add in adds:
            if not winner.brings_rows(add):
                continue
            path, vector = file_key(add)
            # A file that was read, and is added again as it was, brings nothing.
            if path in held and vector_id(held[path].vector) == vector:
                continue
            if self.rows.may_match(add, with_statistics):
                yield add

    def added_rows(self, winner: CommitSummary) -> tuple[list[Add], list[Add]]:
        """By rows: the winner's adds that it should have read for certain, and those whose rows must tell.

        Of a file that was there before, only those rows are asked that its deletion vector hides no more.
        """
        asked, certain = [], []
        for path, outcome in self.files.outcomes(winner).items():
            if not len(outcome.back):
                continue
            add = winner.with_statistics(winner.added[path])
            if self.files.held[path].read is ALL:
                certain.append(add)
            elif self.rows.may_match(add):
                asked.append(only(add, outcome.back))
        for add in self.should_have_read(winner):
            path = same_path(add.path)
            if path in self.files.held and path not in self.files.unknown(winner):
                continue
            back = self.files.back(path, add, winner) if path in winner.removed else None
            if back is None or len(back):
                asked.append(add if back is None else only(winner.with_statistics(add), back))
        if self.everything or EVERYTHING in self.read.rows:
            return [*certain, *asked], []
        return certain, asked

    def why_files(self, winner: CommitSummary, paths: Collection[str]) -> str | None:
        """Why files decided over these paths, where rows might have."""
        keys = set(map(same_path, paths))
        if not keys.isdisjoint(self.files.unknown(winner)):
            return "VACUUM has removed deletion vectors that it takes to compare rows; other commits had replaced them"
        if not self.work.vectors:
            return None
        if winner.rearranges and not keys <= winner.moves.keys():
            return f"version {winner.version} does not say where the rows are that it moved"
        if not self.work.row_level and not keys.isdisjoint(winner.added):
            return "the table has partition columns, or rows were not to be compared (row_level)"
        return None

    def places_needed(self, winner: CommitSummary) -> Untold | None:
        """The files whose rows must be found by their ids before it can be said what the winner did to them; None where
        there is nothing to be found, or no means to.
        """
        if self.table is None or not self.table.tracks_rows:
            return None
        for wanted in self._untold(winner):
            if (winner.version, wanted.group) in self._traced:
                continue
            self._traced.add((winner.version, wanted.group))
            why = self.lookout.too_many_to_trace(wanted.outputs, limited=not self._follows_sorts)
            if why is None:
                return wanted
            self.lookout.reasons[why] = None
        return None

    def _untold(self, winner: CommitSummary) -> Iterator[Untold]:
        if inputs := self.files.untold(winner):
            yield Untold(tuple(inputs), tuple(map(winner.with_statistics, winner.adds)))
        for number, group in self.files.scattered(winner).items():
            own = [tombstone(one.add, now_ms=self.work.now_ms, data_change=False) for one in group.group.inputs]
            yield Untold(tuple(own), tuple(output.add for output in group.group.outputs), number)

    def learn(self, wanted: Untold, winner: CommitSummary, found: Mapping[str, Move]) -> None:
        """Take note of where the rows of files are, if all of them were found."""
        if len(found) < len(wanted.inputs):
            who = wanted.who(winner)
            self.lookout.reasons[f"the ids of rows that were rearranged {who} are in none of the new files"] = None
        elif wanted.group is None:
            winner.learn(found)
        else:
            self.files.place(wanted.group, found)

    def vectors_needed(self, winner: CommitSummary) -> tuple[DeletionVectorDescriptor, ...]:
        """The deletion vectors that must be read before it can be said what the winner did to rows."""
        if self.files.settled(winner):
            return ()
        by_rows = self.work.row_level and winner.removes and not self.overlooks(winner)
        return self.files.vectors_needed(winner, self.should_have_read(winner) if by_rows else ())

    # --- going on ---

    def advance(self, winner: CommitSummary) -> bool:
        """Go behind a winner that does not conflict.

        Returns:
            Whether what is to be written changed.
        """
        if self._apart is winner:
            self._apart = self._open = None
            self.files.pass_by()
            return False
        if not self.blind and not self.snapshot_isolation:
            skipped = self.may_skip(winner) and bool(self.should_have_read(winner))
            if skipped:
                self.files.unseen.update(same_path(add.path) for add in winner.adds)
            self.precedence.pass_over(winner, skipped=skipped)
        if winner.operation == VACUUM_START:
            self.vacuums += 1
        elif winner.operation == VACUUM_END and self.vacuums:
            self.vacuums -= 1
        self.lookout.answers.clear()
        renewed = self._renew(winner)
        self._asked = None
        return self.files.advance(winner) or renewed

    def _renew(self, winner: CommitSummary) -> bool:
        news = {
            path: winner.with_statistics(touch.add)
            for path, touch in self.files.touches(winner).items()
            if path in self.files.pinned and isinstance(touch, Renewed)
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
        return bool(self.work.groups) and not (self.files.groups or self.work.edits or len(self.actions) > 1)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups that are left of those that it rearranges, with what it removes and adds of each."""
        return tuple(group.left for group in self.files.groups.values())

    @property
    def rearranged(self) -> tuple[Group, ...]:
        """The same groups as they were staged, by which the places of all their rows are told."""
        return tuple(group.group for group in self.files.groups.values())

    @property
    def unused(self) -> tuple[Add, ...]:
        """The files that were written for it and that it does not name: of groups that were dropped, or without a live
        row.
        """
        left = self.files.groups
        dropped = [group for number, group in enumerate(self.work.groups) if number not in left]
        outputs = [output.add for group in dropped for output in group.outputs]
        return (*outputs, *(add for group in left.values() for add in group.unused))

    def vectors_wanted(self) -> dict[str, BitMap64]:
        """The deletion vectors that it gives to files, by path. A file of which no row is left gets none."""
        held = ((path, file.hides) for path, file in self.files.held.items() if any_of(file.gone))
        wanted = {path: rows for path, rows in held if rows is not None}
        for group in self.files.groups.values():
            wanted.update(group.wanted())
        return wanted

    def written(self, vectors: Mapping[str, DeletionVectorDescriptor]) -> list[AnyAction]:
        """All that it does, without commitInfo.

        Args:
            vectors: where the deletion vectors are that are :meth:`vectors_wanted`, by path.
        """
        now_ms = self.work.now_ms
        found = list(self.actions[1:])
        for path, held in self.files.held.items():
            if held.entry is not None and any_of(held.gone):
                found.append(tombstone(held.entry, now_ms=now_ms, data_change=True))
                if path in vectors:
                    found.append(with_vector(held.entry, vectors[path], records=held.records, data_change=True))
        for group in self.files.groups.values():
            found.extend(group.actions(vectors, now_ms))
        return found

    def _fold(self) -> CommitSummary:
        known = self.read.statistics
        actions: list[AnyAction] = [*self.actions, *self._worked]
        if known:
            actions = [_with_statistics(one, known) if isinstance(one, Remove) else one for one in actions]
        return fold(self.read.version, actions)


def _with_statistics(remove: Remove, known: Mapping[str, str]) -> Remove:
    return msgspec.structs.replace(remove, stats=remove.stats or known.get(same_path(remove.path)))


def _worked(work: Work, groups: Iterable[Regrouping]) -> Iterator[Add | Remove]:
    """What work comes to, as far as others are concerned: rows that are hidden are taken away, and no row is new."""
    for edit in work.edits:
        yield msgspec.structs.replace(tombstone(edit.add, now_ms=work.now_ms, data_change=True), stats=edit.add.stats)
    for group in groups:
        yield from group.actions({}, work.now_ms)
