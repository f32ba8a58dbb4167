"""The words of SQL that are known here: types, operators, and names that are short for something else."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from refdelta.core.expressions.expression import Literal
from refdelta.core.table.types import (
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
    DataType,
    DecimalType,
)
from refdelta.errors import PredicateError


class Dialect(Spark):
    """Spark's, where two quotes inside a string are one, as Spark 4 has it.

    sqlglot's own knowledge of functions is switched off: it is there to translate between dialects, and changes what
    was written. Every function comes with its name and its arguments.
    """

    class Tokenizer(Spark.Tokenizer):  # noqa: D106
        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012 - the form that sqlglot has

    class Parser(Spark.Parser):  # type: ignore[valid-type, misc]  # noqa: D106
        FUNCTIONS: dict[str, object] = {}  # noqa: RUF012
        NO_PAREN_FUNCTIONS: dict[object, object] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012 - those with a grammar of their own
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING")
        }


COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}

ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
}

TYPES: dict[str, DataType] = {
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

CLOCKS: dict[str, DataType] = {
    "current_date": DATE,
    "curdate": DATE,
    "current_timestamp": TIMESTAMP,
    "now": TIMESTAMP,
    "localtimestamp": TIMESTAMP_NTZ,
}
"""Functions of the time at which a statement begins."""

CAST_FUNCTIONS: dict[str, DataType] = {
    "to_date": DATE,
    "date": DATE,
    "to_timestamp": TIMESTAMP,
    "timestamp": TIMESTAMP,
    "to_timestamp_ntz": TIMESTAMP_NTZ,
    "tinyint": BYTE,
    "smallint": SHORT,
    "int": INTEGER,
    "bigint": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "boolean": BOOLEAN,
    "binary": BINARY,
}
"""Functions of one argument that are casts."""

SHORTHANDS = {"isnull": 1, "isnotnull": 1, "isnan": 1, "nullif": 2, "nvl2": 3}
"""Functions that are short for a condition or a CASE, and how many arguments they have."""

EXTRACTED = {
    "year": "year",
    "y": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "day",
    "d": "day",
    "doy": "dayofyear",
    "dow": "dayofweek",
    "hour": "hour",
    "minute": "minute",
}
"""What EXTRACT takes, and which function that is; its seconds, which have a fraction, are not among them."""

SUBQUERIES = (exp.Exists, exp.Subquery, exp.Select, exp.In)
SUBQUERY_ADVICE = "; read first, in the same transaction, and write with the values that were found"

NAMES: dict[type[exp.Expr], str] = {
    exp.Anonymous: "the function",
    exp.Exists: "a subquery",
    exp.Subquery: "a subquery",
    exp.Select: "a subquery",
    exp.In: "IN with a subquery",
    exp.RegexpLike: "RLIKE",
    exp.ILike: "ILIKE",
    exp.Bracket: "an element of an array or a map",
    exp.Interval: "an interval",
    exp.Placeholder: "a parameter",
    exp.Literal: "a constant as a condition",
    exp.Window: "a window function",
    exp.Tuple: "a tuple",
    exp.BitwiseAnd: "bitwise arithmetic",
    exp.BitwiseOr: "bitwise arithmetic",
    exp.BitwiseXor: "bitwise arithmetic",
    exp.BitwiseNot: "bitwise arithmetic",
}
"""What is not supported, in words."""


def is_decimal(text: str) -> bool:
    """Whether a text is a number as SQL writes it."""
    return re.fullmatch(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text, re.ASCII) is not None


def number_literal(text: str) -> Literal:
    """A number as Spark types it: the narrowest of int, bigint and decimal; a double where there is an exponent.

    Raises:
        PredicateError: it is none, or beyond what the types hold.
    """
    shown = text if len(text) <= 60 else text[:60] + "..."
    if not is_decimal(text):
        raise PredicateError(f"{shown} is not a number")
    if "e" in text.lower():
        number = float(text)
        if math.isinf(number):
            raise PredicateError(f"{shown} is beyond the range of a double")
        return Literal(number, DOUBLE)
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    if "." not in text and -(2**63) <= value < 2**63:
        return Literal(int(value), INTEGER if -(2**31) <= value < 2**31 else LONG)
    precision = max(len(digits), scale)
    if precision > 38:
        raise PredicateError(f"{shown} has more than 38 digits")
    return Literal(value, DecimalType(precision, scale))
