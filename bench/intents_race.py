"""Appends of several writers that share versions by intents, beside single commits, on a store with latencies.

``python bench/intents_race.py --writers 1 2 16 64 --seconds 10 [--slower 5]`` prints, for each number of writers,
in both ways, transactions a second, latencies, versions a second, members a version, and the requests for a
transaction. The store is in memory (threads of one process); each put and each delete takes 60 ms, each get 25 and each
listing 40, as in the simulation of which the design has the figures. One put of each transaction is that of the
checksum file of a version, in the background. CPU is that of this machine, so the CPU seconds of a transaction are
printed, too: all threads share one process, and so one core. ``--slower 5`` lets the clock of the process go five times
slower, and its waits five times longer, so that computing takes a fifth of its part of the time: figures of the
protocol, not of the machine.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 16, 64])
parser.add_argument("--seconds", type=float, default=10.0)
parser.add_argument("--slower", type=float, default=1.0, metavar="TIMES")
asked = parser.parse_args() if __name__ == "__main__" else parser.parse_args([])

if asked.slower != 1:
    # Before the engine is imported, which takes both functions as they are then.
    _clock, _sleep = time.monotonic, time.sleep
    time.monotonic = lambda: _clock() / asked.slower
    time.sleep = lambda seconds: _sleep(seconds * asked.slower)

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from refdelta import CommitProperties, DeltaTable, write_deltalake  # noqa: E402
from refdelta.api.handle import Handle  # noqa: E402
from refdelta_storage import Capabilities, MemoryStore, ObjectInfo, PutOutcome  # noqa: E402
from refdelta_storage.wrappers import WrapperStore  # noqa: E402

PUT, GET, LIST = 0.060, 0.025, 0.040
WARM_UP = 2.0
"""Seconds that are not measured: all writers begin at once, and alone."""


class SlowStore(WrapperStore):
    """A store whose requests for the log, and puts of data files, take as long as over a network."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.requests: Counter[str] = Counter()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(put_if_absent=True, list_after=True, durable=True, remote=True)

    @contextmanager
    def _takes(self, kind: str, seconds: float) -> Iterator[None]:
        """A request goes to the store and comes back: it acts in the middle of its time."""
        self.requests[kind] += 1
        half = seconds * random.uniform(0.8, 1.2) / 2
        time.sleep(half)
        try:
            yield
        finally:
            time.sleep(half)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        with self._takes("put", PUT):
            return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        with self._takes("put", PUT):
            self.inner.put(key, data)

    def create_output(self, key: str) -> Any:
        with self._takes("put", PUT):
            return self.inner.create_output(key)

    def open_output(self, key: str) -> Any:
        with self._takes("put", PUT):
            return self.inner.open_output(key)

    def delete(self, keys: Any) -> None:
        with self._takes("delete", PUT):
            self.inner.delete(keys)

    def get(self, key: str) -> bytes:
        with self._takes("get", GET):
            return self.inner.get(key)

    def get_many(self, keys: Any) -> list[bytes]:
        keys = list(keys)
        self.requests["get"] += max(0, len(keys) - 1)
        with self._takes("get", GET * max(1, len(keys) / 16)):
            return [self.inner.get(key) for key in keys]

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        with self._takes("list", LIST):
            return iter(list(self.inner.list(prefix, after)))


def opened(store: SlowStore) -> DeltaTable:
    """The table in a store."""
    return DeltaTable._of(Handle(store).open(None))  # noqa: SLF001 - a store of its own has no URI


def race(writers: int, seconds: float, group: str | None) -> dict[str, float]:
    """Let so many threads append a row at a time for so long."""
    store = SlowStore(MemoryStore(f"intents-{writers}-{group}"))
    with tempfile.TemporaryDirectory() as folder:
        write_deltalake(folder, pa.table({"id": [-1]}))
        for path in Path(folder).rglob("*"):
            if path.is_file():
                store.inner.put(path.relative_to(folder).as_posix(), path.read_bytes())
    properties = CommitProperties(group=group, max_commit_seconds=120)
    took: list[tuple[float, float]] = []
    start = time.monotonic()
    end = start + WARM_UP + seconds

    def work(number: int) -> None:
        handle = opened(store)
        while (began := time.monotonic()) < end:
            write_deltalake(handle, pa.table({"id": [number]}), mode="append", commit_properties=properties)
            took.append((began, time.monotonic()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_UP)
    warm = time.monotonic()
    cpu, before, first = time.process_time(), Counter(store.requests), newest(store)
    time.sleep(max(0.0, end - time.monotonic()))
    elapsed, used, versions = time.monotonic() - warm, time.process_time() - cpu, newest(store) - first
    requests = Counter(store.requests) - before
    for thread in threads:
        thread.join()
    rows = opened(store).to_pyarrow_table().num_rows
    if rows != len(took) + 1:
        raise AssertionError(f"{rows - 1} rows of {len(took)} appends")
    count = sum(warm <= done <= end for _, done in took)
    waits = [1000 * (done - began) for began, done in took if began >= warm] or [0.0]
    return {
        "a second": count / elapsed,
        "p50 ms": float(np.percentile(waits, 50)),
        "p99 ms": float(np.percentile(waits, 99)),
        "versions a second": versions / elapsed,
        "members a version": count / max(1, versions),
        "cpu ms": 1000 * used / max(1, count),
        **{f"{kind}s": requests[kind] / max(1, count) for kind in ("put", "get", "list", "delete")},
    }


def newest(store: SlowStore) -> int:
    """The newest version, by a look that takes no time."""
    return max(int(info.key[-25:-5]) for info in store.inner.list("_delta_log/0") if info.key.endswith(".json"))


def main() -> None:
    for writers in asked.writers:
        for group in (None, "intents"):
            found = race(writers, asked.seconds, group)
            figures = [f"{name} {value:.1f}" for name, value in found.items()]
            print(f"{writers:3d} {group or 'single':8s}", *figures, flush=True)


if __name__ == "__main__":
    main()
