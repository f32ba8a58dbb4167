"""Writers that are killed. A program of its own: it forks processes that have the engine loaded and no thread yet.

    python killed_writers.py random FOLDER SEED KILLS
    python killed_writers.py points FOLDER OPERATION...

It prints what it did as JSON, for tests/api/test_killed.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd  # noqa: F401 - pyarrow would import it in each of the processes, which takes longer than their work
import pyarrow as pa

from refdelta import DeltaTable, errors, table, write_deltalake, writer
from refdelta_storage import LocalStore
from refdelta_storage.wrappers import WrapperStore

ROWS = 40
SCHEMA = pa.schema([("owner", pa.int64()), ("id", pa.int64()), ("value", pa.int64())])


# --- at random moments: writers with rows of their own, step by step ---


def rows(owner, ids, value):
    return pa.table({"owner": [owner] * len(ids), "id": list(ids), "value": [value] * len(ids)}, schema=SCHEMA)


def step_of(number):
    return ("append", "update", "delete", "merge")[number % 4]


def after(state, number):
    """What the rows of an owner, values by id, become by a step. The definition that the table is held to."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    match step_of(number):
        case "append":
            return {**state, **dict.fromkeys(ids, number)}
        case "update":
            return {i: v + 1 if i % 2 else v for i, v in state.items()}
        case "delete":
            return {i: v for i, v in state.items() if i % 5}
        case "merge":
            return {**state, **dict.fromkeys(range(0, ROWS, 4), number)}


def take(uri, owner, number):
    """Take a step, in the table."""
    target = DeltaTable(uri)
    match step_of(number):
        case "append":
            data = rows(owner, range(number * ROWS, (number + 1) * ROWS), number)
            write_deltalake(uri, data, mode="append")
        case "update":
            target.update({"value": "value + 1"}, predicate=f"owner = {owner} and id % 2 = 1")
        case "delete":
            target.delete(f"owner = {owner} and id % 5 = 0")
        case "merge":
            data = rows(owner, range(0, ROWS, 4), number)
            on = f"t.owner = {owner} and t.owner = s.owner and t.id = s.id"
            target.merge(data, on).when_matched_update_all().when_not_matched_insert_all().execute()


def write_until_killed(uri, owner, told):
    os.write(told, b"begun\n")
    number = 0
    while True:
        try:
            take(uri, owner, number)
        except errors.ConcurrentModificationError:
            continue
        number += 1
        os.write(told, b"committed\n")


def kill_at_random(uri, seed, kills):
    """How many steps each owner was told are committed, two at a time."""
    chance, told = random.Random(seed), {}
    for first in range(0, kills, 2):
        alive = {}
        for owner in (first, first + 1):
            reading, writing = os.pipe()
            child = fork(lambda owner=owner, writing=writing: write_until_killed(uri, owner, writing))
            os.close(writing)
            alive[owner] = child, os.fdopen(reading, "rb", buffering=0)
        for owner, (child, stream) in alive.items():
            # In the midst of a step: the first, or one that follows some others.
            heard = [stream.readline() for _ in range(chance.randint(1, 5))]
            time.sleep(chance.uniform(0, 0.05))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            told[owner] = len(heard) - 1 + stream.read().count(b"committed")
    return told


# --- at every point: before and after each call that changes the store ---


class Killing(WrapperStore):
    """Kills its process at the n-th point."""

    def __init__(self, inner, point):
        super().__init__(inner)
        self.left = point

    def _point(self):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1

    def put_if_absent(self, key, data):
        self._point()
        outcome = super().put_if_absent(key, data)
        self._point()
        return outcome

    def put(self, key, data):
        self._point()
        super().put(key, data)
        self._point()

    @contextmanager
    def open_output(self, key):
        with super().open_output(key) as stream:
            yield stream
            stream.flush()
            self._point()
        self._point()

    def delete(self, keys):
        for key in keys:
            self._point()
            super().delete([key])
        self._point()


def vacuum_everything(uri):
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


OPERATIONS = {
    "append": lambda uri: write_deltalake(uri, rows(9, range(5), 0), mode="append"),
    "overwrite": lambda uri: write_deltalake(uri, rows(9, range(5), 0), mode="overwrite"),
    "delete": lambda uri: DeltaTable(uri).delete("id % 3 = 0"),
    "update": lambda uri: DeltaTable(uri).update({"value": "-1"}, predicate="id % 3 = 1"),
    "merge": lambda uri: take(uri, 0, 3),
    "compact": lambda uri: DeltaTable(uri).optimize.compact(),
    "alter": lambda uri: DeltaTable(uri).alter.set_table_properties({"mine": "yes"}),
    "restore": lambda uri: DeltaTable(uri).restore(1),
    "vacuum": vacuum_everything,
    "checkpoint": lambda uri: DeltaTable(uri).create_checkpoint(),
}


def kill_at_every_point(folder, operations):
    """Where each kill left a copy of ``folder/base``, by operation."""
    left = {}
    for name in operations:
        operation = OPERATIONS[name]
        point, killed = 0, True
        while killed:
            copy = folder / f"{name}-{point}"
            shutil.copytree(folder / "base", copy)
            killed = wait(fork(lambda operation=operation, copy=copy, point=point: run(operation, copy, point)))
            if killed:
                left.setdefault(name, []).append(copy.name)
            else:
                copy.rename(folder / f"{name}-whole")
            point += 1
    return left


def run(operation, path, point):
    def open_location(uri, storage_options=None):
        return Killing(LocalStore(path, fsync=False), point)

    table.open_location = writer.open_location = open_location
    operation(str(path))


# --- processes ---


def fork(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def wait(child):
    """Whether it was killed. An error of its own ends the whole run."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit(1)
    return os.WIFSIGNALED(status)


if __name__ == "__main__":
    if sys.argv[1] == "random":
        done = kill_at_random(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        done = kill_at_every_point(Path(sys.argv[2]), sys.argv[3:])
    print(json.dumps(done))
