"""Appends of several writers that share versions by intents, beside single commits, on a store with latencies.

``python bench/intents_race.py --writers 1 2 16 64 --seconds 10`` prints, for each number of writers, in both
ways, transactions a second, latencies, versions a second, members a version, and the requests for a transaction. The
store is in memory (threads of one process); each put and each delete takes 60 ms, each get 25 and each listing 40, as
in the simulation of which the design has the figures. One put of each transaction is that of the checksum file of a
version, in the background. CPU is that of this machine, so the CPU seconds of a transaction are printed, too.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.api.handle import Handle
from refdelta_storage import Capabilities, MemoryStore, ObjectInfo, PutOutcome
from refdelta_storage.wrappers import WrapperStore

PUT, GET, LIST = 0.060, 0.025, 0.040


class SlowStore(WrapperStore):
    """A store whose requests for the log, and puts of data files, take as long as over a network."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.requests: Counter[str] = Counter()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(put_if_absent=True, list_after=True, durable=True, remote=True)

    def _takes(self, kind: str, seconds: float) -> None:
        self.requests[kind] += 1
        time.sleep(seconds * random.uniform(0.8, 1.3))

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self._takes("put", PUT)
        return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._takes("put", PUT)
        self.inner.put(key, data)

    def create_output(self, key: str) -> Any:
        self._takes("put", PUT)
        return self.inner.create_output(key)

    def open_output(self, key: str) -> Any:
        self._takes("put", PUT)
        return self.inner.open_output(key)

    def delete(self, keys: Any) -> None:
        self._takes("delete", PUT)
        self.inner.delete(keys)

    def get(self, key: str) -> bytes:
        self._takes("get", GET)
        return self.inner.get(key)

    def get_many(self, keys: Any) -> list[bytes]:
        keys = list(keys)
        self.requests["get"] += max(0, len(keys) - 1)
        self._takes("get", GET * max(1, len(keys) / 16))
        return [self.inner.get(key) for key in keys]

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        self._takes("list", LIST)
        return self.inner.list(prefix, after)


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
    took: list[float] = []
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        handle = opened(store)
        while (began := time.monotonic()) < end:
            write_deltalake(handle, pa.table({"id": [number]}), mode="append", commit_properties=properties)
            took.append(time.monotonic() - began)

    cpu, began = time.process_time(), time.monotonic()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed, used = time.monotonic() - began, time.process_time() - cpu
    requests = Counter(store.requests)
    version = opened(store).version()
    rows = opened(store).to_pyarrow_table().num_rows
    if rows != len(took) + 1:
        raise AssertionError(f"{rows - 1} rows of {len(took)} appends")
    return {
        "a second": len(took) / elapsed,
        "p50 ms": 1000 * float(np.percentile(took, 50)),
        "p99 ms": 1000 * float(np.percentile(took, 99)),
        "versions a second": version / elapsed,
        "members a version": len(took) / version,
        "cpu ms": 1000 * used / len(took),
        **{f"{kind}s": requests[kind] / len(took) for kind in ("put", "get", "list", "delete")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 16, 64])
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    for writers in asked.writers:
        for group in (None, "intents"):
            found = race(writers, asked.seconds, group)
            figures = [f"{name} {value:.1f}" for name, value in found.items()]
            print(f"{writers:3d} {group or 'single':8s}", *figures, flush=True)


if __name__ == "__main__":
    main()
