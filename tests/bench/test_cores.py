"""``bench/cores.py`` does all of its work in small, and its figures follow from Amdahl's law."""

import os
import re
import subprocess
import sys
from pathlib import Path

import cores
import pytest
from cores import Sample

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("share", [0.0, 0.05, 0.26, 1.0])
@pytest.mark.parametrize("count", [2, 16])
def test_the_share_of_work_that_follows_the_law(share, count):
    one = 8.0
    many = one * (share + (1 - share) / count)
    assert cores.serial_share(one, many, count) == pytest.approx(share)
    assert cores.speedup(share, count) == pytest.approx(one / many)


def test_a_speedup_is_never_more_than_the_cores():
    assert cores.speedup(-0.2, 16) == 16
    assert cores.speedup(1.3, 16) == 1


def test_disturbed_samples_do_not_count_unless_all_are():
    quiet, disturbed = [Sample(1.0, 2.0, 0.1), Sample(1.2, 2.0, 0.0)], [Sample(0.9, 1.0, 0.5), Sample(3.0, 2.0, 4.0)]
    assert cores.seconds([*quiet, *disturbed], 2) == (pytest.approx(1.1), True)
    assert cores.seconds(disturbed, 2) == (0.9, False)
    (line,) = cores.lines({"refdelta": {1: [Sample(2.0, 2.0, 0.0)], 2: disturbed}})
    assert line.split() == ["refdelta", "2.000", "0.900", "-10%", "4.0", "16.0", "64.0", "~"]


@pytest.mark.tier("nightly")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_all_work_is_done_in_small(tmp_path):
    command = [sys.executable, "cores.py", "--scale", "0.01", "--files", "3", "--rounds", "1", "--cores", "1,2"]
    done = subprocess.run([*command, "--scratch", tmp_path], cwd=BENCH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\w[\w ]*)\n((?:  \w+ .*\n)+)", done.stdout, re.MULTILINE)
    assert {name: tuple(line.split()[0] for line in lines.splitlines()) for name, lines in found} == {
        name: work.engines for name, work in cores.WORKS.items()
    }
    assert list(tmp_path.iterdir()) == []
