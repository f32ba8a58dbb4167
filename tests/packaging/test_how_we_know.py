"""The page on the proof: its sizes are those of the tests, and what it names is there."""

from __future__ import annotations

import re

import pytest

from by_path import generator

how_we_know = generator("how_we_know")


@pytest.mark.tier("test")
def test_its_sizes_are_those_of_the_tests():
    text = how_we_know.DOCUMENT.read_text()
    assert how_we_know.document(text) == text, "run make generate NAME=how-we-know"


@pytest.mark.tier("test")
def test_no_machine_is_without_a_size():
    sizes = dict(how_we_know.sizes())
    assert len(sizes) >= 10
    assert all(re.search(r"[1-9]", size) for size in sizes.values())


def test_each_test_and_target_that_it_names_exists():
    text = how_we_know.DOCUMENT.read_text()
    files = re.findall(r"`(tests/[\w/.]+)`", text)
    assert len(files) >= 10
    assert [file for file in files if not (how_we_know.ROOT / file).exists()] == []
    makefile = (how_we_know.ROOT / "Makefile").read_text()
    assert [name for name in re.findall(r"`make ([\w-]+)`", text) if f"\n{name}: " not in makefile] == []


@pytest.mark.tier("test")
def test_a_page_without_a_place_for_the_sizes_is_refused():
    with pytest.raises(ValueError, match="has 0 places for the sizes"):
        how_we_know.document("x")
