"""Commits of one prepared file: what the protocol itself costs, without Parquet.

The file does not exist; none of the engines looks at it. refdelta keeps its handle, as deltalake does; delta-spark
commits through its own ``OptimisticTransaction``. The floor is what every engine must do on a local disk: encode the
entry, write it under a temporary name, and link it to the version's name, which fails where the version exists.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from contest import Engine, ahead, within
from deltalake.transaction import AddAction

import refdelta
from refdelta.protocol.actions import Add

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
STATS = json.dumps({"numRecords": 10, "minValues": {"id": 1}, "maxValues": {"id": 10}, "nullCount": {"id": 0}})
_numbers = itertools.count()


def _file() -> tuple[str, int, int]:
    return f"part-{next(_numbers):012}.parquet", 1_000, int(time.time() * 1000)


def commit_refdelta(table: refdelta.DeltaTable, commits: int) -> None:
    """By the staging area that its own verbs use: there is no file to write, and none to look at."""
    for _ in range(commits):
        path, size, now = _file()
        add = Add(path=path, partition_values={}, size=size, modification_time=now, data_change=True, stats=STATS)
        with table.begin() as txn:
            staging = txn._staging  # noqa: SLF001
            staging.stage([add])
            staging.describe("WRITE", {"mode": "Append"}, {})
            txn.commit()


def commit_deltalake(table: deltalake.DeltaTable, commits: int) -> None:
    schema = table.schema()
    for _ in range(commits):
        path, size, now = _file()
        action = AddAction(path, size, {}, now, True, STATS)
        table.create_write_transaction([action], "append", schema)


def commit_floor(folder: Path, commits: int, *, fsync: bool) -> None:
    first = len(list(folder.iterdir()))
    for version in range(first, first + commits):
        path, size, now = _file()
        info = {"commitInfo": {"timestamp": now, "operation": "WRITE", "operationParameters": {"mode": "Append"}}}
        add = {"add": {"path": path, "partitionValues": {}, "size": size, "modificationTime": now, "dataChange": True}}
        add["add"]["stats"] = STATS
        data = f"{json.dumps(info)}\n{json.dumps(add)}\n".encode()
        temporary = folder / f"_{version}.tmp"
        handle = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
        os.write(handle, data)
        if fsync:
            os.fsync(handle)
        os.close(handle)
        os.link(temporary, folder / f"{version:020}.json")
        temporary.unlink()
        if fsync:
            handle = os.open(folder, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)


def bench_log_only_commits(contest, size, folder):
    commits = size(smoke=5, default=200, full=1_000)
    fsync, plain = folder / "fsync", folder / "plain"
    for path in (fsync, plain):
        refdelta.write_deltalake(path, SCHEMA.empty_table())
    rival = folder / "deltalake"
    deltalake.write_deltalake(rival, SCHEMA.empty_table())

    def floor(*, fsync: bool) -> Engine:
        log = folder / f"floor-{fsync}"
        log.mkdir()
        name = "floor" if not fsync else "floor, fsync"
        return Engine(name, partial(commit_floor, log, commits, fsync=fsync), settings="json, write, link")

    def kept(path: Path, **options: Any) -> refdelta.DeltaTable:
        return refdelta.DeltaTable(path, storage_options=options)

    engines = [
        Engine("refdelta", partial(commit_refdelta, kept(plain, fsync="false"), commits), settings="no fsync"),
        Engine("refdelta, fsync", partial(commit_refdelta, kept(fsync), commits), settings="as by default"),
        Engine("deltalake", partial(commit_deltalake, deltalake.DeltaTable(rival), commits), settings="no fsync"),
        floor(fsync=False),
        floor(fsync=True),
    ]
    contest.run(
        engines,
        units=commits,
        unit="commit",
        goals=[ahead("deltalake", 20), within("floor", 2)],
        note="handles are kept",
    )
