"""Dates and times that Spark wrote in the hybrid calendar: Julian before 1582-10-15, Gregorian since.

Spark before 3.0, and later versions by a setting, stored the days of that calendar, with a note in the footer;
PROTOCOL.md does not mention it. Everything else in the engine is proleptic Gregorian, so such values are moved: a date
that was written as 1500-01-01 is read as 1500-01-01, which is another day.

A time is moved by its wall clock in the zone of its writer. The zone matters too for times before 1900: old Java used
the standard offset of today for them, while the time zone database has the local mean time of the place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import floor_divide
from refdelta.table.partition_values import DAY, days_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = b"org.apache.spark.version"
_ZONE = b"org.apache.spark.timeZone"
_LEGACY_DATETIME = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"

_SWITCH = days_of(1582, 10, 15)
_UTC_1900 = days_of(1900, 1, 1) * DAY

# Years count from March, so that a leap day is the last of its year; a million years keep all numbers positive.
_SHIFT_YEARS = 1_000_000
_SHIFT_DAYS = _SHIFT_YEARS // 4 * 1461
_YEAR_ZERO = days_of(0, 3, 1) - 2  # the day that the Julian calendar calls 0000-03-01


@dataclass(frozen=True)
class LegacyCalendar:
    """The columns of a file that are in the hybrid calendar.

    Attributes:
        dates: whether its dates are.
        times: whether its timestamps are.
        zone: the time zone of the session that wrote it.
    """

    dates: bool
    times: bool
    zone: str = "UTC"

    def move(self, array: pa.Array) -> pa.Array:
        """Dates, or timestamps in microseconds with time zone, of the file as those of the proleptic calendar."""
        if pa.types.is_date(array.type):
            days = array.cast(pa.int32()).cast(pa.int64())
            return _moved_days(days).cast(pa.int32()).cast(array.type)
        return self._moved_times(array)

    def _moved_times(self, array: pa.Array) -> pa.Array:
        earliest = pc.min(array).cast(pa.int64()).as_py()
        if earliest is None or earliest >= (_SWITCH * DAY if self.zone == "UTC" else _UTC_1900):
            return array
        micros = array.cast(pa.int64())
        local = pc.add(micros, _standard_offset(self.zone))
        days = floor_divide(local, DAY)
        clock = pc.subtract(local, pc.multiply(days, DAY))
        wall = pc.add(pc.multiply(_moved_days(days), DAY), clock).cast(pa.timestamp("us"))
        moved = pc.assume_timezone(wall, self.zone, ambiguous="latest", nonexistent="latest").cast(pa.int64())
        return pc.if_else(pc.less(micros, _UTC_1900), moved, micros).cast(array.type)


def legacy_calendar(footer: Any) -> LegacyCalendar | None:
    """The use of the hybrid calendar in a file; None if it is not used.

    Args:
        footer: the file's ``FileMetaData``.
    """
    notes: Mapping[bytes, bytes] = footer.metadata or {}
    version = re.match(rb"(\d+)\.(\d+)", notes.get(_VERSION, b""))
    if version is None:
        return None
    writer = int(version[1]), int(version[2])
    dates = writer < (3, 0) or _LEGACY_DATETIME in notes
    int96 = writer < (3, 1) or _LEGACY_INT96 in notes
    if not dates and not int96:
        return None
    # All timestamps of a file have one physical type, which is a setting of the session.
    kinds = {footer.schema.column(i).physical_type for i in range(footer.num_columns)}
    times = int96 if "INT96" in kinds else dates
    return LegacyCalendar(dates, times, notes.get(_ZONE, b"UTC").decode("utf-8", "replace")) if dates or times else None


def _moved_days(days: pa.Array) -> pa.Array:
    """Days (int64) since 1970-01-01 of the same year, month and day in the proleptic calendar."""
    since = pc.add(days, _SHIFT_DAYS - _YEAR_ZERO)
    year = pc.divide(pc.add(pc.multiply(since, 4), 3), 1461)
    skipped = pc.subtract(pc.divide(year, 100), pc.divide(year, 400))  # leap days that only the Julian calendar has
    moved = pc.subtract(pc.add(days, 2 + _SHIFT_YEARS // 100 - _SHIFT_YEARS // 400), skipped)
    return pc.if_else(pc.less(days, _SWITCH), moved, days)


def _standard_offset(zone: str) -> int:
    """The zone's offset from UTC without daylight saving, in microseconds.

    Raises:
        ValueError: the zone is unknown.
    """
    if zone == "UTC":
        return 0
    try:
        rules = ZoneInfo(zone)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"its old times are of the time zone {zone!r}, which is not known here") from error
    # The smallest offset of a year is that without daylight saving, on either hemisphere.
    offsets = [datetime(2025, month, 1, tzinfo=UTC).astimezone(rules).utcoffset() for month in range(1, 13)]
    return min(int(offset.total_seconds()) for offset in offsets if offset is not None) * 1_000_000
