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


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(a+)+b", "match"),
        (r"\s*\w*\s*\w*:", "match"),
        (r"a*$", "search"),
    ],
)
def test_expressions_that_backtrack_are_found(pattern, method):
    assert growth(Used("here", re.compile(pattern), method)) is not None
