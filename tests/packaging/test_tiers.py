"""The tiers: each contains the one before, and is the same on every day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiers

ROOT = Path(__file__).parents[2]

LIST = """
import json, pathlib, sys
import pytest

class Listing:
    def pytest_collection_finish(self, session):
        import tiers

        def names(tier):
            out = tiers.left_out(session.items, tier)
            return sorted(item.nodeid for item in session.items if item not in out)

        lists = {tier: names(tier) for tier in tiers.TIERS}
        lists["whole"] = sorted(item.nodeid for item in session.items)
        pathlib.Path(sys.argv[1]).write_text(json.dumps(lists))

sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[2:]], [Listing()]))
"""

# Those in which the files of STANDS_FOR are, and one without services.
FOLDERS = sorted({str(Path(file).parent) for file in tiers.STANDS_FOR.values() if file} | {"tests/pruning"})


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    file = tmp_path_factory.mktemp("lists") / "lists.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "REFDELTA_"))}
    command = [sys.executable, "-c", LIST, file, *FOLDERS]
    subprocess.run(command, cwd=ROOT, env=env, check=True, timeout=500, capture_output=True)
    return {name: set(found) for name, found in json.loads(file.read_text()).items()}


@pytest.mark.tier("test")
@pytest.mark.xdist_group("lists of tests")
def test_each_tier_contains_the_one_before(lists):
    assert lists["check"] < lists["test"] < lists["whole"]


@pytest.mark.tier("test")
@pytest.mark.xdist_group("lists of tests")
def test_each_service_is_in_the_gate_by_one_file(lists):
    files = {name.partition("::")[0] for name in lists["test"]}
    assert {file for file in tiers.STANDS_FOR.values() if file} <= files
    assert "tests/oracle/test_dml.py" not in files


@pytest.mark.tier("test")
@pytest.mark.xdist_group("lists of tests")
def test_no_test_by_spark_or_on_a_server_is_among_the_first(lists):
    apart = ("tests/oracle/test_dml", "tests/storage/test_gcs.py::TestATable")
    assert not [name for name in lists["check"] if name.startswith(apart)]


def kept(tier, **asked):
    """The number of the twelve cases of a test with this mark ``sample`` that a tier runs."""

    class Item:
        def __init__(self, case):
            self.nodeid = f"tests/test_it.py::test_it[{case}]"

        def iter_markers(self, name):
            return [pytest.mark.sample(**asked).mark] if name == "sample" and asked else []

    items = [Item(case) for case in range(12)]
    return 12 - len(tiers.left_out(items, tier))


@pytest.mark.parametrize(
    ("asked", "check", "test"),
    [
        ({}, 4, 8),
        ({"check": 1}, 1, 8),
        ({"check": 10}, 10, 10),
        ({"test": 2}, 2, 2),
        ({"check": 3, "test": None}, 3, 12),
        ({"test": None}, 4, 12),
        ({"check": None}, 12, 12),
    ],
    ids=str,
)
def test_cases_of_a_test_are_as_many_as_it_says(asked, check, test):
    assert (kept("check", **asked), kept("test", **asked)) == (check, test)


@pytest.mark.parametrize(("tier", "wanted"), [("check", 40), ("test", 100), (None, 1000)])
def test_budgets_grow_with_the_tier(monkeypatch, tier, wanted):
    monkeypatch.setattr(tiers, "_chosen", tier)
    assert tiers.budget(1000) == wanted
    assert tiers.budget(3) == 3
