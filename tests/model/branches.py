"""Versions of a table as a tree: from any version on, transactions go different ways.

What a transaction stages depends on the version that it sees, and what becomes of its commit on the version that it
meets. Each such step is taken once, however many histories share it, and each version that is made is held to the
judge.
"""

from __future__ import annotations

import abc
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from model.cases import Case
from model.entries import Entries, Wrong, entries_behind
from model.facts import facts_in, facts_of
from model.layouts import START, Layout
from model.operations import Values, data_of, in_order, rearrange
from refdelta import errors
from refdelta.conformance.judge import SERIALIZABLE, History, State, Transaction, accepts, play


@dataclass(eq=False)
class Version:
    """A version in one branch, and the transactions that led to it.

    Attributes:
        log: the content of its log files.
        content: what the engine knows the version by; None if it was forgotten.
        entries: what the log says is live.
        transactions: those since the root.
        state: its rows, in the judge's world.
        start: those of the root.
        gone: the keys of the files that VACUUM has deleted.
        rows: its rows by file, once it was asked for them.
        made_by: the version before it, and the transaction that committed it; None for the root.
    """

    log: tuple[bytes, ...]
    content: Any
    entries: Entries
    transactions: tuple[Transaction, ...] = ()
    state: State = START
    start: State = START
    gone: frozenset[str] = frozenset()
    rows: dict[str, list[Values]] | None = None
    made_by: tuple[Version, Staged] | None = None
    staged: dict[tuple[Case, int, bool], Staged] = field(default_factory=dict)
    children: dict[Staged, Version | Refusal] = field(default_factory=dict)

    @property
    def successors(self) -> Iterator[Version]:
        """The versions that transactions made of it."""
        return (made for made in self.children.values() if isinstance(made, Version) and made is not self)

    @property
    def number(self) -> int:
        """How many transactions made it of the root."""
        return len(self.transactions)

    @property
    def in_log(self) -> int:
        """Its number in the log."""
        return len(self.log) - 1

    def __str__(self) -> str:
        steps = [f"{t.name} (from {t.began}{', strict' if t.strict else ''})" for t in self.transactions]
        return ", ".join(steps) or "the table as it was created"


@dataclass(eq=False)
class Staged:
    """A transaction that has begun at a version and run its statement."""

    case: Case
    at: Version
    strict: bool
    transaction: Any

    @property
    def name(self) -> str:
        return f"{self.case.name} from {self.at.number}"


@dataclass(frozen=True, eq=False)
class Refusal:
    """A commit that was refused.

    Attributes:
        error: the class of the error. The error itself would hold on to all that its traceback refers to.
        conflict: what it says.
    """

    error: type[errors.ConcurrentModificationError]
    conflict: errors.ConflictDetails

    @property
    def rule(self) -> str:
        return self.conflict.rule


@dataclass(frozen=True)
class Committed:
    """A commit that happened.

    Attributes:
        data: its file; VACUUM makes two.
        content: what the version is known by.
        rebased_over: which versions.
        gone: the keys of the files that VACUUM has deleted, now or before.
    """

    data: tuple[bytes, ...]
    content: Any
    rebased_over: list[int]
    gone: frozenset[str] = frozenset()


FAILED = object()
"""Stands for a transaction that raised before its commit."""


class Branches(abc.ABC):
    """The tree of one table at one isolation level.

    Attributes:
        level: of the table.
        layout: how it is made, and what transactions ask for.
        title: both, in words.
        root: the version at which histories begin; it has another one before it.
        statements: how many statements were run.
        commits: how many commits were tried.
    """

    root: Version

    def __init__(self, level: str, layout: Layout):
        self.level, self.layout = level, layout
        self.title = f"{level}, {layout}"
        self.statements = self.commits = 0

    def begin(self, version: Version, case: Case, copy: int = 0, *, strict: bool = False) -> Staged:
        """A transaction that begins at a version and runs its statement there.

        Args:
            version: which it sees.
            case: its statement.
            copy: tells those of one history apart that do the same.
            strict: whether it asks for Serializable, whatever the table says.
        """
        key = case, copy, strict
        if key not in version.staged:
            self._remember(version)
            self.statements += 1
            isolation = SERIALIZABLE if strict else None
            version.staged[key] = Staged(case, version, strict, self.stage(version, case, isolation))
        return version.staged[key]

    def commit(self, version: Version, staged: Staged) -> Version | Refusal:
        """What becomes of a transaction that commits when the table is at ``version``; that version itself, where
        nothing is written.
        """
        if staged not in version.children:
            self._remember(version)
            self.commits += 1
            version.children[staged] = self._commit(version, staged)
        return version.children[staged]

    def _commit(self, version: Version, staged: Staged) -> Version | Refusal:
        if staged.transaction is FAILED:
            return version
        try:
            committed = self.attempt(version, staged)
        except errors.ConcurrentModificationError as error:
            return Refusal(type(error), error.conflict)
        if committed is None:
            if staged.case.statement("T", staged.at.state).writes:
                raise Wrong(f"{staged.name} wrote nothing; before it: {staged.at}")
            return version
        history = supposed(version, staged)
        entries = version.entries
        for data in committed.data:
            entries = entries_behind(entries, data, f"{staged.name}, behind {version}")
        states, happened = play(history)
        log = (*version.log, *committed.data)
        made = Version(
            log,
            committed.content,
            entries,
            history.transactions,
            states[-1],
            version.start,
            committed.gone,
            made_by=(version, staged),
        )
        if committed.rebased_over != list(range(staged.at.in_log + 1, version.in_log + 1)):
            raise Wrong(f"the last of {made} says that it was rebased over {committed.rebased_over}")
        if not accepts(history, self.level):
            raise Wrong(f"at {self.level}, accepted though no serial order explains it: {made}")
        if self.contents(made) != data_of(made.state):
            raise Wrong(f"the rows are {self.contents(made)}, they should be {data_of(made.state)}: {made}")
        if self.layout.wide and facts_in(log) != facts_of(made.state):
            raise Wrong(f"the log says {facts_in(log)}, and should say {facts_of(made.state)}: {made}")
        if self.layout.vectors and not staged.case.rearranges and staged.case.kind != "RESTORE":
            effect = happened[history.transactions[-1].name]
            left, came = self.changes(version, made), self.changes(made, version)
            if (left, came) != (data_of(effect.removed), data_of(effect.added)):
                raise Wrong(f"{left} left files and {came} came, more than changed: {made}")
        return made

    def forget(self) -> None:
        """Keep what became of two transactions that began at the root, and little more: there are thousands of versions
        behind two, and few are asked for again.
        """
        for first in self.root.successors:
            first.staged.clear()
            first.children = {staged: made for staged, made in first.children.items() if staged.at is self.root}
            for second in first.successors:
                second.content = second.rows = None
                second.staged.clear()
                second.children.clear()

    def _remember(self, version: Version) -> None:
        """Make a version again that was forgotten."""
        if version.content is None:
            assert version.made_by is not None
            again = self._commit(*version.made_by)
            assert isinstance(again, Version)
            version.log, version.content, version.entries = again.log, again.content, again.entries

    def undisturbed(self, staged: Staged) -> list[dict[str, Any]]:
        """The actions, commitInfo apart, that a transaction commits to the version at which it began."""
        made = self.commit(staged.at, staged)
        assert isinstance(made, Version)
        actions = [] if made is staged.at else [json.loads(line) for line in made.log[-1].splitlines()]
        return [action for action in actions if "commitInfo" not in action]

    def contents(self, version: Version) -> list[Values]:
        """The rows of a version, in order."""
        return in_order(row for rows in self.rows(version).values() for row in rows)

    def changes(self, version: Version, other: Version) -> list[Values]:
        """The rows that a version has in files in which the other one has them not, in order."""
        theirs = self.rows(other)
        found = [Counter(rows) - Counter(theirs.get(path, ())) for path, rows in self.rows(version).items()]
        return in_order(row for rows in found for row in rows.elements())

    def rows(self, version: Version) -> dict[str, list[Values]]:
        if version.rows is None:
            self._remember(version)
            version.rows = {path: rows for path, _, rows in self.files(version)}
        return version.rows

    @abc.abstractmethod
    def stage(self, version: Version, case: Case, isolation: str | None) -> Any:
        """Begin a transaction and run its statement."""

    @abc.abstractmethod
    def attempt(self, version: Version, staged: Staged) -> Committed | None:
        """Commit, with ``version`` as the newest one; None where nothing was written.

        Raises ``ConcurrentModificationError``. What is staged stays as it is, for other attempts.
        """

    @abc.abstractmethod
    def files(self, version: Version) -> list[tuple[str, dict[str, str | None], list[Values]]]:
        """The live files: path, partition values, rows."""


def supposed(version: Version, staged: Staged) -> History:
    """The history in which this transaction commits as the next version."""
    number = version.number + 1
    name = f"V{number} {staged.case.name}"
    operation = staged.case.statement
    if not operation(name, staged.at.state).writes:
        # It has moved rows at most. What it was shown was the version at which it began, as of one that only reads.
        operation = rearrange()
    made = Transaction(name, operation, staged.at.number, number, strict=staged.strict)
    return History(version.start, (*version.transactions, made))
