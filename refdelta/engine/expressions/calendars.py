"""Dates as columns: the twin of :mod:`refdelta.core.expressions.calendar_math`, which is the definition.

Arrow's own calendar ends at the year 32767, dates do not; so this is arithmetic on days since 1970-01-01 (int64), by
eras of 400 years that begin on the first of March.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.calendar_math import CLOCK
from refdelta.core.expressions.partition_values import DAY
from refdelta.engine.arrow.arrays import floor_divide, modulo

_ERA = 146_097  # days in 400 years
_SHIFT = 719_468  # from 0000-03-01 to 1970-01-01


def civil(days: Any) -> tuple[Any, Any, Any]:
    """Year, month and day."""
    shifted = pc.add(days, _SHIFT)
    era, of_era = floor_divide(shifted, _ERA), modulo(shifted, _ERA)
    # Days to years: less the leap days of 4, 100 and 400 years.
    leaps = pc.add(
        pc.subtract(pc.divide(of_era, 1460), pc.divide(of_era, 36_524)),
        pc.divide(of_era, 146_096),
    )
    year = pc.divide(pc.subtract(of_era, leaps), 365)
    in_year = pc.subtract(of_era, _days_of_years(year))
    shifted_month = pc.divide(pc.add(pc.multiply(in_year, 5), 2), 153)
    day = pc.add(pc.subtract(in_year, _days_of_months(shifted_month)), 1)
    late = pc.greater_equal(shifted_month, 10)
    month = pc.subtract(pc.add(shifted_month, 3), pc.multiply(late.cast(pa.int64()), 12))
    return pc.add(pc.add(year, pc.multiply(era, 400)), late.cast(pa.int64())), month, day


def days_of(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01 of a year, a month from 1 to 12, and a day."""
    early = pc.less_equal(month, 2).cast(pa.int64())
    year = pc.subtract(year, early)
    era, of_era = floor_divide(year, 400), modulo(year, 400)
    months = pc.add(pc.subtract(month, 3), pc.multiply(early, 12))
    in_year = pc.add(_days_of_months(months), pc.subtract(day, 1))
    found = pc.add(pc.add(_days_of_years(of_era), in_year), pc.multiply(era, _ERA))
    return pc.subtract(found, _SHIFT)


def _days_of_years(years: Any) -> Any:
    leaps = pc.subtract(pc.divide(years, 4), pc.divide(years, 100))
    return pc.add(pc.multiply(years, 365), leaps)


def _days_of_months(months: Any) -> Any:
    return pc.divide(pc.add(pc.multiply(months, 153), 2), 5)


def month_index(days: Any) -> Any:
    """Months since January of the year 0."""
    year, month, _ = civil(days)
    return pc.add(pc.multiply(year, 12), pc.subtract(month, 1))


def first_of_month(index: Any) -> Any:
    """The first day of a month as :func:`month_index` counts it."""
    return days_of(floor_divide(index, 12), pc.add(modulo(index, 12), 1), 1)


def dayofyear(days: Any) -> Any:
    """1 to 366."""
    year, _, _ = civil(days)
    return pc.add(pc.subtract(days, days_of(year, pc.add(pc.multiply(year, 0), 1), 1)), 1)


def weekday(days: Any) -> Any:
    """0 for Monday."""
    return modulo(pc.add(days, 3), 7)


def weekofyear(days: Any) -> Any:
    """The ISO week: that of its Thursday."""
    thursday = pc.add(pc.subtract(days, weekday(days)), 3)
    return pc.add(pc.divide(pc.subtract(dayofyear(thursday), 1), 7), 1)


def last_day(days: Any) -> Any:
    """The last day of a date's month."""
    return pc.subtract(first_of_month(pc.add(month_index(days), 1)), 1)


def add_months(days: Any, count: Any) -> Any:
    """The same day so many months later, or the last of that month."""
    index = pc.add(month_index(days), count)
    first = first_of_month(index)
    length = pc.subtract(first_of_month(pc.add(index, 1)), first)
    _, _, day = civil(days)
    return pc.add(first, pc.subtract(pc.min_element_wise(day, length, skip_nulls=False), 1))


def trunc(days: Any, unit: str) -> Any:
    """The first day of the year, quarter, month or week."""
    if unit == "week":
        return pc.subtract(days, weekday(days))
    months = {"year": 12, "quarter": 3, "month": 1}[unit]
    return first_of_month(pc.multiply(floor_divide(month_index(days), months), months))


def date_trunc(micros: Any, unit: str) -> Any:
    """The beginning of the unit that a time lies in."""
    if unit in CLOCK:
        return pc.multiply_checked(floor_divide(micros, CLOCK[unit]), CLOCK[unit])
    return pc.multiply_checked(trunc(floor_divide(micros, DAY), unit), DAY)
