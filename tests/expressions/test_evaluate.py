"""Predicates over batches are what they are row by row, by the definition in refdelta/expressions/predicate.py.

Tests of expressions.ordering.
"""

from __future__ import annotations

import math
import operator
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicate_strategies import PREDICATES, SCHEMA, batch_of, rows
from refdelta.errors import ColumnNotFoundError
from refdelta.expressions.binding import bind
from refdelta.expressions.evaluate import evaluate, row_mask
from refdelta.expressions.ordering import compare_columns
from refdelta.expressions.predicate import push_not
from refdelta.expressions.sql import parse_predicate
from refdelta.table.types import DATE, DOUBLE, STRING, TIMESTAMP, StructField, StructType
from tiers import examples

OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@given(PREDICATES, st.lists(rows(), min_size=1, max_size=8))
@examples(150)
def test_batches_and_rows_agree(predicate, found):
    bound = bind(predicate, SCHEMA)
    expected = [evaluate(bound, row) for row in found]
    batch = batch_of(found)
    assert row_mask(bound, batch).to_pylist() == expected
    assert row_mask(push_not(bound), batch).to_pylist() == expected
    assert row_mask(bound, pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)])).to_pylist() == expected


SHORT = [None, *map(Decimal, ["0", "-0.01", "0.05", "12.5", "-9999999999999999.99", "9999999999999999.99"])]


@pytest.mark.parametrize("values", [SHORT, SHORT[1:]], ids=["with nulls", "without"])
@pytest.mark.parametrize("precision", [18, 19])
@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">=", "<=>"])
def test_decimals_compare_alike_in_64_bits_and_in_128(op, precision, values):
    kind = pa.decimal128(precision, 2)
    one = pa.array([left for left in values for _ in values], kind)
    two = pa.array(values * len(values), kind)
    expected = [
        one == two if op == "<=>" else None if None in (one, two) else OPERATORS[op](one, two)
        for one, two in zip(one.to_pylist(), two.to_pylist(), strict=True)
    ]
    assert compare_columns(op, one, two).to_pylist() == expected
    assert compare_columns(op, one.slice(3), two.slice(3)).to_pylist() == expected[3:]
    for index, value in enumerate(values):
        scalar, at = pa.scalar(value, kind), slice(index, None, len(values))
        column = pa.array(values, kind)
        assert compare_columns(op, column, scalar).to_pylist() == expected[at]
    assert compare_columns(op, one.slice(0, 0), two.slice(0, 0)).to_pylist() == []


def column(kind, values, arrow):
    return StructType((StructField("c", kind),)), pa.record_batch({"c": pa.array(values, arrow)})


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("c = double 'nan'", [False, True, None]),
        ("c > 5", [False, True, None]),
        ("c >= double 'nan'", [False, True, None]),
        ("c < double 'nan'", [True, False, None]),
        ("c <> 1", [False, True, None]),
        ("c in (1, null)", [True, None, None]),
        ("c not in (1, null)", [False, None, None]),
        ("c in (double 'nan')", [False, True, None]),
        ("c <=> null", [False, False, True]),
        ("not (c <=> 1)", [False, True, True]),
        ("c is null or c = 1", [True, False, True]),
    ],
)
def test_nan_and_null_as_in_spark(sql, expected):
    schema, batch = column(DOUBLE, [1.0, math.nan, None], pa.float64())
    assert row_mask(parse_predicate(sql, schema), batch).to_pylist() == expected


def test_negative_zero_is_zero():
    schema, batch = column(DOUBLE, [0.0, -0.0], pa.float64())
    assert row_mask(parse_predicate("c in (0, 1)", schema), batch).to_pylist() == [True, True]
    assert row_mask(parse_predicate("c = 0", schema), batch).to_pylist() == [True, True]


def test_strings_are_ordered_by_their_bytes():
    # By UTF-16 units, as a JVM has them, the rocket would be below U+FFFD.
    schema, batch = column(STRING, ["\U0001f680", "\ufffd", "z"], pa.string())
    assert row_mask(parse_predicate("c > '\ufffd'", schema), batch).to_pylist() == [True, False, False]


def test_times_far_away():
    schema, batch = column(DATE, [2**22, -(2**22)], pa.date32())
    assert row_mask(parse_predicate("c > '9999-12-31'", schema), batch).to_pylist() == [True, False]
    schema, batch = column(TIMESTAMP, [2**62, -(2**62)], pa.timestamp("us", "UTC"))
    assert row_mask(parse_predicate("c > '9999-12-31'", schema), batch).to_pylist() == [True, False]


def test_a_column_that_the_batch_lacks():
    schema, _ = column(DOUBLE, [], pa.float64())
    with pytest.raises(ColumnNotFoundError, match="'c' does not exist in the data"):
        row_mask(parse_predicate("c = 1", schema), pa.record_batch({"d": pa.array([1])}))
