"""Turns at one table with deltalake: each reads what the other wrote, and goes on from there."""

from __future__ import annotations

import datetime as dt
import decimal

import deltalake
import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
PRICES = [decimal.Decimal("1.50"), None, decimal.Decimal("-99999.99"), decimal.Decimal(0)]
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "s": ["a", None, "ü", ""],
        "d": pa.array(PRICES, pa.decimal128(7, 2)),
        "t": pa.array([NOON, None, EPOCH, None], pa.timestamp("us", "UTC")),
        "n": pa.array([{"x": 1, "y": [1, None]}, None, {"x": None, "y": []}, {"x": 2, "y": None}]),
        "p": ["x", "y", None, "a b/c"],
    }
)


def theirs(path):
    table = pa.table(
        deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute("select * from t").read_all()
    )
    return sorted(table.select(ROWS.column_names).to_pylist(), key=lambda r: r["id"])


def ours(path):
    return sorted(DeltaTable(path).to_pyarrow_table().select(ROWS.column_names).to_pylist(), key=lambda r: r["id"])


@pytest.mark.tier("test")
@pytest.mark.parametrize("partition_by", [None, ["p"]])
def test_each_reads_the_other(tmp_path, partition_by):
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS.slice(0, 2), partition_by=partition_by)
    assert theirs(path) == ours(path) == ROWS.slice(0, 2).to_pylist()
    deltalake.write_deltalake(path, ROWS.slice(2), mode="append")
    assert theirs(path) == ours(path) == ROWS.to_pylist()
    deltalake.DeltaTable(path).delete("id = 2")
    write_deltalake(path, ROWS.slice(1, 1), mode="append")
    DeltaTable(path).create_checkpoint()
    assert theirs(path) == ours(path) == ROWS.to_pylist()
    deltalake.DeltaTable(path).create_checkpoint()
    write_deltalake(path, ROWS.slice(0, 1), mode="overwrite", predicate="id = 1")
    assert theirs(path) == ours(path) == ROWS.to_pylist()
    assert [h["operation"] for h in DeltaTable(path).history()] == ["WRITE", "WRITE", "DELETE", "WRITE", "WRITE"]
