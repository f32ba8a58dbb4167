"""Commits of other writers that claim, beside each of this engine's operations, in every interleaving.

The judge is given the rows that such a commit added and removed, and never its claims: no transaction of this engine
commits against its level, and none changes another row than it matched. The search found, before the claims had their
table, rows that came beside ``dataChange=false``, vectors that only counted more, blind appends that read, reads that
were recorded wrongly, and records of places that contradicted their commit. Each rule that was added is left out here.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

import tiers
from model.branches import Refusal
from model.cases import ABSENT, ALL, BASIC, COPY_0_1, CYCLE, DELETE_0, DELETE_K2, INSERT_0, MERGE_SOME, SET_PROPERTY
from model.entries import Wrong
from model.exhaustive import shapes
from model.foreign import WithForeign, all_foreign
from model.layouts import FILES, PARTITIONED_ROWS, PLAIN, ROWS, TRACKED, each
from refdelta.conformance.judge import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE
from refdelta.core.log import claims, footprint
from refdelta.core.log.footprint import Footprint
from refdelta.core.rows import touched
from refdelta.core.rows.touched import TouchedFiles

FOREIGN = all_foreign()
KINDS = sorted({one.kind for one in FOREIGN})
OURS = [case for case in (*ALL, *ABSENT) if case is not SET_PROPERTY]
LOOSE = {"what it read", "which version it read", "two commitInfos"}


def run(table, cases, began):
    """One history, operations in the order of their commits; each version is judged as it is made."""
    versions = [table.root]
    begun = Counter()
    for case, tries in zip(cases, began, strict=True):
        at = versions[tries]
        copy, begun[case, at] = begun[case, at], begun[case, at] + 1
        outcome = table.commit(versions[-1], table.begin(at, case, copy))
        versions.append(versions[-1] if isinstance(outcome, Refusal) else outcome)


def pairs(foreign, ours):
    """Histories of a foreign commit and one of this engine's operations."""
    for case, (began, first) in itertools.product(ours, itertools.product([began for _, began in shapes(2)], (0, 1))):
        yield (foreign.case, case) if first == 0 else (case, foreign.case), began


def explore(level, layout, foreign, histories, *, each_of=None, seed=11):
    """Run histories of each foreign commit, or so many of them that are drawn. Returns how many."""
    rng, count = random.Random(seed), 0
    table = WithForeign(level, layout, foreign)
    for one in foreign:
        found = list(dict.fromkeys(histories(one)))
        for cases, began in found if each_of is None or each_of >= len(found) else rng.sample(found, each_of):
            run(table, cases, began)
            count += 1
        table.root.staged.clear()
        table.root.children.clear()
    return count


def some(kind, *, check, test):
    return tiers.some([one for one in FOREIGN if one.kind == kind], check=check, test=test)


@pytest.mark.tier("test")
@pytest.mark.sample(check=2, test=4)
@each(ROWS, TRACKED, PARTITIONED_ROWS, FILES, PLAIN)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_claim_deceives_no_transaction(kind, level, layout):
    foreign = some(kind, check=8, test=20)
    assert explore(level, layout, foreign, lambda one: pairs(one, OURS), each_of=20) >= len(foreign)


def skipped(foreign):
    """Histories in which an append may be skipped: it, the foreign commit, and an operation of this engine."""
    for last, order in itertools.product((DELETE_0, *CYCLE[3:], COPY_0_1), itertools.permutations(range(3))):
        cases = [(INSERT_0, foreign.case, last)[i] for i in order]
        for began in itertools.product(range(1), range(2), range(3)):
            yield tuple(cases), began


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=2)
@each(PARTITIONED_ROWS, ROWS)
@pytest.mark.parametrize("kind", sorted(LOOSE | {"a blind append that reads"}))
def test_a_claim_gives_no_place_in_an_order_that_there_is_not(kind, layout):
    explore(WRITE_SERIALIZABLE, layout, some(kind, check=6, test=20), skipped)


@pytest.mark.tier("test")
@pytest.mark.sample(test=2)
@each(ROWS, TRACKED, PARTITIONED_ROWS)
@pytest.mark.parametrize("level", LEVELS)
def test_two_of_ours_beside_a_claim(level, layout):
    """Histories of three are drawn: there are millions."""
    ours = [case for case in (*BASIC, *ABSENT) if case is not SET_PROPERTY]
    rng = random.Random(3)

    def histories(one):
        for _ in range(6):
            cases = rng.choices(ours, k=2)
            cases.insert(rng.randrange(3), one.case)
            yield tuple(cases), rng.choice([began for _, began in shapes(3)])

    explore(level, layout, tiers.some(FOREIGN, check=20, test=200), histories)


# --- each rule is needed ----------------------------------------------------------------------------------------------


def believed(name, value=True):
    return [(claims, name, lambda *_, **__: value)]


LEFT_OUT = {
    "a larger vector is a superset": ("a vector", believed("only_deletes")),
    "dataChange=false of any writer is believed": ("other rows", believed("only_moves")),
    "dataChange=false is believed without a look at files": (
        "rows of no file",
        [*believed("only_moves"), (Footprint, "_keeps_rows", lambda _: True)],
    ),
    "sums of rows are not compared": ("rows of no file", [(footprint, "_live_rows", lambda _: None)]),
    "dataChange=false of some files is believed": (
        "rows of no file",
        [(Footprint, "brings_rows", lambda self, add: add.data_change and not self.only_hides(add))],
    ),
    "a blind append is one that says so": ("a blind append that reads", believed("reads_nothing")),
    "reads that any writer records are believed": ("what it read", believed("states_reads")),
    "the version that any writer read is believed": ("which version it read", believed("states_version")),
    "the last commitInfo counts": ("two commitInfos", [(footprint, "_agreed", lambda infos: infos[-1])]),
    "places are followed that contradict the commit": (
        "places",
        [(touched, "agrees", lambda *_: True), *believed("keeps_order"), (TouchedFiles, "unconfirmed", {})],
    ),
    "places of any writer are in order": ("places", believed("keeps_order")),
    "rows are confused that match": ("places", [(TouchedFiles, "_can_confirm", lambda *_: True)]),
}


NOTICED_BY = {"a vector": ABSENT, "places": (MERGE_SOME, DELETE_K2, DELETE_0)}
"""The operations that notice some lies soonest."""


@pytest.mark.tier("test")
@pytest.mark.sample(check=3, test=4)
@pytest.mark.parametrize("name", LEFT_OUT)
def test_without_a_rule_a_claim_deceives(monkeypatch, name):
    kind, patches = LEFT_OUT[name]
    for owner, attribute, other in patches:
        monkeypatch.setattr(owner, attribute, other)
    foreign = [one for one in FOREIGN if one.kind == kind]
    ours = NOTICED_BY.get(kind, OURS)

    def all_of_them():
        if kind in LOOSE:
            explore(WRITE_SERIALIZABLE, ROWS, foreign, skipped)
        for level, layout in itertools.product((SERIALIZABLE, WRITE_SERIALIZABLE), (ROWS, PARTITIONED_ROWS)):
            explore(level, layout, foreign, lambda one: pairs(one, ours), each_of=40)

    with pytest.raises(Wrong):
        all_of_them()
