"""The data source `refdelta`: batch reads and writes through Spark's own interface."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import refdelta.spark
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.spark import typed_errors
from spark.files import data_files

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Version 0: four rows in two partitions; 1: one row deleted; 2: one more."""
    uri = tmp_path / "t"
    at = pa.timestamp("us", "UTC")
    data = pa.table({"id": [1, 2, 3, 4], "k": [0, 0, 1, 1], "at": pa.array([1, 2, 3, None], at)})
    write_deltalake(uri, data, partition_by="k", configuration={"delta.enableDeletionVectors": "true"})
    DeltaTable(uri).delete("id = 2")
    more = pa.table({"id": [5], "k": pa.nulls(1, pa.int64()), "at": pa.nulls(1, at)})
    write_deltalake(uri, more, mode="append")
    return uri


def read(session: Any, uri: Path, **options: Any) -> Any:
    return session.read.format("refdelta").options(**options).load(str(uri))


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_a_read_gives_the_rows_of_the_engine(session: Any, table: Path) -> None:
    frame = read(session, table)
    assert frame.schema.simpleString() == "struct<id:bigint,k:bigint,at:timestamp>"
    found = sorted((row.id, row.k, row.at) for row in frame.collect())
    here = DeltaTable(table).to_pyarrow_table().sort_by("id").to_pylist()
    assert [item[:2] for item in found] == [(row["id"], row["k"]) for row in here]
    micros = {row.id: row.m for row in frame.selectExpr("id", "unix_micros(at) as m").collect()}
    assert micros == {1: 1, 3: 3, 4: None, 5: None}


def test_versions_and_filters_are_options_and_stay_settled(session: Any, table: Path) -> None:
    assert ids(read(session, table, versionAsOf=0)) == [1, 2, 3, 4]
    moment = DeltaTable(table).history()[-1]["timestamp"]
    stamp = dt.datetime.fromtimestamp(moment / 1000, tz=dt.UTC).isoformat()
    assert ids(read(session, table, timestampAsOf=stamp)) == [1, 2, 3, 4]
    assert ids(read(session, table, filter="id > 3 or k = 0")) == [1, 4, 5]
    frame = read(session, table)
    write_deltalake(table, pa.table({"id": [6], "k": [7], "at": pa.nulls(1, pa.timestamp("us", "UTC"))}), mode="append")
    assert ids(frame) == [1, 3, 4, 5]
    assert frame.join(frame.select("id"), "id").count() == 4
    assert ids(read(session, table)) == [1, 3, 4, 5, 6]


def test_a_schema_narrows_a_read(session: Any, table: Path) -> None:
    narrow = session.read.format("refdelta").schema("k long, id long").load(str(table))
    assert narrow.columns == ["k", "id"]
    assert ids(narrow) == [1, 3, 4, 5]
    with pytest.raises(errors.InvalidArgumentError, match="bigint"), typed_errors():
        session.read.format("refdelta").schema("id string").load(str(table)).count()


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_a_filter_of_one_action_does_not_leak_into_the_next(session: Any, table: Path, pushdown: str) -> None:
    session.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = read(session, table)
        assert frame.where("k = 1").count() == 2
        assert frame.count() == 4
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_temporary_view_is_a_table_to_sql(session: Any, table: Path) -> None:
    session.sql(f"create or replace temporary view seen using refdelta options (path '{table}', versionAsOf '0')")
    assert session.sql("select sum(id) as s from seen where k = 1").first().s == 7


def test_writes_append_and_overwrite(session: Any, tmp_path: Path) -> None:
    uri = tmp_path / "new"
    rows = session.createDataFrame([(1, "a"), (2, "b")], "id long, k string")
    rows.write.format("refdelta").mode("append").option("partitionBy", "k").save(str(uri))
    assert DeltaTable(uri).metadata().partition_columns == ["k"]
    more = session.createDataFrame([(3, "b")], "id long, k string")
    more.write.format("refdelta").mode("overwrite").option("replaceWhere", "k = 'b'").save(str(uri))
    assert ids(read(session, uri)) == [1, 3]
    dynamic = session.createDataFrame([(4, "a")], "id long, k string").write.format("refdelta").mode("overwrite")
    dynamic.option("partitionOverwriteMode", "dynamic").option("userMetadata", "noted").save(str(uri))
    assert ids(read(session, uri)) == [3, 4]
    assert DeltaTable(uri).history(1)[0]["userMetadata"] == "noted"
    once = more.write.format("refdelta").mode("append").option("txnAppId", "job").option("txnVersion", "1")
    once.save(str(uri))
    before = data_files(uri)
    once.save(str(uri))
    assert data_files(uri) == before
    assert ids(read(session, uri)) == [3, 3, 4]
    rows.write.format("refdelta").mode("overwrite").save(str(uri))
    assert ids(read(session, uri)) == [1, 2]


def test_a_write_that_reads_the_table_says_so(session: Any, table: Path) -> None:
    frame = read(session, table).selectExpr("id + 10 as id", "k", "at")
    frame.write.format("refdelta").mode("append").option("readsTarget", "true").save(str(table))
    frame.write.format("refdelta").mode("append").save(str(table))
    assert [commit["isBlindAppend"] for commit in DeltaTable(table).history(2)] == [True, False]
    DeltaTable(table).delete("id = 1")
    with pytest.raises(errors.ConcurrentModificationError), typed_errors():
        frame.write.format("refdelta").mode("append").option("readsTarget", "2").save(str(table))


def test_what_is_refused_says_why(session: Any, table: Path, tmp_path: Path) -> None:
    rows = session.createDataFrame([(1, 1)], "id long, k long").write.format("refdelta").mode("append")
    with pytest.raises(errors.InvalidArgumentError, match="partitioned by"), typed_errors():
        rows.option("partitionBy", "id").save(str(table))
    with pytest.raises(errors.TableNotFoundError), typed_errors():
        read(session, tmp_path / "none")
    with pytest.raises(errors.InvalidArgumentError, match=r"startingVersion.*versionAsOf"), typed_errors():
        read(session, table, startingVersion=1).count()
    with pytest.raises(errors.InvalidArgumentError, match="versionAsOf"), typed_errors():
        read(session, table, versionAsOf="x").count()
    wide = session.sql("select 1L as id, raise_error('ran') as other")
    with pytest.raises(errors.SchemaMismatchError, match="other"), typed_errors():
        wide.write.format("refdelta").mode("append").save(str(table))


def test_a_failed_write_leaves_nothing_and_a_worker_error_is_typed(session: Any, table: Path) -> None:
    before, version = data_files(table), DeltaTable(table).version()
    rows = session.createDataFrame([(1, 1), (2, 0)], "id long, k long").repartition(2).write.format("refdelta")
    with pytest.raises(errors.ConstraintViolationError, match="outside of the predicate"), typed_errors():
        rows.mode("overwrite").option("replaceWhere", "k = 1").save(str(table))
    assert data_files(table) == before
    assert DeltaTable(table).version() == version


def test_abort_keeps_what_a_commit_names(session: Any, table: Path) -> None:
    from refdelta.spark import source_writers

    schema = session.createDataFrame([(1, 1)], "id long, k long").schema

    def written() -> tuple[Any, Any]:
        writer = source_writers.TableWriter({"path": str(table)}, schema, overwrite=False)
        return writer, writer.write(iter([pa.record_batch({"id": [9], "k": [1]})]))

    # Landed, and the reply was lost: whatever Spark thinks of the tasks, the files stay.
    before = data_files(table)
    writer, message = written()
    writer.commit([message])
    landed = data_files(table)
    for messages in ([message], [message, None], []):
        writer.abort(messages)
        assert data_files(table) == landed != before
    # Never committed: they go.
    writer, message = written()
    assert data_files(table) != landed
    writer.abort([message, None])
    assert data_files(table) == landed


def test_a_view_stays_at_its_version_until_it_is_created_again(session: Any, table: Path) -> None:
    def create(source: str, **options: Any) -> None:
        given = ", ".join(f"{name} '{value}'" for name, value in {"path": table, **options}.items())
        session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {source}_view USING {source} OPTIONS ({given})")

    def count(source: str) -> Any:
        # Both sides of a join see one version.
        sql = f"SELECT count(*), count(DISTINCT l.id) FROM {source}_view l JOIN {source}_view r ON l.id = r.id"
        return tuple(session.sql(sql).first())

    create("refdelta")
    create("delta")
    refdelta.spark.read(session, table).createOrReplaceTempView("read_view")
    assert count("refdelta") == count("delta") == count("read") == (4, 4)
    session.sql("INSERT INTO refdelta_view VALUES (6, 1, NULL)")
    session.sql("REFRESH TABLE refdelta_view")
    session.catalog.refreshTable("refdelta_view")
    assert count("delta") == (5, 5)
    assert count("refdelta") == count("read") == (4, 4)
    create("refdelta")
    assert count("refdelta") == (5, 5)
    for source in ("refdelta", "delta"):
        create(source, versionAsOf=1)
        assert count(source) == (3, 3)
