"""Appends of ten rows, one writer: one small Parquet file and one commit each.

Handles are kept. The rows are made before the clock starts; all engines write them as one file with Snappy. The floor
is what every engine must do on a local disk: pyarrow writes the file, and a line of the log that was prepared is linked
to the version's name. All tables have a checkpoint each hundred versions, as for commits without rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from bench_log import RARELY, SCHEMA, counted, kept, kept_by_deltalake, put
from contest import Engine, ahead

import refdelta
from refdelta_storage.disk import sync, sync_folder

ROWS = pa.table({"id": range(10), "value": [i / 7 for i in range(10)]}, schema=SCHEMA)
LINE = b'{"commitInfo":{}}\n{"add":{"path":"part-0.parquet","partitionValues":{},"size":1,"dataChange":true}}\n'
_numbers = itertools.count()


def append_refdelta(table: refdelta.DeltaTable, commits: int) -> None:
    for _ in range(commits):
        refdelta.write_deltalake(table, ROWS, mode="append")


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
    commits, rounds = size(smoke=5, default=30, full=300), size(smoke=1, default=5)

    def engine(name: str, work: Callable[..., None], table: Any, **told: Any) -> Engine:
        return counted(name, folder / name, partial(work, table(folder / name), commits), commits, **told)

    def bare(path: Path) -> Path:
        (path / "_delta_log").mkdir(parents=True)
        return path

    engines = [
        engine("refdelta", append_refdelta, partial(kept, configuration=RARELY, fsync="false"), settings="no fsync"),
        engine("refdelta, fsync", append_refdelta, partial(kept, configuration=RARELY), settings="fsync"),
        engine("refdelta, unset", append_refdelta, kept, settings="fsync, a checkpoint each 10 versions: its defaults"),
        engine("deltalake", append_deltalake, kept_by_deltalake, settings="no fsync"),
        engine("floor", partial(append_floor, fsync=False), bare, settings="write_table, link; no fsync"),
        engine("floor, fsync", partial(append_floor, fsync=True), bare, settings="write_table, link, four fsyncs"),
    ]
    if spark is not None:
        kept(folder / "delta-spark", RARELY)
        frame = spark.createDataFrame(ROWS.to_pandas()).coalesce(1)
        few = min(commits, 5)
        run = partial(append_spark, frame, folder / "delta-spark", few)
        told = {"settings": "df.write, no fsync", "every": rounds, "share": few / commits}
        engines.append(counted("delta-spark", folder / "delta-spark", run, few, **told))
    contest.run(
        engines,
        rounds=rounds,
        units=commits,
        unit="append",
        goals=[ahead("deltalake", 4)],
        note="handles are kept; a checkpoint each 100 versions but where it says otherwise",
        rows=10,
    )
