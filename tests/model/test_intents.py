"""Every schedule of a few writers by intents; and that each part of the rules is needed.

Tests of core.commit.intents.
"""

from __future__ import annotations

import pytest

from model.intents import BROKEN_BY, EVERYTHING, SCENARIOS, SWITCHES, Explorer, Violation, random_schedules
from tiers import budget

OUTCOMES = {
    "rows": {"committed", "failed"},
    "again": {"committed", "failed"},
    "cleanup": {"committed", "failed", "unknown"},
    "drop": {"committed", "unknown"},
    "week": {"committed", "failed"},
}


@pytest.mark.sample(test=3)
@pytest.mark.tier("test")
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_schedule_breaks_the_protocol(name):
    """At the sizes of the scenarios, 327,000 worlds in all, in some 30 seconds of CPU."""
    explorer = Explorer(SCENARIOS[name]).run()
    print(f"{name}: {explorer.worlds:,} worlds, which end with {sorted(explorer.results)}")
    assert explorer.results >= OUTCOMES.get(name, {"committed"})
    assert explorer.worlds > 200


@pytest.mark.tier("test")
@pytest.mark.parametrize("switch", SWITCHES)
def test_each_part_of_the_rules_is_needed(switch):
    with pytest.raises(Violation) as found:
        Explorer(SCENARIOS[BROKEN_BY[switch]], frozenset({switch})).run()
    print(f"without {switch!r}, {SWITCHES[switch]}:\n  {found.value}")


@pytest.mark.tier("test")
def test_random_schedules_of_three_writers_and_all_that_may_happen():
    random_schedules(budget(5_000, fewest=500), "intents")


@pytest.mark.tier("test")
def test_random_schedules_find_what_a_rule_is_for():
    """So they reach the places where something may break."""
    with pytest.raises(Violation):
        random_schedules(20_000, "intents", frozenset({"3 named"}))
    assert EVERYTHING.faults
