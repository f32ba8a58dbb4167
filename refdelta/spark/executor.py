"""DELETE, UPDATE, MERGE, OPTIMIZE and VACUUM with the files read and written by Spark's workers.

The plans are those of the local engine, and so is the commit, which happens on the driver with all that is known there
of rows and their places. Only the tasks over files go to the workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from refdelta.engine.executor import limit_threads
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.spark import tasks as spark_tasks
from refdelta.spark.failures import check_session, from_text, to_text

Task = TypeVar("Task")
Result = TypeVar("Result")

# Up to how many bytes of files one task writes anew, unless said.
GROUP_BYTES = 256 * 2**20
# So many of Spark's tasks for each that runs at once: enough that the last ones end about together.
_WAVES = 4


class SparkExecutor:
    """Runs the tasks over files on Spark's workers: the ``executor`` of :class:`refdelta.DeltaTable`'s statements.

    The workers need this package and its dependencies, and reach the table by the same URI and options as the driver.
    The source of a MERGE, a DataFrame too, is held in memory by the driver and by each worker. Where a task fails for a
    reason that lies in the table or the statement, it is not tried again, and the files of the others are removed. Of
    a worker that is killed files may stay behind, which nothing names; VACUUM with ``full`` removes them.

    Args:
        spark: the session.
        group_bytes: up to how many bytes of files one task writes anew together. More makes fewer files of little
            data, less more tasks.

    Raises:
        InvalidArgumentError: ``group_bytes`` is not positive, or ``spark`` is no session.
        SparkUnavailableError: PySpark is not installed.
    """

    def __init__(self, spark: Any, *, group_bytes: int = GROUP_BYTES):
        check_session(spark)
        if group_bytes <= 0:
            raise InvalidArgumentError(f"group_bytes is {group_bytes}; it must be positive")
        self._spark = spark
        self._group_bytes = group_bytes

    @property
    def group_bytes(self) -> int:
        """Up to how many bytes of files one task writes anew."""
        return self._group_bytes

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        done: Callable[[Result], None] | None = None,
    ) -> Iterator[Result]:
        """See :class:`refdelta.engine.executor.Executor`.

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
            yield from self._run(function, some, at_once * _WAVES, done)

    def _run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        most: int,
        done: Callable[[Result], None] | None,
    ) -> list[Result]:
        packed = [list(tasks[start:end]) for start, end in _portions(len(tasks), most)]
        outcomes = [outcome for some in spark_tasks.run(self._spark, _Portion(function), packed) for outcome in some]
        results = [outcome.result for outcome in outcomes if outcome.failure is None]
        if done is not None:
            for result in results:
                done(result)
        for outcome in outcomes:
            if outcome.failure is not None:
                raise from_text(outcome.failure) or DeltaError(outcome.failure)
        return results


@dataclass(frozen=True)
class _Outcome(Generic[Result]):
    """What became of a task: a result, or an error as text. It comes back as a value, so that Spark does not try again
    what fails again, and the results of other tasks come back too.
    """

    result: Result
    failure: str | None = None


@dataclass(frozen=True)
class _Portion(Generic[Task, Result]):
    """A function over some tasks, until one of them fails."""

    function: Callable[[Task], Result]

    def __call__(self, tasks: Sequence[Task]) -> list[_Outcome[Any]]:
        limit_threads(1)  # there are as many of Spark's tasks as cores
        outcomes: list[_Outcome[Any]] = []
        for task in tasks:
            try:
                outcomes.append(_Outcome(self.function(task)))
            except DeltaError as error:
                return [*outcomes, _Outcome(None, to_text(error))]
        return outcomes


def _portions(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Where each of at most ``most`` portions of so many tasks begins and ends; their sizes differ by one at most."""
    parts = min(count, most)
    return ((part * count // parts, (part + 1) * count // parts) for part in range(parts))
