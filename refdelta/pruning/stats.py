"""Statistics of a data file (PROTOCOL.md, "Per-file Statistics"), and how long strings are shortened in them.

Bounds stay bounds when strings are shortened. Strings are compared by their UTF-8 bytes, which is the order of code
points and so Python's own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from refdelta.expressions.casting import to_fraction
from refdelta.table import partition_values
from refdelta.table.types import (
    BOOLEAN,
    DATE,
    FRACTIONAL,
    INTEGRAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)

STRING_PREFIX = 32
"""How many characters of a string the bounds keep by default, as in delta-spark."""

_ASCII_MAX = "\x7f"
_UNICODE_MAX = "\U0010ffff"


def truncate_min(value: str, n: int = STRING_PREFIX) -> str:
    """A lower bound of ``value`` of at most ``n`` characters: its prefix."""
    return value[:n]


def truncate_max(value: str, n: int = STRING_PREFIX) -> str | None:
    """An upper bound of ``value``, short where that is possible.

    A prefix is followed by a character that is larger than the one it replaces. Where that one is itself the largest
    there is, the prefix grows, up to ``2 * n`` characters.

    Returns:
        The bound, or None where none is short enough: then the file has no maximum for the column.
    """
    if len(value) <= n:
        return value
    for length in range(n, min(2 * n, len(value) - 1) + 1):
        if value[length] != _UNICODE_MAX:
            return value[:length] + (_ASCII_MAX if value[length] < _ASCII_MAX else _UNICODE_MAX)
    return value if len(value) <= 2 * n else None


# --- values ------------------------------------------------------------------------------------------------------


class _TwiceError(ValueError):
    """A duplicate key, which makes the value ambiguous."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


_JSON = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_object)


def load_stats(text: str | None) -> Any:
    """The JSON of ``add.stats``, its fractions as exact decimals; None for what is no JSON, or has a key twice."""
    try:
        return None if text is None else _JSON.decode(text)
    except (ValueError, ArithmeticError, RecursionError):  # an exponent that no decimal has is the second
        return None


def lookup(stats: Any, path: Sequence[str]) -> Any:
    """The value at a path of keys, or None."""
    for name in path:
        if not isinstance(stats, dict):
            return None
        stats = stats.get(name)
    return stats


def statistic(value: Any, data_type: DataType) -> Any:
    """A value of :func:`load_stats` as an internal value of a type; None for what is odd."""
    try:
        return _of_json(value, data_type)
    except (ValueError, OverflowError, ArithmeticError):
        return None


_NUMBERS = (int, Decimal, float)


def _of_json(value: Any, data_type: DataType) -> Any:
    number = isinstance(value, _NUMBERS) and not isinstance(value, bool)
    bits = INTEGRAL.get(data_type)
    if bits is not None:
        return value if number and isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1 else None
    if data_type in FRACTIONAL:
        found = float(value) if number else partition_values.parse_float(value) if isinstance(value, str) else None
        return None if found is None else to_fraction(found, data_type)
    if isinstance(data_type, DecimalType):
        usable = number or isinstance(value, str)
        return partition_values.parse_decimal(str(value), data_type) if usable else None
    if data_type == BOOLEAN:
        return value if isinstance(value, bool) else None
    if not isinstance(value, str):
        return None
    if data_type == STRING:
        value.encode()  # fails for half of a surrogate pair, which is no character
        return value
    if data_type == DATE:
        return partition_values.parse_date(value)
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return partition_values.parse_timestamp(value, zone=data_type == TIMESTAMP)
    return None
