"""Which type two values have in common, and how a value gets there without being asked: Spark's ANSI coercion."""

from __future__ import annotations

from collections.abc import Iterable

from refdelta.errors import PredicateError
from refdelta.expressions.casting import cast_literal, convertible
from refdelta.expressions.expression import Cast, Convert, Literal, Value
from refdelta.expressions.interval_types import DAY_TIME, DAYS
from refdelta.table.types import (
    DATE,
    DOUBLE,
    FRACTIONAL,
    INTEGRAL,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    DataType,
    DecimalType,
    is_nested,
    is_numeric,
)

MAX_PRECISION = 38
_MAX_COMPARED = 76  # what Arrow's wider decimals hold; a comparison may need more digits than a column can have
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def wider(left: DataType, right: DataType) -> DataType | None:
    """The type that holds what both hold, or None; decimals may come out wider than a column's.

    Raises:
        PredicateError: decimals that take more digits than there are.
    """
    if right in (left, VOID):
        return left
    if left == VOID:
        return right
    if is_numeric(left) and is_numeric(right):
        return _wider_number(left, right)
    pair = {left, right}
    if pair == {DAYS, DAY_TIME}:
        return DAY_TIME
    if pair <= {DATE, TIMESTAMP, TIMESTAMP_NTZ}:
        return TIMESTAMP if TIMESTAMP in pair else TIMESTAMP_NTZ
    return None


def _wider_number(left: DataType, right: DataType) -> DataType:
    if left in FRACTIONAL or right in FRACTIONAL:
        return DOUBLE
    if left in INTEGRAL and right in INTEGRAL:
        return left if INTEGRAL[left] >= INTEGRAL[right] else right
    one, other = decimal_of(left), decimal_of(right)
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    if precision > _MAX_COMPARED:
        raise PredicateError(f"{left} and {right} cannot be compared exactly: that takes {precision} digits")
    return DecimalType(precision, scale)


def decimal_of(data_type: DataType) -> DecimalType:
    """The decimal type that has room for an integer type; a decimal type itself."""
    return data_type if isinstance(data_type, DecimalType) else DecimalType(_DIGITS[INTEGRAL[data_type]], 0)


def common_type(values: Iterable[Value], what: str) -> DataType:
    """The type of the outcome of something that picks one of several values, such as CASE.

    Raises:
        PredicateError: they have none in common.
    """
    found: DataType = VOID
    for value in values:
        if is_nested(value.type) or value.type == VARIANT:
            raise PredicateError(f"{what} of {value} ({value.type}): only plain types can be computed with")
        found = _promoted(found, value.type) or _apart(what, found, value)
    if isinstance(found, DecimalType) and found.precision > MAX_PRECISION:
        # As Spark: digits before the point are kept.
        whole = min(found.precision - found.scale, MAX_PRECISION)
        return DecimalType(MAX_PRECISION, min(found.scale, MAX_PRECISION - whole))
    return found


def _promoted(left: DataType, right: DataType) -> DataType | None:
    return left if left == right else wider(left, right) or with_string(left, right)


def with_string(left: DataType, right: DataType) -> DataType | None:
    """The common type of a string and another type: bigint, double, or the other; None if neither is a string."""
    if STRING not in (left, right):
        return None
    other = right if left == STRING else left
    if other in INTEGRAL:
        return LONG
    return DOUBLE if is_numeric(other) else other


def _apart(what: str, found: DataType, value: Value) -> DataType:
    raise PredicateError(f"{what}: {found} and {value.type} ({value}) have no type in common; cast one of them")


def coerce(value: Value, target: DataType, what: str = "") -> Value:
    """A value in another type, by a cast if need be.

    Raises:
        PredicateError: there is no such cast, or the constant does not fit.
    """
    if value.type == target:
        return value
    if isinstance(value, Literal):
        return literal_as(value, target)
    if wider(value.type, target) == target:
        return Cast(value, target)
    if not convertible(value.type, target):
        raise PredicateError(f"{what + ': ' if what else ''}{value} is {value.type}, not {target}")
    return Convert(value, target)


def literal_as(literal: Literal, target: DataType) -> Literal:
    """A constant in another type.

    Raises:
        PredicateError: it does not fit.
    """
    if literal.value is None:
        return Literal(None, target)
    return Literal(cast_literal(literal.value, literal.type, target), target)


def decimal_operand(value: Value) -> Value:
    """A value as an operand of decimal arithmetic; an integer constant has just its digits, as in Spark."""
    if isinstance(value.type, DecimalType):
        return value
    if isinstance(value, Literal) and value.value is not None and value.type in INTEGRAL:
        return literal_as(value, DecimalType(len(str(abs(value.value))), 0))
    return coerce(value, decimal_of(value.type))
