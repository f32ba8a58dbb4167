"""The tiers: each contains the one before, and what ``all`` draws by the day comes to its turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiers

ROOT = Path(__file__).parents[2]

# The days after which everything that is drawn by the day has had its turn.
DAYS = 9

LIST = f"""
import json, os, pathlib, sys
import pytest

class Listing:
    def pytest_collection_finish(self, session):
        import tiers

        def names(tier):
            out = tiers.left_out(session.items, tier)
            return sorted(item.nodeid for item in session.items if item not in out)

        lists = {{tier: names(tier) for tier in ("check", "test")}}
        for day in range(1, {DAYS} + 1):
            os.environ["REFDELTA_DAY"] = f"2026-11-{{day:02}}"
            lists[str(day)] = names("all")
        drawn = [item for item in session.items if tiers.sample_of(item, "all").get("daily")]
        lists["drawn by the day"] = sorted(item.nodeid for item in drawn)
        lists["whole"] = sorted(item.nodeid for item in session.items)
        pathlib.Path(sys.argv[1]).write_text(json.dumps(lists))

sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests"], [Listing()]))
"""


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    file = tmp_path_factory.mktemp("lists") / "lists.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "REFDELTA_"))}
    subprocess.run([sys.executable, "-c", LIST, file], cwd=ROOT, env=env, check=True, timeout=120, capture_output=True)
    return {name: set(found) for name, found in json.loads(file.read_text()).items()}


@pytest.mark.tier("test")
@pytest.mark.xdist_group("lists of tests")
def test_each_tier_contains_the_one_before(lists):
    assert lists["check"] < lists["test"] < lists["whole"]
    assert all(lists["test"] - lists[str(day)] <= lists["drawn by the day"] for day in range(1, DAYS + 1))


@pytest.mark.tier("test")
@pytest.mark.xdist_group("lists of tests")
def test_every_test_is_run_within_some_days(lists):
    assert set().union(*(lists[str(day)] for day in range(1, DAYS + 1))) == lists["whole"]


@pytest.mark.tier("test")
@pytest.mark.xdist_group("lists of tests")
def test_no_test_by_spark_or_on_a_server_is_among_the_first(lists):
    apart = ("tests/faults/test_bad_network", "tests/oracle/test_dml", "tests/kills/test_kills")
    assert not [name for name in lists["check"] if name.startswith(apart)]


def test_random_tests_try_all_their_examples_every_third_day(monkeypatch):
    names = [f"module_{number}" for number in range(30)]
    whole = []
    for day in range(1, tiers.WHOLE_EVERY + 1):
        monkeypatch.setenv("REFDELTA_DAY", f"2026-11-{day:02}")
        whole.append({name for name in names if tiers.whole_today(name)})
    assert sum(map(len, whole)) == len(set().union(*whole)) == len(names)


@pytest.mark.parametrize(("tier", "wanted"), [("check", 40), ("test", 150), ("all", 400), (None, 1000)])
def test_budgets_grow_with_the_tier(monkeypatch, tier, wanted):
    monkeypatch.setattr(tiers, "_chosen", tier or "all")
    monkeypatch.setattr(tiers, "_by_turns", tier == "all")
    monkeypatch.setattr(tiers, "whole_today", lambda module: module != __name__)
    assert tiers.budget(1000) == wanted
    assert tiers.budget(3) == 3
