"""Whatever refdelta writes, delta-spark reads back: every type, every edge, every version."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_tables
import strategies
from comparison import assert_same_rows, assert_same_table
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from spark_tables import tries

pytestmark = pytest.mark.spark


def write_parts(path: Any, table: strategies.RandomTable, **options: Any) -> None:
    for part in table.parts:
        write_deltalake(path, part, mode="append", partition_by=table.partition_by or None, **options)


@tries(25)
@given(table=strategies.tables())
def test_spark_reads_what_refdelta_wrote(spark, fresh_path, table):
    path = fresh_path()
    write_parts(path, table)

    assert_same_table(oracle.read_table(spark, path), table.whole)
    assert_same_table(DeltaTable(path).to_pyarrow_table(), table.whole)


@tries(8)
@given(table=strategies.tables(columns=4))
def test_spark_sees_the_schema_as_declared(spark, fresh_path, table):
    path = fresh_path()
    write_parts(path, table)

    snapshot = oracle.delta_log(spark, path).unsafeVolatileSnapshot()
    declared = spark_tables.frame(spark, table.schema.empty_table()).schema
    assert json.loads(snapshot.schema().json()) == declared.jsonValue()
    assert oracle.detail(spark, path)["partitionColumns"] == table.partition_by


@tries(6)
@given(table=strategies.tables(parts=(2, 4), columns=4), data=st.data())
def test_spark_travels_through_appends_and_overwrites_of_refdelta(spark, fresh_path, table, data):
    path = fresh_path()
    alive: list[pa.Table] = []
    versions = []
    for part in table.parts:
        mode = data.draw(st.sampled_from(["append", "append", "overwrite"]), label="mode")
        result = write_deltalake(
            path, part, mode=mode, partition_by=(table.partition_by or None) if not versions else None
        )
        alive = [part] if mode == "overwrite" else [*alive, part]
        versions.append((result.version, table.seen(*alive)))

    for version, want in versions:
        assert_same_table(oracle.read_table(spark, path, version), want)
        assert_same_table(DeltaTable(path, version=version).to_pyarrow_table(), want)


def test_files_are_rolled_and_still_one_table(spark, tmp_path):
    data = pa.table(
        {"n": pa.array(range(50_000), pa.int64()), "s": [f"row {i} {i * 7919 % 50_000}" for i in range(50_000)]}
    )
    write_deltalake(tmp_path / "t", data, target_file_size=100_000)

    assert len(oracle.files_read(spark, tmp_path / "t")) > 2
    assert_same_rows(oracle.read_table(spark, tmp_path / "t"), data)


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "lz4_raw", "uncompressed"])
def test_spark_reads_every_codec(spark, tmp_path, codec):
    data = pa.table({"n": [1, 2, None], "s": ["a", "", None]})
    write_deltalake(tmp_path / "t", data, configuration={"delta.parquet.compression.codec": codec})

    assert_same_table(oracle.read_table(spark, tmp_path / "t"), data)


def test_a_column_added_by_merging_schemas_is_null_in_older_rows(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"n": [1], "s": pa.array([{"a": 1}])}))
    newer = pa.table({"n": [2], "s": pa.array([{"a": 2, "b": "x"}]), "new": [2.5]})
    write_deltalake(path, newer, mode="append", schema_mode="merge")

    want = pa.table({"n": [1, 2], "s": pa.array([{"a": 1, "b": None}, {"a": 2, "b": "x"}]), "new": [None, 2.5]})
    assert_same_table(oracle.read_table(spark, path), want)
    assert_same_table(DeltaTable(path).to_pyarrow_table(), want)


def test_overwriting_the_schema_replaces_columns_and_partitions(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"n": [1], "p": ["a"]}), partition_by=["p"])
    other = pa.table({"n": ["text"], "q": pa.array([1], pa.int32())})
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite", partition_by=["q"])

    assert_same_table(oracle.read_table(spark, path), other)
    assert oracle.detail(spark, path)["partitionColumns"] == ["q"]
