"""Patterns of ``date_format``: the letters of Java's ``DateTimeFormatter`` that Spark takes, in English and in UTC.

A pattern is parsed into parts, each a literal or a field with its form. Letters that Spark refuses are refused here,
and so are time zones, optional sections, and the few letters whose output depends on the data of a locale.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from refdelta.core.expressions.calendar_math import dayofyear, quarter, weekday
from refdelta.core.expressions.partition_values import DAY, date_of
from refdelta.errors import PredicateError

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
    return "".join(part.text or _FIELDS[part.letter](micros, part.count) for part in parts_of(pattern))


def _year(micros: int, count: int) -> str:
    year = date_of(micros // DAY)[0]
    if count == 2:
        return f"{abs(year) % 100:02}"
    sign = "-" if year < 0 else "+" if count > SHORT and year >= 10**count else ""
    return sign + str(abs(year)).zfill(count)


def _month(micros: int, count: int) -> str:
    month = date_of(micros // DAY)[1]
    if count < SHORT:
        return str(month).zfill(count)
    return MONTHS[month - 1][:SHORT] if count == SHORT else MONTHS[month - 1]


def _weekday(micros: int, count: int) -> str:
    name = WEEKDAYS[weekday(micros // DAY)]
    return name[:SHORT] if count <= SHORT else name


def _quarter(micros: int, count: int) -> str:
    found = quarter(micros // DAY)
    return f"Q{found}" if count == SHORT else str(found).zfill(count)


def _of(function: Callable[[int], int]) -> Callable[[int, int], str]:
    return lambda micros, count: str(function(micros)).zfill(count)


def _hour(micros: int) -> int:
    return micros // 3_600_000_000 % 24


_FIELDS: dict[str, Callable[[int, int], str]] = {
    "y": _year,
    "M": _month,
    "L": _month,
    "Q": _quarter,
    "q": _quarter,
    "E": _weekday,
    "d": _of(lambda micros: date_of(micros // DAY)[2]),
    "D": _of(lambda micros: dayofyear(micros // DAY)),
    "H": _of(_hour),
    "k": _of(lambda micros: _hour(micros) or 24),
    "K": _of(lambda micros: _hour(micros) % 12),
    "h": _of(lambda micros: _hour(micros) % 12 or 12),
    "m": _of(lambda micros: micros // 60_000_000 % 60),
    "s": _of(lambda micros: micros // 1_000_000 % 60),
    "a": lambda micros, _: "AM" if _hour(micros) < 12 else "PM",
    "S": lambda micros, count: f"{micros % 1_000_000:06}000"[:count],
}
