"""The evaluation of predicates and values for one row.

This module is the reference; the tree itself is :mod:`refdelta.core.expressions.expression`. Values are internal
values (see :mod:`refdelta.core.expressions.partition_values`), logic is three-valued: True, False, and None for SQL's
NULL. Floats are ordered as Spark orders them: NaN equals NaN and is above all others. Strings are ordered by their
UTF-8 bytes. The columnar twins are ``engine/expressions/evaluate`` (rows) and ``engine/scan/skipping`` (files).

A tree comes from :mod:`refdelta.core.expressions.binding`, which gives columns their types, and both sides of a
comparison the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.core.expressions.casting import convert_value, widen
from refdelta.core.expressions.expression import (
    And,
    BoolLiteral,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Condition,
    Convert,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Value,
    column_refs,
    columns,
    rebuilt,
    to_sql,
    walk,
)
from refdelta.core.expressions.functions import FUNCTIONS
from refdelta.core.expressions.like import like_matches
from refdelta.core.expressions.ordering import compare, is_in, order
from refdelta.core.table.types import BOOLEAN, DataType, StructType
from refdelta.errors import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "FALSE",
    "FLIPPED",
    "NEGATED",
    "NULL",
    "TRUE",
    "And",
    "BoolLiteral",
    "Call",
    "Case",
    "Cast",
    "Column",
    "Comparison",
    "Condition",
    "Convert",
    "Expression",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Not",
    "Or",
    "Predicate",
    "Value",
    "as_predicate",
    "column_refs",
    "columns",
    "compare",
    "conjunction",
    "disjunction",
    "evaluate",
    "order",
    "possible",
    "push_not",
    "rebuilt",
    "to_sql",
    "value_of",
    "walk",
    "with_nulls",
]

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


def as_predicate(value: Value) -> Predicate:
    """A boolean value as a condition."""
    match value:
        case Condition(predicate):
            return predicate
        case Literal(constant):
            return BoolLiteral(constant)
    return Comparison("=", value, Literal(True, BOOLEAN))


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


def with_nulls(predicate: Predicate, schema: StructType) -> Predicate:
    """The predicate for rows of a table that lacks some of the columns: these are null.

    Args:
        predicate: bound to a schema that has all of its columns.
        schema: the table's.
    """

    def changed(part: Any) -> Any:
        if isinstance(part, Column):
            return part if _has(schema, part.path) else Literal(None, part.type)
        if isinstance(part, Predicate) and not columns(part):
            try:
                return BoolLiteral(evaluate(part, {}))
            except ExpressionError:
                return part  # whether it fails is for the rows to tell
        return part

    found: Predicate = rebuilt(predicate, changed)
    return FALSE if found == NULL else found


def _has(schema: StructType, path: Iterable[str]) -> bool:
    here: DataType = schema
    for name in path:
        field = here.find(name) if isinstance(here, StructType) else None
        if field is None:
            return False
        here = field.type
    return True


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
            first = value_of(left, row)
            return None if first is None and op != "<=>" else compare(op, first, value_of(right, row))
        case In(child, items):
            return is_in(value_of(child, row), [item.value for item in items])
        case IsNull(child):
            return value_of(child, row) is None
        case Like(child, pattern, escape):
            text = value_of(child, row)
            return None if text is None else like_matches(text, pattern, escape)


def possible(predicate: Predicate, known: Mapping[str, Any]) -> frozenset[bool | None]:
    """The possible values of a predicate for rows of which only some columns are known.

    Args:
        predicate: any.
        known: internal values by top-level column name; a column that is not there may hold anything.

    Returns:
        A set that holds every value that occurs, and perhaps more: without True in it no such row is selected.
    """
    predicate = push_not(predicate)
    if all(path[0] in known for path in columns(predicate)):
        try:
            return frozenset([evaluate(predicate, known)])
        except ExpressionError:
            return _ANYTHING  # whether it fails is for the rows to tell: another condition may come first
    match predicate:
        case And(children):
            return _combined(children, known, _all)
        case Or(children):
            return _combined(children, known, lambda parts: _negated(_all(map(_negated, parts))))
    return _ANYTHING


_ANYTHING: frozenset[bool | None] = frozenset([True, False, None])


def _combined(
    children: tuple[Predicate, ...], known: Mapping[str, Any], combine: Callable[[Iterable[bool | None]], bool | None]
) -> frozenset[bool | None]:
    outcomes = possible(children[0], known)
    for child in children[1:]:
        outcomes = frozenset(combine((a, b)) for a in outcomes for b in possible(child, known))
    return outcomes


def value_of(value: Value, row: Mapping[str, Any]) -> Any:
    """The internal value of a value for one row.

    Raises:
        ExpressionError: it has none, such as a division by zero.
    """
    match value:
        case Literal(constant):
            return constant
        case Cast(child, target):
            return widen(value_of(child, row), child.type, target)
        case Convert(child, target, lenient):
            return convert_value(value_of(child, row), child.type, target, lenient=lenient)
        case Condition(predicate):
            return evaluate(predicate, row)
        case Case(branches, otherwise):
            for condition, found in branches:
                if evaluate(condition, row) is True:
                    return value_of(found, row)
            return value_of(otherwise, row)
        case Call("coalesce", args):
            # Arguments after the first value are not computed.
            return next((found for found in (value_of(arg, row) for arg in args) if found is not None), None)
        case Call():
            return _called(value, row)
        case Column(path):
            here: Any = row
            for name in path:
                if here is None:
                    return None
                here = here[name]
            return here


def _called(call: Call, row: Mapping[str, Any]) -> Any:
    function = FUNCTIONS[call.name]
    found: dict[int, Any] = {}
    for place in function.order(len(call.args)):
        found[place] = value_of(call.args[place], row)
        if found[place] is None and function.strict:
            return None
    return function.of(call, [found[place] for place in range(len(call.args))])


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
