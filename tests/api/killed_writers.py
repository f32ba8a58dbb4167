"""Writers that kill themselves, before and after each call that changes the store. A program of its own: it forks
processes that have the engine loaded and no thread yet.

    python killed_writers.py FOLDER OPERATION...

It prints what it did as JSON, for tests/api/test_killed.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pandas as pd  # noqa: F401 - pyarrow would import it in each of the processes, which takes longer than their work

sys.path.append(str(Path(__file__).parent.parent))

from kills.steps import maintain, rows, take
from refdelta import DeltaTable, write_deltalake
from refdelta.api import writer
from refdelta.engine.log import location
from refdelta_storage import LocalStore
from refdelta_storage.wrappers import WrapperStore


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

    def open_output(self, key):
        return self._written(super().open_output(key))

    def create_output(self, key):
        return self._written(super().create_output(key))

    @contextmanager
    def _written(self, output):
        with output as stream:
            self._point()
            yield stream
            stream.flush()
            self._point()
        self._point()

    def delete(self, keys):
        for key in keys:
            self._point()
            super().delete([key])
        self._point()

    def delete_unchanged(self, infos):
        for info in infos:
            self._point()
            super().delete_unchanged([info])
        self._point()


def vacuum_everything(uri):
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


OPERATIONS = {
    "append": lambda uri: write_deltalake(uri, rows(9, range(5), 0), mode="append"),
    "overwrite": lambda uri: write_deltalake(uri, rows(9, range(5), 0), mode="overwrite"),
    "delete": lambda uri: DeltaTable(uri).delete("id % 3 = 0"),
    "update": lambda uri: DeltaTable(uri).update({"value": "-1"}, predicate="id % 3 = 1"),
    "merge": lambda uri: take(DeltaTable(uri), 0, 3),
    "replace": lambda uri: take(DeltaTable(uri), 1, 4),
    "compact": lambda uri: maintain(DeltaTable(uri), "compact"),
    "z-order": lambda uri: maintain(DeltaTable(uri), "z-order"),
    "purge": lambda uri: maintain(DeltaTable(uri), "purge"),
    "alter": lambda uri: DeltaTable(uri).alter.set_table_properties({"mine": "yes"}),
    "restore": lambda uri: DeltaTable(uri).restore(1),
    "vacuum": vacuum_everything,
    # And the log is cleaned up, whose files look old in these tables.
    "checkpoint": lambda uri: maintain(DeltaTable(uri), "checkpoint"),
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

    location.open_location = writer.open_location = open_location
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
    print(json.dumps(kill_at_every_point(Path(sys.argv[1]), sys.argv[2:])))
