"""Columns of type void, which had only nulls so far: how they get a type, and what says so where they do not.

Tests of operations.merge.plan, operations.alter.columns, table.evolution.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, sql, verify, write_deltalake

INNER = pa.struct([("a", pa.int64()), ("v", pa.null())])
FIRST = pa.table({"k": [1, 2], "note": pa.nulls(2), "s": pa.array([{"a": 1, "v": None}, None], INNER)})
SOURCE = pa.table({"k": [1, 9], "note": ["x", "y"], "s": [{"a": 5, "v": "in"}, {"a": 6, "v": "new"}]})
PROPERTIES = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "id"},
}


@pytest.fixture(params=PROPERTIES)
def table(tmp_path, request):
    write_deltalake(tmp_path, FIRST, configuration=PROPERTIES[request.param])
    return DeltaTable(tmp_path)


def rows(table):
    assert list(verify(table.table_uri).findings) == []
    return DeltaTable(table.table_uri).to_pyarrow_table().sort_by("k").to_pylist()


NEW = {"k": 9, "note": "y", "s": {"a": 6, "v": "new"}}
MERGES = {
    "all columns": (
        lambda merge: merge.when_matched_update_all().when_not_matched_insert_all(),
        [{"k": 1, "note": "x", "s": {"a": 5, "v": "in"}}, {"k": 2, "note": None, "s": None}, NEW],
    ),
    "a column": (
        lambda merge: merge.when_matched_update({"note": "upper(s.note)"}),
        [{"k": 1, "note": "X", "s": {"a": 1, "v": None}}, {"k": 2, "note": None, "s": None}],
    ),
    "a field": (
        lambda merge: merge.when_matched_update({"t.s.v": "s.s.v"}),
        [{"k": 1, "note": None, "s": {"a": 1, "v": "in"}}, {"k": 2, "note": None, "s": None}],
    ),
    "an insert": (
        lambda merge: merge.when_not_matched_insert({"k": "s.k", "note": "s.note", "s": "s.s"}),
        [{"k": 1, "note": None, "s": {"a": 1, "v": None}}, {"k": 2, "note": None, "s": None}, NEW],
    ),
}


@pytest.mark.parametrize("clauses", MERGES)
def test_a_merge_with_evolution_gives_a_void_column_the_type_of_the_source(table, clauses):
    add, expected = MERGES[clauses]
    add(table.merge(SOURCE, "s.k = t.k", "s", "t", merge_schema=True)).execute()
    assert rows(table) == expected


def test_a_field_of_a_void_column_makes_it_a_struct_of_that_field(table):
    source = pa.table({"k": [1], "note": [{"x": 1, "y": 2}]})
    table.merge(source, "s.k = t.k", merge_schema=True).when_matched_update({"note.x": "s.note.x"}).execute()
    assert [row["note"] for row in rows(table)] == [{"x": 1}, None]


def test_a_void_column_changes_to_any_type_without_type_widening(table):
    table.alter.change_type("note", pa.map_(pa.string(), pa.int64()))
    sql("ALTER TABLE t ALTER COLUMN s.v TYPE ARRAY<DECIMAL(5, 2)>", t=table)
    write_deltalake(
        table, pa.table({"k": [3], "note": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}), mode="append"
    )
    assert [row["note"] for row in rows(table)] == [None, None, [("a", 1)]]
    assert str(table.schema().struct.field("s").type) == "struct<a: long,v: array<decimal(5,2)>>"
    with pytest.raises(errors.SchemaMismatchError, match="not wider"):
        table.alter.change_type("note", "string")


def test_insert_with_schema_evolution(table):
    sql("INSERT WITH SCHEMA EVOLUTION INTO t (k, note) VALUES (3, 'x')", t=table)
    sql("INSERT WITH SCHEMA EVOLUTION INTO t BY NAME SELECT 4 AS k, 7 AS more", t=table)
    assert [(row["note"], row["more"]) for row in rows(table)] == [(None, None), (None, None), ("x", None), (None, 7)]


REFUSED = {
    "append": lambda table: write_deltalake(table, SOURCE, mode="append"),
    "INSERT": lambda table: sql("INSERT INTO t (k, note) VALUES (3, 'x')", t=table),
    "UPDATE": lambda table: table.update({"note": "'x'"}),
    "UPDATE of a field": lambda table: table.update({"s.v": "1"}),
    "UPDATE by a value": lambda table: table.update(new_values={"note": "x"}),
    "MERGE": lambda table: table.merge(SOURCE, "s.k = t.k").when_matched_update({"note": "s.note"}).execute(),
    "MERGE of all": lambda table: table.merge(SOURCE, "s.k = t.k").when_matched_update_all().execute(),
    "MERGE of another column": lambda table: (
        table.merge(pa.table({"k": [1], "other": ["z"]}), "s.k = t.k", merge_schema=True)
        .when_matched_update({"note": "s.other"})
        .execute()
    ),
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_gives_no_type_names_the_way_out(tmp_path, statement):
    write_deltalake(tmp_path, FIRST)
    table = DeltaTable(tmp_path)
    with pytest.raises((errors.SchemaMismatchError, errors.InvalidArgumentError), match=r"alter\.change_type\(\)"):
        REFUSED[statement](table)
    assert table.version() == 0
    table.update({"note": "NULL", "s.v": "NULL"})
