"""Who runs the tasks over files: threads here, Spark's workers in ``refdelta.spark``."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import pyarrow.compute as pc

from refdelta.engine.scan.chunking import at_most
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta_storage.base import Store

Task = TypeVar("Task")
Result = TypeVar("Result")

# How many bytes of results may wait for their turn, over all tasks together.
LOOK_AHEAD_BYTES = 128 * 2**20
# How many files of a remote store are asked for at a time.
REQUESTS = 32


class Executor(Protocol):
    """Runs one function over many tasks.

    Where they run in other processes, the function, what it holds, tasks and results are pickled. What is committed,
    and whether it may be, is decided where the executor was called.
    """

    @property
    def group_bytes(self) -> int | None:
        """Up to how many bytes of files one task writes anew; None where one task is to write all, so that little
        data ends up in one file.
        """

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        done: Callable[[Result], None] | None = None,
        writes: Store | None = None,
    ) -> Iterator[Result]:
        """The results in the order of the tasks. The first exception, in that order, is raised; no task starts after
        it that has not started by then.

        Args:
            function: what to do.
            tasks: what to do it with.
            done: called in this process with every result, one at a time, even where another task fails.
            writes: the folder in which the tasks write data files; None where they write none. What is left there of
                tasks that did not come to their end is removed.
        """


def checked(executor: Executor | None) -> Executor | None:
    """An executor that a caller names, None where there is none.

    Raises:
        InvalidArgumentError: it is something else.
    """
    if executor is None or (callable(getattr(executor, "map", None)) and hasattr(executor, "group_bytes")):
        if not isinstance(executor, type):
            return executor
        raise InvalidArgumentError(f"executor is an executor, not the class {executor.__name__}")
    raise InvalidArgumentError(
        f"executor is None, or something that runs tasks such as refdelta.spark.SparkExecutor(spark), "
        f"not a {type(executor).__name__}"
    )


def group_limit(executor: Executor | None) -> int | None:
    """The executor's ``group_bytes``; None, for threads of this process, have none."""
    return None if executor is None else executor.group_bytes


def grouped(executor: Executor | None, sizes: Sequence[int]) -> list[list[int]]:
    """Which files a task writes anew together: their numbers, ascending, in the order of the groups.

    Args:
        executor: who runs the tasks; None for threads of this process.
        sizes: of the files, in bytes.
    """
    most = group_limit(executor)
    return list(at_most(range(len(sizes)), sizes.__getitem__, sys.maxsize if most is None else most))


class ThreadExecutor:
    """Threads of this process: reading and writing Parquet leaves the interpreter's lock free.

    Args:
        workers: how many threads; None is one for each core that this process may use, and at least two.
    """

    group_bytes: int | None = None

    def __init__(self, workers: int | None = None):
        self.workers = workers or max(2, cores())

    @classmethod
    def for_store(
        cls, store: Store, sizes: pa.ChunkedArray | None = None, *, workers: int | None = None
    ) -> ThreadExecutor:
        """Threads that read the files of a store. Where each read waits for a network, they are more than the cores.

        Args:
            store: the table's folder.
            sizes: of the files in bytes: no more of them are read at once than stay within :data:`LOOK_AHEAD_BYTES`,
                but for one a core. None where little is read of each, such as its footer.
            workers: how many threads where the store is near, and at least elsewhere; None as for the class.
        """
        near = cls(workers)
        if not store.capabilities.remote:
            return near
        if sizes is None or not len(sizes):
            return cls(max(near.workers, REQUESTS))
        largest = pc.top_k_unstable(sizes, min(REQUESTS, len(sizes))).to_numpy()
        fitting = int((sizes.take(largest).to_numpy().cumsum() <= LOOK_AHEAD_BYTES).sum())
        return cls(max(near.workers, REQUESTS if fitting == len(sizes) else fitting))

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        done: Callable[[Result], None] | None = None,
        writes: Store | None = None,  # noqa: ARG002 - a task of this process removes its own files
    ) -> Iterator[Result]:
        """The results in the order of the tasks; at most two for each thread are begun before they are asked for.

        A single task of a list runs in the caller's thread. ``done`` is called in the threads, as soon as there is a
        result.
        """
        run = function if done is None else _told(function, done)
        if isinstance(tasks, list) and len(tasks) == 1:
            yield run(tasks[0])
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="refdelta")
        waiting: deque[Future[Result]] = deque()
        source = iter(tasks)
        try:
            for task in source:
                waiting.append(pool.submit(run, task))
                if len(waiting) >= 2 * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def stream(
        self,
        function: Callable[[Task], Iterator[Result]],
        tasks: Iterable[Task],
        *,
        weigh: Callable[[Result], int] = lambda _: 1,
        budget: int | None = None,
    ) -> Iterator[Result]:
        """The results of all tasks, each of which gives many, in the order of the tasks.

        Tasks run ahead of the consumer until the results that wait weigh more than ``budget``, or
        :data:`LOOK_AHEAD_BYTES` where there is none. The task whose turn it is has a share of its own, so that it can
        always go on.
        """
        tasks = list(tasks)
        if len(tasks) == 1:  # nothing to run beside it but the consumer itself
            yield from function(tasks[0])
            return
        lanes = _Lanes(function, tasks, weigh, LOOK_AHEAD_BYTES if budget is None else budget)
        threads = [
            threading.Thread(target=lanes.work, name=f"refdelta-{i}", daemon=True)
            for i in range(min(self.workers, len(tasks)))
        ]
        for thread in threads:
            thread.start()
        try:
            yield from lanes.consume()
        finally:
            lanes.stop()
            for thread in threads:
                thread.join()


def _told(function: Callable[[Task], Result], done: Callable[[Result], None]) -> Callable[[Task], Result]:
    lock = threading.Lock()

    def run(task: Task) -> Result:
        result = function(task)
        with lock:
            done(result)
        return result

    return run


class _StoppedError(Exception):
    """The consumer went away; the workers leave."""


class _Lane(Generic[Result]):
    """What one task has produced and nobody has consumed."""

    __slots__ = ("done", "error", "items")

    def __init__(self) -> None:
        self.items: deque[tuple[Result, int]] = deque()
        self.done = False
        self.error: BaseException | None = None


class _Lanes(Generic[Task, Result]):
    """One queue a task, one budget over all of them, one condition that guards both."""

    def __init__(
        self,
        function: Callable[[Task], Iterator[Result]],
        tasks: list[Task],
        weigh: Callable[[Result], int],
        budget: int,
    ):
        self._function, self._tasks, self._weigh, self._budget = function, tasks, weigh, budget
        self._lanes: list[_Lane[Result]] = [_Lane() for _ in tasks]
        self._next = 0  # the first task that nobody has taken
        self._turn = 0  # the task whose results are being consumed
        self._weight = 0
        self._stopped = False
        self._changed = threading.Condition()

    def work(self) -> None:
        while True:
            with self._changed:
                # A task starts only where its results have room; else many small ones would pile up ahead of a slow
                # one.
                self._wait_for(lambda: self._next == self._turn or self._weight < self._budget)
                index = self._next
                if self._stopped or index >= len(self._tasks):
                    return
                self._next += 1
            lane = self._lanes[index]
            try:
                with closing(_generator(self._function(self._tasks[index]))) as results:
                    for result in results:
                        self._put(index, result, self._weigh(result))
            except _StoppedError:
                return
            except BaseException as error:  # noqa: BLE001 - it is raised again in the consumer's thread
                lane.error = error
            with self._changed:
                lane.done = True
                self._changed.notify_all()

    def _put(self, index: int, result: Result, weight: int) -> None:
        with self._changed:
            lane = self._lanes[index]
            self._wait_for(lambda: self._weight < self._budget or (self._turn == index and not lane.items))
            if self._stopped:
                raise _StoppedError
            lane.items.append((result, weight))
            self._weight += weight
            self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._stopped or condition())

    def consume(self) -> Iterator[Result]:
        for index, lane in enumerate(self._lanes):
            with self._changed:
                self._turn = index
                self._changed.notify_all()
            while True:
                with self._changed:
                    while not (lane.items or lane.done):
                        self._changed.wait()
                    if not lane.items:
                        break
                    result, weight = lane.items.popleft()
                    self._weight -= weight
                    self._changed.notify_all()
                yield result
                del result
            if lane.error is not None:
                raise lane.error

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            for lane in self._lanes:
                lane.items.clear()
            self._changed.notify_all()


def _generator(results: Iterator[Result]) -> Generator[Result, None, None]:
    """As a generator, so that it can be closed whatever the function returned."""
    yield from results


def limit_threads(count: int) -> None:
    """Say how many processors this process has to itself, where others that do the same run beside it.

    Args:
        count: so many; at least 1.
    """
    global _limit  # noqa: PLW0603 - of the process
    _limit = count


_limit: int | None = None


def cores() -> int:
    """How many processors this process may use."""
    if _limit is not None:
        return _limit
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
