"""delta-spark understands the information in refdelta's commits: history, detail, checksums."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given

import spark_tables
import strategies
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.errors import InvalidLogError
from spark_tables import tries

pytestmark = pytest.mark.spark

DATA = pa.table({"p": ["a", "b"], "n": [1, 2]})


def test_history_as_spark_shows_it(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, DATA, partition_by=["p"])
    write_deltalake(path, DATA, mode="append")
    write_deltalake(path, DATA.slice(0, 1), mode="overwrite", predicate="p = 'a'")
    write_deltalake(path, DATA, mode="overwrite")

    newest_first = oracle.history(spark, path)
    assert [entry["version"] for entry in newest_first] == [3, 2, 1, 0]
    overwritten, replaced, appended, created = newest_first
    assert appended["operation"] == overwritten["operation"] == "WRITE"
    assert appended["operationParameters"]["mode"] == "Append"
    assert overwritten["operationParameters"]["mode"] == "Overwrite"
    assert replaced["operationParameters"]["predicate"]
    assert [entry["readVersion"] for entry in newest_first] == [2, 1, 0, None]
    assert [entry["isBlindAppend"] for entry in newest_first] == [False, False, True, True]
    assert appended["operationMetrics"]["numOutputRows"] == "2"
    assert appended["operationMetrics"]["numFiles"] == "2"
    assert created["engineInfo"].startswith("refdelta/")
    assert {entry["isolationLevel"] for entry in newest_first} <= {"Serializable", "WriteSerializable"}


def test_refdelta_shows_the_history_of_spark(spark, tmp_path):
    path = tmp_path / "t"
    spark_tables.write(spark, path, DATA, partition_by=["p"])
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n = 2")
    spark_tables.sql(spark, path, "OPTIMIZE {t}")

    theirs = oracle.history(spark, path)
    ours = DeltaTable(path).history()
    assert [entry["operation"] for entry in ours] == [entry["operation"] for entry in theirs]
    assert [entry["version"] for entry in ours] == [entry["version"] for entry in theirs]
    deleted = next(entry for entry in ours if entry["operation"] == "DELETE")
    assert "n" in str(deleted["operationParameters"]["predicate"])


def test_detail_agrees(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(
        path,
        DATA,
        partition_by=["p"],
        name="things",
        description="some things",
        configuration={"delta.logRetentionDuration": "interval 10 days", "mine": "x"},
    )

    theirs, ours = oracle.detail(spark, path), DeltaTable(path).detail()
    names = {"partitionColumns": "partition_columns", "numFiles": "num_files", "sizeInBytes": "size_in_bytes"}
    names |= {"minReaderVersion": "min_reader_version", "minWriterVersion": "min_writer_version"}
    names |= {same: same for same in ("format", "id", "name", "description", "properties")}
    assert {ours_name: ours[ours_name] for ours_name in names.values()} == {
        ours_name: theirs[name] for name, ours_name in names.items()
    }


@tries(5)
@given(table=strategies.tables(columns=4))
def test_checksums_hold(spark, fresh_path, table):
    """delta-spark compares the checksum of a version with the state that it replays from the log."""
    path = fresh_path()
    for part in table.parts:
        write_deltalake(path, part, mode="append", partition_by=table.partition_by or None)
        assert oracle.validate_checksum(spark, path)
    write_deltalake(path, table.parts[0], mode="overwrite", app_id="loader", app_version=1)
    assert oracle.validate_checksum(spark, path)


def test_checksums_hold_after_commits_of_either_engine(spark, tmp_path):
    path = tmp_path / "t"
    spark_tables.create(spark, path, DATA.schema, ["p"], {"delta.enableDeletionVectors": "true"})
    spark_tables.write(spark, path, DATA)
    write_deltalake(path, DATA, mode="append")
    assert oracle.validate_checksum(spark, path)
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n = 1")
    write_deltalake(path, DATA, mode="append")
    assert oracle.validate_checksum(spark, path)
    write_deltalake(path, DATA, mode="overwrite")
    oracle.clear_cache(spark)
    assert oracle.validate_checksum(spark, path)


def test_a_wrong_checksum_is_noticed(spark, tmp_path):
    """Shows that the tests above can fail."""
    path = tmp_path / "t"
    write_deltalake(path, DATA)
    file = path / "_delta_log" / f"{0:020d}.crc"
    file.write_text(json.dumps({**json.loads(file.read_text()), "numFiles": 17}))

    with pytest.raises(InvalidLogError, match="Number of files - Expected: 17"):
        oracle.validate_checksum(spark, path)
