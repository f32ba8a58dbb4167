"""Shortened strings stay bounds, and statistics that are not what they should be are none.

Tests of core.log.statistics.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.statistics import FileStats, parse_stats
from refdelta.pruning.stats import truncate_max, truncate_min

MAX = "\U0010ffff"
TEXT = st.text(
    st.one_of(
        st.sampled_from(["a", "\x7f", "\x80", "\ufffd", "\uffff", "\U0001f680", MAX]), st.characters(codec="utf-8")
    ),
    max_size=20,
)


@given(TEXT, st.integers(1, 6), TEXT)
def test_bounds_hold_in_the_order_of_bytes(value, n, tail):
    low, high = truncate_min(value, n), truncate_max(value, n)
    assert low.encode() <= value.encode()
    assert len(low) <= n
    if high is None:
        assert value[n : 2 * n + 1] == MAX * (n + 1)
        return
    assert value.encode() <= high.encode()
    assert len(high) <= 2 * n + 1
    # Whatever else has the same prefix is below, too, unless nothing was cut.
    assert high == value or (high[:-1] + tail[:0]).encode() < high.encode()


# As delta-spark has it, in characters instead of UTF-16 units.
@pytest.mark.parametrize(
    ("value", "n", "expected"),
    [
        ("abcd", 6, "abcd"),
        ("abcdef", 6, "abcdef"),
        ("abcdef-abcdef", 6, "abcdef\x7f"),
        ("abcdef\ufffd", 6, "abcdef" + MAX),
        ("abcdef\x7f", 6, "abcdef" + MAX),
        ("abcdef\U0001f680", 6, "abcdef" + MAX),
        ("a" + MAX + "d", 2, "a" + MAX + "\x7f"),
        (MAX * 4, 1, None),
        (MAX * 2, 1, MAX * 2),
        (MAX * 3 + "a", 2, MAX * 3 + "\x7f"),
    ],
)
def test_maxima(value, n, expected):
    assert truncate_max(value, n) == expected


def test_the_default_is_32_characters():
    assert truncate_min("x" * 40) == "x" * 32
    assert truncate_max("x" * 40) == "x" * 32 + "\x7f"


def test_statistics_round_trip():
    text = (
        '{"numRecords":3,"tightBounds":false,"minValues":{"a":1,"s":{"x":"y"}},"maxValues":{"a":2},"nullCount":{"a":0}}'
    )
    stats = parse_stats(text)
    assert stats == FileStats(
        num_records=3,
        tight_bounds=False,
        min_values={"a": 1, "s": {"x": "y"}},
        max_values={"a": 2},
        null_count={"a": 0},
    )
    assert not stats.tight
    assert msgspec.json.encode(stats).decode() == text
    assert parse_stats("{}").tight


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "3", '{"numRecords":"3"}', '{"minValues":[]}', "[[[[", '{"a":"\ud83d"}']
)
def test_what_is_no_statistics_is_none(text):
    assert parse_stats(text) is None
