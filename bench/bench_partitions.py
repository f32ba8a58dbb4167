"""Statements that write a file in each of 1,000 partitions, and appends in 3,000.

The table has two files a partition, of a few rows each: the cost of a file is what counts. Rows are in memory, not
sorted. Each run has a copy of the table of its own, in the page cache, and opens it. The codec is Snappy. The peak of
memory is of one run in a process of its own, above what its imports take. refdelta syncs all files and folders by
default; deltalake syncs none. The floor of the append is pyarrow, which writes a file a partition on four threads, each
into its folder, and a commit that names them; with fsync it syncs each file and each folder.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import fresh
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from contest import Engine, Goal, ahead
from tables import CODEC, check, copy

import refdelta

SNAPPY = deltalake.WriterProperties(compression="SNAPPY")
ON = "t.id = s.id and t.p = s.p"
_numbers = itertools.count()


def rows(parts: int, start: int = 0) -> pa.Table:
    """Four rows of each partition, in random order."""
    numbers = np.random.default_rng(start).permutation(4 * parts) + start
    texts = pc.binary_join_element_wise("name ", pa.array(numbers).cast(pa.string()), "")
    return pa.table({"p": pa.array(numbers % parts), "id": pa.array(numbers), "text": texts})


def _merge(table: Any, source: pa.Table) -> None:
    table.merge(source, ON, "s", "t").when_matched_update_all().when_not_matched_insert_all().execute()


def _merge_deltalake(table: deltalake.DeltaTable, source: pa.Table) -> None:
    merger = table.merge(source, ON, "s", "t", writer_properties=SNAPPY)
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


WRITES = {"partition_by": ["p"]}
REFDELTA: dict[str, Callable[[refdelta.DeltaTable, pa.Table], object]] = {
    "append": lambda table, source: refdelta.write_deltalake(table, source, mode="append"),
    "overwrite": lambda table, source: refdelta.write_deltalake(table, source, mode="overwrite"),
    "dynamic overwrite": lambda table, source: refdelta.write_deltalake(
        table, source, mode="overwrite", partition_overwrite="dynamic"
    ),
    "UPDATE": lambda table, _: table.update({"text": "'new'"}, predicate="id % 4 = 1"),
    "MERGE": _merge,
    "OPTIMIZE": lambda table, _: table.optimize.compact(),
}
DELTALAKE: dict[str, Callable[[deltalake.DeltaTable, pa.Table], object]] = {
    "append": lambda table, source: deltalake.write_deltalake(table, source, mode="append", writer_properties=SNAPPY),
    "overwrite": lambda table, source: deltalake.write_deltalake(
        table, source, mode="overwrite", writer_properties=SNAPPY
    ),
    "UPDATE": lambda table, _: table.update({"text": "'new'"}, None, "id % 4 = 1", SNAPPY),
    "MERGE": _merge_deltalake,
    "OPTIMIZE": lambda table, _: table.optimize.compact(writer_properties=SNAPPY),
}


def by_refdelta(statement: str, folder: str, parts: int, fsync: bool) -> None:
    table = refdelta.DeltaTable(folder, storage_options=None if fsync else {"fsync": "false"})
    REFDELTA[statement](table, rows(parts))


def by_deltalake(statement: str, folder: str, parts: int) -> None:
    DELTALAKE[statement](deltalake.DeltaTable(folder), rows(parts))


def by_pyarrow(_: str, folder: str, parts: int, fsync: bool) -> None:
    """An append of one file a partition."""
    source = rows(parts)
    order = pc.sort_indices(source["p"])
    ends = np.cumsum(np.bincount(source["p"].to_numpy(), minlength=parts))
    source = source.take(order).combine_chunks().drop_columns(["p"])

    def write(part: int) -> dict[str, Any]:
        start = ends[part - 1] if part else 0
        path = f"{folder}/p={part}/floor.parquet"
        Path(path).parent.mkdir(exist_ok=True)
        pq.write_table(source.slice(start, ends[part] - start), path, compression="snappy")
        if fsync:
            _sync(path)
            _sync(f"{folder}/p={part}")
        add = {
            "path": f"p={part}/floor.parquet",
            "partitionValues": {"p": str(part)},
            "size": Path(path).stat().st_size,
        }
        return {"add": {**add, "modificationTime": 0, "dataChange": True}}

    with ThreadPoolExecutor(4) as pool:
        adds = list(pool.map(write, range(parts)))
    log = f"{folder}/_delta_log"
    version = max(int(file.stem) for file in Path(log).glob("*.json")) + 1
    commit = f"{log}/{version:020}.json"
    Path(commit).write_text("\n".join(map(json.dumps, adds)))
    if fsync:
        _sync(commit)
        _sync(log)


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


WORK: dict[str, tuple[Callable[..., None], tuple[bool, ...]]] = {
    "refdelta": (by_refdelta, (False,)),
    "refdelta, fsync": (by_refdelta, (True,)),
    "floor": (by_pyarrow, (False,)),
    "floor, fsync": (by_pyarrow, (True,)),
    "deltalake": (by_deltalake, ()),
}
"""By engine, its function of this module, and the arguments after the table and the number of its partitions."""


@pytest.fixture(scope="session")
def made(scratch) -> Callable[[int], Path]:
    """A table with so many partitions, and two files in each."""

    @functools.cache
    def make(parts: int) -> Path:
        folder = scratch / f"partitions-{parts}"
        for start in (0, 4 * parts):
            refdelta.write_deltalake(folder, rows(parts, start), mode="append", partition_by=["p"], configuration=CODEC)
        return folder

    return make


@pytest.mark.parametrize("statement", list(REFDELTA))
def bench_many_partitions(contest, size, folder, made, statement):
    parts = size(smoke=100, default=3_000 if statement == "append" else 1_000, full=3_000)
    table, expected = made(parts), None

    def peak(name: str) -> float:
        target = copy(table, folder / f"peak-{next(_numbers)}")
        work, more = WORK[name]
        return fresh.call(f"bench_partitions:{work.__name__}", statement, str(target), parts, *more).peak / 1e6

    def after(target: Path) -> None:
        nonlocal expected
        found = refdelta.DeltaTable(target)
        left = (found.count(), pc.sum(found.to_pyarrow_table(columns=["id"])["id"]).as_py())
        expected = expected or left
        check(left, expected)

    def engine(name: str, settings: str) -> Engine:
        known = {"peak MB": peak(name)}
        work, more = WORK[name]
        return Engine(
            name,
            lambda target: work(statement, str(target), parts, *more) or known,
            before=partial(_copied, table, folder),
            after=after,
            settings=settings,
        )

    engines = [engine("refdelta", "no fsync"), engine("refdelta, fsync", "as by default")]
    if statement == "append":
        engines += [engine("floor", "no fsync"), engine("floor, fsync", "files and folders")]
    goals: list[Goal] = []
    if statement in DELTALAKE:
        engines.append(engine("deltalake", "no fsync: its defaults"))
        goals = [ahead("deltalake"), ahead("deltalake", engine="refdelta, fsync"), ahead("deltalake", figure="peak MB")]
    contest.run(engines, rounds=3, warm=0, goals=goals, unit="file", units=parts, partitions=parts)


def _copied(table: Path, folder: Path) -> Path:
    """A copy for one run. It stays: file systems are slow for minutes after many files were removed."""
    return copy(table, folder / f"run-{next(_numbers)}")


def main() -> None:
    """The peaks of memory that the guide states."""
    import tempfile

    for count in (1, 100, 1_000, 3_000, 10_000):
        folder = tempfile.mkdtemp()
        peak = fresh.call("bench_partitions:create", f"{folder}/t", count, 2_000_000).peak / 1e6
        print(f"{count:>6,} partitions: {peak:.0f} MB above the imports")
        shutil.rmtree(folder)


def create(folder: str, parts: int, count: int) -> None:
    """Write so many rows of 30 bytes, which are made in batches while they are written, into so many partitions."""
    schema = pa.schema([("p", pa.int64()), ("id", pa.int64()), ("text", pa.string())])

    def batches() -> Any:
        for start in range(0, count, 50_000):
            numbers = np.arange(start, start + 50_000)
            texts = pc.binary_join_element_wise("name ", pa.array(numbers).cast(pa.string()), "")
            yield pa.record_batch([pa.array(numbers * 7919 % parts), pa.array(numbers), texts], schema=schema)

    refdelta.write_deltalake(folder, pa.RecordBatchReader.from_batches(schema, batches()), **WRITES)


if __name__ == "__main__":
    main()
