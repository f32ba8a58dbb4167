"""The prepared question to files answers as its definition does, and never rules out a file that has such a row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concurrency.commits import FLAT, SCHEMA, TABLE, add, remove, where
from refdelta.concurrency.matching import Matcher
from refdelta.protocol.file_match import may_match
from refdelta.protocol.predicate import FALSE, NULL, TRUE, evaluate
from tiers import examples

ATOMS = st.builds(
    lambda name, op, value: f"{name} {op} {value}",
    st.sampled_from(["p", "a"]),
    st.sampled_from(["=", "<>", "<", ">=", "<=>"]),
    st.sampled_from(["0", "1", "2", "NULL"]),
)
SQL = st.recursive(
    ATOMS | st.sampled_from(["p IS NULL", "a IS NOT NULL", "true", "a IN (0, 2)", "p + a = 2", "NOT (p <=> a)"]),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=4,
)
PREDICATES = st.lists(SQL.map(where), max_size=3).map(tuple)
FILES = st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), min_size=1, max_size=3))


@examples(300)
@given(PREDICATES, st.lists(FILES, min_size=1, max_size=4), st.booleans())
def test_matching_is_its_definition_and_sound(predicates, files, with_stats):
    matcher = Matcher(predicates, TABLE)
    for number, (p, values) in enumerate(files):
        bounds = (min(values), max(values)) if with_stats else None
        file = add(f"f{number}", p, a=bounds)
        found = matcher.may_match(file)
        assert found == any(may_match(predicate, file, SCHEMA, ("p",)) for predicate in predicates)
        if any(evaluate(predicate, {"p": p, "a": a}) for predicate in predicates for a in values):
            assert found
        assert matcher.may_match(remove("gone", p)) >= found


@examples(100)
@given(PREDICATES, FILES)
def test_statistics_are_asked_for_where_they_were_left_out(predicates, file):
    p, values = file
    lean, whole = add("f", p), add("f", p, a=(min(values), max(values)))
    matcher = Matcher(predicates, TABLE)
    assert matcher.may_match(lean, lambda _: whole) == matcher.may_match(whole)


def test_constants_and_tables_that_are_not_known():
    file = add("f", 1, a=(0, 1))
    assert not Matcher((), TABLE).may_match(file)
    assert not Matcher((FALSE,), None).may_match(file)
    assert not Matcher((NULL,), TABLE).may_match(file)
    assert Matcher((TRUE,), None).may_match(file)
    assert Matcher((where("p = 9"),), None).may_match(file)
    assert not Matcher((where("p = 9"),), TABLE).may_match(file)
    assert Matcher((where("p = 9"),), FLAT).may_match(file)


def test_many_partitions_are_forgotten_and_decided_anew(monkeypatch):
    monkeypatch.setattr("refdelta.concurrency.matching._KEPT", 3)
    matcher = Matcher((where("p = 7"),), TABLE)
    assert [p for p in [*range(20), *range(20)] if matcher.may_match(add("f", p))] == [7, 7]
