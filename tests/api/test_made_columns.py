"""Columns to which the table gives values: generated ones and defaults, on every path that writes rows.

Tests of operations.write.column_declarations.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import refdelta
from refdelta import DeltaTable, Schema, errors, write_deltalake
from refdelta.operations.write.prepared_files import AddAction
from refdelta.table.types import (
    BINARY,
    BYTE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("a", pa.int64()),
        pa.field("day", pa.date32()),
        pa.field("twice", pa.int64(), nullable=False),
        ("n", pa.int32()),
        pa.field("s", pa.string(), nullable=False),
    ]
)
GENERATED = {"day": "CAST(at AS DATE)", "twice": "coalesce(a, 0) * 2"}
DEFAULTS = {"n": "7", "s": "concat('x', 'y')"}


@pytest.fixture(params=["false", "true"], ids=["copies", "vectors"])
def table(request, tmp_path):
    return DeltaTable.create(
        tmp_path / "t",
        SCHEMA,
        partition_by="day",
        generated=GENERATED,
        defaults=DEFAULTS,
        configuration={"delta.enableDeletionVectors": request.param},
    )


def moment(day):
    return dt.datetime(2024, 1, day, 12, tzinfo=dt.UTC)


def rows(table):
    order = table.schema().names
    found = table.to_pyarrow_table().select(order).sort_by("a").to_pylist()
    for row in found:
        assert row.pop("day") == (row["at"] and row["at"].date())
        assert row.pop("twice") == (row["a"] or 0) * 2
        row["at"] = row["at"] and row["at"].day
    return [tuple(row.values()) for row in found]


def data(*given, **more):
    return pa.table(
        {"at": pa.array([moment(at) for at, _ in given], SCHEMA.field("at").type), "a": [a for _, a in given]} | more
    )


def test_what_a_writer_leaves_out_is_made(table):
    write_deltalake(table, data((1, 1), (2, 2)), mode="append")
    write_deltalake(table, data((3, 3), n=pa.array([8], "int32")), mode="append")
    write_deltalake(table, pa.table({"S": ["given"], "n": pa.array([None], "int32"), "twice": [0]}), mode="append")
    assert rows(table) == [(1, 1, 7, "xy"), (2, 2, 7, "xy"), (3, 3, 8, "xy"), (None, None, None, "given")]
    write_deltalake(table, data((1, 9), (2, 8)), mode="overwrite", partition_overwrite="dynamic")
    write_deltalake(table, data((3, 7)), mode="overwrite", predicate="day = '2024-01-03'")
    with table.begin() as txn:
        txn.append(data((4, 6)))
        txn.commit()
    assert [row[:2] for row in rows(table)] == [(4, 6), (3, 7), (2, 8), (1, 9), (None, None)]
    write_deltalake(table, data((1, 1), new=[5]), mode="append", schema_mode="merge")
    assert rows(table)[0] == (1, 1, 7, "xy", 5)
    write_deltalake(table, data((5, 5)), mode="overwrite")
    assert rows(table) == [(5, 5, 7, "xy", None)]
    assert table.partitions() == [{"day": dt.date(2024, 1, 5)}]


def test_what_is_given_is_what_the_expression_makes(table):
    for wrong in (
        data((1, 1), twice=[3]),
        data((1, 1), day=[dt.date(2024, 1, 2)]),
        data((1, 1), day=pa.nulls(1, pa.date32())),
    ):
        with pytest.raises(
            errors.ConstraintViolationError, match=r"the expression of the generated column (twice|day) \("
        ):
            write_deltalake(table, wrong, mode="append")
    with pytest.raises(errors.ConstraintViolationError, match="column s is not null"):
        write_deltalake(table, data((1, 1), s=pa.nulls(1, "string")), mode="append")
    assert table.version() == 0
    write_deltalake(table, data((1, 1), twice=[2], day=[dt.date(2024, 1, 1)]), mode="append")
    assert rows(table) == [(1, 1, 7, "xy")]
    with pytest.raises(errors.ConstraintViolationError, match="generated column twice"):
        table.update({"twice": "twice + 1"})


@pytest.mark.tier("test")
def test_updates_and_merges_keep_generated_columns_right(table):
    write_deltalake(table, data((1, 1), (2, 2), (3, 3)), mode="append")
    table.update({"a": "a + 10", "at": "TIMESTAMP '2024-01-09 00:00:00'", "n": "DEFAULT"}, predicate="a = 1")
    table.update({"n": "1", "s": "'z'"}, predicate="a = 2")
    table.update({"n": "default", "twice": "DEFAULT"}, predicate="a = 2")
    table.update(new_values={"a": 12}, predicate="a = 3")
    assert rows(table) == [(2, 2, 7, "z"), (9, 11, 7, "xy"), (3, 12, 7, "xy")]
    source = pa.table({"k": [2, 5, 6], "v": [20, 50, 60]})
    (
        table.merge(source, "s.k = t.a")
        .when_matched_update({"a": "s.v", "s": "DEFAULT"})
        .when_not_matched_insert({"a": "s.v"}, predicate="s.k = 5")
        .when_not_matched_insert({"a": "s.v", "n": "default", "s": "'q'", "twice": "s.v * 2"})
        .when_not_matched_by_source_update({"at": "NULL"}, predicate="t.a = 12")
        .execute()
    )
    assert rows(table) == [
        (9, 11, 7, "xy"), (None, 12, 7, "xy"), (2, 20, 7, "xy"), (None, 50, 7, "xy"), (None, 60, 7, "q"),
    ]  # fmt: skip
    with pytest.raises(errors.ConstraintViolationError, match="generated column twice"):
        table.merge(source, "false").when_not_matched_insert({"a": "s.v", "twice": "1"}).execute()
    with pytest.raises(errors.ConstraintViolationError, match="column s is not null"):
        table.merge(source, "false").when_not_matched_insert({"s": "NULL"}).execute()
    table.optimize.compact()
    table.delete("a < 50")
    assert rows(table) == [(None, 50, 7, "xy"), (None, 60, 7, "q")]


def test_defaults_are_set_and_dropped(table):
    table.alter.set_default("A", "1 + 1")
    info = table.history(1)[0]
    assert info["operation"] == "CHANGE COLUMN"
    assert '"CURRENT_DEFAULT":"1 + 1"' in info["operationParameters"]["column"]
    table.alter.drop_default("n")
    write_deltalake(table, pa.table({"at": pa.nulls(1, SCHEMA.field("at").type)}), mode="append")
    assert rows(table) == [(None, 2, None, "xy")]
    assert table.alter.drop_default("n").version is None
    for column, sql in (
        ("n", "'x'"),
        ("n", "a"),
        ("day", "NULL"),
        ("nope", "1"),
        ("n", "10000000000"),
        ("n", "1 +"),
        ("n", 1),
    ):
        with pytest.raises(errors.InvalidArgumentError):
            table.alter.set_default(column, sql)
    with pytest.raises(errors.InvalidArgumentError, match="CURRENT_DEFAULT"):
        table.alter.add_columns(StructField("new", LONG, metadata={"CURRENT_DEFAULT": "1"}))


def test_a_default_brings_its_feature(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"a": [1], "b": [1]}))
    table = DeltaTable(tmp_path / "t")
    table.alter.set_default("b", "-1")
    assert "allowColumnDefaults" in table.protocol().writer_features
    write_deltalake(tmp_path / "t", pa.table({"a": [2]}), mode="append")
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("a").to_pydict() == {"a": [1, 2], "b": [1, -1]}


def test_defaults_of_all_types(tmp_path):
    long = {"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}
    kinds: dict[str, tuple[Any, str, Any]] = {
        "struct": (StructType((StructField("x", LONG),)), "NULL", None),
        "array": (ArrayType(LONG), "null", None),
        "char": (STRING, "'ab'", "ab  "),
        "binary": (BINARY, "X'0102'", b"\1\2"),
        "decimal": (DecimalType(5, 2), "1.5", Decimal("1.50")),
        "instant": (TIMESTAMP, "TIMESTAMP '2020-01-01 00:00:00'", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        "float": (FLOAT, "1.5", 1.5),
        "byte": (BYTE, "3", 3),
    }
    fields = [StructField(name, kind, metadata=long if name == "char" else {}) for name, (kind, *_) in kinds.items()]
    schema = Schema(StructType((StructField("a", LONG), *fields)))
    table = DeltaTable.create(tmp_path / "t", schema, defaults={name: sql for name, (_, sql, _) in kinds.items()})
    write_deltalake(table, pa.table({"a": [1]}), mode="append")
    assert table.to_pyarrow_table().to_pylist() == [{"a": 1} | {name: value for name, (*_, value) in kinds.items()}]
    with pytest.raises(errors.InvalidArgumentError, match="'abcde' cannot be the default of column 'char'"):
        table.alter.set_default("char", "'abcde'")


def test_the_time_of_a_default_is_that_of_the_write(tmp_path):
    schema = pa.schema([("a", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    table = DeltaTable.create(tmp_path / "t", schema, defaults={"t": "current_timestamp()"})
    before = dt.datetime.now(dt.UTC)
    write_deltalake(table, pa.table({"a": [1]}), mode="append")
    (found,) = table.to_pyarrow_table()["t"].to_pylist()
    assert before - dt.timedelta(milliseconds=1) <= found <= dt.datetime.now(dt.UTC)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"generated": {"a": "nope"}}, "columns that are not generated themselves"),
        ({"generated": {"a": "a + 1"}}, "columns that are not generated themselves"),
        ({"generated": {"a": "twice", "twice": "1L"}}, "columns that are not generated themselves"),
        ({"generated": {"n": "a"}}, "is integer, and its expression .* is long; cast it"),
        ({"generated": {"day": "current_date()"}}, "depends on the time"),
        ({"generated": {"nope": "1"}}, "'nope' does not exist"),
        ({"generated": {"a": 1}}, "a string of SQL"),
        ({"generated": "a"}, "generated"),
        ({"generated": {"a": "twice"}, "defaults": {"a": "1"}}, "declare only one of them"),
        ({"defaults": {"a": "twice"}}, "a column that does not exist"),
        ({"defaults": {"a": "'x'"}}, "cannot be the default of column 'a', a long"),
        ({"defaults": {"n": "1 / 0"}}, "cannot be the default"),
    ],
)
def test_what_cannot_be_declared_is_refused(tmp_path, declared, said):
    with pytest.raises(errors.InvalidArgumentError, match=said):
        DeltaTable.create(tmp_path / "t", SCHEMA, **declared)
    assert not DeltaTable.is_deltatable(tmp_path / "t")


def test_an_expression_beyond_our_sql_is_refused_by_name(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match=r"column 's' cannot be generated.*REFLECT"):
        DeltaTable.create(tmp_path / "t", SCHEMA, generated={"s": "reflect('a', 'b')"})


def test_declarations_of_deltalake_are_understood(tmp_path):
    fields = [
        deltalake.Field("a", "long"),
        deltalake.Field("g", "long", True, {"delta.generationExpression": "a * 3"}),
        deltalake.Field("d", "long", True, {"CURRENT_DEFAULT": "4"}),
    ]
    table = DeltaTable.create(tmp_path / "t", deltalake.Schema(fields))
    write_deltalake(table, pa.table({"a": [1]}), mode="append")
    assert table.to_pyarrow_table().to_pylist() == [{"a": 1, "g": 3, "d": 4}]
    deltalake.DeltaTable.create(tmp_path / "h", deltalake.Schema(fields[:2]))
    write_deltalake(tmp_path / "h", pa.table({"a": [2]}), mode="append")
    assert DeltaTable(tmp_path / "h").to_pyarrow_table().to_pylist() == [{"a": 2, "g": 6}]


@pytest.mark.breaks_tables
def test_files_that_nobody_looked_into_are_refused(tmp_path):
    given = AddAction(path="x.parquet", size=1, partition_values={}, modification_time=1)
    plain = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    generated = DeltaTable.create(tmp_path / "g", plain, generated={"b": "a"})
    with pytest.raises(errors.UnsupportedFeatureError, match="generatedColumns"):
        generated.create_write_transaction([given], "append", refdelta.Schema.from_arrow(plain))
    defaults = DeltaTable.create(tmp_path / "d", plain, defaults={"b": "1"})
    with pytest.raises(errors.UnsupportedFeatureError, match="allowColumnDefaults"):
        defaults.create_write_transaction([given], "append", refdelta.Schema.from_arrow(pa.schema([plain.field("a")])))
    defaults.create_write_transaction([given], "append", refdelta.Schema.from_arrow(plain))


@pytest.mark.breaks_tables
def test_marks_mean_nothing_where_the_protocol_lacks_their_feature(tmp_path):
    from handmade import Handmade, field, struct
    from refdelta_storage import LocalStore

    marks = {"delta.generationExpression": "a + 1"}
    schema = struct(field("a", "long"), field("b", "long", **marks), field("c", "long", CURRENT_DEFAULT="nope("))
    Handmade(schema, store=LocalStore(tmp_path), protocol={"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    write_deltalake(tmp_path, pa.table({"a": [1]}), mode="append")
    assert DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [{"a": 1, "b": None, "c": None}]


MADE_PART = {"name": "g", "type": "long", "nullable": True, "metadata": {"delta.generationExpression": "1"}}


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "struct", "fields": [MADE_PART]},
        {"type": "array", "elementType": {"type": "struct", "fields": [MADE_PART]}, "containsNull": True},
        {
            "type": "struct",
            "fields": [
                {"name": "s", "type": {"type": "struct", "fields": [MADE_PART]}, "nullable": True, "metadata": {}}
            ],
        },
    ],
)
def test_only_whole_columns_can_be_generated(tmp_path, kind):
    schema = {"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}
    with pytest.raises(errors.InvalidArgumentError, match="a part of column 'c' is declared as generated"):
        DeltaTable.create(tmp_path, Schema.from_json(json.dumps(schema)))
    assert not DeltaTable.is_deltatable(tmp_path)
