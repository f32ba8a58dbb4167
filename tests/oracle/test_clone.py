"""SHALLOW CLONE by either engine: the other reads it, writes to it, and leaves the source alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_table
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "p": ["a b", "c%"] * 5})
VECTORS = {"delta.enableDeletionVectors": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("cloner", ["spark", "refdelta"])
def test_clones_of_either_are_read_and_written_by_both(quick_spark, tmp_path, cloner):
    source, clone = tmp_path / "source x", tmp_path / "clone"
    spark_tables.create(quick_spark, source, ROWS.schema, ["p"], VECTORS | MAPPED)
    spark_tables.write(quick_spark, source, ROWS, partition_by=["p"])
    spark_tables.sql(quick_spark, source, "DELETE FROM {t} WHERE id = 3")
    if cloner == "spark":
        quick_spark.sql(f"CREATE TABLE {oracle.identifier(clone)} SHALLOW CLONE {oracle.identifier(source)}")
    else:
        DeltaTable(source).shallow_clone(clone)
    before = DeltaTable(source).to_pyarrow_table()

    def both(count):
        ours = DeltaTable(clone, outside=[source]).to_pyarrow_table()
        assert_same_table(ours, oracle.read_table(quick_spark, clone))
        assert ours.num_rows == count

    both(9)
    DeltaTable(clone, outside=[source]).delete("id = 4")
    both(8)
    spark_tables.sql(quick_spark, clone, "DELETE FROM {t} WHERE id = 5")
    both(7)
    write_deltalake(DeltaTable(clone, outside=[source]), ROWS.slice(0, 2), mode="append")
    DeltaTable(clone, outside=[source]).create_checkpoint()
    both(9)
    DeltaTable(clone, outside=[source]).update({"id": "id + 1"}, predicate="id > 8")
    both(9)
    assert_same_table(DeltaTable(source).to_pyarrow_table(), before)
    assert_same_table(oracle.read_table(quick_spark, source), before)


@pytest.mark.tier("nightly")
def test_spark_reads_clones_through_refdelta_and_tracked_rows_have_own_ids(quick_spark, tmp_path):
    """Both engines clone a table that tracks rows; both read either clone, by every way that Spark has here."""
    import refdelta.spark

    source = tmp_path / "source x"
    write_deltalake(source, ROWS, configuration={**VECTORS, "delta.enableRowTracking": "true"})
    DeltaTable(source).update({"p": "'new'"}, predicate="id = 7")
    DeltaTable(source).shallow_clone(tmp_path / "ours")
    theirs = oracle.identifier(tmp_path / "theirs")
    quick_spark.sql(f"CREATE TABLE {theirs} SHALLOW CLONE {oracle.identifier(source)}")
    refdelta.spark.register(quick_spark)
    ids = {}
    for name in ("ours", "theirs"):
        clone = tmp_path / name
        asked = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
        found = DeltaTable(clone, outside=[source]).to_pyarrow_table(columns=asked).sort_by("id")
        spark = quick_spark.sql(
            f"SELECT id, _metadata.row_id AS r, _metadata.row_commit_version AS v FROM {oracle.identifier(clone)}"
        )
        assert sorted(map(tuple, spark.collect())) == sorted(zip(*found.to_pydict().values(), strict=True))
        ids[name] = sorted(found["_metadata.row_id"].to_pylist()), found["_metadata.row_commit_version"].to_pylist()
        fast = refdelta.spark.read(quick_spark, clone, outside=[source])
        slow = quick_spark.read.format("refdelta").option("outside", str(source)).load(str(clone))
        assert sorted(map(tuple, fast.collect())) == sorted(map(tuple, slow.collect()))
        assert fast.count() == 10
    for numbers, versions in ids.values():  # which file gets which numbers is the engine's choice
        assert len(set(numbers)) == 10
        assert set(versions) == {0}
