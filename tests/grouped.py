"""A version with members, of statements of threads that commit in a group."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

from refdelta import DeltaTable, write_deltalake
from refdelta.core.commit import group as commit_group
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from refdelta.api.group_commit import GroupCommit
    from refdelta.transaction.results import CommitResult

    Call = Callable[[GroupCommit], CommitResult]


@contextmanager
def mixing() -> Iterator[None]:
    """Versions as refdelta 0.2 has written them: appends and changes of rows share one."""
    with mock.patch.object(commit_group, "_removes", return_value=False):
        yield


def together(table: DeltaTable, *calls: Call) -> list[Any]:
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
                if number < most:
                    until(lambda n=number: len(group._group._queue) >= n or futures[-1].done(), pause=0.001)
            # Their version is under way.
            until(
                lambda: any(one.in_flight for one in group._group._queue) or any(one.done() for one in futures),
                pause=0.001,
            )
        return [future.exception() or future.result() for future in futures]


def statement(fn: Callable[[Any], object], **options: Any) -> Call:
    """A call of :func:`together`: a transaction that is tried once."""
    return lambda group: group.transact(fn, attempts=1, **options)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([0] * len(ids), pa.int64())})


def append(*ids: int) -> Call:
    return lambda group: group.append(rows(*ids))


def delete(predicate: str) -> Call:
    return statement(lambda txn: txn.delete(predicate))


def update(value: str, predicate: str) -> Call:
    return statement(lambda txn: txn.update({"v": value}, predicate=predicate))


def grown(path: Path, properties: dict[str, str]) -> DeltaTable:
    """Version 1: appends and deletes of one file, as in version 0.2; version 2: updates of the same file; version 3:
    deletes that leave no row of a file; version 4: appends. All versions but the first have members.
    """
    write_deltalake(path, rows(*range(10)), configuration=properties)
    versions = [
        [append(20), delete("id = 1"), append(21, 22), delete("id = 2"), delete("id = 3")],
        [update("v + 5", "id = 4"), update("v + 6", "id = 5")],
        [delete("id = 21"), delete("id = 22"), delete("id = 0")],
        [append(30), append(31)],
    ]
    for number, calls in enumerate(versions, 1):
        with mixing():
            found = together(DeltaTable(path), *calls)
        assert sorted((one.version, one.member) for one in found) == [(number, at) for at in range(len(calls))]
    return DeltaTable(path)
