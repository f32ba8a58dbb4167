"""Background work after a commit: checkpoints, and on a remote store the version checksum.

Threads do it, which the process joins when it ends, and none of it runs during a fork. Small tasks (:func:`later`) of
a table run side by side, a bounded number at a time. Maintenance of its log (:func:`maintain`) runs beside them, one
task of a table at a time, in their order.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

log = logging.getLogger("refdelta")

_WORKERS = 8
_OF_A_TABLE = 4
_MAINTAINERS = 2
_MAINTENANCE_OF_A_TABLE = 8

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_under_way: dict[str, set[Future[None]]] = {}
_maintainers: ThreadPoolExecutor | None = None
# For each table with a maintainer: its tasks that have not begun, and the maintainer.
_maintained: dict[str, tuple[deque[Callable[[], None]], Future[None]]] = {}
# For each table that a thread publishes: the newest task that has not begun, if any.
_publications: dict[str, Callable[[], None] | None] = {}


def later(table_uri: str, work: Callable[[], None]) -> None:
    """Run a task in another thread. Waits if four tasks of the same table are running.

    Args:
        table_uri: the table's URI.
        work: the task, which must not raise.
    """
    global _pool  # noqa: PLW0603 - the process has one
    while len(others := _of(table_uri)) >= _OF_A_TABLE:
        wait(others, return_when=FIRST_COMPLETED)
    with _lock:
        _pool = _pool or ThreadPoolExecutor(_WORKERS, "refdelta-background")
        try:
            _under_way.setdefault(table_uri, set()).add(_pool.submit(work))
        except RuntimeError:  # the interpreter is ending, and accepts no more tasks
            pass
        else:
            return
    work()


def maintain_in_background(table_uri: str, work: Callable[[], None], *, unless_busy: bool = False) -> bool:
    """Run a task of a table in another thread, after its earlier ones. Waits if eight of them have not begun.

    Args:
        table_uri: the table's URI.
        work: the task, which must not raise.
        unless_busy: whether the task is dropped if there is an earlier one that is not done. Then nothing waits.

    Returns:
        False if the task was dropped.
    """
    global _maintainers  # noqa: PLW0603 - the process has one
    while True:
        with _lock:
            busy = _maintained.get(table_uri)
            if busy is not None and unless_busy:
                return False
            if busy is None:
                _maintainers = _maintainers or ThreadPoolExecutor(_MAINTAINERS, "refdelta-maintenance")
                tasks = deque([work])
                try:
                    _maintained[table_uri] = tasks, _maintainers.submit(_maintain, table_uri, tasks)
                except RuntimeError:  # the interpreter is ending, and accepts no more tasks
                    break
                return True
            if len(busy[0]) < _MAINTENANCE_OF_A_TABLE:
                busy[0].append(work)
                return True
        wait([busy[1]])
    work()
    return True


def maintain_at_once(table_uri: str, work: Callable[[], None], *, unless_busy: bool = False) -> bool:  # noqa: ARG001
    """Run a task in this thread, with the arguments of :func:`maintain_in_background`."""
    work()
    return True


maintain = maintain_in_background
"""How maintenance is run. Tests run it at once, so that it happens at one place of their order."""


def _maintain(table_uri: str, tasks: deque[Callable[[], None]]) -> None:
    """Run the tasks of a table until there is none."""
    while True:
        with _lock:
            if not tasks:
                del _maintained[table_uri]
                return
            work = tasks.popleft()
        try:
            work()
        except BaseException:  # the tasks after it are of other commits
            log.exception("a task of %s failed", table_uri)


def publish(table_uri: str, work: Callable[[], None]) -> None:
    """Run a task that publishes the commits of a table. If another one is running, it runs after that one, in the place
    of the tasks that wait already: each of them would do the same.

    Args:
        table_uri: the table's URI.
        work: the task, which must not raise.
    """
    with _lock:
        running = table_uri in _publications
        _publications[table_uri] = work
    if not running:
        later(table_uri, lambda: _publish(table_uri))


def _publish(table_uri: str) -> None:
    """Run the newest task of a table until there is none."""
    while True:
        with _lock:
            work = _publications[table_uri]
            if work is None:
                del _publications[table_uri]
                return
            _publications[table_uri] = None
        try:
            work()
        except BaseException:  # the next task is of another commit
            log.exception("a task of %s failed", table_uri)


def settle(table_uri: str | None = None) -> None:
    """Wait for the tasks of a table that were started; None for those of all tables."""
    with _lock:
        uris = [*_under_way, *_maintained] if table_uri is None else [table_uri]
    for uri in uris:
        wait(_of(uri))
        _of(uri)
        with _lock:
            maintainer = _maintained.get(uri)
        if maintainer is not None:
            wait([maintainer[1]])


def _of(table_uri: str) -> set[Future[None]]:
    """The running tasks of a table. Finished ones are forgotten."""
    with _lock:
        left = {one for one in _under_way.pop(table_uri, ()) if not one.done()}
        if left:
            _under_way[table_uri] = left
        return left


def _in_child() -> None:
    global _lock, _pool, _maintainers
    _lock, _pool, _maintainers = threading.Lock(), None, None
    _under_way.clear()
    _maintained.clear()
    _publications.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=settle, after_in_child=_in_child)
