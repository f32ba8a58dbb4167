"""Values over batches are what they are row by row, by the definition in refdelta/core.

Tests of expressions.arithmetic, expressions.coercion.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from predicate_strategies import SCHEMA, batch_of, rows
from refdelta.arrow.partition import to_internal
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError, PredicateError
from refdelta.expressions.evaluate import evaluate, evaluate_value, row_mask, value_of
from refdelta.expressions.expression import to_sql
from refdelta.expressions.sql import parse_expression, parse_predicate
from refdelta.table.types import LONG, StructField, StructType
from tiers import examples
from value_strategies import CONDITIONS, VALUE_TREES


def parsed(tree, parse):
    try:
        return parse(to_sql(tree), SCHEMA)
    except PredicateError:
        assume(False)


def alike(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return a == b and type(a) is type(b)


def one(function):
    try:
        return function()
    except ExpressionError:
        return ExpressionError


@pytest.mark.tier("test")
@given(VALUE_TREES, st.lists(rows(), min_size=1, max_size=5))
@examples(300)
def test_batches_and_rows_agree(tree, found):
    value = parsed(tree, parse_expression)
    expected = [one(lambda row=row: value_of(value, row)) for row in found]
    batch = batch_of(found)
    if ExpressionError in expected:
        with pytest.raises(ExpressionError):
            evaluate_value(value, batch)
    kept = [i for i, item in enumerate(expected) if item is not ExpressionError]
    array = evaluate_value(value, batch.take(pa.array(kept, pa.int64())))
    assert array.type == arrow_type(value.type)
    assert all(map(alike, to_internal(array, value.type), [expected[i] for i in kept]))


@given(CONDITIONS, st.lists(rows(), min_size=1, max_size=5))
@examples(200)
def test_conditions_agree(tree, found):
    predicate = parsed(tree, parse_predicate)
    expected = [one(lambda row=row: evaluate(predicate, row)) for row in found]
    kept = [i for i, item in enumerate(expected) if item is not ExpressionError]
    batch = batch_of(found).take(pa.array(kept, pa.int64()))
    assert row_mask(predicate, batch).to_pylist() == [expected[i] for i in kept]


@pytest.mark.tier("test")
@given(VALUE_TREES)
@examples(200)
def test_the_sql_of_a_value_is_read_back_as_the_same_value(tree):
    value = parsed(tree, parse_expression)
    assert to_sql(parse_expression(to_sql(value), SCHEMA)) == to_sql(value)


@pytest.mark.parametrize("unit", ["hour", "day", "week", "year"])
def test_no_timestamp_begins_before_the_first(unit):
    """Spark, too, has an overflow there."""
    text = f"date_trunc('{unit}', timestamp_micros(n))"
    value = parse_expression(text, StructType((StructField("n", LONG),)))
    first = -(2**63)
    with pytest.raises(ExpressionError):
        value_of(value, {"n": first})
    with pytest.raises(ExpressionError):
        evaluate_value(value, pa.record_batch({"n": pa.array([first], pa.int64())}))
