"""How a transaction stands behind the winners that were checked so far: what the rules ask of it.

What it read never changes. What may change from winner to winner is what it will write, and where in the serial order
it can still stand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from refdelta.concurrency.isolation import IsolationLevel
from refdelta.concurrency.matching import Matcher
from refdelta.concurrency.precedence import Effects, Precedence
from refdelta.concurrency.read_set import ReadSet, ReadTable
from refdelta.concurrency.refresh import known_vectors, refreshed, take_over
from refdelta.concurrency.summary import CommitSummary, fold
from refdelta.protocol.actions import Add, AnyAction, Metadata
from refdelta.protocol.paths import same_path
from refdelta.protocol.predicate import TRUE, Predicate
from refdelta.protocol.replay import file_key


@dataclass(slots=True)
class Standing:
    """One transaction on its way through its winners.

    Attributes:
        read: what it read.
        actions: what it does, commitInfo included.
        level: the level that it asks for.
        table: the table as it saw it; without it no winner's file is ruled out.
        staged: its actions, folded like a winner's. The files that it removes have the statistics with which they were
            read, though a remove is written without.
        rows: asks files for rows that it would have read.
        precedence: see :mod:`refdelta.concurrency.precedence`.
        known: files that it read, removes or adds again, by path: each with its deletion vector's id.
        unseen: files of appends that it skipped: they are live, and it did not read them.
    """

    read: ReadSet
    actions: Sequence[AnyAction]
    level: IsolationLevel = IsolationLevel.SERIALIZABLE
    table: ReadTable | None = None
    staged: CommitSummary = field(init=False)
    rows: Matcher = field(init=False)
    precedence: Precedence = field(init=False)
    known: dict[str, str | None] = field(init=False)
    unseen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.staged = self._fold()
        self.rows = Matcher(self.predicates, self.table)
        self.precedence = Precedence(Effects(self.staged, self.rows), self.table)
        self.known = {**known_vectors(self.staged), **self.read.files}

    # --- what it is ---

    @property
    def blind(self) -> bool:
        """Whether it read nothing of the table's data, and takes nothing away."""
        return self.read.blind and not self.staged.removes

    @property
    def snapshot_isolation(self) -> bool:
        """Whether it only rearranges data. Then it conflicts over the files themselves only, as in delta-spark."""
        return self.staged.rearranges and not self.staged.changes_table

    @property
    def level_name(self) -> str:
        """What ``commitInfo.isolationLevel`` says of it."""
        return "SnapshotIsolation" if self.snapshot_isolation else self.level.value

    @property
    def everything(self) -> bool:
        """Whether it read the whole table, or may have: files that it removes without saying what it read."""
        return self.read.whole_table or (self.read.blind and not self.blind)

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """Predicates of which each row that it read satisfies one."""
        return (TRUE,) if self.everything else self.read.rows

    # --- what it makes of a winner ---

    def may_skip(self, winner: CommitSummary) -> bool:
        """Whether the level lets it pass over what this winner added, as it stands before it in the serial order."""
        return winner.blind and self.level is IsolationLevel.WRITE_SERIALIZABLE and not self.staged.changes_table

    def should_have_read(self, winner: CommitSummary) -> Iterator[Add]:
        """The winner's adds with rows that are new and that it may have selected."""
        for add in winner.new_rows:
            path, vector = file_key(add)
            # A file that was read, and is added again as it was, brings nothing.
            if path in self.read.files and self.read.files[path] == vector:
                continue
            if self.rows.may_match(add, winner.with_statistics):
                yield add

    def has_read(self, path: str) -> bool:
        """Whether it read the file of this path, as :func:`~refdelta.protocol.paths.same_path` has it."""
        return path in self.read.files or (self.everything and path not in self.unseen)

    def has_seen(self, metadata: Metadata) -> bool:
        """Whether this is the table's metadata as it saw it. No winner that was passed has changed it."""
        return self.table is not None and self.table.metadata == metadata

    def advance(self, winner: CommitSummary) -> bool:
        """Go behind a winner that does not conflict.

        Returns:
            Whether ``actions`` changed.
        """
        if not self.blind and not self.snapshot_isolation:
            skipped = self.may_skip(winner) and any(True for _ in self.should_have_read(winner))
            if skipped:
                self.unseen.update(same_path(add.path) for add in winner.adds)
            self.precedence.pass_over(winner, skipped=skipped)
        news = refreshed(winner, self.known)
        touched = news.keys() & known_vectors(self.staged).keys()
        if not touched:
            return False
        self.actions = take_over(self.actions, news)
        self.staged = self._fold()
        self.precedence.staged.commit = self.staged
        return True

    def _fold(self) -> CommitSummary:
        staged = fold(self.read.version, self.actions)
        known = self.read.statistics
        if not known:
            return staged
        removes = (msgspec.structs.replace(r, stats=r.stats or known.get(same_path(r.path))) for r in staged.removes)
        return dataclasses.replace(staged, removes=tuple(removes))
