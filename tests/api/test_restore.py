"""RESTORE: an earlier version, as a new one."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.table.features import features_of
from written_tables import commit_of

VECTORS = {"delta.enableDeletionVectors": "true"}


def rows(table, version=None):
    at = table if version is None else DeltaTable(table.table_uri, version=version)
    return sorted(at.to_pyarrow_table().to_pylist(), key=lambda row: json.dumps(row, default=str))


@pytest.fixture(params=[{}, VECTORS], ids=["plain", "vectors"])
def path(request, tmp_path):
    """Version 0: 0 to 4; 1: without 2; 2: and 10, 11; 3: another property; 4: nothing."""
    write_deltalake(tmp_path / "t", pa.table({"id": range(5)}), configuration=request.param)
    table = DeltaTable(tmp_path / "t")
    table.delete("id = 2")
    write_deltalake(table, pa.table({"id": [10, 11]}), mode="append")
    table.alter.set_table_properties({"mine": "yes"})
    table.delete()
    return tmp_path / "t"


@pytest.mark.sample(check=3)
@pytest.mark.parametrize("version", range(4))
def test_each_version_comes_back(path, version):
    table = DeltaTable(path)
    result = table.restore(version)
    assert result.version == 5 == table.version()
    assert rows(table) == rows(table, version)
    then = DeltaTable(path, version=version)
    assert table.metadata() == then.metadata()
    assert table.files().sort_by("path") == then.files().sort_by("path")
    assert rows(DeltaTable(path)) == rows(table, version)
    assert table.count() == len(rows(table, version))
    # And back again.
    table.restore(4)
    assert rows(table) == []
    assert table.metadata().configuration["mine"] == "yes"


def test_a_vector_that_shrinks_and_grows(path):
    table = DeltaTable(path)
    table.restore(0)
    assert [row["id"] for row in rows(table)] == [0, 1, 2, 3, 4]
    table.restore(1)
    assert [row["id"] for row in rows(table)] == [0, 1, 3, 4]
    removed = [a["remove"] for a in commit_of(path, 6) if "remove" in a]
    added = [a["add"] for a in commit_of(path, 6) if "add" in a]
    (live,) = (a["add"] for a in commit_of(path, 1) if "add" in a)
    assert [(a["path"], a.get("deletionVector"), a["stats"], a["dataChange"]) for a in added] == [
        (live["path"], live.get("deletionVector"), live["stats"], True)
    ]
    assert all(remove["dataChange"] for remove in removed)


def test_only_what_changes_is_in_the_log(path):
    table = DeltaTable(path)
    table.restore(2)
    table.restore(3)
    assert [set(action) for action in commit_of(path, 6)] == [{"commitInfo"}, {"metaData"}]
    assert table.restore(3).version is None
    assert table.version() == 6


def test_the_entry_of_the_history(path):
    table = DeltaTable(path)
    then = DeltaTable(path, version=2)
    result = table.restore(2)
    (info,) = table.history(1)
    size = then.detail()["size_in_bytes"]
    assert info["operation"] == "RESTORE"
    assert info["operationParameters"] == {"version": 2, "timestamp": None}
    assert info["isBlindAppend"] is False
    assert info["operationMetrics"] == {
        "tableSizeAfterRestore": str(size),
        "numOfFilesAfterRestore": "2",
        "numRemovedFiles": "0",
        "numRestoredFiles": "2",
        "removedFilesSize": "0",
        "restoredFilesSize": str(size),
    }
    assert result["table_size_after_restore"] == size
    assert (result["num_restored_files"], result["num_removed_files"]) == (2, 0)
    assert (result["numRestoredFile"], result["numRemovedFile"]) == (2, 0)
    table.restore(0)
    assert table.history(1)[0]["operationMetrics"]["numOfFilesAfterRestore"] == str(table.files().num_rows)
    assert table.history(1)[0]["operationMetrics"]["tableSizeAfterRestore"] == str(table.detail()["size_in_bytes"])


def test_to_a_time(path):
    table = DeltaTable(path)
    moment = dt.datetime.fromtimestamp(table.history()[2]["timestamp"] / 1000, dt.UTC)
    table.restore(moment)
    assert rows(table) == rows(table, 2)
    assert table.history(1)[0]["operationParameters"] == {"version": None, "timestamp": str(moment)}
    table.restore(4)
    table.restore(moment.isoformat())
    assert rows(table) == rows(table, 2)
    with pytest.raises(errors.VersionNotFoundError, match="after the newest version"):
        table.restore("2999-01-01")


def test_schema_and_partition_columns_come_back(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1], "p": ["x"]}), partition_by="p")
    table = DeltaTable(tmp_path / "t")
    write_deltalake(table, pa.table({"id": [2], "p": ["y"], "more": [1.5]}), mode="append", schema_mode="merge")
    DeltaTable.create(tmp_path / "t", pa.schema([("other", pa.date32())]), mode="overwrite")
    table.restore(0)
    assert rows(table) == [{"id": 1, "p": "x"}]
    assert table.metadata().partition_columns == ["p"]
    table.restore(1)
    assert rows(table) == [{"id": 1, "p": "x", "more": None}, {"id": 2, "p": "y", "more": 1.5}]
    table.restore(2)
    assert table.to_pyarrow_table().schema == pa.schema([("other", pa.date32())])


def test_the_protocol_never_goes_down(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    table = DeltaTable(tmp_path / "t")
    before = table.protocol()
    table.alter.set_table_properties(VECTORS)
    table.restore(0)
    assert table.metadata().configuration in (None, {})
    assert features_of(table.protocol()) >= features_of(before) | {"deletionVectors"}


def test_application_versions_stay(tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    table = DeltaTable(tmp_path / "t")
    write_deltalake(table, pa.table({"id": [2]}), mode="append", app_id="a", app_version=7)
    table.restore(0)
    assert table.transaction_version("a") == 7
    assert table.restore(1, app_id="a", app_version=7).version is None
    assert rows(table) == [{"id": 1}]


def test_what_vacuum_has_removed_is_named(path):
    table = DeltaTable(path)
    gone = [row["path"] for row in DeltaTable(path, version=0).files().to_pylist()]
    for name in gone:
        (path / name).unlink()
    with pytest.raises(errors.DataFileNotFoundError, match=f"version 0 .* 1 of its files .*{gone[0]}"):
        table.restore(0)
    assert table.version() == 4
    result = table.restore(0, ignore_missing_files=True)
    assert result["num_restored_files"] == 0
    assert table.count() == 0
    table.restore(2, ignore_missing_files=True)
    assert {row["id"] for row in rows(table)} >= {10, 11}
    assert table.history(1)[0]["operationMetrics"]["numOfFilesAfterRestore"] == str(table.files().num_rows)


def test_a_vector_that_vacuum_has_removed_is_named(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": range(20_000)}), configuration=VECTORS)
    table = DeltaTable(path)
    table.delete("id % 3 = 0")
    (vector,) = path.glob("deletion_vector_*.bin")
    table.restore(0)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert not vector.exists()
    with pytest.raises(errors.DataFileNotFoundError, match=f"version 1 .*{vector.name}"):
        table.restore(1)
    # Without its vector the file would show rows that were deleted.
    table.restore(1, ignore_missing_files=True)
    assert table.count() == 0


def test_a_version_that_was_cleaned_up(path):
    table = DeltaTable(path)
    table.create_checkpoint()
    for version in range(4):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(errors.VersionNotFoundError):
        table.restore(1)
    with pytest.raises(errors.VersionNotFoundError):
        table.restore(99)
    for target in (None, True, 1.5, "yesterday"):
        with pytest.raises(errors.InvalidArgumentError):
            table.restore(target)


def test_an_append_only_table_loses_no_rows(path):
    table = DeltaTable(path)
    table.restore(1)
    write_deltalake(table, pa.table({"id": [20]}), mode="append")
    table.alter.set_table_properties({"delta.appendOnly": True})
    with pytest.raises(errors.ConstraintViolationError, match="append-only"):
        table.restore(1)


def test_a_pinned_handle_is_read_only(path):
    with pytest.raises(errors.ReadOnlyTableError):
        DeltaTable(path, version=2).restore(1)


def test_statistics_that_only_a_checkpoint_has_stay(tmp_path):
    columns_only = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
    write_deltalake(
        tmp_path / "t", pa.table({"id": range(5), "x": ["a", "b", None, "d", "e"]}), configuration=columns_only
    )
    table = DeltaTable(tmp_path / "t")
    table.create_checkpoint()
    table.delete()
    before = DeltaTable(tmp_path / "t", version=0).get_add_actions(flatten=True)
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").unlink()
    table.restore(0)
    after = table.get_add_actions(flatten=True)
    for name in ("num_records", "min.id", "max.id", "null_count.x", "min.x"):
        assert after.column(name) == before.column(name)


@pytest.mark.parametrize("path", [{}], ids=["plain"], indirect=True)
def test_deltalake_reads_what_is_restored(path, tmp_path):
    shutil.copytree(path, tmp_path / "theirs")
    DeltaTable(path).restore(1)
    theirs = deltalake.DeltaTable(tmp_path / "theirs")
    assert theirs.restore(1) == {"numRemovedFile": 0, "numRestoredFile": 1}
    ours = deltalake.DeltaTable(path)
    assert {Path(uri).name for uri in ours.file_uris()} == {Path(uri).name for uri in theirs.file_uris()}
    assert ours.schema() == theirs.schema()


# --- next to other writers ---


@pytest.fixture
def hidden(tmp_path):
    """Version 0: 0 to 99; 1: without those below 50, hidden by a vector; 2: and 200 to 209."""
    write_deltalake(tmp_path / "t", pa.table({"id": range(100)}), configuration=VECTORS)
    table = DeltaTable(tmp_path / "t")
    table.delete("id < 50")
    write_deltalake(table, pa.table({"id": range(200, 210)}), mode="append")
    return table


def ids(table):
    return [row["id"] for row in DeltaTable(table.table_uri).to_pyarrow_table().sort_by("id").to_pylist()]


def test_a_delete_that_lost_to_a_restore(hidden):
    """The rows that came back are rows that the DELETE should have seen, where they match."""
    deleting, restoring = DeltaTable(hidden.table_uri), DeltaTable(hidden.table_uri)
    misses, matches = deleting.begin(), deleting.begin()
    misses.delete("id between 60 and 69")
    matches.delete("id between 45 and 54")
    restoring.restore(0)
    with pytest.raises(errors.ConcurrentAppendException) as caught:
        matches.commit()
    assert caught.value.conflict.version == 3
    result = misses.commit()
    assert (result.version, result.rebased_over) == (4, (3,))
    assert ids(hidden) == [*range(60), *range(70, 100)]
    # And what is retained of it is right, too.
    DeltaTable(hidden.table_uri).restore(3)
    assert ids(hidden) == list(range(100))


def test_an_update_and_a_merge_that_lost_to_a_restore(hidden):
    table = DeltaTable(hidden.table_uri)
    update, merge = table.begin(), table.begin()
    update.update({"id": "id + 1000"}, predicate="id = 99")
    merge.merge(pa.table({"id": [98, 7]}), "s.id = t.id").when_matched_delete().when_not_matched_insert_all().execute()
    DeltaTable(hidden.table_uri).restore(0)
    update.commit()
    # It found no 7, and inserted one; now there is one.
    with pytest.raises(errors.ConcurrentAppendException):
        merge.commit()
    assert ids(hidden) == [*range(99), 1099]


@pytest.mark.tier("test")
def test_a_restore_that_lost_to_a_change_of_rows(hidden):
    for change in (
        lambda table: table.delete("id = 99"),
        lambda table: table.delete("id = 205"),
        lambda table: table.delete("id between 200 and 209"),
        lambda table: table.update({"id": "id + 1000"}, predicate="id = 98"),
        lambda table: table.restore(1),
    ):
        table, other = DeltaTable(hidden.table_uri), DeltaTable(hidden.table_uri)
        txn = table.begin()
        txn.restore(0)
        change(other)
        with pytest.raises(errors.ConcurrentModificationError):
            txn.commit()
        assert ids(hidden) == ids(other)
        other.restore(2)


def test_a_restore_that_lost_to_an_append(hidden):
    """A blind append may come after it in the serial order, unless every version must be right."""
    for isolation in ("WriteSerializable", "Serializable"):
        table, other = DeltaTable(hidden.table_uri), DeltaTable(hidden.table_uri)
        txn = table.begin(isolation=isolation)
        txn.restore(0)
        write_deltalake(other, pa.table({"id": [300]}), mode="append")
        if isolation == "Serializable":
            with pytest.raises(errors.ConcurrentAppendException):
                txn.commit()
        else:
            txn.commit()
            assert ids(hidden) == [*range(100), 300]
        other.restore(2)


def test_a_restore_that_changes_the_schema_is_passed_over_by_nobody(hidden):
    write_deltalake(hidden, pa.table({"id": [1], "more": [2]}), mode="append", schema_mode="merge")
    table, other = DeltaTable(hidden.table_uri), DeltaTable(hidden.table_uri)
    txn = table.begin()
    txn.restore(0)
    write_deltalake(other, pa.table({"id": [300]}), mode="append")
    with pytest.raises(errors.ConcurrentAppendException):
        txn.commit()
    append = table.begin()
    append.append(pa.table({"id": [5]}))
    other.restore(0)
    with pytest.raises(errors.MetadataChangedException):
        append.commit()


def test_a_restore_that_lost_to_a_compaction(tmp_path):
    """The rows that are to go are followed into the new files."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": range(10)}), configuration=VECTORS)
    for first in (10, 20):
        write_deltalake(path, pa.table({"id": range(first, first + 10)}), mode="append")
    restoring, compacting = DeltaTable(path), DeltaTable(path)
    txn = restoring.begin()
    txn.restore(1)
    assert compacting.optimize.compact().version == 3
    assert txn.commit().version == 4
    assert ids(restoring) == list(range(20))
    assert DeltaTable(path).count() == 20
    # The other order: the compaction keeps no group of which a file is gone.
    restoring.restore(2)
    late = DeltaTable(path).begin()
    late.compact()
    restoring.restore(0)
    late.commit()
    assert ids(restoring) == list(range(10))


def test_a_restored_vector_and_a_compaction(hidden):
    """A file that gets its vector back cannot be followed: one of the two fails, or both are right."""
    table, other = DeltaTable(hidden.table_uri), DeltaTable(hidden.table_uri)
    txn = table.begin()
    txn.restore(0)
    other.optimize.compact()
    with pytest.raises(errors.ConcurrentModificationError):
        txn.commit()
    assert ids(hidden) == [*range(50, 100), *range(200, 210)]
    table.restore(2)
    compaction = table.begin()
    compaction.compact()
    DeltaTable(hidden.table_uri).restore(0)
    assert compaction.commit().version is None
    assert ids(hidden) == list(range(100))


@pytest.mark.parametrize("path", [{}], ids=["plain"], indirect=True)
def test_a_restore_reads_the_whole_table(path):
    for change in (lambda table: table.delete("id = 1"), lambda table: table.update({"id": "-1"}, predicate="id = 1")):
        table, other = DeltaTable(path), DeltaTable(path)
        table.restore(1)
        txn = table.begin()
        txn.restore(2)
        other.update_incremental()
        change(other)
        with pytest.raises(errors.ConcurrentModificationError):
            txn.commit()
        assert rows(DeltaTable(path)) == rows(other)


def test_it_sees_only_its_snapshot(path):
    table = DeltaTable(path)
    txn = table.begin()
    DeltaTable(path).restore(1)
    with pytest.raises(errors.InvalidArgumentError, match="reads version 4"):
        txn.restore(5)
    txn.abort()
