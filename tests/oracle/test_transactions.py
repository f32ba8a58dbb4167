"""The cases of actions of the corpus on delta-spark's optimistic transactions and on refdelta's commit core.

``delta_spark`` of a case is what delta-spark does; refdelta does the same, or a row of
``spec_notes/divergences.md`` says what it does and why. The register is held to what happens both ways.

Tests of conformance.replay.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from refdelta import errors
from refdelta.conformance.cases import ALL_COMMIT, LEVELS, Case, cases
from refdelta.conformance.replay import core_session, play, spark_session

CASES = [case for case in cases() if case.kind == "actions"]
REGISTER = Path(__file__).resolve().parents[2] / "spec_notes" / "divergences.md"
STANCES = {"stricter", "more lenient", "other exception"}


def register() -> dict[str, list[str]]:
    """The rows of the register, by case: what delta-spark does, what refdelta does, the stance and the reason."""
    found = {}
    for line in REGISTER.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 6:
            scenario, levels, *rest = cells
            for level in levels.split(", "):
                case = f"{scenario.strip('`')}@{level}"
                assert case not in found, f"{case} stands in the register twice"
                found[case] = rest
    return found


DIVERGENCES = register()


def failures(outcome: str) -> dict[str, str]:
    """The transactions that fail, each with its exception."""
    return {} if outcome == ALL_COMMIT else dict(pair.split() for pair in outcome.split(", "))


def test_there_are_scenarios_enough_and_each_says_what_happens():
    assert len({case.name for case in CASES}) >= 80
    for case in CASES:
        assert case.level in {*LEVELS, "default"}, case.id
        for error in failures(case.delta_spark).values():
            assert issubclass(getattr(errors, f"{error}Exception"), errors.ConcurrentModificationError), case.id


@pytest.mark.sample(check=60, test=None)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refdelta_does_what_delta_spark_does_or_the_register_says_otherwise(case: Case, tmp_path):
    outcome = play(core_session(case, tmp_path / "t")).text
    if case.id in DIVERGENCES:
        theirs, ours, _, _ = DIVERGENCES[case.id]
        assert (case.delta_spark, outcome) == (theirs, ours)
    else:
        assert outcome == case.delta_spark


def test_the_register_lists_differences_only_and_calls_them_by_their_name():
    assert DIVERGENCES.keys() <= {case.id for case in CASES}
    for case, (theirs, ours, stance, reason) in DIVERGENCES.items():
        assert stance in STANCES, case
        assert theirs != ours, case
        lost, kept = failures(ours).keys() - failures(theirs).keys(), failures(theirs).keys() - failures(ours).keys()
        assert stance == ("stricter" if lost else "more lenient" if kept else "other exception"), case
        assert len(reason) > 20, f"{case}: a reason is a sentence"


@pytest.mark.tier("nightly")
@pytest.mark.spark
def test_delta_spark_does_what_the_scenarios_say(quick_spark, fresh_path):
    # Most of a scenario is waiting for tiny jobs, so a few run at once.
    with ThreadPoolExecutor(4) as pool:
        theirs = list(pool.map(lambda case: play(spark_session(quick_spark, case, fresh_path())), CASES))

    said = {case.id: outcome.text for case, outcome in zip(CASES, theirs, strict=True)}
    assert said == {case.id: case.delta_spark for case in CASES}
    for case, outcome in zip(CASES, theirs, strict=True):
        ours = play(core_session(case, fresh_path()))
        # refdelta reads no file that delta-spark's pruning spares; and where both agree, they leave the same table.
        assert all(ours.read[name] <= read for name, read in outcome.read.items()), case.id
        assert case.id in DIVERGENCES or ours.files == outcome.files, case.id
