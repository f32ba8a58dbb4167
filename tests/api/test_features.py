"""ADD FEATURE and DROP FEATURE.

Tests of api.drop_feature, operations.alter.feature_removal, operations.alter.features.
"""

from __future__ import annotations

import json
import os
import time

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.table.features import REGISTRY, features_of

ROWS = pa.table({"id": list(range(10)), "name": [str(i) for i in range(10)]})
VECTORS = {"delta.enableDeletionVectors": "true"}
HOUR = 3600


def supported(table):
    return features_of(DeltaTable(table.table_uri).protocol())


def age(folder, hours):
    """Make all files of the log older than they are; versions keep their order."""
    then = time.time() - hours * HOUR
    for file in (folder / "_delta_log").glob("0*"):
        os.utime(file, (then + int(file.name[:20]),) * 2)


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    return DeltaTable(tmp_path / "t")


# --- adding ---


def test_features_are_added_by_name_and_by_those_of_deltalake(table):
    added = table.alter.add_feature("vacuumprotocolcheck", allow_protocol_versions_increase=True)
    assert added.version == 1
    assert table.history(1)[0]["operation"] == "ADD FEATURE"
    some = [deltalake.TableFeatures.TimestampWithoutTimezone, deltalake.TableFeatures.DeletionVectors]
    table.alter.add_feature(some)
    assert supported(table) >= {"vacuumProtocolCheck", "timestampNtz", "deletionVectors", "appendOnly"}
    assert table.alter.add_feature("timestampNtz").version is None
    assert not table.metadata().configuration


def test_every_name_of_deltalake_is_known():
    from refdelta.operations.alter.features import feature_name

    names = [name for name in dir(deltalake.TableFeatures) if name[0].isupper()]
    found = {feature_name(getattr(deltalake.TableFeatures, name)) for name in names}
    assert len(found) == len(names) > 10
    assert {"timestampNtz", "variantType-preview", "v2Checkpoint"} <= found <= REGISTRY.keys()


def test_higher_versions_are_asked_for(table):
    with pytest.raises(errors.InvalidArgumentError, match="allow_protocol_versions_increase=True"):
        table.alter.add_feature("deletionVectors")
    # What the versions imply already needs nothing.
    assert table.alter.add_feature("appendOnly").version is None


@pytest.mark.parametrize(
    ("feature", "error", "said"),
    [
        ("nope", errors.InvalidArgumentError, "table feature 'nope' does not exist"),
        (7, errors.InvalidArgumentError, "must be a string"),
        ([], errors.InvalidArgumentError, "no feature to add"),
        ("clustering", errors.InvalidArgumentError, "cluster_by"),
        ("catalogManaged", errors.UnsupportedFeatureError, "through a catalog"),
        ("redirectReaderWriter-preview", errors.UnsupportedFeatureError, "at another place"),
    ],
)
def test_what_cannot_be_added(table, feature, error, said):
    with pytest.raises(error, match=said):
        table.alter.add_feature(feature, allow_protocol_versions_increase=True)
    assert table.version() == 0


def test_a_transaction_may_add_a_feature(table):
    with table.begin() as txn:
        txn.add_feature("domainMetadata", allow_protocol_versions_increase=True)
        txn.commit()
    assert "domainMetadata" in supported(table)


# --- dropping ---


def test_a_writers_feature_goes_in_one_commit(tmp_path):
    table = DeltaTable.create(tmp_path, ROWS.schema, configuration={"delta.enableInCommitTimestamps": "true"})
    table.alter.set_table_properties({"mine": "1"})
    dropped = table.alter.drop_feature("inCommitTimestamp")
    assert dropped.version == 2
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert table.metadata().configuration == {"delta.enableInCommitTimestamps": "false", "mine": "1"}
    entry = table.history(1)[0]
    assert (entry["operation"], "inCommitTimestamp" in entry) == ("DROP FEATURE", False)
    assert entry["operationParameters"] == {"featureName": "inCommitTimestamp", "truncateHistory": False}


def test_domains_go_with_their_feature(tmp_path):
    table = DeltaTable.create(tmp_path, ROWS.schema, cluster_by="id")
    with pytest.raises(errors.InvalidArgumentError, match="clustering, rowTracking need it; drop these first"):
        table.alter.drop_feature("domainMetadata")
    with pytest.raises(errors.InvalidArgumentError, match="clustering cannot be dropped: Delta defines no procedure"):
        table.alter.drop_feature("clustering")
    table.alter.drop_feature("rowTracking")
    with pytest.raises(errors.InvalidArgumentError, match="clustering needs it; drop that first"):
        table.alter.drop_feature("domainMetadata")


def test_rows_lose_their_ids_and_get_no_old_ones_again(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration={"delta.enableRowTracking": "true"})
    table = DeltaTable(tmp_path)
    table.update({"name": "'x'"}, predicate="id = 2")
    dropped = table.alter.drop_feature("rowTracking")
    assert dropped.version == 2
    assert "rowTracking" not in supported(table)
    assert not table.metadata().configuration
    log = [json.loads(line) for line in table.store.get(f"_delta_log/{2:020d}.json").splitlines()]
    adds = [action["add"] for action in log if "add" in action]
    assert len(adds) == len(table.file_uris())
    assert not any("baseRowId" in add or add["dataChange"] for add in adds)
    assert table.to_pyarrow_table().sort_by("id")["name"].to_pylist() == ["0", "1", "x", *map(str, range(3, 10))]
    with pytest.raises(errors.InvalidArgumentError):
        table.to_pyarrow_table(columns=["_metadata.row_id"])
    # A version that is restored has its ids again, and new rows others.
    table.restore(0)
    write_deltalake(table, ROWS, mode="append")
    ids = table.to_pyarrow_table(columns=["_metadata.row_id"]).column(0).to_pylist()
    assert len(set(ids)) == 20


@pytest.mark.tier("test")
def test_vectors_are_purged_and_checkpoints_stand_before_the_rest(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration=VECTORS)
    table = DeltaTable(tmp_path)
    table.delete("id < 3")
    table.alter.drop_feature("deletionVectors")
    # The property, the purge, three empty commits, the feature.
    operations = [entry["operation"] for entry in table.history(6)]
    assert operations == ["DROP FEATURE", *["Empty Commit"] * 3, "REORG", "UNSET TBLPROPERTIES"]
    assert supported(table) == {"appendOnly", "invariants", "checkpointProtection"}
    assert table.metadata().configuration == {"delta.requireCheckpointProtectionBeforeVersion": str(table.version())}
    checkpoints = sorted(p.name[:20] for p in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(name) for name in checkpoints] == list(range(table.version() - 3, table.version() + 1))
    assert table.to_pyarrow_table()["id"].to_pylist() == list(range(3, 10))
    assert DeltaTable(tmp_path, version=1).count() == 7
    # What protects the history outlives a restore and a replacement.
    table.restore(table.version())
    table.restore(0)
    assert "delta.requireCheckpointProtectionBeforeVersion" in table.metadata().configuration
    replaced = DeltaTable.create(tmp_path, ROWS.schema, mode="overwrite")
    assert "delta.requireCheckpointProtectionBeforeVersion" in replaced.metadata().configuration


def test_cleanup_keeps_what_is_protected_until_all_of_it_goes(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration={**VECTORS, "delta.logRetentionDuration": "interval 2 days"})
    table = DeltaTable(tmp_path)
    table.alter.drop_feature("deletionVectors")
    write_deltalake(table, ROWS, mode="append")
    newest = table.version()
    age(tmp_path, 100)
    os.utime(tmp_path / "_delta_log" / f"{newest:020d}.json")
    # The version before the newest needs the last checkpoint, which is the one that is protected.
    assert table.cleanup_metadata() > 0
    left = sorted(int(p.name[:20]) for p in (tmp_path / "_delta_log").glob("*.json"))
    assert left == [newest - 1, newest]


def test_the_history_may_go_instead(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration=VECTORS)
    table = DeltaTable(tmp_path)
    table.delete("id < 3")
    with pytest.raises(errors.InvalidArgumentError, match="again in 24 hours"):
        table.alter.drop_feature("deletionVectors", truncate_history=True)
    assert "deletionVectors" in supported(table)
    # Too early.
    with pytest.raises(errors.InvalidArgumentError, match="again in 24 hours"):
        table.alter.drop_feature("deletionVectors", truncate_history=True)
    age(tmp_path, 25)
    table.alter.drop_feature("deletionVectors", truncate_history=True)
    assert supported(table) == {"appendOnly", "invariants"}
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert table.count() == 7
    with pytest.raises(errors.VersionNotFoundError):
        DeltaTable(tmp_path, version=1)


def test_protection_goes_with_the_history_that_it_protects(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration=VECTORS)
    table = DeltaTable(tmp_path)
    table.alter.drop_feature("deletionVectors")
    with pytest.raises(errors.InvalidArgumentError, match="pass truncate_history=True"):
        table.alter.drop_feature("checkpointProtection")
    with pytest.raises(errors.InvalidArgumentError, match="not old enough"):
        table.alter.drop_feature("checkpointProtection", truncate_history=True)
    age(tmp_path, 25)
    write_deltalake(table, ROWS, mode="append")
    table.create_checkpoint()
    table.alter.drop_feature("checkpointProtection", truncate_history=True)
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert not table.metadata().configuration
    assert table.count() == 20


def test_checkpoints_of_the_second_specification_are_given_up(tmp_path):
    table = DeltaTable.create(tmp_path, ROWS.schema, configuration={"delta.checkpointPolicy": "v2"})
    write_deltalake(table, ROWS, mode="append")
    table.create_checkpoint()
    table.alter.drop_feature("v2Checkpoint")
    assert supported(table) == {"appendOnly", "invariants", "checkpointProtection"}
    assert table.metadata().configuration["delta.checkpointPolicy"] == "classic"
    assert DeltaTable(tmp_path).count() == 10


@pytest.mark.parametrize("name", ["typeWidening", "typeWidening-preview"])
def test_files_are_rewritten_in_the_types_of_today(tmp_path, name):
    narrow = pa.table({"id": pa.array([1, 2], pa.int16()), "s": [{"x": 1.5}] * 2})
    properties = {"delta.enableTypeWidening": "true", f"delta.feature.{name}": "supported"}
    write_deltalake(tmp_path, narrow, configuration=properties)
    table = DeltaTable(tmp_path)
    table.alter.change_type("id", "long")
    write_deltalake(table, ROWS.slice(5).select(["id"]), mode="append")
    before = table.to_pyarrow_table().sort_by("id")
    table.alter.drop_feature(name)
    assert supported(table) == {"appendOnly", "invariants", "checkpointProtection"}
    assert table.to_pyarrow_table().sort_by("id") == before
    assert "delta.typeChanges" not in table.metadata().schema_string
    assert "delta.enableTypeWidening" not in table.metadata().configuration
    kinds = {pq.read_schema(uri).field("id").type for uri in table.file_uris()}
    assert kinds == {before.schema.field("id").type}


def test_rows_keep_their_ids_where_files_are_rewritten(tmp_path):
    properties = {"delta.enableTypeWidening": "true", "delta.enableRowTracking": "true"}
    write_deltalake(tmp_path, pa.table({"id": pa.array(range(4), pa.int16())}), configuration=properties)
    table = DeltaTable(tmp_path)
    table.update({"id": "id + 10"}, predicate="id < 2")
    table.alter.change_type("id", "long")
    asked = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    before = table.to_pyarrow_table(columns=asked).sort_by("id")
    table.alter.drop_feature("typeWidening")
    assert table.to_pyarrow_table(columns=asked).sort_by("id") == before


@pytest.mark.tier("test")
def test_a_writer_that_brings_it_back_is_noticed(tmp_path, monkeypatch):
    from refdelta.api import drop_feature as dropping

    write_deltalake(tmp_path, ROWS, configuration=VECTORS)
    table, other = DeltaTable(tmp_path), DeltaTable(tmp_path)
    staged, brought = dropping.stage_table, []

    def stage(txn, snapshot, protocol, metadata):
        staged(txn, snapshot, protocol, metadata)
        if "deletionVectors" not in features_of(protocol) and not brought:
            other.alter.set_table_properties(VECTORS)
            other.delete("id = 5")
            brought.append(other.version())

    monkeypatch.setattr(dropping, "stage_table", stage)
    table.alter.drop_feature("deletionVectors")
    assert brought
    assert "deletionVectors" not in supported(table)
    newest = DeltaTable(tmp_path)
    assert "delta.enableDeletionVectors" not in newest.metadata().configuration
    assert newest.files()["num_deleted"].to_pylist() == [0]
    assert newest.count() == 9


@pytest.mark.parametrize(
    ("feature", "options", "said"),
    [
        ("deletionVectors", {}, "does not support deletionVectors; it supports: appendOnly, invariants"),
        ("nope", {}, "table feature 'nope' does not exist"),
        ("appendOnly", {}, "appendOnly cannot be dropped: Delta defines no procedure"),
        ("invariants", {"truncate_history": True}, "cannot be dropped"),
    ],
)
def test_what_cannot_be_dropped(table, feature, options, said):
    with pytest.raises(errors.InvalidArgumentError, match=said):
        table.alter.drop_feature(feature, **options)
    assert table.version() == 0


def test_history_is_truncated_only_where_it_needs_the_feature(tmp_path):
    table = DeltaTable.create(tmp_path, ROWS.schema, configuration={"delta.feature.domainMetadata": "supported"})
    with pytest.raises(errors.InvalidArgumentError, match="truncate_history does not apply"):
        table.alter.drop_feature("domainMetadata", truncate_history=True)
    table.alter.drop_feature("domainMetadata")
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
