"""``date_format``: what patterns make of a time, and which are refused.

Tests of expressions.time_format.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.errors import PredicateError
from refdelta.expressions.expression import to_sql
from refdelta.expressions.sql import parse_expression
from refdelta.expressions.time_format import format_time, format_times
from refdelta.table.types import TIMESTAMP, StructField, StructType

SCHEMA = StructType((StructField("at", TIMESTAMP),))
AT = -62_135_596_800_000_001  # the last microsecond of the year 0


@pytest.mark.parametrize(
    ("micros", "pattern", "expected"),
    [
        (0, "yyyy-MM", "1970-01"),
        (-1, "yyyy-MM-dd-HH", "1969-12-31-23"),
        (-1, "yyyy-MM-dd'T'HH:mm:ss.SSS", "1969-12-31T23:59:59.999"),
        (-1, "SSSSSSSSS S", "999999000 9"),
        (AT, "yyyy y yy", "0000 0 00"),
        (AT - 366 * 86_400_000_000, "yyyy-MM-dd", "-0001-12-31"),
        (253_402_300_800_000_000, "yyyy yyyyy y", "+10000 10000 10000"),
        (0, "E EEEE MMM MMMM LLL D DDD", "Thu Thursday Jan January Jan 1 001"),
        (0, "h a, K, k, kk, q QQ QQQ", "12 AM, 0, 24, 24, 1 01 Q1"),
        (46_800_000_000, "hh a '' 'o''clock'", "01 PM ' o'clock"),
    ],
)
def test_patterns(micros, pattern, expected):
    assert format_time(micros, pattern) == expected
    assert format_times(pa.array([micros, None]), pattern).to_pylist() == [expected, None]


LETTERS = [
    "y",
    "yy",
    "yyy",
    "yyyy",
    "yyyyyy",
    "M",
    "MM",
    "MMM",
    "MMMM",
    "d",
    "dd",
    "D",
    "DDD",
    "H",
    "HH",
    "h",
    "K",
    "k",
]
LETTERS += ["m", "mm", "s", "ss", "S", "SSS", "SSSSSSSSS", "a", "E", "EEEE", "Q", "QQQ", "q"]


@given(st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_columns_are_formatted_as_values_are(letters, times):
    pattern = " ".join(letters)
    assert format_times(pa.array(times, pa.int64()), pattern).to_pylist() == [format_time(t, pattern) for t in times]


@pytest.mark.parametrize(
    "pattern", ["YYYY", "u", "yyyyyyy", "MMMMM", "ddd", "x", "VV", "[HH]", "aa", "'open", "B", "SSSSSSSSSS"]
)
def test_patterns_that_are_refused(pattern):
    text = pattern.replace("'", "''")
    with pytest.raises(PredicateError, match="in the pattern"):
        parse_expression(f"date_format(at, '{text}')", SCHEMA)


def test_what_it_takes():
    assert to_sql(parse_expression("date_format('2024-02-03', 'yyyy')", SCHEMA)).startswith("date_format(")
    assert to_sql(parse_expression("from_unixtime(0)", SCHEMA)) == "from_unixtime(0L, 'yyyy-MM-dd HH:mm:ss')"
    with pytest.raises(PredicateError, match="constant pattern"):
        parse_expression("date_format(at, concat('y', cast(at as string)))", SCHEMA)
