"""Tasks that Spark runs again because their worker was killed after it wrote its files: no row is doubled, no commit
names a missing file, and the files of attempts that do not count are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def told(tmp_path_factory, spark):
    """The result of each statement of the program; none where ``spark`` skips."""
    folder = tmp_path_factory.mktemp("twice")
    command = [sys.executable, "-m", "spark.running_twice", str(folder)]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, stderr=output, text=True)
    assert process.stdout
    java = int(process.stdout.readline())
    try:
        out, _ = process.communicate(timeout=300)
    finally:
        for pid in (java, process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == 0, (folder / "output").read_text()[-4000:]
    found = [json.loads(line) for line in out.splitlines()]
    return {each["statement"]: each for each in found}


WRITTEN = {key: str(key) for key in range(40)}
UPDATED = {key: name if key % 10 else "updated" for key, name in WRITTEN.items()}
MERGED = UPDATED | dict.fromkeys(range(38, 44), "merged")

ROWS = {
    "write": WRITTEN.items(),
    "update": UPDATED.items(),
    "merge": MERGED.items(),
    "compact": MERGED.items(),
    "source": [*MERGED.items(), (0, "0"), (1, "1"), (2, "2")],
}


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("statement", ROWS)
def test_a_task_that_runs_twice_counts_once(told, statement):
    each = told[statement]
    assert sorted(map(tuple, each["rows"])) == sorted(ROWS[statement])
    assert each["missing"] == []
    # The attempt that does not count has written a file, and it is gone.
    assert each["left"] != []
    assert each["unnamed"] == []
