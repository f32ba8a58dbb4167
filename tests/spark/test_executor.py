"""Statements whose files others read and write: the same cases over threads, over pickled tasks, and over Spark."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import (
    ConcurrentModificationError,
    ConstraintViolationError,
    DataFileNotFoundError,
    ExpressionError,
    InvalidArgumentError,
    StoreError,
)
from refdelta.operations.layout import auto_compact
from refdelta.spark import SparkExecutor
from waiting import until

pytestmark = pytest.mark.sample(check=1, test=5)


class Pickled:
    """Tasks in this process, each written anew by itself, that see of each other and of the caller copies alone."""

    group_bytes = 1

    def map(self, function, tasks, *, done=None, writes=None):
        from pyspark import cloudpickle

        for task in tasks:
            run, own = pickle.loads(cloudpickle.dumps((function, task)))
            result = pickle.loads(pickle.dumps(run(own)))
            if done is not None:
                done(result)
            yield result


@pytest.fixture(params=["threads", "pickled", pytest.param("spark", marks=pytest.mark.spark)])
def executor(request):
    if request.param == "threads":
        return ThreadExecutor()
    if request.param == "pickled":
        pytest.importorskip("pyspark")
        return Pickled()
    return SparkExecutor(request.getfixturevalue("spark"), group_bytes=1)


@pytest.fixture(params=["vectors", "copies"])
def path(request, tmp_path):
    """Four files in two partitions, one of which has a row deleted."""
    path = str(tmp_path / "table")
    configuration = {"delta.enableDeletionVectors": str(request.param == "vectors").lower()}
    for start in range(0, 40, 10):
        ids = list(range(start, start + 10))
        rows = pa.table({"id": ids, "part": [i // 20 for i in ids], "name": [f"n{i}" for i in ids]})
        write_deltalake(path, rows, mode="append", partition_by=["part"], configuration=configuration)
    DeltaTable(path).delete("id = 13")
    return path


START = [(i, i // 20, f"n{i}") for i in range(40) if i != 13]


def held(path):
    return sorted(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table(["id", "part", "name"]).to_pylist())


def parquet_files(path):
    from pathlib import Path

    return {str(file) for file in Path(path).rglob("*.parquet") if "_delta_log" not in file.parts}


def same_elsewhere(path):
    """A version has the number of files that its adds name, and all of them have statistics."""
    adds = DeltaTable(path).get_add_actions()
    assert None not in adds.column("num_records").to_pylist()


def test_delete(path, executor):
    result = DeltaTable(path).delete("id % 7 = 0 or part = 1 and id > 37", executor=executor)
    assert held(path) == [row for row in START if row[0] % 7 and row[0] <= 37]
    assert result["num_deleted_rows"] == 8
    same_elsewhere(path)


def test_delete_of_a_partition_reads_nothing(path, executor):
    assert DeltaTable(path).delete("part = 0", executor=executor)["num_deleted_rows"] == 19
    assert held(path) == START[19:]


def test_update(path, executor):
    result = DeltaTable(path).update(
        {"name": "concat(name, '!')", "part": "2"}, predicate="id between 8 and 31", executor=executor
    )
    assert result["num_updated_rows"] == 23
    assert held(path) == [(i, 2, f"{n}!") if 8 <= i <= 31 else (i, p, n) for i, p, n in START]
    same_elsewhere(path)


SOURCE = pa.table({"id": [3, 17, 24, 50, 51], "part": [0, 0, 1, 3, 3], "name": ["a", None, "c", "d", "skip"]})


@pytest.mark.tier("test")
def test_merge(path, executor):
    result = (
        DeltaTable(path)
        .merge(SOURCE, "s.id = t.id", executor=executor)
        .when_matched_delete("s.name is null")
        .when_matched_update({"name": "s.name"})
        .when_not_matched_insert_all("s.name <> 'skip'")
        .when_not_matched_by_source_update({"name": "'gone'"}, "t.id > 35")
        .execute()
    )
    wanted = {i: (i, p, "gone" if i > 35 else n) for i, p, n in START if i != 17}
    wanted |= {3: (3, 0, "a"), 24: (24, 1, "c"), 50: (50, 3, "d")}
    assert held(path) == sorted(wanted.values())
    told = {name: result[name] for name in ("num_target_rows_inserted", "num_target_rows_updated")}
    assert told == {"num_target_rows_inserted": 1, "num_target_rows_updated": 6}
    assert result["num_target_rows_deleted"] == 1
    vectors = DeltaTable(path).metadata().configuration["delta.enableDeletionVectors"] == "true"
    assert result["num_target_rows_copied"] == (0 if vectors else len(START) - 7)
    same_elsewhere(path)


def test_merge_of_rows_that_match_twice(path, executor):
    twice = pa.concat_tables([SOURCE, SOURCE])
    before = parquet_files(path)
    merge = DeltaTable(path).merge(twice, "s.id = t.id", executor=executor).when_matched_update({"name": "s.name"})
    with pytest.raises(ConstraintViolationError, match="2 rows of the source match one row of the table"):
        merge.execute()
    assert held(path) == START
    assert parquet_files(path) == before


def test_compact_keeps_rows_and_their_order(path, executor):
    result = DeltaTable(path).optimize.compact(executor=executor)
    assert (result["numFilesAdded"], result["numBatches"]) == (2, 2)
    by_file = DeltaTable(path).to_pyarrow_table().column("id").to_pylist()
    assert [i for i in by_file if i < 20] == [row[0] for row in START[:19]]
    assert held(path) == START
    assert DeltaTable(path).optimize.compact(executor=executor).version is None


def test_compact_in_commits_of_a_bin_each(path, executor):
    told = []
    before = DeltaTable(path).version()
    DeltaTable(path).optimize.compact(
        min_commit_interval=0, progress=lambda *done: told.append(done), executor=executor
    )
    assert DeltaTable(path).version() == before + 2
    assert len(told) == 2
    assert held(path) == START


def test_z_order_and_purge(path, executor):
    DeltaTable(path).optimize.z_order(["id"], executor=executor)
    assert DeltaTable(path).count() == len(START)
    DeltaTable(path).delete("id = 0")
    DeltaTable(path).reorg_purge(executor=executor)
    assert held(path) == START[1:]
    assert set(DeltaTable(path).get_add_actions().column("num_records").to_pylist()) == {18, 20}


def test_vacuum(path, executor):
    DeltaTable(path).optimize.compact()
    before = parquet_files(path)
    gone = DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, executor=executor)
    assert len(gone) >= 4
    assert parquet_files(path) == {file for file in before if not any(file.endswith(key) for key in gone)}
    assert held(path) == START


def test_a_read_of_a_transaction(path, executor):
    with DeltaTable(path).begin(executor=executor) as txn:
        assert txn.read(["id"], "id > 36").column("id").to_pylist() == [37, 38, 39]


def test_a_compaction_and_a_delete_of_its_rows_meet(path, executor):
    """With vectors both commit, by the places that the tasks recorded; without, the compaction loses."""
    vectors = DeltaTable(path).metadata().configuration["delta.enableDeletionVectors"] == "true"
    with DeltaTable(path).begin(executor=executor) as txn:
        txn.compact()
        DeltaTable(path).delete("id in (5, 16, 38)", executor=executor)
        if vectors:
            txn.commit()
        else:
            with pytest.raises(ConcurrentModificationError):
                txn.commit()
    assert held(path) == [row for row in START if row[0] not in (5, 16, 38)]


def test_deletes_of_different_rows_of_a_file_both_commit(tmp_path, executor):
    path = str(tmp_path)
    write_deltalake(path, pa.table({"id": range(10)}), configuration={"delta.enableDeletionVectors": "true"})
    with DeltaTable(path).begin(executor=executor) as txn:
        txn.delete("id = 5")
        DeltaTable(path).delete("id = 6")
        assert txn.commit().rebased_over == (1,)
    assert sorted(DeltaTable(path).to_pyarrow_table().column("id").to_pylist()) == [0, 1, 2, 3, 4, 7, 8, 9]


def test_two_updates_of_a_row_conflict(path, executor):
    with DeltaTable(path).begin(executor=executor) as txn:
        txn.update({"name": "'mine'"}, predicate="id = 25")
        DeltaTable(path).update({"name": "'theirs'"}, predicate="id = 25")
        with pytest.raises(ConcurrentModificationError):
            txn.commit()
    assert (25, 1, "theirs") in held(path)


def test_a_failing_task_leaves_no_file(path, executor):
    before = parquet_files(path)
    with pytest.raises(ExpressionError):
        DeltaTable(path).update({"id": "cast(name as bigint)"}, predicate="id > 30", executor=executor)
    assert parquet_files(path) == before
    assert held(path) == START


def test_a_missing_file_is_told(path, executor):
    from pathlib import Path

    Path(DeltaTable(path).file_uris()[0].removeprefix("file://")).unlink()
    with pytest.raises(DataFileNotFoundError):
        DeltaTable(path).delete("name = 'n1' or name = 'n38' or id > 0", executor=executor)


def test_vacuum_tells_how_far_it_came(path, monkeypatch):
    from refdelta.operations.maintenance import vacuum

    def refuse(store, until_ms, keys):
        raise StoreError("no")

    monkeypatch.setattr(vacuum, "_delete", refuse)
    DeltaTable(path).optimize.compact()
    with pytest.raises(StoreError, match=r"at least 0 of .* are removed: no"):
        DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, executor=ThreadExecutor(1))


@pytest.mark.spark
def test_the_executor_says_what_it_takes(spark):
    with pytest.raises(InvalidArgumentError, match="group_bytes is 0"):
        SparkExecutor(spark, group_bytes=0)
    with pytest.raises(InvalidArgumentError, match="SparkSession"):
        SparkExecutor("spark")


@pytest.mark.spark
def test_tasks_come_back_in_order_however_many(spark):
    executor = SparkExecutor(spark)
    told = []
    assert list(executor.map(lambda n: n * n, list(range(50)), done=told.append)) == [n * n for n in range(50)]
    assert told == [n * n for n in range(50)]
    assert list(executor.map(lambda n: -n, iter(range(7)))) == [-n for n in range(7)]
    assert list(executor.map(lambda n: n, [])) == []


@pytest.mark.sample(test=1)
@pytest.mark.spark
def test_a_dataframe_is_a_source_of_a_merge(path, spark):
    """Its rows come to the driver first, as those of any source."""
    source = spark.createDataFrame([(3, "three"), (50, "fifty")], "id long, name string")
    result = (
        DeltaTable(path)
        .merge(source, "s.id = t.id", executor=SparkExecutor(spark))
        .when_matched_update({"name": "s.name"})
        .when_not_matched_insert({"id": "s.id", "name": "s.name", "part": "5"})
        .execute()
    )
    assert (result["num_target_rows_updated"], result["num_target_rows_inserted"]) == (1, 1)
    assert {(3, 0, "three"), (50, 5, "fifty")} <= set(held(path))


@pytest.mark.spark
def test_inserts_of_a_merge_are_shared_out(path, spark):
    source = pa.table({"id": range(100, 200), "part": [7] * 100, "name": [str(i) for i in range(100)]})
    executor = SparkExecutor(spark, group_bytes=int(source.nbytes) // 3)
    merge = DeltaTable(path).merge(source, "s.id = t.id and t.part = 7", executor=executor)
    result = merge.when_not_matched_insert_all().execute()
    assert result["num_target_files_added"] in (3, 4)
    assert [row[0] for row in held(path)][-100:] == list(range(100, 200))


def test_a_compaction_after_a_statement_is_its_executors_too(path, monkeypatch):
    monkeypatch.setattr(auto_compact, "MIN_FILES", 2)
    DeltaTable(path).alter.set_table_properties({"delta.autoOptimize.autoCompact": "true"})
    calls = []

    class Counting(ThreadExecutor):
        def map(self, function, tasks, *, done=None, writes=None):
            calls.append(function)
            return super().map(function, tasks, done=done, writes=writes)

    DeltaTable(path).update({"name": "'x'"}, predicate="id in (1, 2)", executor=Counting(2))
    assert held(path) == [(i, p, "x" if i in (1, 2) else n) for i, p, n in START]
    assert any("Rewriter.rewrite" in str(call) for call in calls)


@pytest.mark.spark
def test_files_of_an_attempt_that_spark_kills_are_removed(spark, tmp_path):
    """As it kills the slower one of two attempts that it runs side by side."""
    import threading

    from pyspark import TaskContext

    from refdelta.engine.log.location import open_location
    from refdelta.engine.log.snapshot import load_snapshot
    from refdelta.engine.parquet.write import write_files

    path, begun = tmp_path / "t", tmp_path / "begun"
    rows = pa.table({"id": [1]})
    write_deltalake(str(path), rows)
    store = open_location(str(path), None)
    snapshot = load_snapshot(store)
    before = parquet_files(path)

    def write(number):
        adds = write_files(
            store,
            rows.to_batches(),
            schema=snapshot.schema,
            partition_columns=[],
            properties=snapshot.properties,
        )
        if number == 1 and not begun.exists():
            begun.write_text(str(TaskContext.get().taskAttemptId()))
            threading.Event().wait(600)  # until it is killed
        return adds[0].path

    def kill():
        until(lambda: begun.exists() and begun.read_text())
        assert len(parquet_files(path) - before) >= 1
        spark.sparkContext._jsc.sc().killTaskAttempt(int(begun.read_text()), True, "another was faster")

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    named = list(SparkExecutor(spark).map(write, [0, 1, 2], writes=store))
    killer.join()
    assert len(set(named)) == 3
    assert {file.rpartition("/")[2] for file in parquet_files(path) - before} == set(named)
