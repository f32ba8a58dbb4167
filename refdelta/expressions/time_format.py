"""Patterns of ``date_format``: the letters of Java's ``DateTimeFormatter`` that Spark takes, in English and in UTC.

A pattern is parsed into parts, each a literal or a field with its form. Letters that Spark refuses are refused here,
and so are time zones, optional sections, and the few letters whose output depends on the data of a locale.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import floor_divide, modulo
from refdelta.errors import PredicateError
from refdelta.expressions.calendar_math import (
    day,
    day_array,
    dayofyear,
    dayofyear_array,
    month,
    month_array,
    quarter,
    quarter_array,
    weekday,
    year,
    year_array,
)
from refdelta.expressions.columnar import Numbers, over_integers
from refdelta.table.partition_values import DAY

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT = 3
"""The length of the short form of a month or a day of the week."""

MOST_DIGITS = {"d": 2, "D": 3, "H": 2, "h": 2, "k": 2, "K": 2, "m": 2, "s": 2, "M": 2, "L": 2, "Q": 2, "q": 2}
"""The numeric fields except years, and the greatest number of digits of each."""

_LONGEST = 1_000
"""The greatest number of characters in a pattern: each of its parts becomes a column."""

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z'\[\]{}#]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PatternPart:
    """One part of a pattern.

    Attributes:
        letter: the letter of the field; empty for a literal.
        count: the number of repetitions of the letter.
        text: the literal.
    """

    letter: str
    count: int = 0
    text: str = ""


@functools.lru_cache(maxsize=64)
def parts_of(pattern: str) -> tuple[PatternPart, ...]:
    """The parts of a pattern.

    Raises:
        PredicateError: it is none, or has something that is not supported here.
    """
    if len(pattern) > _LONGEST:
        raise PredicateError(f"date_format takes patterns of {_LONGEST:,} characters at most, not of {len(pattern):,}")
    parts, at = [], 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            raise PredicateError(f"date_format: {pattern[at]!r} in the pattern {pattern!r} is not supported here")
        at = found.end()
        if found[1] is not None:
            parts.append(PatternPart("", text=found[1].replace("''", "'") or "'"))
        elif found[2] is not None:
            parts.append(_field(found[2], len(found[0]), pattern))
        else:
            parts.append(PatternPart("", text=found[0]))
    return tuple(parts)


def _field(letter: str, count: int, pattern: str) -> PatternPart:
    most = {"y": 6, "S": 9, "a": 1, "E": 4, "M": 4, "L": 4, "Q": 3, "q": 3}.get(letter, MOST_DIGITS.get(letter, 0))
    if count > most:
        raise PredicateError(f"date_format: {letter * count!r} in the pattern {pattern!r} is not supported here")
    return PatternPart(letter, count)


def format_time(micros: int, pattern: str) -> str:
    """A time, in microseconds since 1970 (UTC), as text."""
    return "".join(part.text or field_text(part, _number(part.letter, micros)) for part in parts_of(pattern))


def field_text(part: PatternPart, number: int) -> str:
    """The text of a field from its number, such as the month for ``M`` and the hour of the day for ``h`` and ``a``."""
    return _TEXTS.get(part.letter, _digits)(number, part.count)


CLOCK_FIELDS = {
    **dict.fromkeys("HkKha", (3_600_000_000, 24)),
    "m": (60_000_000, 60),
    "s": (1_000_000, 60),
    "S": (1, 1_000_000),
}
"""The fields within a day: the length of the unit in microseconds, and how many there are until they start again."""

_OF_DAY: dict[str, tuple[Callable[[int], int], Callable[[Numbers], Numbers]]] = {
    "y": (year, year_array),
    **dict.fromkeys("ML", (month, month_array)),
    **dict.fromkeys("Qq", (quarter, quarter_array)),
    "E": (weekday, weekday),
    "d": (day, day_array),
    "D": (dayofyear, dayofyear_array),
}
"""The fields of dates: their functions on one day, and on an array of days."""


def _number(letter: str, micros: int) -> int:
    if letter in _OF_DAY:
        return _OF_DAY[letter][0](micros // DAY)
    size, many = CLOCK_FIELDS[letter]
    return micros // size % many


def _digits(number: int, count: int) -> str:
    return str(number).zfill(count)


def _year(number: int, count: int) -> str:
    if count == 2:
        return f"{abs(number) % 100:02}"
    sign = "-" if number < 0 else "+" if count > SHORT and number >= 10**count else ""
    return sign + str(abs(number)).zfill(count)


def _month(number: int, count: int) -> str:
    if count < SHORT:
        return _digits(number, count)
    return MONTHS[number - 1][:SHORT] if count == SHORT else MONTHS[number - 1]


def _weekday(number: int, count: int) -> str:
    return WEEKDAYS[number][:SHORT] if count <= SHORT else WEEKDAYS[number]


def _quarter(number: int, count: int) -> str:
    return f"Q{number}" if count == SHORT else _digits(number, count)


_TEXTS: dict[str, Callable[[int, int], str]] = {
    "y": _year,
    "M": _month,
    "L": _month,
    "Q": _quarter,
    "q": _quarter,
    "E": _weekday,
    "k": lambda hour, count: _digits(hour or 24, count),
    "K": lambda hour, count: _digits(hour % 12, count),
    "h": lambda hour, count: _digits(hour % 12 or 12, count),
    "a": lambda hour, _: "AM" if hour < 12 else "PM",
    "S": lambda number, count: f"{number:06}000"[:count],
}


# --- columns -----------------------------------------------------------------------------------------------------


def format_times(micros: pa.Array, pattern: str) -> pa.Array:
    """Times as strings, by a pattern."""
    texts = [_part_column(part, micros) for part in parts_of(pattern)]
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _part_column(part: PatternPart, micros: pa.Array) -> pa.Array:
    """One part of a pattern: the definition writes each distinct number once."""
    if not part.letter:
        return pc.if_else(micros.is_valid(), part.text, pa.scalar(None, pa.string()))
    if part.letter in _OF_DAY:
        numbers = over_integers(_OF_DAY[part.letter][1], floor_divide(micros, DAY))
    else:
        size, many = CLOCK_FIELDS[part.letter]
        numbers = modulo(floor_divide(micros, size), many)
    if part.letter == "S":  # up to a million distinct numbers
        digits = pc.utf8_lpad(numbers.cast(pa.string()), 6, "0")
        return pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 9, "0"), 0, part.count)
    encoded = numbers.dictionary_encode()
    shown = [field_text(part, number) for number in encoded.dictionary.to_pylist()]
    return pa.array(shown, pa.string()).take(encoded.indices)
