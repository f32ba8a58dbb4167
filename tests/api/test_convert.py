"""CONVERT: tables of folders that hold Parquet files.

Tests of operations.write.convert.
"""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from comparison import assert_same_table
from refdelta import DeltaTable, convert_to_deltalake, errors, write_deltalake
from refdelta.cli.app import app

ROWS = pa.table({"id": [1, 2, None], "name": ["a", None, "c"], "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC"))})


def put(folder, key, table=ROWS, **options):
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def stats(table):
    log = (table.store.get(f"_delta_log/{0:020d}.json")).splitlines()
    return [json.loads(a["add"]["stats"]) for a in map(json.loads, log) if "add" in a]


def test_the_files_of_a_folder_are_a_table(tmp_path):
    put(tmp_path, "one.parquet")
    put(tmp_path, "deeper/two", ROWS.slice(0, 1))
    for hidden in ("_SUCCESS", ".one.parquet.crc", "_tmp/three.parquet", ".x/y.parquet"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"not Parquet")
    done = convert_to_deltalake(
        tmp_path, name="mine", description="it was there", configuration={"delta.appendOnly": "true"}
    )
    assert (done.version, done["num_converted_files"], done["num_added_rows"]) == (0, 2, 4)
    table = DeltaTable(tmp_path)
    assert_same_table(table.to_pyarrow_table(), pa.concat_tables([ROWS, ROWS.slice(0, 1)]))
    metadata = table.metadata()
    assert (metadata.name, metadata.description) == ("mine", "it was there")
    assert metadata.configuration == {"delta.appendOnly": "true"}
    entry = table.history()[0]
    assert (entry["operation"], entry["isBlindAppend"]) == ("CONVERT", True)
    assert entry["operationMetrics"] == {"numConvertedFiles": "2"}
    # Bounds by which queries skip files.
    assert {"numRecords": 3, "minValues": {"id": 1, "name": "a", "at": "1970-01-01T00:00:00.000Z"}}.items() <= max(
        stats(table), key=lambda one: one["numRecords"]
    ).items()
    write_deltalake(table, ROWS, mode="append")
    assert table.count() == 7


def test_partition_columns_are_what_the_folders_say(tmp_path):
    put(tmp_path, "day=2026-03-01/where=a%2Fb/one.parquet", ROWS.slice(0, 2))
    put(tmp_path, "Day=__HIVE_DEFAULT_PARTITION__/where=x%20y/two.parquet", ROWS.slice(2))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"partition columns \['.ay', 'where'\], but partition_by names \[\]"
    ):
        convert_to_deltalake(tmp_path)
    convert_to_deltalake(tmp_path, partition_by={"day": "date", "where": "string"})
    table = DeltaTable(tmp_path)
    assert table.metadata().partition_columns == ["day", "where"]
    found = {row["id"]: (row["day"], row["where"]) for row in table.to_pyarrow_table().to_pylist()}
    assert found == {1: (dt.date(2026, 3, 1), "a/b"), 2: (dt.date(2026, 3, 1), "a/b"), None: (None, "x y")}
    assert table.to_pyarrow_table(filters="`where` = 'x y'").num_rows == 1


def test_folders_may_hold_values_alone(tmp_path):
    put(tmp_path, "2026/3/one.parquet")
    by = pa.schema([("year", pa.int32()), ("month", pa.int8())])
    convert_to_deltalake(tmp_path, partition_by=by, partition_strategy="directory")
    assert DeltaTable(tmp_path).partitions() == [{"year": 2026, "month": 3}]


def test_a_column_of_the_files_that_folders_name_is_that_of_the_folders(tmp_path):
    put(tmp_path, "name=z/one.parquet")
    convert_to_deltalake(tmp_path, partition_by="name")
    table = DeltaTable(tmp_path)
    assert table.schema().names == ["id", "name", "at"]
    assert table.to_pyarrow_table()["name"].to_pylist() == ["z"] * 3
    assert "name" not in stats(table)[0]["nullCount"]


def test_columns_are_those_of_all_files(tmp_path):
    put(tmp_path, "a.parquet", pa.table({"x": [1], "s": [{"p": 1}]}))
    put(tmp_path, "b.parquet", pa.table({"x": [2], "s": [{"q": "n"}], "y": ["new"]}))
    convert_to_deltalake(tmp_path)
    rows = sorted(DeltaTable(tmp_path).to_pyarrow_table().to_pylist(), key=lambda row: row["x"])
    assert rows == [
        {"x": 1, "s": {"p": 1, "q": None}, "y": None},
        {"x": 2, "s": {"p": None, "q": "n"}, "y": "new"},
    ]


def test_the_oldest_form_of_timestamps_has_a_zone(tmp_path):
    times = pa.array([dt.datetime(2026, 3, 1), None])
    listed = pa.array([[dt.datetime(1969, 1, 1)], []])
    put(tmp_path, "a.parquet", pa.table({"at": times, "l": listed}), use_deprecated_int96_timestamps=True)
    convert_to_deltalake(tmp_path)
    table = DeltaTable(tmp_path)
    assert [str(item.type) for item in table.schema().fields] == ["timestamp", "array<timestamp>"]
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert table.to_pyarrow_table()["at"][0].as_py() == dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def test_statistics_are_left_out_where_they_are_not_wanted(tmp_path):
    put(tmp_path, "a.parquet")
    convert_to_deltalake(tmp_path, collect_stats=False)
    assert stats(DeltaTable(tmp_path)) == [{"numRecords": 3}]


def test_a_table_that_is_there(tmp_path):
    write_deltalake(tmp_path, ROWS)
    with pytest.raises(errors.TableAlreadyExistsError):
        convert_to_deltalake(tmp_path)
    assert convert_to_deltalake(tmp_path, mode="ignore").version is None
    with pytest.raises(errors.InvalidArgumentError, match="not 'overwrite'"):
        convert_to_deltalake(tmp_path, mode="overwrite")


def test_one_of_two_that_convert_wins(tmp_path, monkeypatch):
    from refdelta.api import convert as converting

    put(tmp_path, "a.parquet")
    staged = converting.convert

    def convert(*arguments, **options):
        staged(*arguments, **options)
        monkeypatch.undo()
        convert_to_deltalake(tmp_path)

    monkeypatch.setattr(converting, "convert", convert)
    with pytest.raises(errors.ProtocolChangedException):
        convert_to_deltalake(tmp_path)
    assert DeltaTable(tmp_path).count() == 3


ARGUMENT, FILE, SCHEMA = errors.InvalidArgumentError, errors.DataFileError, errors.SchemaMismatchError
ONE = pa.table({"x": [1]})


@pytest.mark.parametrize(
    ("files", "options", "error", "said"),
    [
        ({}, {}, ARGUMENT, "no Parquet file"),
        ({"a.csv": b"id\n1\n"}, {}, FILE, "a.csv"),
        ({"a": ONE, "b": pa.table({"x": ["1"]})}, {}, SCHEMA, "'b' cannot be merged with those of the files before it"),
        ({"a": pa.table({"a b": [1]})}, {}, ARGUMENT, "a b"),
        ({"p=x/a": ONE}, {"partition_by": {"p": "integer"}}, ARGUMENT, "'x' of column 'p' is not a valid integer"),
        ({"p=x/a": ONE}, {"partition_by": "q"}, ARGUMENT, r"\['p'\], but partition_by names \['q'\]"),
        ({"x/a": ONE}, {"partition_by": ["p", "q"], "partition_strategy": "directory"}, ARGUMENT, "in 1 folders"),
        ({"a": ONE}, {"partition_strategy": "nested"}, ARGUMENT, "'hive' or 'directory'"),
        (
            {"a": ONE},
            {"configuration": {"delta.columnMapping.mode": "name"}},
            ARGUMENT,
            "cannot set delta.columnMapping.mode",
        ),
        ({"a": ONE}, {"configuration": {"delta.nope": "1"}}, ARGUMENT, "table property 'delta.nope' does not exist"),
    ],
)
def test_what_cannot_be_converted_is_left_alone(tmp_path, files, options, error, said):
    for key, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / key).write_bytes(content)
        else:
            put(tmp_path, key, content)
    with pytest.raises(error, match=said):
        convert_to_deltalake(tmp_path, **options)
    assert not (tmp_path / "_delta_log").exists()


def test_the_command(tmp_path):
    put(tmp_path, "year=2026/a.parquet")
    done = CliRunner().invoke(app, ["convert", str(tmp_path), "--partition", "year=integer", "--json"])
    assert json.loads(done.output)["num_converted_files"] == 1
    assert DeltaTable(tmp_path).partitions() == [{"year": 2026}]
