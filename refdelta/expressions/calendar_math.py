"""Parts and shifts of dates and times, which are integers; and the same for columns. The time zone is UTC.

The functions of numpy arrays have names in ``_array``. numpy has the proleptic Gregorian calendar for all years, Arrow
only for those up to 32767.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import floor_divide
from refdelta.errors import ExpressionError
from refdelta.expressions.columnar import Numbers, over_integers
from refdelta.table.partition_values import DAY, date_of, days_of

Days = TypeVar("Days", int, Numbers)
"""A number of days since 1970-01-01, or an array of such numbers."""

_EPOCH = 1970 * 12  # months

UNITS = {
    "year": "year",
    "yyyy": "year",
    "yy": "year",
    "quarter": "quarter",
    "month": "month",
    "mm": "month",
    "mon": "month",
    "week": "week",
    "day": "day",
    "dd": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "millisecond": "millisecond",
    "microsecond": "microsecond",
}
"""The units of date_trunc, by their names."""

CLOCK = {
    "day": DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
"""Units of one length, in microseconds."""


def year(days: int) -> int:
    """The year of a date."""
    return date_of(days)[0]


def month(days: int) -> int:
    """1 to 12."""
    return date_of(days)[1]


def day(days: int) -> int:
    """1 to 31."""
    return date_of(days)[2]


def quarter(days: int) -> int:
    """1 to 4."""
    return (month(days) + 2) // 3


def weekday(days: Days) -> Days:
    """0 for Monday."""
    return (days + 3) % 7


def dayofweek(days: Days) -> Days:
    """1 for Sunday."""
    return (days + 4) % 7 + 1


def dayofyear(days: int) -> int:
    """1 to 366."""
    return days - days_of(year(days), 1, 1) + 1


def weekofyear(days: int) -> int:
    """The ISO week: that of its Thursday."""
    return (dayofyear(days - weekday(days) + 3) - 1) // 7 + 1


def add_days(days: int, count: int) -> int:
    """A date so many days later.

    Raises:
        ExpressionError: no date is that far.
    """
    found = days + count
    if not -(2**31) <= found < 2**31:
        raise ExpressionError(f"no date is {count} days from it")
    return found


def add_months(days: int, count: int) -> int:
    """The same day so many months later, or the last of that month.

    Raises:
        ExpressionError: no date is that far.
    """
    y, m, d = date_of(days)
    later, zero = divmod(y * 12 + m - 1 + count, 12)
    return add_days(days_of(later, zero + 1, min(d, _length(later, zero + 1))), 0)


def last_day(days: int) -> int:
    """The last day of a date's month."""
    y, m, _ = date_of(days)
    return days_of(y, m, _length(y, m))


def _length(y: int, m: int) -> int:
    return days_of(y + m // 12, m % 12 + 1, 1) - days_of(y, m, 1)


def trunc(days: int, unit: str) -> int:
    """The first day of the year, quarter, month or week."""
    y, m, _ = date_of(days)
    match unit:
        case "year":
            return days_of(y, 1, 1)
        case "quarter":
            return days_of(y, (m - 1) // 3 * 3 + 1, 1)
        case "month":
            return days_of(y, m, 1)
    return days - weekday(days)


def date_trunc(micros: int, unit: str) -> int:
    """The beginning of the unit that a time lies in.

    Raises:
        ExpressionError: it is before the first timestamp that there is.
    """
    found = micros // CLOCK[unit] * CLOCK[unit] if unit in CLOCK else trunc(micros // DAY, unit) * DAY
    if found < -(2**63):
        raise ExpressionError(f"the {unit} in which the timestamp lies begins before all timestamps")
    return found


# --- columns -----------------------------------------------------------------------------------------------------


def month_index(days: Numbers) -> Numbers:
    """Months since January of the year 0."""
    return days.view("M8[D]").astype("M8[M]").view(np.int64) + _EPOCH


def first_of_month(index: Numbers) -> Numbers:
    """The first day of a month; the inverse of :func:`month_index`."""
    return (index - _EPOCH).view("M8[M]").astype("M8[D]").view(np.int64)


def year_array(days: Numbers) -> Numbers:
    """The year."""
    return month_index(days) // 12


def quarter_array(days: Numbers) -> Numbers:
    """1 to 4."""
    return month_index(days) % 12 // 3 + 1


def month_array(days: Numbers) -> Numbers:
    """1 to 12."""
    return month_index(days) % 12 + 1


def day_array(days: Numbers) -> Numbers:
    """1 to 31."""
    return days - first_of_month(month_index(days)) + 1


def dayofyear_array(days: Numbers) -> Numbers:
    """1 to 366."""
    return days - trunc_array(days, "year") + 1


def weekofyear_array(days: Numbers) -> Numbers:
    """The ISO week: that of its Thursday."""
    return (dayofyear_array(days - weekday(days) + 3) - 1) // 7 + 1


def last_day_array(days: Numbers) -> Numbers:
    """The last day of the month."""
    return first_of_month(month_index(days) + 1) - 1


def add_months_array(days: Numbers, count: Numbers) -> Numbers:
    """The same day ``count`` months later, or the last day of that month if it is shorter."""
    index = month_index(days)
    first = first_of_month(index + count)
    found: Numbers = np.minimum(first + days - first_of_month(index), first_of_month(index + count + 1) - 1)
    return found


def trunc_array(days: Numbers, unit: str) -> Numbers:
    """The first day of the year, quarter, month or week."""
    if unit == "week":
        return days - weekday(days)
    months = {"year": 12, "quarter": 3, "month": 1}[unit]
    return first_of_month(month_index(days) // months * months)


def date_trunc_column(micros: pa.Array, unit: str) -> pa.Array:
    """The beginning of the unit in which a time lies. Raises ``ArrowInvalid`` if that is before all timestamps."""
    if unit in CLOCK:
        return pc.multiply_checked(floor_divide(micros, CLOCK[unit]), CLOCK[unit])
    return pc.multiply_checked(over_integers(lambda days: trunc_array(days, unit), floor_divide(micros, DAY)), DAY)
