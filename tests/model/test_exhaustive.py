"""All histories of a few operations, at both levels, on tables of each kind: through the real engine, and, where they
are too many for that, through its rules rules and loop loop alone.

Nothing is accepted that the judge rejects, every version holds the rows that the judge says it holds, no file is live
twice or removed without its deletion vector, and each loop says over which versions it was rebased:
:class:`model.branches.Branches` raises at the first that is wrong. The engine's own files are checked too: their
statistics, and that of what a transaction wrote only that is left which its loop names.

``REFDELTA_HISTORIES=all`` takes every variant of the operations, three at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

import tiers
from model import tables
from model.branches import Refusal, Version
from model.cases import ALL, BASIC, BY_HAND, CYCLE, DELETE_K2, MAINTENANCE, MERGE_SOME, MORE, SORT, Case
from model.core import Core
from model.engine import Engine
from model.entries import Wrong
from model.exhaustive import explore, pairs, shapes
from model.layouts import (
    FILES,
    LAYOUTS,
    PARTITIONED,
    PARTITIONED_ROWS,
    PLAIN,
    ROWS,
    TRACKED,
    TRACKED_FILES,
    Layout,
    each,
)
from refdelta.conformance.judge import LEVELS, SERIALIZABLE, WRITE_SERIALIZABLE
from refdelta.core.commit import member
from refdelta.core.conflicts import state
from refdelta.core.rows import file_state, rebase, touched
from refdelta.core.rows.file_state import FileState
from refdelta.core.rows.rebase import CompactionRebase
from refdelta.core.rows.sets import NONE, any_of
from refdelta.core.rows.touched import TouchedFiles
from refdelta.transaction.transaction import Transaction
from rules_left_out import check_without

REARRANGING = {"OPTIMIZE", "OPTIMIZE ZORDER", "REORG PURGE", "RESTORE"}

OF_THREE = ALL if os.environ.get("REFDELTA_HISTORIES") == "all" else tiers.some(BASIC, check=6, test=8)


def test_interleavings_are_counted_whole():
    assert (sum(shapes(2).values()), len(shapes(2))) == (6, 4)
    assert (sum(shapes(3).values()), len(shapes(3))) == (90, 36)


def all_of(table, cases, count, say):
    tally = tables.explored(table, cases, count)
    say(f"{count} of {len(cases)} operations: {tally}")
    assert tally["histories"] == sum(shapes(count).values()) * len(cases) ** count
    assert 0 < tally["in which all commit"] < tally["histories"]


# Where there is no time for more: the same operations decide as on one of the others, by files or by rows.
DEFAULTS = (PLAIN, PARTITIONED, ROWS)


def of_two(layout: Layout) -> list[Case]:
    return tiers.some(MORE if layout in DEFAULTS else ALL, check=6, test=14)


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=2)
@each(*LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_pairs_through_the_engine(level, layout, say):
    all_of(tables.engine(level, layout), of_two(layout), 2, say)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize(
    ("level", "layout"), [(SERIALIZABLE, ROWS), (WRITE_SERIALIZABLE, ROWS), (WRITE_SERIALIZABLE, PARTITIONED)], ids=str
)
def test_pairs_and_triples_through_the_engine(level, layout, say):
    all_of(Engine(level, layout), OF_THREE, 3, say)


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=2)
@each(*LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_triples_through_the_rules(level, layout, say):
    all_of(tables.core(level, layout), OF_THREE, 3, say)


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@each(*DEFAULTS)
def test_four_operations_through_the_rules(layout, say):
    all_of(tables.core(WRITE_SERIALIZABLE, layout), CYCLE, 4, say)


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@each(ROWS, FILES, PARTITIONED_ROWS)
def test_maintenance_between_changes_through_the_rules(layout, say):
    all_of(Core(SERIALIZABLE, layout), MAINTENANCE, 4, say)


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=4)
@each(*LAYOUTS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_rules_alone_decide_as_in_the_engine(level, layout):
    """The files that ``Core`` makes up lead to the same outcomes as those that the engine writes."""

    def outcomes(table):
        for first, second, winner, staged in pairs(table, of_two(layout)):
            outcome = table.commit(winner, staged)
            yield first.name, second.name, outcome.rule if isinstance(outcome, Refusal) else "committed"

    rules, engine = (outcomes(kind(level, layout)) for kind in (tables.core, tables.engine))
    assert not [pair for pair in zip(rules, engine, strict=True) if pair[0] != pair[1]]


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@each(TRACKED, TRACKED_FILES)
def test_pairs_where_rows_are_tracked_through_the_engine(layout, say):
    all_of(tables.engine(WRITE_SERIALIZABLE, layout), of_two(layout), 2, say)


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize(
    ("level", "layout"),
    [(SERIALIZABLE, TRACKED), (WRITE_SERIALIZABLE, TRACKED), (WRITE_SERIALIZABLE, TRACKED_FILES)],
    ids=str,
)
def test_triples_where_rows_are_tracked_through_the_rules(level, layout, say):
    all_of(tables.core(level, layout), (*OF_THREE, BY_HAND), 3, say)


@pytest.mark.tier("nightly")
def test_maintenance_between_changes_where_rows_are_tracked(say):
    all_of(Core(SERIALIZABLE, TRACKED), (SORT, BY_HAND, MERGE_SOME, DELETE_K2), 4, say)


@pytest.mark.tier("test")
def test_the_rules_alone_decide_as_in_the_engine_where_rows_are_tracked():
    def outcomes(table):
        for first, second, winner, staged in pairs(table, ALL):
            outcome = table.commit(winner, staged)
            yield first.name, second.name, outcome.rule if isinstance(outcome, Refusal) else "committed"

    rules, engine = (outcomes(kind(WRITE_SERIALIZABLE, TRACKED)) for kind in (tables.core, tables.engine))
    assert not [pair for pair in zip(rules, engine, strict=True) if pair[0] != pair[1]]


@pytest.mark.tier("test")
def test_nobody_loses_to_a_sort_who_changes_rows():
    """Where rows are tracked, changes go after ZORDER and after compactions that keep no record. (By hand, the engine's
    rows lose their ids.)
    """
    for kind, movers in ((tables.core, (SORT, BY_HAND)), (tables.engine, (SORT,))):
        table = kind(SERIALIZABLE, TRACKED)
        lost = {
            (first.kind, second.kind)
            for first, second, winner, staged in pairs(table, (*ALL, BY_HAND))
            if first in movers and isinstance(table.commit(winner, staged), Refusal)
        }
        assert {second for _, second in lost} <= REARRANGING, lost


def test_the_longer_cycle_is_broken_at_its_last_link():
    engine = tables.engine(WRITE_SERIALIZABLE, PARTITIONED)
    i, y, z, t = CYCLE[:4]
    first = engine.commit(engine.root, engine.begin(engine.root, i))
    second = engine.commit(first, engine.begin(first, y))
    third = engine.commit(second, engine.begin(engine.root, z))
    assert isinstance(third, Version)
    refused = engine.commit(third, engine.begin(engine.root, t))
    assert isinstance(refused, Refusal)
    assert refused.rule == "append-skipped"


def named(name):
    return next(case for case in MORE if case.name == name)


def test_what_asked_to_be_serializable_is_not_moved():
    """The copy skips the insert and so comes before it; the update, which did not see the copy, before both."""
    engine = tables.engine(WRITE_SERIALIZABLE, PARTITIONED)
    inserts, updates, copies = map(named, ("insert a=1", "update a=0 to 3", "copy a=1 as 0"))
    for strict in (False, True):
        first = engine.commit(engine.root, engine.begin(engine.root, inserts))
        second = engine.commit(first, engine.begin(engine.root, updates, strict=strict))
        assert isinstance(second, Version)
        third = engine.commit(second, engine.begin(engine.root, copies))
        assert isinstance(third, Refusal) is strict


@pytest.mark.tier("test")
def test_all_rows_of_a_file_are_those_that_were_live_in_it():
    """Of what a compaction took along, some rows were deleted before it committed: who then deletes all rows that are
    left, and meets the compaction, finds nothing to hide there.
    """
    for kind in (tables.core, tables.engine):
        table = kind(SERIALIZABLE, ROWS)
        purged = table.commit(table.root, table.begin(table.root, named("purge")))
        deleted = table.commit(purged, table.begin(purged, DELETE_K2))
        compacted = table.commit(deleted, table.begin(purged, named("compact")))
        for last in map(named, ("restore", "overwrite", "truncate")):
            assert isinstance(table.commit(compacted, table.begin(deleted, last)), Version)


# --- the histories would show it ----------------------------------------------------------------------------------


@pytest.mark.tier("test")
@pytest.mark.sample(check=2)
@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("metadata", "no serial order explains it: V1 set property"),
        ("application", "no serial order explains it: V1 insert once"),
        ("files-added", "no serial order explains it: V1 copy"),
        ("read-file-removed", "no serial order explains it: V1 delete"),
        ("deleted-by-both", "is removed, and was not live: compact by hand"),
        ("append-skipped", "WriteSerializable, accepted though no serial order explains it: V1 insert"),
    ],
)
def test_without_a_rule_a_history_is_wrong(monkeypatch, missing, what):
    monkeypatch.setattr(member, "check", check_without(missing))

    # Groups of files are left out where an input is gone; only what is staged by hand needs the rule.
    first = (BY_HAND, *ALL) if missing == "deleted-by-both" else ALL

    def pairs_and_triples(layout):
        # By the rows of a partition nothing that a transaction skips is rewritten by chance.
        table = Core(WRITE_SERIALIZABLE, layout)
        for count, cases in ((2, first), (3, BASIC)):
            explore(table, cases, count)

    for layout in (PARTITIONED, PARTITIONED_ROWS):
        with pytest.raises(Wrong, match=what):
            pairs_and_triples(layout)


@pytest.mark.sample(check=2)
@pytest.mark.parametrize("layout", [PLAIN, ROWS])
@pytest.mark.parametrize("verbs", [["read_predicate"], ["read_rows"], ["read_predicate", "read_rows", "read_files"]])
def test_a_read_that_goes_unrecorded_makes_a_history_wrong(monkeypatch, verbs, layout):
    for verb in verbs:
        monkeypatch.setattr(Transaction, verb, lambda *_: None)
    engine = Engine(SERIALIZABLE, layout)
    with pytest.raises(Wrong):
        explore(engine, ALL, 2)


def by_removes(recorded: Callable) -> Callable:
    """``recorded_relocations``, with the vectors of the removes."""

    def wrong(winner):
        vectors = {path: remove.deletion_vector for path, remove in winner.removed.items()}
        return {path: msgspec.structs.replace(one, vector=vectors[path]) for path, one in recorded(winner).items()}

    return wrong


def read_as_deleted(of: Callable) -> Callable:
    """``FileState.of``, which takes for deleted what was read."""

    def wrong(cls, file, edit):
        found = of(file, edit)
        return replace(found, gone=found.read) if any_of(found.gone) else found

    return classmethod(wrong)


def nothing_back(outcome: Callable) -> Callable:
    return lambda *args: replace(outcome(*args), back=NONE)


def without_vector(tombstone: Callable) -> Callable:
    def wrong(add, **how):
        return msgspec.structs.replace(tombstone(add, **how), deletion_vector=None)

    return wrong


WRONG = {
    "places are taken from the removes, not from the record": (
        [
            (touched, "recorded_relocations", by_removes),
            (touched, "agrees", lambda _: lambda *_: True),
            (TouchedFiles, "unconfirmed", lambda _: {}),
        ],
        "the rows are",
    ),
    "rows that a vector hides no more are forgotten": (
        [(file_state, "outcome", nothing_back), (TouchedFiles, "back", lambda _: lambda *_: NONE)],
        "no serial order explains it: V1 restore",
    ),
    "what was read is deleted": ([(FileState, "of", read_as_deleted)], "the rows are"),
    "a remove does not name the vector": (
        [(state, "tombstone", without_vector), (rebase, "tombstone", without_vector)],
        "is removed, and was not live",
    ),
    "a compaction undoes what was deleted meanwhile": (
        [(CompactionRebase, "wanted", lambda _: lambda _: {})],
        "the rows are",
    ),
}


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize("what", WRONG)
def test_rows_that_are_taken_for_others_make_a_history_wrong(monkeypatch, what):
    patches, symptom = WRONG[what]
    table = Core(SERIALIZABLE, ROWS)
    for owner, name, wrong in patches:
        monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))

    def pairs_and_triples():
        for count, cases in ((2, ALL), (3, (*MAINTENANCE, named("delete k = 1")))):
            explore(table, cases, count)

    with pytest.raises(Wrong, match=symptom):
        pairs_and_triples()
