"""The page of casts says what refdelta, deltalake and delta-spark do."""

from __future__ import annotations

from itertools import islice

import pytest

import tiers
from by_path import generator

casts_page = generator("casts_page")
PAIRS = list(casts_page.pairs())


def of_the_page():
    """The signs of the page's matrices, by library."""
    found = {}
    for part in casts_page.PAGE.read_text().split("\n### ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
        found[part.split()[0]] = {
            f"{row[0]} > {target}": sign for row in rows for target, sign in zip(head[1:], row[1:], strict=True) if sign
        }
    return found


@pytest.mark.tier("test")
def test_the_page_is_that_of_the_answers():
    found = of_the_page()
    text = casts_page.PAGE.read_text()
    assert casts_page.page(text, found) == text, "run make generate NAME=casts"
    assert found["delta-spark"] == casts_page.recorded()
    assert found["delta-spark"].keys() == set(map(" > ".join, casts_page.pairs(unsigned=False)))
    assert found["refdelta"].keys() == found["deltalake"].keys() == {f"{one} > {other}" for one, other in PAIRS}


def test_refdelta_answers_so():
    which = PAIRS if tiers.chosen() != "check" else PAIRS[::7]
    page = of_the_page()["refdelta"]
    assert casts_page.asked(casts_page.by_fitting, which) == {key: page[key] for key in map(" > ".join, which)}


@pytest.mark.tier("test")
def test_refdelta_and_deltalake_answer_so_in_tables(tmp_path):
    which = PAIRS[::19] if tiers.chosen() in ("check", "test") else PAIRS
    page = of_the_page()
    stores = {"refdelta": casts_page.in_refdelta, "deltalake": casts_page.in_deltalake(tmp_path)}
    for name, store in stores.items():
        assert casts_page.asked(store, which) == {key: page[name][key] for key in map(" > ".join, which)}


@pytest.mark.tier("nightly")
@pytest.mark.spark
def test_delta_spark_answers_so(spark, fresh_path):
    recorded = casts_page.recorded()
    which = list(islice(casts_page.pairs(unsigned=False), 0, None, 37 if tiers.chosen() else 1))
    found = casts_page.asked(casts_page.in_spark(spark, fresh_path()), which)
    assert found == {key: recorded[key] for key in map(" > ".join, which)}
