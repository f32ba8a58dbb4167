"""Casts of values that are written to a table: a value is stored in the column's type without loss, or not at all.

A value fits if a cast back gives the same value. For strings: if it is a literal of the type with no more digits than
the type keeps. The time zone is UTC.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np

from refdelta.core.expressions import partition_values
from refdelta.core.expressions.casting import to_fraction, to_micros, to_text
from refdelta.core.expressions.partition_values import DAY
from refdelta.core.table.evolution import may_fit
from refdelta.core.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT,
    FRACTIONAL,
    INTEGRAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)
from refdelta.errors import DeltaError, ExpressionError, InternalError

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE_DATE = re.compile(r"[+-]?\d{4,6}-\d{1,2}-\d{1,2}", re.ASCII)
_LOST_DIGITS = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)


def fitted_value(value: Any, source: DataType, target: DataType) -> Any:
    """An internal value in another type, for which :func:`refdelta.core.table.evolution.may_fit` is true.

    Raises:
        ExpressionError: the type has no such value.
    """
    if value is None or source == target:
        return value
    if not may_fit(source, target):
        raise InternalError(f"no {source} fits into {target}")
    try:
        return _of_string(value, target) if source == STRING else _fitted(value, source, target)
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


def _of_string(text: str, target: DataType) -> Any:
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
        found = partition_values.parse_timestamp(text, zone=target == TIMESTAMP)
        return _checked(found, target == TIMESTAMP or not text.upper().endswith(("Z", "UTC", "GMT")))
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
