"""A stream whose driver is killed, at the moments that matter and at any, and started again: each batch is in the table
once, and what the dead have left is nothing that the table needs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable

pytestmark = pytest.mark.spark

TESTS = Path(__file__).resolve().parent.parent
BATCHES, ROWS, KILLS = 6, 50, 2


class Driver:
    """The program, which is killed whatever becomes of the test."""

    def __init__(self, folder: Path, *moment: str):
        command = [sys.executable, "-m", "spark.killed_stream", str(folder), *moment]
        with (folder / "output").open("ab") as output:
            self.process = subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, stderr=output)
        assert self.process.stdout
        self.java = int(self.process.stdout.readline())

    def kill(self) -> None:
        for pid in (self.java, self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def ended(self) -> bool:
        """Whether it came to its end by itself, and not with an error."""
        return self.process.wait(timeout=300) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stdout
        self.process.stdout.close()


def things(folder: Path) -> int:
    """How much there is of the stream: more at each of its steps."""
    places = ("t", "t/_delta_log", "checkpoint/offsets", "checkpoint/commits")
    return sum(len(list((folder / place).glob("*"))) for place in places)


def leave_at_random(driver: Driver, folder: Path, dice: random.Random) -> None:
    """Kill it between two things that it does, some steps further on."""
    more = things(folder) + dice.randint(1, 12)
    while things(folder) < more and driver.process.poll() is None:
        time.sleep(0.005)
    time.sleep(dice.uniform(0, 0.1))
    driver.kill()


def data_files(table: Path) -> set[str]:
    return {path.name for path in table.glob("*.parquet")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for batch in range(BATCHES):
        ids = pa.array(range(batch * ROWS, (batch + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"id": ids}), tmp_path / "in" / f"{batch:03}.parquet")
    return tmp_path


def test_killed_drivers_lose_nothing_and_write_nothing_twice(folder: Path) -> None:
    dice = random.Random(20261121)
    with Driver(folder, "committed") as driver:
        assert not driver.ended()
    # Spark has tried the task again that was killed: what its first attempt left is gone.
    assert {uri.rsplit("/", 1)[-1] for uri in DeltaTable(folder / "t").file_uris()} == data_files(folder / "t")
    assert DeltaTable(folder / "t").version() == 0
    assert not list((folder / "checkpoint" / "commits").glob("[0-9]*"))
    with Driver(folder, "zombie") as driver:
        assert not driver.ended()
    assert DeltaTable(folder / "t").version() == 0
    assert len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))) == 1
    for _ in range(KILLS):
        with Driver(folder) as driver:
            leave_at_random(driver, folder, dice)
    with Driver(folder) as driver:
        assert driver.ended(), (folder / "output").read_text()[-4000:]

    patience = time.monotonic() + 60
    while not (folder / "zombie").exists() and time.monotonic() < patience:
        time.sleep(0.05)
    assert "ConcurrentTransactionException" in (folder / "zombie").read_text()
    table = DeltaTable(folder / "t")
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(BATCHES * ROWS))
    epochs = [int(entry["operationParameters"]["epochId"]) for entry in table.history()]
    assert epochs == list(reversed(range(BATCHES)))
    held = data_files(folder / "t")
    needed = {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}
    assert needed <= held
    removed = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert data_files(folder / "t") == needed
    assert len(removed) == len(held - needed)
