"""Histories: every way to interleave the begins and commits of a few transactions, and checkers to run them with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from model.operations import Statement
from refdelta.conformance.judge import State, Transaction, apply


def interleavings(count: int) -> Iterator[tuple[int, ...]]:
    """Every order of the begins and commits of ``count`` transactions: each number comes twice, first to begin."""

    def extend(made: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(made) == 2 * count:
            yield made
        for i in range(count):
            if made.count(i) < 2:
                yield from extend((*made, i))

    return extend(())


@dataclass(frozen=True)
class Attempt:
    """What a checker is told when a transaction wants to commit.

    Attributes:
        operation: what it does.
        began: the version that it saw.
        versions: all so far.
        others: who made them, in order.
    """

    operation: Statement
    began: int
    versions: Sequence[State]
    others: Sequence[Transaction]

    @property
    def winners(self) -> list[Transaction]:
        return [t for t in self.others if t.committed > self.began]

    def removed_by(self, other: Transaction) -> State:
        return self.versions[other.committed - 1] - self.versions[other.committed]

    def added_by(self, other: Transaction) -> State:
        return self.versions[other.committed] - self.versions[other.committed - 1]


Checker = Callable[[Attempt], bool]
"""Whether the attempt may commit."""


def run(
    start: State, operations: Sequence[Statement], interleaving: Sequence[int], check: Checker
) -> tuple[Transaction, ...]:
    """What comes of an interleaving in an engine with this checker: the transactions that took place."""
    versions, took_place, began = [start], [], {}
    for i in interleaving:
        name, operation = f"T{i}", operations[i]
        if i not in began:
            began[i] = len(versions) - 1
            continue
        effect = operation(name, versions[began[i]])
        if not effect.writes:
            took_place.append(Transaction(name, operation, began[i], None))
            continue
        others = [t for t in took_place if t.committed is not None]
        if check(Attempt(operation, began[i], versions, others)):
            versions.append(apply(versions[-1], effect))
            took_place.append(Transaction(name, operation, began[i], len(versions) - 1))
    return tuple(took_place)


def by_rows(attempt: Attempt) -> bool:
    """WriteSerializable by rows, where blind appends are ignored always: not sound, as the contract says."""
    found = attempt.operation.found(attempt.versions[attempt.began])
    for winner in attempt.winners:
        if found & attempt.removed_by(winner):
            return False
        if winner.operation.reads is not None and _reads_any(attempt.operation, attempt.added_by(winner)):
            return False
    return True


def by_rows_and_precedence(attempt: Attempt) -> bool:
    """The same with the contract's simple rule for a transaction that skips a matching blind append: it is placed
    before it, so its writes must not touch what any later transaction reads, blind appends apart.
    """
    if not by_rows(attempt):
        return False
    skipped = [
        w.committed
        for w in attempt.winners
        if w.operation.reads is None and _reads_any(attempt.operation, attempt.added_by(w))
    ]
    if not skipped:
        return True
    effect = attempt.operation("T", attempt.versions[attempt.began])
    return not any(
        _reads_any(other.operation, effect.removed | effect.added)
        for other in attempt.others
        if other.committed > min(skipped)
    )


def _reads_any(operation: Statement, rows: State) -> bool:
    return operation.reads is not None and any(operation.reads(*row.values) for row in rows)
