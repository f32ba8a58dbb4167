"""Functions of dates and times: parts, shifts, and strings with a pattern. The time zone is UTC."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import floor_divide, modulo
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError, PredicateError, suggestion
from refdelta.expressions import arithmetic, calendar_math
from refdelta.expressions.arithmetic import Typed
from refdelta.expressions.casting import to_micros
from refdelta.expressions.coercion import coerce
from refdelta.expressions.columnar import all_valid, constant, dated, days, over_integers
from refdelta.expressions.expression import Call, Literal, Value
from refdelta.expressions.signature import (
    CLOCK_TYPES,
    Columns,
    Function,
    Typing,
    constant_pattern,
    simple,
    takes,
)
from refdelta.expressions.time_format import MONTHS, SHORT, WEEKDAYS, format_time, format_times, parts_of
from refdelta.table.partition_values import DAY, date_of, days_of
from refdelta.table.types import (
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

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
SECONDS_TYPE = DecimalType(8, 6)


# --- parts -------------------------------------------------------------------------------------------------------


def _of_date(function: Callable[[int], Any], numbers: Callable[[Any], Any], gives: DataType = INTEGER) -> Function:
    """A function of days, and the same of an array of days."""
    return Function(
        (1, 1),
        takes(DATE, gives=gives),
        simple(function),
        lambda node, array: dated(node, over_integers(numbers, days(array))),
    )


def _named(number: Callable[[int], int], numbers: Callable[[Any], Any], names: Sequence[str]) -> Function:
    """The short name of a part of a date."""

    # pa.array imports pandas where it is installed: not while this module is loaded.
    def columns(_: Call, array: pa.Array) -> pa.Array:
        return pa.array([name[:SHORT] for name in names]).take(over_integers(numbers, days(array)))

    return Function((1, 1), takes(DATE, gives=STRING), simple(lambda day: names[number(day)][:SHORT]), columns)


def _clock(name: str, args: tuple[Value, ...]) -> Typed:
    value = args[0]
    return (value if value.type in CLOCK_TYPES else coerce(value, TIMESTAMP, name),), INTEGER


def _of_clock(size: int, many: int) -> Function:
    return Function(
        (1, 1),
        _clock,
        simple(lambda micros: micros // size % many),
        lambda _, array: modulo(floor_divide(array.cast(pa.int64()), size), many),
    )


def _of_time(size: int) -> Function:
    return Function(
        (1, 1),
        takes(TIMESTAMP, gives=LONG),
        simple(lambda micros: micros // size),
        lambda _, array: floor_divide(array.cast(pa.int64()), size),
    )


def _weekday_from_1(days: Any) -> Any:
    return calendar_math.weekday(days) + 1


def year_of_week(days: int) -> int:
    """The year of a date's ISO week."""
    return calendar_math.year(days - calendar_math.weekday(days) + 3)


def _clock_types(gives: DataType) -> Typing:
    def typed(name: str, args: tuple[Value, ...]) -> Typed:
        return (args[0] if args[0].type in CLOCK_TYPES else coerce(args[0], TIMESTAMP, name),), gives

    return typed


def _seconds_columns(node: Call, array: pa.Array) -> pa.Array:
    micros = modulo(array.cast(pa.int64()), MINUTE)
    wide = micros.cast(pa.decimal128(19, 0)).cast(pa.decimal128(38, 6))
    return pc.multiply(pa.array(wide).cast(pa.decimal128(26, 6)), pa.scalar(Decimal("0.000001"))).cast(
        arrow_type(node.type)
    )


# --- shifts and distances ----------------------------------------------------------------------------------------


def _days_later(function: Columns) -> Columns:
    return lambda node, array, count: dated(node, function(days(array), count.cast(pa.int64())))


def _add_months_columns(node: Call, array: pa.Array, count: pa.Array) -> pa.Array:
    return dated(node, over_integers(calendar_math.add_months_array, days(array), count.cast(pa.int64())))


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


def _next_day_columns(node: Call, array: pa.Array) -> pa.Array:
    wanted = weekday_named(constant(node, 1))
    return dated(node, over_integers(lambda n: n + (wanted - calendar_math.weekday(n) - 1) % 7 + 1, days(array)))


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


def _months_between_columns(node: Call, one: pa.Array, other: pa.Array, _: pa.Array) -> pa.Array:
    def between(a: Any, b: Any) -> Any:
        d1, d2 = a // DAY, b // DAY
        m1, m2 = calendar_math.month_index(d1), calendar_math.month_index(d2)
        day1, day2 = d1 - calendar_math.first_of_month(m1), d2 - calendar_math.first_of_month(m2)
        whole = (day1 == day2) | ((calendar_math.last_day_array(d1) == d1) & (calendar_math.last_day_array(d2) == d2))
        seconds = (day1 - day2) * 86_400 + a % DAY // SECOND - b % DAY // SECOND
        found = np.where(whole, (m1 - m2).astype(np.float64), (m1 - m2) + seconds / 2_678_400.0)
        if constant(node, 2):
            found = np.where(whole, found, np.floor(found * 1e8 + 0.5) / 1e8)
        return found.view(np.int64)

    return over_integers(between, one.cast(pa.int64()), other.cast(pa.int64())).view(pa.float64())


def _unit(value: Value, name: str, allowed: Sequence[str]) -> Literal:
    known = calendar_math.UNITS.get(str(value.value).lower()) if isinstance(value, Literal) else None
    if known not in allowed:
        near = suggestion(value.value, allowed) if isinstance(value, Literal) else ""
        raise PredicateError(f"{name} takes one of {', '.join(allowed)} as a constant, not {value}{near}")
    return Literal(known, STRING)


def _trunc(name: str, args: tuple[Value, ...]) -> Typed:
    return (coerce(args[0], DATE, name), _unit(args[1], name, ["year", "quarter", "month", "week"])), DATE


def _trunc_columns(node: Call, array: pa.Array) -> pa.Array:
    unit = constant(node, 1)
    return dated(node, over_integers(lambda days: calendar_math.trunc_array(days, unit), days(array)))


def _date_trunc(name: str, args: tuple[Value, ...]) -> Typed:
    units = list(dict.fromkeys(calendar_math.UNITS.values()))
    return (_unit(args[0], name, units), coerce(args[1], TIMESTAMP, name)), TIMESTAMP


def _date_trunc_columns(node: Call, _: pa.Array, array: pa.Array) -> pa.Array:
    return calendar_math.date_trunc_column(array.cast(pa.int64()), constant(node, 0)).cast(array.type)


# --- made of numbers ---------------------------------------------------------------------------------------------


def _bad(mask: Any) -> None:
    if np.any(mask):
        raise pa.ArrowInvalid("a field is out of its range")


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


def _make_date_columns(node: Call, *columns: pa.Array) -> pa.Array:
    valid = all_valid(columns)
    # Values beside a null are no date either, and no error.
    filled = [pc.if_else(valid, column.cast(pa.int64()), 1) for column in columns]

    def made(year: Any, month: Any, day: Any) -> Any:
        _bad((month < 1) | (month > 12) | (np.abs(year) > 999_999_999))
        index = year * 12 + month - 1
        first = calendar_math.first_of_month(index)
        _bad((day < 1) | (day > calendar_math.first_of_month(index + 1) - first))
        return first + day - 1

    found = over_integers(made, *filled)
    return dated(node, pc.if_else(valid, found, pa.scalar(None, pa.int64())))


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: Decimal) -> int:
    """A time; 60 seconds without a fraction are a further minute.

    Raises:
        ExpressionError: there is none.
    """
    micros = int(second * SECOND)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= micros <= MINUTE):
        raise ExpressionError(f"there is no time {hour}:{minute}:{second}")
    return to_micros(make_date(year, month, day) * DAY + hour * HOUR + minute * MINUTE + micros)


def _timestamp_types(gives: DataType) -> Typing:
    return takes(INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, DecimalType(16, 6), gives=gives)


def seconds_as_micros(seconds: pa.Array) -> pa.Array:
    """Decimals of seconds, of a scale of 6, as microseconds."""
    wide = pc.multiply(seconds.cast(pa.decimal128(26, 6)), pa.scalar(Decimal(1_000_000)))
    return wide.cast(pa.decimal128(38, 0), safe=False).cast(pa.int64())


def _make_timestamp_columns(node: Call, *columns: pa.Array) -> pa.Array:
    valid = all_valid(columns)
    dates = _make_date_columns(
        Call("make_date", (), DATE), *(pc.if_else(valid, c, pa.scalar(None, c.type)) for c in columns[:3])
    )
    hours, minutes = (pc.if_else(valid, column.cast(pa.int64()), 0) for column in columns[3:5])
    micros = pc.if_else(valid, seconds_as_micros(columns[5]), 0)

    def clock(hour: Any, minute: Any, micro: Any) -> Any:
        _bad((hour < 0) | (hour > 23) | (minute < 0) | (minute > 59) | (micro < 0) | (micro > MINUTE))
        return hour * HOUR + minute * MINUTE + micro

    start = pc.multiply_checked(days(dates), DAY)
    return pc.add_checked(start, over_integers(clock, hours, minutes, micros)).cast(arrow_type(node.type))


def seconds_to_micros(seconds: int) -> int:
    """As Spark's ``from_unixtime`` has it, which turns round beyond 64 bits."""
    return (seconds * 1_000_000 + 2**63) % 2**64 - 2**63


def _millis_to_micros(_: Call, millis: int) -> int:
    return int(arithmetic.fit(millis * 1_000, LONG))


def _whole_seconds(name: str, args: tuple[Value, ...]) -> Typed:
    if args[0].type not in INTEGRAL and args[0].type != VOID:
        raise PredicateError(f"{name} takes an integer here, and {args[0]} is {args[0].type}; use timestamp_micros")
    return (coerce(args[0], LONG, name),), TIMESTAMP


# --- strings with a pattern --------------------------------------------------------------------------------------


def _date_format(name: str, args: tuple[Value, ...]) -> Typed:
    pattern = constant_pattern(name, args[1], parts_of)
    return (coerce(args[0], TIMESTAMP, name), pattern), STRING


def _date_format_columns(node: Call, array: pa.Array) -> pa.Array:
    return format_times(array.cast(pa.int64()), constant(node, 1))


def _from_unixtime(name: str, args: tuple[Value, ...]) -> Typed:
    pattern = args[1] if len(args) > 1 else Literal("yyyy-MM-dd HH:mm:ss", STRING)
    (_, pattern), gives = _date_format(name, (Literal(None, TIMESTAMP), pattern))
    return (coerce(args[0], LONG, name), pattern), gives


def _from_unixtime_columns(node: Call, array: pa.Array) -> pa.Array:
    return format_times(pc.multiply(array, 1_000_000), constant(node, 1))


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
    def value(call: Call, text: str, pattern: str) -> int | None:
        try:
            micros = parse_time(text, pattern)
        except ExpressionError:
            if lenient:
                return None
            raise
        return micros // DAY if call.type == DATE else micros // SECOND if call.type == LONG else micros

    return Function((2, 2), _parse_types(gives), value, fails=not lenient, constants=True)


TIMES: dict[str, Function] = {
    "year": _of_date(calendar_math.year, calendar_math.year_array),
    "quarter": _of_date(calendar_math.quarter, calendar_math.quarter_array),
    "month": _of_date(calendar_math.month, calendar_math.month_array),
    "day": _of_date(calendar_math.day, calendar_math.day_array),
    "dayofweek": _of_date(calendar_math.dayofweek, calendar_math.dayofweek),
    "weekday": _of_date(calendar_math.weekday, calendar_math.weekday),
    "dayofyear": _of_date(calendar_math.dayofyear, calendar_math.dayofyear_array),
    "weekofyear": _of_date(calendar_math.weekofyear, calendar_math.weekofyear_array),
    "last_day": _of_date(calendar_math.last_day, calendar_math.last_day_array, DATE),
    "hour": _of_clock(3_600_000_000, 24),
    "minute": _of_clock(60_000_000, 60),
    "second": _of_clock(1_000_000, 60),
    "date_add": Function(
        (2, 2),
        takes(DATE, INTEGER, gives=DATE),
        simple(calendar_math.add_days),
        fails=True,
        columns=_days_later(pc.add),
    ),
    "date_sub": Function(
        (2, 2),
        takes(DATE, INTEGER, gives=DATE),
        simple(lambda days, count: calendar_math.add_days(days, -count)),
        fails=True,
        columns=_days_later(pc.subtract),
    ),
    "add_months": Function(
        (2, 2),
        takes(DATE, INTEGER, gives=DATE),
        simple(calendar_math.add_months),
        fails=True,
        columns=_add_months_columns,
    ),
    "datediff": Function(
        (2, 2),
        takes(DATE, DATE, gives=INTEGER),
        simple(lambda end, start: end - start),
        columns=lambda _, end, start: pc.subtract(days(end), days(start)),
    ),
    "date_format": Function((2, 2), _date_format, simple(format_time), constants=True, columns=_date_format_columns),
    "from_unixtime": Function(
        (1, 2),
        _from_unixtime,
        simple(lambda seconds, pattern: format_time(seconds_to_micros(seconds), pattern)),
        constants=True,
        columns=_from_unixtime_columns,
    ),
    "unix_micros": _of_time(1),
    "unix_millis": _of_time(1_000),
    "unix_seconds": _of_time(1_000_000),
    "timestamp_micros": Function(
        (1, 1),
        takes(LONG, gives=TIMESTAMP),
        simple(lambda micros: micros),
        columns=lambda node, array: array.cast(arrow_type(node.type)),
    ),
    "timestamp_millis": Function(
        (1, 1),
        takes(LONG, gives=TIMESTAMP),
        _millis_to_micros,
        fails=True,
        columns=lambda node, array: pc.multiply_checked(array, 1_000).cast(arrow_type(node.type)),
    ),
    "trunc": Function((2, 2), _trunc, simple(calendar_math.trunc), constants=True, columns=_trunc_columns),
    "date_trunc": Function(
        (2, 2),
        _date_trunc,
        simple(lambda unit, micros: calendar_math.date_trunc(micros, unit)),
        columns=_date_trunc_columns,
    ),
    "yearofweek": _of_date(year_of_week, lambda days: calendar_math.year_array(days - calendar_math.weekday(days) + 3)),
    "dayofweek_iso": _of_date(_weekday_from_1, _weekday_from_1),
    "seconds": Function(
        (1, 1),
        _clock_types(SECONDS_TYPE),
        simple(lambda micros: Decimal(micros % MINUTE).scaleb(-6).quantize(Decimal("0.000001"))),
        columns=_seconds_columns,
    ),
    "dayname": _named(calendar_math.weekday, calendar_math.weekday, WEEKDAYS),
    "monthname": _named(
        lambda day: calendar_math.month(day) - 1, lambda days: calendar_math.month_array(days) - 1, MONTHS
    ),
    "next_day": Function(
        (2, 2),
        _next_day_types,
        simple(lambda days, name: next_day(days, weekday_named(name))),
        fails=True,
        constants=True,
        columns=_next_day_columns,
    ),
    "months_between": Function((2, 3), _months_types, simple(months_between), columns=_months_between_columns),
    "unix_date": Function(
        (1, 1), takes(DATE, gives=INTEGER), simple(lambda days: days), lambda _, array: array.cast(pa.int32())
    ),
    "date_from_unix_date": Function(
        (1, 1), takes(INTEGER, gives=DATE), simple(lambda days: days), columns=lambda _, array: array.cast(pa.date32())
    ),
    "timestamp_seconds": Function(
        (1, 1),
        _whole_seconds,
        simple(lambda seconds: to_micros(seconds * SECOND)),
        fails=True,
        columns=lambda node, array: pc.multiply_checked(array, SECOND).cast(arrow_type(node.type)),
    ),
    "make_date": Function(
        (3, 3), takes(INTEGER, INTEGER, INTEGER, gives=DATE), simple(make_date), fails=True, columns=_make_date_columns
    ),
    "make_timestamp": Function(
        (6, 6), _timestamp_types(TIMESTAMP), simple(make_timestamp), fails=True, columns=_make_timestamp_columns
    ),
    "make_timestamp_ntz": Function(
        (6, 6), _timestamp_types(TIMESTAMP_NTZ), simple(make_timestamp), fails=True, columns=_make_timestamp_columns
    ),
    "to_date": _parses(DATE),
    "try_to_date": _parses(DATE, lenient=True),
    "to_timestamp": _parses(TIMESTAMP),
    "try_to_timestamp": _parses(TIMESTAMP, lenient=True),
    "to_unix_timestamp": _parses(LONG),
}
