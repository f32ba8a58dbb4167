"""Tasks on Spark's workers: a function over values, or over the partitions of a DataFrame."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from refdelta.spark.failures import raise_again, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Task = TypeVar("Task")
Result = TypeVar("Result")

_RESULTS = "number long, result binary"


def run(spark: Any, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """Run a function over tasks, each in a Spark task of its own.

    Spark may run a task more than once, where an attempt failed or was slow; one result of each comes back.

    Args:
        spark: the session.
        function: the function, which may be local. It is pickled once, with its closure, by cloudpickle; each task is
            pickled alone, likewise. Results are pickled by Python's own ``pickle``.
        tasks: the arguments.

    Returns:
        The results, in the order of the tasks.

    Raises:
        DeltaError: the error of a worker, of the same class; :class:`SparkUnavailableError` if the workers lack this
            package.
    """
    packed = _packed(tasks)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            with reported():
                result = function(pickle.loads(packed[number]))  # noqa: S301 - the driver's
            yield pa.record_batch({"number": [number], "result": [pickle.dumps(result)]})

    with raise_again():
        rows = _one_each(spark, len(tasks)).mapInArrow(work, _RESULTS).collect() if tasks else []
    found = {row.number: row.result for row in rows}
    return [pickle.loads(found[number]) for number in range(len(tasks))]  # noqa: S301 - of our own workers


def number() -> int:
    """On a worker: the number of the task in its job, the same for each attempt at it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context else 0


def frame(spark: Any, function: Callable[[Task], Iterator[pa.RecordBatch]], tasks: Sequence[Task], schema: Any) -> Any:
    """A DataFrame of the batches that a function yields for each task, each in a Spark task of its own.

    The error of a worker leaves Spark's actions on the DataFrame as Spark's exception; within
    :func:`~refdelta.spark.failures.raise_again` it is raised as ``DeltaError``.

    Args:
        spark: the session.
        function: see :func:`run`; its batches have exactly the Arrow types of ``schema``.
        tasks: see :func:`run`.
        schema: the DataFrame's ``StructType``, or the text of one.
    """
    packed = _packed(tasks)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            with reported():
                yield from function(pickle.loads(packed[number]))  # noqa: S301 - the driver's

    return _one_each(spark, len(tasks)).mapInArrow(work, schema)


def over(frame: Any, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: Any) -> Any:
    """A DataFrame of the batches that a function yields for each partition of another one.

    Columns may have any name, while ``mapInArrow`` takes dots in names for paths. Errors reach the driver as for
    :func:`frame` if the function uses :func:`~refdelta.spark.failures.reported`.

    Args:
        frame: the other DataFrame.
        function: see :func:`run`; called once with the batches of each partition, which may be empty.
        schema: see :func:`frame`.
    """
    names = frame.columns

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{place}" for place in range(len(names)))).mapInArrow(work, schema)


def _packed(tasks: Sequence[Any]) -> list[bytes]:
    """The tasks in pickled form: every worker gets all, and unpickles its own."""
    from pyspark import cloudpickle

    return [cloudpickle.dumps(task) for task in tasks]


def _one_each(spark: Any, count: int) -> Any:
    # With as many partitions as numbers each partition has one; a repartition of rows would not guarantee it.
    return spark.range(0, count, 1, max(1, count))


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
