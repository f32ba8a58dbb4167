"""Predicates on generated partition columns, derived from a predicate on their base column.

A condition bounds the base column, and a generation expression that keeps order (``CAST(at AS DATE)``, ``YEAR``,
``DATE_FORMAT(at, 'yyyy-MM')``, ``DATE_TRUNC``, the beginning of a string, or YEAR, MONTH, DAY and HOUR together) then
bounds the generated column; for a single value any expression does. So a predicate implies a weaker one on partition
columns, by which files are skipped. In doubt nothing is implied.

Conversions of times to dates and strings use the time zone of the writer's session, which is unknown. So the bounds of
such expressions are moved by more than any offset; the statistics of files decide between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from refdelta.errors import ExpressionError
from refdelta.expressions.evaluate import FLIPPED, value_of
from refdelta.expressions.expression import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Convert,
    In,
    IsNull,
    Literal,
    Or,
    Predicate,
    Value,
    columns,
    walk,
)
from refdelta.expressions.ordering import order
from refdelta.expressions.predicate import TRUE, conjunction, disjunction, push_not
from refdelta.expressions.time_format import parts_of
from refdelta.table.partition_values import DAY
from refdelta.table.types import BOOLEAN, DATE, INTEGRAL, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType

# Zones are off by 18 hours at most, and a day was skipped where one changed the side of the date line.
_ZONE = DAY
# Of longer lists only the smallest and the largest item count.
_MAX_ITEMS = 50
_DATES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
# A number that is equal may be written otherwise, such as -0.0 or 1.00, and an expression may tell.
_EXACT = frozenset([*INTEGRAL, *_DATES, STRING, BOOLEAN])


@dataclass(frozen=True, slots=True)
class Generated:
    """A partition column and its expression.

    Attributes:
        column: the partition column.
        value: the expression, bound to the table's schema; its type is the column's.
    """

    column: Column
    value: Value


@dataclass(frozen=True, slots=True)
class _PartitionRange:
    """Bounds of a column that is not null; None is no bound."""

    low: Any = None
    high: Any = None


def implied(predicate: Predicate, generated: Sequence[Generated]) -> Predicate | None:
    """The predicate on partition columns that a predicate implies; None if there is none.

    Args:
        predicate: bound to the table's schema.
        generated: the partition columns that are generated.
    """
    bases: dict[tuple[str, ...], Column] = {}
    rules: dict[tuple[str, ...], list[Generated]] = {}
    for one in generated:
        found = {node.path: node for node in walk(one.value) if isinstance(node, Column)}
        if len(found) == 1:
            ((path, base),) = found.items()
            if base.type in _EXACT:
                bases[path] = base
                rules.setdefault(path, []).append(one)
    if not rules or not rules.keys() & columns(predicate):
        return None
    found_rules = {path: _Rules(bases[path], tuple(some)) for path, some in rules.items()}
    found_predicate = _implied(push_not(predicate), found_rules)
    return None if found_predicate == TRUE else found_predicate


def _implied(predicate: Predicate, rules: dict[tuple[str, ...], _Rules]) -> Predicate:
    match predicate:
        case And(children):
            parts = [part for part in (_implied(child, rules) for child in children) if part != TRUE]
            return conjunction(parts)
        case Or(children):
            parts = [_implied(child, rules) for child in children]
            return TRUE if TRUE in parts else disjunction(parts)
        case IsNull(Column(path)) if path in rules:
            return rules[path].of_value(None)
        case In(Column(path) as base, items) if path in rules:
            known = [item.value for item in items if item.value is not None]
            if known and len(known) <= _MAX_ITEMS:
                return _any(rules[path].of_range(_PartitionRange(value, value)) for value in known)
            if known and base.type in _EXACT:
                low, high = known[0], known[0]
                for value in known:
                    low = value if order(value, low) < 0 else low
                    high = value if order(value, high) > 0 else high
                return rules[path].of_range(_PartitionRange(low, high))
        case Comparison(op, Literal() as left, right) if not isinstance(right, Literal):
            return _implied(Comparison(FLIPPED[op], right, left), rules)
        case Comparison(op, left, Literal(constant, kind)):
            return _of_comparison(op, left, constant, kind, rules)
    return TRUE


def _any(parts: Iterable[Predicate]) -> Predicate:
    found = list(dict.fromkeys(parts))
    return TRUE if TRUE in found else disjunction(found)


def _of_comparison(
    op: str, left: Value, constant: Any, kind: DataType, rules: dict[tuple[str, ...], _Rules]
) -> Predicate:
    base = left.child if isinstance(left, (Cast, Convert)) else left
    if not isinstance(base, Column) or base.path not in rules:
        return TRUE
    if constant is None:
        return rules[base.path].of_value(None) if op == "<=>" and base is left else TRUE
    found = _PartitionRange(constant, constant) if base is left else _under_cast(base.type, kind, constant)
    if found is None:
        return TRUE
    match op:
        case "=" | "<=>":
            return rules[base.path].of_range(found)
        case "<" | "<=":
            return rules[base.path].of_range(_PartitionRange(None, found.high))
        case ">" | ">=":
            return rules[base.path].of_range(_PartitionRange(found.low, None))
    return TRUE


def _under_cast(base: DataType, kind: DataType, constant: int) -> _PartitionRange | None:
    """The values of a date or time that a cast makes equal to a constant; wider where they are on both its sides."""
    if base not in _DATES or kind not in _DATES:
        return None
    if kind == DATE:  # of a time
        return _PartitionRange(constant * DAY, constant * DAY + DAY - 1)
    if base == DATE:  # to a time
        return _PartitionRange(constant // DAY, -(-constant // DAY))
    return _PartitionRange(constant, constant)


# --- what partition columns say ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rules:
    """The partition columns that are generated from one column."""

    base: Column
    generated: tuple[Generated, ...]

    def of_value(self, value: Any) -> Predicate:
        """The condition on the generated columns if the base column has this value, or is null."""
        parts = []
        for one in self.generated:
            if value is None or not _knows_zones(one.value):
                found, sound = _evaluated(one.value, self.base, value)
                if sound:
                    parts.append(_equals(one.column, found))
        return conjunction(parts)

    def of_range(self, values: _PartitionRange) -> Predicate:
        """The condition on the generated columns if the base column is in this range."""
        single = values.low is not None and values.low == values.high
        exact = self.of_value(values.low) if single else TRUE
        parts = [] if exact == TRUE else [exact]
        for keys in self._ordered():
            if single and len(keys) == 1 and not _knows_zones(keys[0].value):
                continue
            for bound, op in ((values.low, ">="), (values.high, "<=")):
                found = None if bound is None else self._bounded(keys, op, bound)
                parts += [] if found is None else [found]
        return conjunction(parts)

    def _ordered(self) -> list[tuple[Generated, ...]]:
        """Partition columns, alone or one after the other, that are ordered as the column is."""
        found: list[tuple[Generated, ...]] = [(one,) for one in self.generated if _keeps_order(one.value)]
        parts: dict[str, Generated] = {}
        for one in self.generated:
            if isinstance(one.value, Call) and one.value.name in _PARTS and _plain(one.value.args[0]):
                parts.setdefault(one.value.name, one)
        several = tuple(parts[name] for name in itertools.takewhile(parts.__contains__, _PARTS))
        return [*found, several] if len(several) > 1 else found

    def _bounded(self, keys: tuple[Generated, ...], op: str, bound: Any) -> Predicate | None:
        """That the keys are not beyond those of a bound. Null stays: an empty string is null in a partition."""
        sign = 1 if op == "<=" else -1
        zoned = any(_knows_zones(one.value) for one in keys)
        limits = []
        for one in keys:
            found, sound = _evaluated(one.value, self.base, _moved(bound, self.base.type, zoned * sign))
            if not sound or found is None:
                return None
            if one.value.type == TIMESTAMP:  # a time of the writer's zone, taken back
                found = _moved(found, TIMESTAMP, zoned * sign)
            limits.append(Literal(found, one.value.type))
        if any(_signed(one.value, limit.value) for one, limit in zip(keys, limits, strict=True)):
            return None
        return _lexically(op, keys, limits)


_PARTS = ("year", "month", "day", "hour")


def _lexically(op: str, keys: Sequence[Generated], limits: Sequence[Literal]) -> Predicate:
    column, limit = keys[0].column, limits[0]
    kept: list[Predicate] = [IsNull(column)]
    if op == ">=" and _is_text_of_time(keys[0].value):
        # Years beyond 9999 have a sign, which is below all digits.
        kept.append(Comparison("<", column, Literal("0", STRING)))
    if len(keys) == 1:
        return disjunction([Comparison(op, column, limit), *kept])
    same = conjunction([Comparison("=", column, limit), _lexically(op, keys[1:], limits[1:])])
    return disjunction([Comparison(op[0], column, limit), same, *kept])


def _equals(column: Column, value: Any) -> Predicate:
    return IsNull(column) if value in (None, "") else Comparison("=", column, Literal(value, column.type))


def _moved(bound: Any, kind: DataType, days: int) -> Any:
    """A date or time moved by ``days``, within the range of its type."""
    if not days or kind not in _DATES:
        return bound
    if kind == DATE:
        return bound + days
    return max(-(2**63), min(bound + days * _ZONE, 2**63 - 1))


def _evaluated(value: Value, base: Column, constant: Any) -> tuple[Any, bool]:
    """The value of an expression for a value of its base column, and whether it could be computed."""
    row: Any = constant
    for name in reversed(base.path):
        row = {name: row}
    try:
        return value_of(value, row), True
    except ExpressionError:
        return None, False


# --- expressions -------------------------------------------------------------------------------------------------


def _knows_zones(value: Value) -> bool:
    """Whether the session's time zone may count: where there are times that are points in time."""
    return any(getattr(node, "type", None) == TIMESTAMP for node in walk(value))


def _plain(value: Value) -> bool:
    """A column that is a date or time, or such a one cast to another."""
    if isinstance(value, (Cast, Convert)):
        return value.type in _DATES and _plain(value.child)
    return isinstance(value, Column) and value.type in _DATES


def _keeps_order(value: Value) -> bool:
    """Whether an expression is never less for a greater value of its column, nor null for one."""
    match value:
        case Column():
            return value.type in _EXACT
        case Cast(child) | Convert(child):
            return _plain(value) and _keeps_order(child)
        case Call("year" | "last_day" | "unix_micros" | "unix_millis" | "unix_seconds", (child,)):
            return _plain(child)
        case Call("trunc", (child, _)) | Call("date_trunc", (_, child)):
            return _plain(child)
        case Call("date_format", (child, _)):
            return _plain(child) and _is_text_of_time(value)
        case Call("substring", (Column(), Literal(start), Literal(count))):
            return start in (0, 1) and count is not None
        case Call("left", (Column(), Literal(count))):
            return count is not None
    return False


def _is_text_of_time(value: Value) -> bool:
    """Whether it is ``date_format`` with a pattern that begins with year, month and so on, each of fixed width."""
    if not isinstance(value, Call) or value.name != "date_format":
        return False
    pattern = value.args[1]
    if not isinstance(pattern, Literal) or pattern.value is None:
        return False
    parts = parts_of(pattern.value)
    fields = [(part.letter, part.count) for part in parts if part.letter]
    return bool(fields) and bool(parts[0].letter) and fields == _FIXED[: len(fields)]


_FIXED = [("y", 4), ("M", 2), ("d", 2), ("H", 2), ("m", 2), ("s", 2)]


def _signed(value: Value, limit: Any) -> bool:
    return _is_text_of_time(value) and not str(limit)[:1].isdigit()
