"""No regular expression of the package takes more than linear time, whatever text it is given."""

from __future__ import annotations

import re

import pytest

from security.patterns import Used, growth, patterns

FOUND, MADE = patterns()

# Expressions that are put together when they are used, and why their texts do not matter.
RUN_TIME = {
    "refdelta/catalog/own_files.py": "segments of a key, each of which is a fixed text or has no slash",
    "refdelta/cli/group.py": "names of options, in messages of click",
    "refdelta/compat/deltalake/statement_context.py": "words of our own, in a message of ours",
    "refdelta/expressions/library/times.py": "a pattern of fields, each of which has a bounded number of digits",
    "refdelta/expressions/like.py": "a piece of LIKE: characters, each of which matches one character",
    "refdelta/expressions/interval_text.py": "fields of a bounded number of digits",
    "refdelta/expressions/sql_dialect.py": "an escape: one alternative matches at each place",
    "refdelta/engine/parquet/metadata.py": "bytes of a footer, each field of bounded length",
    "refdelta/spark/failures.py": "words of our own, in a message of Spark",
}


def test_expressions_that_are_made_at_run_time_are_known():
    assert {one.split(" ")[0] for one in MADE} == RUN_TIME.keys()
    assert len(FOUND) > 70


@pytest.mark.sample(check=10, test=40)
@pytest.mark.parametrize("used", FOUND, ids=lambda one: f"{one.place}-{one.method}")
def test_the_time_of_a_match_grows_with_the_text_alone(used):
    assert growth(used) is None


GROWN = {
    "linear": (lambda length: length * 1e-5, None),
    "quadratic": (lambda length: length**2 * 1e-8, "characters"),
    "exponential": (lambda length: 2.0**length * 1e-7 if length < 100 else 1.0, "exponential"),
}


@pytest.mark.parametrize("name", GROWN)
@pytest.mark.parametrize("method", ["match", "search"])
def test_times_that_grow_faster_than_the_text_are_found(name, method):
    """The times are those of a stub: nothing is matched."""
    seconds, said = GROWN[name]
    found = growth(Used("here", re.compile("a+b"), method), lambda run, text, times: seconds(len(text)))
    assert (found is None) == (said is None)
    assert said is None or said in found
