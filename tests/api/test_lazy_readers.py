"""Lazy readers give the rows of ``to_pyarrow_table``, and never a deleted one."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from refdelta import DeltaTable, errors, write_deltalake

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
