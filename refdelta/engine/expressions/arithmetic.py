"""Comparisons and decimal arithmetic of columns: the twins of :mod:`refdelta.core.expressions.ordering` and
:mod:`refdelta.core.expressions.arithmetic`, which are the definitions.

Decimals are computed exactly in 256 bits and then rounded as in Spark. Arrow derives the precision of a result from
the precisions of the operands, and refuses more than 76 digits even if no value has so many. So operands are relabelled
first: with a smaller precision, or with another scale for which the result is corrected.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.table.types import DecimalType
from refdelta.errors import ExpressionError

_MOST = 76  # digits of 256 bits
_SHORT = 18  # digits of 64 bits


# --- comparisons -------------------------------------------------------------------------------------------------


def compare(op: str, left: Any, right: Any) -> pa.BooleanArray:
    """A comparison of two columns, or of a column and a scalar.

    Args:
        op: one of ``= <> < <= > >= <=>``.
        left: a column or a scalar.
        right: a column or a scalar of the same type.
    """
    if pa.types.is_null(left.type) and pa.types.is_null(right.type):
        # Arrow cannot compare the type of nulls, which bounds have that are not kept.
        left, right = pc.cast(left, pa.bool_()), pc.cast(right, pa.bool_())
    match op:
        case "=":
            return _equal(left, right)
        case "<>":
            return pc.invert(_equal(left, right))
        case "<":
            return _less(left, right)
        case ">":
            return _less(right, left)
        case "<=":
            return pc.invert(_less(right, left))
        case ">=":
            return pc.invert(_less(left, right))
        case _:
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            return pc.coalesce(_equal(left, right), both_null)


def _floating(value: Any) -> bool:
    return bool(pa.types.is_floating(value.type))


def _equal(left: Any, right: Any) -> pa.BooleanArray:
    numbers = _short_decimals(left, right)
    if numbers is not None:
        return pa.array(numbers[0] == numbers[1])
    found = pc.equal(left, right)
    if _floating(left):
        # In Arrow NaN equals nothing, as in IEEE 754; in Spark it equals itself and is the greatest value.
        return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return found


def _less(left: Any, right: Any) -> pa.BooleanArray:
    numbers = _short_decimals(left, right)
    if numbers is not None:
        return pa.array(numbers[0] < numbers[1])
    found = pc.less(left, right)
    if _floating(left):
        return pc.or_(found, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))
    return found


def _short_decimals(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Two columns, or a column and a scalar, of decimals of up to 18 digits without nulls, as whole numbers, which
    are compared in half the time; None for others.
    """
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return None
    if left.type != right.type or not pa.types.is_decimal128(left.type) or left.type.precision > _SHORT:
        return None
    for value in (left, right):
        if isinstance(value, pa.Scalar):
            if not value.is_valid:
                return None
        elif value.null_count:
            return None
    return _whole(left), _whole(right)


def _whole(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        return int(value.as_py().scaleb(value.type.scale))
    # Of the 128 bits of a value, the lower 64 have all of its digits.
    numbers = np.frombuffer(value.buffers()[1], np.int64) if len(value) else np.zeros(0, np.int64)
    return numbers[2 * value.offset : 2 * (value.offset + len(value)) : 2]


# --- decimals ----------------------------------------------------------------------------------------------------


def wide(array: Any) -> pa.Array:
    """Integers or decimals as decimals of 256 bits with the same scale."""
    if pa.types.is_decimal(array.type):
        return array.cast(pa.decimal256(_MOST, array.type.scale))
    return array.cast(pa.int64()).cast(pa.decimal256(19, 0)).cast(pa.decimal256(_MOST, 0))


def fit(array: pa.Array, target: DecimalType) -> tuple[pa.Array, pa.Array]:
    """Wide decimals in the type of a column, rounded half away from zero; and a mask of those that do not fit."""
    scale = array.type.scale
    if scale > target.scale:
        array = pc.round(array, target.scale, "half_towards_infinity")
    whole = target.precision - target.scale
    if whole + scale >= _MOST:
        bad = pc.and_(array.is_valid(), False)
    else:
        bad = pc.greater_equal(pc.abs(array), pa.scalar(Decimal(10**whole), pa.decimal256(_MOST, scale)))
    sound = pc.if_else(bad, pa.scalar(Decimal(0), array.type), array)
    return sound.cast(pa.decimal256(_MOST, target.scale)).cast(pa.decimal128(target.precision, target.scale)), bad


def compute(op: str, left: pa.Array, right: pa.Array, target: DecimalType) -> tuple[pa.Array, pa.Array]:
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
        one, other = (_labelled(x.cast(pa.decimal256(_MOST, scale)), _MOST - 1, scale) for x in (one, other))
        return fit(pc.add(one, other) if op == "+" else pc.subtract(one, other), target)
    if op == "*":
        product = pc.multiply(_labelled(one, 38, s1), _labelled(other, 37, s2))
        return fit(product, target)
    if op == "/":
        return fit(_quotient(one, other, target.scale + 1), target)
    scale = max(s1, s2)
    one, other = (x.cast(pa.decimal256(_MOST, scale)) for x in (one, other))
    times = pc.round(_quotient(one, other, 0), 0, "towards_zero")
    times = _labelled(times.cast(pa.decimal256(_MOST, 0)), 38, 0)
    product = _labelled(pc.multiply(times, _labelled(other, 37, scale)), _MOST - 1, scale)
    return fit(pc.subtract(_labelled(one, _MOST - 1, scale), product), target)


def _quotient(one: pa.Array, other: pa.Array, scale: int) -> pa.Array:
    """The quotient, cut after at least ``scale`` digits."""
    s1, s2 = one.type.scale, other.type.scale
    # Arrow adds two digits to a dividend of scale 4 if the divisor is labelled with one digit.
    shift = max(scale - s1 + s2, 2)
    try:
        dividend = one.cast(pa.decimal256(_MOST, s1 + shift - 2))
    except pa.ArrowInvalid:
        raise ExpressionError("a quotient of decimals needs more than 76 digits") from None
    found = pc.divide(_labelled(dividend, _MOST - 2, 4), _labelled(other, 1, 0))
    return _labelled(found, _MOST, s1 - s2 + shift)


def _labelled(array: pa.Array, precision: int, scale: int) -> pa.Array:
    kind = pa.decimal256(precision, scale)
    return pa.Array.from_buffers(kind, len(array), array.buffers(), array.null_count, array.offset)
