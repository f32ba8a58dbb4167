"""The judge: decides by trying all orders whether a history is Serializable or WriteSerializable, and says why.

It is the definition to which engines are held, so it is as naive as possible and knows nothing of files, statistics,
read sets or conflict rules. A table is a set of identified rows. An operation is a function of the table that it sees
and says what it removes, what it adds and what it was shown. A row that is changed is removed and added under a new
identity, which names the transaction and the row that it came from: two runs of an operation had the same effect
exactly if they met the same rows. The table's properties, and other parts that are no rows, are rows too.

It imports nothing else of refdelta, so that another engine can be judged without it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

SERIALIZABLE: Final = "Serializable"
WRITE_SERIALIZABLE: Final = "WriteSerializable"
LEVELS: Final = (SERIALIZABLE, WRITE_SERIALIZABLE)


class Row(NamedTuple):
    """A row: its identity, by which it is followed through a history, and its values."""

    identity: Hashable
    values: tuple[Any, ...]

    def __hash__(self) -> int:
        return hash(self.identity)


State = frozenset[Row]
"""A table: its rows."""

_NO_ROWS: Final[State] = frozenset()


class Effect(NamedTuple):
    """The effect of an operation, and what its caller learned from it."""

    removed: State = _NO_ROWS
    added: State = _NO_ROWS
    seen: Hashable = None

    @property
    def writes(self) -> bool:
        """True if it removes or adds a row."""
        return bool(self.removed or self.added)


Operation = Callable[[str, State], Effect]
"""The transaction's name and the table that it sees, to its effect."""


@dataclass(frozen=True)
class Transaction:
    """A transaction that took place.

    Attributes:
        name: names it, and the rows that it adds.
        operation: what it does.
        began: the version that it saw.
        committed: the version that it made; None if it only read.
        observed: its effect, where that is not what the operation makes of the version that it began at. Only an
            engine that does not keep to snapshots has such transactions.
        strict: True if it asked for Serializable on a table that is WriteSerializable.
    """

    name: str
    operation: Operation
    began: int
    committed: int | None
    observed: Effect | None = None
    strict: bool = False

    @property
    def place(self) -> int:
        """The version that it made; -1 if it only read."""
        return -1 if self.committed is None else self.committed


@dataclass(frozen=True)
class History:
    """Version 0 of a table and the transactions that took place. One that was refused did not take place."""

    start: State
    transactions: tuple[Transaction, ...]

    @property
    def writers(self) -> list[Transaction]:
        """Those that made a version, in the order of the log."""
        return sorted((t for t in self.transactions if t.committed is not None), key=lambda t: t.place)

    @property
    def readers(self) -> list[Transaction]:
        """Those that only read."""
        return [t for t in self.transactions if t.committed is None]


class Edge(NamedTuple):
    """A dependency: one transaction must stand before another one in every serial order.

    Attributes:
        before: the transaction that stands first.
        after: the other one.
        because: a sentence that says why.
    """

    before: str
    after: str
    because: str


@dataclass(frozen=True)
class Explanation:
    """The answer of the judge.

    Attributes:
        order: a serial order that explains the history; None if there is none.
        cycle: dependencies that exclude every order, each beginning where the one before it ends. Empty if there is an
            order, or if only three or more transactions together exclude one, and no two of them.
    """

    order: tuple[str, ...] | None
    cycle: tuple[Edge, ...] = ()

    def __str__(self) -> str:
        if self.order is not None:
            return f"the order {', '.join(self.order) or 'of nothing'} explains it"
        if not self.cycle:
            return "no order explains it"
        return "no order explains it: " + "; ".join(
            f"{e.before} before {e.after}, since {e.because}" for e in self.cycle
        )


def play(history: History) -> tuple[list[State], dict[str, Effect]]:
    """The versions of a history, and every transaction's effect, each made of the version that it began at.

    Raises:
        ValueError: the versions have a gap.
    """
    versions = [history.start]
    effects = {}
    for number, transaction in enumerate(history.writers, 1):
        if transaction.committed != number:
            raise ValueError(f"{transaction.name} made version {transaction.committed}, but the log has {number} next")
        effect = effects[transaction.name] = _happened(transaction, versions)
        versions.append(apply(versions[-1], effect))
    for transaction in history.readers:
        effects[transaction.name] = _happened(transaction, versions)
    return versions, effects


def _happened(transaction: Transaction, versions: Sequence[State]) -> Effect:
    return transaction.observed or transaction.operation(transaction.name, versions[transaction.began])


def apply(state: State, effect: Effect) -> State:
    """The table after an effect."""
    return (state - effect.removed) | effect.added


def serially(start: State, order: Iterable[Transaction]) -> tuple[list[State], dict[str, Effect]]:
    """The same transactions one at a time: the table before and after each, and each one's effect."""
    states, effects = [start], {}
    for transaction in order:
        effects[transaction.name] = transaction.operation(transaction.name, states[-1])
        states.append(apply(states[-1], effects[transaction.name]))
    return states, effects


def serial_orders(history: History, level: str, end: State | None = None) -> Iterator[tuple[str, ...]]:
    """All serial orders of the writing transactions that explain a history.

    Serializable: the order is that of the log, every version is what a prefix of it makes, and what only reads finds
    its place at its version. WriteSerializable: any order in which every writing transaction has the effect that it
    had, and the table ends as it ended; what only reads is not asked about. A transaction that is strict comes after
    all that the log has before it.

    Args:
        history: what took place.
        level: ``Serializable`` or ``WriteSerializable``.
        end: the rows that were found at the end; unless given, those that the effects leave. An engine that merges
            commits may leave others than their effects one by one.

    Yields:
        The names of the writing transactions in an order.
    """
    versions, happened = play(history)
    found = versions[-1] if end is None else end
    if level == SERIALIZABLE:
        order = history.writers
        states, effects = serially(history.start, order)
        expected = versions if end is None else [*versions[:-1], end]
        if (
            states == expected
            and all(effects[t.name] == happened[t.name] for t in order)
            and all(t.operation(t.name, states[t.began]) == happened[t.name] for t in history.readers)
        ):
            yield tuple(t.name for t in order)
        return
    yield from _orders(history.start, history.writers, happened, found)


def _orders(
    state: State, left: Sequence[Transaction], happened: Mapping[str, Effect], end: State
) -> Iterator[tuple[str, ...]]:
    """Try which transaction comes next, until all have a place."""
    if not left:
        if state == end:
            yield ()
        return
    for transaction in left:
        others = [t for t in left if t is not transaction]
        if transaction.strict and any(t.place < transaction.place for t in others):
            continue
        effect = transaction.operation(transaction.name, state)
        if effect == happened[transaction.name]:
            for rest in _orders(apply(state, effect), others, happened, end):
                yield (transaction.name, *rest)


def serial_order(history: History, level: str) -> tuple[str, ...] | None:
    """The first of :func:`serial_orders`, or None: the history violates the level.

    Example:
        >>> from refdelta.conformance.judge import Effect, History, Row, Transaction, serial_order
        >>> old = Row("row", (1,))
        >>> take = lambda name, state: Effect(removed=state, added=frozenset({Row(name, (len(state),))}))
        >>> both = Transaction("A", take, 0, 1), Transaction("B", take, 0, 2)
        >>> serial_order(History(frozenset({old}), both), "WriteSerializable") is None
        True
    """
    return next(serial_orders(history, level), None)


def accepts(history: History, level: str) -> bool:
    """True if the history is what the level promises."""
    return serial_order(history, level) is not None


def explain(history: History, level: str, end: State | None = None) -> Explanation:
    """A serial order that explains a history, or a cycle of dependencies that excludes every order.

    Two transactions depend on one another if one of them would have had another effect with or without the other.
    That is found by running its operation on the table that it saw, once with the other one's rows and once without.

    Args:
        history: what took place.
        level: ``Serializable`` or ``WriteSerializable``.
        end: as in :func:`serial_orders`.

    Example:
        >>> from refdelta.conformance.judge import Effect, History, Row, Transaction, explain
        >>> take = lambda name, state: Effect(removed=state)
        >>> both = Transaction("A", take, 0, 1), Transaction("B", take, 0, 2)
        >>> found = explain(History(frozenset({Row("row", (1,))}), both), "Serializable")
        >>> found.order, [(edge.before, edge.after) for edge in found.cycle]
        (None, [('B', 'A'), ('A', 'B')])
    """
    order = next(serial_orders(history, level, end), None)
    return Explanation(order) if order is not None else Explanation(None, _cycle(list(_edges(history, level))))


def _edges(history: History, level: str) -> Iterator[Edge]:
    versions, happened = play(history)
    writers = history.writers
    asked = history.transactions if level == SERIALIZABLE else tuple(writers)
    for one in asked:
        seen = versions[one.began]
        for other in writers:
            if other is one:
                continue
            effect = happened[other.name]
            knew = other.place <= one.began
            without = (seen - effect.added) | effect.removed if knew else apply(seen, effect)
            if one.operation(one.name, without) == happened[one.name]:
                continue
            if knew:
                yield Edge(other.name, one.name, f"{one.name} saw what {other.name} changed, and rests on it")
            else:
                because = f"{one.name} did not see what {other.name} changed, and would have acted otherwise after it"
                yield Edge(one.name, other.name, because)
    for place, second in enumerate(writers):
        if level == SERIALIZABLE or second.strict:
            for first in writers[:place]:
                yield Edge(first.name, second.name, f"the log has {first.name} first")


def _cycle(edges: Sequence[Edge]) -> tuple[Edge, ...]:
    """A shortest cycle of the edges; empty if there is none."""
    paths: list[tuple[Edge, ...]] = [(edge,) for edge in edges]
    for _ in {edge.before for edge in edges}:
        for path in paths:
            if path[-1].after == path[0].before:
                return path
        paths = [
            (*path, edge)
            for path in paths
            for edge in edges
            if edge.before == path[-1].after and edge.after not in {each.after for each in path}
        ]
    return ()
