"""Background work after a commit: tasks of tables, in threads that the process joins when it ends.

A task has a table and a kind. The kind says how many tasks of a table run side by side, how many wait for their turn,
and whether a new one takes the place of one that waits. Where too many wait, the caller waits. None runs during a fork.
The files of a task belong to a commit, whose identity it compares itself (:mod:`refdelta.engine.log.identity`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import unquote

from refdelta import arguments

log = logging.getLogger("refdelta")


@dataclass(frozen=True)
class Kind:
    """A kind of tasks.

    Attributes:
        name: for the names of threads.
        threads: the most tasks of the process that run at a time.
        side_by_side: the most tasks of a table that run at a time. The others run in their order.
        waiting: the most tasks of a table that wait; with more of them the caller waits.
        newest: whether a new task takes the place of one that waits, since it does the same.
    """

    name: str
    threads: int
    side_by_side: int
    waiting: int
    newest: bool = False


CHECKSUM = Kind("checksum", threads=8, side_by_side=4, waiting=0)
MAINTENANCE = Kind("maintenance", threads=2, side_by_side=1, waiting=8)
PUBLICATION = Kind("publication", threads=8, side_by_side=1, waiting=1, newest=True)
LEADING = Kind("leader", threads=8, side_by_side=1, waiting=1, newest=True)
LOOKING = Kind("look", threads=8, side_by_side=1, waiting=0)

at_once: frozenset[Kind] = frozenset()
"""The kinds that run in the caller's thread. Tests run maintenance so, that it happens at one place of their order."""


@dataclass(eq=False)
class _Task:
    """A task that is not done.

    Attributes:
        work: the task.
        uri: its table.
        place: the folder of the table when the task was given.
    """

    work: Callable[[], None]
    uri: str
    place: str


@dataclass
class _Lane:
    """The tasks of a table of one kind: how many run, and those that wait."""

    running: int = 0
    waiting: deque[_Task] = field(default_factory=deque)


_changed = threading.Condition()
_pools: dict[Kind, ThreadPoolExecutor] = {}
_lanes: dict[tuple[str, Kind], _Lane] = {}
# All tasks that are not done.
_tasks: set[_Task] = set()
# The number of callers that wait for tasks.
_awaiting = 0


def run(table_uri: str, kind: Kind, work: Callable[[], None], *, unless_busy: bool = False) -> bool:
    """Run a task in another thread.

    Args:
        table_uri: the table's URI.
        kind: its kind. The caller may have to wait.
        work: the task, which must not raise.
        unless_busy: whether the task is dropped if one of the same table and kind is not done. Then nothing waits.

    Returns:
        False if the task was dropped.
    """
    if kind not in at_once:
        task = _Task(work, table_uri, _place_of(table_uri))
        with _changed:
            while True:
                lane = _lanes.setdefault((task.place, kind), _Lane())
                if unless_busy and lane.running:
                    return False
                if lane.running < kind.side_by_side:
                    if _begin(lane, kind, task):
                        return True
                    break
                if len(lane.waiting) < kind.waiting:
                    lane.waiting.append(task)
                elif kind.newest:
                    _tasks.discard(lane.waiting.pop())
                    lane.waiting.append(task)
                else:
                    _changed.wait()
                    continue
                _tasks.add(task)
                return True
    work()
    return True


def _begin(lane: _Lane, kind: Kind, task: _Task) -> bool:
    """Begin a task; False if the interpreter is ending, and accepts none. The caller holds the lock."""
    pool = _pools.get(kind)
    if pool is None:
        pool = _pools[kind] = ThreadPoolExecutor(kind.threads, f"refdelta-{kind.name}")
    try:
        pool.submit(_work_off, lane, kind, task)
    except RuntimeError:
        if not lane.running:
            del _lanes[task.place, kind]
        return False
    lane.running += 1
    _tasks.add(task)
    return True


def _work_off(lane: _Lane, kind: Kind, task: _Task) -> None:
    """Run a task, and then those that wait."""
    while True:
        try:
            task.work()
        except BaseException:  # the tasks after it are of other commits
            log.exception("a task of %s failed", task.uri)
        with _changed:
            _tasks.discard(task)
            _changed.notify_all()
            if not lane.waiting:
                lane.running -= 1
                if not lane.running:
                    del _lanes[task.place, kind]
                return
            task = lane.waiting.popleft()


def settle(table_uri: str | None = None, timeout: float | None = None) -> bool:
    """Wait for the tasks that were given until now.

    Args:
        table_uri: the URI of the table whose tasks are waited for, by its URI or by its folder; None for all tables.
        timeout: the most seconds to wait; None for any time.

    Returns:
        Whether they are done.
    """
    with _changed:
        if not _tasks:
            return True
        place = None if table_uri is None else _place_of(table_uri)
        asked = {task for task in _tasks if place is None or place == task.place or table_uri == task.uri}
        limit = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        global _awaiting  # noqa: PLW0603 - of the process
        _awaiting += 1
        try:
            return _changed.wait_for(lambda: asked.isdisjoint(_tasks), limit)
        finally:
            _awaiting -= 1


def is_awaited() -> bool:
    """Whether somebody waits for the end of tasks. A task that may go on for long, for others, then ends."""
    return _awaiting > 0


def settle_all(timeout: float | None = None) -> bool:
    """Wait for the background work of this process: the checkpoints, checksums, log compaction files, cleanups and
    publications that follow its commits.

    Afterwards nothing more is written to a table on behalf of an earlier commit: its folder can be removed, as by
    ``tempfile.TemporaryDirectory``. A process that ends waits for its background work by itself.

    Args:
        timeout: the most seconds to wait; None for any time.

    Returns:
        True if all of it is done, False if the time was over.

    Raises:
        InvalidArgumentError: the timeout is no number, or negative.

    Example::

        with tempfile.TemporaryDirectory() as folder:
            write_deltalake(folder, rows)
            refdelta.settle()
    """
    return settle(None, arguments.seconds("timeout", timeout))


def _place_of(table_uri: str) -> str:
    """The place of a table: on a disk its folder, links followed, else its URI."""
    return os.path.realpath(unquote(table_uri[7:])) if table_uri.startswith("file://") else table_uri


def _settle_before_fork() -> None:
    settle()


def _in_child() -> None:
    global _changed, _awaiting
    _changed, _awaiting = threading.Condition(), 0
    _pools.clear()
    _lanes.clear()
    _tasks.clear()


# A process that ends joins the threads of its pools, but first it refuses to begin others: a task that asks for the
# address of a host in a thread would fail then. The hook of the module threading that comes before is not public.
with contextlib.suppress(AttributeError, RuntimeError):  # another interpreter; one that is ending
    threading._register_atexit(settle)  # type: ignore[attr-defined] # noqa: SLF001

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_settle_before_fork, after_in_child=_in_child)
