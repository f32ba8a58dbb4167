"""Binding refuses an expression, or evaluation has a value or an ``ExpressionError`` for each row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from every_expression import SCHEMA, broken, texts
from refdelta.errors import ExpressionError
from refdelta.expressions import evaluate
from refdelta.expressions.sql import parse_expression, parse_predicate
from refdelta.table.types import LONG, StructField, StructType
from tiers import budget

PARTS = 24


def test_an_expression_is_refused_or_evaluated():
    found = {text: broken(text) for text in texts()[: budget(8000)]}
    assert {text: wrong for text, wrong in found.items() if wrong is not None} == {}


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("part", range(PARTS))
def test_every_expression_is_refused_or_evaluated(part):
    found = {text: broken(text) for text in texts()[part::PARTS]}
    assert {text: wrong for text, wrong in found.items() if wrong is not None} == {}


@pytest.mark.parametrize(
    "text",
    [
        *("CAST(z AS INT)", "CAST(z AS BINARY)", "TRY_CAST(st.z AS DATE)", "coalesce(z, 1)", "z + 1", "try_mod(z, s)"),
        *("sort_array(array(NULL))", "array_distinct(az)", "arrays_overlap(az, az)", "array(st)", "map('x', st)"),
        *("regexp_instr(s, '\\\\Bb')", "CAST(NULL AS STRING) || CAST(NULL AS STRING)"),
    ],
)
def test_values_of_void_and_others_are_evaluated(text):
    parse_expression(text, SCHEMA)
    assert broken(text) is None


@pytest.mark.parametrize("text", ["CAST(v AS STRING)", "upper(v)", "-dt", "- ts", "concat(v, s)", "st.v || 'x'"])
def test_values_without_such_an_operation_are_refused(text):
    with pytest.raises(ValueError, match=r"variant|date|timestamp"):
        parse_expression(text, SCHEMA)


ONE = StructType((StructField("n", LONG),))
ROWS = pa.record_batch({"n": pa.array([1, 0], pa.int64())})


def test_an_error_of_a_row_names_the_expression():
    with pytest.raises(ExpressionError, match=r"division by zero.*1 / n|division by zero.*CAST"):
        evaluate.evaluate_value(parse_expression("1 / n", ONE), ROWS)
    with pytest.raises(ExpressionError, match="n"):
        evaluate.row_mask(parse_predicate("1 / n > 2", ONE), ROWS)


def test_another_error_of_the_evaluation_names_the_expression_too(monkeypatch):
    """So that no reader of a file takes it for damage of the file."""

    def fail(*_):
        raise pa.ArrowNotImplementedError("no such kernel")

    monkeypatch.setattr(evaluate, "_array", fail)
    with pytest.raises(ExpressionError, match=r"n % 2.*no such kernel|no such kernel.*n % 2"):
        evaluate.evaluate_value(parse_expression("n % 2", ONE), ROWS)
