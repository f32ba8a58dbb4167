"""Arrays of values, and rows picked from batches: the same whichever way is taken for what they are."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.arrow import arrays, partition
from refdelta.arrow.arrays import (
    array_of,
    check_decimals,
    check_values,
    filter_rows,
    nested_array,
    take_rows,
    text_of,
)
from refdelta.engine.scan.reader import rows_only
from refdelta.errors import NotEnoughMemoryError
from tiers import examples

ROWS = 20


def batch_of(columns):
    every = {
        "i": pa.array([None if i % 5 == 0 else i for i in range(ROWS)], pa.int64()),
        "s": pa.array([f"text {i}" for i in range(ROWS)]),
        "l": pa.array([[i] * (i % 3) for i in range(ROWS)]),
        "r": pa.array([None if i % 4 == 0 else {"x": i} for i in range(ROWS)]),
    }
    return pa.record_batch({name: every[name] for name in columns}) if columns else rows_only(ROWS)


@pytest.mark.parametrize("columns", [["i", "s", "l", "r"], []])
@given(few=st.sets(st.integers(0, ROWS - 1), max_size=ROWS), invert=st.booleans(), unknown=st.sets(st.integers(0, 19)))
@examples(40)
def test_rows_of_a_batch(columns, few, invert, unknown):
    batch = batch_of(columns)
    kept = [i for i in range(ROWS) if (i in few) != invert]
    mask = pa.array([None if i in unknown else i in kept for i in range(ROWS)], pa.bool_())
    for found, wanted in (
        (take_rows(batch, pa.array(kept, pa.uint64())), kept),
        (filter_rows(batch, mask), [i for i in kept if i not in unknown]),
    ):
        found.validate(full=True)
        assert found.num_rows == len(wanted)
        assert found.schema == batch.schema
        assert found.to_pylist() == [batch.slice(i, 1).to_pylist()[0] for i in wanted]


KINDS = {
    pa.string(): st.text(max_size=5),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False),
    pa.date32(): st.dates(),
    pa.decimal128(20, 4): st.decimals(-(10**15), 10**15, places=4),
    pa.decimal256(76, 0): st.decimals(-(10**75), 10**75, places=0),
}


@pytest.mark.tier("test")
@pytest.mark.parametrize("kind", KINDS, ids=str)
@examples(60)
@given(data=st.data())
def test_values_become_the_array_that_arrow_makes_of_them(kind, data):
    values = data.draw(st.lists(st.none() | KINDS[kind], max_size=20))
    made = array_of(values, kind)
    made.validate(full=True)
    assert made.type == kind
    assert made.to_pylist() == values


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, None], pa.float64()),
        ([math.nan, -0.0], pa.float64()),
        ([0, dt.date(2020, 1, 2)], pa.date32()),
        ([dt.datetime(2020, 1, 2, 3), None], pa.date32()),
        ([1, Decimal("2.5"), None], pa.decimal128(5, 2)),
        ([Decimal("1E+2"), Decimal("-0.00")], pa.decimal128(5, 2)),
        ([Decimal("0.125")], pa.decimal128(5, 2)),
        ([Decimal("1E+1000000")], pa.decimal128(5, 2)),
        ([Decimal("NaN")], pa.decimal256(50, 2)),
        ([1.5, "2"], pa.float64()),
        ([2**63], pa.int64()),
    ],
)
def test_values_of_several_types_are_what_arrow_says(values, kind):
    try:
        wanted = pa.array(values, kind)
    except (pa.ArrowException, OverflowError):
        with pytest.raises((pa.ArrowException, OverflowError)):
            array_of(values, kind)
    else:
        assert repr(array_of(values, kind).to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.tier("test")
@examples(40)
@given(texts=st.lists(st.none() | st.text(max_size=4), max_size=8), start=st.integers(0, 3))
def test_the_text_of_a_piece_of_a_column_is_that_of_its_values(texts, start):
    piece = pa.array(texts, pa.string()).slice(start)
    assert text_of(piece).decode() == "".join(text or "" for text in texts[start:])


NESTED = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", pa.map_(pa.string(), pa.string()))])),
        ("columns", pa.list_(pa.field("element", pa.string()))),
        ("time", pa.int64()),
        ("removed", pa.bool_()),
    ]
)
PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.text(max_size=3)), max_size=3)
STRUCTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.text(max_size=3),
        "format": st.none() | st.fixed_dictionaries({}, optional={"provider": st.text(max_size=2), "options": PAIRS}),
        "columns": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=3),
        "time": st.none() | st.integers(-(2**63), 2**63 - 1),
        "removed": st.none() | st.booleans(),
    },
)


@given(st.lists(st.none() | STRUCTS, max_size=4))
@examples(60)
def test_values_of_any_depth(values):
    found = nested_array(values, NESTED)
    found.validate(full=True)
    assert found.equals(pa.array(values, NESTED))


def decimals(numbers, precision):
    """Decimals of 128 bits that may have more digits than their type."""
    data = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
    return pa.Array.from_buffers(pa.decimal128(precision, 2), len(numbers), [None, pa.py_buffer(data)])


@pytest.mark.parametrize("precision", [1, 9, 18, 19, 38])
@pytest.mark.parametrize("place", [0, 1, 4_500, 8_998, 8_999])
def test_decimals_with_too_many_digits_are_found_among_many(precision, place):
    most = 10**precision - 1
    for number in (0, most, -most, most + 1, -most - 1, 2**64 + 1, -(2**64), 2**127 - 1):
        numbers = [7] * 9_000
        numbers[place] = number
        column = decimals(numbers, precision)
        rest = [column.slice(place + 1), column.slice(0, place)]
        for check in (check_values, check_decimals):
            for part in [column, *rest] if abs(number) <= most else rest:
                check(pa.record_batch([part], ["d"]))
            for part in [column, column.slice(place), column.slice(0, place + 1)] if abs(number) > most else []:
                with pytest.raises(pa.ArrowInvalid, match="does not fit"):
                    check(pa.record_batch([part], ["d"]))


def test_decimals_that_need_no_check_by_arrow():
    sound = decimals([7] * 5_000, 18)
    assert arrays._has_few_digits(sound)
    assert arrays._has_few_digits(sound.slice(1))
    for other in (
        decimals([-7] * 5_000, 18),
        decimals([7] * 5_000, 19),
        sound.slice(0, 10),
        pa.concat_arrays([sound, pa.nulls(1, sound.type)]),
        pa.array([7] * 5_000, pa.int64()),
    ):
        assert not arrays._has_few_digits(other)


def chunked(*lengths):
    """A table of strings, lists and numbers in chunks of these lengths."""
    first, parts = 0, []
    for length in lengths:
        numbers = range(first, first + length)
        columns = {"i": pa.array(numbers, pa.int64()), "s": pa.array([f"text {n}" for n in numbers], pa.string())}
        columns["m"] = pa.array([[(f"k{n}", None)] * (n % 3) for n in numbers], pa.map_(pa.string(), pa.string()))
        columns["r"] = pa.array(
            [None if n % 4 == 0 else {"x": "y" * n} for n in numbers], pa.struct([("x", pa.string())])
        )
        parts.append(pa.record_batch(columns))
        first += length
    return pa.Table.from_batches(parts, parts[0].schema)


@pytest.mark.parametrize("lengths", [(0,), (7,), (3, 0, 5), (1, 1, 1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("limit", [100, 2**31 - 1])
def test_pieces_are_the_table_and_each_is_below_the_limit(monkeypatch, lengths, limit):
    table = chunked(*lengths)
    monkeypatch.setattr(arrays, "TEXT_BYTES", limit)
    parts = list(arrays.pieces(table, 4))
    assert pa.concat_tables(parts).equals(table)
    assert all(part.num_rows <= 4 and (part.num_rows < 2 or part.nbytes <= limit) for part in parts)
    assert len(parts) == 1 or all(part.num_rows for part in parts)


@pytest.mark.parametrize("lengths", [(0,), (7,), (3, 0, 5), (1, 1, 1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize(("limit", "most"), [(100, 100), (100, 3), (2**31 - 1, 3), (2**31 - 1, 100)])
@pytest.mark.parametrize("numbers", [[], [2], [6, 0, 3, 3, 1], [0, 1, 2, 3, 4, 5, 6]])
def test_rows_by_number_are_those_of_arrow(monkeypatch, lengths, limit, most, numbers):
    table, wanted = chunked(*lengths), pa.array([n for n in numbers if n < sum(lengths)], pa.int64())
    expected = table.take(wanted)
    monkeypatch.setattr(arrays, "TEXT_BYTES", limit)
    monkeypatch.setattr(arrays, "PIECE_ROWS", most)
    assert arrays.take(table, wanted).equals(expected)


@pytest.mark.parametrize("limit", [20, 2**31 - 1])
@pytest.mark.parametrize("others", [[], [["text 1"]], [["text 1", "text 9"], [], ["text 3"]]])
def test_values_among_others(monkeypatch, limit, others):
    values, others = chunked(3, 4)["s"], pa.chunked_array(others, pa.string())
    monkeypatch.setattr(arrays, "TEXT_BYTES", limit)
    known = others.to_pylist()
    assert arrays.is_among(values, others).to_pylist() == [text in known for text in values.to_pylist()]


@pytest.mark.parametrize("column", ["s", "m", "r"])
def test_strings_beyond_the_limit_are_one_error_at_any_depth(monkeypatch, column):
    table = chunked(5, 6)
    whole = arrays.one_array(table[column])
    size = arrays._text_bytes([whole])
    monkeypatch.setattr(arrays, "TEXT_BYTES", size)
    assert arrays.one_array(table[column]).equals(whole)
    monkeypatch.setattr(arrays, "TEXT_BYTES", size - 1)
    message = f"11 values of a column have {size:,} bytes of strings together; at most {size - 1:,} can be"
    with pytest.raises(NotEnoughMemoryError, match=message):
        arrays.one_array(table[column])
    with pytest.raises(NotEnoughMemoryError):
        arrays.one_batch(table)
    assert arrays.one_array(table["i"]).to_pylist() == list(range(11))
    assert arrays.few_chunks(table).equals(table)


def test_many_partition_columns_are_looked_up_as_few_are(monkeypatch):
    maps = pa.array(
        [[("a", "1"), ("x", "2"), ("a", "3")], [], None, [("b", None), ("é", "")], [("b", "4"), ("unknown", "5")]],
        pa.map_(pa.string(), pa.string()),
    )
    names = ["b", "a", "missing", "é"]
    few = [column.to_pylist() for column in partition._looked_up(maps, names)]
    monkeypatch.setattr(partition, "_FEW_COLUMNS", 0)
    many = [column.to_pylist() for column in partition._looked_up(maps.slice(0), names)]
    assert (
        many
        == few
        == [[None, None, None, None, "4"], ["1", None, None, None, None], [None] * 5, [None] * 3 + ["", None]]
    )
    tail = [column.to_pylist() for column in partition._looked_up(maps.slice(3), names)]
    assert tail == [column[3:] for column in few]
