"""Commits of one prepared file: what the protocol itself costs, without Parquet.

The file does not exist; none of the engines looks at it. refdelta keeps its handle, as deltalake does; delta-spark
commits through its own ``OptimisticTransaction``, as its writer does. The floor is what every engine must do on a local
disk: encode the entry, write it under a temporary name, and link it to the version's name, which fails where the
version exists.

Engines differ in how often they write a checkpoint unless told, so all tables say the same: each hundred versions. What
refdelta does by its defaults (fsync, checkpoints when they pay, in the background) stands beside it.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from contest import Engine, ahead, within
from deltalake.transaction import AddAction

import refdelta
from refdelta.transaction import background

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
STATS = json.dumps({"numRecords": 10, "minValues": {"id": 1}, "maxValues": {"id": 10}, "nullCount": {"id": 0}})
RARELY = {"delta.checkpointInterval": "100"}
_numbers = itertools.count()


def _file() -> tuple[str, int, int]:
    return f"part-{next(_numbers):012}.parquet", 1_000, int(time.time() * 1000)


def commit_refdelta(table: refdelta.DeltaTable, commits: int) -> None:
    schema = table.schema()
    for _ in range(commits):
        path, size, now = _file()
        action = refdelta.AddAction(path, size, {}, now, True, STATS)
        table.create_write_transaction([action], "append", schema)
    background.settle()  # checkpoints, and over a network the last checksum, come after the commit


def commit_deltalake(table: deltalake.DeltaTable, commits: int) -> None:
    schema = table.schema()
    for _ in range(commits):
        path, size, now = _file()
        action = AddAction(path, size, {}, now, True, STATS)
        table.create_write_transaction([action], "append", schema)


def commit_spark(spark: Any, folder: Path, commits: int) -> None:
    from refdelta.crosscheck import oracle

    delta = spark._jvm.org.apache.spark.sql.delta  # noqa: SLF001
    operation = getattr(delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
    log = delta.DeltaLog.forTable(spark._jsparkSession, str(folder))  # noqa: SLF001
    for _ in range(commits):
        path, size, now = _file()
        add = {"path": path, "partitionValues": {}, "size": size, "modificationTime": now, "dataChange": True}
        line = json.dumps({"add": {**add, "stats": STATS}})
        action = getattr(delta.actions, "Action$").__getattr__("MODULE$").fromJson(line)
        log.startTransaction().commit(oracle.scala_list(spark, [action]), operation)


def commit_floor(folder: Path, commits: int, *, fsync: bool) -> None:
    log = folder / "_delta_log"
    first = len(list(log.iterdir()))
    for version in range(first, first + commits):
        path, size, now = _file()
        info = {"commitInfo": {"timestamp": now, "operation": "WRITE", "operationParameters": {"mode": "Append"}}}
        add = {"add": {"path": path, "partitionValues": {}, "size": size, "modificationTime": now, "dataChange": True}}
        add["add"]["stats"] = STATS
        put(log / f"{version:020}.json", f"{json.dumps(info)}\n{json.dumps(add)}\n".encode(), fsync=fsync)


def put(path: Path, data: bytes, *, fsync: bool) -> None:
    """Make a file that must not exist yet, whole or not at all; with ``fsync`` it survives a power cut."""
    temporary = f"{path}.tmp"
    handle = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
    os.write(handle, data)
    if fsync:
        os.fsync(handle)
    os.close(handle)
    os.link(temporary, path)
    os.unlink(temporary)  # noqa: PTH108
    if fsync:
        handle = os.open(path.parent, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def counted(name: str, folder: Path, run: Callable[[], None], commits: int, **told: Any) -> Engine:
    """An engine whose run has to leave so many versions behind."""

    def newest() -> int:
        return max((int(path.stem) for path in (folder / "_delta_log").glob("*[0-9].json")), default=-1)

    def check(before: int) -> None:
        assert newest() == before + commits, name

    return Engine(name, lambda _: run(), before=newest, after=check, **told)


def kept(folder: Path, configuration: dict[str, str] | None = None, **options: str) -> refdelta.DeltaTable:
    """A handle of a new table."""
    refdelta.write_deltalake(folder, SCHEMA.empty_table(), configuration=configuration)
    return refdelta.DeltaTable(folder, storage_options=options)


def kept_by_deltalake(folder: Path) -> deltalake.DeltaTable:
    deltalake.write_deltalake(folder, SCHEMA.empty_table(), configuration=RARELY)
    return deltalake.DeltaTable(folder)


@dataclass(frozen=True)
class Works:
    """How each engine does so many commits: refdelta and deltalake with a kept handle, the others in a folder."""

    refdelta: Callable[[refdelta.DeltaTable, int], None]
    deltalake: Callable[[deltalake.DeltaTable, int], None]
    floor: Callable[..., None]
    floor_settings: tuple[str, str]
    spark: Callable[[Path, int], None] | None
    spark_settings: str


def in_turn(contest, size, folder, works: Works, *, goals, unit: str, full: int, **sizes):
    """Let the engines commit in turn, each to a table of its own, refdelta and the floor with fsync and without."""
    commits, rounds = size(smoke=5, default=30, full=full), size(smoke=1, default=5)

    def engine(name: str, work: Callable[..., None], table: Any, **told: Any) -> Engine:
        return counted(name, folder / name, partial(work, table(folder / name), commits), commits, **told)

    def bare(path: Path) -> Path:
        (path / "_delta_log").mkdir(parents=True)
        return path

    unset = "fsync, checkpoints when they pay: its defaults"
    hasty, synced = works.floor_settings
    engines = [
        engine("refdelta", works.refdelta, partial(kept, configuration=RARELY, fsync="false"), settings="no fsync"),
        engine("refdelta, fsync", works.refdelta, partial(kept, configuration=RARELY), settings="fsync"),
        engine("refdelta, unset", works.refdelta, kept, settings=unset),
        engine("deltalake", works.deltalake, kept_by_deltalake, settings="no fsync"),
        engine("floor", partial(works.floor, fsync=False), bare, settings=hasty),
        engine("floor, fsync", partial(works.floor, fsync=True), bare, settings=synced),
    ]
    if works.spark is not None:
        place, few = folder / "delta-spark", min(commits, 5)
        kept(place, RARELY)
        told = {"settings": works.spark_settings, "every": rounds, "share": few / commits}
        engines.append(counted("delta-spark", place, partial(works.spark, place, few), few, **told))
    contest.run(
        engines,
        rounds=rounds,
        units=commits,
        unit=unit,
        goals=goals,
        note="handles are kept; a checkpoint each 100 versions but where it says otherwise",
        **sizes,
    )


def bench_log_only_commits(contest, size, folder, spark):
    works = Works(
        commit_refdelta,
        commit_deltalake,
        commit_floor,
        ("json, write, link; no fsync", "json, write, fsync, link, fsync"),
        spark and partial(commit_spark, spark),
        "OptimisticTransaction, no fsync",
    )
    goals = [
        ahead("deltalake", 25),
        ahead("delta-spark", 100),
        within("floor", 2),
        within("floor, fsync", 2, engine="refdelta, fsync"),
    ]
    in_turn(contest, size, folder, works, goals=goals, unit="commit", full=500)
