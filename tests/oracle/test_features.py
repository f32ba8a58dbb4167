"""DROP FEATURE, by either engine from the same table: the same protocol and properties, and both go on."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_tables
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"n{i}" for i in range(10)]})
VECTORS = {"delta.enableDeletionVectors": "true"}
# The properties of the table, what is done to it, and the feature that goes.
CASES = {
    "inCommitTimestamp": ({"delta.enableInCommitTimestamps": "true"}, ()),
    "checkConstraints": (
        {},
        ("ALTER TABLE {t} ADD CONSTRAINT c CHECK (id >= 0)", "ALTER TABLE {t} DROP CONSTRAINT c"),
    ),
    "domainMetadata": ({"delta.feature.domainMetadata": "supported"}, ()),
    "deletionVectors": (VECTORS, ("DELETE FROM {t} WHERE id < 3", "UPDATE {t} SET name = 'x' WHERE id = 7")),
    "v2Checkpoint": (
        {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"},
        ("DELETE FROM {t} WHERE id < 3",),
    ),
    "typeWidening": (
        {"delta.enableTypeWidening": "true"},
        (
            "ALTER TABLE {t} ADD COLUMN n INT",
            "UPDATE {t} SET n = 7 WHERE id < 4",
            "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        ),
    ),
    "columnMapping": (
        {"delta.columnMapping.mode": "name"},
        (
            "ALTER TABLE {t} RENAME COLUMN name TO called",
            "ALTER TABLE {t} ADD COLUMN name STRING",
            "UPDATE {t} SET name = 'x' WHERE id = 7",
        ),
    ),
    "rowTracking": ({"delta.enableRowTracking": "true"}, ("UPDATE {t} SET name = 'x' WHERE id = 7",)),
    "vacuumProtocolCheck": ({"delta.feature.vacuumProtocolCheck": "supported"}, ()),
}


def state(path):
    table = DeltaTable(path)
    protocol = table.protocol()
    lists = [
        sorted(names) if names is not None else None for names in (protocol.reader_features, protocol.writer_features)
    ]
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    configuration = dict(table.metadata().configuration or {})
    # It is the version of the commit, and the engines make different numbers of them on the way.
    protected = configuration.pop("delta.requireCheckpointProtectionBeforeVersion", None)
    assert protected in (None, str(table.version()))
    return versions, lists, configuration, protected is None


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("feature", CASES)
def test_both_drop_a_feature_alike(quick_spark, tmp_path, feature):
    properties, statements = CASES[feature]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    spark_tables.create(quick_spark, theirs, ROWS.schema, properties=properties)
    spark_tables.write(quick_spark, theirs, ROWS, files=1)
    for statement in statements:
        spark_tables.sql(quick_spark, theirs, statement)
    shutil.copytree(theirs, ours)
    before = DeltaTable(ours).version()

    spark_tables.sql(quick_spark, theirs, f"ALTER TABLE {{t}} DROP FEATURE {feature}")
    DeltaTable(ours).alter.drop_feature(feature)

    assert state(ours) == state(theirs)
    rows = sorted(DeltaTable(ours).to_pyarrow_table().to_pylist(), key=str)
    assert sorted(oracle.read_table(quick_spark, ours).to_pylist(), key=str) == rows
    # Both go on from what either left.
    for path in (ours, theirs):
        write_deltalake(path, ROWS, mode="append")
        kinds = {tuple(pq.read_schema(uri).names) for uri in DeltaTable(path).file_uris()}
        assert feature != "columnMapping" or kinds <= {("id", "called", "name"), ("id", "name")}
        spark_tables.sql(quick_spark, path, "DELETE FROM {t} WHERE id = 9")
        assert DeltaTable(path).count() == oracle.read_table(quick_spark, path).num_rows == len(rows) + 8
    # The versions before stay readable.
    assert oracle.read_table(quick_spark, ours, before).num_rows == DeltaTable(theirs, version=before).count()


def test_what_either_adds_the_other_supports(quick_spark, tmp_path):
    table = DeltaTable.create(tmp_path, ROWS.schema)
    write_deltalake(table, ROWS, mode="append")
    table.alter.add_feature("deletionVectors", allow_protocol_versions_increase=True)
    properties = "'delta.enableDeletionVectors' = 'true', 'delta.feature.checkConstraints' = 'supported'"
    spark_tables.sql(quick_spark, tmp_path, f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})")
    spark_tables.sql(quick_spark, tmp_path, "DELETE FROM {t} WHERE id = 3")
    assert DeltaTable(tmp_path).count() == 9
    assert table.alter.add_feature("checkConstraints").version is None
    spark_tables.sql(quick_spark, tmp_path, "ALTER TABLE {t} DROP FEATURE checkConstraints")
    assert sorted(DeltaTable(tmp_path).protocol().writer_features) == ["appendOnly", "deletionVectors", "invariants"]
