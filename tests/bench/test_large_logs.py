"""``bench/large_logs.py`` does what it says, on a log that is not large."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.tier("nightly")
def test_each_verb_is_told_with_what_it_found(tmp_path):
    verbs = ["scan_by_statistics", "changes"]
    asked = [part for verb in verbs for part in ("--only", verb)]
    command = [sys.executable, "large_logs.py", "--files", "2500", "--scratch", str(tmp_path), *asked]
    done = subprocess.run(command, cwd=BENCH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kinds = re.split(r"^(checkpoint|v2 checkpoint|commits)\n", done.stdout, flags=re.MULTILINE)[1:]
    told = {
        kind: dict(re.findall(r"^  (\w+) +[\d.]+ +[\d.]+ +\d+  (.*)$", lines, re.MULTILINE))
        for kind, lines in zip(kinds[::2], kinds[1::2], strict=True)
    }
    assert told["checkpoint"] == {"scan_by_statistics": "1"}
    assert told["commits"] == {"changes": "0"}
    assert list(tmp_path.iterdir()) == []
