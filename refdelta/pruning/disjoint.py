"""Disjointness of two predicates: whether no row can satisfy both, decided without reading rows.

Both are split into alternatives, each a conjunction of conditions. Two alternatives exclude each other if a value would
have to be in an empty range, be null and not null, or be below and above another value at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from refdelta.expressions.evaluate import FLIPPED
from refdelta.expressions.expression import (
    And,
    BoolLiteral,
    Cast,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Value,
)
from refdelta.expressions.like import like_prefix
from refdelta.expressions.ordering import order
from refdelta.expressions.predicate import push_not
from refdelta.table.types import BOOLEAN, DATE, INTEGRAL, is_exact

_MOST = 4096
"""So many pairs of alternatives are looked at; of more, nothing is said."""

_STEPS = 40_000
"""So many conditions are looked at, over all pairs of alternatives; of more, nothing is said."""

_ORDERS = {"=": {0}, "<>": {-1, 1}, "<": {-1}, "<=": {-1, 0}, ">": {1}, ">=": {0, 1}}


def disjoint(one: Predicate, other: Predicate) -> bool:
    """Whether it is certain that no row satisfies both.

    Args:
        one: bound.
        other: bound to the same schema.
    """
    left, right = _alternatives(push_not(one)), _alternatives(push_not(other))
    if left is None or right is None or len(left) * len(right) > _MOST:
        return False
    if sum(map(len, left)) * len(right) + sum(map(len, right)) * len(left) > _STEPS:
        return False
    return all(_Row().contradicts((*a, *b)) for a, b in itertools.product(left, right))


def _alternatives(predicate: Predicate) -> list[tuple[Predicate, ...]] | None:
    """The conditions of each alternative; None where there are too many."""
    match predicate:
        case BoolLiteral(value):
            return [()] if value else []
        case Or(children):
            found = [_alternatives(child) for child in children]
            if any(part is None for part in found):
                return None
            together = [item for part in found if part for item in part]
            return together if len(together) <= _MOST else None
        case And(children):
            return _product(children)
        case Not(Comparison("<=>", left, right)):
            # True also where one side is null, which nothing else here says.
            return [(Comparison("<>", left, right),), (IsNull(left),), (IsNull(right),)]
    return [(predicate,)]


def _product(children: Iterable[Predicate]) -> list[tuple[Predicate, ...]] | None:
    common: list[Predicate] = []
    found: list[tuple[Predicate, ...]] = [()]
    for child in children:
        parts = _alternatives(child)
        if parts is None or len(found) * len(parts) > _MOST:
            return None
        if len(parts) == 1:
            common.extend(parts[0])
            continue
        if sum(map(len, found)) * len(parts) + sum(map(len, parts)) * len(found) > _STEPS:
            return None
        found = [(*a, *b) for a in found for b in parts]
    if len(common) * len(found) > _STEPS and len(found) > 1:
        return None
    return [(*common, *one) for one in found]


@dataclass(slots=True)
class _Range:
    """The range of a value under conditions."""

    whole: bool
    low: Any = None
    high: Any = None
    open_low: bool = False
    open_high: bool = False
    allowed: dict[Any, Any] | None = None
    excluded: dict[Any, Any] = field(default_factory=dict)
    null: bool | None = None

    def compare(self, op: str, value: Any) -> None:
        """Values that stand in this relation to a constant."""
        if op == "=":
            self.choose([value])
        elif op == "<>":
            self.excluded[_token(value)] = value
        elif op in (">", ">="):
            self._above(value, strict=op == ">")
        else:
            self._below(value, strict=op == "<")

    def choose(self, values: Iterable[Any]) -> None:
        """Values that are among these."""
        found = {_token(value): value for value in values}
        self.allowed = found if self.allowed is None else {k: v for k, v in self.allowed.items() if k in found}

    def _above(self, value: Any, *, strict: bool) -> None:
        if self.whole and not isinstance(value, float):
            value, strict = (math.floor(value) + 1 if strict else math.ceil(value)), False
        if self.low is None or order(value, self.low) > 0:
            self.low, self.open_low = value, strict
        elif order(value, self.low) == 0:
            self.open_low |= strict

    def _below(self, value: Any, *, strict: bool) -> None:
        if self.whole and not isinstance(value, float):
            value, strict = (math.ceil(value) - 1 if strict else math.floor(value)), False
        if self.high is None or order(value, self.high) < 0:
            self.high, self.open_high = value, strict
        elif order(value, self.high) == 0:
            self.open_high |= strict

    def empty(self) -> bool:
        """Whether nothing is left that is not null."""
        if self.allowed is not None:
            return not any(self._holds(token, value) for token, value in self.allowed.items())
        if self.low is None or self.high is None:
            return False
        found = order(self.low, self.high)
        return found > 0 or (found == 0 and not self._holds(_token(self.low), self.low))

    def _holds(self, token: Any, value: Any) -> bool:
        if token in self.excluded:
            return False
        above = self.low is None or order(value, self.low) > (0 if self.open_low else -1)
        return above and (self.high is None or order(value, self.high) < (0 if self.open_high else 1))


def _token(value: Any) -> Any:
    """Something that is equal for equal values: NaN is equal to itself."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


class _Row:
    """The ranges and orders of values in a row under a conjunction of conditions."""

    def __init__(self) -> None:
        self._ranges: dict[Value, _Range] = {}
        self._orders: dict[tuple[Value, Value], set[int]] = {}
        self._impossible = False

    def contradicts(self, conditions: Iterable[Predicate]) -> bool:
        """Whether no row satisfies all of them."""
        for condition in conditions:
            self._add(condition)
        return self._impossible or any(self._reasons())

    def _reasons(self) -> Iterator[bool]:
        yield any(not orders for orders in self._orders.values())
        for known in self._ranges.values():
            yield known.null is False and known.empty()
        nulls = [key.path for key, known in self._ranges.items() if known.null and isinstance(key, Column)]
        values = [key.path for key, known in self._ranges.items() if known.null is False and isinstance(key, Column)]
        # The fields of a struct that is null are null.
        yield any(path[: len(null)] == null for null in nulls for path in values)

    def _add(self, condition: Predicate) -> None:
        match condition:
            case IsNull(value):
                self._null(value, null=True)
            case Not(IsNull(value)) | Not(Like(value)):
                self._null(value, null=False)
            case Comparison(op, left, Literal(constant)):
                self._against(op, left, constant)
            case Comparison(op, Literal(constant), right):
                self._against(FLIPPED[op], right, constant)
            case Comparison(op, left, right):
                self._between(op, left, right)
            case In(value, items):
                self._range(value).choose(item.value for item in items if item.value is not None)
            case Not(In(value, items)):
                self._impossible |= any(item.value is None for item in items)
                for item in items:
                    self._range(value).compare("<>", item.value)
            case Like(value, pattern, escape):
                self._like(value, *like_prefix(pattern, escape))

    def _against(self, op: str, value: Value, constant: Any) -> None:
        if constant is None:
            if op == "<=>":
                self._null(value, null=True)
            else:
                self._impossible = True
            return
        self._range(value).compare("=" if op == "<=>" else op, constant)

    def _range(self, value: Value) -> _Range:
        """The range of a value that is not null."""
        self._null(value, null=False)
        return self._ranges[_key(value)]

    def _null(self, value: Value, *, null: bool) -> None:
        if isinstance(value, Literal):
            self._impossible |= (value.value is None) != null
            return
        key = _key(value)
        known = self._ranges.get(key)
        if known is None:
            known = self._ranges[key] = _Range(key.type in INTEGRAL or key.type == DATE)
            if key.type == BOOLEAN:
                known.choose([True, False])
        self._impossible |= known.null is (not null)
        known.null = null

    def _between(self, op: str, left: Value, right: Value) -> None:
        if op == "<=>":
            return  # both may be null
        self._null(left, null=False)
        self._null(right, null=False)
        one, other = _key(left), _key(right)
        if str(one) > str(other):
            one, other, op = other, one, FLIPPED[op]
        orders = self._orders.setdefault((one, other), {0} if one == other else {-1, 0, 1})
        orders &= _ORDERS[op]

    def _like(self, value: Value, prefix: str, exact: bool) -> None:
        known = self._range(value)
        if exact:
            known.compare("=", prefix)
        elif prefix:
            known.compare(">=", prefix)
            last = ord(prefix[-1])
            if last < 0x10FFFF:
                # Half of a pair of surrogates is no character.
                known.compare("<", prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1))


def _key(value: Value) -> Value:
    """The value that a condition constrains, without casts between exact numbers, which do not change it."""
    if isinstance(value, Cast) and is_exact(value.type) and is_exact(value.child.type):
        return _key(value.child)
    return value
