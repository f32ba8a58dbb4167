"""Histories for Elle: their form is that of its documentation, and registers explain what they say.

Elle itself is not run here. Its rw-register workload asks for a history of maps with ``:index``, ``:type``,
``:process``, ``:f :txn`` and ``:value``, a vector of ``[:r key value]`` and ``[:w key value]``; reads of an invocation
are nil; no value is written twice to a key; every key is nil at first.

Tests of conformance.elle.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import permutations

import pytest

from conformance.test_runner import Careless
from refdelta.conformance import engines, run
from refdelta.conformance.elle import REGISTERS, draw_registers, exported
from refdelta.conformance.runner import REFUSED, WRONG

LINE = re.compile(r"\{:index (\d+), :time (\d+), :type :(invoke|ok|fail), :process (\d+), :f :txn, :value \[(.*)\]\}")
PART = re.compile(r"\[:(r|w) (\d+) (nil|\d+)\]")


def operations(text: str) -> list[tuple[str, int, list[tuple[str, int, int | None]]]]:
    """Type, process and value of each operation of a file."""
    found = []
    for number, line in enumerate(text.splitlines()):
        matched = LINE.fullmatch(line)
        assert matched, line
        assert int(matched[1]) == int(matched[2]) == number
        assert " ".join(part[0] for part in PART.finditer(matched[5])) == matched[5]
        value = [(f, int(key), None if v == "nil" else int(v)) for f, key, v in PART.findall(matched[5])]
        found.append((matched[3], int(matched[4]), value))
    return found


def explained(transactions: list[list[tuple[str, int, int | None]]]) -> bool:
    """Whether some order of the transactions explains what they read."""

    def serial(order) -> bool:
        state: dict[int, int | None] = {}
        for transaction in order:
            for f, key, value in transaction:
                if f == "r" and state.get(key) != value:
                    return False
                if f == "w":
                    state[key] = value
        return True

    return any(map(serial, permutations(transactions)))


def committed(text: str) -> dict[int, list[list[tuple[str, int, int | None]]]]:
    """The transactions that committed, by case."""
    found = defaultdict(list)
    for kind, _, value in operations(text):
        if kind == "ok":
            found[value[0][1] // REGISTERS].append(value)
    return found


@pytest.mark.tier("test")
def test_the_form_is_that_of_elles_documentation():
    made = exported(run(engines.find("refdelta"), draw_registers(range(6))))
    assert (made.cases, made.left_out) == (6, 0)
    begun, written = {}, []
    for kind, process, value in operations(made.text):
        if kind == "invoke":
            assert process not in begun
            begun[process] = value
            assert all(seen is None for f, _, seen in value if f == "r")
            written += [(key, one) for f, key, one in value if f == "w"]
        else:
            assert [part[:2] for part in begun.pop(process)] == [part[:2] for part in value]
            assert kind == "fail" or all(seen is not None for _, _, seen in value)
    assert begun == {}
    assert len({*written}) == len(written)


@pytest.mark.tier("test")
def test_an_order_explains_the_histories_of_refdelta():
    made = exported(run(engines.find("refdelta"), draw_registers(range(6))))
    assert all(explained(transactions) for transactions in committed(made.text).values())


@pytest.mark.tier("test")
def test_an_engine_that_checks_nothing_leaves_histories_without_an_order():
    results = run(Careless(), draw_registers(range(60)))
    unexplained = {case for case, some in committed(exported(results).text).items() if not explained(some)}
    assert len(unexplained) > 5
    assert all(results[case].status == WRONG for case in unexplained)


@pytest.mark.tier("test")
def test_what_does_not_fit_is_left_out_and_counted():
    results = run(Careless("modest"), draw_registers(range(3)))
    assert {result.status for result in results} == {REFUSED}
    made = exported(results)
    assert (made.text, made.cases, made.left_out) == ("", 0, 3)
    some = exported(run(Careless(), draw_registers(range(60))))
    assert some.cases + some.left_out == 60
    assert 0 < some.left_out < 30  # a register that two writers have changed has two values
