"""Processes of two engines that write to one table at once, refdelta and deltalake, each by what its users call."""

from __future__ import annotations

import multiprocessing
import traceback
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

import refdelta
from refdelta.errors import ConcurrentModificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.queues import SimpleQueue

SCHEMA = pa.schema([("writer", pa.string()), ("n", pa.int64())])
# The two have the same names for all that is called here.
ENGINES: dict[str, Any] = {"refdelta": refdelta, "deltalake": deltalake}
REFUSED = (ConcurrentModificationError, CommitFailedError)
_context = multiprocessing.get_context("forkserver")

Row = tuple[str, int]


def one(writer: str, number: int) -> pa.Table:
    return pa.table({"writer": [writer], "n": [number]}, schema=SCHEMA)


def engine_of(writer: str) -> str:
    """A writer is called after its engine."""
    return writer.partition("-")[0]


def race(
    uri: str, writers: Sequence[str], count: int, options: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[set[Row], int]:
    """Let each writer append ``count`` rows one by one and delete every fifth of them again. refdelta compacts now and
    then, too: not deltalake, two of whose compactions at once let rows appear twice, without any other engine.

    Args:
        uri: the table.
        writers: their names, which begin with the name of an engine.
        count: how many rows each appends.
        options: the storage options of each engine, if there are any.

    Returns:
        The rows that must be there, and no others, as ``(writer, n)``; and how many calls a conflict refused.
    """
    told = _context.SimpleQueue()
    children = [
        _context.Process(target=_work, args=(told, uri, dict((options or {}).get(engine_of(name), {})), name, count))
        for name in writers
    ]
    for child in children:
        child.start()
    there: set[Row] = set()
    refused, at_work = 0, len(children)
    while at_work:
        what, done, row = told.get()
        assert what != "failed", done
        at_work -= what == "over"
        refused += not done
        if done and what == "append":
            there.add(row)
        elif done and what == "delete":
            there.discard(row)
    for child in children:
        child.join()
    return there, refused


def _work(told: SimpleQueue[Any], uri: str, options: dict[str, str], writer: str, count: int) -> None:
    engine = ENGINES[engine_of(writer)]

    def append(number: int) -> None:
        engine.write_deltalake(uri, one(writer, number), mode="append", storage_options=options)

    def delete(number: int) -> None:
        engine.DeltaTable(uri, storage_options=options).delete(f"writer = '{writer}' and n = {number}")

    def compact(_number: int) -> None:
        engine.DeltaTable(uri, storage_options=options).optimize.compact()

    try:
        for number in range(count):
            for what, often in ((append, 1), (delete, 5), (compact, 7)):
                if number % often == often - 1 and (what is not compact or engine is refdelta):
                    told.put((what.__name__, _is_done(what, number), (writer, number)))
        told.put(("over", True, None))
    except BaseException:
        told.put(("failed", traceback.format_exc(), None))
        raise


def _is_done(what: Any, number: int) -> bool:
    try:
        what(number)
    except REFUSED:
        return False
    return True
