"""Work that nobody waits for: what may follow a commit over a network, behind the answer that the commit is done.

It is done by threads that the process joins when it ends. One piece of work of a table is under way at a time, and none
at a fork.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_WORKERS = 8

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_under_way: dict[str, Future[None]] = {}


def later(table_uri: str, work: Callable[[], None]) -> None:
    """Do something soon, in another thread; behind what was to be done for the same table before.

    Args:
        table_uri: the table.
        work: raises nothing.
    """
    global _pool  # noqa: PLW0603 - the process has one
    settle(table_uri)
    with _lock:
        _pool = _pool or ThreadPoolExecutor(_WORKERS, "refdelta-behind")
        try:
            _under_way[table_uri] = _pool.submit(work)
        except RuntimeError:  # the interpreter is about to end, and takes no more
            pass
        else:
            return
    work()


def settle(table_uri: str | None = None) -> None:
    """Wait for what is under way, for a table or for all."""
    with _lock:
        waited = [one for uri, one in _under_way.items() if table_uri in (None, uri)]
    wait(waited)
    with _lock:
        for uri in [uri for uri, one in _under_way.items() if one.done()]:
            del _under_way[uri]


def _in_child() -> None:
    global _lock, _pool
    _lock, _pool = threading.Lock(), None
    _under_way.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=settle, after_in_child=_in_child)
