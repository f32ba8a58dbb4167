"""The algebra of predicates: conjunctions, negations, and the values that are possible.

The tree itself is :mod:`refdelta.expressions.expression`; what it is for rows is :mod:`refdelta.expressions.evaluate`.
A tree comes from :mod:`refdelta.expressions.binding`, which gives columns their types, and both sides of a comparison
the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.errors import ExpressionError
from refdelta.expressions.evaluate import all_of, evaluate, negated
from refdelta.expressions.expression import (
    And,
    BoolLiteral,
    Column,
    Comparison,
    Condition,
    Literal,
    Not,
    Or,
    Predicate,
    Value,
    columns,
    rebuilt,
)
from refdelta.table.types import BOOLEAN, DataType, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

TRUE, FALSE, NULL = BoolLiteral(True), BoolLiteral(False), BoolLiteral(None)

NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


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
            return _combined(children, known, all_of)
        case Or(children):
            return _combined(children, known, lambda parts: negated(all_of(map(negated, parts))))
    return _ANYTHING


_ANYTHING: frozenset[bool | None] = frozenset([True, False, None])


def _combined(
    children: tuple[Predicate, ...], known: Mapping[str, Any], combine: Callable[[Iterable[bool | None]], bool | None]
) -> frozenset[bool | None]:
    outcomes = possible(children[0], known)
    for child in children[1:]:
        outcomes = frozenset(combine((a, b)) for a in outcomes for b in possible(child, known))
    return outcomes
