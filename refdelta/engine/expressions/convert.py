"""Casts of columns: the twin of :func:`refdelta.core.expressions.casting.convert_value`, which is the definition.

Arrow is used where its casts are the same as those of the definition. Other values are cast by the definition, once for
each distinct value.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.casting import convert_value
from refdelta.core.expressions.partition_values import DAY
from refdelta.core.table.types import (
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
    DataType,
    DecimalType,
)
from refdelta.engine.arrow.arrays import floor_divide
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions import arithmetic
from refdelta.engine.expressions.partition import from_internal, to_internal

_CLOCKS = (TIMESTAMP, TIMESTAMP_NTZ)
# Strings that Arrow reads in the same way as the definition; a date may still be invalid.
_PLAIN: dict[DataType, str] = {
    BYTE: r"^-?\d{1,2}$",
    SHORT: r"^-?\d{1,4}$",
    INTEGER: r"^-?\d{1,9}$",
    LONG: r"^-?\d{1,18}$",
    DOUBLE: r"^-?\d{1,15}(\.\d{1,15})?$",
    DATE: r"^\d{4}-\d{2}-\d{2}$",
    TIMESTAMP_NTZ: r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?$",
}
# 0001-01-01 to 9999-12-31: years of four digits without a sign.
_FIRST, _LAST = -719_162 * DAY, 2_932_897 * DAY - 1


def convert(array: pa.Array, source: DataType, target: DataType, *, lenient: bool = False) -> pa.Array:
    """CAST, or TRY_CAST where ``lenient``.

    Raises:
        ExpressionError: a value has no equivalent of the target type; the message shows the first.
    """
    found = _vectorised(array, source, target)
    if found is None:
        return _by_value(array, source, target, lenient=lenient)
    result, bad = found
    if bad is None or not pc.any(bad).as_py():
        return result
    if lenient:
        return pc.if_else(bad, pa.scalar(None, result.type), result)
    first = array.filter(pc.fill_null(bad, False)).slice(0, 1)
    return convert_value(to_internal(first, source)[0], source, target)


def _by_value(array: pa.Array, source: DataType, target: DataType, *, lenient: bool) -> pa.Array:
    encoded = array.dictionary_encode()
    values = to_internal(encoded.dictionary, source)
    found = [convert_value(value, source, target, lenient=lenient) for value in values]
    return from_internal(found, target).take(encoded.indices)


def _vectorised(array: pa.Array, source: DataType, target: DataType) -> tuple[pa.Array, pa.Array | None] | None:
    """The result, and a mask of the values that cannot be cast; None if Arrow has no equivalent cast."""
    if source == STRING:
        return _of_string(array, target)
    if target == STRING:
        return _to_string(array, source)
    kind = arrow_type(target)
    if target == BOOLEAN:
        return pc.not_equal(array, pa.scalar(0, array.type)), None
    if source == BOOLEAN:
        array, source = array.cast(pa.int8()), BYTE
    if isinstance(target, DecimalType):
        return None if source in FRACTIONAL else arithmetic.fit(arithmetic.wide(array), target)
    if isinstance(source, DecimalType):
        return _of_decimal(array, target)
    if target in INTEGRAL:
        return _to_integer(array, target) if source in FRACTIONAL else _narrow(array, source, target)
    if target in FRACTIONAL:
        return array.cast(kind, safe=False), None
    if target == DATE:
        return floor_divide(array.cast(pa.int64()), DAY).cast(pa.int32()).view(kind), None
    if source == DATE:
        return _midnight(array, kind)
    return array.cast(pa.int64()).cast(kind), None


def _limits(target: DataType) -> tuple[int, int]:
    bits = INTEGRAL[target]
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _outside(array: pa.Array, low: Any, high: Any) -> pa.Array:
    return pc.or_(pc.less(array, low), pc.greater(array, high))


def _narrow(array: pa.Array, source: DataType, target: DataType) -> tuple[pa.Array, pa.Array | None]:
    kind = arrow_type(target)
    if INTEGRAL[source] <= INTEGRAL[target]:
        return array.cast(kind), None
    low, high = (pa.scalar(limit, array.type) for limit in _limits(target))
    return array.cast(kind, safe=False), _outside(array, low, high)


def _to_integer(array: pa.Array, target: DataType) -> tuple[pa.Array, pa.Array]:
    whole = pc.trunc(array.cast(pa.float64()))
    low, high = _limits(target)
    top = float(high)  # for a long this is 2^63, which becomes the largest long
    bad = pc.or_(_outside(whole, float(low), top), pc.is_nan(whole))
    kind = arrow_type(target)
    most = pc.and_(pc.equal(whole, top), target == LONG)
    found = pc.if_else(pc.or_(bad, most), 0.0, whole).cast(kind, safe=False)
    return pc.if_else(most, pa.scalar(high, kind), found), bad


def _of_decimal(array: pa.Array, target: DataType) -> tuple[pa.Array, pa.Array | None]:
    if target in FRACTIONAL:
        # Through its text, so that it is rounded only once.
        return array.cast(pa.string()).cast(arrow_type(DOUBLE)).cast(arrow_type(target), safe=False), None
    whole = pc.round(arithmetic.wide(array), 0, "towards_zero").cast(pa.decimal256(76, 0))
    low, high = (pa.scalar(limit).cast(pa.decimal256(76, 0)) for limit in _limits(target))
    bad = _outside(whole, low, high)
    zero = pa.scalar(0).cast(whole.type)
    return pc.if_else(bad, zero, whole).cast(pa.decimal128(38, 0)).cast(arrow_type(target)), bad


def _midnight(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    days = array.cast(pa.int32()).cast(pa.int64())
    limit = 2**63 // DAY
    bad = _outside(days, -limit, limit - 1)
    return pc.multiply(pc.if_else(bad, 0, days), DAY).cast(kind), bad


def _of_string(array: pa.Array, target: DataType) -> tuple[pa.Array, None] | None:
    kind = arrow_type(target)
    if target == BINARY:
        return array.cast(kind), None
    known = DOUBLE if target == FLOAT else TIMESTAMP_NTZ if target == TIMESTAMP else target
    pattern = _PLAIN.get(known)
    if pattern is None or not pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py():
        return None
    try:
        found = array.cast(arrow_type(known))
    except pa.ArrowInvalid:
        return None
    if target == TIMESTAMP:
        found = found.cast(pa.int64())
    return found.cast(kind, safe=False), None


def _to_string(array: pa.Array, source: DataType) -> tuple[pa.Array, None] | None:
    if source in INTEGRAL or source == BOOLEAN:
        return array.cast(pa.string()), None
    if source == DATE:
        days = array.cast(pa.int32())
        plain = not pc.any(_outside(days, _FIRST // DAY, _LAST // DAY)).as_py()
        return (array.cast(pa.string()), None) if plain else None
    if source in _CLOCKS:
        micros = array.cast(pa.int64())
        if pc.any(_outside(micros, _FIRST, _LAST)).as_py():
            return None
        text = micros.cast(pa.timestamp("us")).cast(pa.string())
        return pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), "."), None
    return None
