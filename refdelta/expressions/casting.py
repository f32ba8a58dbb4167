"""Casts of internal values and of columns, as Spark's ANSI mode has them: what does not fit is an error.

The casts of values are the definition. Arrow is used where its casts are the same; other values of a column are cast by
the definition, once for each distinct value. The time zone is UTC.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import floor_divide
from refdelta.arrow.partition import from_internal, to_internal
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions.interval_types import DAY_TIME, DAYS, INTERVALS
from refdelta.table import partition_values
from refdelta.table.collation import has_collation
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
    is_numeric,
)

_EXACT = Context(prec=400, Emax=999999, Emin=-999999)
_YEAR_OR_MONTH = re.compile(r"(\d{4})(?:-(\d{1,2}))?", re.ASCII)
_TIMES: frozenset[DataType] = frozenset({DATE, TIMESTAMP, TIMESTAMP_NTZ})
_PLAIN_TYPES: frozenset[DataType] = _TIMES | {BOOLEAN, STRING, BINARY}


def convertible(source: DataType, target: DataType) -> bool:
    """Whether CAST goes from one type to the other at all, here."""
    if source in (target, VOID):
        return True
    if source in INTERVALS or target in INTERVALS:
        return (source, target) == (DAYS, DAY_TIME)
    if not (_is_plain(source) and _is_plain(target)):
        return False
    if target == STRING:
        # The digits of a float's text are Java's own affair.
        return source not in FRACTIONAL
    if source == STRING:
        return target in _TIMES or target in (BOOLEAN, BINARY) or is_numeric(target)
    if source in _TIMES or target in _TIMES:
        return source in _TIMES and target in _TIMES
    return (is_numeric(source) or source == BOOLEAN) and (is_numeric(target) or target == BOOLEAN)


def _is_plain(data_type: DataType) -> bool:
    return is_numeric(data_type) or data_type in _PLAIN_TYPES or has_collation(data_type)


def convert_value(value: Any, source: DataType, target: DataType, *, lenient: bool = False) -> Any:
    """CAST, or TRY_CAST where ``lenient``; the pair is :func:`convertible`.

    Raises:
        ExpressionError: the value is none of the target type.
    """
    if value is None or source == target:
        return value
    try:
        return _converted(value, source, target)
    except (ValueError, OverflowError, ExpressionError) as error:
        if lenient:
            return None
        shown = repr(value) if source == STRING else to_text(value, source)
        raise ExpressionError(f"cannot cast {shown} to {target}: {error}") from None


def _converted(value: Any, source: DataType, target: DataType) -> Any:
    if source in INTERVALS:
        return value
    if source == STRING:
        return _of_string(value, target)
    if target == STRING:
        return to_text(value, source)
    if target == BOOLEAN:
        return value != 0
    if source == BOOLEAN:
        value, source = int(value), LONG
    if target in INTEGRAL:
        return to_integer(value, INTEGRAL[target])
    if isinstance(target, DecimalType):
        if isinstance(value, float):
            # By its shortest text, as Spark takes a double; what is no number is null.
            return to_decimal(Decimal(repr(value)), target) if math.isfinite(value) else None
        return to_decimal(Decimal(value), target)
    if target in FRACTIONAL:
        return to_fraction(value, target)
    if target == DATE:
        return value // DAY
    return to_micros(value * DAY) if source == DATE else value


def widen(value: Any, source: DataType, target: DataType) -> Any:
    """An internal value in a wider type, see :class:`refdelta.expressions.expression.Cast`."""
    if value is None or source == target:
        return value
    if target in FRACTIONAL:
        return to_fraction(value, target)
    if isinstance(target, DecimalType):
        return Decimal(value)
    if source == DATE and target in (TIMESTAMP, TIMESTAMP_NTZ):
        return value * DAY
    return value


# --- numbers -----------------------------------------------------------------------------------------------------


def to_integer(value: Any, bits: int) -> int:
    """A number without its fraction.

    Raises:
        ExpressionError: it does not fit.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ExpressionError("it is not finite")
    whole = int(value)
    if isinstance(value, float) and whole == 1 << 63 and bits == 64:
        return (1 << 63) - 1  # the largest long is this double, for Java
    if not -(1 << bits - 1) <= whole < 1 << bits - 1:
        raise ExpressionError(f"it does not fit into {bits} bits")
    return whole


def to_decimal(value: Decimal, target: DecimalType) -> Decimal:
    """A number rounded half up to a decimal's scale.

    Raises:
        ExpressionError: it has too many digits before the point.
    """
    rounded = round_decimal(value, target.scale)
    if abs(int(rounded.scaleb(target.scale, _EXACT))) >= 10**target.precision:
        raise ExpressionError(f"it does not fit into {target}")
    return rounded


def round_decimal(value: Decimal, scale: int) -> Decimal:
    """A number with ``scale`` digits after the decimal point, rounded half away from zero; exact for any size."""
    return value.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, _EXACT)


def to_fraction(value: Any, target: DataType) -> float:
    """The nearest float or double; what is beyond a float is infinite."""
    found = float(value)
    if target == FLOAT and math.isfinite(found):
        try:
            return float(struct.unpack("f", struct.pack("f", found))[0])
        except OverflowError:
            return math.copysign(math.inf, found)
    return found


def to_micros(value: int) -> int:
    """A timestamp.

    Raises:
        ExpressionError: it is beyond 64 bits.
    """
    if not -(2**63) <= value < 2**63:
        raise ExpressionError("no timestamp reaches it")
    return value


# --- strings -----------------------------------------------------------------------------------------------------


def to_text(value: Any, source: DataType) -> str:
    """A value as CAST AS STRING writes it."""
    if source == BOOLEAN:
        return "true" if value else "false"
    if source == DATE:
        return partition_values.format_date(value)
    if source in (TIMESTAMP, TIMESTAMP_NTZ):
        return partition_values.format_timestamp(value, zone=False).rstrip("0").rstrip(".")
    if isinstance(source, DecimalType):
        return f"{value:f}"
    if source == BINARY:
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise ExpressionError("the bytes are not UTF-8") from None
    return str(value)


def _of_string(text: str, target: DataType) -> Any:
    if isinstance(target, DecimalType):
        return to_decimal(_number(text), target)
    if target in _TIMES:
        return _moment(text, target)
    if target == BINARY:
        return text.encode()
    return to_fraction(partition_values.parse_float(text), target) if target in FRACTIONAL else _plain(text, target)


def _plain(text: str, target: DataType) -> Any:
    return partition_values.parse_value(text, target)


def _number(text: str) -> Decimal:
    if not re.fullmatch(r"\s*[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\s*", text, re.ASCII):
        raise PredicateError(f"{text!r} is not a number")
    return Decimal(text.strip())


def _moment(text: str, target: DataType) -> int:
    short = _YEAR_OR_MONTH.fullmatch(text.strip())
    body = f"{short[1]}-{short[2] or '01'}-01" if short else text.strip()
    if target == DATE:
        # Spark lets a time follow, and ignores it.
        return partition_values.parse_date(re.split(r"[ T]", body, maxsplit=1)[0])
    return partition_values.parse_timestamp(body, zone=target == TIMESTAMP)


def cast_literal(value: Any, source: DataType, target: DataType) -> Any:
    """CAST of a constant.

    Raises:
        PredicateError: the value is none of the target type, or there is no such cast.
    """
    if not convertible(source, target):
        if source in FRACTIONAL and target == STRING:
            raise PredicateError(f"cannot cast a literal of type {source} to string: write the string")
        raise PredicateError(f"cannot cast a literal of type {source} to {target}")
    try:
        return convert_value(value, source, target)
    except ExpressionError as error:
        raise PredicateError(str(error)) from None


def cast_string(text: str, target: DataType) -> Any:
    """The internal value of a string literal in another type, as Spark's ANSI mode reads it.

    Raises:
        PredicateError: the string is no value of the type.
    """
    return cast_literal(text, STRING, target)


# --- columns -----------------------------------------------------------------------------------------------------

WIDEST = 76
"""The digits of Arrow's widest decimals, of 256 bits."""

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


def convert_column(array: pa.Array, source: DataType, target: DataType, *, lenient: bool = False) -> pa.Array:
    """CAST, or TRY_CAST where ``lenient``.

    Raises:
        ExpressionError: a value has no equivalent of the target type; the message shows the first.
    """
    if source == VOID:
        return pa.nulls(len(array), arrow_type(target))
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
        return _strings_to(array, target)
    if target == STRING:
        return _strings_of(array, source)
    kind = arrow_type(target)
    if target == BOOLEAN:
        return pc.not_equal(array, pa.scalar(0, array.type)), None
    if source == BOOLEAN:
        array, source = array.cast(pa.int8()), BYTE
    if isinstance(target, DecimalType):
        return None if source in FRACTIONAL else decimal_column(wide(array), target)
    if isinstance(source, DecimalType):
        return _of_decimal(array, target)
    if target in INTEGRAL:
        return _whole_numbers(array, target) if source in FRACTIONAL else _narrow(array, source, target)
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


def _whole_numbers(array: pa.Array, target: DataType) -> tuple[pa.Array, pa.Array]:
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
    whole = pc.round(wide(array), 0, "towards_zero").cast(pa.decimal256(76, 0))
    low, high = (pa.scalar(limit).cast(pa.decimal256(76, 0)) for limit in _limits(target))
    bad = _outside(whole, low, high)
    zero = pa.scalar(0).cast(whole.type)
    return pc.if_else(bad, zero, whole).cast(pa.decimal128(38, 0)).cast(arrow_type(target)), bad


def _midnight(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    days = array.cast(pa.int32()).cast(pa.int64())
    limit = 2**63 // DAY
    bad = _outside(days, -limit, limit - 1)
    return pc.multiply(pc.if_else(bad, 0, days), DAY).cast(kind), bad


def _strings_to(array: pa.Array, target: DataType) -> tuple[pa.Array, None] | None:
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


def _strings_of(array: pa.Array, source: DataType) -> tuple[pa.Array, None] | None:
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


def wide(array: Any) -> pa.Array:
    """Integers or decimals as decimals of 256 bits with the same scale."""
    if pa.types.is_decimal(array.type):
        return array.cast(pa.decimal256(WIDEST, array.type.scale))
    return array.cast(pa.int64()).cast(pa.decimal256(19, 0)).cast(pa.decimal256(WIDEST, 0))


def decimal_column(array: pa.Array, target: DecimalType) -> tuple[pa.Array, pa.Array]:
    """Wide decimals in the type of a column, rounded half away from zero; and a mask of those that do not fit."""
    scale = array.type.scale
    if scale > target.scale:
        array = pc.round(array, target.scale, "half_towards_infinity")
    whole = target.precision - target.scale
    if whole + scale >= WIDEST:
        bad = pc.and_(array.is_valid(), False)
    else:
        bad = pc.greater_equal(pc.abs(array), pa.scalar(Decimal(10**whole), pa.decimal256(WIDEST, scale)))
    sound = pc.if_else(bad, pa.scalar(Decimal(0), array.type), array)
    return sound.cast(pa.decimal256(WIDEST, target.scale)).cast(pa.decimal128(target.precision, target.scale)), bad
