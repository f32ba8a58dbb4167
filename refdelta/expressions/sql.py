"""Predicates and expressions from the input of users: SQL in Spark's dialect, or the list form of ``deltalake``.

sqlglot is imported with the first SQL text, since most reads and appends have none.
"""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from refdelta.arguments import is_unicode
from refdelta.errors import PredicateError, unknown_name
from refdelta.expressions.binding import bind
from refdelta.expressions.evaluate import FLIPPED
from refdelta.expressions.expression import Column, Comparison, In, IsNull, Literal, Not, Predicate, Value
from refdelta.expressions.predicate import conjunction, disjunction
from refdelta.expressions.scope import Scope
from refdelta.table import partition_values
from refdelta.table.column_names import named_path
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_predicate(
    sql: str, schema: StructType | Scope, *, now: int | None = None, recorded: bool = False
) -> Predicate:
    """A predicate from SQL, bound to a schema.

    Comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, IS TRUE, <=> and LIKE over values as in :func:`parse_expression`.

    Args:
        sql: a condition in Spark's dialect.
        schema: the table's, or a scope of several relations.
        now: the value of ``current_timestamp``, in microseconds since 1970 (UTC); None for the time of the call.
        recorded: whether the text is one of the table's log, which has Spark's meaning. In others a string in double
            quotes that is the name of a column is refused, since other engines take it for the column.

    Raises:
        PredicateError: the text cannot be parsed, or has an unsupported construct; the message has its position.
        ColumnNotFoundError: the schema lacks a column.
    """
    from refdelta.expressions.sql_reader import SqlReader

    return SqlReader(sql, Scope.of(schema), _now(now), recorded=recorded).read()


def parse_expression(sql: str, schema: StructType | Scope, *, now: int | None = None, recorded: bool = False) -> Value:
    """A typed value from SQL, bound to a schema.

    Literals, columns and fields of structs, arithmetic, CASE, CAST, conditions, and the functions of
    :mod:`refdelta.expressions.functions`. The session's time zone is UTC. Expressions that fail in Spark's ANSI
    mode fail here too, when they are evaluated.

    Args:
        sql: an expression in Spark's dialect.
        schema: the table's, or a scope of several relations.
        now: the value of ``current_timestamp``, in microseconds since 1970 (UTC); None for the time of the call.
        recorded: whether the text is one of the table's log, which has Spark's meaning. In others a string in double
            quotes that is the name of a column is refused, since other engines take it for the column.

    Raises:
        PredicateError: the text cannot be parsed, or has an unsupported construct; the message has its position.
        ColumnNotFoundError: the schema lacks a column.
    """
    from refdelta.expressions.sql_reader import SqlReader

    return SqlReader(sql, Scope.of(schema), _now(now), "expression", recorded=recorded).read_value()


def _now(now: int | None) -> int:
    return time.time_ns() // 1_000 if now is None else now


def from_filters(filters: str | Sequence[Any], schema: StructType) -> Predicate:
    """A predicate from the argument ``filters``.

    Args:
        filters: SQL, or a list of ``(column, op, value)``, which are joined by AND, or a list of such lists, which are
            joined by OR. Operators: = == != <> < <= > >=, ``in`` and ``not in`` with a list, ``is`` and ``is not`` with
            None.
        schema: the table's schema.

    Raises:
        PredicateError: it has another form, or a value does not fit its column.
        ColumnNotFoundError: the schema lacks a column.
    """
    if isinstance(filters, str):
        return parse_predicate(filters, schema)
    groups = list(filters)
    if not groups:
        raise PredicateError("filters is an empty list; leave it out to read everything")
    if all(isinstance(group, tuple) for group in groups):
        groups = [groups]
    return bind(disjunction(conjunction(_term(term, schema) for term in _terms(group)) for group in groups), schema)


# --- lists -------------------------------------------------------------------------------------------------------


def _terms(group: Any) -> list[Any]:
    terms = list(group) if isinstance(group, list | tuple) else []
    if not terms:
        raise PredicateError(f"a filter is a list of (column, operator, value), not {group!r}")
    return terms


def _term(term: Any, schema: StructType) -> Predicate:
    if not isinstance(term, tuple | list) or len(term) != 3 or not isinstance(term[0], str):
        raise PredicateError(f"a filter is (column, operator, value), not {term!r}")
    name, op, value = term[0], str(term[1]).strip().lower(), term[2]
    column = Column(named_path(name, schema))
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            raise PredicateError(f"filter on {name}: {op!r} takes a list of values, not {value!r}")
        found = In(column, tuple(python_literal(item, name) for item in value))
        return Not(found) if op == "not in" else found
    if op in ("is", "is not") and value is None:
        return Not(IsNull(column)) if op == "is not" else IsNull(column)
    known = {"==": "=", "!=": "<>"}.get(op, op)
    if known not in FLIPPED:
        operators = [*FLIPPED, "!=", "in", "not in", "is", "is not"]
        raise PredicateError(f"filter on {name}: {unknown_name('operator', term[1], operators)}")
    literal = python_literal(value, name)
    if literal.value is None and known in ("=", "<>"):
        return IsNull(column) if known == "=" else Not(IsNull(column))
    return Comparison(known, column, literal)


def python_literal(value: Any, name: str) -> Literal:
    """A Python value as a literal; ``name`` is the column with which it is compared, for errors.

    Raises:
        PredicateError: the value has no Delta type.
    """
    match value:
        case None:
            return Literal(None, VOID)
        case bool():
            return Literal(value, BOOLEAN)
        case int() if -(2**63) <= value < 2**63:
            return Literal(value, LONG)
        case int() | Decimal():
            from refdelta.expressions.sql_dialect import number_literal

            return number_literal(f"{value:f}" if isinstance(value, Decimal) else str(value) + ".")
        case float():
            return Literal(value, DOUBLE)
        case str() if is_unicode(value):
            return Literal(value, STRING)
        case str():
            raise PredicateError(f"filter on {name}: {value!r:.80} holds half a character, which no Unicode text can")
        case bytes():
            return Literal(value, BINARY)
        case dt.datetime():
            return _datetime(value)
        case dt.date():
            return Literal(partition_values.days_of(value.year, value.month, value.day), DATE)
    item = getattr(value, "item", None) or getattr(value, "as_py", None)
    plain = item() if callable(item) else value
    if plain is value or type(plain) is type(value):
        raise PredicateError(f"filter on {name}: a value of type {type(value).__name__} cannot be compared")
    return python_literal(plain, name)


def _datetime(value: dt.datetime) -> Literal:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    micros = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return Literal(micros, TIMESTAMP_NTZ if value.tzinfo is None else TIMESTAMP)
