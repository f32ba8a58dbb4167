"""SHALLOW CLONE by either engine: the other reads it, writes to it, and leaves the source alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_table
from refdelta import DeltaTable, write_deltalake
from refdelta.spark import oracle

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "p": ["a b", "c%"] * 5})
VECTORS = {"delta.enableDeletionVectors": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}


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
