"""Background work after a commit to a remote store, such as the version checksum.

Threads do it, which the process joins when it ends. The number of tasks of a table that run at a time is bounded, and
none runs during a fork.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_WORKERS = 8
_OF_A_TABLE = 4

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_under_way: dict[str, set[Future[None]]] = {}


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


def settle(table_uri: str | None = None) -> None:
    """Wait for the running tasks of a table; None for those of all tables."""
    with _lock:
        uris = [*_under_way] if table_uri is None else [table_uri]
    for uri in uris:
        wait(_of(uri))
        _of(uri)


def _of(table_uri: str) -> set[Future[None]]:
    """The running tasks of a table. Finished ones are forgotten."""
    with _lock:
        left = {one for one in _under_way.pop(table_uri, ()) if not one.done()}
        if left:
            _under_way[table_uri] = left
        return left


def _in_child() -> None:
    global _lock, _pool
    _lock, _pool = threading.Lock(), None
    _under_way.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=settle, after_in_child=_in_child)
