"""A stream from table to table whose driver is killed at any moment and started again, while the table it reads goes
on: each row arrives once, and of the rows that were there when it began none is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake

pytestmark = pytest.mark.spark

TESTS = Path(__file__).resolve().parent.parent
KILLS, ROWS = 2, 20


def append(uri: Path, number: int) -> None:
    """A commit of two files."""
    ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
    rows = pa.table({"id": ids, "half": [i % 2 for i in range(ROWS)]})
    write_deltalake(uri, rows, mode="append", partition_by="half")


class Driver:
    """The program, with its Java."""

    def __init__(self, folder: Path):
        command = [sys.executable, "-m", "spark.copying_stream", str(folder)]
        with (folder / "output").open("ab") as output:
            self.process = subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, stderr=output)
        assert self.process.stdout
        self.java = int(self.process.stdout.readline())

    def kill(self) -> None:
        for pid in (self.java, self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def steps(folder: Path) -> int:
    """How far the stream is: more at each thing that it does."""
    places = ("to", "to/half=0", "to/half=1", "to/_delta_log", "checkpoint/offsets", "checkpoint/commits")
    return sum(len(list((folder / place).glob("*"))) for place in places)


def batches(folder: Path) -> dict[int, dict[str, object]]:
    """The offset at which each batch ends, as Spark keeps it."""
    found = {}
    for path in (folder / "checkpoint" / "offsets").glob("[0-9]*"):
        found[int(path.name)] = json.loads(path.read_text().splitlines()[-1])
    return found


def test_killed_drivers_copy_each_row_once(tmp_path: Path) -> None:
    dice = random.Random(7)
    source, target = tmp_path / "from", tmp_path / "to"
    for number in range(3):
        append(source, number)
    number = 3
    seen: dict[int, dict[str, object]] = {}
    for _ in range(KILLS):
        driver = Driver(tmp_path)
        try:
            until = steps(tmp_path) + dice.randint(1, 14)
            while steps(tmp_path) < until and driver.process.poll() is None:
                time.sleep(0.005)
            time.sleep(dice.uniform(0, 0.1))
        finally:
            driver.kill()
        # A batch that is known is never another one, whatever was committed since.
        now = batches(tmp_path)
        assert seen.items() <= now.items()
        seen = now
        append(source, number)
        DeltaTable(source).optimize.compact()
        append(source, number + 1)
        number += 2
    driver = Driver(tmp_path)
    try:
        assert driver.process.wait(timeout=300) == 0, (tmp_path / "output").read_text()[-4000:]
    finally:
        driver.kill()
    assert seen.items() <= batches(tmp_path).items()
    assert seen[0]["begun"] == {"version": 2, "snapshot": True}
    copied = DeltaTable(target).to_pyarrow_table().column("id").to_pylist()
    assert sorted(copied) == list(range(number * ROWS))
    history = DeltaTable(target).history()
    assert sorted(int(commit["operationParameters"]["epochId"]) for commit in history) == list(range(len(history)))
    # Two files are a batch.
    assert {int(commit["operationMetrics"]["numOutputRows"]) for commit in history} <= {0, ROWS // 2, ROWS}
