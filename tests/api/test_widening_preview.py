"""Tables with the preview of type widening: a change notes the version of the commit that makes it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake

PREVIEW = {"delta.enableTypeWidening": "true", "delta.feature.typeWidening-preview": "supported"}
NARROW = pa.table(
    {
        "id": pa.array([1], pa.int16()),
        "l": pa.array([[{"x": 1}]], pa.list_(pa.struct([("x", pa.int16())]))),
        "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
    }
)


def changes(path):
    """All that fields note, outermost first."""
    found = []

    def look(part):
        if isinstance(part, dict):
            found.extend((part.get("metadata") or {}).get("delta.typeChanges", ()))
            for name in ("fields", "type", "elementType", "keyType", "valueType"):
                look(part.get(name))
        elif isinstance(part, list):
            for one in part:
                look(one)

    look(json.loads(DeltaTable(path)._handle.snapshot.metadata.schema_string))
    return found


def noted(path):
    return [(change.get("tableVersion"), change["fromType"], change["toType"]) for change in changes(path)]


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path, NARROW, configuration=PREVIEW)
    return DeltaTable(tmp_path)


def test_a_change_notes_its_version(table, tmp_path):
    table.alter.change_type("id", "integer")
    write_deltalake(table, NARROW, mode="append")
    table.alter.change_type("id", "long")
    table.alter.change_type("l.element.x", "integer")
    table.alter.change_type("m.value", "long")
    assert noted(tmp_path) == [
        (1, "short", "integer"),
        (3, "integer", "long"),
        (4, "short", "integer"),
        (5, "byte", "long"),
    ]
    assert changes(tmp_path)[-1]["fieldPath"] == "value"
    assert table.to_pyarrow_table()["id"].to_pylist() == [1, 1]
    assert "typeWidening" not in table.protocol().writer_features


def test_so_does_one_that_comes_with_rows(table, tmp_path):
    wide = pa.table({"id": pa.array([2**40]), "l": pa.array([[{"x": 2**20}]])})
    write_deltalake(table, wide, mode="append", schema_mode="merge")
    assert noted(tmp_path) == [(1, "short", "long"), (1, "short", "long")]
    assert table.to_pyarrow_table()["id"].to_pylist() == [1, 2**40] or table.count() == 2


@pytest.mark.parametrize("timestamps", ["true", "false"])
def test_behind_others_it_is_that_of_the_commit(table, tmp_path, timestamps):
    table.alter.set_table_properties({"delta.enableInCommitTimestamps": timestamps})
    table.alter.change_type("m.value", "short")
    with table.begin() as txn:
        txn.change_type("id", "long")
        for _ in range(3):
            write_deltalake(tmp_path, NARROW, mode="append")
        assert txn.commit().version == 6
    # The older change keeps the version that it has.
    assert noted(tmp_path) == [(6, "short", "long"), (2, "byte", "short")]
    assert json.loads(table.store.get(f"_delta_log/{6:020d}.json").splitlines()[0])["commitInfo"]["readVersion"] == 2
    assert DeltaTable(tmp_path).count() == 4


def test_a_transaction_that_lost_to_another_change_of_the_table_fails(table, tmp_path):
    with table.begin() as txn:
        txn.change_type("id", "long")
        DeltaTable(tmp_path).alter.change_type("m.value", "long")
        with pytest.raises(errors.MetadataChangedException):
            txn.commit()
    assert noted(tmp_path) == [(1, "byte", "long")]


def test_a_table_with_the_accepted_feature_alone_notes_none(tmp_path):
    write_deltalake(tmp_path, NARROW, configuration={"delta.enableTypeWidening": "true"})
    table = DeltaTable(tmp_path)
    table.alter.change_type("id", "long")
    assert noted(tmp_path) == [(None, "short", "long")]
    # delta-spark notes it where the preview is supported beside it.
    table.alter.add_feature("typeWidening-preview")
    table.alter.change_type("m.value", "long")
    assert noted(tmp_path) == [(None, "short", "long"), (3, "byte", "long")]


def test_a_version_that_is_restored_keeps_its_own(table, tmp_path):
    table.alter.change_type("id", "long")
    table.alter.change_type("m.value", "long")
    table.restore(1)
    assert noted(tmp_path) == [(1, "short", "long")]
