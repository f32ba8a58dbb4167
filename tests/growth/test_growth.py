"""Inputs that grow, in small; ``make search NAME=growth`` is the long search."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading

import pytest

import growth.__main__ as search
from growth import tables
from refdelta import DeltaTable
from refdelta.errors import DeltaError
from tiers import budget


def quadratic(size):
    return {"parts": (size / 4_096) ** 2}


@pytest.mark.parametrize(
    ("costs", "found"),
    [
        (lambda size: {"parts": size / 10_000}, None),
        (lambda size: {"parts": size / 10_000, "others": 0.001}, None),
        (quadratic, "parts: 1,024 characters 0.062 s, 4,096 characters 1.000 s"),
        # What is quick is no finding, however it grows.
        (lambda size: {"parts": (size / 1_000_000) ** 2}, None),
    ],
)
def test_what_grows_faster_than_its_length_is_found(costs, found):
    assert search.judged(costs, 65_536) == found


def test_a_slow_look_is_taken_again():
    times = iter([0.001, 5.0, 0.02, 0.005])
    assert search.judged(lambda _: {"parts": next(times)}, 4_096) is None


@pytest.mark.tier("nightly")
def test_a_shape_that_ends_its_process_is_found_and_the_next_ones_are_judged(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, growth.victims as victims\n"
        "def text(sql, text=victims.text, seen=[]):\n"
        "    if len(sql) < 2048: seen.append(sql)\n"  # not the plain one, which is measured first
        "    if len(seen) == 2: os._exit(9)\n"
        "    return {}\n"
        "victims.text = text\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{search.TESTS}")
    found = search.run(["--texts", "3", "--commits", "0", "--tables", "0", "--longest", "1024"])
    (one,) = found  # the second shape; the third one is the first of the next child
    assert one.startswith("text 1: ")
    assert "ended the process (9)" in one


@pytest.mark.tier("nightly")
@pytest.mark.timeout(600)
def test_texts_cost_what_they_are_long():
    assert not search.run(["--texts", str(budget(30)), "--commits", "0", "--tables", "0"])


@pytest.mark.tier("nightly")
@pytest.mark.timeout(600)
def test_commits_cost_what_they_are_long():
    assert not search.run(["--texts", "0", "--commits", str(budget(120)), "--tables", "0", "--longest", "16384"])


@pytest.mark.tier("nightly")
@pytest.mark.timeout(600)
def test_tables_cost_what_they_hold():
    assert not search.run(["--texts", "0", "--commits", "0", "--tables", str(budget(60)), "--longest", "16384"])


def calls(act, table):
    """The number of calls of functions, also of C, that a statement makes."""
    made = itertools.count()

    def noted(_frame, event, _arg):
        if event in {"call", "c_call"}:
            next(made)

    threading.setprofile(noted)
    sys.setprofile(noted)
    try:
        act(DeltaTable(table))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return next(made)


@pytest.mark.tier("test")
@pytest.mark.sample(check=8)
@pytest.mark.parametrize("verb", sorted(tables.VERBS))
@pytest.mark.parametrize("what", ["columns of strings", "fields of a struct", "partition columns", "tags"])
def test_the_calls_of_a_statement_grow_with_what_a_table_has(tmp_path, what, verb):
    found = []
    for number, many in enumerate((50, 100, 200)):  # the first one is warming up
        folder = tmp_path / str(number)
        tables.TABLES[what](folder, many)
        with contextlib.suppress(DeltaError):
            found.append(calls(tables.VERBS[verb], folder))
    # A statement that searches for each makes two and a half to four times as many for twice as much. Some are refused.
    if len(found) == 3:
        assert found[2] <= 2.3 * found[1] + 1_000
