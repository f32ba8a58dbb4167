"""What each process does that changes rows of one file. A module of its own, for spawned processes to import."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pyarrow as pa

from refdelta import DeltaTable, errors, write_deltalake

QUICKLY = {"fsync": "false"}
SETS, ROWS = 400, 5000
ALL_SETS = 500  # those that nobody changes, too

_meeting: Any = None
_over: Any = None


def meet(meeting: Any, over: Any) -> None:
    """Called first in each process: where all of them wait for each other, and what tells that the others are done."""
    global _meeting, _over
    _meeting, _over = meeting, over


def race(uri: str, work: Sequence[tuple[Callable[..., Any], Any]], meanwhile: Callable[..., Any] | None = None) -> list:
    """Processes that all begin at once, each with a function of this module; ``meanwhile`` runs in one more of them.

    Returns what each of them does, that of ``meanwhile`` last.
    """
    context = multiprocessing.get_context("spawn")
    count = len(work) + (meanwhile is not None)
    meeting, over = context.Barrier(count, timeout=120), context.Event()
    with ProcessPoolExecutor(count, context, initializer=meet, initargs=(meeting, over)) as pool:
        aside = [] if meanwhile is None else [pool.submit(meanwhile, uri)]
        futures = [pool.submit(function, uri, argument) for function, argument in work]
        try:
            told = [future.result() for future in futures]
        finally:
            over.set()
        return [*told, *(future.result() for future in aside)]


def create(uri: str) -> None:
    """One file of 5,000 rows in 500 sets, each scattered over the whole file; ``times`` counts how often a row was
    updated. Of the sets 400 are there to be changed.
    """
    ids = list(range(ROWS))
    data = pa.table({"id": ids, "set": [i % ALL_SETS for i in ids], "times": [0] * ROWS})
    write_deltalake(uri, data, configuration={"delta.enableDeletionVectors": "true"}, storage_options=QUICKLY)


def condition(number: int) -> str:
    """Which rows a set has, in two ways: one that statistics can answer of a file, and one that only its rows can."""
    return f"set = {number}" if number % 4 < 2 else f"id % {ALL_SETS} = {number}"


def change(uri: str, sets: Sequence[int]) -> list[int | None]:
    """Delete the even ones of some sets of rows and update the odd ones, each in a commit of its own. Catches no error.

    Returns the versions.
    """
    _meeting.wait()
    table, versions = DeltaTable(uri, storage_options=QUICKLY), []
    for number in sets:
        if number % 2:
            result = table.update({"times": "times + 1"}, predicate=condition(number))
        else:
            result = table.delete(condition(number))
        versions.append(result.version)
    return versions


def compact_until_over(uri: str) -> list[int]:
    """Compact in a loop until the others are done. Catches no error. Returns the versions."""
    _meeting.wait()
    table, versions = DeltaTable(uri, storage_options=QUICKLY), []
    while not _over.is_set():
        result = table.optimize.compact()
        if result.version is not None:
            versions.append(result.version)
    return versions


def grab(uri: str, work: tuple[int, Sequence[int]]) -> list[tuple[int | None, str]]:
    """Stage a change of each of these sets on one snapshot, wait until all processes have, and commit them all.

    Returns for each its version, or None and the name of the error.
    """
    process, sets = work
    table = DeltaTable(uri, storage_options=QUICKLY)
    staged = [table.begin() for _ in sets]
    for number, txn in zip(sets, staged, strict=True):
        if (number + process) % 2:
            txn.update({"times": str(process)}, predicate=condition(number))
        else:
            txn.delete(condition(number))
    _meeting.wait()
    ended: list[tuple[int | None, str]] = []
    for txn in staged:
        try:
            ended.append((txn.commit().version, ""))
        except errors.ConcurrentModificationError as error:
            ended.append((None, type(error).__name__))
    return ended
