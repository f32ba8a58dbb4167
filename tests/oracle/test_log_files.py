"""V2 checkpoints, log compaction files and clustering, by one engine and read by the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_table
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.engine.log.checkpoint import sidecars_of
from refdelta.engine.log.listing import find_segment
from written_tables import actions

pytestmark = pytest.mark.spark

V2 = {"delta.checkpointPolicy": "v2", "delta.enableDeletionVectors": "true"}

STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true"}


def rows(*numbers):
    return pa.table(
        {"n": pa.array(numbers, pa.int64()), "p": [n % 2 for n in numbers], "s": [f"row {n}" for n in numbers]}
    )


def same(spark, path):
    oracle.clear_cache(spark)
    assert_same_table(DeltaTable(path).to_pyarrow_table(), oracle.read_table(spark, path))


def forget(path, version):
    """Leave only what the checkpoint at a version is needed for."""
    for file in (path / "_delta_log").glob("*.json"):
        if int(file.name[:20]) < version and "checkpoint" not in file.name:
            file.unlink()
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    for file in (path / "_delta_log").glob("*.crc"):
        file.unlink()


@pytest.mark.tier("nightly")
@pytest.mark.parametrize(
    ("top_level", "listed", "struct"),
    [("parquet", 2, False), ("json", 2, True), ("parquet", 1000, True), ("json", 1000, False)],
)
def test_spark_goes_on_from_our_v2_checkpoints(quick_spark, tmp_path, monkeypatch, top_level, listed, struct):
    spark, path = quick_spark, tmp_path / "t"
    monkeypatch.setattr("refdelta.engine.log.checkpoint_write._LISTED", listed)
    write_deltalake(path, rows(1, 2), partition_by="p", configuration=V2 | STRUCT if struct else V2)
    for n in (3, 4):
        write_deltalake(path, rows(n, n + 10), mode="append", app_id="app", app_version=n)
    table = DeltaTable(path)
    table.delete("n IN (1, 13)")
    table.update({"s": "'new'"}, predicate="n = 4")
    table.create_checkpoint(top_level=top_level)
    forget(path, 4)
    same(spark, path)
    snapshot = oracle.delta_log(spark, path).unsafeVolatileSnapshot()
    (written,) = (path / "_delta_log").glob("*.checkpoint.*")
    assert snapshot.checkpointProvider().topLevelFiles().head().getPath().getName() == written.name
    assert snapshot.setTransactions().head().version() == 4
    kept = oracle.files_read(spark, path, "n = 2")
    assert len(kept) == 1  # by the statistics in the checkpoint

    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (20, 0, 'theirs')")
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n = 14")
    same(spark, path)
    oracle.checkpoint(spark, path)
    forget(path, 6)
    same(spark, path)
    table = DeltaTable(path)
    assert table._handle.snapshot.segment.checkpoint.kind == "uuid"
    write_deltalake(table, rows(21), mode="append")
    table.create_checkpoint(top_level=top_level)
    same(spark, path)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("struct", [False, True])
def test_spark_reads_v2_checkpoints_that_share_sidecars(quick_spark, tmp_path, monkeypatch, struct):
    """Of which the later ones name sidecars of the earlier ones, and Spark's cleanup of the log spares these."""
    spark, path = quick_spark, tmp_path / "t"
    monkeypatch.setattr("refdelta.engine.log.checkpoint_write.LISTED_ITSELF", 1)
    write_deltalake(path, rows(*range(8)), partition_by="p", configuration=V2 | STRUCT if struct else V2)
    table = DeltaTable(path)
    for n in range(8, 20):
        write_deltalake(table, rows(n), mode="append")
    table.create_checkpoint()
    write_deltalake(table, rows(20), mode="append")
    table.create_checkpoint()
    first = {file.name for file in (path / "_delta_log/_sidecars").glob("*.parquet")}
    assert len(first) == 2
    table.delete("n = 20")
    table.create_checkpoint()
    named = {Path(key).name for key in sidecars_of(table.store, find_segment(table.store).checkpoint)}
    assert len(named & first) == 1
    assert len(named - first) == 1  # the tombstone
    forget(path, table.version())
    same(spark, path)
    assert len(oracle.files_read(spark, path, "n = 19")) == 1
    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (21, 0, 'theirs')")
    write_deltalake(path, rows(22), mode="append")
    DeltaTable(path).create_checkpoint()
    kept = sidecars_of(table.store, find_segment(table.store).checkpoint)
    assert {Path(key).name for key in kept} & first
    same(spark, path)


@pytest.mark.tier("nightly")
def test_compaction_files(with_checksums, tmp_path):
    spark, path = with_checksums, tmp_path / "t"
    write_deltalake(path, rows(1, 2), configuration=V2 | {"delta.checkpointInterval": "100"})
    table = DeltaTable(path)
    for n in range(3, 7):
        write_deltalake(table, rows(n), mode="append", app_id="app", app_version=n)
    table.delete("n IN (1, 4)")
    table.update({"s": "'new'"}, predicate="n = 2")
    table.alter.set_table_properties({"a.b": "c"})
    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (20, 0, 'theirs')")
    table.compact_logs(1, 3)
    table.compact_logs(4, 8)
    same(spark, path)
    segment = oracle.delta_log(spark, path).unsafeVolatileSnapshot().logSegment()
    names = [segment.deltas().apply(i).getPath().getName() for i in range(segment.deltas().size())]
    assert [name.endswith("compacted.json") for name in names] == [False, True, True], names
    assert len(DeltaTable(path)._handle.snapshot.segment.commits) == 3
    for version in (2, 5, 7):
        oracle.clear_cache(spark)
        assert_same_table(DeltaTable(path, version=version).to_pyarrow_table(), oracle.read_table(spark, path, version))
    assert oracle.validate_checksum(spark, path)
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n = 3")
    same(spark, path)


def test_checksums_say_the_same(with_checksums, tmp_path):
    """Every field that both write is the same, sizes of files and deleted rows counted by the same bins."""
    spark, path = with_checksums, tmp_path / "t"
    properties = V2 | {"delta.enableInCommitTimestamps": "true"}
    write_deltalake(path, rows(*range(3000)), partition_by="p", configuration=properties, app_id="a", app_version=1)
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n < 20")
    table = DeltaTable(path)
    table.delete("n > 2000")
    ours, theirs = (json.loads((path / "_delta_log" / f"{v:020d}.crc").read_text()) for v in (2, 1))
    assert theirs.keys() - ours.keys() <= {"allFiles", "histogramOpt"}
    assert ours.keys() - theirs.keys() <= {"fileSizeHistogram"}
    histogram = theirs.get("histogramOpt") or theirs["fileSizeHistogram"]
    assert ours["fileSizeHistogram"]["sortedBinBoundaries"] == histogram["sortedBinBoundaries"]
    assert oracle.validate_checksum(spark, path)
    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (-1, 1, 'theirs')")
    table.optimize.compact()
    oracle.clear_cache(spark)
    assert oracle.validate_checksum(spark, path)


def grid(side, shift=0):
    order = np.random.default_rng(7).permutation(side * side)
    point = pa.array([{"y.z": int(n) % side} for n in order])
    return pa.table({"x": pa.array(order // side + shift), "s": point})


def optimized(spark, path, rest=""):
    """The number of files that delta-spark's OPTIMIZE has removed."""
    (row,) = spark.sql(f"OPTIMIZE {oracle.identifier(path)} {rest}").collect()
    return row.metrics.numFilesRemoved


def test_what_one_engine_has_clustered_the_other_leaves(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    write_deltalake(path, grid(40), cluster_by=["x", "s.`y.z`"])
    write_deltalake(path, grid(40, 40), mode="append")
    table = DeltaTable(path)
    assert table.optimize.cluster()["numFilesAdded"] == 1
    (ours,) = {add["tags"]["ZCUBE_ZORDER_BY"] for add in actions(path, 2, "add")}
    assert optimized(spark, path) == 0
    same(spark, path)
    # Both take new files, and again leave what the other one made of them.
    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (1000, named_struct('y.z', 1)), (1001, NULL)")
    assert optimized(spark, path) > 0
    (theirs,) = {add["tags"]["ZCUBE_ZORDER_BY"] for add in actions(path, DeltaTable(path).version(), "add")}
    assert theirs == ours
    assert table.optimize.cluster().version is None
    write_deltalake(table, grid(3, 2000), mode="append")
    assert table.optimize.cluster()["numFilesRemoved"] > 1
    assert optimized(spark, path) == 0
    same(spark, path)


@pytest.mark.tier("nightly")
def test_either_engine_changes_the_clustering_columns(quick_spark, tmp_path):
    """Files clustered by the first columns are rewritten by FULL only."""
    spark, path = quick_spark, tmp_path / "t"
    write_deltalake(path, grid(5), cluster_by=["x", "s.`y.z`"])
    table = DeltaTable(path)
    table.optimize.cluster()
    table.alter.cluster_by("x")
    assert oracle.detail(spark, path)["clusteringColumns"] == ["x"]
    assert optimized(spark, path) == 0
    assert table.optimize.cluster().version is None
    assert optimized(spark, path, "FULL") > 0
    assert DeltaTable(path).optimize.cluster(full=True).version is None
    spark_tables.sql(spark, path, "ALTER TABLE {t} CLUSTER BY (s.`y.z`)")
    assert table.optimize.cluster(full=True).version is not None
    assert optimized(spark, path, "FULL") == 0
    same(spark, path)
    # What the history says of it, but for the versions.
    entries = oracle.history(spark, path)
    theirs, ours = (
        next(e for e in entries if e["operation"] == "CLUSTER BY" and e["version"] in v) for v in _split(entries)
    )
    assert theirs["operationParameters"].keys() == ours["operationParameters"].keys()
    spark_tables.sql(spark, path, "ALTER TABLE {t} CLUSTER BY NONE")
    assert DeltaTable(path).detail()["clustering_columns"] == []
    table.alter.cluster_by(["x"])
    table.alter.cluster_by(None)
    assert oracle.detail(spark, path)["clusteringColumns"] == []
    same(spark, path)


def _split(entries):
    """The versions that delta-spark wrote, and those of refdelta."""
    theirs = {entry["version"] for entry in entries if (entry["engineInfo"] or "").startswith("Apache-Spark")}
    return theirs, {entry["version"] for entry in entries} - theirs


@pytest.mark.tier("nightly")
def test_a_plain_table_is_clustered_by_either(quick_spark, tmp_path):
    spark = quick_spark
    protocols = []
    for name, alter in (
        ("ours", lambda path: DeltaTable(path).alter.cluster_by(["x", "s.`y.z`"])),
        ("theirs", lambda path: spark_tables.sql(spark, path, "ALTER TABLE {t} CLUSTER BY (x, s.`y.z`)")),
    ):
        path = tmp_path / name
        write_deltalake(path, grid(5))
        alter(path)
        protocols.append(set(DeltaTable(path).protocol().writer_features))
        assert actions(path, 1, "domainMetadata") == actions(tmp_path / "ours", 1, "domainMetadata")
        assert optimized(spark, path) == 1
        same(spark, path)
    assert protocols[0] == protocols[1]


@pytest.mark.tier("nightly")
def test_a_feature_that_spark_dropped_leaves_protected_checkpoints(quick_spark, tmp_path):
    spark, path = quick_spark, tmp_path / "t"
    write_deltalake(path, rows(1, 2, 3), configuration={"delta.enableDeletionVectors": "true"})
    DeltaTable(path).delete("n = 2")
    spark_tables.sql(spark, path, "ALTER TABLE {t} DROP FEATURE deletionVectors")
    table = DeltaTable(path)
    assert "checkpointProtection" in table.protocol().writer_features
    protected = int(table.metadata().configuration["delta.requireCheckpointProtectionBeforeVersion"])
    write_deltalake(table, rows(4), mode="append")
    table.delete("n = 1")
    table.create_checkpoint()
    assert table.version() >= protected
    same(spark, path)
    with pytest.raises(errors.InvalidArgumentError, match="protects"):
        DeltaTable(path, version=1).create_checkpoint()
    DeltaTable.create(path, rows(1).schema, mode="overwrite")
    oracle.clear_cache(spark)
    assert oracle.detail(spark, path)["properties"]["delta.requireCheckpointProtectionBeforeVersion"] == str(protected)
    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (20, 0, 'theirs')")
    same(spark, path)
