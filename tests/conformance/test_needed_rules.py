"""The corpus finds a missing rule of conflict: without it, cases are wrong on refdelta that are sound with it."""

from __future__ import annotations

import pytest

from by_path import generator
from refdelta.conformance import cases, engines, run
from refdelta.conformance.runner import NEEDLESS, SOUND
from refdelta.core.conflicts import rules

needed_rules = generator("needed_rules")
FOUND = needed_rules.recorded()
CASES = {case.id: case for case in cases()}


@pytest.mark.tier("test")
def test_no_rule_is_without_a_case_and_the_page_shows_them():
    shown = needed_rules.by_rule(FOUND)
    assert [rule.id for rule in rules.RULES] == list(shown)
    assert all(shown.values())
    assert FOUND.keys() <= CASES.keys()
    text = needed_rules.DOCUMENT.read_text()
    assert text == needed_rules.document(text), "run .ci/generate/needed_rules.py --page"


@pytest.mark.tier("test")
@pytest.mark.sample(test=None)
@pytest.mark.parametrize("rule", [rule.id for rule in rules.RULES])
def test_without_a_rule_a_case_is_wrong(rule):
    case, others = next(iter(needed_rules.by_rule(FOUND)[rule].items()))
    (sound,) = run(engines.find("refdelta"), [CASES[case]])
    assert sound.status in (SOUND, NEEDLESS)
    assert needed_rules.without(CASES[case], *others).failures
    result = needed_rules.without(CASES[case], rule, *others)
    assert (result.status, result.failures) == ("wrong", {})


@pytest.mark.sample(check=4, test=20)
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.id)
def test_a_case_needs_the_rules_that_were_found(case):
    assert needed_rules.needed(case) == FOUND.get(case.id, {}), "run make generate NAME=needed-rules"
