"""Changes of properties and columns.

Tests of operations.alter.properties.
"""

from __future__ import annotations

import json

import deltalake
import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.table.types import INTEGER, StructField


def info_of(table):
    return table.history(1)[0]


@pytest.fixture
def table(tmp_path):
    nested = pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())]))
    listed = pa.array([[{"y": 1}], None], pa.list_(pa.struct([("y", pa.int64())])))
    mapped = pa.array([[("k", {"z": 1})], None], pa.map_(pa.string(), pa.struct([("z", pa.int64())])))
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "s": nested, "a": listed, "m": mapped}))
    return DeltaTable(tmp_path / "t")


# --- properties ---


def test_setting_properties_keeps_the_others_and_says_what_was_set(table):
    table.alter.set_table_properties({"delta.checkpointInterval": 7, "mine": "yes"})
    result = table.alter.set_table_properties({"DELTA.appendonly": True})
    assert result.version == 2 == table.version()
    assert table.metadata().configuration == {
        "delta.checkpointInterval": "7",
        "mine": "yes",
        "delta.appendOnly": "true",
    }
    info = info_of(table)
    assert info["operation"] == "SET TBLPROPERTIES"
    assert json.loads(info["operationParameters"]["properties"]) == {"DELTA.appendonly": "true"}
    with pytest.raises(errors.ConstraintViolationError):
        table.delete("id = 1")


def test_a_property_that_is_so_already_commits_nothing(table):
    assert table.alter.set_table_properties({"mine": "yes"}).version == 1
    assert table.alter.set_table_properties({"mine": "yes"}).version is None
    assert table.version() == 1


def test_unsetting(table):
    table.alter.set_table_properties({"mine": "yes", "delta.checkpointInterval": "7"})
    table.alter.unset_table_properties(["DELTA.CheckpointInterval"])
    assert table.metadata().configuration == {"mine": "yes"}
    assert info_of(table)["operation"] == "UNSET TBLPROPERTIES"
    assert info_of(table)["operationParameters"] == {
        "properties": '["DELTA.CheckpointInterval"]',
        "ifExists": "false",
    }
    with pytest.raises(
        errors.InvalidArgumentError, match=r"'Mine' does not exist in the table; did you mean 'mine'\? properties: mine"
    ):
        table.alter.unset_table_properties(["Mine"])
    assert table.alter.unset_table_properties(["Mine"], if_exists=True).version is None
    with pytest.raises(errors.InvalidArgumentError, match="list of names"):
        table.alter.unset_table_properties("mine")


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_the_isolation_level_is_settable_to_its_two_names(table, level):
    table.alter.set_table_properties({"delta.isolationLevel": level})
    write_deltalake(table, pa.table({"id": [3]}), mode="append")
    assert info_of(table)["isolationLevel"] == level


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"delta.isolationLevel": "SnapshotIsolation"}, "must be one of Serializable, WriteSerializable"),
        ({"delta.nope": "1"}, "table property 'delta.nope' does not exist"),
        ({"delta.checkpointInterval": "0"}, "must be at least 1"),
        ({"delta.checkpointInterval": None}, "must be a string, an integer, or True or False, not None"),
        ({"delta.columnMapping.maxColumnId": "1"}, "not for users to set"),
        ({"delta.minReaderVersion": "3"}, "no protocol with reader version 3 and writer version 2"),
        ({"delta.minWriterVersion": "seven"}, "must be an integer"),
        ({"delta.feature.nope": "supported"}, "table feature 'nope' does not exist"),
        ({}, "no property to set"),
    ],
)
def test_bad_properties_are_one_clear_error(table, properties, said):
    with pytest.raises(errors.InvalidArgumentError, match=said):
        table.alter.set_table_properties(properties)
    assert table.version() == 0


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"delta.enableIcebergCompatV3": "true"}, "icebergCompatV3"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(table, properties, feature):
    with pytest.raises(errors.UnsupportedFeatureError, match=feature):
        table.alter.set_table_properties(properties)
    assert table.version() == 0


def test_a_feature_comes_with_the_protocol(table):
    table.alter.set_table_properties({"delta.feature.vacuumProtocolCheck": "supported"})
    assert "vacuumProtocolCheck" in table.protocol().writer_features
    assert not table.metadata().configuration
    kinds = {kind for line in (table.store.get(f"_delta_log/{1:020d}.json")).splitlines() for kind in json.loads(line)}
    assert kinds == {"commitInfo", "protocol"}
    assert table.alter.set_table_properties({"delta.feature.vacuumprotocolcheck": "supported"}).version is None


def test_versions_bring_the_features_that_they_imply(table):
    table.alter.set_table_properties({"delta.minReaderVersion": "1", "delta.minWriterVersion": "4"})
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 4)
    assert not table.metadata().configuration
    # Nothing is lost, and versions of table features bring nothing.
    assert table.alter.set_table_properties({"delta.minWriterVersion": "2"}).version is None
    assert table.alter.set_table_properties({"delta.minWriterVersion": "7"}).version is None


def test_a_change_of_properties_fails_what_began_before_it(table):
    append, again = table.begin(), table.begin()
    append.append(pa.table({"id": [3]}))
    again.set_table_properties({"b": "2"})
    table.alter.set_table_properties({"a": "1"})
    for txn in (append, again):
        with pytest.raises(errors.MetadataChangedException):
            txn.commit()
    assert table.count() == 2


def test_changes_of_the_table_take_a_level_as_every_statement_does(table):
    alter = table.alter
    alter.set_table_properties({"a": "1"}, isolation="Serializable")
    alter.unset_table_properties(["a"], isolation="Serializable")
    alter.add_columns(pa.field("n", pa.int64()), isolation="Serializable")
    levels = [commit["isolationLevel"] for commit in table.history(3)]
    assert levels == ["Serializable"] * 3
    with pytest.raises(errors.InvalidArgumentError, match="'chaos' does not exist; isolation levels: "):
        alter.set_table_properties({"a": "1"}, isolation="chaos")


# --- columns ---


def test_columns_are_added_behind_the_others_and_are_null(table):
    table.alter.add_columns([pa.field("b", pa.string()), StructField("c", INTEGER)])
    assert table.schema().names == ["id", "s", "a", "m", "b", "c"]
    assert table.to_pyarrow_table(["b", "c"]).to_pydict() == {"b": [None, None], "c": [None, None]}
    info = info_of(table)
    assert info["operation"] == "ADD COLUMNS"
    assert json.loads(info["operationParameters"]["columns"]) == [
        {"column": {"name": "b", "type": "string", "nullable": True, "metadata": {}}},
        {"column": {"name": "c", "type": "integer", "nullable": True, "metadata": {}}},
    ]
    write_deltalake(table, pa.table({"id": [3], "c": pa.array([7], pa.int32())}), mode="append")
    assert sorted(table.to_pyarrow_table(["c"], "c IS NOT NULL").column("c").to_pylist()) == [7]


def test_fields_are_added_within_structs_arrays_and_maps(table):
    names = ["s.new", "a.element.new", "m.value.new", "S.`dotted.name`"]
    table.alter.add_columns([pa.field(name, pa.int64()) for name in names])
    rows = table.to_pyarrow_table().to_pylist()
    assert rows[0]["s"] == {"x": 1, "new": None, "dotted.name": None}
    assert rows[0]["a"] == [{"y": 1, "new": None}]
    assert rows[0]["m"] == [("k", {"z": 1, "new": None})]
    assert rows[1]["s"] is None
    assert json.loads(info_of(table)["operationParameters"]["columns"])[0]["column"]["name"] == "s.new"


def test_every_form_of_field_is_taken(table):
    struct = pa.struct([("x", pa.int64()), ("fresh", pa.int64())])
    table.alter.add_columns(pa.field("s", struct))
    table.alter.add_columns(pa.schema([("b", pa.int64())]))
    table.alter.add_columns(deltalake.Field("d", "long"))
    table.alter.add_columns([deltalake.Field("e", deltalake.schema.PrimitiveType("string"))])
    table.alter.add_columns(deltalake.Schema([deltalake.Field("f", "long")]))
    assert table.schema().names == ["id", "s", "a", "m", "b", "d", "e", "f"]
    assert table.to_pyarrow_table(["s"]).to_pylist()[0]["s"] == {"x": 1, "fresh": None}


@pytest.mark.parametrize(
    ("field", "error", "said"),
    [
        (pa.field("ID", pa.int64()), errors.SchemaMismatchError, "'ID': the table has it already"),
        (pa.field("ID", pa.string()), errors.SchemaMismatchError, "long in the table and string"),
        (pa.field("s.x", pa.int64()), errors.SchemaMismatchError, "has it already"),
        (pa.field("n", pa.int64(), nullable=False), errors.InvalidArgumentError, "must be nullable"),
        (
            pa.field("n", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
            errors.InvalidArgumentError,
            "must be nullable",
        ),
        (pa.field("nope.x", pa.int64()), errors.ColumnNotFoundError, "'nope' does not exist"),
        (pa.field("id.x", pa.int64()), errors.InvalidArgumentError, "id is long, which has no fields"),
        (pa.field("a.x", pa.int64()), errors.InvalidArgumentError, "which has no fields"),
        (pa.field("b;c", pa.int64()), errors.InvalidArgumentError, "b;c"),
        (pa.field("s.", pa.int64()), errors.InvalidArgumentError, "is not a column name"),
        (pa.field("t", pa.time64("us")), errors.UnsupportedTypeError, "time64"),
        ("b long", errors.InvalidArgumentError, "not 'b long'"),
        ([], errors.InvalidArgumentError, "no column to add"),
    ],
)
def test_bad_columns_are_one_clear_error(table, field, error, said):
    with pytest.raises(error, match=said):
        table.alter.add_columns(field)
    assert table.version() == 0


def test_a_type_brings_its_feature(table):
    table.alter.add_columns(pa.field("at", pa.timestamp("us")))
    assert "timestampNtz" in table.protocol().reader_features


def test_pinned_handles_alter_nothing(table):
    with pytest.raises(errors.ReadOnlyTableError):
        DeltaTable(table.table_uri, version=0).alter.set_table_properties({"a": "1"})
