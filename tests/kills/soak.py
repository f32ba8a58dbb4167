"""Tables of one folder are made, written by two libraries, removed and made anew, for a long time, while the background
work of those that are gone goes on: ``python -m kills.soak [SECONDS] [SEED]``, or ``make search NAME=soak``.

Two processes take turns at a few places, under a lock of each place, so that it is known what each table has to hold.
The lock does not cover the work after the acknowledgement: nobody waits for it. A place is removed, moved away, or, if
it is a symbolic link, led to another folder. Handles and transactions are kept from one life of a place to the next.
After each step both libraries read the table. Prints counts, and fails where a table is not what its writers wrote.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

from refdelta import AddAction, DeltaTable, errors, write_deltalake

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS, SEED = 3600, 20261125
PLACES = ("a", "b", "c", "link")
PROCESSES = 2
SCHEMA = pa.schema({"id": pa.int64()})
# A table that is wrong for a shorter time than this is counted apart.
_PATIENCE = 5.0
_LAYOUTS: tuple[dict[str, str], ...] = (
    {"delta.checkpointInterval": "2"},
    {"delta.checkpointInterval": "1"},
    {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2"},
    {"delta.checkpointInterval": "5", "refdelta.logCompactionInterval": "2"},
    {"delta.checkpointInterval": "2", "delta.enableDeletionVectors": "true"},
)
# So many files make a checkpoint slow.
_MANY = 2000


class Wrong(Exception):
    """A table is not what its writers wrote."""


class Worker:
    """One process.

    Args:
        folder: where the places are.
        seed: of its choices.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.counts = folder, random.Random(seed), Counter[str]()
        self.handles: dict[str, tuple[int, DeltaTable]] = {}
        self.transactions: dict[str, tuple[int, int, Any]] = {}
        self.next_id = seed << 32
        self.last: list[str] = []

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            place = self.random.choice(PLACES)
            with self.locked(place) as state:
                self.step(place, state)

    @contextlib.contextmanager
    def locked(self, place: str) -> Iterator[dict[str, Any]]:
        """What a place has to hold, while nobody else changes it."""
        with (self.folder / f"{place}.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            text = lock.read()
            state = json.loads(text) if text else {"life": 0, "ids": [], "many": False, "made": False}
            yield state
            lock.truncate(0)
            lock.write(json.dumps(state))

    def step(self, place: str, state: dict[str, Any]) -> None:
        uri = self.folder / place
        steps = ["remake"] if not state["made"] or state["many"] or state["life"] % 7 == 0 else []
        steps = steps or ["remake", "append", "append", "kept", "kept", "other", "other", "delete", "begin", "commit"]
        name = self.random.choice(steps)
        self.last = [*self.last[-20:], f"{place} {state['life']} {name}"]
        getattr(self, f"_{name}")(place, uri, state)
        self.counts[name] += 1
        if not state["many"]:
            self.verify(uri, state["ids"])

    def verify(self, uri: Path, ids: list[int]) -> None:
        """Both libraries read the rows, and nothing but the rows."""
        until, wrong = time.monotonic() + _PATIENCE, None
        while True:
            try:
                ours = sorted(DeltaTable(uri).to_pyarrow_table()["id"].to_pylist())
                asked = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(uri)))
                theirs = pa.table(asked.execute("SELECT id FROM t").read_all())["id"].to_pylist()
                if ours == sorted(theirs) == sorted(ids):
                    self.counts["tables that were wrong for a moment"] += wrong is not None
                    return
                wrong = f"{len(ids)} rows were written, refdelta reads {len(ours)}, deltalake {len(theirs)}"
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            if time.monotonic() > until:
                there = sorted(path.name for path in (uri / "_delta_log").rglob("*"))
                raise Wrong(f"{uri.name}: {wrong}\n{there}\n{self.last}")
            time.sleep(0.02)

    # --- steps ---

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def _rows(self, number: int) -> pa.Table:
        return pa.table({"id": pa.array([number], pa.int64())})

    def _remake(self, place: str, uri: Path, state: dict[str, Any]) -> None:
        """Remove the table, and make another one at its place, by either library."""
        moved = None
        if place == "link":
            target = self.folder / f"target-{state['life'] + 1}-{os.getpid()}"
            old = Path(os.path.realpath(uri)) if uri.is_symlink() else None
            target.mkdir()
            beside = self.folder / f"link-{os.getpid()}"
            beside.symlink_to(target)
            beside.rename(uri)
            moved = old
        elif uri.exists() and self.random.random() < 0.3:
            moved = self.folder / f"moved-{place}-{state['life']}-{os.getpid()}"
            uri.rename(moved)
        while place != "link" and moved is None and uri.exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(uri)
        if moved is not None:
            if state["made"] and not state["many"]:
                self.verify(moved, state["ids"])
                self.counts["tables that were moved away"] += 1
            while moved.exists():
                with contextlib.suppress(OSError):
                    shutil.rmtree(moved)
        first = self._new_id()
        state.update(life=state["life"] + 1, ids=[first], many=False, made=True)
        layout = self.random.choice(_LAYOUTS)
        if self.random.random() < 0.4:
            deltalake.write_deltalake(str(uri), self._rows(first))
            self.counts["made by deltalake"] += 1
            return
        write_deltalake(uri, self._rows(first), configuration=layout)
        if self.random.random() < 0.3:
            # Its checkpoints are slow, and it is removed in the next step.
            stats = '{"numRecords":1}'
            many = [AddAction(f"part-{n:08}.parquet", 1000, {}, 1_700_000_000_000, stats=stats) for n in range(_MANY)]
            DeltaTable(uri).create_write_transaction(many, "append", SCHEMA)
            write_deltalake(uri, self._rows(self._new_id()), mode="append")
            state["many"] = True

    def _append(self, _: str, uri: Path, state: dict[str, Any]) -> None:
        number = self._new_id()
        write_deltalake(uri, self._rows(number), mode="append")
        state["ids"].append(number)

    def _kept(self, place: str, uri: Path, state: dict[str, Any]) -> None:
        """By a handle that may be from an earlier life: it goes on with what is there, or fails."""
        life, table = self.handles.pop(place, (state["life"], None))
        table = table or DeltaTable(uri)
        number, old = self._new_id(), life != state["life"]
        try:
            write_deltalake(table, self._rows(number), mode="append")
            state["ids"].append(number)
        except errors.DeltaError as error:
            if not old:
                raise
            self.counts[f"an old handle fails: {type(error).__name__}"] += 1
            return
        self.counts["old handles go on with the new table"] += old
        self.handles[place] = state["life"], table

    def _other(self, _: str, uri: Path, state: dict[str, Any]) -> None:
        number = self._new_id()
        table = deltalake.DeltaTable(str(uri))
        if table.protocol().min_writer_version > 2:  # not every feature is written by both
            write_deltalake(uri, self._rows(number), mode="append")
        else:
            deltalake.write_deltalake(table, self._rows(number), mode="append")
        state["ids"].append(number)

    def _delete(self, _: str, uri: Path, state: dict[str, Any]) -> None:
        if len(state["ids"]) > 1:
            gone = self.random.choice(state["ids"])
            DeltaTable(uri).delete(f"id = {gone}")
            state["ids"].remove(gone)

    def _begin(self, place: str, uri: Path, state: dict[str, Any]) -> None:
        number, txn = self._new_id(), DeltaTable(uri).begin()
        txn.append(self._rows(number))
        self.transactions[place] = state["life"], number, txn

    def _commit(self, place: str, uri: Path, state: dict[str, Any]) -> None:
        """A transaction of an earlier life must not commit."""
        if place not in self.transactions:
            self._begin(place, uri, state)
        life, number, txn = self.transactions.pop(place)
        if life == state["life"]:
            txn.commit()
            state["ids"].append(number)
            return
        try:
            txn.commit()
        except errors.DeltaError as error:
            self.counts[f"an old transaction fails: {type(error).__name__}"] += 1
        else:
            raise Wrong(f"{place}: a transaction of life {life} was committed in life {state['life']}\n{self.last}")


def _work(folder: str, seed: int, seconds: float, results: Any) -> None:
    logging.getLogger("refdelta").setLevel(logging.ERROR)
    worker = Worker(Path(folder), seed)
    try:
        worker.run(seconds)
    except BaseException:
        results.put((worker.counts, traceback.format_exc()))
    else:
        results.put((worker.counts, None))


def main(seconds: float = SECONDS, seed: int = SEED) -> int:
    """Run it; returns the exit status."""
    context, counts, failed = multiprocessing.get_context("spawn"), Counter[str](), []
    with tempfile.TemporaryDirectory(prefix="refdelta-soak-", ignore_cleanup_errors=True) as folder:
        results = context.Queue()
        workers = [
            context.Process(target=_work, args=(folder, seed % 1000 * 10 + number, seconds, results))
            for number in range(PROCESSES)
        ]
        for worker in workers:
            worker.start()
        for _ in workers:
            found, error = results.get(timeout=seconds + 600)
            counts += found
            failed += [error] if error else []
        for worker in workers:
            worker.join()
            if worker.exitcode:
                failed.append(f"a process ended with {worker.exitcode}")
    for what, count in sorted(counts.items()):
        print(f"{count:8,} {what}")
    for error in failed:
        print(error, file=sys.stderr)
    print(f"{counts['remake']:,} tables made, {len(failed)} wrong; {seconds:.0f} s, seed {seed}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
