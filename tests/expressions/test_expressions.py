"""Values in scopes of two tables, the time of a statement, what is not computed, and what columns take.

Tests of expressions.casting, expressions.expression, expressions.scope.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from predicate_strategies import schema_of
from refdelta.errors import ColumnNotFoundError, ExpressionError, PredicateError, SchemaMismatchError
from refdelta.expressions.assignment import store_assign
from refdelta.expressions.evaluate import evaluate_value, row_mask
from refdelta.expressions.expression import Literal, to_sql
from refdelta.expressions.scope import Scope
from refdelta.expressions.sql import parse_expression, parse_predicate
from refdelta.table.types import (
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)

TARGET = schema_of(id=LONG, Value=STRING, s=schema_of(id=INTEGER))
SOURCE = schema_of(id=LONG, amount=DOUBLE)
BOTH = Scope.of_two("t", TARGET, "s", SOURCE)
PAIRS = pa.record_batch(
    {
        "t": pa.array([{"id": 1, "Value": "x", "s": {"id": 7}}, None, {"id": 3, "Value": None, "s": None}]),
        "s": pa.array([{"id": 1, "amount": 0.5}, {"id": 2, "amount": 1.5}, None]),
    }
)


@pytest.mark.parametrize(
    ("sql", "meaning", "expected"),
    [
        ("t.id", "t.id", [1, None, 3]),
        ("S.ID + 1", "(s.id + 1L)", [2, 3, None]),
        ("amount", "s.amount", [0.5, 1.5, None]),
        ("value", "t.Value", ["x", None, None]),
        ("t.s.id", "t.s.id", [7, None, None]),
        ("coalesce(t.id, s.id)", "coalesce(t.id, s.id)", [1, 2, 3]),
        ("t.id <=> s.id", "(t.id <=> s.id)", [True, False, False]),
    ],
)
def test_names_of_two_tables(sql, meaning, expected):
    value = parse_expression(sql, BOTH)
    assert to_sql(value) == meaning
    assert parse_expression(meaning, BOTH) == value
    assert evaluate_value(value, PAIRS).to_pylist() == expected


def test_names_that_are_not_clear():
    with pytest.raises(PredicateError, match=r"'id' is ambiguous: it may be t\.id and s\.id"):
        parse_expression("id", BOTH)
    with pytest.raises(ColumnNotFoundError, match="'nope' does not exist in s; columns: id, amount"):
        parse_expression("s.nope", BOTH)
    with pytest.raises(ColumnNotFoundError, match="'nope' does not exist in t and s"):
        parse_predicate("nope = 1", BOTH)
    with pytest.raises(PredicateError, match="same alias"):
        Scope.of_two("t", TARGET, "T", SOURCE)


TABLE = schema_of(i=INTEGER, d=DATE, ts=TIMESTAMP, x=STRING, b=BYTE)
ROWS = pa.record_batch(
    {
        "i": pa.array([0, 2, None], pa.int32()),
        "d": pa.array([dt.date(2024, 1, 1), dt.date(2023, 12, 31), None]),
        "ts": pa.array([0, None, 1], pa.timestamp("us", "UTC")),
        "x": pa.array(["1", "one", None]),
        "b": pa.array([1, 100, None], pa.int8()),
    }
)


def test_the_time_is_that_of_the_statement():
    now = 1_704_067_200_000_000  # 2024-01-01
    assert row_mask(parse_predicate("d = current_date", TABLE, now=now), ROWS).to_pylist() == [True, False, None]
    assert to_sql(parse_expression("now()", TABLE, now=now)) == "TIMESTAMP '2024-01-01T00:00:00.000000Z'"
    # As a constant it can be looked up in statistics.
    assert to_sql(parse_predicate("d >= date_sub(current_date(), 1)", TABLE, now=now)) == "d >= DATE '2023-12-31'"
    named = schema_of(current_date=STRING)
    assert to_sql(parse_predicate("current_date = 'x'", named)) == "current_date = 'x'"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("i <> 0 and 4 / i > 1", [False, True, None]),
        ("i = 0 or 4 / i > 1", [True, True, None]),
        ("case when i = 0 then false else 4 / i > 1 end", [False, True, None]),
        ("if(x = 'one', false, cast(x as int) = 1)", [True, False, None]),
        ("coalesce(nullif(i, 0), length(x)) = 1", [True, False, None]),
        ("try_cast(x as int) = 1", [True, None, None]),
        ("null > 1 / i", [None, None, None]),
    ],
)
def test_what_is_not_asked_for_cannot_fail(sql, expected):
    assert row_mask(parse_predicate(sql, TABLE), ROWS).to_pylist() == expected


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("1 / i", r"1\.0 / 0\.0: division by zero"),
        ("i % 0", "division by zero"),
        ("cast(x as int)", "cannot cast 'one' to integer"),
        ("cast(i + 2147483646 as int) + i", "2147483648 does not fit|does not fit into integer"),
        ("b * b", r"100 \* 100 does not fit into byte"),
        ("cast(i * 100 as tinyint)", "cannot cast 200 to byte"),
        ("cast('2024-02-30' || x as date)", "cannot cast '2024-02-301' to date"),
        ("cast(i as decimal(1, 1))", r"cannot cast 2 to decimal\(1,1\)"),
    ],
)
def test_what_has_no_value_says_why(sql, complaint):
    value = parse_expression(sql, TABLE)
    with pytest.raises(ExpressionError, match=complaint):
        evaluate_value(value, ROWS)
    with pytest.raises(ArithmeticError):
        evaluate_value(value, pa.Table.from_batches([ROWS]))


# --- what columns take -------------------------------------------------------------------------------------------


def stored(sql, target):
    return evaluate_value(store_assign(parse_expression(sql, TABLE), target, "c"), ROWS.slice(0, 1)).to_pylist()[0]


@pytest.mark.parametrize(
    ("sql", "target", "expected"),
    [
        ("1", BYTE, 1),
        ("i", LONG, 0),
        ("1.55", DecimalType(3, 1), Decimal("1.6")),
        ("'7'", INTEGER, 7),
        ("x", INTEGER, 1),
        ("d", STRING, "2024-01-01"),
        ("d", TIMESTAMP, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ("null", ArrayType(LONG), None),
        ("null", INTEGER, None),
        ("i > 0", STRING, "false"),
    ],
)
def test_what_a_column_takes(sql, target, expected):
    assert stored(sql, target) == expected


def test_what_a_column_does_not_take():
    with pytest.raises(SchemaMismatchError, match=r"column c is date: i \(integer\) cannot be stored there"):
        stored("i", DATE)
    with pytest.raises(SchemaMismatchError, match="cannot be stored"):
        stored("i", ArrayType(INTEGER))
    with pytest.raises(ExpressionError, match="cannot cast 300 to byte"):
        stored("300", BYTE)
    # There may be no row to store it in.
    late = store_assign(Literal(300, INTEGER), BYTE)
    assert len(evaluate_value(late, ROWS.slice(0, 0))) == 0


def test_structs_are_stored_where_their_fields_have_the_same_names():
    wide = schema_of(st=schema_of(A=LONG))
    batch = pa.record_batch({"st": pa.array([{"A": 1}, None])})
    value = parse_expression("st", wide)
    strict = StructType((StructField("A", LONG, nullable=False),))
    assert evaluate_value(store_assign(value, strict), batch).to_pylist() == [{"A": 1}, None]
    with pytest.raises(SchemaMismatchError):
        store_assign(value, schema_of(b=LONG))
