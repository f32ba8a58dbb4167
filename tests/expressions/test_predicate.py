"""The definition of predicates: three-valued logic, Spark's order, and what can be told from a part of a row.

Tests of expressions.like.
"""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicate_strategies import PREDICATES, SCHEMA, rows
from refdelta.errors import PredicateError
from refdelta.expressions.binding import bind
from refdelta.expressions.evaluate import evaluate
from refdelta.expressions.expression import (
    And,
    BoolLiteral,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    columns,
    to_sql,
)
from refdelta.expressions.like import like_prefix
from refdelta.expressions.ordering import compare
from refdelta.expressions.predicate import FALSE, NULL, TRUE, conjunction, disjunction, possible, push_not, with_nulls
from refdelta.table.types import LONG, STRING, StructType
from tiers import examples

THREE = [TRUE, FALSE, NULL]


def test_the_truth_tables_of_sql():
    rank = {False: 0, None: 1, True: 2}
    for a, b in itertools.product(THREE, THREE):
        assert evaluate(And((a, b)), {}) == min(a.value, b.value, key=rank.__getitem__)
        assert evaluate(Or((a, b)), {}) == max(a.value, b.value, key=rank.__getitem__)
    assert [evaluate(Not(v), {}) for v in THREE] == [False, True, None]


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("=", 1, 1, True),
        ("=", 1, None, None),
        ("=", None, None, None),
        ("<=>", None, None, True),
        ("<=>", 1, None, False),
        ("<=>", 1, 1, True),
        ("=", math.nan, math.nan, True),
        (">", math.nan, math.inf, True),
        ("<", math.nan, math.inf, False),
        ("<", math.inf, math.nan, True),
        ("<=>", math.nan, math.nan, True),
        ("=", 0.0, -0.0, True),
        ("<", "\ufffd", "\U0001f680", True),
        ("<", b"a", b"\xff", True),
    ],
)
def test_comparisons(op, left, right, expected):
    assert compare(op, left, right) is expected


def long(op, value):
    return Comparison(op, Column(("a",), LONG), Literal(value, LONG))


def test_in_with_and_without_null():
    items = (Literal(1, LONG), Literal(None, LONG))
    predicate = In(Column(("a",), LONG), items)
    assert [evaluate(predicate, {"a": v}) for v in (1, 2, None)] == [True, None, None]
    assert [evaluate(In(Column(("a",), LONG), items[:1]), {"a": v}) for v in (1, 2, None)] == [True, False, None]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a%", "abc", True),
        ("a%", "ba", False),
        ("a_c", "abc", True),
        ("a_c", "a\nc", True),
        ("%", "", True),
        ("_", "", False),
        ("_", "\U0001f680", True),
        ("a\\%", "a%", True),
        ("a\\%", "ab", False),
        ("a.c", "abc", False),
        ("[a]*", "[a]*", True),
        ("a", "a\n", False),
        ("A", "a", False),
        ("", "", True),
    ],
)
def test_like(pattern, text, expected):
    assert evaluate(Like(Column(("s",), STRING), pattern), {"s": text}) is expected
    assert evaluate(Like(Column(("s",), STRING), pattern), {"s": None}) is None


def test_prefixes_of_patterns():
    assert like_prefix("ab\\%c%d", "\\") == ("ab%c", False)
    assert like_prefix("ab/_", "/") == ("ab_", True)
    with pytest.raises(PredicateError, match="escapes only"):
        like_prefix("a/b", "/")


@given(PREDICATES, rows())
def test_pushing_not_inwards_changes_nothing(predicate, row):
    bound = bind(predicate, SCHEMA)
    pushed = push_not(bound)
    assert evaluate(pushed, row) == evaluate(bound, row)
    assert evaluate(push_not(Not(bound)), row) == evaluate(Not(bound), row)
    assert columns(pushed) == columns(bound)


@given(PREDICATES, rows(), st.sets(st.sampled_from(SCHEMA.names)))
@examples(200)
def test_what_is_possible_holds_what_is(predicate, row, known):
    bound = bind(predicate, SCHEMA)
    assert evaluate(bound, row) in possible(bound, {name: row[name] for name in known})


@given(PREDICATES, rows(), st.sets(st.sampled_from(SCHEMA.names)))
@examples(200)
def test_columns_that_a_table_lacks_are_null(predicate, row, left):
    bound = bind(predicate, SCHEMA)
    found = with_nulls(bound, StructType(tuple(field for field in SCHEMA if field.name in left)))
    assert {path[0] for path in columns(found)} <= left
    known = {name: row[name] for name in left}
    whole = dict.fromkeys(SCHEMA.names) | known
    assert (evaluate(found, known) is True) == (evaluate(bound, whole) is True)
    assert columns(found) or found in {TRUE, FALSE}


def test_what_is_possible_is_told_from_partition_values():
    predicate = And((long("=", 1), Comparison("=", Column(("b",), LONG), Literal(2, LONG))))
    assert True not in possible(predicate, {"a": 2})
    assert True in possible(predicate, {"a": 1})
    assert possible(predicate, {"a": 1, "b": 2}) == {True}
    assert possible(Or((long("=", 1), IsNull(Column(("b",), LONG)))), {"a": 1}) == {True}


def test_joining_conditions():
    assert (conjunction([]), disjunction([])) == (TRUE, FALSE)
    assert conjunction([NULL]) == NULL
    assert disjunction([TRUE, NULL]) == Or((TRUE, NULL))


def test_sql_of_a_tree():
    predicate = And((long("<=>", 1), Not(In(Column(("a b", "select"), STRING), (Literal("it's\n", STRING),)))))
    assert to_sql(predicate) == "(a <=> 1L) AND (NOT (`a b`.`select` IN ('it\\'s\\n')))"
    assert to_sql(BoolLiteral(None)) == "NULL"
