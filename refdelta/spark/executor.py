"""DELETE, UPDATE, MERGE, OPTIMIZE and VACUUM with the files read and written by Spark's workers.

The plans are those of the local engine, and so is the commit, which happens on the driver: only the tasks over files
run on the workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from refdelta import arguments
from refdelta.engine.parquet.write import names_holding
from refdelta.engine.work.executor import limit_threads
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.spark import tasks as spark_tasks
from refdelta.spark.failures import check_session, from_text, to_text
from refdelta.spark.leftovers import attempt, watched

if TYPE_CHECKING:
    from refdelta.spark.job import FrameRows
    from refdelta.spark.merging import FrameSource
    from refdelta_storage import Store

Task = TypeVar("Task")
Result = TypeVar("Result")

# The default of the bytes of files that one task rewrites.
GROUP_BYTES = 256 * 2**20
# The default of the bytes up to which the source of a MERGE is collected: each worker builds a hash table of it.
BROADCAST_BYTES = 64 * 2**20
# The number of Spark's tasks for each one that runs at a time: enough that all slots end at about the same time.
_WAVES = 4


class SparkExecutor:
    """An executor that runs tasks over files on Spark's workers, for the statements of :class:`refdelta.DeltaTable`.
    They also write the rows of a DataFrame, in a transaction that was begun with this executor.

    The workers need this package and its dependencies, and must reach the table by the same URI and options as the
    driver. The source of a MERGE is held in memory by the driver and by each worker, except a DataFrame of more than
    ``broadcast_bytes``: it stays with the workers, and is shuffled with the table by the equalities of ON.

    A task that fails because of the table or the statement is not tried again, and the files of the others are removed.
    So are the files of killed workers, and of tasks that Spark runs more than once. No commit names the files of a
    killed driver; VACUUM with ``full`` removes them.

    Args:
        spark: the session.
        group_bytes: the maximum of bytes of files that one task rewrites together. A larger value makes fewer small
            files, a smaller one more tasks.
        broadcast_bytes: the maximum size in bytes, in Arrow's memory, up to which a DataFrame that is the source of a
            MERGE is collected and sent to all tasks; 0 for never.

    Raises:
        InvalidArgumentError: ``group_bytes`` is not positive, ``broadcast_bytes`` is negative, or ``spark`` is not
            a session.
        SparkUnavailableError: PySpark is not installed.

    Example::

        DeltaTable("flights").delete("delay < 0", executor=SparkExecutor(spark))
    """

    def __init__(self, spark: Any, *, group_bytes: int = GROUP_BYTES, broadcast_bytes: int = BROADCAST_BYTES):
        check_session(spark)
        if (arguments.whole("group_bytes", group_bytes) or 0) <= 0:
            raise InvalidArgumentError(f"group_bytes is {group_bytes}; it must be positive")
        self._spark = spark
        if broadcast_bytes is None or (arguments.whole("broadcast_bytes", broadcast_bytes) or 0) < 0:
            raise InvalidArgumentError(f"broadcast_bytes is {broadcast_bytes}; it must not be negative")
        self._group_bytes = group_bytes
        self._broadcast_bytes = broadcast_bytes

    @property
    def group_bytes(self) -> int:
        """The maximum of bytes of files that one task rewrites."""
        return self._group_bytes

    def source_of(self, data: Any) -> FrameSource | None:
        """A DataFrame as the source of a MERGE; None for other data."""
        from refdelta.spark.merging import FrameSource  # imports pyspark

        return FrameSource(self._spark, data, self._broadcast_bytes) if hasattr(data, "mapInArrow") else None

    def rows_of(self, data: Any) -> FrameRows | None:
        """A DataFrame as rows that the workers write; None for other data."""
        from refdelta.spark.job import FrameRows

        return FrameRows(data) if hasattr(data, "mapInArrow") else None

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        done: Callable[[Result], None] | None = None,
        writes: Store | None = None,
    ) -> Iterator[Result]:
        """See :class:`refdelta.engine.work.executor.Executor`.

        A list of tasks runs as one job. From an iterator, as many tasks are taken for each job as run at a time, since
        it may end early.
        """
        at_once = self._spark.sparkContext.defaultParallelism
        if isinstance(tasks, list):
            rounds = iter([tasks] if tasks else [])
        else:
            source = iter(tasks)
            rounds = iter(lambda: list(itertools.islice(source, at_once)), [])
        for some in rounds:
            yield from self._run(function, some, at_once * _WAVES, done, writes)

    def _run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        most: int,
        done: Callable[[Result], None] | None,
        writes: Store | None,
    ) -> list[Result]:
        packed = [list(tasks[start:end]) for start, end in _groups(len(tasks), most)]
        if writes is None:
            ended = spark_tasks.run(self._spark, _TaskGroup(function), packed)
        else:
            with watched(self._spark, writes) as watch:
                ended = spark_tasks.run(self._spark, _TaskGroup(function, watch.token), packed)
                watch.counting.update(group.attempt for group in ended)
        outcomes = [outcome for group in ended for outcome in group.outcomes]
        results = [outcome.result for outcome in outcomes if outcome.failure is None]
        if done is not None:
            for result in results:
                done(result)
        for outcome in outcomes:
            if outcome.failure is not None:
                raise from_text(outcome.failure) or DeltaError(outcome.failure)
        return results


@dataclass(frozen=True)
class _TaskOutcome(Generic[Result]):
    """The result of a task, or its error as text. An error is returned as a value, so that Spark does not try the task
    again, and the results of the other tasks are not lost.
    """

    result: Result
    failure: str | None = None


@dataclass(frozen=True)
class _GroupOutcome(Generic[Result]):
    """The outcomes of a group of tasks, and the name of the attempt."""

    outcomes: list[_TaskOutcome[Result]]
    attempt: str


@dataclass(frozen=True)
class _TaskGroup(Generic[Task, Result]):
    """A function over a group of tasks, until one fails. With a token, the names of files that it writes contain it."""

    function: Callable[[Task], Result]
    token: str = ""

    def __call__(self, tasks: Sequence[Task]) -> _GroupOutcome[Any]:
        limit_threads(1)  # there are as many of Spark's tasks as cores
        ended = _GroupOutcome[Any]([], attempt(self.token))
        with names_holding(ended.attempt) if self.token else nullcontext():
            for task in tasks:
                try:
                    ended.outcomes.append(_TaskOutcome(self.function(task)))
                except DeltaError as error:
                    ended.outcomes.append(_TaskOutcome(None, to_text(error)))
                    break
        return ended


def _groups(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Start and end of each of at most ``most`` groups of ``count`` tasks, whose sizes differ by one at most."""
    parts = min(count, most)
    return ((part * count // parts, (part + 1) * count // parts) for part in range(parts))
