"""Figures of the commit protocol: a race of appenders through the public interface, and how long a stale commit takes
to go past its winners.

    python bench/commits.py [--processes 10] [--appends 200] [--winners 1000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import pyarrow as pa

from refdelta import DeltaTable, write_deltalake

SCHEMA = pa.schema([("p", pa.int64()), ("process", pa.int64()), ("number", pa.int64())])


def rows(p: int, process: int, number: int) -> pa.Table:
    return pa.table({"p": [p], "process": [process], "number": [number]}, schema=SCHEMA)


def appender(path: str, process: int, appends: int) -> list[int]:
    """Appends one row at a time; no error is caught. Returns the versions."""
    return [write_deltalake(path, rows(0, process, n), mode="append").version for n in range(appends)]


def race(path: str, processes: int, appends: int) -> None:
    write_deltalake(path, SCHEMA.empty_table())
    started = time.perf_counter()
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(appender, path, process, appends) for process in range(processes)]
        versions = sorted(version for future in running for version in future.result())
    seconds = time.perf_counter() - started
    table = DeltaTable(path).to_pyarrow_table()
    found = sorted(zip(table["process"].to_pylist(), table["number"].to_pylist(), strict=True))
    assert versions == list(range(1, processes * appends + 1)), "a version is missing, or doubled"
    assert found == [(p, n) for p in range(processes) for n in range(appends)], "a row is missing, or doubled"
    print(f"{processes} processes x {appends} appends: {len(versions):,} commits, none lost, none doubled, no error;")
    print(f"  {seconds:.1f} s, {len(versions) / seconds:.0f} commits a second")


def stale(path: str, winners: int) -> None:
    write_deltalake(path, rows(0, 0, 0), partition_by=["p"])
    with DeltaTable(path).begin() as late:
        late.append(late.read(predicate="p = 0"))
        for number in range(winners):
            write_deltalake(path, rows(1 + number % 50, 0, number), mode="append")
        started = time.perf_counter()
        result = late.commit()
    seconds = time.perf_counter() - started
    print(f"a stale commit went past {len(result.rebased_over):,} winners in {seconds:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--appends", type=int, default=200)
    parser.add_argument("--winners", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        race(f"{folder}/race", options.processes, options.appends)
        stale(f"{folder}/stale", options.winners)
