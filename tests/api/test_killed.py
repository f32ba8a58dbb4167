"""Processes that are killed leave a table that reads, with all that they were told is committed; VACUUM removes what
they left, and nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import deltalake
import pytest

from api import killed_writers
from api.needed import needs, objects
from refdelta import DeltaTable, write_deltalake

VECTORS = {"delta.enableDeletionVectors": "true"}
PROGRAM = Path(killed_writers.__file__)


def killed(*arguments):
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def content(path):
    return sorted(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def assert_vacuum_leaves_what_is_needed(path):
    """How many leftovers there were."""
    table = DeltaTable(path)
    needed, before, rows = set(needs(table, table.version())), objects(path), content(path)
    removed = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert objects(path) == needed
    assert set(removed) == before - needed
    assert content(path) == rows
    return len(removed)


@pytest.mark.parametrize("layout", ["vectors", "partitions"])
def test_kills_at_random_moments(tmp_path, layout):
    path = tmp_path / "t"
    options = {"configuration": VECTORS} if layout == "vectors" else {"partition_by": "owner"}
    write_deltalake(path, killed_writers.rows(-1, range(3), 0), **options)
    told = killed("random", path, 20261121, 24)
    assert len(told) == 24

    states = defaultdict(dict)
    for owner, key, value in content(path):
        states[owner][key] = value
    assert states.pop(-1) == dict.fromkeys(range(3), 0)
    assert states.keys() <= {int(owner) for owner in told}
    for owner, steps in told.items():
        state = {}
        for number in range(steps):
            state = killed_writers.after(state, number)
        found = states[int(owner)]
        # The step that was killed is there whole, or not at all.
        assert found in (state, killed_writers.after(state, steps)), f"owner {owner} after {steps} steps"
    assert sum(told.values()) > 0
    table = DeltaTable(path)
    versions = [info["version"] for info in table.history()]
    assert versions == list(range(table.version(), -1, -1))
    if layout == "partitions":
        theirs = deltalake.DeltaTable(path).to_pyarrow_table().select(["owner", "id", "value"])
        assert sorted(tuple(row.values()) for row in theirs.to_pylist()) == content(path)
    assert_vacuum_leaves_what_is_needed(path)
    killed_writers.take(str(path), 99, 0)
    assert DeltaTable(path).count() == sum(map(len, states.values())) + 3 + killed_writers.ROWS


@pytest.mark.parametrize(
    ("configuration", "operations"),
    [(VECTORS, list(killed_writers.OPERATIONS)), ({}, ["delete", "update", "merge"])],
    ids=["vectors", "files"],
)
def test_kills_at_every_point(tmp_path, configuration, operations):
    base = tmp_path / "base"
    write_deltalake(base, killed_writers.rows(0, range(3000), 1), configuration=configuration)
    table = DeltaTable(base)
    table.delete("id % 5 = 2 and id < 2000")
    write_deltalake(base, killed_writers.rows(1, range(10), 2), mode="append")
    write_deltalake(base, killed_writers.rows(2, range(10), 2), mode="append")
    table.delete("owner = 2")
    before = content(base), table.metadata()
    left = killed("points", tmp_path, *operations)

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
