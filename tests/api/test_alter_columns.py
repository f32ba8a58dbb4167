"""ALTER TABLE on columns that are there: names, places, types, nulls.

Tests of operations.alter.columns, operations.shared.property_rules, table.schema_edit.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.schema import Schema
from refdelta.table.types import field_id, physical_name
from written_tables import schema_of

NESTED = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.int16())])))])
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "s": pa.array([{"x": 1, "y": [{"z": 1}, None]}, None, {"x": None, "y": None}], NESTED),
        "part": pa.array(["a", None, "b"]),
        "d": pa.array([dt.date(2020, 1, 1), None, dt.date(1969, 12, 31)]),
    }
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t"


def make(path, data=ROWS, partition_by=("part",), mode="name", **configuration):
    given = {"delta.columnMapping.mode": mode, **{f"delta.{key}": value for key, value in configuration.items()}}
    write_deltalake(path, data, partition_by=list(partition_by), configuration=given)
    return DeltaTable(path)


def rows(path, by="id"):
    return DeltaTable(path).to_pyarrow_table().sort_by(by).to_pylist()


def last_info(path):
    table = DeltaTable(path)
    lines = (path / "_delta_log" / f"{table.version():020d}.json").read_text().splitlines()
    return next(json.loads(line)["commitInfo"] for line in lines if "commitInfo" in line)


@pytest.mark.tier("test")
@pytest.mark.parametrize("mode", ["name", "id"])
def test_renaming_changes_no_file(path, mode):
    table = make(path, mode=mode, dataSkippingStatsColumns="id,s.x")
    before, files = schema_of(path), sorted(DeltaTable(path).file_uris())
    table.alter.rename_column("ID", "no. (1)")
    table.alter.rename_column("s.y.element.z", "deep")
    table.alter.rename_column("s.x", "X")
    table.alter.rename_column("part", "p q")
    after = schema_of(path)
    assert after.names == ["no. (1)", "s", "p q", "d"]
    assert [physical_name(f) for f in after] == [physical_name(f) for f in before]
    assert [field_id(f) for f in after] == [field_id(f) for f in before]
    assert sorted(DeltaTable(path).file_uris()) == files
    assert DeltaTable(path).metadata().partition_columns == ["p q"]
    assert DeltaTable(path).metadata().configuration["delta.dataSkippingStatsColumns"] == "`no. (1)`,s.X"
    assert last_info(path)["operation"] == "RENAME COLUMN"
    assert last_info(path)["operationParameters"] == {"oldColumnPath": "part", "newColumnPath": "`p q`"}
    found = rows(path, "no. (1)")
    assert found[0]["s"] == {"X": 1, "y": [{"deep": 1}, None]}
    assert [row["p q"] for row in found] == ["a", None, "b"]
    # The freed name is another column's, and the old versions have their own.
    table.alter.add_columns(pa.field("id", pa.string()))
    write_deltalake(path, pa.table({"no. (1)": pa.array([4], pa.int32()), "id": ["new"], "p q": ["a"]}), mode="append")
    assert [row["id"] for row in rows(path, "no. (1)")] == [None, None, None, "new"]
    assert DeltaTable(path, version=0).to_pyarrow_table().sort_by("id").equals(ROWS)
    assert DeltaTable(path).to_pyarrow_table(filters="`p q` = 'a' AND `no. (1)` > 1").num_rows == 1
    DeltaTable(path).delete("`no. (1)` = 1")
    DeltaTable(path).update({"s.X": "7"}, predicate="`no. (1)` = 3")
    DeltaTable(path).restore(1)
    assert [row["s"] and row["s"]["x"] for row in rows(path, "no. (1)")] == [1, None, None]


def test_a_dropped_column_never_comes_back(path):
    table = make(path, dataSkippingStatsColumns="id,s.x,d")
    result = table.alter.drop_columns(["s.x", "d", "no such one"], if_exists=True)
    assert result.version == 1
    assert schema_of(path).names == ["id", "s", "part"]
    assert table.metadata().configuration["delta.dataSkippingStatsColumns"] == "id"
    assert last_info(path)["operationParameters"] == {"columns": '["s.x","d"]'}
    assert rows(path)[0]["s"] == {"y": [{"z": 1}, None]}
    table.alter.add_columns([pa.field("d", pa.date32()), pa.field("s.x", pa.int32())])
    assert [row["d"] for row in rows(path)] == [None] * 3
    assert [row["s"] and row["s"]["x"] for row in rows(path)] == [None] * 3
    assert table.alter.drop_columns("no such one", if_exists=True).version is None


def test_what_cannot_be_renamed_or_dropped(path, tmp_path):
    write_deltalake(path, ROWS)
    for change in (lambda t: t.alter.rename_column("id", "x"), lambda t: t.alter.drop_columns("id")):
        with pytest.raises(errors.InvalidArgumentError, match=r"delta\.columnMapping\.mode=name"):
            change(DeltaTable(path))
    other = tmp_path / "mapped"
    table = make(other)
    with pytest.raises(errors.SchemaMismatchError, match="same name"):
        table.alter.rename_column("id", "D")
    with pytest.raises(errors.ColumnNotFoundError, match="nothing"):
        table.alter.rename_column("nothing", "x")
    with pytest.raises(errors.InvalidArgumentError, match="is not a column or field"):
        table.alter.rename_column("s.y.element", "x")
    with pytest.raises(errors.InvalidArgumentError, match="it is a partition column"):
        table.alter.drop_columns("part")
    with pytest.raises(errors.InvalidArgumentError, match="all columns except the partition columns"):
        table.alter.drop_columns(["id", "s", "d"])
    with pytest.raises(errors.InvalidArgumentError, match="the only one left"):
        table.alter.drop_columns("s.y.element.z")
    assert DeltaTable(other).version() == 0
    clustered = tmp_path / "clustered"
    write_deltalake(clustered, ROWS, cluster_by=["s.x"], configuration={"delta.columnMapping.mode": "name"})
    DeltaTable(clustered).alter.rename_column("s", "t")
    assert DeltaTable(clustered)._handle.snapshot.clustering_columns == (("t", "x"),)
    for column in ("t", "t.x"):
        with pytest.raises(errors.InvalidArgumentError, match="clustered by it"):
            DeltaTable(clustered).alter.drop_columns(column)
    table = DeltaTable(other)
    table.alter.add_constraint({"positive": "`id` > 0"})
    for change in (
        lambda: table.alter.rename_column("id", "x"),
        lambda: table.alter.drop_columns("id"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="constraint 'positive' depends on it"):
            change()


WIDENED = {
    "b": (pa.int8(), "smallint", pa.int16(), 100, 30_000),
    "h": (pa.int16(), "double", pa.float64(), 300, 0.5),
    "i": (pa.int32(), pa.int64(), pa.int64(), 2**31 - 1, 2**62),
    "i2": (pa.int32(), "decimal(12,2)", pa.decimal128(12, 2), 7, Decimal("0.25")),
    "l": (pa.int64(), "decimal(20,0)", pa.decimal128(20, 0), 2**62, Decimal(2) ** 63),
    "f": (pa.float32(), "double", pa.float64(), 0.5, 1e300),
    "m": (pa.decimal128(5, 2), "decimal(9,4)", pa.decimal128(9, 4), Decimal("1.25"), Decimal("1.0001")),
    "d": (pa.date32(), "timestamp_ntz", pa.timestamp("us"), dt.date(1960, 2, 29), dt.datetime(2020, 1, 1, 1, 2, 3)),
}


@pytest.mark.tier("test")
def test_every_widening(path):
    old = pa.table({name: pa.array([value, None], kind) for name, (kind, _, _, value, _) in WIDENED.items()})
    write_deltalake(path, old, configuration={"delta.enableTypeWidening": "true"})
    table = DeltaTable(path)
    for name, (_, given, *_) in WIDENED.items():
        table.alter.change_type(name, given)
    schema = pa.schema([(name, kind) for name, (_, _, kind, *_) in WIDENED.items()])
    assert table.to_pyarrow_table().schema == schema
    new = pa.table({name: pa.array([value], kind) for name, (_, _, kind, _, value) in WIDENED.items()})
    write_deltalake(path, new, mode="append")
    found = DeltaTable(path).to_pyarrow_table()
    assert sorted(found.column("i").to_pylist(), key=lambda v: v or 0) == [None, 2**31 - 1, 2**62]
    for name, (_, _, kind, narrow, more) in WIDENED.items():
        value = dt.datetime(1960, 2, 29) if name == "d" else narrow
        assert set(found.column(name).to_pylist()) == {None, value, more}
        literal = pa.scalar(value, kind)
        assert DeltaTable(path).to_pyarrow_table(filters=pa.compute.field(name) == literal).num_rows == 1
    (change,) = schema_of(path).field("m").metadata["delta.typeChanges"]
    assert change == {"fromType": "decimal(5,2)", "toType": "decimal(9,4)"}
    DeltaTable(path).optimize.compact()
    assert DeltaTable(path).to_pyarrow_table().sort_by("i").equals(found.sort_by("i"))


def test_types_change_within_arrays_maps_and_structs(path):
    data = pa.table(
        {
            "a": pa.array([[[1], None]], pa.list_(pa.list_(pa.int8()))),
            "m": pa.array([[(1, 2.5)]], pa.map_(pa.int16(), pa.float32())),
            "s": pa.array([[{"d": dt.date(2000, 1, 1)}]], pa.list_(pa.struct([("d", pa.date32())]))),
        }
    )
    write_deltalake(path, data, configuration={"delta.enableTypeWidening": "true", "delta.columnMapping.mode": "id"})
    table = DeltaTable(path)
    table.alter.change_type("a.element.element", "int")
    table.alter.change_type("a.element.element", "bigint")
    table.alter.change_type("m.key", "int")
    table.alter.change_type("m.value", pa.float64())
    table.alter.change_type("s.element.d", "timestamp_ntz")
    schema = schema_of(path)
    assert schema.field("a").metadata["delta.typeChanges"] == [
        {"fromType": "byte", "toType": "integer", "fieldPath": "element.element"},
        {"fromType": "integer", "toType": "long", "fieldPath": "element.element"},
    ]
    assert [change["fieldPath"] for change in schema.field("m").metadata["delta.typeChanges"]] == ["key", "value"]
    assert "delta.typeChanges" not in schema.field("s").metadata
    (inner,) = schema.field("s").type.element
    assert inner.metadata["delta.typeChanges"] == [{"fromType": "date", "toType": "timestamp_ntz"}]
    assert table.to_pyarrow_table().to_pylist() == [
        {"a": [[1], None], "m": [(1, 2.5)], "s": [{"d": dt.datetime(2000, 1, 1)}]}
    ]
    assert {"typeWidening", "timestampNtz", "columnMapping"} <= set(table.protocol().reader_features)


@pytest.mark.parametrize(
    ("column", "new", "said"),
    [
        ("id", "string", "is not wider than"),
        ("id", "short", "is not wider than"),
        ("d", "timestamp", "is not wider than"),
        ("id", "decimal(9,0)", "is not wider than"),
        ("s", pa.int64(), "is not wider than"),
        ("id", "intt", "primitive type 'intt' does not exist; did you mean 'int'"),
        ("id", 3, "a type must be an Arrow type"),
    ],
)
def test_other_types_are_refused(path, column, new, said):
    table = make(path, enableTypeWidening="true")
    with pytest.raises((errors.SchemaMismatchError, errors.InvalidArgumentError), match=said):
        table.alter.change_type(column, new)
    assert DeltaTable(path).version() == 0


def test_types_change_only_where_the_table_says_so(path):
    table = make(path)
    with pytest.raises(errors.InvalidArgumentError, match=r"delta\.enableTypeWidening=true"):
        table.alter.change_type("id", "bigint")
    table.alter.set_table_properties({"delta.enableTypeWidening": "true"})
    table.alter.change_type("part", "string")  # its own type
    assert DeltaTable(path).version() == 1
    wider = ROWS.slice(0, 1).set_column(0, "id", pa.array([2**40]))
    write_deltalake(path, wider, mode="append", schema_mode="merge")
    assert schema_of(path).field("id").metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    assert [row["id"] for row in rows(path)] == [1, 2, 3, 2**40]


def test_columns_that_others_are_made_from(path):
    long = {"type": "long", "nullable": True}
    fields = [
        {"name": "a", "metadata": {}, **long},
        {"name": "g", "metadata": {"delta.generationExpression": "`a` + 1"}, **long},
        {"name": "free", "metadata": {}, "type": "integer", "nullable": True},
    ]
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
    configuration = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    table = DeltaTable.create(path, schema, configuration=configuration)
    for change in (
        lambda: table.alter.rename_column("a", "b"),
        lambda: table.alter.drop_columns("a"),
        lambda: table.alter.change_type("a", "decimal(20,0)"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=r"column 'g' .* depends on it"):
            change()
    with pytest.raises(errors.InvalidArgumentError, match="a generated or an identity column"):
        table.alter.change_type("g", "decimal(20,0)")
    table.alter.change_type("free", "long")
    table.alter.rename_column("g", "G 2")
    write_deltalake(path, pa.table({"a": [1], "free": [2**40]}), mode="append")
    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"a": 1, "G 2": 2, "free": 2**40}]


def test_fields_whose_lengths_are_noted_outside(path):
    note = {"__CHAR_VARCHAR_TYPE_STRING": "struct<short:varchar(3),n:int>"}
    inner = [{"name": name, "type": kind, "nullable": True, "metadata": {}}
             for name, kind in (("short", "string"), ("n", "integer"))]  # fmt: skip
    field = {"name": "s", "type": {"type": "struct", "fields": inner}, "nullable": True, "metadata": note}
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": [field]}))
    table = DeltaTable.create(path, schema, configuration={"delta.columnMapping.mode": "name"})
    for change in (lambda: table.alter.rename_column("s.short", "x"), lambda: table.alter.drop_columns("s.short")):
        with pytest.raises(errors.InvalidArgumentError, match="declaration of column 's' depends on it"):
            change()
    table.alter.rename_column("s", "t")
    with pytest.raises(errors.ConstraintViolationError):
        write_deltalake(path, pa.table({"t": pa.array([{"short": "long"}])}), mode="append")


def test_nulls(path):
    table = make(path)
    with pytest.raises(errors.ConstraintViolationError, match="d is null in 1 rows"):
        table.alter.set_nullable("d", False)
    with pytest.raises(errors.ConstraintViolationError, match=r"s\.x is null in 1 rows"):
        table.alter.set_nullable("s.x", False)
    with pytest.raises(errors.InvalidArgumentError, match="within an array"):
        table.alter.set_nullable("s.y.element.z", False)
    table.alter.set_nullable("id", False)
    assert not schema_of(path).field("id").nullable
    with pytest.raises(errors.ConstraintViolationError, match="id"):
        write_deltalake(path, pa.table({"id": pa.array([None], pa.int32())}), mode="append")
    assert table.alter.set_nullable("id", False).version is None
    assert last_info(path)["operation"] == "CHANGE COLUMN"
    table.alter.drop_column_not_null("id")
    write_deltalake(path, pa.table({"id": pa.array([None], pa.int32())}), mode="append")
    assert DeltaTable(path).to_pyarrow_table(filters="id is null").num_rows == 1


def test_a_null_that_is_added_meanwhile(path):
    table = make(path)
    with table.begin() as txn:
        txn.set_nullable("id", False)
        write_deltalake(path, pa.table({"id": pa.array([None], pa.int32())}), mode="append")
        with pytest.raises(errors.ConcurrentModificationError):
            txn.commit()


def test_columns_move(path):
    write_deltalake(path, ROWS)  # not mapped: columns are found by their names
    table = DeltaTable(path)
    table.alter.move_column("d")
    table.alter.move_column("id", after="PART")
    table.alter.move_column("s.y")
    assert table.schema().names == ["d", "s", "part", "id"]
    assert [row["s"] for row in rows(path)] == [{"y": [{"z": 1}, None], "x": 1}, None, {"y": None, "x": None}]
    assert table.alter.move_column("id", after="part").version is None
    with pytest.raises(errors.ColumnNotFoundError):
        table.alter.move_column("id", after="nothing")
