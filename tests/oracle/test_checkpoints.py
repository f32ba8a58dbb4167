"""Checkpoints of each engine are read by the other, where nothing but the checkpoint can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given

import spark_tables
import strategies
from comparison import assert_same_table
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from spark_tables import tries

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def drop_commits_before_checkpoint(path: Path) -> list[str]:
    """Delete every commit that the newest checkpoint covers but its own; return the checkpoint's file names."""
    log = path / "_delta_log"
    checkpoints = sorted(file.name for file in log.glob("0*.checkpoint*"))
    covered = int(checkpoints[-1][:20])
    for file in list(log.iterdir()):
        version, kind = file.name[:20], file.name[20:]
        if kind == ".crc" or (kind == ".json" and int(version) < covered):
            file.unlink()
            (log / f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's own, of the bytes
    return checkpoints


FLAVOURS = {
    "classic": ({}, {}, lambda names: names == [f"{6:020d}.checkpoint.parquet"]),
    "struct statistics only": (
        {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
        {},
        lambda names: len(names) == 1,
    ),
    "multi-part": ({}, {"spark.databricks.delta.checkpoint.partSize": "2"}, lambda names: len(names) > 1),
    "v2 json": (
        {"delta.checkpointPolicy": "v2"},
        {"spark.databricks.delta.checkpointV2.topLevelFileFormat": "json"},
        lambda names: names[0].endswith(".json"),
    ),
    "v2 parquet": (
        {"delta.checkpointPolicy": "v2"},
        {"spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet"},
        lambda names: names[0].endswith(".parquet") and len(names[0]) > 50,
    ),
}


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_refdelta_reads_checkpoints_of_spark(spark, tmp_path, flavour):
    properties, conf, looks_right = FLAVOURS[flavour]
    path = tmp_path / "t"
    schema = pa.schema(
        [("p", pa.date32()), ("n", pa.int64()), ("s", pa.struct([("x", pa.string()), ("at", strategies.TIMESTAMP)]))]
    )
    spark_tables.create(spark, path, schema, ["p"], properties)
    values = (
        "(DATE'2024-01-0{0}', {0}, struct('row {0}', TIMESTAMP'2024-01-01 00:00:00.12345{0}Z')), (NULL, -{0}, NULL)"
    )
    for i in range(1, 6):
        spark_tables.sql(spark, path, f"INSERT INTO {{t}} VALUES {values.format(i)}")
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n IN (2, -3)")
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        oracle.checkpoint(spark, path)
    finally:
        for key in conf:
            spark.conf.unset(key)
    spark_tables.sql(spark, path, "INSERT INTO {t} VALUES (DATE'2024-02-01', 100, NULL)")
    assert looks_right(drop_commits_before_checkpoint(path)), sorted((path / "_delta_log").iterdir())

    ours = DeltaTable(path)
    assert_same_table(ours.to_pyarrow_table(), oracle.read_table(spark, path))
    assert ours.to_pyarrow_table(filters="n = 4")["s"].to_pylist()[0]["x"] == "row 4"
    assert len(ours.scan(predicate="n = 4").to_table()) == 1
    assert ours.count() == 9


@tries(6)
@given(table=strategies.tables(columns=5))
def test_refdelta_reads_any_table_from_a_checkpoint_of_spark(spark, fresh_path, table):
    path = fresh_path()
    spark_tables.create(spark, path, table.schema, table.partition_by, {"delta.checkpoint.writeStatsAsStruct": "true"})
    for part in table.parts:
        spark_tables.write(spark, path, part, partition_by=table.partition_by)
    oracle.checkpoint(spark, path)
    drop_commits_before_checkpoint(path)

    assert_same_table(DeltaTable(path).to_pyarrow_table(), table.whole)


@tries(8)
@given(table=strategies.tables(columns=5))
def test_spark_reads_any_table_from_a_checkpoint_of_refdelta(spark, fresh_path, table):
    path = fresh_path()
    for part in table.parts:
        write_deltalake(path, part, mode="append", partition_by=table.partition_by or None)
    DeltaTable(path).create_checkpoint()
    drop_commits_before_checkpoint(path)

    assert_same_table(oracle.read_table(spark, path), table.whole)
    oracle.clear_cache(spark)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.checkpoint.writeStatsAsStruct": "true"},
        {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
    ],
    ids=["json", "json and struct", "struct"],
)
def test_spark_skips_by_the_statistics_in_a_checkpoint_of_refdelta(spark, tmp_path, properties):
    path = tmp_path / "t"
    for i in range(4):
        part = pa.table({"n": [i, i], "s": [{"x": f"text {i}"}] * 2, "p": ["a b", None]})
        write_deltalake(path, part, mode="append", partition_by=["p"], configuration=properties if i == 0 else None)
    DeltaTable(path).create_checkpoint()
    drop_commits_before_checkpoint(path)

    assert len(oracle.files_read(spark, path, "n = 2 AND p = 'a b'")) == 1
    assert len(oracle.files_read(spark, path, "s.x = 'text 3'")) == 2
    assert oracle.frame(spark, path).where("n = 2").count() == 2


def test_automatic_checkpoints_with_removed_files_and_application_versions(spark, tmp_path):
    path = tmp_path / "t"
    for i in range(12):
        mode = "overwrite" if i == 7 else "append"
        every = {"delta.checkpointInterval": "10"} if i == 0 else None
        write_deltalake(path, pa.table({"n": [i]}), mode=mode, configuration=every, app_id="loader", app_version=i)
    assert drop_commits_before_checkpoint(path) == [f"{10:020d}.checkpoint.parquet"]

    want = pa.table({"n": [7, 8, 9, 10, 11]})
    assert_same_table(oracle.read_table(spark, path), want)
    assert_same_table(DeltaTable(path).to_pyarrow_table(), want)
    spark.range(1).withColumnRenamed("id", "n").write.format("delta").mode("append").options(
        txnAppId="loader", txnVersion=11
    ).save(str(path))
    assert DeltaTable(path).version() == 11  # Spark found the application's version and did nothing
    assert DeltaTable(path).transaction_version("loader") == 11


def test_spark_trusts_the_last_checkpoint_file_of_refdelta(spark, tmp_path):
    path = tmp_path / "t"
    for i in range(3):
        write_deltalake(path, pa.table({"n": [i]}), mode="append")
    DeltaTable(path).create_checkpoint()
    oracle.clear_cache(spark)
    hint = oracle.delta_log(spark, path).unsafeVolatileSnapshot().logSegment().checkpointProvider()

    assert hint.version() == 2


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("flavour", ["classic", "struct statistics only", "v2 parquet"])
def test_vectors_are_in_the_checkpoints_of_either(quick_spark, tmp_path, flavour):
    """Small ones that stand in the log, large ones in files, and files whose vector has grown since."""
    spark, path = quick_spark, tmp_path / "t"
    properties, conf, _ = FLAVOURS[flavour]
    properties = {"delta.enableDeletionVectors": "true", **properties}
    for start in (0, 5000):
        data = pa.table({"n": pa.array(range(start, start + 5000), pa.int64())})
        write_deltalake(path, data, mode="append", configuration=None if start else properties)
    gone = set()

    def agree() -> None:
        drop_commits_before_checkpoint(path)
        oracle.clear_cache(spark)
        want = pa.table({"n": sorted(set(range(10_000)) - gone)})
        assert_same_table(DeltaTable(path).to_pyarrow_table(), want)
        assert_same_table(oracle.read_table(spark, path), want)

    DeltaTable(path).delete("n % 3 = 0 AND n < 5000 OR n = 7777")
    gone |= {*range(0, 5000, 3), 7777}
    DeltaTable(path).create_checkpoint()
    agree()
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n % 1000 = 1")
    gone |= {*range(1, 10_000, 1000)}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        oracle.checkpoint(spark, path)
    finally:
        for name in conf:
            spark.conf.unset(name)
    agree()
    DeltaTable(path).delete("n % 1000 = 2")
    gone |= {*range(2, 10_000, 1000)}
    DeltaTable(path).create_checkpoint()
    agree()
