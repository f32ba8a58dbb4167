"""Predicates as a typed tree: what they say, over which columns, and what they are for one row.

This module is the definition. Values are internal values (see :mod:`refdelta.protocol.partition_values`), logic is
three-valued: True, False, and None for SQL's NULL. Floats are ordered as Spark orders them: NaN equals NaN and is
above all others. Strings are ordered by their UTF-8 bytes. The columnar twins are ``engine/evaluate`` (rows) and
``engine/skipping`` (files).

A tree comes from :mod:`refdelta.protocol.binding`, which gives columns their types, and both sides of a comparison the
same one.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from refdelta.protocol import partition_values
from refdelta.protocol.like import like_regex
from refdelta.protocol.sql_text import literal_sql, quoted, string_sql
from refdelta.protocol.types import (
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# --- values ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a field of a struct: its path of names, as the schema spells them once it is bound."""

    path: tuple[str, ...]
    type: DataType = VOID

    def __str__(self) -> str:
        return ".".join(quoted(part) for part in self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; ``value`` is an internal value of ``type``, or None."""

    value: Any
    type: DataType

    def __str__(self) -> str:
        return literal_sql(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Cast:
    """A column in a wider type, where a comparison needs it. Casts keep the order of values."""

    child: Column
    type: DataType

    def __str__(self) -> str:
        return str(self.child)


Value = Column | Literal | Cast

# --- conditions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoolLiteral:
    """True, False, or None for NULL."""

    value: bool | None

    def __str__(self) -> str:
        return "NULL" if self.value is None else str(self.value).upper()


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left op right``; ``op`` is one of = <> < <= > >= and <=>, which takes nulls for equal."""

    op: str
    left: Value
    right: Value

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


@dataclass(frozen=True, slots=True)
class In:
    """``child IN (items)``; null among the items makes a miss unknown."""

    child: Value
    items: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{self.child} IN ({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class IsNull:
    """``child IS NULL``: never itself null."""

    child: Column

    def __str__(self) -> str:
        return f"{self.child} IS NULL"


@dataclass(frozen=True, slots=True)
class Like:
    """``child LIKE pattern ESCAPE escape``."""

    child: Column
    pattern: str
    escape: str = "\\"

    def __str__(self) -> str:
        tail = "" if self.escape == "\\" else f" ESCAPE {string_sql(self.escape)}"
        return f"{self.child} LIKE {string_sql(self.pattern)}{tail}"


@dataclass(frozen=True, slots=True)
class Not:
    """NOT: null stays null."""

    child: Predicate

    def __str__(self) -> str:
        return f"NOT ({self.child})"


@dataclass(frozen=True, slots=True)
class And:
    """All of them: False if one is, else null if one is."""

    children: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({child})" for child in self.children)


@dataclass(frozen=True, slots=True)
class Or:
    """One of them: True if one is, else null if one is."""

    children: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({child})" for child in self.children)


Predicate = BoolLiteral | Comparison | In | IsNull | Like | Not | And | Or

TRUE, FALSE, NULL = BoolLiteral(True), BoolLiteral(False), BoolLiteral(None)

NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<=", "<=>": "<=>"}


def conjunction(parts: Iterable[Predicate]) -> Predicate:
    """AND of any number of conditions; of none it is True."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else And(found) if found else TRUE


def disjunction(parts: Iterable[Predicate]) -> Predicate:
    """OR of any number of conditions; of none it is False."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else Or(found) if found else FALSE


# --- the tree ----------------------------------------------------------------------------------------------------


def column_refs(predicate: Predicate) -> Iterator[Column]:
    """Every mention of a column."""
    match predicate:
        case And(children) | Or(children):
            for child in children:
                yield from column_refs(child)
        case Not(inner):
            yield from column_refs(inner)
        case Comparison(_, left, right):
            yield from _value_columns(left)
            yield from _value_columns(right)
        case In(value) | IsNull(value) | Like(value):
            yield from _value_columns(value)


def _value_columns(value: Value) -> Iterator[Column]:
    match value:
        case Column():
            yield value
        case Cast(child):
            yield child


def columns(predicate: Predicate) -> frozenset[tuple[str, ...]]:
    """The paths of the columns that the predicate looks at."""
    return frozenset(column.path for column in column_refs(predicate))


def push_not(predicate: Predicate, *, negate: bool = False) -> Predicate:
    """The same predicate with NOT only before IN, LIKE, IS NULL and <=>; the laws used hold in three-valued logic
    too.
    """
    match predicate:
        case Not(child):
            return push_not(child, negate=not negate)
        case And(children):
            parts = tuple(push_not(child, negate=negate) for child in children)
            return Or(parts) if negate else And(parts)
        case Or(children):
            parts = tuple(push_not(child, negate=negate) for child in children)
            return And(parts) if negate else Or(parts)
        case BoolLiteral(value) if negate:
            return BoolLiteral(None if value is None else not value)
        case Comparison(op, left, right) if negate and op in NEGATED:
            return Comparison(NEGATED[op], left, right)
    return Not(predicate) if negate else predicate


# --- what it is for one row --------------------------------------------------------------------------------------


def evaluate(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:
    """The predicate for one row, given as internal values by top-level column name; a struct is a mapping in turn."""
    match predicate:
        case BoolLiteral(value):
            return value
        case Not(child):
            inner = evaluate(child, row)
            return None if inner is None else not inner
        case And(children):
            return _all(evaluate(child, row) for child in children)
        case Or(children):
            found = _all(_negated(evaluate(child, row)) for child in children)
            return _negated(found)
        case Comparison(op, left, right):
            return compare(op, value_of(left, row), value_of(right, row))
        case In(child, items):
            return _is_in(value_of(child, row), [item.value for item in items])
        case IsNull(child):
            return value_of(child, row) is None
        case Like(child, pattern, escape):
            text = value_of(child, row)
            return None if text is None else re.fullmatch(like_regex(pattern, escape), text) is not None


def possible(predicate: Predicate, known: Mapping[str, Any]) -> frozenset[bool | None]:
    """What the predicate can be for rows of which only some columns are known.

    Args:
        predicate: any.
        known: internal values by top-level column name; a column that is not there may hold anything.

    Returns:
        A set that holds every value that occurs, and perhaps more: without True in it no such row is selected.
    """
    predicate = push_not(predicate)
    if all(path[0] in known for path in columns(predicate)):
        return frozenset([evaluate(predicate, known)])
    match predicate:
        case And(children):
            return _combined(children, known, _all)
        case Or(children):
            return _combined(children, known, lambda parts: _negated(_all(map(_negated, parts))))
    return frozenset([True, False, None])


def _combined(
    children: tuple[Predicate, ...], known: Mapping[str, Any], combine: Callable[[Iterable[bool | None]], bool | None]
) -> frozenset[bool | None]:
    outcomes = possible(children[0], known)
    for child in children[1:]:
        outcomes = frozenset(combine((a, b)) for a in outcomes for b in possible(child, known))
    return outcomes


def value_of(value: Value, row: Mapping[str, Any]) -> Any:
    """The internal value of a column, cast or literal for one row."""
    match value:
        case Literal(constant):
            return constant
        case Cast(child, target):
            return cast_value(value_of(child, row), child.type, target)
        case Column(path):
            found: Any = row
            for name in path:
                if found is None:
                    return None
                found = found[name]
            return found


def compare(op: str, left: Any, right: Any) -> bool | None:
    """Two internal values of one type under a comparison operator."""
    if op == "<=>":
        return left is None and right is None if left is None or right is None else order(left, right) == 0
    if left is None or right is None:
        return None
    found = order(left, right)
    return {"=": found == 0, "<>": found != 0, "<": found < 0, "<=": found <= 0, ">": found > 0, ">=": found >= 0}[op]


def order(left: Any, right: Any) -> int:
    """-1, 0 or 1 as ``left`` is below, equal to or above ``right``; neither is null."""
    if isinstance(left, float) and isinstance(right, float) and (math.isnan(left) or math.isnan(right)):
        return int(math.isnan(left)) - int(math.isnan(right))
    return int(left > right) - int(left < right)


def _is_in(value: Any, items: list[Any]) -> bool | None:
    if value is None:
        return None
    if any(item is not None and order(value, item) == 0 for item in items):
        return True
    return None if None in items else False


def _all(parts: Iterable[bool | None]) -> bool | None:
    found: bool | None = True
    for part in parts:
        if part is False:
            return False
        if part is None:
            found = None
    return found


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def cast_value(value: Any, source: DataType, target: DataType) -> Any:
    """An internal value in a wider type, see :class:`Cast`."""
    if value is None or source == target:
        return value
    if target in (DOUBLE, FLOAT):
        return float(value)
    if isinstance(target, DecimalType):
        return Decimal(value)
    if source == DATE and target in (TIMESTAMP, TIMESTAMP_NTZ):
        return value * partition_values.DAY
    return value


def to_sql(predicate: Predicate) -> str:
    """The predicate in Spark's dialect; parsing it gives an equal tree."""
    return str(predicate)
