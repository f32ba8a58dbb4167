"""Intervals as SQL writes them: ``INTERVAL 30 DAYS``, ``INTERVAL '1 02:03:04' DAY TO SECOND``, ``INTERVAL '1 day'``."""

from __future__ import annotations

import re

from refdelta.errors import PredicateError
from refdelta.expressions.expression import Literal
from refdelta.expressions.interval_types import DAY_TIME, DAYS, YEAR_MONTH
from refdelta.table.partition_values import DAY
from refdelta.table.types import DataType

UNITS: dict[str, tuple[DataType, int]] = {
    "microsecond": (DAY_TIME, 1),
    "millisecond": (DAY_TIME, 1_000),
    "second": (DAY_TIME, 1_000_000),
    "minute": (DAY_TIME, 60_000_000),
    "hour": (DAY_TIME, 3_600_000_000),
    "day": (DAYS, DAY),
    "week": (DAYS, 7 * DAY),
    "month": (YEAR_MONTH, 1),
    "quarter": (YEAR_MONTH, 3),
    "year": (YEAR_MONTH, 12),
}
"""Units of intervals: the type of an interval of one unit, and its value."""

_SIZES = {unit.upper(): size for unit, (kind, size) in UNITS.items() if kind != YEAR_MONTH}
_MONTHS = {unit.upper(): size for unit, (kind, size) in UNITS.items() if kind == YEAR_MONTH}
_CLOCK = ["DAY", "HOUR", "MINUTE", "SECOND"]
_NUMBER = re.compile(r"([+-]?)([0-9]{1,18})(?:\.([0-9]{1,9}))?", re.ASCII)


def interval_literal(text: str, unit: str) -> Literal:
    """An interval.

    Args:
        text: the number, the numbers of several units, or numbers and units in turn.
        unit: a unit such as ``DAY`` or ``DAYS``, two of them with ``TO``, or nothing if the text has the units.

    Raises:
        PredicateError: it is none.
    """
    first, to, last = (part.strip() for part in unit.partition(" TO "))
    if to:
        return _span(text.strip(), _named(first, text), _named(last, text))
    if unit:
        return _sum([(text.strip(), _named(unit, text))], text)
    words = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE).split()
    if not words or len(words) % 2:
        raise _none(text)
    return _sum(
        [(number, _named(word.upper(), text)) for number, word in zip(words[::2], words[1::2], strict=True)], text
    )


def _named(unit: str, text: str) -> str:
    name = unit.upper().removesuffix("S")
    if name not in _SIZES and name not in _MONTHS:
        raise _none(f"{text} {unit}")
    return name


def _none(text: str) -> PredicateError:
    return PredicateError(f"{text[:80]!r} is not an interval such as INTERVAL 30 DAYS or INTERVAL '1' MONTH")


def _sum(parts: list[tuple[str, str]], text: str) -> Literal:
    months = {unit in _MONTHS for _, unit in parts}
    if len(months) > 1:
        raise PredicateError(f"the interval {text[:80]!r} mixes months with days; add one after the other")
    total = sum(_amount(number, unit, text) for number, unit in parts)
    if True in months:
        return _made(total, YEAR_MONTH, text)
    return _made(total, DAYS if {unit for _, unit in parts} <= {"DAY", "WEEK"} else DAY_TIME, text)


def _made(value: int, kind: DataType, text: str) -> Literal:
    limit = 2**31 if kind == YEAR_MONTH else 2**63
    if not -limit <= value < limit:
        raise PredicateError(f"the interval {text[:80]!r} is beyond the range of intervals")
    return Literal(value, kind)


def _amount(number: str, unit: str, text: str) -> int:
    found = _NUMBER.fullmatch(number.strip())
    if found is None or (found[3] and unit != "SECOND"):
        raise _none(f"{text} {unit}")
    sign = -1 if found[1] == "-" else 1
    if unit in _MONTHS:
        return sign * int(found[2]) * _MONTHS[unit]
    fraction = int((found[3] or "")[:6].ljust(6, "0")) if unit == "SECOND" else 0
    return sign * (int(found[2]) * _SIZES[unit] + fraction)


def _span(text: str, first: str, last: str) -> Literal:
    if (first, last) == ("YEAR", "MONTH"):
        found = re.fullmatch(r"([+-]?)([0-9]{1,9})-([0-9]{1,2})", text, re.ASCII)
        if found is None or int(found[3]) > 11:
            raise _none(text)
        return _made((-1 if found[1] == "-" else 1) * (int(found[2]) * 12 + int(found[3])), YEAR_MONTH, text)
    if first not in _CLOCK or last not in _CLOCK or _CLOCK.index(first) >= _CLOCK.index(last):
        raise _none(text)
    units = _CLOCK[_CLOCK.index(first) : _CLOCK.index(last) + 1]
    between = {"DAY": " ", "HOUR": ":", "MINUTE": ":"}
    pattern = "([+-]?)" + "".join(
        ("([0-9]{1,9})" if place == 0 else "([0-9]{1,2})") + (between[unit] if unit != last else "")
        for place, unit in enumerate(units)
    )
    found = re.fullmatch(pattern + (r"(?:\.([0-9]{1,9}))?" if last == "SECOND" else ""), text, re.ASCII)
    if found is None:
        raise _none(text)
    numbers = [int(one) for one in found.groups()[1 : len(units) + 1]]
    limits = {"HOUR": 23, "MINUTE": 59, "SECOND": 59}
    if any(number > limits[unit] for number, unit in zip(numbers[1:], units[1:], strict=True)):
        raise _none(text)
    total = sum(number * _SIZES[unit] for number, unit in zip(numbers, units, strict=True))
    if last == "SECOND":
        total += int((found.groups()[-1] or "")[:6].ljust(6, "0"))
    return _made(-total if found[1] == "-" else total, DAY_TIME, text)
