"""Reads that delta-spark supports and refdelta does not: each is an error, and spec_notes/divergences.md lists all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.spark import options as ours
from refdelta.table.features import REGISTRY

NOTES = Path(__file__).parents[2] / "spec_notes" / "divergences.md"
ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"]})
# What delta-spark 4.4.0 takes for a read: the keys of DeltaOptions, but for those of writes.
OF_READS = {
    "path", "versionAsOf", "timestampAsOf", "readChangeFeed", "readChangeData", "startingVersion", "startingTimestamp",
    "endingVersion", "endingTimestamp", "maxFilesPerTrigger", "maxBytesPerTrigger", "ignoreDeletes",
    "skipChangeCommits", "excludeRegex", "failOnDataLoss", "ignoreChanges", "ignoreFileDeletion",
    "schemaTrackingLocation", "schemaLocation", "streamingSourceTrackingId", "allowSourceColumnRename",
    "allowSourceColumnDrop", "allowSourceColumnTypeChange",
}  # fmt: skip
OF_WRITES = {
    "replaceOn", "replaceUsing", "targetAlias", "replaceWhere", "mergeSchema", "overwriteSchema", "userMetadata",
    "useNullIntolerantEqualityWithDPO", "partitionOverwriteMode", "optimizeWrite", "dataChange", "compression",
    "parquet.writer.version", "maxRecordsPerFile", "txnAppId", "txnVersion", "writePartitionColumns", "queryName",
    "checkpointLocation",
}  # fmt: skip
OTHERS = {"pathGlobFilter", "mergeSchema", "modifiedAfter", "recursiveFileLookup", "fs.s3a.endpoint", "dfs.a"}


def listed(kind: str) -> set[str]:
    section = NOTES.read_text().split("## What delta-spark reads and refdelta does not")[1].split("\n## ")[0]
    return set(re.findall(rf"^\| {kind} `([^`]+)`", section, re.MULTILINE))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "t", ROWS, partition_by="day")
    return tmp_path / "t"


def rewritten(table: Path, change: Any) -> None:
    """Version 0 with other actions."""
    commit = table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        change(action)
    commit.write_text("\n".join(map(json.dumps, actions)))
    for crc in (table / "_delta_log").glob("*.crc"):
        crc.unlink()


def with_features(readers: list[str], *writers: str) -> Any:
    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            names = {"readerFeatures": readers, "writerFeatures": [*readers, *writers]}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **names}

    return change


def test_the_list_is_complete() -> None:
    features = {name for name, row in REGISTRY.items() if row.kind == "reader_writer" and not row.read}
    # Of these delta-spark 4.4 knows nothing, or knows them by another name.
    features -= {"timestampNanos", "catalogOwned-preview"}
    assert listed("feature") - {"coordinatedCommits-preview"} == features
    assert listed("option") == OF_READS - {*ours.READ, *ours.STREAM_READ}


@pytest.mark.spark
def test_delta_spark_knows_no_more(spark: Any) -> None:
    java = spark._jvm.org.apache.spark.sql.delta
    keys = java.DeltaOptions.validOptionKeys().iterator()
    known = set()
    while keys.hasNext():
        known.add(keys.next())
    assert {key for key in known if "." not in key and not key.startswith("__")} <= OF_READS | OF_WRITES
    rows = java.TableFeature.allSupportedFeaturesMap().values().iterator()
    while rows.hasNext():
        name = rows.next().name()
        if not name.lower().startswith("test"):
            assert name in listed("feature") or REGISTRY[name].read, name


@pytest.mark.parametrize("name", sorted(listed("feature") - {"coordinatedCommits-preview"}))
def test_tables_that_need_more_are_refused_by_name(table: Path, name: str) -> None:
    rewritten(table, with_features([name]))
    with pytest.raises(errors.UnsupportedFeatureError, match=name):
        DeltaTable(table)


def test_a_coordinated_table_is_read_as_far_as_its_log_goes(table: Path) -> None:
    name = "coordinatedCommits-preview"
    rewritten(table, with_features(["vacuumProtocolCheck"], "inCommitTimestamp", name))
    assert DeltaTable(table).count() == 3
    with pytest.raises(errors.UnsupportedFeatureError, match=name):
        write_deltalake(table, ROWS, mode="append")


def test_a_comparison_of_a_column_with_a_collation_is_refused(table: Path) -> None:
    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][1]["metadata"] = {"__COLLATIONS": {"day": "icu.UNICODE_CI"}}
            action["metaData"]["schemaString"] = json.dumps(schema)

    rewritten(table, change)
    assert sorted(DeltaTable(table).to_pyarrow_table()["day"].to_pylist()) == ["a", "b", "b"]
    with pytest.raises(errors.PredicateError, match="string collate"):
        DeltaTable(table).to_pyarrow_table(filters="day = 'A'")


@pytest.mark.parametrize("name", ["file_path", "file_name", "file_size", "file_block_start", "file_modification_time"])
def test_columns_of_files_are_refused(table: Path, name: str) -> None:
    with pytest.raises(errors.ColumnNotFoundError, match=name):
        DeltaTable(table).to_pyarrow_table(columns=[f"_metadata.{name}"])


@pytest.mark.parametrize("end", ["@v0", "@20260101000000000", "/day=b"])
def test_a_path_is_a_path(table: Path, end: str) -> None:
    with pytest.raises(errors.TableNotFoundError):
        DeltaTable(f"{table}{end}")


def test_a_table_needs_a_path() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="tables of Spark's catalog give it none"):
        ours.place_of({})


@pytest.mark.parametrize("name", sorted(listed("option") | OTHERS))
@pytest.mark.parametrize("known", [ours.READ, ours.STREAM_READ], ids=["batch", "stream"])
def test_options_that_would_change_what_is_read_are_refused(name: str, known: tuple[str, ...]) -> None:
    said = rf"option '{re.escape(name)}' (does not exist in reads|is not needed: )"
    with pytest.raises(errors.InvalidArgumentError, match=said):
        ours.check_names({"path": "t", name: "true"}, known, "reads")
