"""Predicates as columns of Spark, built node by node.

They never pass through Spark's parser: as its settings say, it replaces ``${...}``, takes backslashes in strings for
characters like others, or takes a quoted name for a regular expression. Functions, many of which depend on other
settings, are left to the engine.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from refdelta.expressions.expression import (
    And,
    BoolLiteral,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Condition,
    Convert,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    walk,
)
from refdelta.expressions.sql_text import quoted
from refdelta.spark.types import spark_schema
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FRACTIONAL,
    INTEGRAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.expressions.expression import Expression, Predicate, Value

_UTC = frozenset(["UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"])
_DIGITS = 38
_SECOND = 1_000_000
_PLAIN: frozenset[DataType] = frozenset(
    {STRING, BINARY, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ, *INTEGRAL, *FRACTIONAL}
)
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<=>": lambda left, right: left.eqNullSafe(right),
}
_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": lambda left, *right: left - right[0] if right else -left,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


def means_the_same(spark: Any, predicate: Predicate) -> bool:
    """True if the session, with its present settings, has the value for each row that the engine has, which evaluates
    in UTC and with ANSI errors; then :func:`condition` takes the predicate.
    """
    strict = spark.conf.get("spark.sql.ansi.enabled") == "true"
    in_utc = spark.conf.get("spark.sql.session.timeZone") in _UTC
    return all(_alike(node, strict=strict, in_utc=in_utc) for node in walk(predicate))


def condition(spark: Any, predicate: Predicate) -> Any:
    """A predicate as a boolean column.

    Args:
        spark: the session.
        predicate: bound to a schema, with ``means_the_same``; its columns have the names of the DataFrame's.
    """
    return _Builder(spark).predicate(predicate)


def _alike(node: Expression, *, strict: bool, in_utc: bool) -> bool:
    """True if Spark has the node, and evaluates it as the engine does."""
    kind = getattr(node, "type", BOOLEAN)
    if kind == TIMESTAMP and not in_utc:  # a cast may lead to it or from it
        return False
    match node:
        case In(_, items):
            return bool(items) and all(_has(item.type) for item in items)
        case Literal() | Cast() | Case():
            return _has(kind)
        case Convert(child):
            return strict and _has(kind) and _has(child.type)
        case Call(name, args):
            # The session's settings choose the digits of decimal arithmetic.
            exact = any(isinstance(part.type, DecimalType) for part in (node, *args))
            return strict and name in _OPERATORS and not exact
    return True


def _has(kind: DataType) -> bool:
    """True if Spark has constants of a type."""
    return kind in _PLAIN or (isinstance(kind, DecimalType) and kind.precision <= _DIGITS)


class _Builder:
    """Builds columns of nodes."""

    def __init__(self, spark: Any):
        from pyspark.sql import functions as f

        self._f, self._java = f, spark._jvm.java  # noqa: SLF001

    def predicate(self, node: Predicate) -> Any:
        """A condition."""
        f = self._f
        match node:
            case BoolLiteral(value):
                return self._literal(value, BOOLEAN)
            case And(parts):
                return functools.reduce(operator.and_, map(self.predicate, parts))
            case Or(parts):
                return functools.reduce(operator.or_, map(self.predicate, parts))
            case Not(child):
                return ~self.predicate(child)
            case Comparison(op, left, right):
                return _COMPARISONS[op](self.value(left), self.value(right))
            case In(child, items):
                return self.value(child).isin(*map(self.value, items))
            case IsNull(child):
                return self.value(child).isNull()
            case Like(child, pattern, escape):
                return f.like(self.value(child), f.lit(pattern), f.lit(escape))

    def value(self, node: Value) -> Any:
        """A value."""
        match node:
            case Column(path):
                return self._f.col(".".join(map(quoted, path)))
            case Literal(constant, kind):
                return self._literal(constant, kind)
            case Cast(child, kind):
                return self.value(child).cast(_spark_type(kind))
            case Convert(child, kind, lenient):
                found = self.value(child)
                return found.try_cast(_spark_type(kind)) if lenient else found.cast(_spark_type(kind))
            case Condition(predicate):
                return self.predicate(predicate)
            case Case(branches, otherwise):
                found = self._f
                for when, then in branches:
                    found = found.when(self.predicate(when), self.value(then))
                return found.otherwise(self.value(otherwise))
            case Call(name, args):
                return _OPERATORS[name](*map(self.value, args))

    def _literal(self, value: Any, kind: DataType) -> Any:
        """An internal value as a constant of exactly this type."""
        lit, time = self._f.lit, self._java.time
        if value is None:
            return lit(None).cast(_spark_type(kind))
        if kind in (STRING, BINARY, BOOLEAN):
            return lit(value)
        if kind == DATE:
            return lit(time.LocalDate.ofEpochDay(value))
        if kind in (TIMESTAMP, TIMESTAMP_NTZ):
            # Python's times end in the year 9999, and java.sql's are in the Julian calendar before 1582.
            seconds, nanos = value // _SECOND, value % _SECOND * 1000
            if kind == TIMESTAMP:
                return lit(time.Instant.ofEpochSecond(seconds, nanos))
            return lit(time.LocalDateTime.ofEpochSecond(seconds, nanos, time.ZoneOffset.UTC))
        if isinstance(kind, DecimalType):
            value = f"{value:f}"
        return lit(value).cast(_spark_type(kind))


def _spark_type(kind: DataType) -> Any:
    return spark_schema([StructField("value", kind)])[0].dataType
