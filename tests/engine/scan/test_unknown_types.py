"""Tables with columns of types that this engine does not know, and of intervals, which it only reads."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import refdelta
from handmade import Handmade, field, struct
from refdelta import DeltaTable, errors, sql, verify, write_deltalake
from refdelta_storage import LocalStore

SECONDS = {"type": "array", "elementType": "interval second", "containsNull": True}
SCHEMA = struct(
    field("a", "long"),
    field("ym", "interval year"),
    field("dt", "interval day to minute"),
    field("g", "shape"),
    field("s", struct(field("x", "long"), field("q", {"type": "udt", "class": "Period"}))),
    field("l", SECONDS),
    field("p", "interval day to second"),
)
DATA = pa.table(
    {
        "a": [1, 2],
        "ym": pa.array([18, None], pa.int32()),
        "dt": [131_076_000_022, -1],
        "g": [b"x", b"y"],
        "s": [{"x": 1, "q": 5}, None],
        "l": [[1, 2], None],
    }
)
VALUES = ["INTERVAL '7 12:34:56.123456' DAY TO SECOND", "INTERVAL '-0 00:00:01' DAY TO SECOND"]
PARTS = [650_096_123_456, -1_000_000]


@pytest.fixture
def table(tmp_path):
    made = Handmade(SCHEMA, "p", store=LocalStore(tmp_path))
    made.commit(*(made.data(f"{n}.parquet", DATA, partitionValues={"p": text}) for n, text in enumerate(VALUES)))
    return DeltaTable(tmp_path)


def test_the_other_columns_are_read(table):
    assert table.count() == 4
    assert table.to_pyarrow_table(columns=["a"], filters="a > 1")["a"].to_pylist() == [2, 2]
    assert table.to_pyarrow_table(columns=["s.x"])["s"].to_pylist() == [{"x": 1}, None] * 2
    assert table.to_polars(columns=["a"]).collect().shape == (4, 1)
    assert sql("SELECT sum FROM s", s=pa.table({"sum": [1]})).num_rows == 1
    assert sql("SELECT a + 1 AS b FROM t WHERE s.x = 1", t=table)["b"].to_pylist() == [2, 2]
    assert "shape" in repr(table.schema())
    assert "shape" in table._repr_html_()
    errors_found = {item.clause for item in verify(table.table_uri).findings if item.severity == "error"}
    assert errors_found == {"schema-1"}  # nobody knows the type shape


@pytest.mark.parametrize("columns", [None, ["g"], ["a", "s"], ["s.q"]])
def test_a_read_of_an_unknown_type_names_the_column(table, columns):
    with pytest.raises(errors.UnsupportedFeatureError, match=r"column (g|s\.q).*columns="):
        table.to_pyarrow_table(columns=columns)


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.to_pyarrow_dataset(),
        lambda t: t.to_duckdb(),
        lambda t: t.count("g IS NULL"),
        lambda t: t.count("s.q = 5"),
    ],
)
def test_other_reads_of_an_unknown_type_name_it_too(table, read):
    with pytest.raises(errors.UnsupportedFeatureError, match=r"column (g|s\.q)"):
        read(table)


def test_intervals_are_read_as_months_and_microseconds(table):
    found = table.to_pyarrow_table(
        columns=["ym", "dt", "l", "p"], filters=f"p = INTERVAL '{VALUES[0][10:27]}' DAY TO SECOND"
    )
    assert found.to_pydict() == {
        "ym": [18, None],
        "dt": [131_076_000_022, -1],
        "l": [[1, 2], None],
        "p": [PARTS[0]] * 2,
    }
    assert table.to_pyarrow_table(columns=["a"], filters="ym > INTERVAL '1' YEAR")["a"].to_pylist() == [1, 1]
    moved = sql("SELECT TIMESTAMP'2020-01-01 00:00:00' + dt AS at FROM t WHERE a = 1 LIMIT 1", t=table)
    assert moved["at"].to_pylist() == [dt.datetime(2020, 1, 2, 12, 24, 36, 22, tzinfo=dt.UTC)]
    assert sql("SELECT ym FROM t LIMIT 1", t=table)["ym"].to_pylist() == [18]


def test_no_file_is_left_out_by_an_interval(table):
    scan = table.scan(columns=["a"], predicate="p > INTERVAL '1' DAY")
    assert scan.explain().files_read == 2
    assert scan.to_table().num_rows == 2


WRITES = {
    "append": lambda table: write_deltalake(table, DATA.select(["a"]), mode="append"),
    "DELETE": lambda table: table.delete("a = 1"),
    "UPDATE": lambda table: table.update({"a": "1"}),
    "OPTIMIZE": lambda table: table.optimize.compact(),
    "ALTER": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    "RESTORE": lambda table: table.restore(0),
    "VACUUM": lambda table: table.vacuum(dry_run=False),
    "a clone": lambda table: table.shallow_clone("memory://clone"),
    "a new table": lambda table: DeltaTable.create("memory://new", table.schema()),
}


@pytest.mark.parametrize("write", WRITES)
def test_such_a_table_is_not_written(table, write):
    with pytest.raises(errors.UnsupportedFeatureError, match=r"type (interval|shape|udt)"):
        WRITES[write](table)
    assert table.version() == 1


@pytest.mark.parametrize(
    "text", ["1", "INTERVAL '1' DAY", "INTERVAL '9999999999 00:00:00' DAY TO SECOND", "interval 1 day"]
)
def test_a_partition_value_that_is_no_interval_is_an_invalid_log(tmp_path, text):
    made = Handmade(struct(field("a", "long"), field("p", "interval day")), "p", store=LocalStore(tmp_path))
    made.commit(made.data("f.parquet", DATA.select(["a"]), partitionValues={"p": text}))
    assert DeltaTable(tmp_path).to_pyarrow_table(columns=["a"]).num_rows == 2
    with pytest.raises(errors.InvalidLogError, match="partition value of p"):
        DeltaTable(tmp_path).to_pyarrow_table(columns=["p"])


def test_their_rows_are_written_to_other_tables(table, tmp_path):
    write_deltalake(tmp_path / "other", table.scan(columns=["a", "dt"]))
    assert refdelta.DeltaTable(tmp_path / "other").to_pyarrow_table()["dt"].to_pylist() == [131_076_000_022, -1] * 2
