"""A stream from table to table whose driver is killed at any moment and started again, while the table it reads goes
on: each row arrives once, and of the rows that were there when it began none is missing.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from spark.drivers import Driver

pytestmark = pytest.mark.spark(apart=True)

KILLS, ROWS = 2, 20


def append(uri: Path, number: int) -> None:
    """A commit of two files."""
    ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
    rows = pa.table({"id": ids, "half": [i % 2 for i in range(ROWS)]})
    write_deltalake(uri, rows, mode="append", partition_by="half")


def steps(folder: Path) -> int:
    """The progress of the stream: a number that grows with each of its steps."""
    places = ("to", "to/half=0", "to/half=1", "to/_delta_log", "checkpoint/offsets", "checkpoint/commits")
    return sum(len(list((folder / place).glob("*"))) for place in places)


def batches(folder: Path) -> dict[int, dict[str, object]]:
    """The offset at which each batch ends, as Spark keeps it."""
    found = {}
    for path in (folder / "checkpoint" / "offsets").glob("[0-9]*"):
        found[int(path.name)] = json.loads(path.read_text().splitlines()[-1])
    return found


@pytest.mark.tier("nightly")
def test_killed_drivers_copy_each_row_once(tmp_path: Path) -> None:
    dice = random.Random(7)
    source, target = tmp_path / "from", tmp_path / "to"
    for number in range(3):
        append(source, number)
    number = 3
    seen: dict[int, dict[str, object]] = {}
    for _ in range(KILLS):
        with Driver("copying_stream", tmp_path) as driver:
            driver.kill_after(lambda: steps(tmp_path), 14, dice)
        # A batch that is known is never another one, whatever was committed since.
        now = batches(tmp_path)
        assert seen.items() <= now.items()
        seen = now
        append(source, number)
        DeltaTable(source).optimize.compact()
        append(source, number + 1)
        number += 2
    with Driver("copying_stream", tmp_path) as driver:
        assert driver.ended(), driver.said()
    assert seen.items() <= batches(tmp_path).items()
    begun = seen[0]["begun"]
    assert isinstance(begun, dict)
    assert (begun["version"], begun["snapshot"]) == (2, True)
    copied = DeltaTable(target).to_pyarrow_table().column("id").to_pylist()
    assert sorted(copied) == list(range(number * ROWS))
    history = DeltaTable(target).history()
    assert sorted(int(commit["operationParameters"]["epochId"]) for commit in history) == list(range(len(history)))
    # Two files are a batch.
    assert {int(commit["operationMetrics"]["numOutputRows"]) for commit in history} <= {0, ROWS // 2, ROWS}
