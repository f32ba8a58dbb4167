"""Rules of the Parquet reader: without one of them, a search over seeds finds a file that breaks a promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from fuzz.left_out import RULES

TESTS = Path(__file__).parents[1]
PINS = dict(line.split("==") for line in (TESTS.parent / "constraints.txt").read_text().split())
FOUND_BY = {
    "numbers of 32 bits": ("page-headers", "5 27 40"),
    "kinds of lists": ("footers", "733 922"),
    "pages and dictionaries": ("pages", "82 212 280"),
}


def _search(rule: str, target: str, seeds: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuzz.left_out", rule, target, *seeds.split()]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.tier("test")
@pytest.mark.skipif(pa.__version__ != PINS["pyarrow"], reason="the seeds change files that the pinned pyarrow writes")
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "none"])
def test_a_rule_that_is_left_out_is_found(rule):
    done = _search(rule, *FOUND_BY[rule])
    assert done.returncode == 3, done.stdout + done.stderr


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("target", ["page-headers", "footers", "pages"])
def test_with_all_rules_these_seeds_find_nothing(target):
    seeds = " ".join(seeds for of, seeds in FOUND_BY.values() if of == target)
    done = _search("none", target, seeds)
    assert done.returncode == 0, done.stdout + done.stderr
