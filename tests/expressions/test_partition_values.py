"""Partition values: what is written is read back, and what other writers write is read."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.errors import InvalidLogError, SchemaMismatchError
from refdelta.table import partition_values as pv
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DecimalType,
)

DEC = DecimalType(10, 3)
VALUES = st.one_of(
    st.tuples(st.just(LONG), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(BYTE), st.integers(-128, 127)),
    st.tuples(st.just(STRING), st.text(st.characters(codec="utf-8"), min_size=1)),
    st.tuples(st.just(DOUBLE), st.floats()),
    st.tuples(st.just(BOOLEAN), st.booleans()),
    st.tuples(st.just(DATE), st.integers(-(2**31), 2**31 - 1).filter(lambda d: abs(d) < 300_000_000)),
    st.tuples(st.just(TIMESTAMP), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(TIMESTAMP_NTZ), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(DEC), st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-3))),
    st.tuples(st.just(BINARY), st.text(st.characters(codec="utf-8"), min_size=1).map(str.encode)),
    st.tuples(st.sampled_from([LONG, STRING, DATE, VOID]), st.none()),
)


@given(VALUES)
def test_values_round_trip(case):
    kind, value = case
    back = pv.parse(pv.serialize(value, kind), kind)
    assert back == value or (isinstance(value, float) and math.isnan(value) and math.isnan(back))


@given(st.dates())
def test_the_calendar_is_pythons(day):
    days = (day - dt.date(1970, 1, 1)).days
    assert pv.days_of(day.year, day.month, day.day) == days
    assert pv.date_of(days) == (day.year, day.month, day.day)
    assert pv.format_date(days) == day.isoformat()


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_timestamps_are_pythons(moment):
    micros = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    text = pv.format_timestamp(micros, zone=True)
    assert dt.datetime.fromisoformat(text) == moment
    assert pv.parse_timestamp(text) == micros


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("", STRING, None),
        ("", LONG, None),
        (None, DATE, None),
        ("true", BOOLEAN, True),
        ("FALSE", BOOLEAN, False),
        ("-128", BYTE, -128),
        ("+7", SHORT, 7),
        ("2021-01-02", DATE, 18_629),
        ("2021-1-2", DATE, 18_629),
        ("2021", DATE, 18_628),
        ("2021-1", DATE, 18_628),
        ("2021-01-02T", DATE, 18_629),
        ("2021-01-02 10:00:00", DATE, 18_629),
        ("+10000-01-01", DATE, 2_932_897),
        ("0000-01-01", DATE, -719_528),
        ("2021-01-01 00:00:00", TIMESTAMP, 1_609_459_200_000_000),
        ("2021-01-01 00:00:00.5", TIMESTAMP, 1_609_459_200_500_000),
        ("2021-01-01 00:00:00.123456", TIMESTAMP_NTZ, 1_609_459_200_123_456),
        ("2021-01-01T00:00:00.000000Z", TIMESTAMP, 1_609_459_200_000_000),
        ("2021-01-01T00:00:00Z", TIMESTAMP_NTZ, 1_609_459_200_000_000),
        ("2021-01-01T01:00:00+01:00", TIMESTAMP, 1_609_459_200_000_000),
        ("2020-12-31 19:00:00-0500", TIMESTAMP, 1_609_459_200_000_000),
        ("2021-01-01 00:00:00.123456789", TIMESTAMP, 1_609_459_200_123_456),
        ("2021-01-01", TIMESTAMP, 1_609_459_200_000_000),
        ("1.50", DEC, Decimal("1.500")),
        ("1E+2", DEC, Decimal("100.000")),
        ("1.0E10", DOUBLE, 1e10),
        ("-Infinity", DOUBLE, -math.inf),
        ("\x01a", BINARY, b"\x01a"),
    ],
)
def test_what_other_writers_write(text, kind, value):
    assert pv.parse(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", LONG),
        ("128", BYTE),
        ("1.5", INTEGER),
        ("9" * 100, LONG),
        ("\u0661", LONG),
        ("1_000", LONG),
        ("maybe", BOOLEAN),
        ("2021-02-30", DATE),
        ("2021-13-01", DATE),
        ("21-01-01", DATE),
        ("2021-01-01 25:00:00", TIMESTAMP),
        ("2021-01-01T00:00:00+01:00", TIMESTAMP_NTZ),
        ("2021-01-01 x", TIMESTAMP),
        ("2021-01-01 00:00:00 Mars", TIMESTAMP),
        ("1.2345", DEC),
        ("99999999.0", DEC),
        ("1e400000000", DEC),
        ("NaN", DEC),
        ("one", DOUBLE),
        ("2021-01-01 00:00:00+19:00", TIMESTAMP),
        ("[1]", ArrayType(LONG)),
    ],
)
def test_what_is_no_value_is_an_invalid_log_that_names_the_column(text, kind):
    with pytest.raises(InvalidLogError, match="partition value of c is not valid"):
        pv.parse(text, kind, column="c")


def test_what_spark_writes_is_what_we_write():
    assert pv.serialize(1_609_459_200_123_456, TIMESTAMP) == "2021-01-01T00:00:00.123456Z"
    assert pv.serialize(1_609_459_200_123_456, TIMESTAMP_NTZ) == "2021-01-01 00:00:00.123456"
    assert pv.serialize(True, BOOLEAN) == "true"
    assert pv.serialize(Decimal("1.500"), DEC) == "1.500"
    assert pv.serialize(math.nan, DOUBLE) == "NaN"
    assert pv.serialize("", STRING) is None
    assert pv.serialize(b"", BINARY) is None


def test_what_has_no_text_is_refused():
    with pytest.raises(SchemaMismatchError, match="c: a binary partition value must be UTF-8"):
        pv.serialize(b"\xff", BINARY, column="c")
    with pytest.raises(SchemaMismatchError, match="cannot partition"):
        pv.serialize([1], ArrayType(LONG))


@given(
    st.decimals(allow_nan=True, allow_infinity=True),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s))),
)
def test_decimals_fit_exactly_or_not_at_all(value, kind):
    try:
        fitted = pv.fit_decimal(value, kind)
    except ValueError:
        fits = (
            value.is_finite()
            and abs(value) < Decimal(10) ** (kind.precision - kind.scale)
            and value.as_tuple().exponent >= -kind.scale
        )
        assert not fits
        return
    assert fitted == value
    assert -fitted.as_tuple().exponent == kind.scale


NOON = 1_719_828_000_000_000  # 2024-07-01 10:00 UTC


@pytest.mark.parametrize(
    "zone",
    ["+02:00", "+2", "+02:0", "UTC+2", "UT+02:00", " Europe/Berlin", "Europe/Berlin", " CAT"],
)
def test_a_timestamp_names_its_zone_as_in_spark(zone):
    text = f"2024-07-01 12:00:00{zone}"
    assert pv.parse_timestamp(text) == NOON
    with pytest.raises(ValueError, match="without time zone"):
        pv.parse_timestamp(text, zone=False)


@pytest.mark.parametrize(
    "text",
    [
        "2024-07-01 12:00:00[Europe/Berlin]",
        "2024-07-01 12:00:00 europe/berlin",
        "2024-07-01 12:00:00 Europe",
        "2024-07-01 12:00:00 ../Berlin",
        "2024-07-01 12:00:00 Europe/../Berlin",
        "2024-07-01 12:00:00 localtime",
        "2024-07-01 Europe/Berlin",
    ],
)
def test_other_words_are_no_zone(text):
    with pytest.raises(ValueError, match=r"not a timestamp|normalized"):
        pv.parse_timestamp(text)


def test_a_time_without_zone_is_of_the_one_that_is_given():
    assert pv.parse_timestamp("2024-07-01 12:00:00", local="Europe/Berlin") == NOON
    assert pv.parse_timestamp("2024-07-01 10:00:00Z", local="Europe/Berlin") == NOON
    assert pv.parse_timestamp("2024-07-01 10:00:00") == NOON
    # The calendar repeats every 400 years, and its changes of clocks with it.
    later = pv.days_of(12024, 7, 1) - pv.days_of(2024, 7, 1)
    assert pv.parse_timestamp("+12024-07-01 12:00:00 Europe/Berlin") == NOON + later * pv.DAY
