"""A stream whose driver is killed, at the moments that matter and at any, and started again: each batch is in the table
once, and what the dead have left is nothing that the table needs.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable
from spark.drivers import Driver
from spark.files import committed, data_files
from waiting import until

pytestmark = pytest.mark.spark(apart=True)

BATCHES, ROWS, KILLS = 6, 50, 2


def things(folder: Path) -> int:
    """The progress of the stream: a number that grows with each of its steps."""
    places = ("t", "t/_delta_log", "checkpoint/offsets", "checkpoint/commits")
    return sum(len(list((folder / place).glob("*"))) for place in places)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for batch in range(BATCHES):
        ids = pa.array(range(batch * ROWS, (batch + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"id": ids}), tmp_path / "in" / f"{batch:03}.parquet")
    return tmp_path


@pytest.mark.tier("nightly")
def test_killed_drivers_lose_nothing_and_write_nothing_twice(folder: Path) -> None:
    dice = random.Random(20261121)
    with Driver("killed_stream", folder, "committed") as driver:
        assert not driver.ended()
    # Spark has tried the task again that was killed: what its first attempt left is gone.
    assert committed(folder / "t") == data_files(folder / "t")
    assert DeltaTable(folder / "t").version() == 0
    assert not list((folder / "checkpoint" / "commits").glob("[0-9]*"))
    with Driver("killed_stream", folder, "zombie") as driver:
        assert not driver.ended()
    assert DeltaTable(folder / "t").version() == 0
    assert len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))) == 1
    for _ in range(KILLS):
        with Driver("killed_stream", folder) as driver:
            driver.kill_after(lambda: things(folder), 12, dice)
    with Driver("killed_stream", folder) as driver:
        assert driver.ended(), driver.said()

    until((folder / "zombie").exists)
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
