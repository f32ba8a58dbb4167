"""`bench/distributed.py`: the source of its MERGE, and all statements in small."""

import json
import subprocess
import sys
from pathlib import Path

import distributed
import pyarrow as pa
import pytest

import refdelta

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.tier("nightly")
def test_the_source_changes_nine_rows_for_each_new_one(tmp_path):
    rows = distributed.make(tmp_path, 0.01)
    table = refdelta.DeltaTable(tmp_path / "table").to_pyarrow_table(columns=["l_orderkey", "l_linenumber"])
    source = pa.concat_tables(pa.parquet.read_table(file) for file in sorted((tmp_path / "source").glob("*")))
    assert rows == table.num_rows
    assert 0.005 < source.num_rows / rows < 0.015
    known = set(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    chosen = list(zip(*(source[name].to_pylist() for name in table.column_names), strict=True))
    assert len({*chosen}) == len(chosen)
    new = [key for key in chosen if key not in known]
    assert all(order < 0 for order, _ in new)
    assert 0 < len(new) / len(chosen) < 0.3
    assert {*(path.name for path in tmp_path.iterdir())} == {"table", "source"}


def test_the_seconds_of_workers_that_ended_are_not_counted_backwards():
    before = {1: [1.0, 0.0, 2.0, 0.0], 2: [5.0, 1.0, 0.0, 0.0]}
    assert distributed._more(before, {1: [1.5, 0.5, 2.0, 0.0], 3: [2.0, 0.0, 0.0, 0.0]}) == 3.0  # lost
    assert distributed._more(before, {1: [1.0, 0.0, 9.0, 0.0]}) == 1.0  # waited for, after one more second


@pytest.mark.tier("nightly")
@pytest.mark.spark(apart=True)
@pytest.mark.timeout(600)
def test_every_statement_is_measured(tmp_path):
    told = tmp_path / "found.json"
    command = [sys.executable, "distributed.py", "--scale", "0.01", "--memory", "1g", "--scratch", tmp_path / "s"]
    command += ["--file-size", "262144"]
    run = subprocess.run([*command, "--json", told], cwd=BENCH, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(told.read_text())
    assert [one["statement"] for one in found] == ["delete", "merge", "optimize"]
    for one in found:
        assert 0 < one["alone"] < one["seconds"]
        assert all(seconds > 0 for seconds in one["cpu"].values())
        assert one["worker"] > 0
    delete, merge, optimize = (one["metrics"] for one in found)
    assert delete["num_deleted_rows"] > 0
    assert merge["num_target_rows_updated"] > merge["num_target_rows_inserted"] > 0
    assert optimize["numFilesAdded"] > 0
    assert not list((tmp_path / "s").iterdir())
