"""Columns as Python's values, of which dates and times end at the year 9999, and Delta's do not.

Dates and times of other years become text, with a sign before the year as Spark shows it: ``+10000-01-01``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.table.partition_values import format_date, format_timestamp

_MOST_MS = 2**63 // 1_000 - 1
_DIGITS = 24
_PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


def python_rows(rows: pa.Table | pa.RecordBatch, *, iso: bool = False) -> list[dict[str, Any]]:
    """The rows as mappings; of two columns of one name the last one. Arguments are those of :func:`python_values`."""
    columns = [python_values(column, iso=iso) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)] or [
        {} for _ in range(rows.num_rows)
    ]


def python_values(column: pa.Array | pa.ChunkedArray, *, iso: bool = False) -> list[Any]:
    """The values of a column; of a map with a key twice the last one.

    Args:
        column: any type.
        iso: whether the text of a time is in the form of ISO 8601 (``T`` and ``Z``), for programs.
    """
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError):
        return [_value(scalar, iso) for scalar in column]
    return found


def python_value(scalar: pa.Scalar, *, iso: bool = False) -> Any:
    """One value. Arguments are those of :func:`python_values`."""
    try:
        return scalar.as_py(maps_as_pydicts="lossy")
    except (ValueError, OverflowError):
        return _value(scalar, iso)


def has_far_times(column: pa.Array) -> bool:
    """Whether a column of dates or timestamps has one that Python does not have."""
    if not pa.types.is_timestamp(column.type) and not pa.types.is_date32(column.type):
        return False
    ends = pc.min_max(column)
    return any(isinstance(python_value(one), str) for one in ends.values())


def _value(scalar: pa.Scalar, iso: bool) -> Any:
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.StructScalar():
            return {name: _value(one, iso) for name, one in scalar.items()}
        case pa.MapScalar():
            pairs = ((one["key"], one["value"]) for one in scalar.values)
            return {_value(key, iso): _value(value, iso) for key, value in pairs}
        case pa.ListScalar() | pa.LargeListScalar() | pa.FixedSizeListScalar():
            return [_value(one, iso) for one in scalar.values]
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return far_text(scalar, iso=iso)


def far_text(scalar: pa.Scalar, *, iso: bool = False) -> str:
    """The text of a date or a time of any year. Arguments are those of :func:`python_values`."""
    if pa.types.is_date32(scalar.type):
        return format_date(scalar.value)
    if not pa.types.is_timestamp(scalar.type):
        return str(scalar)
    times, per = _PER_MICROSECOND[scalar.type.unit]
    text = format_timestamp(scalar.value * times // per, zone=False)
    text = text.removesuffix("000000").removesuffix(".")
    zone = "" if scalar.type.tz is None else "Z" if iso else "+00:00"
    return (text.replace(" ", "T") if iso else text) + zone


def time_text(milliseconds: int, digits: int = 0, zone: str = "") -> str:
    """Milliseconds since 1970 (UTC) as date and time, with a sign before years of more than four digits.

    Args:
        milliseconds: any number, since logs hold them; beyond 64 bits of microseconds it is shown as a number, cut to
            24 digits.
        digits: those of a second to show, 0 or 3.
        zone: stands after a time, such as UTC.
    """
    if -_MOST_MS <= milliseconds <= _MOST_MS:
        text = format_timestamp(milliseconds * 1_000, zone=False)
        return f"{text[: -3 if digits else -7]} {zone}".rstrip()
    text = str(milliseconds)
    return f"{text[:_DIGITS]}... ms" if len(text) > _DIGITS else f"{text} ms"
