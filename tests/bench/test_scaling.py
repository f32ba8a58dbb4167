"""``bench/scaling.py`` does all of its work in small, and its slopes are those of a log-log plot."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import scaling

BENCH = Path(__file__).parents[2] / "bench"


def test_the_slope_is_that_of_the_last_decade():
    assert scaling.slope({1_000: 1.0, 10_000: 1.0, 100_000: 10.0}) == pytest.approx(1)
    assert scaling.slope({1_000: 5.0, 10_000: 20.0}) == pytest.approx(0.602, abs=0.001)
    assert scaling.slope({1_000: 5.0}) is None
    assert scaling.slope({1_000: 0.0, 10_000: 2.0}) is None


def test_the_table_and_the_plot_say_how_steep_each_work_is():
    found = scaling.works()[:2]
    for times, one in enumerate(found, 1):
        one.seconds = {1_000: 1.0, 10_000: 10.0**times}
        one.megabytes = {1_000: 2.0, 10_000: 2.0}
    assert scaling.lines(found)[2:] == [
        "| opening | 1, 10 | 1.00 | 2, 2 | 0.00 |",
        "| scan by partition | 1, 100 | 2.00 | 2, 2 | 0.00 |",
    ]
    assert "scan by partition, with a slope of 2.00" in scaling.charts.titled(scaling.figure(found))


@pytest.mark.tier("nightly")
def test_all_work_is_done_in_small(tmp_path):
    plot = tmp_path / "plot.svg"
    command = [sys.executable, "scaling.py", "--most", "1000", "--rounds", "1", "--plot", plot, "--scratch", tmp_path]
    done = subprocess.run(command, cwd=BENCH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\| (\w.*?) \| [0-9.e-]+ \| - \| \d+ \| - \|$", done.stdout, re.MULTILINE) == [
        one.name for one in scaling.works()
    ]
    assert plot.read_text().startswith("<?xml")
    assert list(tmp_path.iterdir()) == [plot]
