"""Arithmetic in Spark's ANSI mode: the types of results, and their values.

A result that does not fit its type is an error, and so is a division by zero, of floats too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from refdelta.core.expressions.casting import round_decimal, to_decimal, to_fraction, to_integer
from refdelta.core.expressions.coercion import (
    MAX_PRECISION,
    coerce,
    decimal_operand,
    wider,
    with_string,
)
from refdelta.core.expressions.expression import Literal, Value
from refdelta.core.table.types import (
    DOUBLE,
    FRACTIONAL,
    INTEGER,
    INTEGRAL,
    LONG,
    VOID,
    DataType,
    DecimalType,
    is_numeric,
)
from refdelta.errors import ExpressionError, PredicateError

Typed = tuple[tuple[Value, ...], DataType]
_EXACT = Context(prec=400, Emax=999999, Emin=-999999)
_MIN_SCALE = 6

# --- types -------------------------------------------------------------------------------------------------------


def binary_types(op: str, args: tuple[Value, ...]) -> Typed:
    """The operands of an operator in their common type, and the type of its result.

    Raises:
        PredicateError: they are no numbers, or of types that this operator does not have here.
    """
    left, right = args
    for value in args:
        if not (is_numeric(value.type) or value.type == VOID or with_string(left.type, right.type)):
            raise PredicateError(f"{op} takes numbers, and {value} is {value.type}")
    both = with_string(left.type, right.type) or wider(left.type, right.type)
    if both is None or not (is_numeric(both) or both == VOID):
        raise PredicateError(f"{left} ({left.type}) {op} {right} ({right.type}): {op} takes numbers")
    kinds = {both if value.type == VOID else value.type for value in args}
    if op == "div":
        if not kinds <= set(INTEGRAL):
            raise PredicateError(f"div takes integers, not {left.type} and {right.type}")
        return (coerce(left, LONG), coerce(right, LONG)), LONG
    if op == "%" and both in FRACTIONAL:
        raise PredicateError(f"the remainder of floats ({left} % {right}) is not supported here; cast to a decimal")
    if isinstance(both, DecimalType):
        one, other = (decimal_operand(Literal(None, INTEGER) if v.type == VOID else v) for v in args)
        return (one, other), _decimal_result(op, one.type, other.type)
    if op == "/" or both == VOID:
        return (coerce(left, DOUBLE), coerce(right, DOUBLE)), DOUBLE
    return (coerce(left, both), coerce(right, both)), both


def _decimal_result(op: str, left: DataType, right: DataType) -> DecimalType:
    if not isinstance(left, DecimalType) or not isinstance(right, DecimalType):
        raise PredicateError(f"{left} {op} {right} is no decimal arithmetic")
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    if op in "+-":
        scale = max(s1, s2)
        return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if op == "*":
        return adjusted(p1 + p2 + 1, s1 + s2)
    if op == "/":
        scale = max(_MIN_SCALE, s1 + p2 + 1)
        return adjusted(p1 - s1 + s2 + scale, scale)
    return adjusted(min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))


def adjusted(precision: int, scale: int) -> DecimalType:
    """A decimal type of at most 38 digits; digits after the decimal point are reduced, to six at least."""
    if precision <= MAX_PRECISION:
        return DecimalType(precision, scale)
    whole = precision - scale
    return DecimalType(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_SCALE)))


def unary_types(op: str, args: tuple[Value, ...]) -> Typed:
    """Minus and abs keep the type."""
    value = number(op, args[0])
    return (value,), value.type


def number(op: str, value: Value) -> Value:
    """A numeric argument; a string becomes a double.

    Raises:
        PredicateError: it is none.
    """
    if value.type == VOID or with_string(value.type, DOUBLE) == DOUBLE:
        return coerce(value, DOUBLE)
    if not is_numeric(value.type):
        raise PredicateError(f"{op} takes a number, and {value} is {value.type}")
    return value


def round_types(op: str, args: tuple[Value, ...]) -> Typed:
    """``round(x, d)``, d an integer constant."""
    value = number(op, args[0])
    places = args[1] if len(args) > 1 else Literal(0, INTEGER)
    if not isinstance(places, Literal) or not isinstance(places.value, int) or not -400 < places.value < 400:
        raise PredicateError(f"{op} takes an integer constant for the digits, not {places}")
    kind = value.type
    if isinstance(kind, DecimalType):
        whole = kind.precision - kind.scale + 1
        if places.value < 0:
            kind = DecimalType(min(max(whole, 1 - places.value), MAX_PRECISION), 0)
        else:
            scale = min(kind.scale, places.value)
            kind = DecimalType(min(whole + scale, MAX_PRECISION), scale)
    return (value, places), kind


def whole_types(op: str, args: tuple[Value, ...]) -> Typed:
    """Floor and ceil: a decimal of no scale, or bigint."""
    value = number(op, args[0])
    kind = value.type
    if isinstance(kind, DecimalType):
        scaled = kind.scale > 0
        result = DecimalType(min(kind.precision - kind.scale + 1, MAX_PRECISION), 0) if scaled else kind
        return (value,), result
    return (coerce(value, LONG if kind in INTEGRAL else DOUBLE),), LONG


# --- values ------------------------------------------------------------------------------------------------------


def fit(value: Any, kind: DataType) -> Any:
    """The outcome of a computation in its type.

    Raises:
        ExpressionError: it does not fit.
    """
    if kind in INTEGRAL:
        return to_integer(value, INTEGRAL[kind])
    return to_decimal(value, kind) if isinstance(kind, DecimalType) else to_fraction(value, kind)


def _exact(operation: Callable[[Context, Decimal, Decimal], Decimal]) -> Callable[[Any, Any], Any]:
    return lambda a, b: operation(_EXACT, a, b)


_DECIMAL: dict[str, Callable[[Any, Any], Any]] = {
    "+": _exact(Context.add),
    "-": _exact(Context.subtract),
    "*": _exact(Context.multiply),
    "/": _exact(Context.divide),
    "%": _exact(Context.remainder),
}


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "div": _truncated,
    "%": lambda a, b: a - _truncated(a, b) * b,
}


def binary(op: str, kind: DataType, a: Any, b: Any) -> Any:
    """An operator on two numbers, neither null.

    Raises:
        ExpressionError: the result does not fit, or the divisor is zero.
    """
    if op in ("/", "%", "div") and b == 0:
        raise ExpressionError(f"{a} {op} {b}: division by zero")
    try:
        return fit((_DECIMAL if isinstance(kind, DecimalType) else _PLAIN)[op](a, b), kind)
    except ExpressionError:
        raise ExpressionError(f"{a} {op} {b} does not fit into {kind}") from None


def rounded(kind: DataType, value: Any, places: int) -> Any:
    """``round(value, places)``, half away from zero; a float is taken by its shortest text.

    Raises:
        ExpressionError: an integer that does not fit any more.
    """
    if kind in INTEGRAL:
        return fit(int(round_decimal(Decimal(value), places)), kind) if places < 0 else value
    if isinstance(kind, DecimalType):
        return to_decimal(round_decimal(value, min(places, kind.scale)), kind)
    if not math.isfinite(value):
        return value
    found = to_fraction(float(round_decimal(Decimal(repr(value)), places)), kind)
    return found + 0.0  # Java's decimals have no negative zero


def whole(kind: DataType, value: Any, function: Callable[[Any], int]) -> Any:
    """Floor and ceil."""
    if isinstance(kind, DecimalType):
        return fit(Decimal(function(value)), kind)
    if isinstance(value, float) and not math.isfinite(value):
        # As Java takes a double for a long.
        return 0 if math.isnan(value) else (1 << 63) - 1 if value > 0 else -(1 << 63)
    return max(-(1 << 63), min(function(value), (1 << 63) - 1))
