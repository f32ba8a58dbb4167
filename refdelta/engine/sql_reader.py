"""Reading a condition in Spark's SQL into a predicate.

sqlglot reads the text; what this module does not know by name is refused, with its place. Nothing is guessed: a
construct gets through only if a table here, or ``Reader``'s values, name it. A further construct is a further entry.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from refdelta.errors import ColumnNotFoundError, PredicateError
from refdelta.protocol.binding import bind, cast_literal
from refdelta.protocol.predicate import (
    NULL,
    And,
    BoolLiteral,
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
from refdelta.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_LENGTH = 1_000_000


class _Dialect(Spark):
    """Spark's, where two quotes inside a string are one, as Spark 4 has it."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012 - the form that sqlglot has


# --- SQL ---------------------------------------------------------------------------------------------------------

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}

_TYPES: dict[str, DataType] = {
    "TINYINT": BYTE,
    "SMALLINT": SHORT,
    "INT": INTEGER,
    "BIGINT": LONG,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "BOOLEAN": BOOLEAN,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
    "TEXT": STRING,
    "VARCHAR": STRING,
    "BINARY": BINARY,
    "VARBINARY": BINARY,
}


class Reader:
    """Reads one text, for a schema; see :func:`refdelta.engine.sql.parse_predicate`."""

    def __init__(self, sql: str, schema: StructType):
        self.sql, self.schema = sql, schema
        self._conditions: dict[type[exp.Expr], Callable[[Any], Predicate]] = {
            exp.And: self._both,
            exp.Or: self._both,
            exp.Not: self._negation,
            exp.Paren: self._paren,
            exp.In: self._membership,
            exp.Between: self._between,
            exp.Is: self._is_test,
            exp.NullSafeNEQ: self._distinct,
            exp.Escape: self._escape,
            exp.Like: self._like,
            exp.Column: self._column,
            exp.Dot: self._column,
            exp.Boolean: self._constant,
            exp.Null: self._constant,
            exp.Cast: self._cast_condition,
            exp.TryCast: self._cast_condition,
        }

    def read(self) -> Predicate:
        """The predicate, bound to the schema. Raises ``PredicateError`` and ``ColumnNotFoundError``."""
        if len(self.sql) > _MAX_LENGTH:
            raise PredicateError(f"a predicate of {len(self.sql)} characters; at most {_MAX_LENGTH} are taken")
        try:
            tree = sqlglot.parse_one(self.sql, dialect=_Dialect, into=exp.Condition)
        except ParseError as error:
            raise PredicateError(f"{self._quoted()}: {_complaint(error)}") from None
        except (SqlglotError, RecursionError) as error:
            raise PredicateError(f"{self._quoted()} is not SQL: {_first_line(error)}") from None
        try:
            return bind(self._condition(tree), self.schema)
        except ColumnNotFoundError:
            raise
        except RecursionError:
            raise PredicateError(f"{self._quoted()} nests too deeply") from None
        except PredicateError as error:
            raise PredicateError(f"{self._quoted()}: {error}") from None

    def _quoted(self) -> str:
        text = self.sql if len(self.sql) <= 200 else self.sql[:200] + "..."
        return f"predicate {text!r}"

    def _condition(self, node: exp.Expr) -> Predicate:
        op = _COMPARISONS.get(type(node))
        if op is not None:
            return Comparison(op, self._value(node.this), self._value(node.expression))
        reader = self._conditions.get(type(node))
        if reader is None:
            raise self._unsupported(node)
        return reader(node)

    def _value(self, node: exp.Expr) -> Value:
        match node:
            case exp.Paren():
                return self._value(node.this)
            case exp.Column() | exp.Dot():
                return Column(tuple(self._path(node)))
        return self._literal(node)

    def _path(self, node: exp.Expr) -> Iterator[str]:
        match node:
            case exp.Dot():
                yield from self._path(node.this)
                yield from self._path(node.expression)
            case exp.Column():
                for part in node.parts:
                    yield from self._path(part)
            case exp.Identifier():
                yield node.name
            case _:
                raise self._unsupported(node)

    def _literal(self, node: exp.Expr) -> Literal:
        match node:
            case exp.Literal() if node.is_string:
                return Literal(node.name, STRING)
            case exp.Literal():
                return number_literal(node.name)
            case exp.RawString():
                return Literal(node.name, STRING)
            case exp.Null():
                return Literal(None, VOID)
            case exp.Boolean():
                return Literal(bool(node.this), BOOLEAN)
            case exp.HexString():
                return Literal(self._hex(node), BINARY)
            case exp.Paren():
                return self._literal(node.this)
            case exp.Neg():
                return self._negative(node)
            case exp.Concat() if all(isinstance(part, exp.Literal) for part in node.expressions):
                # Strings that stand side by side.
                return Literal("".join(part.name for part in node.expressions), STRING)
            case exp.Cast():
                return self._cast(node)
        raise self._unsupported(node)

    def _negative(self, node: exp.Neg) -> Literal:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number_literal("-" + inner.name)
        if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.this.is_string:
            # The suffix of -9223372036854775808L reads as a cast, and the number without its sign would not fit.
            inner = inner.copy()
            inner.set("this", exp.Neg(this=inner.this.copy()))
            return self._cast(inner)
        if isinstance(inner, exp.Column | exp.Dot):
            raise self._unsupported(node)
        literal = self._literal(inner)
        if literal.value is None or literal.type in (STRING, BOOLEAN, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ):
            raise self._unsupported(node)
        return Literal(-literal.value, literal.type)

    def _hex(self, node: exp.HexString) -> bytes:
        digits = node.name
        try:
            return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
        except ValueError:
            raise PredicateError(f"X'{digits}' is not hexadecimal{self._place(node)}") from None

    def _cast(self, node: exp.Cast) -> Literal:
        target = self._type(node.args["to"], node)
        if isinstance(node.this, exp.Column | exp.Dot):
            raise self._unsupported(node, "CAST of a column")
        source = self._literal(node.this)
        return Literal(cast_literal(source.value, source.type, target), target)

    def _type(self, node: exp.DataType, where: exp.Expr) -> DataType:
        name = node.this.value if isinstance(node.this, exp.DType) else str(node.this)
        if name == "DECIMAL":
            numbers = [int(p.this.name) for p in node.expressions if p.this.name.isdecimal()]
            if not node.expressions and isinstance(where.this, exp.Literal):
                return number_literal(where.this.name).type if _is_decimal(where.this.name) else DecimalType(10, 0)
            precision, scale = (*numbers, *(10, 0)[len(numbers) :])[:2]
            if len(numbers) != len(node.expressions) or not (1 <= precision <= 38 and scale <= precision):
                raise self._unsupported(where, node.sql(dialect="spark"))
            return DecimalType(precision, scale)
        if node.expressions or name not in _TYPES:
            raise self._unsupported(where, f"the type {node.sql(dialect='spark')}")
        return _TYPES[name]

    # --- conditions ---

    def _both(self, node: exp.Expr) -> Predicate:
        # The tree of a long chain is deep on its left side.
        kind = type(node)
        parts: list[exp.Expr] = []
        while isinstance(node, kind):
            parts.append(node.expression)
            node = node.this
        parts.append(node)
        children = tuple(self._condition(part) for part in reversed(parts))
        return And(children) if kind is exp.And else Or(children)

    def _negation(self, node: exp.Expr) -> Predicate:
        return Not(self._condition(node.this))

    def _paren(self, node: exp.Expr) -> Predicate:
        return self._condition(node.this)

    def _membership(self, node: exp.Expr) -> Predicate:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise self._unsupported(node, "IN with a subquery")
        items = tuple(self._literal(item) for item in node.expressions)
        return In(self._value(node.this), items)

    def _between(self, node: exp.Expr) -> Predicate:
        if node.args.get("symmetric"):
            raise self._unsupported(node, "BETWEEN SYMMETRIC")
        value = self._value(node.this)
        low, high = self._value(node.args["low"]), self._value(node.args["high"])
        return And((Comparison(">=", value, low), Comparison("<=", value, high)))

    def _is_test(self, node: exp.Expr) -> Predicate:
        right = node.expression
        if isinstance(right, exp.Null):
            value = self._value(node.this)
            return IsNull(value) if isinstance(value, Column) else BoolLiteral(_constant(value).value is None)
        if isinstance(right, exp.Boolean):
            return Comparison("<=>", self._value(node.this), Literal(bool(right.this), BOOLEAN))
        raise self._unsupported(node)

    def _distinct(self, node: exp.Expr) -> Predicate:
        return Not(Comparison("<=>", self._value(node.this), self._value(node.expression)))

    def _escape(self, node: exp.Expr) -> Predicate:
        if not isinstance(node.this, exp.Like) or not isinstance(node.expression, exp.Literal):
            raise self._unsupported(node)
        if len(node.expression.name) != 1:
            raise PredicateError(f"ESCAPE takes one character, not {node.expression.name!r}{self._place(node)}")
        return self._like(node.this, node.expression.name)

    def _like(self, node: exp.Expr, escape: str = "\\") -> Predicate:
        column, pattern = self._value(node.this), node.expression
        if not isinstance(column, Column) or not isinstance(pattern, exp.Literal | exp.RawString | exp.Null):
            raise self._unsupported(node, "LIKE with anything but a column and a string")
        if isinstance(pattern, exp.Null):
            return NULL
        like = Like(column, pattern.name, escape)
        return Not(like) if node.args.get("negate") else like

    def _column(self, node: exp.Expr) -> Predicate:
        return Comparison("=", self._value(node), Literal(True, BOOLEAN))

    def _constant(self, node: exp.Expr) -> Predicate:
        return NULL if isinstance(node, exp.Null) else BoolLiteral(bool(node.this))

    def _cast_condition(self, node: exp.Expr) -> Predicate:
        literal = self._literal(node)
        if literal.type != BOOLEAN:
            raise self._unsupported(node)
        return BoolLiteral(literal.value)

    # --- errors ---

    def _unsupported(self, node: exp.Expr, what: str | None = None) -> PredicateError:
        fragment = node.sql(dialect="spark")
        fragment = fragment if len(fragment) <= 80 else fragment[:80] + "..."
        kind = "the function" if isinstance(node, exp.Func) else type(node).__name__
        name = what or f"{_NAMES.get(type(node), kind)} ({fragment})"
        return PredicateError(f"{name} is not supported here{self._place(node)}")

    def _place(self, node: exp.Expr) -> str:
        """Where a node stands, as well as sqlglot knows."""
        starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
        if not starts:
            found = self.sql.lower().find(node.sql(dialect="spark").lower())
            starts = [found] if found >= 0 else []
        return f", at character {min(starts) + 1}" if starts else ""


_NAMES: dict[type[exp.Expr], str] = {
    exp.Add: "arithmetic",
    exp.Sub: "arithmetic",
    exp.Mul: "arithmetic",
    exp.Div: "arithmetic",
    exp.IntDiv: "arithmetic",
    exp.Mod: "arithmetic",
    exp.Neg: "arithmetic",
    exp.Exists: "a subquery",
    exp.Subquery: "a subquery",
    exp.Select: "a subquery",
    exp.Anonymous: "the function",
    exp.Case: "CASE",
    exp.RegexpLike: "RLIKE",
    exp.ILike: "ILIKE",
    exp.Bracket: "an element of an array or a map",
    exp.Interval: "an interval",
    exp.Placeholder: "a parameter",
    exp.Literal: "a constant as a condition",
}


def _constant(value: Value) -> Literal:
    if not isinstance(value, Literal):
        raise PredicateError(f"{value} is not a constant")
    return value


def _is_decimal(text: str) -> bool:
    return re.fullmatch(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text, re.ASCII) is not None


def number_literal(text: str) -> Literal:
    """A number as Spark types it: the narrowest of int, bigint and decimal; a double where there is an exponent."""
    if not _is_decimal(text):
        raise PredicateError(f"{text} is not a number")
    if "e" in text.lower():
        number = float(text)
        if math.isinf(number):
            raise PredicateError(f"{text} is beyond the range of a double")
        return Literal(number, DOUBLE)
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    if "." not in text and -(2**63) <= value < 2**63:
        return Literal(int(value), INTEGER if -(2**31) <= value < 2**31 else LONG)
    precision = max(len(digits), scale)
    if precision > 38:
        raise PredicateError(f"{text} has more than 38 digits")
    return Literal(value, DecimalType(precision, scale))


def _complaint(error: ParseError) -> str:
    for item in error.errors:
        place = f" at line {item.get('line')}, column {item.get('col')}" if item.get("line") else ""
        near = f" near {item['highlight']!r}" if item.get("highlight") else ""
        return f"it cannot be parsed{place}{near}"
    return f"it cannot be parsed: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
