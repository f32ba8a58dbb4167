"""The history of a table of many versions: the newest three by a handle that is kept, and all by the command line.

Every commit adds one file, and there is a checkpoint at the last version, so that opening the table is not what is
measured. All versions are printed in a new process, which has everything imported, into ``/dev/null``; deltalake, which
has no command line, gives the list that a program would print. The floor of the newest three is to read these three
commits and to decode them.
"""

from __future__ import annotations

import json
import os
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import deltalake
import fresh
import logs
import pytest
from contest import Engine, Goal, ahead, within

import refdelta
import refdelta.cli.inspect  # where it is used, it is imported
from refdelta.cli import main

NEWEST = 3


def commits(table: Path, versions: int) -> Path:
    """A table of so many versions."""
    refdelta.DeltaTable.create(table, refdelta.Schema.from_json(logs.SCHEMA_STRING), partition_by=["day"])
    log = table / "_delta_log"
    add = {"partitionValues": {"day": "2026-01-01"}, "size": 1_000, "modificationTime": 0, "dataChange": True}
    info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "operationMetrics": {"num_added_files": 1}}
    for version in range(1, versions):
        actions = [
            {"commitInfo": info | {"timestamp": 1_760_000_000_000 + version}},
            {"add": add | {"path": f"part-{version}"}},
        ]
        lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
        (log / f"{version:020}.json").write_text(lines)
    refdelta.DeltaTable(table).create_checkpoint()
    return table


@pytest.fixture(scope="module")
def table(scratch, size) -> Path:
    return commits(scratch / "versions", size(smoke=200, default=100_000))


def print_all(table: str, *options: str) -> int:
    with Path(os.devnull).open("w") as sink, redirect_stdout(sink):
        return main(["history", table, *options])


def list_all(table: str) -> int:
    return len(deltalake.DeltaTable(table).history())


def bench_history_of_the_newest(contest, table):
    ours, theirs = refdelta.DeltaTable(table), deltalake.DeltaTable(table)
    versions = ours.version() + 1
    paths = [table / "_delta_log" / f"{version:020}.json" for version in range(versions - NEWEST, versions)]

    def floor() -> list[object]:
        return [json.loads(path.read_bytes().partition(b"\n")[0]) for path in paths]

    def engine(name: str, work) -> Engine:
        def run() -> None:
            assert len(work()) == NEWEST

        return Engine(name, run, settings="a handle that is kept" if name != "floor" else "")

    contest.run(
        [
            engine("refdelta", partial(ours.history, NEWEST)),
            engine("deltalake", partial(theirs.history, NEWEST)),
            engine("floor", floor),
        ],
        goals=[Goal("under 0.1 s", 0.1), ahead("deltalake")],
        versions=versions,
    )


def bench_history_of_all(contest, table):
    versions = refdelta.DeltaTable(table).version() + 1
    printed = "bench_history:print_all", os.fspath(table), "--limit", str(versions)
    listed = "bench_history:list_all", os.fspath(table)
    contest.run(
        [
            fresh.engine("refdelta", *printed, expected=0, settings="refdelta history, as text"),
            fresh.engine("refdelta, json", *printed, "--json", expected=0, settings="refdelta history --json"),
            fresh.engine("deltalake", *listed, expected=versions, settings="DeltaTable.history()"),
        ],
        rounds=3,
        goals=[within("refdelta, json", 1), Goal("200 MB", 200, figure="peak MB"), ahead("deltalake")],
        versions=versions,
    )
