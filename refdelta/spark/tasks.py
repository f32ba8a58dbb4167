"""File tasks on Spark's workers: one Spark task for each, and what they return."""

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
        function: what to do; it and what it holds are pickled once, and may be a local function. So may tasks be
            or hold, each of which is pickled alone. Results are pickled by Python's own ``pickle``.
        tasks: what to do it with.

    Returns:
        The results, in the order of the tasks.

    Raises:
        DeltaError: what a worker raised, as the class that it raised there; :class:`SparkUnavailableError` where
            the workers lack this package.
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
    """On a worker: which of the job's tasks this is. An attempt that is made again has the same number."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context else 0


def frame(spark: Any, function: Callable[[Task], Iterator[pa.RecordBatch]], tasks: Sequence[Task], schema: Any) -> Any:
    """A DataFrame of the batches that a function gives for each task, each in a Spark task of its own.

    What a worker raises comes out of Spark's actions on the DataFrame as Spark's exception; around them
    :func:`~refdelta.spark.failures.raise_again` gives the error of ours.

    Args:
        spark: the session.
        function: see :func:`run`; its batches have exactly the Arrow form of ``schema``.
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
    """A DataFrame of the batches that a function makes of each partition of another one.

    Columns may have any name, while ``mapInArrow`` takes dots in names for paths. Errors are as of :func:`frame`, where
    the function reports them.

    Args:
        frame: the other DataFrame.
        function: see :func:`run`; called once with the batches of each partition, which may be none.
        schema: see :func:`frame`.
    """
    names = frame.columns

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{place}" for place in range(len(names)))).mapInArrow(work, schema)


def _packed(tasks: Sequence[Any]) -> list[bytes]:
    """Every worker gets all tasks, and unpacks its own."""
    from pyspark import cloudpickle

    return [cloudpickle.dumps(task) for task in tasks]


def _one_each(spark: Any, count: int) -> Any:
    # Of so many numbers in so many partitions each has one; spreading rows evenly is something else.
    return spark.range(0, count, 1, max(1, count))


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
