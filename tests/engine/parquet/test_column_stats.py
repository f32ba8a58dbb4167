"""Statistics bound the data, whatever it is, and say what delta-spark's say."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from refdelta.arrow.schema import from_arrow, to_arrow
from refdelta.engine.parquet import column_stats
from refdelta.engine.parquet.column_stats import StatsCollector, stats_leaves
from refdelta.table.properties import TableProperties
from tiers import examples


def leaves_of(schema, partition_columns=(), clustering=(), **configuration):
    properties = TableProperties.parse({f"delta.{name}": value for name, value in configuration.items()})
    return stats_leaves(from_arrow(schema), list(partition_columns), properties, clustering)


def paths(leaves):
    return [".".join(leaf.path) for leaf in leaves]


def stats_of(table, **configuration):
    table = table.cast(to_arrow(from_arrow(table.schema)))
    collector = StatsCollector(leaves_of(table.schema, **configuration))
    collector.update(table)
    return json.loads(collector.json(), parse_float=Decimal)


def column(values, kind=None):
    return stats_of(pa.table({"c": pa.array(values, kind)}))


def bounds(values, kind=None):
    stats = column(values, kind)
    return stats.get("minValues", {}).get("c"), stats.get("maxValues", {}).get("c")


def get(tree, path):
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def decoded(value, kind):
    """A bound as a value of the column's type."""
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(value)
    return value


@pytest.mark.tier("test")
@examples(100)
@given(table=strategies.tables(parts=(1, 1), partitions=(0, 0)))
def test_bounds_hold_and_nulls_are_counted(table):
    data = table.whole.cast(to_arrow(from_arrow(table.schema)))
    stats = stats_of(data)
    assert stats["numRecords"] == data.num_rows
    assert stats["tightBounds"] is True
    for leaf in leaves_of(data.schema):
        values = data.column(leaf.path[0]).to_pylist()
        kind = data.schema.field(leaf.path[0]).type
        for name in leaf.path[1:]:
            values = [None if value is None else value[name] for value in values]
            kind = kind.field(name).type
        present = [value for value in values if value is not None]
        assert get(stats["nullCount"], leaf.path) == len(values) - len(present)
        low, high = get(stats.get("minValues", {}), leaf.path), get(stats.get("maxValues", {}), leaf.path)
        if pa.types.is_floating(kind):
            if any(math.isnan(value) or value == math.inf for value in present):
                assert high is None
            if -math.inf in present:
                assert low is None
            present = [value for value in present if not math.isnan(value)]
        if low is not None:
            assert all(decoded(low, kind) <= value for value in present)
        if high is not None:
            assert all(value <= decoded(high, kind) for value in present)


def test_a_batch_of_nan_bounds_nothing():
    batches = [pa.table({"id": [math.nan]}), pa.table({"id": [0.5]})]
    collector = StatsCollector(leaves_of(batches[0].schema))
    for batch in batches:
        collector.update(batch)
    assert json.loads(collector.json())["minValues"] == {"id": 0.5}


@pytest.mark.tier("test")
@examples(100)
@given(table=strategies.tables(parts=(1, 2), partitions=(0, 0)))
def test_few_rows_have_the_statistics_of_many(table):
    data = table.whole.cast(to_arrow(from_arrow(table.schema)))
    few = stats_text(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_stats, "_FEW_ROWS", 0)
        assert few == stats_text(data)


def stats_text(data):
    collector = StatsCollector(leaves_of(data.schema))
    collector.update(data)
    return collector.json()


@pytest.mark.tier("test")
@examples(30)
@given(table=strategies.tables(parts=(2, 3), partitions=(0, 0)))
def test_batches_add_up(table):
    data = table.whole.cast(to_arrow(from_arrow(table.schema)))
    whole = StatsCollector(leaves_of(data.schema))
    whole.update(data)
    parts = StatsCollector(leaves_of(data.schema))
    for part in table.parts:
        for batch in part.cast(data.schema).to_batches(max_chunksize=3):
            parts.update(batch)
    assert parts.json() == whole.json()


@given(st.lists(strategies.texts(longest=90), min_size=1, max_size=4))
def test_long_strings_are_cut_and_still_bound(values):
    low, high = bounds(values, pa.string())
    assert low == min(values)[:32]
    assert high is None or (high >= max(values) and len(high) <= 65)


def test_sliced_columns_are_measured_within_their_slice():
    table = pa.table({"c": [9, 1, 2, None, 9], "s": [{"x": 9}, {"x": 1}, None, {"x": 2}, {"x": 9}]}).slice(1, 3)
    stats = stats_of(table)
    assert stats["minValues"] == {"c": 1, "s": {"x": 1}}
    assert stats["maxValues"] == {"c": 2, "s": {"x": 2}}
    assert stats["nullCount"] == {"c": 1, "s": {"x": 1}}


def test_a_null_struct_hides_what_its_buffers_hold():
    hidden = pa.StructArray.from_arrays([pa.array([1, 100], pa.int64())], names=["x"], mask=pa.array([False, True]))
    stats = stats_of(pa.table({"s": hidden}))
    assert stats["maxValues"] == {"s": {"x": 1}}
    assert stats["nullCount"] == {"s": {"x": 1}}


def test_floats():
    assert bounds([1.5, -2.0, None]) == (Decimal("-2.0"), Decimal("1.5"))
    # NaN is the greatest value: it is no minimum, and there is no number above it.
    assert bounds([math.nan, 1.5]) == (Decimal("1.5"), None)
    assert bounds([math.nan, math.nan]) == (None, None)
    assert bounds([-math.inf, 1.5]) == (None, Decimal("1.5"))
    assert bounds([math.inf, 1.5]) == (Decimal("1.5"), None)
    low, high = bounds([0.1], pa.float32())
    # All digits of the single: the bounds of a reader that takes doubles hold too.
    assert low == high == Decimal("0.10000000149011612")


def test_decimals_keep_all_digits():
    value = Decimal("1234567890123456789012345678.9012345678")
    table = pa.table({"c": pa.array([value, value.copy_negate()], pa.decimal128(38, 10))})
    collector = StatsCollector(leaves_of(table.schema))
    collector.update(table)
    assert f'"maxValues":{{"c":{value}}}' in collector.json()
    assert f'"minValues":{{"c":-{value}}}' in collector.json()
    assert '"c":0.0000000001' in _json(pa.array([Decimal("0.0000000001")], pa.decimal128(38, 10)))


def _json(array):
    collector = StatsCollector(leaves_of(pa.schema([("c", array.type)])))
    collector.update(pa.table({"c": array}))
    return collector.json()


@pytest.mark.parametrize(
    ("micros", "low", "high"),
    [
        (0, "1970-01-01T00:00:00.000", "1970-01-01T00:00:00.000"),
        (1, "1970-01-01T00:00:00.000", "1970-01-01T00:00:00.001"),
        (-1, "1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000"),
        (1_500, "1970-01-01T00:00:00.001", "1970-01-01T00:00:00.002"),
        (253402300799_999_999, "9999-12-31T23:59:59.999", None),
        (253402300800_000_000, None, None),
        (-62135596800_000_000, "0001-01-01T00:00:00.000", "0001-01-01T00:00:00.000"),
        (-62135596800_000_001, None, "0001-01-01T00:00:00.000"),
        (2**62, None, None),
    ],
)
def test_timestamps_are_widened_to_milliseconds(micros, low, high):
    assert bounds([micros], pa.timestamp("us")) == (low, high)
    assert bounds([micros], pa.timestamp("us", "UTC")) == (low and f"{low}Z", high and f"{high}Z")


def test_dates():
    assert bounds([dt.date(1582, 10, 10), dt.date(9999, 12, 31)]) == ("1582-10-10", "9999-12-31")
    assert bounds(pa.array([2932897], pa.int32()).cast(pa.date32())) == (None, None)
    assert bounds(pa.array([-800000, 5], pa.int32()).cast(pa.date32())) == (None, "1970-01-06")


def test_only_some_types_have_bounds():
    table = pa.table(
        {
            "bool": [True],
            "bin": [b"x"],
            "list": [[1]],
            "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
            "n": [1],
        }
    )
    stats = stats_of(table)
    assert stats["minValues"] == stats["maxValues"] == {"n": 1}
    assert stats["nullCount"] == {"bool": 0, "bin": 0, "list": 0, "map": 0, "n": 0}


def test_all_null_and_no_rows():
    assert column([None, None], pa.int64()) == {"numRecords": 2, "nullCount": {"c": 2}, "tightBounds": True}
    assert column([], pa.int64()) == {"numRecords": 0, "nullCount": {"c": 0}, "tightBounds": True}


def test_names_and_texts_are_escaped():
    stats = stats_of(pa.table({'q"\\': ['"\n\\é😀']}))
    assert stats["minValues"] == {'q"\\': '"\n\\é😀'}


# --- which columns -----------------------------------------------------------------------------------------------

NESTED = pa.schema(
    [
        ("p", pa.int64()),
        ("a", pa.int64()),
        ("s", pa.struct([("x", pa.int64()), ("t", pa.struct([("y", pa.int64()), ("z.z", pa.int64())]))])),
        ("l", pa.list_(pa.struct([("q", pa.int64()), ("r", pa.int64())]))),
        ("b", pa.string()),
    ]
)


def test_the_first_leaves_have_statistics():
    everything = ["a", "s.x", "s.t.y", "s.t.z.z", "l", "b"]
    assert paths(leaves_of(NESTED, ["p"])) == everything
    # A list is one leaf, and partition columns do not count.
    assert paths(leaves_of(NESTED, ["p"], dataSkippingNumIndexedCols="3")) == everything[:3]
    assert paths(leaves_of(NESTED, ["p"], dataSkippingNumIndexedCols="5")) == everything[:5]
    assert paths(leaves_of(NESTED, ["p"], dataSkippingNumIndexedCols="0")) == []
    wide = pa.schema([(f"c{i}", pa.int64()) for i in range(100)])
    assert len(leaves_of(wide)) == 32
    assert len(leaves_of(wide, dataSkippingNumIndexedCols="-1")) == 100


def test_chosen_columns_have_statistics():
    assert paths(leaves_of(NESTED, ["p"], dataSkippingStatsColumns="b,S.X")) == ["s.x", "b"]
    assert paths(leaves_of(NESTED, ["p"], dataSkippingStatsColumns="s.t")) == ["s.t.y", "s.t.z.z"]
    assert paths(leaves_of(NESTED, ["p"], dataSkippingStatsColumns="s.t.`z.z`")) == ["s.t.z.z"]
    assert paths(leaves_of(NESTED, ["p"], dataSkippingStatsColumns="s.t.z.z")) == []
    wide = pa.schema([(f"c{i}", pa.int64()) for i in range(100)])
    # They win over the number, and may lie beyond it.
    chosen = leaves_of(wide, dataSkippingStatsColumns="c99", dataSkippingNumIndexedCols="2")
    assert paths(chosen) == ["c99"]


def test_clustering_columns_have_statistics_in_any_case():
    by = [("b",), ("s", "t", "z.z")]
    assert paths(leaves_of(NESTED, clustering=by, dataSkippingNumIndexedCols="0")) == ["s.t.z.z", "b"]
    assert paths(leaves_of(NESTED, clustering=by, dataSkippingNumIndexedCols="2")) == ["p", "a", "s.t.z.z", "b"]
    assert paths(leaves_of(NESTED, clustering=by, dataSkippingStatsColumns="b,a")) == ["a", "s.t.z.z", "b"]


@pytest.mark.parametrize("values", [[0.0, -0.0], [-0.0, 0.0], [-0.0]])
def test_a_bound_is_no_negative_zero(values):
    assert [str(bound) for bound in bounds(values)] == ["0.0", "0.0"]
