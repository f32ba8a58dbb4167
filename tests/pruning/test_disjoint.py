"""Predicates that are said to be disjoint have no row in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicate_strategies import COLUMNS, PREDICATES, SCHEMA, VALUES, rows
from refdelta.expressions.binding import bind
from refdelta.expressions.evaluate import evaluate
from refdelta.expressions.expression import And, Column, Comparison, In, Literal, Not, Or
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning import disjoint as disjoint_module
from refdelta.pruning.disjoint import disjoint
from tiers import examples


@given(PREDICATES, PREDICATES, st.lists(rows(), min_size=3, max_size=6))
@examples(100)
def test_no_row_satisfies_both(p, q, found):
    one, other = bind(p, SCHEMA), bind(q, SCHEMA)
    if disjoint(one, other):
        assert not [row for row in found if evaluate(one, row) and evaluate(other, row)]


@st.composite
def about_one_column(draw):
    """Two predicates over one column, which are often close to each other."""
    path, kind = draw(st.sampled_from([c for c in COLUMNS if len(c[0]) == 1]))
    literal = st.sampled_from([Literal(v, kind) for v in VALUES[kind]])
    atom = st.one_of(
        st.builds(
            Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), st.just(Column(path)), literal
        ),
        st.builds(In, st.just(Column(path)), st.lists(literal, min_size=1, max_size=3).map(tuple)),
    )
    deep = st.recursive(
        atom,
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=2).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=4,
    )
    return path[0], kind, bind(draw(deep), SCHEMA), bind(draw(deep), SCHEMA)


@given(about_one_column())
@examples(200)
def test_one_column_over_all_of_its_values(made):
    name, kind, one, other = made
    rows_ = [{name: value} for value in [*VALUES[kind], None]]
    if disjoint(one, other):
        assert not [row for row in rows_ if evaluate(one, row) and evaluate(other, row)]
    assert disjoint(one, other) == disjoint(other, one)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("i = 1", "i = 2", True),
        ("i = 1", "i <> 1", True),
        ("i = 1", "i = 1", False),
        ("i < 5", "i >= 5", True),
        ("i <= 5", "i >= 5", False),
        ("i > 1 and i < 3", "i = 2", False),
        ("i > 1", "i < 2", True),
        ("d > 1", "d < 2", False),
        ("d > 1", "d <= 1", True),
        ("d = double 'nan'", "d < 5", True),
        ("i in (1, 2)", "i in (3, 4)", True),
        ("i in (1, 2)", "i in (2, 4)", False),
        ("i not in (1, 2)", "i in (1, 2)", True),
        ("i is null", "i = 1", True),
        ("i is null", "i is not null", True),
        ("st is null", "st.x = 1", True),
        ("st is null", "st.x is null", False),
        ("i <=> 1", "i is null", True),
        ("not (i <=> 1)", "i = 1", True),
        ("not (i <=> 1)", "i is null", False),
        ("b", "not b", True),
        ("b", "b = false", True),
        ("b <> true", "b <> false", True),
        ("s like 'ab%'", "s = 'ac'", True),
        ("s like 'ab%'", "s >= 'ac'", True),
        ("s like 'ab%'", "s like 'abc%'", False),
        ("s like 'a'", "s like 'b%'", True),
        ("s not like 'a%'", "s is null", True),
        ("i < l", "i > l", True),
        ("i < l", "l < i", True),
        ("i <= l", "l <= i", False),
        ("i < 5 or i > 10", "i between 6 and 9", True),
        ("i < 5 or i > 10", "i between 6 and 11", False),
        ("i < 1.5", "i > 1", True),
        ("i < 1.5", "dec > 1", False),
        ("dec < 1.5", "dec > 1.505", True),
        ("year(dt) = 2020", "year(dt) = 2021", True),
        ("upper(s) = 'A'", "upper(s) = 'B'", True),
        ("upper(s) = 'A'", "lower(s) = 'b'", False),
        ("dt = '2024-01-01' and q = 'de'", "dt = '2024-01-01' and q = 'fr'", True),
        ("dt >= '2024-01-01'", "dt < '2024-01-01'", True),
        ("i not in (1, null)", "true", True),
        ("i = null", "true", True),
        ("true", "false", True),
        ("true", "true", False),
    ],
)
def test_what_is_seen(one, other, expected):
    assert disjoint(parse_predicate(one, SCHEMA), parse_predicate(other, SCHEMA)) is expected
    assert disjoint(parse_predicate(other, SCHEMA), parse_predicate(one, SCHEMA)) is expected


def test_too_many_alternatives_say_nothing():
    many = " and ".join(f"(i = {n} or l = {n})" for n in range(20))
    assert not disjoint(parse_predicate(many, SCHEMA), parse_predicate("i = 1", SCHEMA))


@pytest.mark.tier("test")
def test_the_conditions_that_are_looked_at_are_bounded(monkeypatch):
    looked = []
    add = disjoint_module._Row._add
    monkeypatch.setattr(disjoint_module._Row, "_add", lambda row, one: looked.append(one) or add(row, one))
    two_ways = parse_predicate(" AND ".join(f"(i = {n} OR i = {n + 100})" for n in range(11)), SCHEMA)
    many = parse_predicate(" AND ".join(f"i <> {n}" for n in range(1600)), SCHEMA)
    assert not disjoint(two_ways, many)
    assert len(looked) <= 2 * disjoint_module._STEPS
    # One alternative may be long.
    assert disjoint(many, parse_predicate("i = 3", SCHEMA))
