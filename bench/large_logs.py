"""What a table of a million files takes: each verb in a process of its own, its time and its memory.

    python bench/large_logs.py [--files 1000000] [--only scan --only verify] [--scratch DIR]

The log is one of :mod:`logs`: a classic checkpoint and two commits, or, for the change data feed, commits of a thousand
files each. Data files do not exist but those that a verb writes itself, so that verbs that would read the others are
asked for none of their rows. Seconds are of the processor, beside those of the clock: of the verb alone, behind the
imports, with the log in the page cache. MB are what the resident memory rose by at most.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fresh
import logs
import pyarrow as pa

import refdelta
import refdelta.api.writer
import refdelta.verifier.run
from refdelta.operations.layout.optimize import OptimizeRequest, planned

ROWS = pa.table({"id": [1], "name": ["a"], "value": [0.5], "day": pa.array([0], pa.date32())})


def timed(table: str, verb: Callable[[refdelta.DeltaTable], Any], *, opened: bool = True) -> dict[str, Any]:
    """Run a verb on a handle; the time to open it is not counted, its memory is."""
    handle = refdelta.DeltaTable(table) if opened else None
    began, used = time.perf_counter(), time.process_time()
    found = verb(handle)  # type: ignore[arg-type]
    return {"found": found, "cpu": time.process_time() - used, "wall": time.perf_counter() - began}


def opening(table: str) -> dict[str, Any]:
    return timed(table, lambda _: refdelta.DeltaTable(table).version(), opened=False)


def scan_by_partition(table: str) -> dict[str, Any]:
    return timed(table, lambda t: t.scan(predicate="day = DATE '2025-03-03'").explain().files_read)


def scan_by_statistics(table: str) -> dict[str, Any]:
    return timed(table, lambda t: t.scan(predicate="id = 1234500").explain().files_read)


def files(table: str) -> dict[str, Any]:
    return timed(table, lambda t: t.files().num_rows)


def add_actions(table: str) -> dict[str, Any]:
    return timed(table, lambda t: t.get_add_actions(flatten=True).num_rows)


def append(table: str) -> dict[str, Any]:
    return timed(table, lambda t: refdelta.write_deltalake(t, ROWS, mode="append").version)


def delete_nothing(table: str) -> dict[str, Any]:
    return timed(table, lambda t: t.delete("id < 0").version)


def optimize_plan(table: str) -> dict[str, Any]:
    return timed(table, lambda t: len(planned(t.newest_for_writing(), OptimizeRequest(aim="compact")).bins))


def vacuum_dry(table: str) -> dict[str, Any]:
    return timed(table, lambda t: len(t.vacuum()))


def checkpoint(table: str) -> dict[str, Any]:
    return timed(table, lambda t: t.create_checkpoint())


def checkpoint_v2(table: str) -> dict[str, Any]:
    refdelta.DeltaTable(table).alter.set_table_properties({"delta.checkpointPolicy": "v2"})
    return timed(table, lambda t: t.create_checkpoint())


def verify_log(table: str) -> dict[str, Any]:
    return timed(table, lambda _: len(refdelta.verify(table, sample=0).findings), opened=False)


def changes(table: str) -> dict[str, Any]:
    return timed(table, lambda t: t.load_cdf(0, predicate="day = DATE '1999-01-01'").read_all().num_rows)


CLASSIC: list[Callable[[str], dict[str, Any]]] = [
    *[opening, scan_by_partition, scan_by_statistics, files, add_actions, append, delete_nothing],
    *[optimize_plan, vacuum_dry, checkpoint, verify_log, checkpoint_v2],
]
AFTER_V2 = [opening, scan_by_statistics, append, verify_log]
COMMITS = [opening, changes, verify_log]


def commits_log(folder: Path, files: int) -> Path:
    """A log of commits of a thousand files, with the change data feed."""
    before = logs.METADATA["configuration"], logs.PROTOCOL["minWriterVersion"]
    logs.METADATA["configuration"], logs.PROTOCOL["minWriterVersion"] = {"delta.enableChangeDataFeed": "true"}, 4
    try:
        return logs.json_log(folder, files)
    finally:
        logs.METADATA["configuration"], logs.PROTOCOL["minWriterVersion"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--only", action="append", help="verbs whose name begins so")
    parser.add_argument("--scratch", default="/var/tmp")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="large-logs-", dir=asked.scratch))
    print(f"{asked.files:,} files\n{'':24}{'cpu s':>9}{'wall s':>9}{'MB':>8}  found")
    try:
        for kind, make, verbs in (
            ("checkpoint", logs.checkpointed, CLASSIC),
            ("v2 checkpoint", None, AFTER_V2),
            ("commits", commits_log, COMMITS),
        ):
            if make is not None:
                table = make(folder / kind.replace(" ", "-"), asked.files)
            print(kind)
            for verb in verbs:
                if asked.only and not verb.__name__.startswith(tuple(asked.only)):
                    continue
                told = fresh.call(f"large_logs:{verb.__name__}", str(table))
                line = told.result
                shown = json.dumps(line["found"])
                print(
                    f"  {verb.__name__:22}{line['cpu']:9.2f}{line['wall']:9.2f}{told.peak / 1e6:8.0f}  {shown}",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
