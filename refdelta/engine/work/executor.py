"""Executors, which run a function over files: threads here, Spark's workers in ``refdelta.spark``.

Work is cut into chunks of consecutive items by their weight, such as files by their size in bytes.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow.compute as pc

from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

    from refdelta_storage.base import Store

Task = TypeVar("Task")
Result = TypeVar("Result")
Item = TypeVar("Item")

# The most bytes of results that wait to be consumed, over all tasks together: so many, or a part for each core. The
# results of a task wait until all tasks before it have ended, so that cores would otherwise wait for the consumer.
LOOK_AHEAD_BYTES = 128 * 2**20
CORE_BYTES = 32 * 2**20
# The most bytes that concurrent tasks hold together while they decode, besides the first task: so many, or a part for
# each core.
DECODED_BYTES = 2**30
CORE_DECODED_BYTES = 2**27
# The most concurrent requests to a remote store.
REQUESTS = 32
# Of a remote object: ranges with a gap of at most so many bytes are one request, since the bytes between them take less
# time than another request.
GAP_BYTES = 256 * 2**10
# A longer range is split into several requests, which run in parallel: a single connection is slow.
REQUEST_BYTES = 8 * 2**20


class Executor(Protocol):
    """Runs one function over many tasks.

    An executor with other processes pickles the function with all that it refers to, the tasks and the results. The
    commit, and the checks before it, stay in the calling process.
    """

    @property
    def group_bytes(self) -> int | None:
        """The most bytes of files that one task rewrites; None if one task rewrites all of them, so that little data
        becomes one file.
        """

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        done: Callable[[Result], None] | None = None,
        writes: Store | None = None,
    ) -> Iterator[Result]:
        """The results in the order of the tasks. The first exception, in that order, is raised; no further task is
        started after it.

        Args:
            function: the function.
            tasks: its arguments.
            done: called in this process with every result, one at a time, even if another task fails.
            writes: the folder in which the tasks write data files; None if they write none. The files of tasks that
                did not finish are removed from it.
        """


def checked(executor: Executor | None) -> Executor | None:
    """Check the ``executor`` argument of a caller, which may be None.

    Raises:
        InvalidArgumentError: it is not an executor.
    """
    if executor is None or (callable(getattr(executor, "map", None)) and hasattr(executor, "group_bytes")):
        if not isinstance(executor, type):
            return executor
        raise InvalidArgumentError(f"executor is an executor, not the class {executor.__name__}")
    raise InvalidArgumentError(
        f"executor is None, or something that runs tasks such as refdelta.spark.SparkExecutor(spark), "
        f"not a {type(executor).__name__}"
    )


def at_most(items: Iterable[Item], weigh: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Chunks that weigh at most ``most``, each as large as possible. A single heavier item is a chunk of its own."""
    chunk: list[Item] = []
    weight = 0
    for item in items:
        own = weigh(item)
        if chunk and weight + own > most:
            yield chunk
            chunk, weight = [], 0
        chunk.append(item)
        weight += own
    if chunk:
        yield chunk


def at_least(items: Iterable[Item], weigh: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Chunks that weigh at least ``least``, each as small as possible. The last one may weigh less."""
    chunk: list[Item] = []
    weight = 0
    for item in items:
        chunk.append(item)
        weight += weigh(item)
        if weight >= least:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


def group_limit(executor: Executor | None) -> int | None:
    """The executor's ``group_bytes``; None for None, which stands for threads of this process."""
    return None if executor is None else executor.group_bytes


def grouped(executor: Executor | None, sizes: Sequence[int]) -> list[list[int]]:
    """The files that each task rewrites: their indexes, ascending, one list a task.

    Args:
        executor: runs the tasks; None for threads of this process.
        sizes: of the files, in bytes.
    """
    most = group_limit(executor)
    return list(at_most(range(len(sizes)), sizes.__getitem__, sys.maxsize if most is None else most))


class ThreadExecutor:
    """Threads of this process. Reading and writing Parquet releases the interpreter's lock.

    Args:
        workers: the number of threads; None for one a core that this process may use, and at least two.
    """

    group_bytes: int | None = None

    def __init__(self, workers: int | None = None):
        self.workers = workers or max(2, cores())

    @classmethod
    def for_store(
        cls, store: Store, sizes: pa.ChunkedArray | None = None, *, workers: int | None = None
    ) -> ThreadExecutor:
        """Threads that read the files of a store; more than the cores if reads wait for a network.

        Args:
            store: the table's folder.
            sizes: of the files, in bytes: files that are read at once stay within :data:`LOOK_AHEAD_BYTES`, except for
                one a core. None if little is read of each file, such as its footer.
            workers: the number of threads for a local store, and the least number for others; None as for the class.
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
        """The results in the order of the tasks; at most two tasks a thread are started ahead of the consumer.

        A single task runs in the caller's thread. ``done`` is called in the threads, as soon as there is a result.
        """
        run = function if done is None else _reporting(function, done)
        source = iter(tasks)
        begun = list(itertools.islice(source, 2))
        if len(begun) < 2:  # nothing else could run in parallel
            yield from map(run, begun)
            return
        memory = _SharedMemory()

        def run_one(index: int, task: Task) -> Result:
            with memory.task(index):
                return run(task)

        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="refdelta")
        waiting: deque[Future[Result]] = deque()
        try:
            for index, task in enumerate(itertools.chain(begun, source)):
                waiting.append(submitted(pool, copy_context().run, run_one, index, task))
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
        """The results of all tasks, each of which has many, in the order of the tasks.

        Tasks run ahead of the consumer until the waiting results weigh more than ``budget``. The task whose results are
        being consumed may always proceed.

        Args:
            function: returns the results of a task.
            tasks: its arguments.
            weigh: the weight of a result.
            budget: the limit; None for :data:`LOOK_AHEAD_BYTES`, or more if there are many cores.
        """
        tasks = list(tasks)
        if len(tasks) == 1:  # nothing else could run in parallel
            yield from function(tasks[0])
            return
        if budget is None:
            budget = max(LOOK_AHEAD_BYTES, CORE_BYTES * cores())
        lanes = _Lanes(function, tasks, weigh, budget)
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


def submitted(pool: ThreadPoolExecutor, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Submit a call to a pool. Once the main thread has ended, while background work and other threads go on, no pool
    accepts any: then the function is called here.
    """
    try:
        return pool.submit(function, *arguments)
    except RuntimeError as error:
        if "cannot schedule new futures" not in str(error):
            raise  # the task may be in the pool's queue, and would run twice
        done: Future[Result] = Future()
    try:
        done.set_result(function(*arguments))
    except BaseException as error:  # noqa: BLE001 - it is raised by result()
        done.set_exception(error)
    return done


@contextmanager
def sharing(count: int) -> Iterator[None]:
    """Hold ``count`` bytes of the memory that the tasks of an executor share, for as long as the body runs.

    A task waits until the others leave so many, unless it is the first that has not ended. So at most
    :data:`DECODED_BYTES` are held together, or more if there are many cores, and what the first task needs. Less than a
    thousandth of that is not counted: to wait for each other costs more than small files take. Outside of tasks that
    run at the same time there is no limit.
    """
    task = _task.get()
    if task is None or 1000 * count < task[0].most:
        yield
        return
    memory, index = task
    memory.take(index, count)
    try:
        yield
    finally:
        memory.give(count)


class _SharedMemory:
    """The memory that the tasks of one call share. The tasks are numbered in their order."""

    def __init__(self) -> None:
        self.most = max(DECODED_BYTES, CORE_DECODED_BYTES * cores())
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._held = 0

    @contextmanager
    def task(self, index: int) -> Iterator[None]:
        """Run the body as a task, whose calls of :func:`sharing` are counted here."""
        with self._changed:
            self._running.add(index)
        before = _task.set((self, index))
        try:
            yield
        finally:
            _task.reset(before)
            with self._changed:
                self._running.remove(index)
                self._changed.notify_all()

    def take(self, index: int, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: index == min(self._running) or self._held + count <= self.most)
            self._held += count

    def give(self, count: int) -> None:
        with self._changed:
            self._held -= count
            self._changed.notify_all()


_task: ContextVar[tuple[_SharedMemory, int] | None] = ContextVar("refdelta_task", default=None)


def _reporting(function: Callable[[Task], Result], done: Callable[[Result], None]) -> Callable[[Task], Result]:
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
    """The results of one task that are not consumed yet."""

    __slots__ = ("done", "error", "items")

    def __init__(self) -> None:
        self.items: deque[tuple[Result, int]] = deque()
        self.done = False
        self.error: BaseException | None = None


class _Lanes(Generic[Task, Result]):
    """One queue a task, with a common budget and a common condition variable."""

    def __init__(
        self,
        function: Callable[[Task], Iterator[Result]],
        tasks: list[Task],
        weigh: Callable[[Result], int],
        budget: int,
    ):
        self._function, self._tasks, self._weigh, self._budget = function, tasks, weigh, budget
        self._lanes: list[_Lane[Result]] = [_Lane() for _ in tasks]
        self._next = 0  # the first task that is not started
        self._turn = 0  # the task whose results are being consumed
        self._weight = 0
        self._stopped = False
        self._changed = threading.Condition()
        self._memory = _SharedMemory()

    def work(self) -> None:
        while True:
            with self._changed:
                # A task starts only within the budget; otherwise many small results would wait for a slow task.
                self._wait_for(lambda: self._next == self._turn or self._weight < self._budget)
                index = self._next
                if self._stopped or index >= len(self._tasks):
                    return
                self._next += 1
            lane = self._lanes[index]
            try:
                with self._memory.task(index), closing(_generator(self._function(self._tasks[index]))) as results:
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
    """The same results as a generator, which can be closed."""
    yield from results


def limit_threads(count: int) -> None:
    """Set the number of processors that this process may use, if other processes share them.

    Args:
        count: the number; at least 1.
    """
    global _limit  # noqa: PLW0603 - of the process
    _limit = count


_limit: int | None = None


def cores() -> int:
    """The number of processors that this process may use."""
    if _limit is not None:
        return _limit
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
