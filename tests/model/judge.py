"""The judge: decides by trying all orders whether a history is Serializable or WriteSerializable.

It is the definition that the engine is held to, so it is as naive as possible and knows nothing of files, statistics,
read sets or conflict rules. A table is a set of identified rows. An operation is a function of the table that it sees
and says what it removes, what it adds and what it was shown. A row that is changed is removed and added under a new
identity, which names the transaction and the row that it came from: two runs of an operation had the same effect
exactly if they met the same rows. What is not a row, such as the table's properties, is a row too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SERIALIZABLE, WRITE_SERIALIZABLE = "Serializable", "WriteSerializable"
LEVELS = (SERIALIZABLE, WRITE_SERIALIZABLE)


class Row(NamedTuple):
    """A row: who it is, and what it says."""

    identity: Hashable
    values: tuple

    def __hash__(self):
        return hash(self.identity)


State = frozenset[Row]


class Effect(NamedTuple):
    """What an operation did, and what its caller learned from it."""

    removed: State = frozenset()
    added: State = frozenset()
    seen: Hashable = None

    @property
    def writes(self) -> bool:
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
        strict: whether it asked for Serializable on a table that is WriteSerializable.
    """

    name: str
    operation: Operation
    began: int
    committed: int | None
    observed: Effect | None = None
    strict: bool = False


@dataclass(frozen=True)
class History:
    """Version 0 of a table and the transactions that took place. One that was refused did not take place."""

    start: State
    transactions: tuple[Transaction, ...]

    @property
    def writers(self) -> list[Transaction]:
        """In the order of the log."""
        return sorted((t for t in self.transactions if t.committed is not None), key=lambda t: t.committed)

    @property
    def readers(self) -> list[Transaction]:
        return [t for t in self.transactions if t.committed is None]


def play(history: History) -> tuple[list[State], dict[str, Effect]]:
    """What happened: every version, and every transaction's effect, each made of the version that it began at."""
    versions = [history.start]
    effects = {}
    for number, transaction in enumerate(history.writers, 1):
        assert transaction.committed == number, "the versions of a log have no gaps"
        effect = effects[transaction.name] = _happened(transaction, versions)
        versions.append(apply(versions[-1], effect))
    for transaction in history.readers:
        effects[transaction.name] = _happened(transaction, versions)
    return versions, effects


def _happened(transaction: Transaction, versions: Sequence[State]) -> Effect:
    return transaction.observed or transaction.operation(transaction.name, versions[transaction.began])


def apply(state: State, effect: Effect) -> State:
    return (state - effect.removed) | effect.added


def serially(start: State, order: Iterable[Transaction]) -> tuple[list[State], dict[str, Effect]]:
    """The same transactions one at a time: the table before and after each, and each one's effect."""
    states, effects = [start], {}
    for transaction in order:
        effects[transaction.name] = transaction.operation(transaction.name, states[-1])
        states.append(apply(states[-1], effects[transaction.name]))
    return states, effects


def serial_order(history: History, level: str) -> tuple[str, ...] | None:
    """Names of the writing transactions in a serial order that explains the history, or None: it violates the level.

    Serializable: the order is that of the log, every version is what a prefix of it makes, and what only reads finds
    its place at its version. WriteSerializable: any order in which every writing transaction has the effect that it
    had, and the table ends as it ended; what only reads is not asked about. A transaction that is strict comes after
    all that the log has before it.
    """
    versions, happened = play(history)
    if level == SERIALIZABLE:
        order = history.writers
        states, effects = serially(history.start, order)
        if states != versions or any(effects[t.name] != happened[t.name] for t in order):
            return None
        if any(t.operation(t.name, states[t.began]) != happened[t.name] for t in history.readers):
            return None
        return tuple(t.name for t in order)
    return _some_order(history.start, history.writers, happened, versions[-1])


def _some_order(
    state: State, left: Sequence[Transaction], happened: Mapping[str, Effect], end: State
) -> tuple[str, ...] | None:
    """Tries who comes next, until all that are left have a place."""
    if not left:
        return () if state == end else None
    for transaction in left:
        others = [t for t in left if t is not transaction]
        if transaction.strict and any(t.committed < transaction.committed for t in others):
            continue
        effect = transaction.operation(transaction.name, state)
        if effect != happened[transaction.name]:
            continue
        rest = _some_order(apply(state, effect), others, happened, end)
        if rest is not None:
            return (transaction.name, *rest)
    return None


def accepts(history: History, level: str) -> bool:
    """Whether the history is what the level promises."""
    return serial_order(history, level) is not None
