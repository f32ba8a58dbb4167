"""`bench/on_spark.py`, in small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
WRITERS = {"bare Parquet", "refdelta", "delta-spark"}
READERS = WRITERS | {"refdelta, by the format"}


@pytest.mark.tier("nightly")
@pytest.mark.spark(apart=True)
def test_every_engine_runs_each_round_of_everything(tmp_path):
    told = tmp_path / "found.json"
    command = [sys.executable, BENCH / "on_spark.py", "--scale", "0.01", "--rounds", "1", "--json", told]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(told.read_text())
    assert len(found) == 9
    for label, engines in found.items():
        assert label in run.stdout
        if "DELETE" not in label and "MERGE" not in label:
            assert set(engines) == (WRITERS if label == "write" else READERS)
        assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in engines.values())
