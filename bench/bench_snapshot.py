"""The snapshot of a table of many files: read cold, and followed by a handle that is kept.

Cold is a new process that has everything imported and has read nothing; the log is in the page cache. Each engine opens
the table and has the list of its live files, with their statistics, in memory then: deltalake and refdelta do that when
a handle is made, delta-spark when it is asked for the number of files. delta-spark's JVM is kept, its log cache is not.

The floors: of JSON, to read the bytes and let msgspec decode the lines; of a checkpoint, what pyarrow needs for the
columns of ``add`` that have anything. Neither reconciles, checks or counts anything.
"""

from __future__ import annotations

import copy
import os
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import fresh
import logs
import msgspec
import pyarrow.parquet as pq
import pytest
from contest import Engine, ahead, within

import refdelta.engine.log.checkpoint  # where it is used, it is imported
import refdelta.engine.log.commits
import refdelta.engine.log.snapshot
import refdelta.engine.parquet.limits

CHECKPOINT_COLUMNS = [f"add.{name}" for name in ("path", "partitionValues", "size", "modificationTime", "dataChange")]
CHECKPOINT_COLUMNS += ["add.stats"]
DECODED = msgspec.json.Decoder(dict[str, msgspec.Raw])


def open_refdelta(table: str) -> int:
    return refdelta.DeltaTable(table).version()


def open_deltalake(table: str) -> int:
    return deltalake.DeltaTable(table).version()


def floor_json(table: str) -> int:
    """Every byte has to be read, and every line to be looked at: who skips a line's content has not found its end."""
    return len([DECODED.decode_lines(Path(name).read_bytes()) for name in logs.json_files(Path(table))]) - 1


def floor_checkpoint(table: str) -> int:
    """Every value of every column has to be decompressed and decoded, and pyarrow is what does it."""
    (path,) = Path(table, "_delta_log").glob("*.checkpoint.parquet")
    pq.ParquetFile(path).read(columns=CHECKPOINT_COLUMNS)
    return int(path.name[:20]) + 1


def _cold(name: str, function: str, table: Path, version: int) -> Engine:
    called = f"bench_snapshot:{function}", os.fspath(table)
    return fresh.engine(name, *called, expected=version, settings="cold: a new process")


def _delta_spark(session: Any, table: Path, version: int) -> list[Engine]:
    if session is None:
        return []
    java, none = session._jsparkSession, session._jvm.scala.Option.empty()  # noqa: SLF001
    log = session._jvm.org.apache.spark.sql.delta.DeltaLog  # noqa: SLF001

    def run() -> None:
        log.clearCache()
        snapshot = log.forTable(java, os.fspath(table)).update(False, none, none)
        assert snapshot.version() == version
        snapshot.numOfFiles()

    return [Engine("delta-spark", run, settings="warm JVM, log cache cleared", every=3)]


def _files(size: Any, number: int) -> int:
    """The first, the second or the third size of a run; the third is left out of all but a full one."""
    files = size(smoke=(2_000, 0, 0), default=(10_000, 100_000, 0), full=(10_000, 100_000, 1_000_000))[number]
    if not files:
        pytest.skip("in a larger run")
    return files


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", ["json", "checkpoint"])
def bench_cold(contest, size, folder, spark, kind, number):
    files = _files(size, number)
    make = {"json": logs.json_log, "checkpoint": logs.checkpointed}[kind]
    table = make(folder / "table", files)
    version = deltalake.DeltaTable(table).version()
    assert refdelta.DeltaTable(table).version() == version
    engines = [
        _cold("refdelta", "open_refdelta", table, version),
        _cold("deltalake", "open_deltalake", table, version),
        *_delta_spark(spark, table, version),
        _cold("floor", f"floor_{kind}", table, version),
    ]
    contest.run(
        engines,
        rounds=5,
        warm=0 if files >= 1_000_000 else 1,
        goals=[ahead("deltalake"), within("floor", 1.5)],
        note="JSON: read and msgspec; checkpoint: pyarrow, the same columns",
        files=files,
    )


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("commits", [1, 100])
def bench_incremental(contest, size, folder, commits, number):
    """A handle at the checkpointed version follows commits of one file each.

    deltalake's has just been opened. refdelta's has followed others before, and has kept the keys of its files.
    """
    files = _files(size, number)
    table = logs.checkpointed(folder / "table", files)
    start = deltalake.DeltaTable(table).version()
    append = partial(logs.append_commits, table, start + 1, files + 10, commits)
    kept = refdelta.DeltaTable(table)
    (path,) = [name for name in logs.json_files(table) if name.endswith(f"{start:020}.json")]

    def prepare(make: Any) -> Any:
        logs.remove_commits(table, after=start)
        handle = make()
        append()
        return handle

    def again() -> refdelta.DeltaTable:
        table = copy.copy(kept)
        table._handle = copy.copy(kept._handle)  # noqa: SLF001 - the first of many that follow: `kept` stays where it is
        return table

    def check(handle: Any) -> None:
        assert handle.version() == start + commits
        logs.remove_commits(table, after=start)

    def floor(_: object) -> None:
        """List the folder; read and decode what is new."""
        new = [name for name in logs.json_files(table) if name > path]
        assert len([DECODED.decode_lines(Path(name).read_bytes()) for name in new]) == commits

    def update(handle: Any) -> None:
        handle.update_incremental()

    settings = "a handle that is kept, warm"
    contest.run(
        [
            Engine("refdelta", update, before=partial(prepare, again), after=check, settings=settings),
            Engine("deltalake", update, before=partial(prepare, partial(deltalake.DeltaTable, table)), after=check),
            Engine("floor", floor, before=partial(prepare, lambda: None)),
        ],
        goals=[ahead("deltalake")],
        note="floor: list, read, decode",
        files=files,
        commits=commits,
    )
