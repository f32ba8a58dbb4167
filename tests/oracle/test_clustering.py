"""Clustered tables (PROTOCOL.md, "Clustered Table") that refdelta and delta-spark make and write to in turns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_table
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from written_tables import actions

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, s STRUCT<x: BIGINT, `y.z`: STRING>, name STRING"
VECTORS = "'delta.enableDeletionVectors' = 'true'"


def rows(*numbers):
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "s": pa.array([{"x": -n, "y.z": str(n)} for n in numbers]),
            "name": [f"n{n}" for n in numbers],
        }
    )


def insert(spark, path, *numbers):
    values = ", ".join(f"({n}, named_struct('x', {-n}, 'y.z', '{n}'), 'n{n}')" for n in numbers)
    spark_tables.sql(spark, path, f"INSERT INTO {{t}} VALUES {values}")


def same(spark, path, want):
    """Both read these rows, and name the same clustering columns."""
    table = DeltaTable(path)
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == want
    assert_same_table(table.to_pyarrow_table(), oracle.read_table(spark, path))
    assert table.detail()["clustering_columns"] == oracle.detail(spark, path)["clusteringColumns"]


def newest(path, kind):
    return actions(path, DeltaTable(path).version(), kind)


def newest_domain(path):
    """The clustering columns by the newest version, which may have the domain of row tracking as well."""
    return [action for action in newest(path, "domainMetadata") if action["domain"] == "delta.clustering"]


@pytest.mark.tier("nightly")
def test_a_table_of_spark_is_written_to(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    spark_tables.sql(
        spark, path, f"CREATE TABLE {{t}} ({COLUMNS}) USING delta CLUSTER BY (id, s.`y.z`) TBLPROPERTIES ({VECTORS})"
    )
    theirs = actions(path, 0, "domainMetadata")
    insert(spark, path, 1, 2, 3)
    insert(spark, path, 4, 5)
    spark_tables.sql(spark, path, "OPTIMIZE {t}")
    (clustered,) = newest(path, "add")
    assert clustered["clusteringProvider"] == "liquid"

    table = DeltaTable(path)
    assert table.detail()["clustering_columns"] == ["id", "s.`y.z`"]
    write_deltalake(table, rows(6, 7), mode="append", cluster_by=["id", "s.`y.z`"])
    table.delete("id = 2")
    # The file is the one that was clustered: with a vector it is still that.
    (hidden,) = newest(path, "add")
    assert (hidden["path"], hidden["clusteringProvider"], hidden["tags"]) == (
        clustered["path"],
        "liquid",
        clustered["tags"],
    )
    table.update({"name": "'changed'"}, predicate="id = 7")
    same(spark, path, [1, 3, 4, 5, 6, 7])

    table.optimize.compact()
    # What is clustered is written without its deleted row, and stays so; what is not comes into a file of its own.
    written = newest(path, "add")
    assert sorted(add.get("clusteringProvider", "none") for add in written) == ["liquid", "none"]
    same(spark, path, [1, 3, 4, 5, 6, 7])

    insert(spark, path, 8)
    spark_tables.sql(spark, path, "OPTIMIZE {t}")
    assert {add["clusteringProvider"] for add in newest(path, "add")} == {"liquid"}
    same(spark, path, [1, 3, 4, 5, 6, 7, 8])
    # Nobody has touched the columns since the table was made, and they are what refdelta writes.
    DeltaTable.create(tmp_path / "ours", rows(1).schema, cluster_by=["id", "s.`y.z`"])
    assert actions(tmp_path / "ours", 0, "domainMetadata") == theirs


@pytest.mark.tier("nightly")
def test_spark_writes_to_a_table_of_ours_and_clusters_it(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    write_deltalake(path, rows(1, 2, 3), cluster_by=["s.x", "name"])
    detail = oracle.detail(spark, path)
    assert detail["clusteringColumns"] == ["s.x", "name"]
    assert {"clustering", "domainMetadata", "deletionVectors", "rowTracking"} <= set(detail["tableFeatures"])
    insert(spark, path, 4, 5)
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE id = 1")
    assert newest(path, "add")[0]["deletionVector"]
    same(spark, path, [2, 3, 4, 5])

    spark_tables.sql(spark, path, "OPTIMIZE {t}")
    parameters = oracle.history(spark, path)[0]["operationParameters"]
    assert json.loads(parameters["clusterBy"]) == ["s.x", "name"]
    assert {add["clusteringProvider"] for add in newest(path, "add")} == {"liquid"}
    DeltaTable(path).delete("id = 3")
    same(spark, path, [2, 4, 5])
    assert oracle.validate_checksum(spark, path)


def test_a_column_beyond_the_first_statistics(quick_spark, tmp_path):
    """delta-spark makes no such table, but takes ours."""
    spark, path = quick_spark, tmp_path / "t"
    data = pa.table({f"c{i}": pa.array([i, i + 1], pa.int64()) for i in range(34)})
    columns = ", ".join(f"{name} BIGINT" for name in data.column_names)
    with pytest.raises(Exception, match="DELTA_CLUSTERING_COLUMN_MISSING_STATS"):
        spark_tables.sql(spark, tmp_path / "theirs", f"CREATE TABLE {{t}} ({columns}) USING delta CLUSTER BY (c33)")
    write_deltalake(path, data, cluster_by="c33")
    write_deltalake(path, data, mode="append")
    assert oracle.detail(spark, path)["clusteringColumns"] == ["c33"]
    spark_tables.sql(spark, path, "OPTIMIZE {t}")
    assert {add["clusteringProvider"] for add in newest(path, "add")} == {"liquid"}
    assert_same_table(DeltaTable(path).to_pyarrow_table(), oracle.read_table(spark, path))


@pytest.mark.tier("nightly")
def test_columns_are_replaced_and_restored(quick_spark, tmp_path):
    """The clustering columns after the table is replaced by an unclustered one, and after they are set again."""
    spark, path, other = quick_spark, tmp_path / "ours", tmp_path / "theirs"
    flat = rows(1, 2).select(["id", "name"])
    write_deltalake(path, flat, cluster_by="id")
    DeltaTable.create(path, flat.schema, mode="overwrite")
    # By its path alone delta-spark does not replace a table.
    made = f"CREATE OR REPLACE TABLE replaced (id BIGINT, name STRING) USING delta LOCATION '{other}'"
    spark.sql(f"{made} CLUSTER BY (id)")
    spark.sql(made)
    spark.sql("DROP TABLE replaced")
    emptied = newest_domain(path)
    assert emptied == newest_domain(other)
    assert oracle.detail(spark, path)["clusteringColumns"] == []

    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (3, 'c')")
    spark_tables.sql(spark, path, "OPTIMIZE {t}")
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1
    DeltaTable(path).restore(0)
    restored = newest_domain(path)
    assert oracle.detail(spark, path)["clusteringColumns"] == ["id"]
    spark_tables.sql(spark, path, "RESTORE {t} TO VERSION AS OF 1")
    assert newest_domain(path) == emptied
    spark_tables.sql(spark, path, "RESTORE {t} TO VERSION AS OF 0")
    assert newest_domain(path) == restored
    assert DeltaTable(path).detail()["clustering_columns"] == ["id"]


def test_an_overwrite_keeps_the_columns(quick_spark, tmp_path):
    """delta-spark forgets them here: spec_notes/divergences.md, "Clustered tables"."""
    spark, path = quick_spark, tmp_path / "t"
    write_deltalake(path, rows(1), cluster_by="id")
    write_deltalake(path, rows(2), mode="overwrite")
    assert oracle.detail(spark, path)["clusteringColumns"] == ["id"]
    spark_tables.sql(spark, path, "INSERT OVERWRITE {t} SELECT * FROM {t}")
    assert DeltaTable(path).detail()["clustering_columns"] == []
