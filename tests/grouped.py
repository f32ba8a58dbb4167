"""A version with members, of statements of threads that commit in a group."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta import DeltaTable
    from refdelta.api.group_commit import GroupCommit
    from refdelta.transaction.results import CommitResult


def together(table: DeltaTable, *calls: Callable[[GroupCommit], CommitResult]) -> list[Any]:
    """Run calls, such as ``lambda group: group.append(rows)``, in threads whose transactions are queued in this order
    before the first version is put. Returns what each returned or raised.
    """
    most = len(calls)
    with table.group_commit(max_wait_ms=60_000, max_transactions=most) as group, ThreadPoolExecutor(most) as pool:
        futures = []
        with ExitStack() as expected:
            for _ in calls:  # the group waits for these
                expected.enter_context(group._group.call("test"))
            for number, call in enumerate(calls, 1):
                futures.append(pool.submit(call, group))
                while number < most and len(group._group._queue) < number and not futures[-1].done():
                    time.sleep(0.001)
            while group._group._queue and not futures[-1].done():  # the version that has them is under way
                time.sleep(0.001)
        return [future.exception() or future.result() for future in futures]


def statement(fn: Callable[[Any], object], **options: Any) -> Callable[[GroupCommit], CommitResult]:
    """A call of :func:`together`: a transaction that is tried once."""
    return lambda group: group.transact(fn, attempts=1, **options)
