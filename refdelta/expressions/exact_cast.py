"""Casts of values that are written to a table: a value is stored in the column's type without loss, or not at all.

A value fits if a cast back gives the same value. For strings: if it is a literal of the type with no more digits than
the type keeps. The time zone is UTC. Arrow casts what it can decide for a whole column; other values of a column are
cast one by one, once for each distinct value.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.arrow.arrays import floor_divide
from refdelta.arrow.conversion import instants
from refdelta.arrow.partition import from_internal, to_internal
from refdelta.arrow.schema import arrow_type, delta_type
from refdelta.errors import DeltaError, ExpressionError, InternalError
from refdelta.expressions.casting import WIDEST, to_fraction, to_micros, to_text
from refdelta.table import partition_values
from refdelta.table.evolution import may_fit
from refdelta.table.partition_values import DAY
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    FRACTIONAL,
    INTEGER,
    INTEGRAL,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)

_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE_DATE = re.compile(r"[+-]?\d{4,6}-\d{1,2}-\d{1,2}", re.ASCII)
_LOST_DIGITS = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)


def fitted_value(value: Any, source: DataType, target: DataType, *, zone: str | None = None) -> Any:
    """An internal value in another type, for which :func:`refdelta.table.evolution.may_fit` is true.

    Args:
        value: the value.
        source: its type.
        target: the other type.
        zone: the zone of a string that is a timestamp without one; None for UTC.

    Raises:
        ExpressionError: the type has no such value.
    """
    if value is None or source == target:
        return value
    if not may_fit(source, target):
        raise InternalError(f"no {source} fits into {target}")
    try:
        return _of_string(value, target, zone) if source == STRING else _fitted(value, source, target)
    except (ValueError, OverflowError, ArithmeticError, DeltaError) as error:
        raise ExpressionError(f"{value!r} does not fit into {target}: {error}") from None


def _fitted(value: Any, source: DataType, target: DataType) -> Any:
    if target == STRING:
        text = to_text(value, source)
        # Years of more than six digits are not read again.
        return (
            text
            if source not in (DATE, TIMESTAMP, TIMESTAMP_NTZ)
            else _checked(text, _of_string(text, source) == value)
        )
    if target == BOOLEAN:
        return _checked(bool(value), value in (0, 1))
    if target in INTEGRAL:
        whole = int(value)
        limit = 1 << INTEGRAL[target] - 1
        return _checked(whole, whole == value and -limit <= whole < limit)
    if target in FRACTIONAL:
        found = to_fraction(value, target)
        back = Decimal(shortest(found, target)) if isinstance(value, Decimal) else found
        return _checked(found, back == value or (isinstance(value, float) and math.isnan(value)))
    if isinstance(target, DecimalType):
        number = Decimal(shortest(value, source)) if isinstance(value, float) else Decimal(value)
        return partition_values.fit_decimal(number, target)
    if target == DATE:
        return _checked(value // DAY, value % DAY == 0)
    return to_micros(value * DAY) if source == DATE else value


def _of_string(text: str, target: DataType, zone: str | None = None) -> Any:
    if target == BINARY:
        return text.encode()
    text = text.strip()
    if isinstance(target, DecimalType):
        return partition_values.fit_decimal(_number(text), target)
    if target in FRACTIONAL:
        found = to_fraction(partition_values.parse_float(text), target)
        if _NUMBER.fullmatch(text):
            _checked(None, math.isfinite(found) and Decimal(shortest(found, target)) == _number(text))
        return found
    if target == DATE:
        return _checked(partition_values.parse_date(text), _WHOLE_DATE.fullmatch(text))
    if target in (TIMESTAMP, TIMESTAMP_NTZ):
        _checked(None, _WHOLE_DATE.match(text) and not _LOST_DIGITS.search(text))
        found = partition_values.parse_timestamp(text, zone=target == TIMESTAMP, local=zone)
        return _checked(found, target == TIMESTAMP or not partition_values.names_zone(text))
    return partition_values.parse_value(text, target)


def shortest(value: float, data_type: DataType) -> str:
    """The fewest digits that only this float or double is read from."""
    return str(np.float32(value)) if data_type == FLOAT else repr(value)


def _number(text: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is not a number")
    return Decimal(text)


def _checked(found: Any, ok: object, reason: str = "it would lose digits or range") -> Any:
    if not ok:
        raise ValueError(reason)
    return found


# --- columns -----------------------------------------------------------------------------------------------------

_PER_MICRO = {"s": 1_000_000, "ms": 1_000}
# Strings that both casts read in the same way, and that lose nothing.
_PLAIN: dict[DataType, str] = {
    BYTE: r"^-?\d{1,2}$",
    SHORT: r"^-?\d{1,4}$",
    INTEGER: r"^-?\d{1,9}$",
    LONG: r"^-?\d{1,18}$",
    FLOAT: r"^-?\d{1,3}(\.\d{1,3})?$",
    DOUBLE: r"^-?\d{1,7}(\.\d{1,8})?$",
    BOOLEAN: r"^(true|false)$",
    DATE: r"^\d{4}-\d{2}-\d{2}$",
    TIMESTAMP_NTZ: r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?$",
}
_ZONED = r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-](0\d|1[0-7])(:?[0-5]\d)?)$"


class Fitted(NamedTuple):
    """A column after an exact cast.

    Attributes:
        column: the values; null or any other value where one does not fit.
        misfits: a mask of the values that do not fit; None if all do.
    """

    column: pa.Array
    misfits: pa.Array | None = None


def fitted_column(array: pa.Array, target: DataType, *, zone: str | None = None) -> Fitted:
    """A column in another type.

    Args:
        array: without dictionary or run-end encoding; of a type for which
            :func:`refdelta.table.evolution.may_fit` is true.
        target: the type, which is not nested.
        zone: the zone of strings that are timestamps without one; None for UTC.
    """
    kind = arrow_type(target)
    if array.type == kind:
        return Fitted(array)
    source = delta_type(array.type, "")
    plain, lost = _as_delta(array, source)
    if source == VOID or plain.type == kind:
        return Fitted(pa.nulls(len(array), kind) if source == VOID else plain, _seen(lost))
    found = _vectorised(plain, source, target, zone)
    if found is None:
        found = _by_value(plain, source, target, zone)
    column, misfits = found
    both = misfits if lost is None else lost if misfits is None else pc.or_(lost, misfits)
    return Fitted(column if column.type == kind else column.cast(kind), _seen(both))


def _seen(misfits: pa.Array | None) -> pa.Array | None:
    if misfits is None:
        return None
    mask = pc.fill_null(misfits, False)
    return mask if pc.any(mask).as_py() else None


def _as_delta(array: pa.Array, source: DataType) -> Fitted:
    """The column in the Arrow type of its own Delta type."""
    kind = arrow_type(source)
    if array.type == kind or source == VOID:
        return Fitted(array)
    if pt.is_timestamp(array.type):
        numbers, unit = array.cast(pa.int64()), array.type.unit
        if unit == "ns":
            micros = floor_divide(numbers, 1000)
            return Fitted(micros.cast(kind), pc.not_equal(pc.multiply(micros, 1000), numbers))
        if unit in _PER_MICRO:
            limit = (2**63 - 1) // _PER_MICRO[unit]
            outside = _outside(numbers, -limit, limit)
            return Fitted(pc.multiply(pc.if_else(outside, 0, numbers), _PER_MICRO[unit]).cast(kind), outside)
        return Fitted(numbers.cast(kind))
    if pt.is_date64(array.type):
        found = array.cast(kind, safe=False)
        return Fitted(found, pc.not_equal(found.cast(array.type), array))
    if pt.is_binary_view(array.type) or pt.is_string_view(array.type):
        large = pa.large_binary() if pt.is_binary_view(array.type) else pa.large_string()
        return Fitted(array.cast(large).cast(kind))
    return Fitted(array.cast(kind))


def _by_value(array: pa.Array, source: DataType, target: DataType, zone: str | None) -> Fitted:
    encoded = array.dictionary_encode()
    found, bad = [], []
    for value in to_internal(encoded.dictionary, source):
        try:
            found.append(fitted_value(value, source, target, zone=zone))
            bad.append(False)
        except ExpressionError:
            found.append(None)
            bad.append(True)
    misfits = pa.array(bad, pa.bool_()).take(encoded.indices)
    return Fitted(from_internal(found, target).take(encoded.indices), misfits)


def _vectorised(array: pa.Array, source: DataType, target: DataType, zone: str | None) -> Fitted | None:
    if source == STRING:
        return _instants_of(array, zone) if target == TIMESTAMP else _strings_to(array, target)
    if target == STRING:
        return Fitted(array.cast(pa.string())) if source in INTEGRAL or source == BOOLEAN else None
    kind = arrow_type(target)
    if source == BOOLEAN:
        return Fitted(array.cast(pa.int8()).cast(kind))
    if target == BOOLEAN:
        return Fitted(pc.not_equal(array, pa.scalar(0, array.type)), _outside(array, 0, 1))
    if isinstance(source, DecimalType):
        return _of_decimal(array, target)
    if source in INTEGRAL:
        return _of_integer(array, source, target)
    if source in FRACTIONAL:
        return _of_float(array, source, target)
    return _of_time(array, source, target)


def _outside(array: pa.Array, low: Any, high: Any) -> pa.Array:
    low, high = (pa.scalar(limit, array.type) for limit in (low, high))
    return pc.or_(pc.less(array, low), pc.greater(array, high))


def _range(target: DataType) -> tuple[int, int]:
    bits = INTEGRAL[target]
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _of_integer(array: pa.Array, source: DataType, target: DataType) -> Fitted:
    kind = arrow_type(target)
    if isinstance(target, DecimalType):
        return _rescaled(array.cast(pa.decimal128(19, 0)), target)
    if target in INTEGRAL:
        narrower = INTEGRAL[target] < INTEGRAL[source]
        return Fitted(array.cast(kind, safe=False), _outside(array, *_range(target)) if narrower else None)
    numbers = array.cast(pa.int64())
    found = numbers.cast(kind, safe=False)
    wide = found.cast(pa.float64())
    top = pc.equal(wide, 2.0**63)  # 2^63 is no long
    back = pc.if_else(top, 0.0, wide).cast(pa.int64(), safe=False)
    return Fitted(found, pc.or_(top, pc.not_equal(back, numbers)))


def _of_float(array: pa.Array, source: DataType, target: DataType) -> Fitted | None:
    kind = arrow_type(target)
    wide = array.cast(pa.float64())
    if target in FRACTIONAL:
        found = array.cast(kind, safe=False)
        back = found.cast(pa.float64())
        return Fitted(found, pc.and_(pc.not_equal(back, wide), pc.invert(pc.is_nan(wide))))
    if target in INTEGRAL:
        low, high = _range(target)
        # The largest long is no double: 2^63 is the first beyond it.
        inside = pc.and_(pc.greater_equal(wide, float(low)), pc.less(wide, float(high + 1)))
        bad = pc.or_(pc.invert(inside), pc.not_equal(pc.trunc(wide), wide))
        return Fitted(pc.if_else(bad, 0.0, wide).cast(pa.int64(), safe=False).cast(kind, safe=False), bad)
    return _decimals(array, wide, source, target) if isinstance(target, DecimalType) else None


def _decimals(array: pa.Array, wide: pa.Array, source: DataType, target: DecimalType) -> Fitted | None:
    """Floats as decimals; None unless each has so few digits that it is the only float next to its decimal."""
    scale, digits = target.scale, 6 if source == FLOAT else 15
    if scale > (8 if source == FLOAT else 18):
        return None
    numbers = wide.to_numpy(zero_copy_only=False)
    with np.errstate(all="ignore"):
        units = np.rint(numbers * 10.0**scale)
        near = units / 10.0**scale
        same = (near.astype(np.float32).astype(np.float64) if source == FLOAT else near) == numbers
        plain = same & (np.abs(units) < 10.0**digits)
    if not np.all(plain | array.is_null().to_numpy(zero_copy_only=False)):
        return None
    whole = pa.array(np.where(plain, units, 0).astype(np.int64)).cast(pa.decimal128(19, 0))
    if scale:
        whole = pc.multiply(whole, pa.scalar("0." + "1".rjust(scale, "0")).cast(pa.decimal128(scale, scale)))
    return _rescaled(pc.if_else(array.is_valid(), whole, pa.scalar(None, whole.type)), target)


def _of_decimal(array: pa.Array, target: DataType) -> Fitted | None:
    if isinstance(target, DecimalType):
        return _rescaled(array, target)
    if target in INTEGRAL:
        whole, bad = _rescaled(array, DecimalType(19, 0))
        low, high = (pa.scalar(limit).cast(pa.decimal128(19, 0)) for limit in _range(target))
        outside = pc.or_(pc.less(whole, low), pc.greater(whole, high))
        bad = outside if bad is None else pc.or_(outside, bad)
        zero = pa.scalar(0).cast(whole.type)
        return Fitted(pc.if_else(pc.fill_null(bad, False), zero, whole).cast(pa.int64()).cast(arrow_type(target)), bad)
    if array.type.precision <= (6 if target == FLOAT else 15):
        return Fitted(array.cast(pa.string()).cast(pa.float64()).cast(arrow_type(target), safe=False))
    return None


def _rescaled(array: pa.Array, target: DecimalType) -> Fitted:
    """Decimals with another precision and scale."""
    kind, own = arrow_type(target), array.type.scale
    wide = array.cast(pa.decimal256(WIDEST, own))
    found = wide.cast(pa.decimal256(WIDEST, target.scale), safe=False) if target.scale != own else wide
    bad = pc.not_equal(found.cast(wide.type), wide) if target.scale < own else None
    room = target.precision - target.scale
    if array.type.precision - own > room or target.scale < own:
        limit = pa.scalar("1" + "0" * room).cast(pa.decimal256(WIDEST, 0)).cast(pa.decimal256(WIDEST, target.scale))
        outside = pc.or_(pc.greater_equal(found, limit), pc.less_equal(found, pc.negate(limit)))
        bad = outside if bad is None else pc.or_(bad, outside)
        zero = pa.scalar(0).cast(pa.decimal256(WIDEST, 0)).cast(found.type)
        found = pc.if_else(pc.fill_null(bad, False), zero, found)
    return Fitted(found.cast(kind), bad)


def _of_time(array: pa.Array, source: DataType, target: DataType) -> Fitted | None:
    kind = arrow_type(target)
    if source == DATE:
        days = array.cast(pa.int32()).cast(pa.int64())
        outside = _outside(days, -(2**63 // DAY), 2**63 // DAY - 1)
        return Fitted(pc.multiply(pc.if_else(outside, 0, days), DAY).cast(kind), outside)
    if source == BINARY:
        return None
    micros = array.cast(pa.int64())
    if target != DATE:
        return Fitted(micros.cast(kind))
    days = floor_divide(micros, DAY)
    return Fitted(days.cast(pa.int32()).view(kind), pc.not_equal(pc.multiply(days, DAY), micros))


def _strings_to(array: pa.Array, target: DataType) -> Fitted | None:
    if target == BINARY:
        return Fitted(array.cast(pa.binary()))
    pattern = _plain_decimals(target) if isinstance(target, DecimalType) else _PLAIN.get(target)
    if pattern is None or not pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py():
        return None
    try:
        found = array.cast(pa.float64()) if target == FLOAT else array.cast(arrow_type(target))
    except pa.ArrowInvalid:  # such as the 30th of February
        return None
    return Fitted(found.cast(arrow_type(target), safe=False))


def _plain_decimals(target: DecimalType) -> str | None:
    """A pattern of decimals that have room in a type without their last zeros cut off."""
    whole = target.precision - target.scale
    fraction = rf"(\.\d{{1,{target.scale}}})?" if target.scale else ""
    return rf"^-?\d{{1,{whole}}}{fraction}$" if whole else None


def _instants_of(array: pa.Array, zone: str | None) -> Fitted | None:
    zoned = pc.match_substring_regex(array, _ZONED)
    local = pc.match_substring_regex(array, _PLAIN[TIMESTAMP_NTZ])
    if not pc.all(pc.or_(zoned, local), min_count=0).as_py():
        return None
    kind, none = arrow_type(TIMESTAMP), pa.scalar(None, array.type)
    try:
        found = pc.if_else(zoned, array, none).cast(kind)
        if pc.any(local).as_py():
            clocks = pc.if_else(local, array, none).cast(arrow_type(TIMESTAMP_NTZ))
            found = pc.coalesce(found, instants(clocks, zone or "UTC").cast(kind))
    except pa.ArrowInvalid:  # such as the 30th of February
        return None
    return Fitted(found)
