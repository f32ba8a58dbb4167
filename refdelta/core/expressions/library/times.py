"""Functions of dates and times: parts, strings with a pattern, and intervals. The time zone is UTC.

An interval of days and times is its number of microseconds, one of years and months its number of months. Columns of
tables cannot hold them.
"""

from __future__ import annotations

import functools
import math
import re
from decimal import Decimal
from typing import Any

from refdelta.core.expressions import calendar_math
from refdelta.core.expressions.arithmetic import Typed
from refdelta.core.expressions.casting import to_micros
from refdelta.core.expressions.coercion import coerce
from refdelta.core.expressions.expression import Call, Literal, Value
from refdelta.core.expressions.interval_types import DAY_TIME, DAYS, INTERVALS, YEAR_MONTH
from refdelta.core.expressions.partition_values import DAY, date_of, days_of
from refdelta.core.expressions.signature import CLOCK_TYPES, Function, Typing, constant_pattern, simple, takes
from refdelta.core.expressions.time_format import MONTHS, SHORT, WEEKDAYS, parts_of
from refdelta.core.table.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTEGRAL,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)
from refdelta.errors import ExpressionError, PredicateError

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
SECONDS_TYPE = DecimalType(8, 6)
_FRACTION = DecimalType(18, 6)

# --- parts -------------------------------------------------------------------------------------------------------


def year_of_week(days: int) -> int:
    """The year of a date's ISO week."""
    return calendar_math.year(days - calendar_math.weekday(days) + 3)


def next_day(days: int, weekday: int) -> int:
    """The first such day of the week after a date; 0 is Monday."""
    return calendar_math.add_days(days, (weekday - calendar_math.weekday(days) - 1) % 7 + 1)


_DAY_NAMES = {
    name: place for place, day in enumerate(WEEKDAYS) for name in (day.upper(), day[:3].upper(), day[:2].upper())
}


def _next_day_types(name: str, args: tuple[Value, ...]) -> Typed:
    day = args[1]
    if not isinstance(day, Literal) or not isinstance(day.value, str) or day.value.upper().strip() not in _DAY_NAMES:
        raise PredicateError(f"{name} takes a day of the week such as 'Mon' as a constant, not {day}")
    return (coerce(args[0], DATE, name), Literal(day.value, STRING)), DATE


def weekday_named(name: str) -> int:
    """The number of a day of the week, 0 for Monday."""
    return _DAY_NAMES[name.upper().strip()]


def months_between(one: int, other: int, rounded: bool) -> float:
    """The months from ``other`` to ``one``; a part of a month counts in 31sts of it."""
    (y1, m1, d1), (y2, m2, d2) = date_of(one // DAY), date_of(other // DAY)
    months = (y1 - y2) * 12 + m1 - m2
    last = (calendar_math.last_day(one // DAY) == one // DAY, calendar_math.last_day(other // DAY) == other // DAY)
    if d1 == d2 or all(last):
        return float(months)
    seconds = (d1 - d2) * 86_400 + one % DAY // SECOND - other % DAY // SECOND
    found = months + seconds / 2_678_400.0
    return math.floor(found * 1e8 + 0.5) / 1e8 if rounded else found


def _months_types(name: str, args: tuple[Value, ...]) -> Typed:
    rounded = args[2] if len(args) > 2 else Literal(True, BOOLEAN)
    if not isinstance(rounded, Literal) or rounded.type != BOOLEAN:
        raise PredicateError(f"{name} takes TRUE or FALSE as a constant, not {rounded}")
    return (coerce(args[0], TIMESTAMP, name), coerce(args[1], TIMESTAMP, name), rounded), DOUBLE


def _clock_types(gives: DataType) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        return (args[0] if args[0].type in CLOCK_TYPES else coerce(args[0], TIMESTAMP, name),), gives

    return typed


def make_date(year: int, month: int, day: int) -> int:
    """A date.

    Raises:
        ExpressionError: there is none.
    """
    if not 1 <= month <= 12 or not -999_999_999 <= year <= 999_999_999:
        raise ExpressionError(f"there is no date of the year {year} and the month {month}")
    first = days_of(year, month, 1)
    if not 1 <= day <= calendar_math.last_day(first) - first + 1:
        raise ExpressionError(f"there is no day {day} in the month {month} of the year {year}")
    return calendar_math.add_days(first, day - 1)


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: Decimal) -> int:
    """A time; 60 seconds without a fraction are a further minute.

    Raises:
        ExpressionError: there is none.
    """
    micros = int(second * SECOND)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= micros <= MINUTE):
        raise ExpressionError(f"there is no time {hour}:{minute}:{second}")
    return to_micros(make_date(year, month, day) * DAY + hour * HOUR + minute * MINUTE + micros)


def _whole_seconds(name: str, args: tuple[Value, ...]) -> Typed:
    if args[0].type not in INTEGRAL and args[0].type != VOID:
        raise PredicateError(f"{name} takes an integer here, and {args[0]} is {args[0].type}; use timestamp_micros")
    return (coerce(args[0], LONG, name),), TIMESTAMP


def _timestamp_types(gives: DataType) -> Typing:
    return takes(INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, DecimalType(16, 6), gives=gives)


# --- strings with a pattern --------------------------------------------------------------------------------------

_FIELDS = {
    ("y", 4): "([0-9]{4}|-[0-9]{4,9}|[+][0-9]{5,9})",
    ("M", 1): "([0-9]{1,2})",
    ("M", 2): "([0-9]{2})",
    ("M", 3): "((?i:" + "|".join(name[:SHORT] for name in MONTHS) + "))",
    ("M", 4): "((?i:" + "|".join(MONTHS) + "))",
    **{(letter, 1): "([0-9]{1,2})" for letter in "dHhms"},
    **{(letter, 2): "([0-9]{2})" for letter in "dHhms"},
    ("a", 1): "((?i:AM|PM))",
    **{("S", count): f"([0-9]{{1,{count}}})" for count in range(1, 10)},
}
_FIXED = {("y", 4), *((letter, 2) for letter in "MdHhms")}
DEFAULTS = {"y": 1970, "M": 1, "d": 1, "H": 0, "h": 12, "m": 0, "s": 0, "S": 0, "a": 0}
"""The fields of patterns that parse, and their values where a pattern lacks them."""

LIMITS = {"M": (1, 12), "d": (1, 31), "H": (0, 23), "h": (1, 12), "m": (0, 59), "s": (0, 59)}
"""The least and the greatest value of some of the fields."""


@functools.lru_cache(maxsize=64)
def parse_pattern(pattern: str) -> tuple[str, tuple[str, ...]]:
    """A pattern as a regular expression, the same for Python and RE2, and the letters of its groups.

    Raises:
        PredicateError: it has something that is not supported for reading times.
    """
    text, letters = "", []
    parts = parts_of(pattern)
    for place, part in enumerate(parts):
        before = parts[place - 1] if place else None
        if not part.letter:
            text += "".join(f"\\x{{{ord(c):x}}}" if c.isascii() and not c.isalnum() else c for c in part.text)
            if part.text[:1].isdigit() and before is not None:
                raise PredicateError(f"the pattern {pattern!r}: digits after a field are not supported for reading")
            continue
        found = _FIELDS.get((part.letter, part.count))
        if found is None or part.letter in letters:
            raise PredicateError(
                f"the pattern {pattern!r}: {part.letter * part.count!r} is not supported for reading times; there are "
                "yyyy, M, MM, MMM, MMMM, d, dd, H, HH, h, hh, m, mm, s, ss, S to SSSSSSSSS, and a, each once"
            )
        after = parts[place + 1] if place + 1 < len(parts) else None
        beside = after is not None and bool(after.letter) and after.letter != "a" and after.count < SHORT
        if beside and (part.letter, part.count) not in _FIXED and part.letter != "a" and part.count < SHORT:
            raise PredicateError(f"the pattern {pattern!r}: a field of any width just before another one")
        text += found
        letters.append(part.letter)
    if ("h" in letters) != ("a" in letters) or {"h", "H"} <= set(letters):
        raise PredicateError(f"the pattern {pattern!r}: h goes with a, and without H")
    return text, tuple(letters)


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), text))


def parse_time(text: str, pattern: str) -> int:
    """A time from a string, in microseconds.

    Raises:
        ExpressionError: the string is not as the pattern has it.
    """
    regex, letters = parse_pattern(pattern)
    found = _compiled(regex).fullmatch(text)
    if found is None:
        raise ExpressionError(f"{text[:80]!r} is not a time as in {pattern!r}")
    fields = dict(DEFAULTS)
    for letter, part in zip(letters, found.groups(), strict=True):
        fields[letter] = field_number(letter, part)
    hour = fields["h"] % 12 + 12 * fields["a"] if "a" in letters else fields["H"]
    bad = any(not low <= fields[letter] <= high for letter, (low, high) in LIMITS.items())
    if bad or (fields["y"] == 0 and "-" in text and re.search("-0000", text)):
        raise ExpressionError(f"{text[:80]!r} has a field that is out of its range in {pattern!r}")
    seconds = hour * 3600 + fields["m"] * 60 + fields["s"]
    return to_micros(make_date(fields["y"], fields["M"], fields["d"]) * DAY + seconds * SECOND + fields["S"])


def field_number(letter: str, text: str) -> int:
    """The number of a field from its text."""
    if letter == "a":
        return int(text.upper() == "PM")
    if letter == "S":
        return int(text[:6].ljust(6, "0"))
    if letter == "M" and not text.isdigit():
        return [name[:SHORT].upper() for name in MONTHS].index(text[:SHORT].upper()) + 1
    return int(text)


def _parse_types(gives: DataType) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        pattern = constant_pattern(name, args[1], parse_pattern)
        if args[0].type not in (STRING, VOID):
            raise PredicateError(f"{name} with a pattern takes a string, and {args[0]} is {args[0].type}")
        return (coerce(args[0], STRING, name), pattern), gives

    return typed


def _parses(gives: DataType, *, lenient: bool = False) -> Function:
    def plain(call: Call, text: str, pattern: str) -> int | None:
        try:
            micros = parse_time(text, pattern)
        except ExpressionError:
            if lenient:
                return None
            raise
        return micros // DAY if call.type == DATE else micros // SECOND if call.type == LONG else micros

    return Function((2, 2), _parse_types(gives), plain, fails=not lenient, constants=True)


# --- intervals ---------------------------------------------------------------------------------------------------


def moved(value: int, kind: DataType, interval: int, interval_type: DataType) -> int:
    """A date or a time, later by an interval.

    Raises:
        ExpressionError: there is none that is so far.
    """
    if interval_type == YEAR_MONTH:
        if kind == DATE:
            return calendar_math.add_months(value, interval)
        return to_micros(calendar_math.add_months(value // DAY, interval) * DAY + value % DAY)
    if kind == DATE:
        return calendar_math.add_days(value, interval // DAY)
    return to_micros(value + interval)


def _moved_types(_: str, args: tuple[Value, ...]) -> Typed:
    value, interval = args
    if value.type == DATE and interval.type == DAY_TIME:
        value = coerce(value, TIMESTAMP)
    return (value, interval), value.type


def _moved(call: Call, value: int, interval: int) -> int:
    sign = 1 if call.name == "moved" else -1
    return moved(value, call.type, sign * interval, call.args[1].type)


def _apart_types(_: str, args: tuple[Value, ...]) -> Typed:
    left, right = args
    if left.type == right.type == DATE:
        return args, DAYS
    kind = TIMESTAMP if TIMESTAMP in (left.type, right.type) else TIMESTAMP_NTZ
    return (coerce(left, kind), coerce(right, kind)), DAY_TIME


def _apart(call: Call, one: int, other: int) -> int:
    return _fit((one - other) * (DAY if call.type == DAYS else 1), call.type)


def _fit(value: int, kind: DataType) -> int:
    limit = 2**31 if kind == YEAR_MONTH else 2**63
    if not -limit <= value < limit:
        raise ExpressionError(f"the {kind} does not fit into {'32' if kind == YEAR_MONTH else '64'} bits")
    return value


def _sum_types(_: str, args: tuple[Value, ...]) -> Typed:
    kinds = {arg.type for arg in args}
    return args, kinds.pop() if len(kinds) == 1 else DAY_TIME


def _many_types(_: str, args: tuple[Value, ...]) -> Typed:
    interval, count = args
    return (interval, coerce(count, LONG)), YEAR_MONTH if interval.type == YEAR_MONTH else DAY_TIME


def _make_day_time(_: Call, days: int, hours: int, minutes: int, seconds: Decimal) -> int:
    return _fit(days * DAY + hours * HOUR + minutes * MINUTE + int(seconds * SECOND), DAY_TIME)


def _make_types(name: str, args: tuple[Value, ...]) -> Typed:
    filled = (*args, *[Literal(0, INTEGER)] * (4 - len(args)))
    return takes(INTEGER, INTEGER, INTEGER, _FRACTION, gives=DAY_TIME)(name, filled)


def _make_months_types(name: str, args: tuple[Value, ...]) -> Typed:
    return takes(INTEGER, INTEGER, gives=YEAR_MONTH)(name, (*args, *[Literal(0, INTEGER)] * (2 - len(args))))


def interval_call(op: str, args: tuple[Value, ...]) -> tuple[str, tuple[Value, ...]] | None:
    """The function that an operator means if a date, a time or an interval is among its operands; None if it does not.

    Raises:
        PredicateError: the operator does not go with these operands.
    """
    kinds = [arg.type for arg in args]
    moments = [kind in (DATE, *CLOCK_TYPES) for kind in kinds]
    intervals = [kind in INTERVALS for kind in kinds]
    if not any(intervals) and not (op == "-" and all(moments)):
        return None
    if len(args) == 1 and op == "-":
        return "interval times", (args[0], Literal(-1, LONG))
    if len(args) == 2:
        if moments[0] and intervals[1] and op in "+-":
            return ("moved" if op == "+" else "moved back"), args
        if intervals[0] and moments[1] and op == "+":
            return "moved", (args[1], args[0])
        if op == "-" and all(moments):
            return "apart", args
        if op in "+-" and all(intervals) and (kinds[0] == YEAR_MONTH) == (kinds[1] == YEAR_MONTH):
            return ("interval plus" if op == "+" else "interval minus"), args
        if op == "*" and intervals[0] and kinds[1] in INTEGRAL:
            return "interval times", args
        if op == "*" and intervals[1] and kinds[0] in INTEGRAL:
            return "interval times", (args[1], args[0])
    shown = f" {op} ".join(f"{arg} ({arg.type})" for arg in args)
    raise PredicateError(f"{shown} is not supported here; dates, times and intervals can be added and subtracted")


def _of_date(function: Any, gives: DataType = INTEGER) -> Function:
    return Function((1, 1), takes(DATE, gives=gives), simple(function))


TIMES: dict[str, Function] = {
    "yearofweek": _of_date(year_of_week),
    "dayofweek_iso": _of_date(lambda days: calendar_math.weekday(days) + 1),
    "seconds": Function(
        (1, 1),
        _clock_types(SECONDS_TYPE),
        simple(lambda micros: Decimal(micros % MINUTE).scaleb(-6).quantize(Decimal("0.000001"))),
    ),
    "dayname": _of_date(lambda days: WEEKDAYS[calendar_math.weekday(days)][:SHORT], STRING),
    "monthname": _of_date(lambda days: MONTHS[calendar_math.month(days) - 1][:SHORT], STRING),
    "next_day": Function(
        (2, 2),
        _next_day_types,
        simple(lambda days, name: next_day(days, weekday_named(name))),
        fails=True,
        constants=True,
    ),
    "months_between": Function((2, 3), _months_types, simple(months_between)),
    "unix_date": _of_date(lambda days: days),
    "date_from_unix_date": Function((1, 1), takes(INTEGER, gives=DATE), simple(lambda days: days)),
    "timestamp_seconds": Function(
        (1, 1), _whole_seconds, simple(lambda seconds: to_micros(seconds * SECOND)), fails=True
    ),
    "make_date": Function((3, 3), takes(INTEGER, INTEGER, INTEGER, gives=DATE), simple(make_date), fails=True),
    "make_timestamp": Function((6, 6), _timestamp_types(TIMESTAMP), simple(make_timestamp), fails=True),
    "make_timestamp_ntz": Function((6, 6), _timestamp_types(TIMESTAMP_NTZ), simple(make_timestamp), fails=True),
    "to_date": _parses(DATE),
    "try_to_date": _parses(DATE, lenient=True),
    "to_timestamp": _parses(TIMESTAMP),
    "try_to_timestamp": _parses(TIMESTAMP, lenient=True),
    "to_unix_timestamp": _parses(LONG),
    "make_dt_interval": Function((0, 4), _make_types, _make_day_time, fails=True),
    "make_ym_interval": Function(
        (0, 2), _make_months_types, lambda _, years, months: _fit(years * 12 + months, YEAR_MONTH), fails=True
    ),
    "moved": Function((2, 2), _moved_types, _moved, fails=True),
    "moved back": Function((2, 2), _moved_types, _moved, fails=True),
    "apart": Function((2, 2), _apart_types, _apart, fails=True),
    "interval plus": Function((2, 2), _sum_types, lambda call, a, b: _fit(a + b, call.type), fails=True),
    "interval minus": Function((2, 2), _sum_types, lambda call, a, b: _fit(a - b, call.type), fails=True),
    "interval times": Function((2, 2), _many_types, lambda call, a, b: _fit(a * b, call.type), fails=True),
}
