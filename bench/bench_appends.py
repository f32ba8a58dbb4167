"""Appends of ten rows, one writer: one small Parquet file and one commit each.

Handles are kept. The rows are made before the clock starts; all engines write them as one file with Snappy. The floor
is what every engine must do on a local disk: pyarrow writes the file, and a line of the log that was prepared is linked
to the version's name. In the first benchmark, all tables have a checkpoint each hundred versions, as for commits
without rows. In the others, each engine has its own defaults, and all that they cost counts: checkpoints, checksums,
and the background work, which has ended when the clock stops.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench_log import SCHEMA, STATS, Works, in_turn, kept, put
from contest import Engine, Goal, ahead, within

import refdelta
from refdelta.transaction import background
from refdelta_storage.disk import sync, sync_folder

ROWS = pa.table({"id": range(10), "value": [i / 7 for i in range(10)]}, schema=SCHEMA)
LINE = b'{"commitInfo":{}}\n{"add":{"path":"part-0.parquet","partitionValues":{},"size":1,"dataChange":true}}\n'
_numbers = itertools.count()


def append_refdelta(table: refdelta.DeltaTable, commits: int) -> None:
    for _ in range(commits):
        refdelta.write_deltalake(table, ROWS, mode="append")
    background.settle()


def append_deltalake(table: deltalake.DeltaTable, commits: int) -> None:
    for _ in range(commits):
        deltalake.write_deltalake(table, ROWS, mode="append")


def append_spark(frame: Any, folder: Path, commits: int) -> None:
    for _ in range(commits):
        frame.write.format("delta").mode("append").save(str(folder))


def append_floor(folder: Path, commits: int, *, fsync: bool) -> None:
    log = folder / "_delta_log"
    first = len(list(log.iterdir()))
    for version in range(first, first + commits):
        path = f"{folder}/part-{next(_numbers):012}.parquet"
        pq.write_table(ROWS, path)
        if fsync:
            sync(path, 0)
            sync_folder(str(folder))
        put(log / f"{version:020}.json", LINE, fsync=fsync)


def bench_appends_of_ten_rows(contest, size, folder, spark):
    frame = spark and spark.createDataFrame(ROWS.to_pandas()).coalesce(1)
    works = Works(
        append_refdelta,
        append_deltalake,
        append_floor,
        ("write_table, link; no fsync", "write_table, link, four fsyncs"),
        frame and partial(append_spark, frame),
        "df.write, no fsync",
    )
    in_turn(contest, size, folder, works, goals=[ahead("deltalake", 4)], unit="append", full=300, rows=10)


def _timed(append: Any, table: Any, commits: int) -> dict[str, float]:
    """Append one by one; the median, the mean and the 99th percentile in milliseconds."""
    begun, times = time.perf_counter(), []
    for _ in range(commits):
        start = time.perf_counter()
        append(table, ROWS, mode="append")
        times.append(time.perf_counter() - start)
    background.settle()
    whole = time.perf_counter() - begun
    times.sort()
    rank = min(commits - 1, commits * 99 // 100)
    found = {"p50 ms": times[commits // 2], "p99 ms": times[rank], "mean ms": whole / commits}
    return {name: 1_000 * seconds for name, seconds in found.items()}


def _deltalake(folder: Path) -> deltalake.DeltaTable:
    deltalake.write_deltalake(folder, SCHEMA.empty_table())
    return deltalake.DeltaTable(folder)


def _engine(name: str, append: Any, made: Any, folder: Path, commits: int, settings: str, every: int = 1) -> Engine:
    def before() -> Any:
        return made(folder / f"{name}-{next(_numbers)}")

    def after(table: Any) -> None:
        table.update_incremental()
        assert table.to_pyarrow_table(columns=["id"]).num_rows >= commits * ROWS.num_rows

    return Engine(name, lambda table: _timed(append, table, commits), before, after, settings, every)


@pytest.mark.parametrize("appends", [60, 1_000])
def bench_first_appends_to_a_table(contest, size, folder, appends):
    commits = size(smoke=12, default=appends)
    often = 1 if appends == 60 else 3  # a thousand of deltalake take most of a minute
    engines = [
        _engine("refdelta", refdelta.write_deltalake, partial(kept, fsync="false"), folder, commits, "no fsync"),
        _engine("refdelta, fsync", refdelta.write_deltalake, kept, folder, commits, "fsync: its defaults"),
        _engine("deltalake", deltalake.write_deltalake, _deltalake, folder, commits, "no fsync: its defaults", often),
    ]
    steady = Goal("p99 within 3 x the median", 3, figure="p99 ms", over="p50 ms")
    synced = ahead("deltalake", 4, engine="refdelta, fsync")
    goals = [ahead("deltalake", 6), synced] if appends == 60 else [ahead("deltalake", 20), steady]
    rounds = size(smoke=1, default=7 if appends == 60 else 3)
    contest.run(engines, rounds=rounds, units=commits, unit="append", goals=goals, appends=appends)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def bench_appends_to_a_table_of_many_files(contest, size, folder, policy):
    """As long as checkpoints take turns: the mean is to stay within 1.3 times that of a tenth of the files."""
    commits, many = size(smoke=12, default=1_000), size(smoke=200, default=20_000)
    tenth = f"refdelta, {many // 10:,} files"

    def made(files: int) -> refdelta.DeltaTable:
        table = kept(folder / f"many-{next(_numbers)}", {"delta.checkpointPolicy": policy}, fsync="false")
        old = [refdelta.AddAction(f"old-{n}.parquet", 1_000, {}, 1, True, STATS) for n in range(files)]
        table.create_write_transaction(old, "append", SCHEMA)
        return table

    def engine(name: str, files: int) -> Engine:
        def work(table: refdelta.DeltaTable) -> dict[str, float]:
            return _timed(refdelta.write_deltalake, table, commits)

        return Engine(name, work, before=partial(made, files), settings="no fsync")

    contest.run(
        [engine("refdelta", many), engine(tenth, many // 10)],
        rounds=size(smoke=1, default=3),
        units=commits,
        unit="append",
        goals=[within(tenth, 1.3)],
        files=many,
        policy=policy,
    )
