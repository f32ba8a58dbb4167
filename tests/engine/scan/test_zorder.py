"""The Z-curve: an order that is right for one column, fair to several, and the same whatever fits into memory."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.engine.parquet.dictionaries import plain
from refdelta.engine.scan import zorder
from refdelta.engine.scan.zorder import Curve, hilbert_ranks, z_ordered
from refdelta.errors import InvalidArgumentError
from tiers import examples


def reading(table, rows=1000):
    def read(columns):
        chosen = table if columns is None else table.select(list(columns))
        yield from chosen.to_batches(max_chunksize=rows)

    return read


def ordered(table, columns, **options):
    batches = list(z_ordered(reading(table), [tuple(name.split(".")) for name in columns], **options))
    return pa.Table.from_batches(batches, table.schema)


def spread(table, column, files=16):
    """The mean share of a column's range that a file has, if the rows were cut into so many files; strays apart."""
    values = table.column(column).to_numpy(zero_copy_only=False).astype(float)
    pieces = np.array_split(values, files)
    return float(np.mean([np.diff(np.percentile(piece, [2, 98])) for piece in pieces]) / np.ptp(values))


SORTABLE = {
    "long": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "double": (st.floats(), pa.float64()),
    "string": (st.text(max_size=4), pa.string()),
    "long strings": (st.text("ab", max_size=3).map(lambda end: "x" * 70 + end), pa.string()),
    "binary": (st.binary(max_size=3), pa.binary()),
    "boolean": (st.booleans(), pa.bool_()),
    "date": (st.dates(), pa.date32()),
    "timestamp": (st.datetimes().map(lambda t: t.replace(tzinfo=dt.UTC)), pa.timestamp("us", "UTC")),
    "decimal": (st.decimals(-1000, 1000, places=2, allow_nan=False), pa.decimal128(20, 2)),
}


def sort_key(value):
    """Null first, then values, then NaN; texts by their bytes."""
    if value is None:
        return 0, 0
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    return 1, value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("kind", SORTABLE)
@examples(25)
@given(data=st.data())
def test_one_column_is_sorted(kind, data):
    values, arrow = SORTABLE[kind]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=60))
    table = pa.table({"a": pa.array(rows, arrow), "n": list(range(len(rows)))})
    found = ordered(table, ["a"])
    assert sorted(found["n"].to_pylist()) == list(range(len(rows)))
    keys = [sort_key(value) for value in found["a"].to_pylist()]
    # -0.0 and 0.0 are one value.
    assert all(left <= right for left, right in itertools.pairwise(keys))


@examples(40)
@given(st.lists(st.tuples(*[st.none() | st.integers(0, 9)] * 3), min_size=1, max_size=80), st.integers(1, 3))
def test_a_row_that_is_higher_in_every_column_comes_later(rows, count):
    """What every curve through a grid keeps: it is monotone."""
    names = ["a", "b", "c"][:count]
    table = pa.table({name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate("abc")})
    found = ordered(table, names).select(names).to_pylist()
    points = [[-1 if row[name] is None else row[name] for name in names] for row in found]
    for earlier, later in itertools.combinations(points, 2):
        assert not all(low > high for low, high in zip(earlier, later, strict=True))


@pytest.mark.parametrize("memory", [None, 20_000])
def test_texts_may_be_dictionaries_in_some_batches(memory):
    rows = pa.table({"x": np.random.default_rng(3).permutation(5000), "t": [f"text {n % 90}" for n in range(5000)]})

    def read(columns):
        for number, batch in enumerate(rows.to_batches(max_chunksize=500)):
            if columns is None and number % 3:
                yield batch.set_column(1, "t", batch["t"].dictionary_encode())
            else:
                yield batch if columns is None else batch.select(list(columns))

    batches = [plain(batch) for batch in z_ordered(read, [("x",)], memory=memory)]
    assert pa.Table.from_batches(batches).equals(rows.sort_by("x"))


def test_several_columns_are_narrowed_alike():
    random = np.random.default_rng(3)
    rows = 40_000
    table = pa.table({"x": random.permutation(rows), "y": random.permutation(rows), "w": random.permutation(rows)})
    two = ordered(table, ["x", "y"])
    # A sixteenth of the rows is a square of a quarter by a quarter.
    assert max(spread(two, name) for name in "xy") < 0.27
    assert spread(two, "w") > 0.9
    three = ordered(table, ["x", "y", "w"])
    assert max(spread(three, name) for name in "xyw") < 0.6


def test_skewed_values_are_spread_by_rank():
    random = np.random.default_rng(4)
    values = random.exponential(size=(2, 20_000)) ** 8
    found = ordered(pa.table({"x": values[0], "y": values[1]}), ["x", "y"])
    ranks = pa.table({name: np.argsort(np.argsort(found[name].to_numpy())) for name in "xy"})
    assert max(spread(ranks, name) for name in "xy") < 0.3


def test_a_column_of_two_values_is_halved():
    random = np.random.default_rng(5)
    table = pa.table({"flag": random.random(10_000) < 0.5, "x": random.permutation(10_000)})
    found = ordered(table, ["flag", "x"])
    assert len(set(found["flag"][:4000].to_pylist())) == 1
    assert spread(found, "x") < 0.3


def test_seventy_columns():
    random = np.random.default_rng(6)
    table = pa.table({f"c{i}": random.permutation(500) for i in range(70)})
    found = ordered(table, table.column_names)
    assert sorted(found["c0"].to_pylist()) == list(range(500))
    # The first column's first bit is the first of all.
    assert sorted(found["c0"][:250].to_pylist()) == list(range(250))


def test_fields_of_structs():
    inner = pa.array([None if i % 7 == 0 else {"k": (i * 37) % 100} for i in range(100)])
    found = ordered(pa.table({"s": inner}), ["s.k"])
    assert [row["s"] is None for row in found.to_pylist()] == [True] * 15 + [False] * 85
    keys = [row["s"]["k"] for row in found.to_pylist()[15:]]
    assert keys == sorted(keys)


# --- more rows than memory ---------------------------------------------------------------------------------------


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("columns", [["x"], ["x", "s"]])
def test_what_does_not_fit_into_memory_is_ordered_alike(columns):
    random = np.random.default_rng(7)
    rows = 30_000
    table = pa.table(
        {"x": random.permutation(rows), "s": [f"{v:05}" for v in random.permutation(rows)], "n": np.arange(rows)}
    )
    whole, split = ordered(table, columns), ordered(table, columns, memory=100_000)
    assert sorted(split["n"].to_pylist()) == list(range(rows))
    assert split.equals(whole)


@pytest.mark.tier("test")
def test_ranks_from_a_sample_are_good_enough(monkeypatch):
    monkeypatch.setattr(zorder, "SAMPLE_ROWS", 1000)
    random = np.random.default_rng(8)
    rows = 30_000
    table = pa.table({"x": random.permutation(rows), "y": random.permutation(rows)})
    for memory in (None, 50_000):
        found = ordered(table, ["x", "y"], memory=memory)
        assert max(spread(found, name) for name in "xy") < 0.45


def test_rows_that_are_all_alike_come_through():
    table = pa.table({"x": [1] * 20_000, "n": list(range(20_000))})
    found = ordered(table, ["x"], memory=10_000)
    assert sorted(found["n"].to_pylist()) == list(range(20_000))


def test_one_value_in_most_rows():
    random = np.random.default_rng(9)
    values = np.where(random.random(20_000) < 0.9, 5, random.integers(0, 10, 20_000))
    found = ordered(pa.table({"x": values}), ["x"], memory=20_000)
    assert found["x"].to_pylist() == sorted(values.tolist())


def test_temporary_files_are_limited_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = pa.table({"x": np.random.default_rng(1).permutation(20_000)})
    with pytest.raises(InvalidArgumentError, match="max_temp_directory_size"):
        ordered(table, ["x"], memory=20_000, disk=50_000)
    assert list(tmp_path.iterdir()) == []
    batches = z_ordered(reading(table), [("x",)], memory=20_000, disk=10**6)
    next(batches)
    assert list(tmp_path.iterdir())
    batches.close()
    assert list(tmp_path.iterdir()) == []


def test_no_rows():
    assert list(z_ordered(reading(pa.table({"x": pa.array([], pa.int64())})), [("x",)])) == []


def test_the_curve_of_values_that_the_sample_lacks():
    curve = Curve(pa.table({"x": [Decimal(10), Decimal(20)]}), [("x",)])
    places = curve.places(pa.table({"x": [None, Decimal(5), Decimal(15), Decimal(25)]})).tolist()
    assert places == sorted(places)
    assert places[0] == places[1] < places[2] < places[3]


@pytest.mark.parametrize(("columns", "bits"), [(1, 5), (2, 4), (3, 3), (4, 2)])
def test_neighbours_on_hilberts_curve_touch(columns, bits):
    grid = np.indices((1 << bits,) * columns).reshape(columns, -1).astype(np.uint64)
    turned = hilbert_ranks(list(grid), bits)
    place = np.zeros(grid.shape[1], np.uint64)
    for bit in reversed(range(bits)):
        for rank in turned:
            place = place << np.uint64(1) | (rank >> np.uint64(bit)) & np.uint64(1)
    assert sorted(place.tolist()) == list(range(grid.shape[1]))  # each square once
    path = grid[:, np.argsort(place)].astype(np.int64)
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()
