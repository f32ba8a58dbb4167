"""Functions of SQL as their users meet them: names that do not exist, intervals, and results that are too large.

Tests of expressions.interval_text, expressions.interval_types, expressions.library.arrays, expressions.library.text.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import DeltaError, ExpressionError, PredicateError, SchemaMismatchError
from refdelta.expressions import columnar
from refdelta.expressions.functions import ALIASES
from refdelta.expressions.sql import parse_expression
from refdelta.expressions.sql_dialect import CLOCKS
from refdelta.expressions.sql_reader import KNOWN
from refdelta.table.types import BINARY, STRING, StructField, StructType


def test_every_function_is_called_by_a_case():
    here = Path(__file__).parent
    cases = [here.parent / name for name in ("function_cases.py", "value_strategies.py", "predicate_strategies.py")]
    text = "".join(path.read_text() for path in [*cases, *here.glob("test_*.py")]).lower()
    assert [name for name in sorted(KNOWN - set(ALIASES) - set(CLOCKS)) if not re.search(rf"\b{name}\b", text)] == []


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path, pa.table({"a": [1, 2], "s": ["x,y", "y"], "xs": [["a", None], ["b"]]}))
    return DeltaTable(tmp_path)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("levenstein(s, 'x')", "levenshtein"),
        ("regex_replace(s, 'x', 'y')", "regexp_replace"),
        ("array_joined(xs, '')", "array_join"),
    ],
)
def test_a_name_that_does_not_exist_has_a_suggestion(table, name, meant):
    with pytest.raises(PredicateError, match=f"did you mean '{meant}'"):
        table.delete(f"{name} = 'y'")


@pytest.mark.parametrize(
    ("column", "value"), [("a", "INTERVAL 1 DAY"), ("s", "INTERVAL 1 YEAR"), ("xs", "array(INTERVAL 1 DAY)")]
)
def test_an_interval_is_not_stored(table, column, value):
    with pytest.raises(SchemaMismatchError, match=rf"column {column} .*interval (day|year).* cannot be stored there"):
        table.update({column: value})
    assert table.version() == 0


@pytest.mark.parametrize(
    "value",
    [
        "CAST(INTERVAL 1 DAY AS STRING)",
        "concat(INTERVAL 1 DAY, s)",
        "base64(INTERVAL 1 DAY)",
        "named_struct('x', INTERVAL 1 DAY)",
    ],
)
def test_an_interval_is_no_string(table, value):
    with pytest.raises(DeltaError, match="interval day"):
        table.update({"s": value})


@pytest.mark.parametrize(
    "call", ["lpad(b, 3)", "concat(b, b)", "left(b, 2)", "substring(b, 1)", "overlay(b, 'x', 1)", "elt(1, b, b)"]
)
def test_a_function_that_spark_has_for_binaries_too_takes_no_binary(call):
    scope = StructType((StructField("b", BINARY),))
    with pytest.raises(PredicateError, match="of a binary is not supported here; cast b to a string"):
        parse_expression(call, scope)
    assert parse_expression(re.sub(r"\bb\b", "string(b)", call), scope).type == STRING


@pytest.mark.parametrize("kind", ["interval day", "interval year to month"])
def test_a_schema_has_no_intervals(tmp_path, kind):
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    with pytest.raises(DeltaError, match="interval"):
        DeltaTable(tmp_path).alter.add_columns({"b": kind})


@pytest.mark.parametrize(
    "value",
    [
        "array_join(xs, '" + "-" * 900 + "')",
        "array_join(xs, '', '" + "-" * 900 + "')",
        "array_join(array(s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s), '')",
        "array_join(split(s, ''), '')",
        "array_join(split(s, '[xy]'), '')",
        "array_join(regexp_extract_all(s, '[xy]', 0), '')",
        "array_join(concat(xs, xs, xs, xs, xs, xs, xs, xs, xs, xs, xs, xs), '')",
        "repeat(s, 300)",
        "map('a', space(300))['a']",
    ],
)
def test_what_a_function_makes_is_bounded(table, value, monkeypatch):
    assert table.scan(predicate=f"{value} IS NOT NULL").to_reader().read_all().num_rows == 2
    monkeypatch.setattr(columnar, "MOST_BYTES", 150)
    with pytest.raises(ExpressionError, match=r"would make .* bytes"):
        table.update({"s": value})
