"""Appends of ten rows, one writer: one small Parquet file and one commit each.

Handles are kept. The rows are made before the clock starts; all engines write them as one file with Snappy. The floor
is what every engine must do on a local disk: pyarrow writes the file, and a line of the log that was prepared is linked
to the version's name. All tables have a checkpoint each hundred versions, as for commits without rows.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from bench_log import SCHEMA, Works, in_turn, put
from contest import ahead

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
