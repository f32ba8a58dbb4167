"""Tables with one extreme value end in an answer or a DeltaError, through every way to them that a user has."""

from __future__ import annotations

import json
from random import Random

import pytest

import forks
import tiers
from fuzz import extremes
from fuzz.extremes import STEERING, cases, drawn, findings, steps
from refdelta import errors
from refdelta.cli import output
from refdelta.core.log import json_text
from refdelta.operations.maintenance import vacuum
from refdelta.operations.shared import row_rules
from refdelta.verifier import row_tracking
from tiers import budget

SEED = str(tiers.seed(1))
DEEP = '{"expression":{"deepest":1}}'
"""The text at which the stack of the stub of a parser ends."""


@pytest.mark.tier("test")
def test_no_extreme_value_ends_in_a_raw_error():
    most = budget(450, fewest=30)
    chosen = Random(SEED).sample(cases(), min(most // 3, len(cases())))
    forks.alone(_find_nothing, drawn(chosen, 3, SEED))


def _find_nothing(work):
    found = list(findings(work))
    assert not found, found  # pytest explains no assertion of another process


def test_every_place_and_every_step_is_drawn():
    assert len({name for name, _ in cases()}) > 70
    assert {name for _, name in drawn(cases(), 3, SEED)} == set(steps())


@pytest.mark.tier("test")
def test_a_child_that_ends_is_a_finding_and_the_search_goes_on(monkeypatch):
    def ending():
        import os

        os._exit(3)

    monkeypatch.setitem(extremes.READS, "repr", ending)
    work = [(("days", 0), "repr"), (("days", 0), "count")]
    ((case, name, text),) = findings(work)
    assert (case, name) == (("days", 0), "repr")
    assert "the process ended" in text


def _parse(text, *, own=json.loads, **options):
    if text[:13] == '{"expression"' and '"deepest"' in text:
        raise RecursionError
    return own(text, **options)


LEFT_OUT = {
    "the depth of invariants": (
        row_rules,
        "read_json",
        _parse,
        ("column invariant in JSON", '{"deepest":1}'),
        "update",
    ),
    "the depth of domains": (row_tracking, "read_json", _parse, ("domain rowTracking", DEEP), "verify"),
    "dates in rows": (
        output,
        "python_rows",
        lambda batch, **_: batch.to_pylist(),
        ("days", 2_932_897),
        "$ read U",
    ),
    "dates in JSON": (
        output,
        "python_rows",
        lambda batch, **_: batch.to_pylist(),
        ("micros", 2**63 - 1),
        "$ read U --json",
    ),
    "the longest retention": (
        vacuum,
        "_MOST_HOURS",
        10**400,
        ("days", 0),
        "$ vacuum U --retention-hours 1e300 --json",
    ),
    "escapes": (errors, "printable", lambda text, **_: text, ("commitInfo operation", STEERING), "$ history U"),
}


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_rule_that_is_left_out_is_found(name, monkeypatch):
    module, attribute, without, case, step = LEFT_OUT[name]
    monkeypatch.setattr(json_text.json, "loads", _parse)
    assert list(findings([(case, step)])) == []
    monkeypatch.setattr(module, attribute, without)
    assert len(list(findings([(case, step)]))) == 1
