"""No regular expression of the package takes more than linear time, whatever text it is given."""

from __future__ import annotations

import re

import pytest

from security.patterns import Used, growth, patterns

# Expressions that are put together when they are used, and why their texts do not matter.
RUN_TIME = {
    "refdelta/catalog/own_files.py": "segments of a key, each of which is a fixed text or has no slash",
    "refdelta/cli/app.py": "names of options, in messages of click",
    "refdelta/cli/text_files.py": "fields of CSV, of whose alternatives one can match, with possessive repetitions",
    "refdelta/compat/deltalake/statement_context.py": "words of our own, in a message of ours",
    "refdelta/expressions/library/times.py": "a pattern of fields, each of which has a bounded number of digits",
    "refdelta/expressions/like.py": "a piece of LIKE: characters, each of which matches one character",
    "refdelta/expressions/interval_text.py": "fields of a bounded number of digits",
    "refdelta/expressions/sql_dialect.py": "an escape: one alternative matches at each place",
    "refdelta/engine/parquet/metadata.py": "bytes of a footer, each field of bounded length",
    "refdelta/spark/failures.py": "words of our own, in a message of Spark",
    "storage/refdelta_storage/testing.py": "given by the test of a store, over names that it has made",
}


@pytest.fixture(scope="module")
def found():
    """The expressions of the package, and the places of those that are put together."""
    return patterns()


@pytest.mark.tier("test")
def test_expressions_that_are_made_at_run_time_are_known(found):
    used, made = found
    assert {one.split(" ")[0] for one in made} == RUN_TIME.keys()
    assert len(used) > 70


# It measures, so a busy machine makes it fail.
@pytest.mark.tier("nightly")
def test_the_time_of_a_match_grows_with_the_text_alone(found):
    grown = {f"{one.place}-{one.method}": growth(one) for one in found[0]}
    assert {place: said for place, said in grown.items() if said} == {}


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
