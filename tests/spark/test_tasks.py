"""One Spark task for each of ours: order, errors, what is pickled."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from refdelta.errors import ConcurrentAppendException, ConflictDetails, DataFileNotFoundError
from refdelta.spark import tasks
from refdelta.spark.failures import raise_again

pytestmark = pytest.mark.spark


def place(task):
    from pyspark import TaskContext

    return task, TaskContext.get().partitionId(), os.getpid()


def test_results_come_in_the_order_of_the_tasks_each_from_a_spark_task_of_its_own(spark):
    found = tasks.run(spark, place, list("cabd"))
    assert [task for task, _, _ in found] == list("cabd")
    assert [part for _, part, _ in found] == [0, 1, 2, 3]
    assert os.getpid() not in {process for _, _, process in found}


def test_no_tasks_give_no_results(spark):
    assert tasks.run(spark, place, []) == []


def test_local_functions_and_what_they_hold_are_taken_along(spark):
    held = {"factor": 3, "big": b"x" * 3_000_000}
    found = tasks.run(spark, lambda task: task() * held["factor"] + len(held["big"]), [lambda: 1, lambda: 2])
    assert found == [3_000_003, 3_000_006]


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataFileNotFoundError("it is gone", file="a b.parquet"),
        lambda: ConcurrentAppendException("lost", ConflictDetails("append", 3, "WRITE", ("a",), positions={"a": (1,)})),
    ],
)
def test_an_error_of_a_worker_comes_out_as_its_class(spark, make):
    def work(task):
        if task == 1:
            raise make()
        return task

    error = make()
    with pytest.raises(type(error)) as caught:
        tasks.run(spark, work, [0, 1, 2])
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


def test_an_error_that_is_not_ours_is_spark_s(spark):
    def work(task):
        return 1 // task

    with pytest.raises(Exception, match="ZeroDivisionError"):
        tasks.run(spark, work, [0])


def test_a_frame_has_the_batches_of_all_tasks(spark):
    def batches(task):
        for number in range(task):
            yield pa.record_batch({"task": [task] * 2, "number": [number, None]})

    found = tasks.frame(spark, batches, [2, 0, 1], "task long, number long").toArrow()
    assert found.column("task").to_pylist() == [2, 2, 2, 2, 1, 1]
    assert found.column("number").to_pylist() == [0, None, 1, None, 0, None]
    assert tasks.frame(spark, batches, [], "task long, number long").collect() == []


def test_an_error_within_a_frame_comes_out_of_its_action(spark):
    def batches(task):
        yield pa.record_batch({"x": [1]})
        raise DataFileNotFoundError("it is gone", file=task)

    frame = tasks.frame(spark, batches, ["x.parquet"], "x long")
    with pytest.raises(DataFileNotFoundError, match="it is gone"), raise_again():
        frame.collect()
