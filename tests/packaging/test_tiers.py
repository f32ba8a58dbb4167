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

        lists = {tier: names(tier) for tier in ("check", "test", "all")}
        lists["whole"] = sorted(item.nodeid for item in session.items)
        pathlib.Path(sys.argv[1]).write_text(json.dumps(lists))

sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests"], [Listing()]))
"""


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    file = tmp_path_factory.mktemp("lists") / "lists.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "REFDELTA_"))}
    subprocess.run([sys.executable, "-c", LIST, file], cwd=ROOT, env=env, check=True, timeout=500, capture_output=True)
    return {name: set(found) for name, found in json.loads(file.read_text()).items()}


@pytest.mark.tier("test")
@pytest.mark.xdist_group("lists of tests")
def test_each_tier_contains_the_one_before(lists):
    assert lists["check"] < lists["test"] < lists["all"] < lists["whole"]


@pytest.mark.tier("test")
@pytest.mark.xdist_group("lists of tests")
def test_no_test_by_spark_or_on_a_server_is_among_the_first(lists):
    apart = ("tests/faults/test_bad_network", "tests/oracle/test_dml", "tests/kills/test_kills")
    assert not [name for name in lists["check"] if name.startswith(apart)]


@pytest.mark.parametrize(("tier", "wanted"), [("check", 40), ("test", 150), ("all", 150), (None, 1000)])
def test_budgets_grow_with_the_tier(monkeypatch, tier, wanted):
    monkeypatch.setattr(tiers, "_chosen", tier)
    assert tiers.budget(1000) == wanted
    assert tiers.budget(3) == 3
