"""Frames of pandas and Polars: what becomes of their indexes, objects, missing values and odd types."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from tiers import examples

FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", None]})
_tables = itertools.count()


@pytest.fixture(autouse=True, scope="module", params=[True] if pd.__version__ >= "3" else [False, True])
def copy_on_write(request):
    """Arrays of a frame are read-only then. pandas 3 has no other mode."""
    if pd.__version__ >= "3":
        yield
        return
    with pd.option_context("mode.copy_on_write", request.param):
        yield


def written(data, **options):
    uri = f"memory://frames-{next(_tables)}"
    write_deltalake(uri, data, **options)
    return DeltaTable(uri).to_pyarrow_table()


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME[FRAME.a > 1],
        FRAME.set_index(pd.Index(["p", "q", "r"])),
        FRAME.set_index(pd.date_range("2024-01-01", periods=3)),
        FRAME.set_index([pd.Index([5, 5, 6]), pd.Index(["p", "q", "r"])]),
        FRAME.sort_values("a", ascending=False),
        pd.concat([FRAME, FRAME]),
    ],
)
def test_an_index_without_a_name_is_left_out(frame):
    found = written(frame)
    assert found.schema == pa.schema([("a", "int64"), ("b", "string")])
    assert found["a"].to_pylist() == frame["a"].tolist()


def test_an_index_with_a_name_is_a_column_whatever_its_kind():
    named = FRAME.rename_axis("i")
    for frame in (named, named[FRAME.a > 0], FRAME.set_index(pd.Index([0, 1, 2], name="i"))):
        assert written(frame).to_pydict() == {"a": [1, 2, 3], "b": ["x", "y", None], "i": [0, 1, 2]}
    mixed = FRAME.set_index([pd.Index([5, 6, 7]), pd.Index([7, 8, 9], name="i")])
    assert written(mixed)["i"].to_pylist() == [7, 8, 9]
    assert written(mixed).column_names == ["a", "b", "i"]
    with pytest.raises(errors.InvalidArgumentError, match="the index and a column of the DataFrame are both named 'a'"):
        written(FRAME.rename_axis("a"))


def test_a_filtered_frame_is_appended_and_merged_like_the_whole():
    uri = f"memory://frames-{next(_tables)}"
    write_deltalake(uri, FRAME)
    write_deltalake(uri, FRAME[FRAME.a == 2], mode="append")
    with DeltaTable(uri).begin() as txn:
        txn.append(FRAME[FRAME.a == 3])
        txn.commit()
    changed = FRAME.assign(b="new")[FRAME.a == 1]
    DeltaTable(uri).merge(changed, "t.a = s.a").when_matched_update_all().execute()
    rows = DeltaTable(uri).to_pyarrow_table().sort_by("a").to_pydict()
    assert rows == {"a": [1, 2, 2, 3, 3], "b": ["new", "y", "y", None, None]}


DAY, TIME = dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3)
ALIKE = [
    (["x", None, math.nan, pd.NA], pa.string()),
    ([1, None, 2], pa.int64()),
    ([1, 2.5, None], pa.float64()),
    ([True, None], pa.bool_()),
    ([Decimal("1.5"), 1], pa.decimal128(2, 1)),
    ([DAY, pd.NaT], pa.date32()),
    ([TIME, pd.NaT, None], pa.timestamp("us")),
    ([TIME.replace(tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
    ([b"x", None], pa.binary()),
    ([[1], [2, 3], None], pa.list_(pa.field("element", pa.int64()))),
    ([{"a": 1}, {"b": "x"}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
]
MIXED = [
    ([1, None, "x"], 2, "'x' (str)", "int"),
    (["x", 1], 1, "1 (int)", "str"),
    (["x", b"y"], 0, "'x' (str)", None),
    ([b"y", "x"], 1, "'x' (str)", "bytes"),
    ([DAY, DAY, TIME], 2, "datetime.datetime(2024, 1, 2, 3, 0) (datetime)", "date"),
    ([TIME, DAY], 1, "datetime.date(2024, 1, 2) (date)", "datetime"),
    ([TIME, TIME.replace(tzinfo=dt.UTC)], 1, "datetime.datetime(2024, 1, 2, 3, 0, tzinfo=", "datetime"),
    ([TIME.replace(tzinfo=dt.UTC), TIME], 1, "datetime.datetime(2024, 1, 2, 3, 0) (datetime)", "datetime"),
    ([1, True], 1, "True (bool)", "int"),
    ([0.5, 2**53 + 1], 1, "9007199254740993 (int)", "float"),
    ([1, 2**64], 1, "18446744073709551616 (int)", "int"),
    ([{"a": 1}, {"a": "x"}], 1, "{'a': 'x'} (dict)", "dict"),
    ([DAY, None, 2], 2, "2 (int)", "date"),
    ([TIME, 2], 1, "2 (int)", "datetime"),
    ([0.5, True], 1, "True (bool)", "float"),
    ([Decimal("1.5"), True], 1, "True (bool)", "Decimal"),
    ([object], 0, "<class 'object'> (type)", None),
]


@pytest.mark.parametrize(("values", "kind"), ALIKE, ids=lambda value: str(value)[:40])
def test_a_column_of_objects_has_the_type_of_its_values(values, kind):
    found = written(pd.DataFrame({"id": range(len(values)), "o": pd.Series(values, dtype=object)}))
    assert found.schema.field("o").type == kind
    assert found["o"].null_count == int(pd.isna(pd.Series(values, dtype=object)).sum())


@pytest.mark.parametrize(("values", "row", "shown", "before"), MIXED, ids=lambda value: str(value)[:40])
def test_mixed_values_are_refused_by_column_and_row(values, row, shown, before):
    frame = pd.DataFrame({"id": range(len(values)), "o": pd.Series(values, dtype=object)})
    with pytest.raises(errors.InvalidArgumentError) as caught:
        written(frame[frame.id >= 0])
    assert f"row {row} of column 'o' has {shown}" in str(caught.value)
    assert (f"rows before it have {before}" in str(caught.value)) == (before is not None)


@pytest.mark.tier("test")
@examples(60)
@given(
    st.sampled_from([1, "x", b"y", True, DAY, {"a": 1}]),
    st.integers(1, 200),
    st.sampled_from([2, "z", b"z", False, dt.date(2025, 1, 1), {"a": 2}]),
    st.integers(0, 20),
)
def test_the_row_is_the_first_that_does_not_go_with_those_before_it(first, count, other, after):
    values = [first] * count + [None, other] + [first] * after
    frame = pd.DataFrame({"o": pd.Series(values, dtype=object)})
    if type(first) is type(other):
        assert written(frame).num_rows == len(values)
        return
    with pytest.raises(errors.InvalidArgumentError, match=r"row (\d+) of column 'o'") as caught:
        written(frame)
    text = isinstance(first, str) and isinstance(other, bytes)
    assert f"row {0 if text else count + 1} of" in str(caught.value)


def test_missing_values_of_pandas_are_null_and_nan_of_other_libraries_stays():
    missing = pd.DataFrame(
        {
            "f": [1.0, math.nan],
            "i": pd.array([1, None], dtype="Int64"),
            "t": pd.to_datetime(["2024-01-01", None]),
            "c": pd.Categorical(["x", None]),
        }
    )
    assert [column.null_count for column in written(missing).columns] == [1, 1, 1, 1]
    kept = written(pa.table({"f": pa.array(missing.f.to_numpy())})), written(pl.DataFrame({"f": [1.0, math.nan]}))
    assert all(found["f"].null_count == 0 and math.isnan(found["f"][1].as_py()) for found in kept)
    schema = pa.schema([pa.field("f", "float64", nullable=False)])
    uri = f"memory://frames-{next(_tables)}"
    DeltaTable.create(uri, schema)
    with pytest.raises(errors.ConstraintViolationError, match="column f is not null"):
        write_deltalake(uri, missing[["f"]], mode="append")


def test_names_of_columns_that_occur_twice_are_refused():
    with pytest.raises(errors.InvalidArgumentError, match="cannot be read as an Arrow table: Duplicate column names"):
        written(pd.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize(
    ("frame", "path", "kind"),
    [
        (pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}), "o", "Object"),
        (pl.DataFrame({"n": pl.Series([1], dtype=pl.Int128)}), "n", "Int128"),
        (pl.DataFrame({"n": pl.Series([1], dtype=pl.UInt128)}), "n", "UInt128"),
        (pl.DataFrame({"l": pl.Series([[1]], dtype=pl.List(pl.Int128))}), "l.element", "Int128"),
        (
            pl.DataFrame({"s": pl.Series([{"x": [1]}], dtype=pl.Struct({"x": pl.List(pl.Int128)}))}),
            "s.x.element",
            "Int128",
        ),
        (pl.DataFrame({"a": pl.Series([[1]], dtype=pl.Array(pl.Int128, 1))}), "a.element", "Int128"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_types_of_polars_that_arrow_lacks_are_refused_by_column(frame, path, kind):
    uri = f"memory://frames-{next(_tables)}"
    with pytest.raises(
        errors.UnsupportedTypeError, match=rf"column {path}: Delta has no type for Polars' {kind}; cast it"
    ):
        write_deltalake(uri, frame)
    assert not DeltaTable.is_deltatable(uri)
    table = pa.table({"id": [1]})
    write_deltalake(uri, table)
    with pytest.raises(errors.UnsupportedTypeError, match=rf"column {path}"):
        DeltaTable(uri).merge(frame, "t.id = 1").when_matched_delete().execute()


def test_a_change_feed_without_rows_has_a_schema_for_polars():
    uri = f"memory://frames-{next(_tables)}"
    write_deltalake(uri, FRAME, configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(uri).alter.set_table_properties({"owner": "Ada"})
    feed = pl.from_arrow(DeltaTable(uri).load_cdf(1))
    assert feed.height == 0
    assert feed.columns[:3] == ["a", "b", "_change_type"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({1: "x"}, "custom_metadata has the key 1, which must be a string, not of type int"),
        ({"x": math.nan}, r"custom_metadata\['x'\] is nan, for which JSON has no number"),
        ({"x": {"y": [1, -math.inf]}}, r"custom_metadata\['x'\]\['y'\]\[1\] is -inf"),
    ],
)
def test_custom_metadata_names_the_key_that_cannot_be_kept(given, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        written(FRAME, commit_properties=CommitProperties(custom_metadata=given))


NO_ROWS = {
    "pandas of old": pd.DataFrame(
        {"s": pd.Series(dtype=float), "at": pd.Series(dtype=float), "n": pd.Series(dtype=float)}
    ),
    "objects": pd.DataFrame(columns=["s", "at", "n"]),
    "a filter": pd.DataFrame({"s": ["x"], "at": [None], "n": [1.5]}).query("n > 2"),
}


@pytest.mark.parametrize("kind", NO_ROWS)
def test_a_frame_without_rows_fits_a_table_of_any_types(tmp_path, kind):
    """pandas gives float64 to columns that never had a value."""
    schema = pa.schema({"s": pa.string(), "at": pa.timestamp("us", "UTC"), "n": pa.int32(), "l": pa.list_(pa.string())})
    table = DeltaTable.create(tmp_path, schema)
    frame = NO_ROWS[kind].assign(l=pd.Series(dtype=float))
    write_deltalake(table, frame, mode="append")
    write_deltalake(table, frame, mode="append", schema_mode="merge")
    write_deltalake(table, frame, mode="overwrite")
    table.merge(frame, "s.s = t.s").when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.to_pyarrow_table().schema == schema
    assert table.count() == 0


def test_a_new_table_has_the_types_of_a_frame_without_rows(tmp_path):
    write_deltalake(tmp_path, NO_ROWS["pandas of old"])
    assert set(DeltaTable(tmp_path).to_pyarrow_table().schema.types) == {pa.float64()}


def test_rows_of_another_type_do_not_become_nulls(tmp_path):
    table = DeltaTable.create(tmp_path, pa.schema({"at": pa.timestamp("us", "UTC")}))
    with pytest.raises(errors.SchemaMismatchError, match="at"):
        write_deltalake(table, pd.DataFrame({"at": [1.5]}), mode="append")
