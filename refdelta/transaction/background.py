"""Work that nobody waits for: what may follow a commit over a network, behind the answer that the commit is done.

It is done by threads that the process joins when it ends. Of one table only so much is under way at a time, and nothing
is at a fork.
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
    """Do something soon, in another thread. Waits where much is under way for the same table.

    Args:
        table_uri: the table.
        work: raises nothing.
    """
    global _pool  # noqa: PLW0603 - the process has one
    while len(others := _of(table_uri)) >= _OF_A_TABLE:
        wait(others, return_when=FIRST_COMPLETED)
    with _lock:
        _pool = _pool or ThreadPoolExecutor(_WORKERS, "refdelta-behind")
        try:
            _under_way.setdefault(table_uri, set()).add(_pool.submit(work))
        except RuntimeError:  # the interpreter is about to end, and takes no more
            pass
        else:
            return
    work()


def settle(table_uri: str | None = None) -> None:
    """Wait for what is under way, for a table or for all."""
    with _lock:
        uris = [*_under_way] if table_uri is None else [table_uri]
    for uri in uris:
        wait(_of(uri))
        _of(uri)


def _of(table_uri: str) -> set[Future[None]]:
    """What is under way for a table; the rest is forgotten."""
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
