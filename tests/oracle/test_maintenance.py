"""Compaction, sorting and purging as delta-spark sees them: the same rows and words, and it goes on from there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_rows
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle

pytestmark = pytest.mark.spark

VECTORS = {"delta.enableDeletionVectors": "true"}


def data(start, rows=20):
    ids = list(range(start, start + rows))
    return pa.table({
        "n": pa.array(ids, pa.int64()),
        "t": [None if i % 5 == 0 else f"text {i % 7}" for i in ids],
        "p": [["a", "b", None][i % 3] for i in ids],
    })  # fmt: skip


def fill(path, *, partition_by=None):
    for i in range(4):
        write_deltalake(
            path, data(20 * i), mode="append", partition_by=partition_by, configuration=VECTORS if not i else None
        )
    DeltaTable(path).delete("n % 10 = 3")


def compact(table):
    return table.optimize.compact()


def z_order(table):
    return table.optimize.z_order(["n", "t"])


def purge(table):
    return table.reorg_purge()


SQL = {compact: "OPTIMIZE {t}", z_order: "OPTIMIZE {t} ZORDER BY (n, t)", purge: "REORG TABLE {t} APPLY (PURGE)"}


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("rearrange", SQL)
@pytest.mark.parametrize("partition_by", [None, ["p"]])
def test_spark_sees_the_same_rows_and_goes_on(spark, tmp_path, rearrange, partition_by):
    path = tmp_path / "t"
    fill(path, partition_by=partition_by)
    before = DeltaTable(path).to_pyarrow_table()
    rearrange(DeltaTable(path))
    oracle.clear_cache(spark)
    assert_same_rows(oracle.read_table(spark, path), before)
    assert oracle.validate_checksum(spark, path)

    # Each engine goes on from what the other left.
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n % 10 = 4")
    write_deltalake(path, data(100), mode="append")
    rearrange(DeltaTable(path))
    spark_tables.sql(spark, path, SQL[rearrange])
    rearrange(DeltaTable(path))
    ours = DeltaTable(path).to_pyarrow_table()
    left = [i for i in [*range(80), *range(100, 120)] if (i % 10 != 3 or i >= 100) and (i % 10 != 4 or i >= 100)]
    assert sorted(ours["n"].to_pylist()) == left
    oracle.clear_cache(spark)
    assert_same_rows(oracle.read_table(spark, path), ours)
    assert oracle.validate_checksum(spark, path)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("rearrange", SQL)
def test_the_history_says_the_same(spark, tmp_path, rearrange):
    said = []
    for who in ("ours", "spark's"):
        path = tmp_path / who
        fill(path)
        if who == "ours":
            rearrange(DeltaTable(path))
        else:
            spark_tables.sql(spark, path, SQL[rearrange])
        entry = oracle.history(spark, path)[0]
        metrics = entry["operationMetrics"]
        counts = {name: value for name, value in metrics.items() if not name.endswith(("Size", "Bytes"))}
        said.append((entry["operation"], entry["operationParameters"], set(metrics), counts, entry["isBlindAppend"]))
    assert said[0] == said[1]


def test_spark_skips_files_that_were_sorted_here(spark, tmp_path):
    path = tmp_path / "t"
    random = np.random.default_rng(1)
    write_deltalake(path, pa.table({"x": random.permutation(20_000), "y": random.permutation(20_000)}))
    size = DeltaTable(path).files()["size_bytes"][0].as_py()
    result = DeltaTable(path).optimize.z_order(["x", "y"], target_size=size // 16)
    for column in ("x", "y"):
        assert len(oracle.files_read(spark, path, f"{column} = 777")) < result["numFilesAdded"]
