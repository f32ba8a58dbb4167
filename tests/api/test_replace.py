"""CREATE OR REPLACE: another table in the same history."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake

BEFORE = pa.table({"id": [1, 2], "p": ["a", "b"]})
AFTER = pa.schema([("name", pa.string()), ("q", pa.int32())])


def test_a_table_is_replaced_with_its_columns_properties_and_rows(tmp_path):
    write_deltalake(tmp_path, BEFORE, partition_by="p", configuration={"mine": "1"}, name="old")
    old = DeltaTable(tmp_path)
    table = DeltaTable.create(
        tmp_path, AFTER, mode="overwrite", partition_by="q", configuration={"delta.checkpointInterval": "5"}
    )
    assert table.version() == 1
    assert (table.schema().names, table.count()) == (["name", "q"], 0)
    metadata = table.metadata()
    assert metadata.configuration == {"delta.checkpointInterval": "5"}
    assert (metadata.partition_columns, metadata.name) == (["q"], None)
    assert metadata.id != old.metadata().id
    assert table.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE"
    assert table.history(1)[0]["isBlindAppend"] is False
    assert DeltaTable(tmp_path, version=0).to_pyarrow_table().num_rows == 2


def test_it_is_created_where_there_is_none(tmp_path):
    table = DeltaTable.create(tmp_path / "t", AFTER, mode="overwrite")
    assert table.history()[0]["operation"] == "CREATE OR REPLACE TABLE"


def test_the_protocol_keeps_its_features(tmp_path):
    stamped = pa.table({"at": pa.array([0], pa.timestamp("us"))})
    write_deltalake(tmp_path, stamped)
    table = DeltaTable.create(tmp_path, AFTER, mode="overwrite", configuration={"delta.enableDeletionVectors": "true"})
    assert set(table.protocol().reader_features) == {"timestampNtz", "deletionVectors"}


def test_append_only_tables_refuse(tmp_path):
    write_deltalake(tmp_path, BEFORE, configuration={"delta.appendOnly": "true"})
    with pytest.raises(errors.ConstraintViolationError, match="append-only"):
        DeltaTable.create(tmp_path, AFTER, mode="overwrite")


def test_the_mode_is_one_of_three(tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="'overwrite', not 'append'"):
        DeltaTable.create(tmp_path, AFTER, mode="append")
