"""Hostile commits and texts take no more than they are worth: each ends in 3 GiB and 12 s, one answer or error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from security.hostile import CASES

TESTS = Path(__file__).parents[1]
EXPECTED = {
    "places of 2 to the 62 rows": "ConcurrentDeleteReadException",
    "places of 2 to the 65 rows": "ConcurrentDeleteReadException",
    "numRecords of 2 to the 62": "ConcurrentAppendException",
    "recorded predicate of nullif in nullif": "ConcurrentAppendException",
    "recorded predicate of int in int": "ConcurrentAppendException",
    "recorded predicate of many alternatives": "ConcurrentAppendException",
    "a megabyte of recorded predicates": "ConcurrentAppendException",
    "nullif in nullif": "PredicateError",
    "between in between": "PredicateError",
    "case in case": "PredicateError",
    "arrays in arrays": "PredicateError",
    "a constraint of nullif in nullif": "UnsupportedFeatureError",
    "replace in replace": "ExpressionError: replace would make 3,417,187,540 bytes of text for 10 rows",
    "replace in replace of constants": "ExpressionError: replace would make 1,708,593,790 bytes of text for 10 rows",
    "replace in replace for every row": "ExpressionError: replace would make 3,417,187,540 bytes of text for 10 rows",
    "concat of concat": "told: 0",
    "a long constant for many rows": "ExpressionError: a constant would make 58,982,662,144 bytes of text",
    "a pattern of a thousand fields": "PredicateError",
    "a long partition value": "told: 2147",
    "times and parameters that none has": "told: ['0 ",
    "a domain of brackets": "told: True",
    "a login with a slash": "told: refused",
    "output through a link": "told: untouched",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    command = [sys.executable, "-m", "security.hostile", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=TESTS)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", CASES)
def test_each_ends_in_an_answer_or_one_error(outcomes, name):
    assert outcomes[name].startswith(EXPECTED[name]), outcomes[name]
