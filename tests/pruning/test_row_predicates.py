"""The prepared question to files answers as its definition does, and never rules out a file that has such a row.

Tests of pruning.row_predicate.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concurrency.commits import SCHEMA, add, remove, where, where_flat
from refdelta.core.conflicts.reads import EVERY_ROW, AnyOf
from refdelta.expressions.evaluate import evaluate
from refdelta.pruning.file_match import may_match
from tiers import examples

ATOMS = st.builds(
    lambda name, op, value: f"{name} {op} {value}",
    st.sampled_from(["p", "a"]),
    st.sampled_from(["=", "<>", "<", ">=", "<=>"]),
    st.sampled_from(["0", "1", "2", "NULL"]),
)
SQL = st.recursive(
    ATOMS | st.sampled_from(["p IS NULL", "a IS NOT NULL", "a IN (0, 2)", "p + a = 2", "NOT (p <=> a)"]),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=4,
)
PREDICATES = st.lists(SQL.map(where).filter(lambda found: found is not EVERY_ROW), max_size=3).map(tuple)
FILES = st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), min_size=1, max_size=3))


@examples(300)
@given(PREDICATES, st.lists(FILES, min_size=1, max_size=4), st.booleans())
def test_matching_is_its_definition_and_sound(predicates, files, with_stats):
    asked = AnyOf(predicates)
    for number, (p, values) in enumerate(files):
        bounds = (min(values), max(values)) if with_stats else None
        file = add(f"f{number}", p, a=bounds)
        found = asked.may_match(file)
        assert found == any(may_match(one.predicate, file, SCHEMA, ("p",)) for one in predicates)
        if any(evaluate(one.predicate, {"p": p, "a": a}) for one in predicates for a in values):
            assert found
        assert asked.may_match(remove("gone", p)) >= found
        # What is quick to see leaves out nothing that may match.
        assert (file in asked.candidates([file])) >= found


@examples(100)
@given(PREDICATES, FILES)
def test_statistics_are_asked_for_where_they_were_left_out(predicates, file):
    p, values = file
    lean, whole = add("f", p), add("f", p, a=(min(values), max(values)))
    asked = AnyOf(predicates)
    assert asked.may_match(lean, lambda _: whole) == asked.may_match(whole)


@examples(100)
@given(PREDICATES, PREDICATES, st.integers(0, 2), st.integers(0, 2))
def test_what_is_disjoint_shares_no_row(one, other, p, a):
    row = {"p": p, "a": a}
    both = all(any(evaluate(each.predicate, row) for each in some) for some in (one, other))
    assert not (AnyOf(one).is_disjoint(AnyOf(other)) and both)
    assert AnyOf(one).is_disjoint(AnyOf(other)) == AnyOf(other).is_disjoint(AnyOf(one))
    assert AnyOf(one).is_disjoint(AnyOf([EVERY_ROW])) == AnyOf([EVERY_ROW]).is_disjoint(AnyOf(one))


def test_constants_and_tables_without_partitions():
    file = add("f", 1, a=(0, 1))
    assert not AnyOf([]).may_match(file)
    assert not AnyOf([]).candidates([file])
    assert not where("false").may_match(file)
    assert not where("null").may_match(file)
    assert where("true") is EVERY_ROW
    assert EVERY_ROW.may_match(file)
    assert not where("p = 9").may_match(file)
    assert where_flat("p = 9").may_match(file)
    assert not EVERY_ROW.is_disjoint(EVERY_ROW)
    assert EVERY_ROW.is_disjoint(where("false"))


def test_partitions_that_were_ruled_out_are_known_at_once():
    asked = AnyOf([where("p = 7"), where("p = 8")])
    files = [add(f"f{p}", p) for p in range(10)]
    assert asked.candidates(files) == files
    assert [file.path for file in files if asked.may_match(file)] == ["f7", "f8"]
    assert [file.path for file in asked.candidates(files)] == ["f7", "f8"]


def test_many_partitions_are_forgotten_and_decided_anew(monkeypatch):
    monkeypatch.setattr("refdelta.pruning.row_predicate._KEPT", 3)
    asked = where("p = 7")
    assert [p for p in [*range(20), *range(20)] if asked.may_match(add("f", p))] == [7, 7]
