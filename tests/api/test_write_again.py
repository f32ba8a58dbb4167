"""The same write again, and tables of other writers whose columns have names that are refused for new tables."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import InvalidArgumentError

ROWS = pa.table({"a": [1]})


def test_the_same_configuration_is_accepted_again(tmp_path):
    given = {
        "delta.feature.deletionVectors": "supported",
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        "delta.appendOnly": "TRUE",
        "other": "Z",
    }
    write_deltalake(tmp_path, ROWS, configuration=given)
    again = {**given, "delta.appendOnly": "true"}
    assert write_deltalake(tmp_path, ROWS, mode="append", configuration=again).version == 1
    for other in ({"delta.appendOnly": "false"}, {"other": "z"}, {"delta.feature.rowTracking": "supported"}):
        with pytest.raises(InvalidArgumentError, match="but the table has"):
            write_deltalake(tmp_path, ROWS, mode="append", configuration=other)


def test_versions_of_table_features_are_accepted_again_though_they_imply_nothing(tmp_path):
    given = {"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}
    write_deltalake(tmp_path, ROWS, configuration=given)
    assert DeltaTable(tmp_path).protocol().min_writer_version < 7
    assert write_deltalake(tmp_path, ROWS, mode="append", configuration=given).version == 1
    with pytest.raises(InvalidArgumentError, match=r"delta\.minWriterVersion=6, but the table has"):
        write_deltalake(tmp_path, ROWS, mode="append", configuration={"delta.minWriterVersion": "6"})


def test_a_table_with_a_reserved_name_gets_further_columns(tmp_path):
    deltalake.write_deltalake(tmp_path, pa.table({"a b": [1]}))
    write_deltalake(tmp_path, pa.table({"a b": [2], "c": [3]}), mode="append", schema_mode="merge")
    DeltaTable(tmp_path).alter.add_columns(pa.field("d", pa.int64()))
    rows = pa.table({"a b": [2, 4], "e": [5, 6]})
    work = DeltaTable(tmp_path).merge(rows, "t.`a b` = s.`a b`", merge_schema=True)
    work.when_matched_update_all().when_not_matched_insert_all().execute()
    assert DeltaTable(tmp_path).schema().names == ["a b", "c", "d", "e"]
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["a b"].to_pylist()) == [1, 2, 4]
    with pytest.raises(InvalidArgumentError, match="which Parquet reserves"):
        DeltaTable(tmp_path).alter.add_columns(pa.field("e f", pa.int64()))
