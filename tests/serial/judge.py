"""Whether a history of committed transactions has a serial order. It tries all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serial.expressions import UserError
from serial.world import Transaction, World

SERIALIZABLE = "Serializable"


@dataclass(frozen=True)
class Committed:
    """A transaction that was committed.

    Attributes:
        name: its name in the program.
        transaction: what it is.
        began: the version that it saw.
        version: the version that it made; None where it wrote nothing.
        observed: what it read.
    """

    name: str
    transaction: Transaction
    began: int
    version: int | None
    observed: tuple[object, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the order of the log; one that wrote nothing stands at its snapshot."""
        return (self.began, 1) if self.version is None else (self.version, 0)

    @property
    def blind(self) -> bool:
        """Whether it is a blind append. One that creates the table is not."""
        return self.began >= 0 and self.transaction.blind


def orders(history: Sequence[Committed]) -> Iterator[tuple[Committed, ...]]:
    """The orders that WriteSerializable allows, that of the log first.

    Two transactions may change places only by a blind append that moves after a transaction which did not see it,
    and then nothing moves in front of what asked to be Serializable.
    """
    log = sorted(history, key=lambda one: one.place)
    for order in itertools.permutations(log):
        place = {one.name: at for at, one in enumerate(order)}
        if all(_allowed(log, place, a, b) for a, b in itertools.combinations(log, 2) if place[b.name] < place[a.name]):
            yield order


def _allowed(log: Sequence[Committed], place: dict[str, int], first: Committed, second: Committed) -> bool:
    """Whether ``second`` may stand before ``first``, which precedes it in the log."""
    if second.transaction.isolation == SERIALIZABLE:
        return False
    return any(
        append.blind
        and place[second.name] < place[append.name]
        and (second.began < append.place[0] or _carried(log, place, append, second))
        for append in log[: log.index(first) + 1]
    )


def _carried(log: Sequence[Committed], place: dict[str, int], append: Committed, second: Committed) -> bool:
    """Whether ``second`` stands before an append because it must precede another one that did not see the append."""
    return any(
        other.began < append.place[0] and place[second.name] < place[other.name] < place[append.name]
        for other in log[log.index(second) + 1 :]
    )


def explain(history: Sequence[Committed], start: World, end: World, level: str) -> str | None:
    """Why a history is wrong; None where it has a serial order.

    Args:
        history: the transactions that were committed.
        start: the table before them.
        end: the table after them.
        level: the table's isolation level.
    """
    writers = [one for one in history if one.version is not None]
    if level == SERIALIZABLE:
        strict = {one.name for one in history if one.version is None or not one.transaction.moves_rows_only}
        return replay(sorted(history, key=lambda one: one.place), start, end, strict)
    # A commit that only rearranges files is under snapshot isolation, whatever level it asks for.
    asked = [one for one in writers if one.transaction.isolation == SERIALIZABLE]
    strict = {one.name for one in asked if not one.transaction.moves_rows_only}
    first = None
    for order in orders(writers):
        found = replay(order, start, end, strict)
        if found is None:
            return None
        first = first or found
    return f"no order of {', '.join(one.name for one in writers)} explains it; in the order of the log: {first}"


def replay(order: Sequence[Committed], start: World, end: World, strict: set[str]) -> str | None:
    """How an order differs from what happened; None where it does not.

    Args:
        order: transactions.
        start: the table before them.
        end: the table after them.
        strict: names of those whose reads must agree, too.
    """
    world = start
    for one in order:
        try:
            after, observed = one.transaction.on(world)
        except UserError as error:
            return f"{one.name} would have failed: {error}"
        if one.name in strict and list(one.observed) != observed:
            return f"{one.name} read {list(one.observed)}, and would have read {observed}"
        if one.version is None:
            # It wrote nothing where it stood.
            if after.outcome() != world.outcome():
                return f"{one.name} wrote nothing, and would have written"
        else:
            world = after
    found, expected = end.outcome(), world.outcome()
    for part in expected:
        if found[part] != expected[part]:
            return f"{part}: {_shown(found[part])}, and would have been {_shown(expected[part])}"
    return None


def _shown(value: object) -> object:
    return sorted(value.elements(), key=str) if hasattr(value, "elements") else value
