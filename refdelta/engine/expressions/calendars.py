"""Dates and times as columns: the twin of :mod:`refdelta.core.expressions.calendar_math` and
:mod:`refdelta.core.expressions.time_format`, which are the definitions.

Functions of dates take and return numpy arrays of 64-bit integers; :func:`over_integers` applies one to columns. numpy
has the proleptic Gregorian calendar for all years, Arrow only for those up to 32767.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions.calendar_math import CLOCK
from refdelta.core.expressions.partition_values import DAY
from refdelta.core.expressions.time_format import CLOCK_FIELDS, PatternPart, field_text, parts_of
from refdelta.engine.arrow.arrays import floor_divide, modulo

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_EPOCH = 1970 * 12  # months


def over_integers(function: Callable[..., Numbers], *columns: pa.Array) -> pa.Array:
    """A numpy function of columns of 64-bit integers, which have the same length; null where one of them is null."""
    rows = len(columns[0])
    if not rows:
        return pa.nulls(0, pa.int64())
    found = np.ascontiguousarray(function(*map(_numbers, columns)))
    result = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(found)])
    for column in columns:
        result = pc.if_else(column.is_valid(), result, None) if column.null_count else result
    return result


def _numbers(column: pa.Array) -> Numbers:
    # Arrow's own conversion would import pandas.
    filled = column if not column.null_count else pc.fill_null(column, 0)
    data = filled.buffers()[1]
    return np.frombuffer(data, np.int64)[filled.offset : filled.offset + len(filled)]


# --- functions of days since 1970-01-01 --------------------------------------------------------------------------


def month_index(days: Numbers) -> Numbers:
    """Months since January of the year 0."""
    return days.view("M8[D]").astype("M8[M]").view(np.int64) + _EPOCH


def first_of_month(index: Numbers) -> Numbers:
    """The first day of a month; the inverse of :func:`month_index`."""
    return (index - _EPOCH).view("M8[M]").astype("M8[D]").view(np.int64)


def year(days: Numbers) -> Numbers:
    """The year."""
    return month_index(days) // 12


def quarter(days: Numbers) -> Numbers:
    """1 to 4."""
    return month_index(days) % 12 // 3 + 1


def month(days: Numbers) -> Numbers:
    """1 to 12."""
    return month_index(days) % 12 + 1


def day(days: Numbers) -> Numbers:
    """1 to 31."""
    return days - first_of_month(month_index(days)) + 1


def dayofyear(days: Numbers) -> Numbers:
    """1 to 366."""
    return days - trunc(days, "year") + 1


def dayofweek(days: Numbers) -> Numbers:
    """1 for Sunday."""
    return (days + 4) % 7 + 1


def weekday(days: Numbers) -> Numbers:
    """0 for Monday."""
    return (days + 3) % 7


def weekofyear(days: Numbers) -> Numbers:
    """The ISO week: that of its Thursday."""
    return (dayofyear(days - weekday(days) + 3) - 1) // 7 + 1


def last_day(days: Numbers) -> Numbers:
    """The last day of the month."""
    return first_of_month(month_index(days) + 1) - 1


def add_months(days: Numbers, count: Numbers) -> Numbers:
    """The same day ``count`` months later, or the last day of that month if it is shorter."""
    index = month_index(days)
    first = first_of_month(index + count)
    found: Numbers = np.minimum(first + days - first_of_month(index), first_of_month(index + count + 1) - 1)
    return found


def trunc(days: Numbers, unit: str) -> Numbers:
    """The first day of the year, quarter, month or week."""
    if unit == "week":
        return days - weekday(days)
    months = {"year": 12, "quarter": 3, "month": 1}[unit]
    return first_of_month(month_index(days) // months * months)


# --- functions of microseconds since 1970-01-01 ------------------------------------------------------------------


def date_trunc(micros: pa.Array, unit: str) -> pa.Array:
    """The beginning of the unit in which a time lies. Raises ``ArrowInvalid`` if that is before all timestamps."""
    if unit in CLOCK:
        return pc.multiply_checked(floor_divide(micros, CLOCK[unit]), CLOCK[unit])
    return pc.multiply_checked(over_integers(lambda days: trunc(days, unit), floor_divide(micros, DAY)), DAY)


def date_format(micros: pa.Array, pattern: str) -> pa.Array:
    """Times as strings, by a pattern of :mod:`refdelta.core.expressions.time_format`."""
    texts = [_part(part, micros) for part in parts_of(pattern)]
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


_OF_DAY = {"y": year, "M": month, "L": month, "Q": quarter, "q": quarter, "E": weekday, "d": day, "D": dayofyear}


def _part(part: PatternPart, micros: pa.Array) -> pa.Array:
    """One part of a pattern: the definition writes each distinct number once."""
    if not part.letter:
        return pc.if_else(micros.is_valid(), part.text, pa.scalar(None, pa.string()))
    if part.letter in _OF_DAY:
        numbers = over_integers(_OF_DAY[part.letter], floor_divide(micros, DAY))
    else:
        size, many = CLOCK_FIELDS[part.letter]
        numbers = modulo(floor_divide(micros, size), many)
    if part.letter == "S":  # up to a million distinct numbers
        digits = pc.utf8_lpad(numbers.cast(pa.string()), 6, "0")
        return pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 9, "0"), 0, part.count)
    encoded = numbers.dictionary_encode()
    shown = [field_text(part, number) for number in encoded.dictionary.to_pylist()]
    return pa.array(shown, pa.string()).take(encoded.indices)
