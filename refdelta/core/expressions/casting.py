"""Casts of internal values, as Spark's ANSI mode has them: what does not fit is an error. The time zone is UTC."""

from __future__ import annotations

import math
import re
import struct
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from refdelta.core.expressions import partition_values
from refdelta.core.expressions.interval_types import DAY_TIME, DAYS, INTERVALS
from refdelta.core.expressions.partition_values import DAY
from refdelta.core.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT,
    FRACTIONAL,
    INTEGRAL,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    is_nested,
    is_numeric,
)
from refdelta.errors import ExpressionError, PredicateError

_EXACT = Context(prec=400, Emax=999999, Emin=-999999)
_YEAR_OR_MONTH = re.compile(r"(\d{4})(?:-(\d{1,2}))?", re.ASCII)
_TIMES: frozenset[DataType] = frozenset({DATE, TIMESTAMP, TIMESTAMP_NTZ})


def convertible(source: DataType, target: DataType) -> bool:
    """Whether CAST goes from one type to the other at all, here."""
    if source in (target, VOID):
        return True
    if source in INTERVALS or target in INTERVALS:
        return (source, target) == (DAYS, DAY_TIME)
    if is_nested(source) or is_nested(target):
        return False
    if target == STRING:
        # The digits of a float's text are Java's own affair.
        return source not in FRACTIONAL
    if source == STRING:
        return target in _TIMES or target in (BOOLEAN, BINARY) or is_numeric(target)
    if source in _TIMES or target in _TIMES:
        return source in _TIMES and target in _TIMES
    return (is_numeric(source) or source == BOOLEAN) and (is_numeric(target) or target == BOOLEAN)


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
    """An internal value in a wider type, see :class:`refdelta.core.expressions.expression.Cast`."""
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
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*", text, re.ASCII):
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
