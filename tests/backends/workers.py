"""What each process does in ``test_processes.py``. A module of its own, for spawned processes to import."""

from __future__ import annotations

import json
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import row_judge
from refdelta import CommitProperties, DeltaTable, errors, write_deltalake

if TYPE_CHECKING:
    from servers.running import Place

ROWS = pa.schema([("process", pa.int64()), ("number", pa.int64())])
ATTEMPTS = 100

Done = tuple[int, str, tuple[Any, ...]]
"""A version, and the statement that made it: its name and its arguments in ``row_judge``."""

_meetings: list[Any] = []


def meet(meeting: Any) -> None:
    """Called first in each process: where all of them wait for each other."""
    _meetings.append(meeting)


def begin_together() -> None:
    """Wait until all processes do."""
    _meetings[-1].wait()


def append(place: Place, process: int, count: int) -> list[tuple[int | None, str]]:
    """Append rows one at a time, each with a note of its own. Catches no error. Returns versions and notes.

    Every other process opens the table for each append; the others keep a handle.
    """
    begin_together()
    table = DeltaTable(place.uri, storage_options=place.options) if process % 2 else place.uri
    told = []
    for number in range(count):
        note = f"process {process}, append {number}"
        result = write_deltalake(
            table,
            pa.table({"process": [process], "number": [number]}, schema=ROWS),
            mode="append",
            storage_options=place.options,
            commit_properties=CommitProperties(user_metadata=note),
        )
        told.append((result.version, note))
    return told


def some_statement(chance: random.Random, process: int, number: int) -> tuple[str, tuple[Any, ...]]:
    """A statement about a few of the rows 0 to 199; the rows of an INSERT are those of no other."""
    low = chance.randrange(196)
    where = f"id BETWEEN {low} AND {low + 3}"
    keys = tuple(chance.sample(range(low, low + 30), 3))
    return chance.choice(
        [
            ("delete", (where,)),
            ("update", ("v + 1", where)),
            ("update", (str(process), f"id % 50 = {low % 50}")),
            ("upsert", (keys, 5)),
            ("insert", ((1000 * (process + 1) + number,), number)),
            ("COMPACT", ()),
        ]
    )


def statement(name: str, arguments: tuple[Any, ...]) -> row_judge.Statement:
    """The statement of this name."""
    match name:
        case "upsert" | "insert":
            ids, value = arguments
            made: row_judge.Statement = getattr(row_judge, name)(*ids, value=value)
        case "COMPACT":
            made = row_judge.COMPACT
        case _:
            made = getattr(row_judge, name)(*arguments)
    return made


def change(place: Place, process: int, seed: int, count: int) -> tuple[list[Done], int]:
    """Run random statements, each until it is committed or has nothing to do. Returns them, and how many conflicts."""
    begin_together()
    chance, table = random.Random(f"{seed} {process}"), DeltaTable(place.uri, storage_options=place.options)
    done: list[Done] = []
    conflicts = 0
    for number in range(count):
        name, arguments = some_statement(chance, process, number)
        for _ in range(ATTEMPTS):
            try:
                with table.begin(commit_properties=CommitProperties(user_metadata=f"{process}, {number}")) as txn:
                    statement(name, arguments).stage(txn)
                    version = txn.commit().version
            except errors.ConcurrentModificationError:
                conflicts += 1
                continue
            if version is not None:
                done.append((version, name, arguments))
            break
        else:
            raise AssertionError(f"{name}{arguments} lost {ATTEMPTS} times")
    return done, conflicts


def fork_and_append(uri: str, options: dict[str, str], children: int) -> None:
    """Append by one handle in this process and in forked ones that inherit it.

    A program for a process of its own, which has threads and connections at the time of the fork.
    """
    table = DeltaTable(uri, storage_options=options)
    table.to_pyarrow_table()
    for child in range(children):
        if os.fork() == 0:
            status = 1
            try:
                for number in range(3):
                    write_deltalake(
                        table, pa.table({"process": [child], "number": [number]}, schema=ROWS), mode="append"
                    )
                status = 0
            finally:
                os._exit(status)
    write_deltalake(table, pa.table({"process": [children], "number": [0]}, schema=ROWS), mode="append")
    for _ in range(children):
        _, status = os.wait()
        assert status == 0, "a forked process failed"


if __name__ == "__main__":
    fork_and_append(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
