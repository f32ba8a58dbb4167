"""Columns as Python's values: times that Python does not have are text, as Spark shows them, and nothing is raised."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from refdelta.arrow.python_values import far_text, has_far_times, python_rows, python_value, python_values

DAYS = {2_932_896: dt.date(9999, 12, 31), 2_932_897: "+10000-01-01", -719_162: dt.date(1, 1, 1), -719_163: "0000-12-31"}
DAYS |= {-(2**31): "-5877641-06-23", 2**31 - 1: "+5881580-07-11", -719_529: "-0001-12-31"}
DATES = pa.array(list(DAYS), pa.int32()).view(pa.date32())
TIMES = {
    253_402_300_799_999_999: dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    253_402_300_800_000_000: "+10000-01-01 00:00:00",
    -62_135_596_800_000_001: "0000-12-31 23:59:59.999999",
    2**63 - 1: "+294247-01-10 04:00:54.775807",
    -(2**63): "-290308-12-21 19:59:05.224192",
}
MICROS = pa.array(list(TIMES), pa.int64())


def test_dates_of_any_year():
    assert python_values(DATES) == list(DAYS.values())
    assert python_values(pa.chunked_array([DATES, DATES])) == list(DAYS.values()) * 2


def test_times_of_any_year():
    walls = MICROS.view(pa.timestamp("us"))
    assert python_values(walls) == list(TIMES.values())
    assert python_values(MICROS.view(pa.timestamp("us", "UTC")))[1] == "+10000-01-01 00:00:00+00:00"
    assert python_values(MICROS.view(pa.timestamp("us", "UTC")), iso=True)[1] == "+10000-01-01T00:00:00Z"
    assert python_values(walls, iso=True)[2] == "0000-12-31T23:59:59.999999"
    for unit, number in (("s", 253_402_300_800), ("ms", 253_402_300_800_000)):
        assert python_value(pa.array([number], pa.int64()).view(pa.timestamp(unit))[0]) == "+10000-01-01 00:00:00"


@pytest.mark.parametrize("null", [False, True])
def test_times_in_nested_columns(null):
    day = pa.array([2_932_897], pa.int32()).view(pa.date32())
    struct = pa.StructArray.from_arrays([day, pa.array(["x"])], ["d", "s"])
    lists = pa.ListArray.from_arrays([0, 1], struct)
    maps = pa.MapArray.from_arrays([0, 1], pa.array(["k"]), lists)
    column = pa.concat_arrays([maps, pa.nulls(1, maps.type)]) if null else maps
    assert python_values(column) == [{"k": [{"d": "+10000-01-01", "s": "x"}]}] + [None] * null


def test_rows_and_columns_that_hold_no_times_are_as_arrow_has_them():
    table = pa.table({"a": [1, None], "s": ["x", ""], "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int8()))})
    assert python_rows(table) == table.to_pylist(maps_as_pydicts="lossy")
    assert python_rows(table.select([])) == [{}, {}]
    assert python_rows(table.slice(0, 0)) == []


def test_only_columns_with_far_times_have_them():
    assert has_far_times(MICROS.view(pa.timestamp("us")))
    assert not has_far_times(pa.array([0, None], pa.timestamp("us", "UTC")))
    assert not has_far_times(pa.array([], pa.timestamp("us")))
    assert not has_far_times(pa.array(["x"]))
    assert has_far_times(DATES)
    assert not has_far_times(DATES.slice(0, 1))
    assert far_text(pa.scalar(0, pa.timestamp("us", "UTC"))) == "1970-01-01 00:00:00+00:00"
