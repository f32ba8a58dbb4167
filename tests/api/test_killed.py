"""Processes that are killed leave a table that reads, with all that they were told is committed; VACUUM removes what
they left, and nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import deltalake
import pytest

import tiers
from api import killed_writers
from api.needed import needs, objects
from kills.campaign import Campaign
from kills.steps import rows
from refdelta import DeltaTable, write_deltalake
from servers.running import Place
from tiers import some

VECTORS = {"delta.enableDeletionVectors": "true"}
PROGRAM = Path(killed_writers.__file__)


def killed(*arguments):
    """Where the program left copies of the table."""
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def content(path):
    return sorted(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def assert_vacuum_leaves_what_is_needed(path):
    """How many leftovers there were."""
    table = DeltaTable(path)
    needed, before, held = set(needs(table, table.version())), objects(path), content(path)
    removed = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert objects(path) == needed
    assert set(removed) == before - needed
    assert content(path) == held
    return len(removed)


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("layout", ["vectors", "partitions"])
def test_kills_at_random_moments(tmp_path, layout):
    path = tmp_path / "t"
    campaign = Campaign(Place(str(path), {}), path, layout, seed=tiers.seed(20261121)).run(10)
    campaign.finish()
    assert campaign.killed.total() == 10
    if layout == "partitions":
        theirs = deltalake.DeltaTable(path).to_pyarrow_table().select(["owner", "id", "value"])
        assert sorted(tuple(row.values()) for row in theirs.to_pylist()) == content(path)
    assert_vacuum_leaves_what_is_needed(path)


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize(
    ("configuration", "operations"),
    [(VECTORS, list(killed_writers.OPERATIONS)), ({}, ["delete", "update", "merge"])],
    ids=["vectors", "files"],
)
def test_kills_at_every_point(tmp_path, configuration, operations):
    base = tmp_path / "base"
    write_deltalake(base, rows(0, range(3000), 1), configuration=configuration)
    table = DeltaTable(base)
    table.delete("id % 5 = 2 and id < 2000")
    write_deltalake(base, rows(1, range(10), 2), mode="append")
    write_deltalake(base, rows(2, range(10), 2), mode="append")
    table.delete("owner = 2")
    before = content(base), table.metadata()
    then = time.time() - 60 * 86_400
    for file in base.glob("_delta_log/*"):
        os.utime(file, (then, then))
    operations = some(operations, check=3, test=6)
    left = killed(tmp_path, *operations)

    assert list(left) == operations
    for name, copies in left.items():
        whole = tmp_path / f"{name}-whole"
        done = content(whole), DeltaTable(whole).metadata()
        assert len(copies) >= 4
        leftovers = 0
        for copy in copies:
            path = tmp_path / copy
            killed_table = DeltaTable(path)
            committed = killed_table.version() > table.version()
            # All of it or nothing, and that is what the log says.
            assert (content(path), killed_table.metadata()) == (done if committed else before), copy
            leftovers += assert_vacuum_leaves_what_is_needed(path)
            if not committed:
                killed_writers.OPERATIONS[name](str(path))
                assert content(path) == done[0], copy
        assert leftovers, name
