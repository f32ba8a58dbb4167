"""All histories of a few operations, at both levels, partitioned and not: through the real engine, and, where they are
too many for that, through its conflict rules and commit loop alone.

Nothing is accepted that the judge rejects, every version holds the rows that the judge says it holds, and each commit
says over which versions it was rebased: :class:`model.branches.Branches` raises at the first that is wrong.

``REFDELTA_HISTORIES=all`` takes every variant of the operations through the real engine.
"""

from __future__ import annotations

import os
from itertools import product

import pytest

from model.branches import Refusal, Version, Wrong
from model.cases import ALL, BASIC, CYCLE, MORE
from model.core import Core
from model.engine import Engine
from model.exhaustive import explore, shapes
from model.judge import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE
from refdelta.concurrency import commit, conflict
from refdelta.staging import Staging

OF_THREE = ALL if os.environ.get("REFDELTA_HISTORIES") == "all" else BASIC

TABLES = pytest.mark.parametrize("partitioned", [False, True], ids=["unpartitioned", "partitioned"])


@pytest.fixture
def say(capsys, request):
    def write(*lines):
        with capsys.disabled():
            print(f"\n{request.node.name}:", *lines, sep="\n  ")

    return write


def test_interleavings_are_counted_whole():
    assert (sum(shapes(2).values()), len(shapes(2))) == (6, 4)
    assert (sum(shapes(3).values()), len(shapes(3))) == (90, 36)


def all_of(table, cases, count, say):
    tally = explore(table, cases, count)
    say(f"{count} of {len(cases)} operations: {tally}", f"{table.statements:,} statements, {table.commits:,} commits")
    assert tally["histories"] == sum(shapes(count).values()) * len(cases) ** count
    assert 0 < tally["in which all commit"] < tally["histories"]


@TABLES
@pytest.mark.parametrize("level", LEVELS)
def test_pairs_and_triples_through_the_engine(level, partitioned, say):
    engine = Engine(level, partitioned=partitioned)
    all_of(engine, MORE, 2, say)
    all_of(engine, OF_THREE, 3, say)


@TABLES
@pytest.mark.parametrize("level", LEVELS)
def test_triples_through_the_rules(level, partitioned, say):
    all_of(Core(level, partitioned=partitioned), ALL, 3, say)


@TABLES
@pytest.mark.parametrize("level", LEVELS)
def test_four_operations_through_the_rules(level, partitioned, say):
    all_of(Core(level, partitioned=partitioned), CYCLE, 4, say)


@TABLES
@pytest.mark.parametrize("level", LEVELS)
def test_the_rules_alone_decide_as_in_the_engine(level, partitioned):
    """The files that ``Core`` makes up lead to the same outcomes as those that the engine writes."""

    def outcomes(table):
        for first, second in product(MORE, repeat=2):
            winner = table.commit(table.root, table.begin(table.root, first))
            outcome = table.commit(winner, table.begin(table.root, second, copy=int(first is second)))
            yield first.name, second.name, outcome.rule if isinstance(outcome, Refusal) else "committed"

    rules, engine = (outcomes(kind(level, partitioned=partitioned)) for kind in (Core, Engine))
    assert not [pair for pair in zip(rules, engine, strict=True) if pair[0] != pair[1]]


def test_the_longer_cycle_is_broken_at_its_last_link():
    engine = Engine(WRITE_SERIALIZABLE, partitioned=True)
    i, y, z, t = CYCLE[:4]
    first = engine.commit(engine.root, engine.begin(engine.root, i))
    second = engine.commit(first, engine.begin(first, y))
    third = engine.commit(second, engine.begin(engine.root, z))
    assert isinstance(third, Version)
    refused = engine.commit(third, engine.begin(engine.root, t))
    assert isinstance(refused, Refusal)
    assert refused.rule == "append-skipped"


def test_what_asked_to_be_serializable_is_not_moved():
    """The copy skips the insert and so comes before it; the update, which did not see the copy, before both."""
    engine = Engine(WRITE_SERIALIZABLE, partitioned=True)
    wanted = ("insert a=1", "update a=0 to 3", "copy a=1 as 0")
    inserts, updates, copies = (next(case for case in MORE if case.name == name) for name in wanted)
    for strict in (False, True):
        first = engine.commit(engine.root, engine.begin(engine.root, inserts))
        second = engine.commit(first, engine.begin(engine.root, updates, strict=strict))
        assert isinstance(second, Version)
        third = engine.commit(second, engine.begin(engine.root, copies))
        assert isinstance(third, Refusal) is strict


# --- the histories would show it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("metadata", "no serial order explains it: V1 set property"),
        ("application", "no serial order explains it: V1 insert once"),
        ("files-added", "no serial order explains it: V1 copy"),
        ("read-file-removed", "no serial order explains it: V1 delete"),
        ("deleted-by-both", "the rows are .* they should be"),
        ("append-skipped", "WriteSerializable, accepted though no serial order explains it: V1 insert"),
    ],
)
def test_without_a_rule_a_history_is_wrong(monkeypatch, missing, what):
    rules = tuple(rule for rule in conflict.RULES if rule.id != missing)
    assert len(rules) == len(conflict.RULES) - 1
    check = conflict.check
    monkeypatch.setattr(commit, "check", lambda ours, winner: check(ours, winner, rules))
    # By the rows of a partition nothing that a transaction skips is rewritten by chance.
    table = Core(WRITE_SERIALIZABLE, partitioned=True)

    def pairs_and_triples():
        for count, cases in ((2, ALL), (3, BASIC)):
            explore(table, cases, count)

    with pytest.raises(Wrong, match=what):
        pairs_and_triples()


@pytest.mark.parametrize("verbs", [["read_predicate"], ["read_files"], ["read_predicate", "read_files"]])
def test_a_read_that_goes_unrecorded_makes_a_history_wrong(monkeypatch, verbs):
    for verb in verbs:
        monkeypatch.setattr(Staging, verb, lambda *_: None)
    engine = Engine(SERIALIZABLE, partitioned=False)
    with pytest.raises(Wrong):
        explore(engine, ALL, 2)
