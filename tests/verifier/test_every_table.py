"""The hook that verifies what tests leave: a table that is not sound fails its test, unless that is marked."""

from __future__ import annotations

import pytest

import tiers

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from refdelta import write_deltalake
import pyarrow as pa

ROWS = pa.table({"id": [1, 2]})


def leave(folder):
    for _ in range(3):
        write_deltalake(folder / "deep" / "t", ROWS, mode="append")
    return folder / "deep" / "t" / "_delta_log" / f"{1:020d}.json"


def test_sound(tmp_path):
    leave(tmp_path)


def test_broken(tmp_path):
    leave(tmp_path).unlink()


@pytest.mark.breaks_tables
def test_marked(tmp_path):
    leave(tmp_path).unlink()
"""


@pytest.mark.tier("test")
def test_a_table_that_is_not_sound_fails_its_test(pytester, monkeypatch):
    monkeypatch.setattr(tiers, "_chosen", None)
    pytester.makeini("[pytest]\nmarkers = breaks_tables")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "verifier.every_table", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*t: error: log-2: version 1:*"])
