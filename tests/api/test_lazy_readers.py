"""Lazy readers give the rows of ``to_pyarrow_table``, and never a deleted one."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import duckdb
import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.api.polars_conditions import condition_of
from refdelta.core.table.types import DATE, LONG, TIMESTAMP, StructField, StructType

VECTORS = {"delta.enableDeletionVectors": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture(params=[{}, VECTORS, {**VECTORS, **MAPPED}], ids=["plain", "vectors", "mapped"])
def table(request, tmp_path):
    for start in (0, 100, 200):
        ids = list(range(start, start + 100))
        rows = pa.table({"id": ids, "name": [f"n{i}" for i in ids], "p": [str(start)] * 100, "x": [float("nan")] * 100})
        write_deltalake(tmp_path, rows, mode="append", partition_by=["p"], configuration=request.param)
    DeltaTable(tmp_path).delete("id % 10 = 3")
    return DeltaTable(tmp_path)


CONDITIONS = [
    (pl.col("id") < 15, "id < 15"),
    (pl.lit(250) <= pl.col("id"), "id >= 250"),
    ((pl.col("p") == "100") & (pl.col("x") > 1.0), "p = '100' AND x > 1.0"),
    ((pl.col("name") == "n7") | (pl.col("id") > 295), "name = 'n7' OR id > 295"),
    (~(pl.col("id") < 250), "NOT id < 250"),
    (pl.col("id").is_in([3, 4]), "id IN (3, 4)"),
]


@pytest.mark.parametrize(("expression", "sql"), CONDITIONS, ids=[sql for _, sql in CONDITIONS])
def test_polars_reads_the_same_rows(table, expression, sql):
    found = table.to_polars().filter(expression).select("id", "p").collect().sort("id")
    assert found.rows() == sorted(zip(*table.to_pyarrow_table(["id", "p"], sql).to_pydict().values(), strict=True))


def test_polars_columns_limits_and_filters(table):
    frame = table.to_polars(columns=["p", "id"], filters="id >= 200")
    assert frame.collect_schema().names() == ["p", "id"]
    assert frame.select(pl.len()).collect().item() == 90
    assert frame.head(7).collect().height == 7
    assert frame.select("p").collect()["p"].to_list() == ["200"] * 90
    assert table.to_polars().filter(pl.col("p") < "150").select("p").collect().height == 180
    assert frame.collect().sort("id").equals(pl.DataFrame(table.to_pyarrow_table(["p", "id"], "id >= 200")).sort("id"))


@pytest.mark.breaks_tables
def test_a_condition_of_polars_leaves_files_out(table):
    lost = table.scan(predicate="id < 100").files["path"].to_pylist()
    folder = Path(table.table_uri.removeprefix("file://"))
    for path in lost:
        (folder / path).unlink()
    assert table.to_polars().filter(pl.col("id") >= 250).select(pl.len()).collect().item() == 45


def test_duckdb_reads_the_same_rows(table):
    with duckdb.connect() as connection:
        relation = table.to_duckdb(connection, "rows")
        for _ in range(2):  # a relation can be read again
            found = connection.sql("SELECT id, p FROM rows WHERE id >= 95 AND p <> '200' ORDER BY id").fetchall()
            wanted = table.to_pyarrow_table(["id", "p"], "id >= 95 AND p <> '200'").to_pydict()
            assert found == sorted(zip(*wanted.values(), strict=True))
        assert relation.count("*").fetchall() == [(270,)]


def test_a_dataset_reads_the_same_rows_or_refuses(table):
    vectors = sum(vector is not None for vector in table.scan().files["deletionVector"].to_pylist())
    if not vectors and table.metadata().configuration.get("delta.columnMapping.mode") is None:
        found = table.to_pyarrow_dataset().to_table(filter=pc.field("id") > 150).sort_by("id")
        wanted = table.to_pyarrow_table(filters="id > 150").sort_by("id")
        assert found.drop_columns("x").equals(wanted.drop_columns("x"))  # NaN equals nothing
        assert table.to_pyarrow_dataset("p = '100'").count_rows() == 90
    else:
        with pytest.raises(errors.InvalidArgumentError, match="to_polars"):
            table.to_pyarrow_dataset()


def test_a_scan_is_shown_in_one_short_line(table):
    shown = repr(table.scan(predicate="id >= 250"))
    assert shown.endswith("1 of 3 files>")
    assert len(shown) < 300


def expected_readers(table):
    mapped = "delta.columnMapping.mode" in table.metadata().configuration
    vectors = "delta.enableDeletionVectors" in table.metadata().configuration
    without = ", without the rows of deletion vectors" * vectors
    own = {"polars": f"scan_parquet of Polars{without}", "duckdb": f"read_parquet of DuckDB{without}"}
    return own, mapped or vectors


def test_a_scan_names_the_readers(table):
    told = table.scan().explain(readers=True)
    own, refused = expected_readers(table)
    assert {engine: told.readers[engine] for engine in own} == own
    assert told.readers["pyarrow"].startswith("refused: " if refused else "a pyarrow dataset")
    assert f"  duckdb: {own['duckdb']}" in str(told).splitlines()
    assert "readers" not in table.scan().explain().as_dict()
    assert "filter on rows" in table.scan(predicate="id > 150").explain(readers=True).readers["polars"]


def test_each_library_reads_the_files_itself(table, monkeypatch):
    def fail(*_):
        raise AssertionError("refdelta read the rows")

    monkeypatch.setattr("refdelta.engine.scan.scan.Scan.to_batches", fail)
    assert table.to_polars().filter(pl.col("id") < 50).select("id").collect().height == 45
    with duckdb.connect() as connection:
        assert table.to_duckdb(connection).filter("id < 50").count("*").fetchall() == [(45,)]


@pytest.mark.parametrize("deleted", [3, 60_000])
def test_deleted_rows_of_many_row_groups(tmp_path, deleted):
    rows = pa.table({"id": range(100_000)})
    write_deltalake(tmp_path, rows, configuration=VECTORS, target_file_size=100_000)
    DeltaTable(tmp_path).delete(f"id % 100000 >= 20000 AND id < {20_000 + deleted}")
    table = DeltaTable(tmp_path)
    wanted = [n for n in range(100_000) if not 20_000 <= n < 20_000 + deleted]
    assert table.to_polars().collect()["id"].sort().to_list() == wanted
    with duckdb.connect() as connection:
        assert table.to_duckdb(connection).order("id").to_arrow_table()["id"].to_pylist() == wanted


def test_other_stores(tmp_path):
    uri = "memory://lazy-readers"
    for start in (0, 100):
        rows = pa.table({"id": range(start, start + 100), "p": ["x"] * 50 + [None] * 50})
        write_deltalake(uri, rows, mode="append", partition_by=["p"])
    table = DeltaTable(uri)
    assert table.scan().explain(readers=True).readers["duckdb"].startswith("a pyarrow dataset: ")
    assert table.to_polars().filter(pl.col("id").is_in([7, 150])).collect()["id"].sort().to_list() == [7, 150]
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("p").is_null()).num_rows == 100
    with duckdb.connect() as connection:
        assert table.to_duckdb(connection).filter("id >= 190 AND p IS NULL").count("*").fetchall() == [(10,)]


def test_the_arguments_of_a_dataset(tmp_path):
    for start in (0, 100):
        rows = pa.table({"id": range(start, start + 100), "s": ["a", "b"] * 50, "p": [str(start)] * 100})
        write_deltalake(tmp_path, rows, mode="append", partition_by=["p"])
    table = DeltaTable(tmp_path)
    assert table.to_pyarrow_dataset(file_pruning_predicate="id < 5").count_rows() == 100  # files, not rows
    assert table.to_pyarrow_dataset([("p", "=", "100")]).count_rows() == 100
    large = table.to_pyarrow_dataset(as_large_types=True)
    assert large.to_table().schema.field("s").type == large.schema.field("s").type == pa.large_string()
    few = table.to_pyarrow_dataset(schema=pa.schema([("id", pa.int64())]))
    assert few.to_table().column_names == ["id"]
    options = pyarrow.dataset.ParquetReadOptions(dictionary_columns=["s"])
    read = table.to_pyarrow_dataset(parquet_read_options=options).to_table()
    assert read.schema.field("s").type == pa.dictionary(pa.int32(), pa.string())
    root = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    for place in (root, tmp_path.as_uri(), fsspec.filesystem("dir", path=str(tmp_path), fs=fsspec.filesystem("file"))):
        assert table.to_pyarrow_dataset(filesystem=place).to_table().num_rows == 200
    for wrong in ({"partitions": "id < 5"}, {"partitions": "p = '0'", "file_pruning_predicate": "id < 5"}):
        with pytest.raises(errors.InvalidArgumentError, match="partitions"):
            table.to_pyarrow_dataset(**wrong)


CONDITIONS_IN_SQL = [
    (pl.col("id").is_in([1, None, 3]), "`id` IN (1, 3)"),
    (pl.col("id").is_in([1, None], nulls_equal=True), None),
    (pl.col("id").is_between(1, 5, closed="left"), "(`id` >= 1 AND `id` < 5)"),
    (pl.col("day") > dt.date(2020, 2, 29), "`day` > DATE '2020-02-29'"),
    (pl.col("at") >= dt.datetime(2020, 1, 1, 1, tzinfo=dt.UTC), "`at` >= TIMESTAMP '2020-01-01 01:00:00+00:00'"),
    (pl.col("at").is_null() & (pl.col("id").sqrt() > 1), "(`at` IS NULL)"),
    (pl.col("at").is_null() | (pl.col("id").sqrt() > 1), None),
    (~(pl.col("id") == 1), None),
    (pl.col("id") > 1.5, None),
    (pl.col("other") == 1, None),
]


@pytest.mark.parametrize(("expression", "sql"), CONDITIONS_IN_SQL)
def test_what_is_understood_of_an_expression(expression, sql):
    schema = StructType((StructField("id", LONG), StructField("day", DATE), StructField("at", TIMESTAMP)))
    assert condition_of(expression, schema, ["id", "day", "at"]) == sql


@pytest.mark.parametrize("package", ["polars", "duckdb", "pandas"])
def test_a_missing_package_is_named_with_its_extra(table, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(errors.InvalidArgumentError, match=rf"pip install 'refdelta\[{package}\]'"):
        getattr(table, f"to_{package}")()


def test_a_change_feed_without_rows_has_a_schema(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
    feed = DeltaTable(tmp_path).load_cdf(predicate="id = 2")
    assert pl.from_arrow(feed).columns == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
