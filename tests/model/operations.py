"""What transactions do in the judge's world, where a row is ``(key, colour)``; one more row stands for the metadata,
and one for an application's version. Tables with more than that have further rows, see :mod:`model.calls`.

Every operation but one that only shows the table also reads the metadata, as each writer of Delta does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from refdelta.conformance.judge import Effect, Row, State

Values = tuple[int | None, int | None]
Where = Callable[[int | None, int | None], bool]

METADATA = "metadata"
APPLICATION = "application"


def rows(*values: Values) -> State:
    """Rows of version 0."""
    return frozenset(Row(f"row {i}", v) for i, v in enumerate(values))


def metadata(*settings: str) -> Row:
    """The row that stands for the metadata of version 0."""
    return Row(METADATA, (METADATA, *settings))


def data_of(state: State) -> list[Values]:
    """The values of the table's rows, in order."""
    return in_order(row.values for row in state if is_data(row))


def in_order(rows: Iterable[Values]) -> list[Values]:
    """The rows in order, nulls last."""
    return sorted(rows, key=lambda row: [(value is None, value or 0) for value in row])


def is_data(row: Row) -> bool:
    """Whether it is a row of the table: the others begin with a word that says what they stand for."""
    return not isinstance(row.values[0], str)


def plus(value: int | None, more: int) -> int | None:
    """A sum, null where the value is."""
    return None if value is None else value + more


def colour(wanted: int) -> Where:
    return lambda _, a: a == wanted


def key(*wanted: int) -> Where:
    return lambda k, _: k in wanted


def everything(_k: int, _a: int) -> bool:
    return True


@dataclass(frozen=True)
class Statement:
    """An operation that reads the rows of one predicate.

    Attributes:
        reads: the rows that it asks for; None if it is blind.
        does: its effect, of its name and the rows that it found. It cannot depend on more.
        lists: whether the caller sees the rows.
        alters: whether it rests on the metadata alone, and changes it.
    """

    reads: Where | None
    does: Callable[[str, State], tuple[State, State]]
    lists: bool = False
    alters: bool = False

    def __call__(self, name: str, state: State) -> Effect:
        found = self.found(state)
        header = frozenset(row for row in state if row.values[0] == METADATA)
        if self.alters:
            changed = frozenset(Row((name, row.identity), (*row.values, name)) for row in header)
            return Effect(header, changed, None)
        removed, added = self.does(name, found)
        return Effect(removed, added, (header, found if self.lists else None))

    def fails(self, state: State) -> bool:
        """Whether it raises where the table is so."""
        return False

    def found(self, state: State) -> State:
        if self.reads is None:
            return frozenset()
        return frozenset(row for row in state if is_data(row) and self.reads(*row.values))


@dataclass(frozen=True)
class Restore(Statement):
    """RESTORE: the table becomes what it was, the metadata too. Rows that come back are the ones that went."""

    then: State = frozenset()

    def __call__(self, name: str, state: State) -> Effect:
        header = frozenset(row for row in state if row.values[0] == METADATA)
        now = frozenset(row for row in state if row.values[0] != APPLICATION)
        return Effect(now - self.then, self.then - now, (header, None))


@dataclass(frozen=True)
class Once(Statement):
    """An append by an application that records its version, and leaves it at that where a row says it did so before."""

    def __call__(self, name: str, state: State) -> Effect:
        header = frozenset(row for row in state if row.values[0] == METADATA)
        recorded = frozenset(row for row in state if row.values[0] == APPLICATION)
        if recorded:
            return Effect(seen=(header, recorded))
        _, added = self.does(name, frozenset())
        return Effect(frozenset(), added | {Row((name, APPLICATION), (APPLICATION,))}, (header, recorded))


def _new(name: str, values: tuple[Values, ...]) -> State:
    return frozenset(Row((name, i), v) for i, v in enumerate(values))


def insert(*values: Values) -> Statement:
    """A blind append."""
    return Statement(None, lambda name, _: (frozenset(), _new(name, values)))


def insert_once(*values: Values) -> Statement:
    return Once(None, lambda name, _: (frozenset(), _new(name, values)))


def copy(where: Where, change: Callable[[int, int], Values] = lambda k, a: (k, a)) -> Statement:
    """INSERT INTO t SELECT ... FROM t WHERE ..."""
    return Statement(where, lambda name, found: (frozenset(), _changed(name, found, change)), lists=True)


def read_then_insert(where: Where, *values: Values) -> Statement:
    """Looks at some rows and inserts what does not depend on them: its caller saw them nevertheless."""
    return Statement(where, lambda name, _: (frozenset(), _new(name, values)), lists=True)


def show(where: Where) -> Statement:
    return Statement(where, lambda _name, _found: (frozenset(), frozenset()), lists=True)


def delete(where: Where) -> Statement:
    return Statement(where, lambda _, found: (found, frozenset()))


def update(where: Where, change: Callable[[int, int], Values]) -> Statement:
    """UPDATE: each row that is found makes way for its next version."""
    return Statement(where, lambda name, found: (found, _changed(name, found, change)))


def paint(before: int, after: int) -> Statement:
    """UPDATE SET a = after WHERE a = before"""
    return update(colour(before), lambda k, _: (k, after))


def _changed(name: str, found: State, change: Callable[[int, int], Values]) -> State:
    return frozenset(Row((name, row.identity), change(*row.values)) for row in found)


def merge(source: Mapping[int, int], *, matched: str = "update") -> Statement:
    """MERGE ON the key: WHEN MATCHED the colour is taken, the row deleted, deleted only if the source has colour 0, or
    nothing done; otherwise INSERT.
    """
    goes = {"delete": set(source), "delete some": {k for k, a in source.items() if a == 0}}.get(matched, set())

    def does(name: str, found: State) -> tuple[State, State]:
        present = {row.values[0] for row in found}
        added = frozenset(Row((name, k), (k, a)) for k, a in source.items() if k not in present)
        if matched == "update":
            return found, added | _changed(name, found, lambda k, _: (k, source[k]))
        return frozenset(row for row in found if row.values[0] in goes), added

    return Statement(key(*source), does)


def merge_all(source: Mapping[int, int]) -> Statement:
    """MERGE ON the key: what matches takes the colour, what the source lacks goes, what the table lacks comes."""

    def does(name: str, found: State) -> tuple[State, State]:
        kept = frozenset(row for row in found if row.values[0] in source)
        present = {row.values[0] for row in kept}
        added = frozenset(Row((name, k), (k, a)) for k, a in source.items() if k not in present)
        return found, added | _changed(name, kept, lambda k, _: (k, source[k]))

    return Statement(everything, does)


def merge_within(a: int, source: Collection[int]) -> Statement:
    """MERGE ON the key and one colour: what matches is deleted, otherwise INSERT of that colour."""

    def does(name: str, found: State) -> tuple[State, State]:
        present = {row.values[0] for row in found}
        return found, frozenset(Row((name, k), (k, a)) for k in source if k not in present)

    return Statement(lambda k, colour: k in source and colour == a, does)


def replace(where: Where, *values: Values) -> Statement:
    """INSERT REPLACE WHERE, and with everything as its predicate the full overwrite."""
    return Statement(where, lambda name, found: (found, _new(name, values)))


def rearrange() -> Statement:
    """OPTIMIZE, REORG: the rows stay who they are."""
    return Statement(None, lambda _name, _found: (frozenset(), frozenset()))


def restore(then: State) -> Statement:
    return Restore(everything, lambda _name, _found: (frozenset(), frozenset()), then=then)


def set_property() -> Statement:
    return Statement(None, lambda _name, _found: (frozenset(), frozenset()), alters=True)
