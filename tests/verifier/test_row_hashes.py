"""Numbers of rows: equal where the rows are, whatever their layout and order, and different where they are not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.verifier.change_files import numbers, row_numbers, row_sum
from tiers import examples

VALUES = {
    pa.int8(): [-1, 0, 1, None],
    pa.int64(): [-(2**63), 0, 2**63 - 1, None],
    pa.bool_(): [True, False, None],
    pa.float32(): [0.5, 0.0, None, 1.0],
    pa.float64(): [float("inf"), 0.1, 0.0, None, float("nan")],
    pa.string(): ["", "a", "b", "ab", "ba", "a\0", None, "é" * 300],
    pa.binary(): [b"", b"\0", b"\0\0", None],
    pa.date32(): [dt.date(1500, 1, 1), dt.date(2020, 1, 1), None],
    pa.timestamp("us", "UTC"): [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None],
    pa.decimal128(38, 2): [Decimal("1.00"), Decimal("-1.00"), Decimal(10**30), None],
    pa.list_(pa.int32()): [[], [1], [1, 2], [2, 1], [None], None, [1, 1]],
    pa.struct([("x", pa.int32()), ("y", pa.string())]): [{"x": 1, "y": None}, {"x": None, "y": None}, None],
    pa.map_(pa.string(), pa.int32()): [[], [("a", 1)], [("a", 1), ("b", 2)], [("a", 2), ("b", 1)], None],
    pa.list_(pa.list_(pa.string())): [[["a"], ["b"]], [["a", "b"]], [[]], [], None],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_different_values_have_different_numbers(kind):
    found = numbers(pa.array(VALUES[kind], kind))
    assert len(set(found.tolist())) == len(VALUES[kind])


@pytest.mark.parametrize("kind", VALUES, ids=str)
@examples(20)
@given(st.data())
def test_a_slice_in_another_order_has_the_same_ones(kind, data):
    values = data.draw(st.lists(st.sampled_from(range(len(VALUES[kind]))), min_size=1))
    array = pa.array([VALUES[kind][at] for at in values], kind)
    begin = data.draw(st.integers(0, len(values)))
    assert numbers(array[begin:]).tolist() == numbers(array).tolist()[begin:]
    whole = numbers(pa.array(VALUES[kind], kind)).tolist()
    assert numbers(array).tolist() == [whole[at] for at in values]
    rows = pa.record_batch({"c": array, "n": pa.array(values)})
    order = pa.array(data.draw(st.permutations(range(len(values)))))
    again = pa.record_batch({"c": array.take(order), "n": pa.array(values).take(order)})
    assert row_sum(row_numbers(rows)) == row_sum(row_numbers(again))


def test_layouts_and_zeros_do_not_count():
    texts = pa.array(["a", None, "b", "a"])
    same = [texts.dictionary_encode(), texts.cast(pa.large_string()), texts.cast(pa.string_view())]
    assert all(numbers(array).tolist() == numbers(texts).tolist() for array in same)
    assert len(set(numbers(pa.array([0.0, -0.0])).tolist())) == 1
    maps = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int32()))
    assert len(set(numbers(maps).tolist())) == 1


def test_which_column_has_a_value_counts():
    one, other = ({"a": [1], "b": [2]}, {"a": [2], "b": [1]})
    assert row_sum(row_numbers(pa.record_batch(one))) != row_sum(row_numbers(pa.record_batch(other)))
