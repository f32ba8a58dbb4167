"""Arithmetic in Spark's ANSI mode: the types of results, and their values.

A result that does not fit its type is an error, and so is a division by zero, of floats too.

Decimals of columns are computed exactly in 256 bits and then rounded as in Spark. Arrow derives the precision of a
result from the precisions of the operands, and refuses more than 76 digits even if no value has so many. So operands
are relabelled first: with a smaller precision, or with another scale for which the result is corrected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions.casting import (
    WIDEST,
    decimal_column,
    round_decimal,
    to_decimal,
    to_fraction,
    to_integer,
    wide,
)
from refdelta.expressions.coercion import (
    MAX_PRECISION,
    coerce,
    decimal_operand,
    wider,
    with_string,
)
from refdelta.expressions.expression import Literal, Value
from refdelta.table.types import (
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
    if op == "%" and both == VOID:
        return (coerce(left, LONG), coerce(right, LONG)), LONG  # always null; there is no remainder of doubles
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


# --- columns -----------------------------------------------------------------------------------------------------


def compute_decimals(op: str, left: pa.Array, right: pa.Array, target: DecimalType) -> tuple[pa.Array, pa.Array]:
    """``left op right`` in the type of the result, and a mask of the values that do not fit.

    Args:
        op: one of ``+ - * / %``.
        left: integers or decimals.
        right: the same; a divisor is never zero.
        target: the type of the result.

    Raises:
        ExpressionError: a division needs more digits than 256 bits hold.
    """
    one, other = wide(left), wide(right)
    s1, s2 = one.type.scale, other.type.scale
    if op in "+-":
        scale = max(s1, s2)
        # 38 digits, moved by at most 38, and half of the room for the sum.
        one, other = (_labelled(x.cast(pa.decimal256(WIDEST, scale)), WIDEST - 1, scale) for x in (one, other))
        return decimal_column(pc.add(one, other) if op == "+" else pc.subtract(one, other), target)
    if op == "*":
        product = pc.multiply(_labelled(one, 38, s1), _labelled(other, 37, s2))
        return decimal_column(product, target)
    if op == "/":
        return decimal_column(_quotient(one, other, target.scale + 1), target)
    scale = max(s1, s2)
    one, other = _scaled(one, scale), _scaled(other, scale)
    times = pc.round(_quotient(one, other, 0), 0, "towards_zero")
    times = _labelled(times.cast(pa.decimal256(WIDEST, 0)), 38, 0)
    product = _labelled(pc.multiply(times, _labelled(other, 37, scale)), WIDEST - 1, scale)
    return decimal_column(pc.subtract(_labelled(one, WIDEST - 1, scale), product), target)


def _quotient(one: pa.Array, other: pa.Array, scale: int) -> pa.Array:
    """The quotient, cut after at least ``scale`` digits."""
    s1, s2 = one.type.scale, other.type.scale
    # Arrow adds two digits to a dividend of scale 4 if the divisor is labelled with one digit.
    shift = max(scale - s1 + s2, 2)
    try:
        dividend = one.cast(pa.decimal256(WIDEST, s1 + shift - 2))
    except pa.ArrowInvalid:
        raise ExpressionError("a quotient of decimals needs more than 76 digits") from None
    found = pc.divide(_labelled(dividend, WIDEST - 2, 4), _labelled(other, 1, 0))
    return _labelled(found, WIDEST, s1 - s2 + shift)


def _scaled(array: pa.Array, scale: int) -> pa.Array:
    return array.cast(pa.decimal256(WIDEST, scale))


def _labelled(array: pa.Array, precision: int, scale: int) -> pa.Array:
    kind = pa.decimal256(precision, scale)
    return pa.Array.from_buffers(kind, len(array), array.buffers(), array.null_count, array.offset)
