"""Expressions in all statements that take one: each is refused for what it is, or evaluated; no data file is blamed.

Tests of expressions.evaluate, expressions.sql_reader, engine.scan.filters.
"""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import refdelta
from every_expression import SCHEMA, batch, texts
from refdelta import DeltaTable, write_deltalake
from refdelta.arrow.schema import arrow_type, to_arrow
from refdelta.errors import DataFileError, DeltaError, ExpressionError, InternalError, PredicateError
from refdelta.expressions.expression import columns
from refdelta.expressions.sql import parse_expression
from refdelta.table.types import BOOLEAN, StructType, is_numeric
from tiers import budget

# Arrays of void, and structs of it alone, cannot be stored.
STORED = StructType(tuple(item for item in SCHEMA if item.name not in ("az", "sz")))
DEFAULTS = {"delta.feature.allowColumnDefaults": "supported"}
SOURCE = pa.table({"k": [1, 2, None]})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("expressions") / "t"
    write_deltalake(path, pa.Table.from_batches([batch().select(STORED.names)]), partition_by=["b"])
    return path


def accepted():
    for text in texts()[: budget(600)]:
        try:
            yield text, parse_expression(text, STORED, now=0)
        except (PredicateError, ValueError):
            continue


def uses(path, text, value):
    """What statements do with an expression, by names."""
    table = DeltaTable(path)
    target = next((item.name for item in STORED if item.type == value.type), "s")

    def abandoned(statement):
        with table.begin() as txn:
            statement(txn)
            txn.abort()

    yield "filter", lambda: table.to_pyarrow_table(filters=f"({text}) IS NOT NULL")
    yield "count", lambda: table.count(f"NOT (({text}) IS NULL)")
    if value.type == BOOLEAN:
        yield "predicate", lambda: table.to_pyarrow_table(filters=text)
        yield "delete", lambda: abandoned(lambda txn: txn.delete(text))
    yield "SELECT", lambda: refdelta.sql(f"SELECT {text} AS r FROM t", t=table)
    yield "UPDATE", lambda: abandoned(lambda txn: txn.update({target: text}))
    on = f"s.k = t.i AND (({text}) IS NULL OR TRUE)"
    yield "ON", lambda: abandoned(lambda txn: txn.merge(SOURCE, on).when_matched_delete().execute())
    new = {target: text}
    yield "SET", lambda: abandoned(lambda txn: txn.merge(SOURCE, "s.k = t.i").when_matched_update(new).execute())
    check = f"({text}) IS NULL OR TRUE"
    yield "constraint", lambda: abandoned(lambda txn: txn.add_constraint({"c": check}))
    if not columns(value):
        schema = pa.schema({"x": pa.int32(), "d": arrow_type(value.type)})
        yield "DEFAULT", lambda: filled(schema, defaults={"d": text}, configuration=DEFAULTS)
    elif is_numeric(value.type) or value.type == BOOLEAN:
        schema = pa.schema([*to_arrow(STORED), pa.field("made", arrow_type(value.type))])
        yield "generated", lambda: filled(schema, generated={"made": text})


def filled(schema, **declared):
    """A new table with rows in which one column has no values."""
    with tempfile.TemporaryDirectory() as folder:
        table = DeltaTable.create(folder, schema, **declared)
        one = pa.table({"x": pa.array([1], pa.int32())})
        rows = one if "x" in schema.names else pa.Table.from_batches([batch().select(STORED.names)])
        write_deltalake(table, rows, mode="append")
        refdelta.settle()


def test_statements_refuse_an_expression_or_evaluate_it(made):
    wrong = {}
    for text, value in accepted():
        for use, statement in uses(made, text, value):
            try:
                statement()
            except (DataFileError, InternalError) as error:
                wrong[text, use] = error
            except DeltaError as error:
                if isinstance(error, ExpressionError) and error.__cause__ is not None:
                    wrong[text, use] = error
            except Exception as error:
                wrong[text, use] = error
    assert wrong == {}


DOORS = {
    "read": lambda table, text: table.to_pyarrow_table(filters=text),
    "count": lambda table, text: table.count(text),
    "delete": lambda table, text: table.delete(text),
    "update": lambda table, text: table.update({"k": "2"}, predicate=text),
    "overwrite": lambda table, text: write_deltalake(table, pa.table({"k": [1]}), mode="overwrite", predicate=text),
    "ON": lambda table, text: table.merge(SOURCE, text, "s", "t").when_matched_delete().execute(),
    "WHEN": lambda table, text: table.merge(SOURCE, "s.k = t.k").when_matched_delete(text).execute(),
    "constraint": lambda table, text: table.alter.add_constraint({"c": text}),
    "WHERE": lambda table, text: refdelta.sql(f"SELECT 1 AS one FROM t WHERE {text}", t=table),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_predicate_that_is_no_condition_is_refused_by_its_type(tmp_path, door):
    write_deltalake(tmp_path, pa.table({"k": [1], "name": ["a"]}))
    for text, kind in (
        ("t.k" if door in ("ON", "WHEN") else "k", "long"),
        ("NOT 1 + 1", "integer"),
        ("(name)", "string"),
    ):
        with pytest.raises(PredicateError, match=f"{kind}, where a condition is expected"):
            DOORS[door](DeltaTable(tmp_path), text)
    assert DeltaTable(tmp_path).version() == 0


def test_a_row_for_which_an_expression_of_pyarrow_fails_is_no_damage_of_the_file(tmp_path):
    write_deltalake(tmp_path, pa.table({"k": [1, 0]}))
    with pytest.raises(ExpressionError, match="divide by zero"):
        DeltaTable(tmp_path).to_pyarrow_table(filters=pc.scalar(1) / pc.field("k") > 0)
