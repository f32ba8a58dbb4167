"""Partition values: typed values as the strings of ``partitionValues`` (PROTOCOL.md, "Partition Value Serialization").

Values here and in predicates are **internal values**, as comparable and as far-reaching as the types themselves: a
date is an int of days since 1970-01-01, a timestamp an int of microseconds since then (of UTC, or of the wall clock
without zone), a decimal a :class:`decimal.Decimal`, the others Python's own. Python's ``date`` would end at the year
9999.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from refdelta.errors import InvalidLogError, SchemaMismatchError
from refdelta.table.char_varchar import Length, padded, padding_of
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGRAL,
    INTERVAL_DAY_TIME,
    INTERVAL_YEAR_MONTH,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructField,
)

DAY = 86_400_000_000
"""Microseconds of a day."""

_EPOCH = date(1970, 1, 1).toordinal()
_ERA = 146_097  # days in 400 years
# Offset changes repeat with the calendar; Python's zones know the years 1 to 9999.
_SHIFTED = range(400, 9600)
_DATE = re.compile(r"([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_TIME = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII)
_ZONE = re.compile(r"(?:Z|UTC|GMT|UT|(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?|:(\d))?)", re.ASCII)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+", re.ASCII)
# Of the database of zones, but no names of Java.
_NO_REGIONS = ("posix", "right/", "localtime", "Factory", "leap", "tzdata", "zone", "iso3166")
SHORT_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""The short names of zones that Spark takes: those of Java's ``ZoneId.SHORT_IDS``."""
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_TRUE, _FALSE = frozenset({"true", "t", "yes", "y", "1"}), frozenset({"false", "f", "no", "n", "0"})
_FLOATS = {
    "nan": math.nan,
    "infinity": math.inf,
    "+infinity": math.inf,
    "inf": math.inf,
    "+inf": math.inf,
    "-infinity": -math.inf,
    "-inf": -math.inf,
}
_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


# --- the calendar ------------------------------------------------------------------------------------------------


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date of the proleptic Gregorian calendar, of any year.

    Raises:
        ValueError: there is no such date.
    """
    # The calendar repeats every 400 years; the shift brings any year into the range that Python's dates have.
    era, of_era = divmod(year - 1, 400)
    return date(of_era + 1, month, day).toordinal() - _EPOCH + era * _ERA


def date_of(days: int) -> tuple[int, int, int]:
    """The inverse of :func:`days_of`."""
    era, of_era = divmod(days + _EPOCH - 1, _ERA)
    found = date.fromordinal(of_era + 1)
    return found.year + era * 400, found.month, found.day


def parse_date(text: str) -> int:
    """Days since 1970-01-01 of ``y-m-d``; as in Spark's casts, a day or a month that is left out is the first.

    Raises:
        ValueError: it is no date.
    """
    parts = _DATE.fullmatch(text.strip())
    if parts is None:
        raise ValueError(f"{text!r} is not a date")
    return days_of(int(parts[1]), int(parts[2] or 1), int(parts[3] or 1))


def parse_timestamp(text: str, *, zone: bool = True, local: str | None = None) -> int:
    """Microseconds since 1970-01-01 of a date, a time and, where ``zone`` allows it, a zone.

    A zone is written as in Spark: ``Z``, an offset such as ``+02:00`` or ``UTC+2``, the name of a region such as
    ``Europe/Berlin``, or a short name of Java's such as ``PST``. Without one the time is in ``local``, or else in UTC.
    With ``zone=False`` a zone other than ``Z``, which some writers add to local times, is refused. More than six digits
    of a second are cut, as in Spark.

    Raises:
        ValueError: it is no timestamp, or one beyond 64 bits.
    """
    micros, rest = _parse_timestamp(text)
    if rest:
        micros -= _offset(rest, text, zone, micros)
    elif local is not None and zone:
        micros -= _region_offset(local, micros)
    if not -(2**63) <= micros < 2**63:
        raise ValueError(f"{text!r} is beyond what a timestamp can be")
    return micros


def names_zone(text: str) -> bool:
    """Whether a timestamp has a zone.

    Raises:
        ValueError: it is no timestamp.
    """
    return bool(_parse_timestamp(text)[1])


def _parse_timestamp(text: str) -> tuple[int, str]:
    """Microseconds of the wall clock, and the text of the zone."""
    body = text.strip()
    split = re.match(r"[^T ]*", body)
    end = split.end() if split else 0
    micros = parse_date(body[:end]) * DAY
    clock = body[end + 1 :].strip()
    if not clock:
        if end != len(body):
            raise ValueError(f"{text!r} is not a timestamp")
        return micros, ""
    found = _TIME.match(clock)
    if found is None:
        raise ValueError(f"{text!r} is not a timestamp")
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a timestamp")
    micros += ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((found[4] or "").ljust(6, "0")[:6])
    return micros, clock[found.end() :].strip()


def _offset(rest: str, text: str, zone: bool, wall: int) -> int:
    """The microseconds by which a zone is before UTC at a time of its wall clock."""
    found = _ZONE.fullmatch(SHORT_ZONES.get(rest, rest))
    if found is not None and found[1] is None:
        return 0
    if not zone:
        raise ValueError(f"{text!r} is not a timestamp without time zone")
    if found is None:
        name = SHORT_ZONES.get(rest, rest)
        if not _REGION.fullmatch(name) or name.startswith(_NO_REGIONS):
            raise ValueError(f"{text!r} is not a timestamp")
        try:
            return _region_offset(name, wall)
        except (LookupError, OSError):  # OSError: the name of a folder of zones
            raise ValueError(f"{text!r} is not a timestamp: there is no time zone {rest!r}") from None
    hours, minutes, seconds = int(found[2]), int(found[3] or found[5] or 0), int(found[4] or 0)
    if hours > 18 or minutes > 59 or seconds > 59:
        raise ValueError(f"{text!r} has an impossible time zone")
    offset = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return -offset if found[1] == "-" else offset


def _region_offset(name: str, wall: int) -> int:
    """The offset of a region at a time of its wall clock: before a change of clocks where the time occurs twice, or is
    left out.
    """
    from zoneinfo import ZoneInfo  # most timestamps name no region

    days, rest = divmod(wall, DAY)
    year, month, day = date_of(days)
    if year not in _SHIFTED:
        year = year % 400 + (_SHIFTED.start if year < _SHIFTED.start else _SHIFTED.stop - 400)
    then = datetime(year, month, day, tzinfo=ZoneInfo(name)) + timedelta(microseconds=rest)
    return (then.utcoffset() or timedelta()) // timedelta(microseconds=1)


def format_date(days: int) -> str:
    """``y-m-d``, with a sign before years that have more than four digits."""
    year, month, day = date_of(days)
    digits = f"{abs(year):04d}"
    sign = "-" if year < 0 else "+" if len(digits) > 4 else ""
    return f"{sign}{digits}-{month:02d}-{day:02d}"


def format_timestamp(micros: int, *, zone: bool) -> str:
    """ISO 8601 in UTC with six digits of a second where ``zone`` is set; else date, blank and time, as the log has
    it.
    """
    days, rest = divmod(micros, DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    return f"{format_date(days)}T{clock}Z" if zone else f"{format_date(days)} {clock}"


# --- numbers -----------------------------------------------------------------------------------------------------


def parse_integer(text: str, bits: int) -> int:
    """An integer of so many bits.

    Raises:
        ValueError: it is none, or does not fit.
    """
    body = text.strip()
    if not _INTEGER.fullmatch(body) or len(body) > 40:
        raise ValueError(f"{text!r} is not an integer")
    value = int(body)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{text!r} does not fit into {bits} bits")
    return value


def parse_float(text: str) -> float:
    """A double, as Spark reads it: NaN and infinities by name in any case.

    Raises:
        ValueError: it is no number.
    """
    body = text.strip()
    named = _FLOATS.get(body.lower())
    if named is not None:
        return named
    if not _NUMBER.fullmatch(body):
        raise ValueError(f"{text!r} is not a number")
    return float(body)


def parse_decimal(text: str, target: DecimalType) -> Decimal:
    """A decimal that ``target`` has room for without rounding.

    Raises:
        ValueError: it is none, or does not fit.
    """
    body = text.strip()
    if not _NUMBER.fullmatch(body):
        raise ValueError(f"{text!r} is not a decimal")
    try:
        value = Decimal(body)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a decimal") from None
    return fit_decimal(value, target)


def fit_decimal(value: Decimal, target: DecimalType) -> Decimal:
    """The same number with the scale of ``target``.

    Raises:
        ValueError: it would have to be rounded, or has too many digits.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):  # NaN and infinities have a letter there
        raise ValueError(f"{value} is not a number")  # noqa: TRY004
    if not any(digits):
        return Decimal((sign, (0,), -target.scale))
    # By digits, not by quantize: that one obeys a context, and a hostile exponent must not cost memory.
    shift = exponent + target.scale
    if shift > 38 or -shift > len(digits):
        raise ValueError(f"{value} does not fit into {target}")
    kept = digits + (0,) * shift if shift >= 0 else digits[:shift]
    if shift < 0 and any(digits[shift:]):
        raise ValueError(f"{value} has more digits after the decimal point than {target}")
    number = Decimal((sign, kept, -target.scale))
    if len("".join(map(str, kept)).lstrip("0")) > target.precision:
        raise ValueError(f"{value} does not fit into {target}")
    return number


# --- partition values --------------------------------------------------------------------------------------------


def parse(text: str | None, data_type: DataType, *, column: str = "a partition column", zone: str | None = None) -> Any:
    """The internal value of a partition value; an empty string is null for any type.

    Args:
        text: as in the log.
        data_type: the type of the column.
        column: its name, for errors.
        zone: the zone of timestamps without an offset, see :attr:`StructField.zone`; None for UTC.

    Raises:
        InvalidLogError: the text is no value of the type.
    """
    if text is None or text == "":
        return None
    try:
        return parse_value(text, data_type, zone=zone)
    except ValueError as error:
        raise InvalidLogError(f"the partition value of {column} is not valid: {error}") from None


def of_column(text: str | None, column: StructField) -> Any:
    """The internal value that a partition column is read with: as :func:`parse` says, but of char(n) padded.

    Raises:
        InvalidLogError: the text is no value of the column's type.
    """
    value = parse(text, column.type, column=column.name, zone=column.zone)
    length = padding_of(column)
    return padded(value, length.limit) if isinstance(value, str) and isinstance(length, Length) else value


def parse_value(text: str, data_type: DataType, *, zone: str | None = None) -> Any:
    """The internal value of a text that is not empty; timestamps without an offset are of ``zone``, or else of UTC.

    Raises:
        ValueError: the text is no value of the type.
    """
    if data_type == STRING:
        return text
    if data_type in INTEGRAL:
        return parse_integer(text, INTEGRAL[data_type])
    if isinstance(data_type, DecimalType):
        return parse_decimal(text, data_type)
    if data_type in (DOUBLE, FLOAT):
        return parse_float(text)
    if data_type == BOOLEAN:
        return _boolean(text)
    if data_type == DATE:
        return parse_date(re.split(r"[ T]", text.strip(), maxsplit=1)[0])  # some writers let a time of day follow
    if data_type == TIMESTAMP:
        return parse_timestamp(text, local=zone)
    if data_type == TIMESTAMP_NTZ:
        return parse_timestamp(text, zone=False)
    if data_type == BINARY:
        # The specification's escapes are those of JSON, resolved already. Spark takes the characters' UTF-8 bytes.
        return text.encode("utf-8", "surrogatepass")
    if data_type == VOID:
        return None
    if data_type in (INTERVAL_YEAR_MONTH, INTERVAL_DAY_TIME):
        return _interval(text, data_type)
    raise ValueError(f"a column of type {data_type} cannot partition a table")


_INTERVALS: dict[DataType, re.Pattern[str]] = {
    INTERVAL_YEAR_MONTH: re.compile(r"INTERVAL '([+-]?)(\d{1,9})-(\d{1,2})' YEAR TO MONTH", re.ASCII),
    INTERVAL_DAY_TIME: re.compile(
        r"INTERVAL '([+-]?)(\d{1,9}) (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))?' DAY TO SECOND", re.ASCII
    ),
}


def _interval(text: str, data_type: DataType) -> int:
    """The months or microseconds of an interval in the form of ANSI's SQL."""
    found = _INTERVALS[data_type].fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an {data_type}")
    if data_type == INTERVAL_YEAR_MONTH:
        limit, size = 1 << 31, int(found[2]) * 12 + int(found[3])
    else:
        days, hours, minutes, seconds = map(int, found.groups()[1:5])
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        limit, size = 1 << 63, whole * 1_000_000 + int((found[6] or "").ljust(6, "0"))
    value = -size if found[1] == "-" else size
    if not -limit <= value < limit:
        raise ValueError(f"{text!r} is beyond the range of an {data_type}")
    return value


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{text!r} is not a boolean")


def serialize(value: Any, data_type: DataType, *, column: str = "a partition column") -> str | None:
    """The string of an internal value, or None for null; an empty string or binary value becomes null, as the protocol
    wants.

    Raises:
        SchemaMismatchError: the value has no string that every reader takes back to the same value.
    """
    if value is None or value in ("", b""):
        return None
    if data_type == STRING or data_type in INTEGRAL:
        return str(value)
    if data_type == BOOLEAN:
        return "true" if value else "false"
    if isinstance(data_type, DecimalType):
        return format(value, "f")
    if data_type in (DOUBLE, FLOAT):
        return format_float(value)
    if data_type == DATE:
        return format_date(value)
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return format_timestamp(value, zone=data_type == TIMESTAMP)
    if data_type == BINARY:
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            raise SchemaMismatchError(
                f"{column}: a binary partition value must be UTF-8, as others could not read it back"
            ) from None
    if data_type == VOID:
        return None
    raise SchemaMismatchError(f"{column}: a column of type {data_type} cannot partition a table")


def format_float(value: float) -> str:
    """A float by its shortest text, special values by Java's names."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
