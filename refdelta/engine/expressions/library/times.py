"""Functions of dates, times and intervals over columns: the twin of :mod:`refdelta.core.expressions.library.times`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.expression import Call
from refdelta.core.expressions.interval_types import DAYS, YEAR_MONTH
from refdelta.core.expressions.library.times import HOUR, MINUTE, SECOND, weekday_named
from refdelta.core.expressions.partition_values import DAY
from refdelta.core.expressions.time_format import MONTHS, SHORT, WEEKDAYS
from refdelta.core.table.types import DATE
from refdelta.engine.arrow.arrays import floor_divide, modulo
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions import calendars
from refdelta.engine.expressions.columnar import (
    Columnar,
    all_valid,
    by_value_with_constants,
    constant,
    dated,
    days,
    text,
)


def _of_date(function: Callable[[Any], Any]) -> Columnar:
    return lambda node, array: dated(node, calendars.over_integers(function, days(array)))


def _named(function: Callable[[Any], Any], names: Sequence[str]) -> Columnar:
    # pa.array imports pandas where it is installed: not while this module is loaded.
    def named(_: Call, array: pa.Array) -> pa.Array:
        return pa.array([name[:SHORT] for name in names]).take(calendars.over_integers(function, days(array)))

    return named


def _seconds(node: Call, array: pa.Array) -> pa.Array:
    micros = modulo(array.cast(pa.int64()), MINUTE)
    wide = micros.cast(pa.decimal128(19, 0)).cast(pa.decimal128(38, 6))
    return pc.multiply(pa.array(wide).cast(pa.decimal128(26, 6)), pa.scalar(Decimal("0.000001"))).cast(
        arrow_type(node.type)
    )


def _next_day(array: pa.Array, node: Call) -> pa.Array:
    wanted = weekday_named(constant(node, 1))
    return dated(node, calendars.over_integers(lambda n: n + (wanted - calendars.weekday(n) - 1) % 7 + 1, days(array)))


def _months_between(node: Call, one: pa.Array, other: pa.Array, _: pa.Array) -> pa.Array:
    def between(a: Any, b: Any) -> Any:
        d1, d2 = a // DAY, b // DAY
        m1, m2 = calendars.month_index(d1), calendars.month_index(d2)
        day1, day2 = d1 - calendars.first_of_month(m1), d2 - calendars.first_of_month(m2)
        whole = (day1 == day2) | ((calendars.last_day(d1) == d1) & (calendars.last_day(d2) == d2))
        seconds = (day1 - day2) * 86_400 + a % DAY // SECOND - b % DAY // SECOND
        found = np.where(whole, (m1 - m2).astype(np.float64), (m1 - m2) + seconds / 2_678_400.0)
        if constant(node, 2):
            found = np.where(whole, found, np.floor(found * 1e8 + 0.5) / 1e8)
        return found.view(np.int64)

    return calendars.over_integers(between, one.cast(pa.int64()), other.cast(pa.int64())).view(pa.float64())


def _bad(mask: Any) -> None:
    if np.any(mask):
        raise pa.ArrowInvalid("a field is out of its range")


def _make_date(node: Call, *columns: pa.Array) -> pa.Array:
    valid = all_valid(columns)
    # Values beside a null are no date either, and no error.
    filled = [pc.if_else(valid, column.cast(pa.int64()), 1) for column in columns]

    def made(year: Any, month: Any, day: Any) -> Any:
        _bad((month < 1) | (month > 12) | (np.abs(year) > 999_999_999))
        index = year * 12 + month - 1
        first = calendars.first_of_month(index)
        _bad((day < 1) | (day > calendars.first_of_month(index + 1) - first))
        return first + day - 1

    found = calendars.over_integers(made, *filled)
    return dated(node, pc.if_else(valid, found, pa.scalar(None, pa.int64())))


def _micros(seconds: pa.Array) -> pa.Array:
    """Decimals of seconds, of a scale of 6, as microseconds."""
    wide = pc.multiply(seconds.cast(pa.decimal128(26, 6)), pa.scalar(Decimal(1_000_000)))
    return wide.cast(pa.decimal128(38, 0), safe=False).cast(pa.int64())


def _make_timestamp(node: Call, *columns: pa.Array) -> pa.Array:
    valid = all_valid(columns)
    dates = _make_date(
        Call("make_date", (), DATE), *(pc.if_else(valid, c, pa.scalar(None, c.type)) for c in columns[:3])
    )
    hours, minutes = (pc.if_else(valid, column.cast(pa.int64()), 0) for column in columns[3:5])
    micros = pc.if_else(valid, _micros(columns[5]), 0)

    def clock(hour: Any, minute: Any, micro: Any) -> Any:
        _bad((hour < 0) | (hour > 23) | (minute < 0) | (minute > 59) | (micro < 0) | (micro > MINUTE))
        return hour * HOUR + minute * MINUTE + micro

    start = pc.multiply_checked(days(dates), DAY)
    return pc.add_checked(start, calendars.over_integers(clock, hours, minutes, micros)).cast(arrow_type(node.type))


def _moved(sign: int) -> Columnar:
    def moved(node: Call, array: pa.Array, interval: pa.Array) -> pa.Array:
        by = pc.multiply_checked(interval, sign) if sign < 0 else interval
        if node.args[1].type == YEAR_MONTH:
            start = days(array) if node.type == DATE else floor_divide(array.cast(pa.int64()), DAY)
            found = calendars.over_integers(calendars.add_months, start, by)
            if node.type == DATE:
                return dated(node, found)
            found.cast(pa.int32())  # as a date, it has to exist
            rest = modulo(array.cast(pa.int64()), DAY)
            return pc.add_checked(pc.multiply_checked(found, DAY), rest).cast(arrow_type(node.type))
        if node.type == DATE:
            return dated(node, pc.add_checked(days(array), floor_divide(by, DAY)))
        return pc.add_checked(array.cast(pa.int64()), by).cast(arrow_type(node.type))

    return moved


def _apart(node: Call, one: pa.Array, other: pa.Array) -> pa.Array:
    if node.type == DAYS:
        return pc.multiply_checked(pc.subtract(days(one), days(other)), DAY)
    return pc.subtract_checked(one.cast(pa.int64()), other.cast(pa.int64()))


def _limited(function: Columnar) -> Columnar:
    def limited(node: Call, *arrays: pa.Array) -> pa.Array:
        found = function(*arrays)
        if node.type == YEAR_MONTH:
            found.cast(pa.int32())  # raises ArrowInvalid for what does not fit
        return found

    return limited


def _make_day_time(_: Call, *columns: pa.Array) -> pa.Array:
    found = _micros(columns[3])
    for column, size in zip(columns[:3], (DAY, HOUR, MINUTE), strict=True):
        found = pc.add_checked(found, pc.multiply_checked(column.cast(pa.int64()), size))
    return found


def _make_months(years: pa.Array, months: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(years.cast(pa.int64()), 12), months.cast(pa.int64()))


TIMES: dict[str, Columnar] = {
    "yearofweek": _of_date(lambda n: calendars.year(n - calendars.weekday(n) + 3)),
    "dayofweek_iso": _of_date(lambda n: calendars.weekday(n) + 1),
    "seconds": _seconds,
    "dayname": _named(calendars.weekday, WEEKDAYS),
    "monthname": _named(lambda n: calendars.month(n) - 1, MONTHS),
    "next_day": text(_next_day),
    "months_between": _months_between,
    "unix_date": lambda _, array: array.cast(pa.int32()),
    "date_from_unix_date": lambda _, array: array.cast(pa.date32()),
    "timestamp_seconds": lambda node, array: pc.multiply_checked(array, SECOND).cast(arrow_type(node.type)),
    "make_date": _make_date,
    "make_timestamp": _make_timestamp,
    "make_timestamp_ntz": _make_timestamp,
    "to_date": by_value_with_constants,
    "try_to_date": by_value_with_constants,
    "to_timestamp": by_value_with_constants,
    "try_to_timestamp": by_value_with_constants,
    "to_unix_timestamp": by_value_with_constants,
    "make_dt_interval": _make_day_time,
    "make_ym_interval": _limited(_make_months),
    "moved": _moved(1),
    "moved back": _moved(-1),
    "apart": _apart,
    "interval plus": _limited(pc.add_checked),
    "interval minus": _limited(pc.subtract_checked),
    "interval times": _limited(pc.multiply_checked),
}
