"""DELETE, UPDATE, MERGE, OPTIMIZE and VACUUM with the files read and written by Spark's workers.

The plans are those of the local engine, and so is the commit, which happens on the driver with all that is known there
of rows and their places. Only the tasks over files go to the workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from refdelta import arguments
from refdelta.engine.parquet.write import names_holding
from refdelta.engine.scan.executor import limit_threads
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.spark import tasks as spark_tasks
from refdelta.spark.failures import check_session, from_text, to_text
from refdelta.spark.leftovers import attempt, watched

if TYPE_CHECKING:
    from refdelta.spark.merging import FrameSource
    from refdelta_storage import Store

Task = TypeVar("Task")
Result = TypeVar("Result")

# Up to how many bytes of files one task writes anew, unless said.
GROUP_BYTES = 256 * 2**20
# Up to how many bytes the source of a MERGE is collected, unless said: each worker's copy of it makes a hash table.
BROADCAST_BYTES = 64 * 2**20
# So many of Spark's tasks for each that runs at once: enough that the last ones end about together.
_WAVES = 4


class SparkExecutor:
    """Runs the tasks over files on Spark's workers: the ``executor`` of :class:`refdelta.DeltaTable`'s statements.

    The workers need this package and its dependencies, and reach the table by the same URI and options as the driver.
    The source of a MERGE is held in memory by the driver and by each worker, but for a DataFrame with more rows than
    ``broadcast_bytes``: that one stays with the workers, and is shuffled with the table by the equalities of ON.

    Where a task fails for a reason that lies in the table or the statement, it is not tried again, and the files of the
    others are removed. So are those of workers that are killed, and of tasks that Spark runs more than once. What a
    driver leaves behind that is killed nothing names; VACUUM with ``full`` removes it.

    Args:
        spark: the session.
        group_bytes: up to how many bytes of files one task writes anew together. More makes fewer files of little
            data, less more tasks.
        broadcast_bytes: up to how many bytes, rows times their width in Arrow's memory, the DataFrame that is a MERGE's
            source is collected and goes to all tasks. 0 is for none.

    Raises:
        InvalidArgumentError: ``group_bytes`` is not positive, ``broadcast_bytes`` is negative, or ``spark`` is no
            session.
        SparkUnavailableError: PySpark is not installed.
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
        """Up to how many bytes of files one task writes anew."""
        return self._group_bytes

    def source_of(self, data: Any) -> FrameSource | None:
        """A DataFrame as the source of a MERGE; None for other data."""
        from refdelta.spark.merging import (
            FrameSource,  # which writes, as writes that replace rows run their tasks here
        )

        return FrameSource(self._spark, data, self._broadcast_bytes) if hasattr(data, "mapInArrow") else None

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        done: Callable[[Result], None] | None = None,
        writes: Store | None = None,
    ) -> Iterator[Result]:
        """See :class:`refdelta.engine.scan.executor.Executor`.

        A list runs as one job. Of what gives its tasks one by one, as many as run at once are taken for each job: it
        may stop giving any when its time is over.
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
        packed = [list(tasks[start:end]) for start, end in _portions(len(tasks), most)]
        if writes is None:
            ended = spark_tasks.run(self._spark, _TaskGroup(function), packed)
        else:
            with watched(self._spark, writes) as watch:
                ended = spark_tasks.run(self._spark, _TaskGroup(function, watch.token), packed)
                watch.counting.update(portion.attempt for portion in ended)
        outcomes = [outcome for portion in ended for outcome in portion.outcomes]
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
    """What became of a task: a result, or an error as text. It comes back as a value, so that Spark does not try again
    what fails again, and the results of other tasks come back too.
    """

    result: Result
    failure: str | None = None


@dataclass(frozen=True)
class _GroupOutcome(Generic[Result]):
    """What became of some tasks, and which attempt at them it was."""

    outcomes: list[_TaskOutcome[Result]]
    attempt: str


@dataclass(frozen=True)
class _TaskGroup(Generic[Task, Result]):
    """A function over some tasks, until one of them fails. Files that it writes hold a token in their names."""

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


def _portions(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Where each of at most ``most`` portions of so many tasks begins and ends; their sizes differ by one at most."""
    parts = min(count, most)
    return ((part * count // parts, (part + 1) * count // parts) for part in range(parts))
