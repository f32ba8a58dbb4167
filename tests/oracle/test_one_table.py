"""Spark in the gate: one table that delta-spark, the data source and the engine read, change and follow in turns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_rows, assert_same_table
from refdelta import DeltaTable, write_deltalake
from refdelta.conformance.cases import cases
from refdelta.conformance.replay import core_session, play, spark_session
from refdelta.crosscheck import oracle
from refdelta.errors import ConcurrentModificationError
from refdelta.spark import SparkExecutor, register

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.spark

FEATURES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableChangeDataFeed": "true",
    "refdelta.rowLevelConcurrency": "true",
}
ROWS = pa.table(
    {
        "id": pa.array(range(40), pa.int64()),
        "a b": [f"n{i}" if i % 7 else None for i in range(40)],
        "at": pa.array([i * 10**9 for i in range(40)], pa.timestamp("us", "UTC")),
        "nested": [{"x": i, "y": [i, None]} for i in range(40)],
        "p": [i % 2 for i in range(40)],
    }
)


@pytest.fixture
def session(quick_spark: Any) -> Any:
    """Spark with the data source ``refdelta``."""
    register(quick_spark)
    return quick_spark


def same_to_all(spark: Any, path: Path) -> pa.Table:
    """The rows, which the engine, delta-spark and the data source read alike."""
    ours = DeltaTable(path).to_pyarrow_table()
    assert_same_rows(oracle.read_table(spark, path), ours)
    by_source = spark.read.format("refdelta").load(str(path))
    assert_same_rows(by_source.toArrow(), ours)
    return ours


def test_each_changes_what_the_others_left(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, ROWS.slice(0, 30), partition_by=["p"], configuration=FEATURES)
    write_deltalake(path, ROWS.slice(30), mode="append")
    DeltaTable(path).delete("id % 10 = 3")
    spark_tables.sql(session, path, "UPDATE {t} SET `a b` = 'by delta-spark' WHERE id IN (4, 5, 33)")
    begun = DeltaTable(path).begin()
    begun.update({"`a b`": "'by refdelta'"}, predicate="id = 6")
    begun_too_late = DeltaTable(path).begin()
    begun_too_late.delete("id = 8")
    # A statement of delta-spark that both began before: of other rows of their files, and of a row of one of them.
    spark_tables.sql(session, path, "DELETE FROM {t} WHERE id = 8")
    begun.commit()
    with pytest.raises(ConcurrentModificationError):
        begun_too_late.commit()
    executor = SparkExecutor(session, group_bytes=1, broadcast_bytes=0)
    source = pa.table({"id": [7, 100], "a b": ["merged", "new"], "p": [1, 0]})
    merge = DeltaTable(path).merge(spark_tables.frame(session, source), "s.id = t.id", executor=executor)
    merge.when_matched_update({"`a b`": "s.`a b`"}).when_not_matched_insert(
        {"id": "s.id", "`a b`": "s.`a b`", "p": "s.p"}
    ).execute()
    more = spark_tables.frame(session, ROWS.slice(0, 1).set_column(0, "id", [pa.array([200], pa.int64())]))
    more.write.format("refdelta").mode("append").save(str(path))
    DeltaTable(path).create_checkpoint()
    oracle.clear_cache(session)

    found = same_to_all(session, path)
    names = dict(zip(found["id"].to_pylist(), found["a b"].to_pylist(), strict=True))
    wanted = dict(zip(range(40), ROWS["a b"].to_pylist(), strict=True))
    wanted = {i: name for i, name in wanted.items() if i % 10 != 3 and i != 8}
    wanted |= {4: "by delta-spark", 5: "by delta-spark", 6: "by refdelta", 7: "merged", 100: "new", 200: None}
    assert names == wanted
    for version in (1, 4):
        assert_same_table(oracle.read_table(session, path, version), DeltaTable(path, version).to_pyarrow_table())

    DeltaTable(path).optimize.compact()
    spark_tables.sql(session, path, "DELETE FROM {t} WHERE id = 200")
    assert same_to_all(session, path).num_rows == found.num_rows - 1


def test_a_stream_and_the_change_feed_have_each_change_once(session: Any, tmp_path: Path) -> None:
    path, copy, checkpoint = (str(tmp_path / name) for name in ("t", "copy", "checkpoint"))
    write_deltalake(path, pa.table({"id": [1, 2]}), configuration=FEATURES)

    def follow() -> None:
        stream = session.readStream.format("refdelta").load(path).writeStream.format("delta")
        query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(copy)
        assert query.awaitTermination(300)

    follow()
    for i in range(3, 6):
        write_deltalake(path, pa.table({"id": [i]}), mode="append")
    follow()
    assert sorted(DeltaTable(copy).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5]

    DeltaTable(path).update({"id": "id + 10"}, predicate="id = 1")
    DeltaTable(path).delete("id = 2")
    feed = f"SELECT id, _change_type, _commit_version FROM table_changes_by_path('{path}', 1)"
    theirs = sorted((row.id, row._change_type, row._commit_version) for row in session.sql(feed).collect())
    ours = pa.table(DeltaTable(path).load_cdf(starting_version=1))
    columns = (ours[name].to_pylist() for name in ("id", "_change_type", "_commit_version"))
    assert theirs == sorted(zip(*columns, strict=True))


def test_delta_spark_has_the_conflicts_of_the_corpus(quick_spark: Any, fresh_path: Callable[[], Path]) -> None:
    some = [case for case in cases() if case.kind == "actions"][::12]
    with ThreadPoolExecutor(4) as pool:
        theirs = list(pool.map(lambda case: play(spark_session(quick_spark, case, fresh_path())), some))
    for case, outcome in zip(some, theirs, strict=True):
        assert outcome.text == case.delta_spark, case.id
        # refdelta reads no file that delta-spark's pruning spares.
        ours = play(core_session(case, fresh_path()))
        assert all(ours.read[name] <= read for name, read in outcome.read.items()), case.id
