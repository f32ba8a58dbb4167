"""Data files of attempts that do not count, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.operations.write.append import WrittenFiles
from refdelta.spark import job, leftovers
from refdelta.spark.job import TaskFiles, WriteJob


@pytest.fixture
def table(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    return DeltaTable(str(tmp_path))


def left(path, token):
    return sorted(file.name for file in path.glob(f"*{token}*"))


def session():
    done = []
    context = SimpleNamespace(
        addJobTag=lambda tag: done.append(("add", tag)),
        removeJobTag=lambda tag: done.append(("remove", tag)),
        cancelJobsWithTag=lambda tag: done.append(("cancel", tag)),
    )
    return SimpleNamespace(sparkContext=context), done


def test_an_interrupt_after_the_last_result_leaves_no_file(table, tmp_path, monkeypatch):
    spark, done = session()
    ends = iter([KeyboardInterrupt, None])

    def ended(*_):
        if raised := next(ends):
            raise raised
        return True

    monkeypatch.setattr(leftovers, "_ended", ended)
    monkeypatch.setattr(leftovers, "_PATIENCE", 0.1)

    def work():
        with leftovers.watched(spark, table.store) as watch:
            (tmp_path / f"part-0-{watch.token}-7-c000.parquet").touch()
            watch.counting.add(f"{watch.token}-7")

    with pytest.raises(KeyboardInterrupt):
        work()
    token = done[0][1]
    assert not left(tmp_path, token)
    assert {what for what, _ in done[1:-1]} == {"cancel"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_job_that_begins_after_the_interrupt_is_cancelled_and_leaves_no_file(table, tmp_path, monkeypatch, error):
    spark, done = session()
    monkeypatch.setattr(leftovers, "_PATIENCE", 0.3)

    def cancel(token):
        done.append(("cancel", token))
        if len(done) == 3:  # what the job has written that the first call has not found
            (tmp_path / f"part-0-{token}-7-c000.parquet").touch()

    spark.sparkContext.cancelJobsWithTag = cancel

    def work():
        with leftovers.watched(spark, table.store):
            raise error

    with pytest.raises(error):
        work()
    assert not left(tmp_path, done[0][1])
    calls = [what for what, _ in done].count("cancel")
    assert calls > 2 if error is KeyboardInterrupt else calls == 1


@pytest.mark.parametrize(
    ("attempt", "speculation", "expected"), [(0, None, 2), (0, "false", 2), (1, None, 1), (0, "true", 1)]
)
def test_files_of_a_second_attempt_beside_the_first_are_removed(
    table, tmp_path, monkeypatch, attempt, speculation, expected
):
    pyspark = pytest.importorskip("pyspark")
    context = SimpleNamespace(
        attemptNumber=lambda: attempt, taskAttemptId=lambda: 7, getLocalProperty={"spark.speculation": speculation}.get
    )
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)
    monkeypatch.setattr(job, "write_part", lambda *_: WrittenFiles([], 0))
    rules = SimpleNamespace(furthest=lambda marks: [*marks] and None)
    writer = SimpleNamespace(store=table.store, target=SimpleNamespace(rules=rules))
    one = WriteJob("token", 0, False, None, None, writer)
    for name in ("token-7", "token-8"):
        (tmp_path / f"part-0-{name}-c000.parquet").touch()
    written = one.write(iter(()))
    assert isinstance(written, TaskFiles)
    one.rows([written])
    assert len(left(tmp_path, "token")) == expected
