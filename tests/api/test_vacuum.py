"""VACUUM: what no retained version needs goes, and nothing else.

Tests of core.log.vacuums, engine.log.references.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time

import deltalake
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.needed import needs, objects
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.rows.deletion_vector import relative_key
from refdelta.engine.log.references import removals
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.operations.maintenance import vacuum as module
from refdelta.transaction import background
from refdelta_storage import FaultyStore, LocalStore, ReadOnlyStore, TracingStore
from refdelta_storage.wrappers import Fault, WrapperStore
from tiers import examples
from waiting import next_moment, until

VECTORS = {"delta.enableDeletionVectors": "true"}
NOW = {"retention_hours": 0, "enforce_retention_duration": False}
HOUR = 3_600_000


def put(path, *names):
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"something")


def data_files(table, version=None):
    at = table if version is None else DeltaTable(table.table_uri, version=version)
    return set(at.files().column("path").to_pylist())


def ids(table, version=None):
    at = table if version is None else DeltaTable(table.table_uri, version=version)
    return sorted(at.to_pyarrow_table().column("id").to_pylist())


def later(monkeypatch, hours):
    """Let VACUUM think that so many hours have passed, by the clock of the store, too."""
    _at(monkeypatch, lambda: time.time_ns() // 1_000_000 + round(hours * HOUR))


def _at(monkeypatch, now_ms):
    monkeypatch.setattr(module, "now_ms", now_ms)
    monkeypatch.setattr(module, "file_time", lambda *_: now_ms())


@pytest.fixture
def path(tmp_path):
    """Version 0: 0 to 4; 1: without 2, copied; 2: and 10; 3: overwritten by 20."""
    write_deltalake(tmp_path / "t", pa.table({"id": range(5)}))
    table = DeltaTable(tmp_path / "t")
    table.delete("id = 2")
    write_deltalake(table, pa.table({"id": [10]}), mode="append")
    write_deltalake(table, pa.table({"id": [20]}), mode="overwrite")
    return tmp_path / "t"


# --- what goes ---


def test_what_the_log_has_removed_goes(path):
    table = DeltaTable(path)
    live, all_files = data_files(table), objects(path)
    told = table.vacuum(**NOW)
    assert set(told) == all_files - live
    assert len(told) == 3
    assert told == sorted(told)
    assert (told.dry_run, told.version, told.untracked) == (True, None, 0)
    assert told.size_bytes == sum((path / name).stat().st_size for name in told)
    assert objects(path) == all_files
    assert table.version() == 3
    done = table.vacuum(dry_run=False, **NOW)
    assert done == told
    assert (done.dry_run, done.size_bytes) == (False, told.size_bytes)
    assert objects(path) == live
    assert ids(table) == ids(DeltaTable(path)) == [20]
    with pytest.raises(errors.DataFileNotFoundError):
        ids(table, 2)


def test_the_entries_of_the_history(path):
    table = DeltaTable(path)
    result = table.vacuum(dry_run=False, **NOW)
    assert result.version == 5 == table.version()
    end, start = table.history(2)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationParameters"] == {
        "retentionCheckEnabled": False,
        "full": False,
        "specifiedRetentionMillis": 0,
        "defaultRetentionMillis": 7 * 24 * HOUR,
    }
    assert start["operationMetrics"] == {"numFilesToDelete": "3", "sizeOfDataToDelete": str(result.size_bytes)}
    assert end["operationParameters"] == {"status": "COMPLETED", "startVersions": "[4]"}
    assert end["operationMetrics"] == {"numDeletedFiles": "3", "numVacuumedDirectories": "0"}
    for version in (4, 5):
        lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        assert [list(json.loads(line)) for line in lines] == [["commitInfo"]]
    # Nothing to remove is nothing to note.
    assert table.vacuum(dry_run=False, **NOW) == []
    assert table.version() == 5


def test_what_the_caller_notes(path):
    from refdelta.core.log.actions import Txn
    from refdelta.transaction.options import CommitProperties

    table = DeltaTable(path)
    properties = CommitProperties(
        custom_metadata={"who": "me"}, user_metadata="weekly", app_transactions=[Txn(app_id="v", version=4)]
    )
    table.vacuum(dry_run=False, commit_properties=properties, **NOW)
    assert [(info["who"], info["userMetadata"]) for info in table.history(2)] == [("me", "weekly")] * 2
    assert table.transaction_version("v") == 4
    assert '"txn"' not in (path / "_delta_log" / f"{4:020d}.json").read_text()


def test_leftovers_by_kind(path):
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    certain = {
        f"deletion_vector_{uuid}.bin",
        f"ab/deletion_vector_{uuid}.bin",
        "_change_data/cdc-1.parquet",
        "_change_data/p=1/cdc-2.parquet",
        "_delta_log/.refdelta-tmp-1",
        "p=1/.refdelta-tmp-2",
    }
    doubtful = {
        "part-00000-killed-c000.snappy.parquet",
        "p=1/part.parquet",
        "deletion_vector_of_mine.bin",
        "notes.txt",
        "deep/er/x",
    }
    of_others = {"_notes", "_x/y", ".hidden", "a/_x/y", "a/.y", "a/_y", "_delta_log/_mine", "_change_data/_mine"}
    put(path, *certain, *doubtful, *of_others)
    table = DeltaTable(path)
    tombstones = set(table.vacuum(**NOW)) - certain
    assert len(tombstones) == 3
    assert set(table.vacuum(**NOW)) == tombstones | certain
    assert table.vacuum(**NOW).untracked == len(doubtful)
    assert set(table.vacuum(full=True, **NOW)) == tombstones | certain | doubtful
    assert table.vacuum(full=True, **NOW).untracked == 0
    table.vacuum(full=True, dry_run=False, **NOW)
    assert objects(path) == of_others | data_files(table)
    assert ids(table) == [20]


def test_a_table_within_the_folder_is_left_alone(path):
    write_deltalake(path / "a (b)+/inner", pa.table({"id": [1]}))
    inner = DeltaTable(path / "a (b)+/inner")
    write_deltalake(inner, pa.table({"id": [2]}), mode="overwrite")
    put(path, "a (b)+/inner/x", "a (b)+/x", "a (b)+/inner/.refdelta-tmp-1", "a (b)+/innermost")
    before = objects(path / "a (b)+/inner")
    table = DeltaTable(path)
    assert {"a (b)+/x", "a (b)+/innermost"} < set(table.vacuum(full=True, dry_run=False, **NOW))
    assert objects(path / "a (b)+/inner") == before
    inner.vacuum(full=True, dry_run=False, **NOW)
    assert objects(path / "a (b)+/inner") == data_files(inner)


def test_partition_columns_that_begin_as_hidden_names_do(tmp_path):
    data = pa.table({"id": [1, 2], "_p": ["a b%/é", "_x"], ".q": ["y", None]})
    write_deltalake(tmp_path / "t", data, partition_by=["_p", ".q"])
    table = DeltaTable(tmp_path / "t")
    old = objects(tmp_path / "t")
    assert all(name.startswith("_p=") for name in old)
    assert table.vacuum(full=True, **NOW) == []
    write_deltalake(table, data, mode="overwrite")
    put(tmp_path / "t", "_p=1/.q=2/x", "_p/x", "_p=1/_p/x")
    assert set(table.vacuum(**NOW)) == old
    assert set(table.vacuum(full=True, dry_run=False, **NOW)) == old | {"_p=1/.q=2/x"}
    assert ids(table) == [1, 2]


def test_the_same_files_as_deltalake(path, tmp_path):
    put(path, "orphan.parquet", "_mine", "sub/x", "_change_data/x")
    shutil.copytree(path, tmp_path / "theirs")
    ours, theirs = DeltaTable(path), deltalake.DeltaTable(tmp_path / "theirs")
    assert set(ours.vacuum(full=True, **NOW)) == set(theirs.vacuum(full=True, **NOW))
    assert set(ours.vacuum(**NOW)) - {"_change_data/x"} == set(theirs.vacuum(**NOW))
    assert set(ours.vacuum(full=True, keep_versions=[1], **NOW)) == set(
        theirs.vacuum(full=True, keep_versions=[1], **NOW)
    )


# --- what stays ---


def test_what_was_written_or_removed_within_the_retention_stays(path, monkeypatch):
    put(path, "young")
    table = DeltaTable(path)
    assert table.vacuum(full=True) == []
    later(monkeypatch, 7 * 24 - 1)
    assert table.vacuum(full=True) == []
    assert len(table.vacuum(6 * 24, full=True, enforce_retention_duration=False)) == 4
    later(monkeypatch, 7 * 24 + 1)
    assert len(table.vacuum(full=True)) == 4
    assert len(table.vacuum(8 * 24, full=True)) == 0
    # The file is old, its tombstone is not.
    two_weeks_ago = time.time() - 14 * 24 * 3600
    for name in objects(path):
        os.utime(path / name, (two_weeks_ago, two_weeks_ago))
    later(monkeypatch, 0)
    assert table.vacuum() == []
    assert table.vacuum(full=True, dry_run=False) == ["young"]
    assert ids(table, 0) == [0, 1, 2, 3, 4]


def test_the_retention_is_the_tables_own(path, monkeypatch):
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 2 hours"})
    later(monkeypatch, 1)
    assert table.vacuum() == []
    later(monkeypatch, 3)
    assert len(table.vacuum(dry_run=False)) == 3
    assert table.history(2)[1]["operationParameters"] == {
        "retentionCheckEnabled": True,
        "full": False,
        "defaultRetentionMillis": 2 * HOUR,
    }
    with pytest.raises(errors.InvalidArgumentError, match=r"retention_hours=1.5 is below the 2 hours of the table"):
        table.vacuum(1.5)


@pytest.mark.tier("test")
def test_tombstones_that_a_checkpoint_has_forgotten(path, monkeypatch):
    table = DeltaTable(path)
    removed = set(table.vacuum(**NOW))
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    next_moment()
    table.create_checkpoint()
    table = DeltaTable(path)
    assert table.version() == 4
    # The commits still know that these files were removed, and when.
    put(path, "orphan")
    assert set(table.vacuum(**NOW)) == removed
    later(monkeypatch, 1)
    two_days_ago = time.time() - 2 * 24 * 3600
    for name in objects(path):
        os.utime(path / name, (two_days_ago, two_days_ago))
    assert table.vacuum(2, full=True) == ["orphan"]
    assert set(table.vacuum(0.5)) == removed
    # Once the commits are gone, only the full one finds them.
    for version in range(4):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    table = DeltaTable(path)
    assert table.vacuum(0.5) == []
    assert table.vacuum(0.5).untracked == 4
    assert set(table.vacuum(0.5, full=True, dry_run=False)) == removed | {"orphan"}
    assert ids(table) == [20]


@pytest.mark.breaks_tables
def test_commits_that_log_cleanup_has_removed(path, monkeypatch):
    table = DeltaTable(path)
    removed = set(table.vacuum(**NOW))
    table.create_checkpoint()
    for version in range(4):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    table = DeltaTable(path)
    # The checkpoint still has the tombstones.
    for name in objects(path):
        os.utime(path / name, (0, 0))
    assert table.vacuum(full=True) == []
    assert set(table.vacuum(**NOW)) == removed


def test_versions_to_keep(path):
    table = DeltaTable(path)
    wanted = {version: ids(table, version) for version in (0, 2)}
    assert set(table.vacuum(keep_versions=[0, 2, 2], dry_run=False, **NOW)) == set()
    put(path, "orphan")
    assert table.vacuum(keep_versions=[2], full=True, **NOW) == sorted({"orphan"} | (data_files(table, 0)))
    table.vacuum(keep_versions=[2], full=True, dry_run=False, **NOW)
    assert ids(table, 2) == wanted[2]
    with pytest.raises(errors.DataFileNotFoundError):
        ids(table, 0)
    with pytest.raises(errors.VersionNotFoundError):
        table.vacuum(keep_versions=[99], **NOW)
    for wrong in ([True], ["1"], [1.0]):
        with pytest.raises(errors.InvalidArgumentError, match="keep_versions"):
            table.vacuum(keep_versions=wrong, **NOW)


@pytest.mark.breaks_tables
def test_the_change_data_of_versions_to_keep(path):
    put(path, "_change_data/cdc-1.parquet", "_change_data/cdc 2.parquet")
    cdc = {"path": "_change_data/cdc%202.parquet", "partitionValues": {}, "size": 9, "dataChange": False}
    (path / "_delta_log" / f"{4:020d}.json").write_text(json.dumps({"cdc": cdc}))
    table = DeltaTable(path)
    assert "_change_data/cdc 2.parquet" in table.vacuum(**NOW)
    assert "_change_data/cdc 2.parquet" not in table.vacuum(keep_versions=[4], **NOW)
    assert "_change_data/cdc-1.parquet" in table.vacuum(keep_versions=[4], **NOW)
    table.create_checkpoint()
    (path / "_delta_log" / f"{4:020d}.json").unlink()
    assert "_change_data/cdc-1.parquet" in table.vacuum(keep_versions=[4], **NOW)


def test_deletion_vectors_go_with_the_versions_that_need_them(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": range(20_000)}), configuration=VECTORS)
    table = DeltaTable(path)
    held = []
    for rest in (0, 1, 2):
        table.delete(f"id % 7 = {rest}")
        (add,) = (a["add"] for a in map(json.loads, log_lines(path, rest + 1)) if "add" in a)
        held.append(relative_key(add["deletionVector"]["pathOrInlineDv"]))
    (data,) = data_files(table)
    assert objects(path) == {data, *held}
    assert set(table.vacuum(**NOW)) == set(held[:2])
    assert table.vacuum(keep_versions=[2], dry_run=False, **NOW) == [held[0]]
    assert len(ids(table, 2)) == sum(i % 7 > 1 for i in range(20_000))
    assert table.vacuum(dry_run=False, full=True, **NOW) == [held[1]]
    assert len(ids(table)) == sum(i % 7 > 2 for i in range(20_000))
    table.delete()
    assert set(table.vacuum(dry_run=False, **NOW)) == {data, held[2]}
    assert objects(path) == set()


def log_lines(path, version):
    return (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()


def test_paths_in_every_spelling(tmp_path):
    path = tmp_path / "a table"
    write_deltalake(path, pa.table({"id": range(6)}), configuration=VECTORS)
    add = next(a["add"] for a in map(json.loads, log_lines(path, 0)) if "add" in a)
    names = ["x y.parquet", "ü%.parquet", "./c.parquet", "abs.parquet", "abs2.parquet", "d//e.parquet"]
    spelled = [
        "x%20y.parquet",
        "%C3%BC%25.parquet",
        "./c.parquet",
        f"{path.as_uri()}/abs.parquet",
        f"{path}/abs2.parquet".replace(" ", "%20"),
        "d//e.parquet",
    ]
    put(path, "d/stranger")
    for name in names:
        shutil.copy(path / add["path"], path / name)
    lines = [json.dumps({"add": {**add, "path": spelling}}) for spelling in spelled]
    (path / "_delta_log" / f"{1:020d}.json").write_text("\n".join(lines))
    table = DeltaTable(path)
    assert table.count() == 42
    assert table.vacuum(full=True, **NOW) == ["d/stranger"]
    lines = [
        json.dumps({"remove": {"path": spelling, "deletionTimestamp": 0, "dataChange": True}}) for spelling in spelled
    ]
    (path / "_delta_log" / f"{2:020d}.json").write_text("\n".join(lines))
    table = DeltaTable(path)
    expected = {"x y.parquet", "ü%.parquet", "c.parquet", "abs.parquet", "abs2.parquet", "d/e.parquet"}
    assert set(table.vacuum(dry_run=False, **NOW)) == expected
    assert table.count() == 6


def test_absolute_vectors_within_the_table_stay(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": range(20_000)}), configuration=VECTORS)
    table = DeltaTable(path)
    table.delete("id % 3 = 0")
    log = path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        vector = line.get("add", {}).get("deletionVector")
        if vector:
            name = relative_key(vector["pathOrInlineDv"])
            vector.update(storageType="p", pathOrInlineDv=f"{path.as_uri()}/{name}")
    log.write_text("\n".join(map(json.dumps, lines)))
    table = DeltaTable(path)
    assert table.vacuum(full=True, **NOW) == []
    assert table.count() == 13_333


def test_files_outside_of_the_table(path, tmp_path):
    put(tmp_path, "outside.parquet")
    outside = (tmp_path / "outside.parquet").as_uri()
    log = path / "_delta_log" / f"{4:020d}.json"
    log.write_text(json.dumps({"remove": {"path": outside, "deletionTimestamp": 0, "dataChange": True}}))
    # Long removed: nothing of ours. But what is needed must be known.
    assert len(DeltaTable(path).vacuum(full=True, dry_run=False, **NOW)) == 3
    assert (tmp_path / "outside.parquet").exists()
    add = {"path": outside, "partitionValues": {}, "size": 9, "modificationTime": 0, "dataChange": True}
    (path / "_delta_log" / f"{7:020d}.json").write_text(json.dumps({"add": add}))
    with pytest.raises(errors.UnsafePathError, match="outside"):
        DeltaTable(path).vacuum(full=True, **NOW)


# --- next to other writers ---


@pytest.mark.sample(check=4)
@pytest.mark.parametrize("isolation", ["WriteSerializable", "Serializable"])
@pytest.mark.parametrize(
    "change",
    [
        lambda txn: txn.delete("id = 20"),
        lambda txn: txn.append(pa.table({"id": [30]})),
        lambda txn: txn.set_table_properties({"mine": "yes"}),
        lambda txn: txn.restore(2),
        lambda txn: txn.overwrite(pa.table({"id": [30]})),
    ],
    ids=["delete", "append", "set_properties", "restore", "overwrite"],
)
def test_a_vacuum_is_in_nobodys_way(path, change, isolation):
    table = DeltaTable(path)
    put(path, "_change_data/x")
    os.utime(path / "_change_data" / "x", (0, 0))
    txn = table.begin(isolation=isolation)
    change(txn)
    # What is in flight is younger than the retention.
    assert table.vacuum(1, False, False, full=True) == ["_change_data/x"]
    assert txn.commit().rebased_over == (4, 5)
    assert table.version() == 6
    assert len(ids(table)) == table.count()


class Interrupted(WrapperStore):
    """Calls back once, before the first commit or the first deletion."""

    def __init__(self, inner, before, call):
        super().__init__(inner)
        self.before, self.call = before, call

    def _interrupt(self, operation):
        if operation == self.before:
            self.before = None
            self.call()

    def put_if_absent(self, key, data):
        self._interrupt("commit")
        return super().put_if_absent(key, data)

    def delete(self, keys):
        self._interrupt("delete")
        return super().delete(keys)


def run(store, **options):
    request = module.VacuumRequest(retention_hours=0, enforce_retention_duration=False, **options)
    return module.vacuum(load_snapshot(store), request, dry_run=False)[0]


def test_files_that_come_back_while_vacuum_begins_stay(path):
    other = DeltaTable(path)
    store = Interrupted(LocalStore(path), "commit", lambda: other.restore(2))
    result = run(store)
    assert set(result).isdisjoint(data_files(other))
    assert len(result) == 1
    assert ids(DeltaTable(path)) == ids(DeltaTable(path, version=4)) == [0, 1, 3, 4, 10]
    assert [info["operation"] for info in other_history(path, 3)] == ["VACUUM END", "VACUUM START", "RESTORE"]


def test_files_that_come_back_while_vacuum_looks_stay(path):
    other = DeltaTable(path)

    class Slow(WrapperStore):
        def leftovers(self):
            if other.version() == 3:
                other.restore(2)
            return super().leftovers()

    assert len(run(Slow(LocalStore(path)))) == 1
    assert ids(DeltaTable(path)) == [0, 1, 3, 4, 10]


def other_history(path, limit):
    return DeltaTable(path).history(limit)


def test_the_end_is_noted_whatever_others_change(path):
    other = DeltaTable(path)
    change = {"delta.deletedFileRetentionDuration": "2 days"}
    store = Interrupted(LocalStore(path), "delete", lambda: other.alter.set_table_properties(change))
    assert len(run(store)) == 3
    assert [info["operation"] for info in other_history(path, 3)] == ["VACUUM END", "SET TBLPROPERTIES", "VACUUM START"]


def test_a_change_of_the_table_stops_it_before_anything_is_removed(path):
    before = objects(path)
    other = DeltaTable(path)
    change = {"delta.deletedFileRetentionDuration": "9 days"}
    store = Interrupted(LocalStore(path), "commit", lambda: other.alter.set_table_properties(change))
    with pytest.raises(errors.MetadataChangedException):
        run(store)
    assert objects(path) == before


# --- trouble ---


def test_a_store_that_fails_in_the_middle(path, monkeypatch):
    monkeypatch.setattr(module, "_KEYS_AT_ONCE", 1)
    monkeypatch.setattr(module, "_WORKERS", 1)
    victim = DeltaTable(path).vacuum(**NOW)[1]
    store = FaultyStore(LocalStore(path), [Fault("fail", "delete", key=victim)])
    with pytest.raises(errors.StoreError, match=r"1 of 3 are removed: injected"):
        run(store)
    end, start = other_history(path, 2)
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert end["operationParameters"] == {"status": "FAILED", "startVersions": "[4]"}
    assert end["operationMetrics"] == {}
    assert victim in objects(path)
    assert ids(DeltaTable(path)) == [20]
    # The next one finishes it.
    run(LocalStore(path))
    assert victim not in objects(path)


def test_a_store_that_cannot_be_written(path):
    before = objects(path)
    with pytest.raises(errors.StoreError, match="cannot commit"):
        run(ReadOnlyStore(LocalStore(path)))
    assert objects(path) == before


def test_bad_retentions(path):
    table = DeltaTable(path)
    for wrong in (-1, float("nan"), float("inf"), True, "7"):
        with pytest.raises(errors.InvalidArgumentError, match="retention_hours"):
            table.vacuum(wrong, enforce_retention_duration=False)
    with pytest.raises(errors.InvalidArgumentError, match="below the 168 hours"):
        table.vacuum(1)
    with pytest.raises(errors.ReadOnlyTableError):
        DeltaTable(path, version=1).vacuum()


@pytest.mark.breaks_tables
def test_a_table_that_this_engine_may_not_write(path):
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["vacuumProtocolCheck"]}
    for feature, refused in (("appendOnly", False), ("somethingNew", True)):
        table = DeltaTable(path)
        action = {"protocol": {**protocol, "writerFeatures": ["vacuumProtocolCheck", feature]}}
        (path / "_delta_log" / f"{table.version() + 1:020d}.json").write_text(json.dumps(action))
        if refused:
            with pytest.raises(errors.UnsupportedFeatureError, match=feature):
                table.vacuum()
        else:
            assert len(table.vacuum(**NOW)) == 3


def test_files_are_deleted_in_portions(path, monkeypatch):
    put(path, *(f"x/{number:03d}" for number in range(95)))
    monkeypatch.setattr(module, "_KEYS_AT_ONCE", 10)
    told = []
    store = TracingStore(LocalStore(path))
    request = module.VacuumRequest(retention_hours=0, enforce_retention_duration=False, full=True)
    result, _ = module.vacuum(
        load_snapshot(store), request, dry_run=False, progress=lambda done, total: told.append((done, total))
    )
    assert told == [(min(done, 98), 98) for done in range(10, 101, 10)]
    assert {key for call, key in store.calls if call == "delete"} == set(result)


def test_log_cleanup_may_run_beside_it(path):
    class Cleaned(WrapperStore):
        def get_many(self, keys):
            for version in (0, 1):
                (path / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)
            return super().get_many(keys)

    table = DeltaTable(path)
    table.create_checkpoint()
    snapshot = load_snapshot(LocalStore(path))
    removed = removals(Cleaned(LocalStore(path)))
    assert len(removed) == 2
    assert len(removals(LocalStore(path), after_ms=2**50)) == 0
    assert set(removed.schema.names) == {"path", "deletionTimestamp", "deletionVector"}
    assert snapshot.version == 3


def test_a_table_in_memory(monkeypatch):
    write_deltalake("memory://vacuum", pa.table({"id": [1]}))
    write_deltalake("memory://vacuum", pa.table({"id": [2]}), mode="overwrite")
    table = DeltaTable("memory://vacuum")
    table.store.put("_change_data/x", b"")
    assert len(table.vacuum(dry_run=False, **NOW)) == 2
    assert ids(table) == [2]


# --- any history ---

STEPS = st.lists(
    st.sampled_from(["append", "delete", "overwrite", "checkpoint", "restore", "compact"]), min_size=1, max_size=7
)


@pytest.mark.tier("test")
@examples(40)
@given(
    steps=STEPS,
    vectors=st.booleans(),
    cut=st.floats(0, 1),
    keep=st.lists(st.integers(0, 7), max_size=2),
    full=st.booleans(),
)
def test_every_retained_version_reads_and_nothing_else_is_left(fresh_path, steps, vectors, cut, keep, full):
    path = fresh_path()
    write_deltalake(path, pa.table({"id": range(4000)}), configuration=VECTORS if vectors else None)
    table = DeltaTable(path)
    # A moment at which each version was the newest.
    moments = [time.time_ns() // 1_000_000]
    for step in steps:
        next_moment()
        change(table, step)
        next_moment()
        if table.version() == len(moments):
            moments.append(time.time_ns() // 1_000_000)
    oldest = round(cut * table.version())
    keep = [version for version in keep if version < oldest]
    retained = {*keep, *range(oldest, table.version() + 1)}
    wanted = {version: ids(table, version) for version in retained}
    needed = {name for version in retained for name in needs(table, version)}
    put(path, "orphan.parquet")
    os.utime(path / "orphan.parquet", (0, 0))
    young = {n for n in objects(path) if (path / n).stat().st_mtime_ns // 1_000_000 > moments[oldest]}
    before = objects(path)
    result = vacuum_since(table, moments[oldest], full=full, keep_versions=keep)
    assert objects(path) == needed | young | (set() if full else {"orphan.parquet"})
    assert set(result) == before - objects(path)
    assert {version: ids(table, version) for version in retained} == wanted


def change(table, step):
    match step:
        case "append":
            write_deltalake(table, pa.table({"id": range(10_000, 10_500)}), mode="append")
        case "delete":
            table.delete("id % 5 = 3 and id < 3000")
        case "overwrite":
            write_deltalake(table, pa.table({"id": range(4000)}), mode="overwrite")
        case "checkpoint":
            table.create_checkpoint()
        case "restore":
            table.restore(table.version() // 2)
        case "compact":
            table.optimize.compact()


def vacuum_since(table, moment_ms, **options):
    with pytest.MonkeyPatch.context() as patch:
        _at(patch, lambda: moment_ms + HOUR)
        return table.vacuum(1, dry_run=False, enforce_retention_duration=False, **options)


# --- spans ---


def started(path, retention_ms=0, **more):
    """A VACUUM START without an END. Returns its version."""
    version = DeltaTable(path).version() + 1
    parameters = {"specifiedRetentionMillis": str(retention_ms), **more}
    info = {"timestamp": time.time_ns() // 1_000_000, "operation": "VACUUM START", "operationParameters": parameters}
    (path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    return version


def ended(path):
    return [info["operationParameters"]["startVersions"] for info in DeltaTable(path).history(1)]


def test_a_vacuum_ends_those_that_were_interrupted(path):
    began = started(path)
    with pytest.raises(errors.ConcurrentDeleteReadException, match=f"version {began}.*run VACUUM once more"):
        DeltaTable(path).restore(2)
    DeltaTable(path).vacuum(dry_run=False, full=True, **NOW)
    assert ended(path) == [f"[{began + 1},{began}]"]
    with pytest.raises(errors.DataFileNotFoundError):
        DeltaTable(path).restore(2)
    # One that finds nothing to delete ends them, too.
    began = started(path)
    assert DeltaTable(path).vacuum(dry_run=False, full=True, **NOW).version == began + 1
    assert ended(path) == [f"[{began}]"]


def test_a_vacuum_ends_no_other_that_may_delete_more(path):
    foreign, long, kept = started(path), started(path, 10**12, full="false"), started(path, full="false")
    write_deltalake(path, pa.table({"id": [30]}), mode="overwrite")
    # Files that the log does not name go by the first only, and files of version 3 are too young for the last.
    DeltaTable(path).vacuum(dry_run=False, **NOW)
    assert ended(path) == [f"[{kept + 2},{long},{kept}]"]
    assert foreign not in json.loads(ended(path)[0])
    DeltaTable(path).vacuum(dry_run=False, keep_versions=[4], full=True, **NOW)
    assert ended(path) == [f"[{kept + 2},{long},{kept}]"]


def test_a_vacuum_stops_before_others_take_it_for_interrupted(path, monkeypatch):
    monkeypatch.setattr(module, "_KEYS_AT_ONCE", 1)
    hours = iter([0, 0, 1, 24, 24])
    now = time.time_ns() // 1_000_000
    monkeypatch.setattr(module, "now_ms", lambda: now + next(hours) * HOUR)
    monkeypatch.setattr(module, "_WORKERS", 1)
    before = objects(path)
    with pytest.raises(errors.StoreError, match="at least 1 of 3 are removed: VACUUM stops 24 hours after"):
        DeltaTable(path).vacuum(dry_run=False, **NOW)
    assert len(objects(path)) == len(before) - 1
    assert DeltaTable(path).history(1)[0]["operationParameters"]["status"] == "FAILED"


def test_the_clock_of_the_store_counts(path):
    """A machine whose clock is ahead deletes nothing that is younger than the retention by the store's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "now_ms", lambda: time.time_ns() // 1_000_000 + 8 * 24 * HOUR)
        assert len(DeltaTable(path).vacuum()) == 3
        assert DeltaTable(path).vacuum(dry_run=False) == []
    assert ids(DeltaTable(path), 0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("statement", ["append", "delete"])
def test_a_transaction_beside_a_clock_that_is_ahead(tmp_path, statement, ahead):
    """Whatever the clock of VACUUM says, a commit that is acknowledged can be read."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": list(range(9))}), configuration={"delta.enableDeletionVectors": "true"})
    txn = DeltaTable(path).begin()
    if statement == "append":
        txn.append(pa.table({"id": [77]}))
    else:
        txn.delete("id = 3")
    now, shift = time.time_ns, 8 * 24 * HOUR * 1_000_000 if ahead else 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + shift)
        DeltaTable(path).vacuum(dry_run=False, full=True)
    # Nothing is old enough, so VACUUM has nothing to do; a clock ahead shows only after its START.
    if ahead and statement == "append":
        with pytest.raises(errors.ConcurrentDeleteReadException, match="VACUUM"):
            txn.commit()
    else:
        txn.commit()
    assert len(ids(DeltaTable(path))) == {"append": 9 + (not ahead), "delete": 8}[statement]


@pytest.mark.parametrize("retention", [0, 168])
def test_the_vacuum_of_another_engine_beside_an_append(path, retention):
    txn = DeltaTable(path).begin()
    txn.append(pa.table({"id": [30]}))
    deltalake.DeltaTable(path).vacuum(retention, dry_run=False, enforce_retention_duration=False, full=True)
    if retention:
        txn.commit()
        assert ids(DeltaTable(path)) == [20, 30]
    else:
        with pytest.raises(errors.ConcurrentDeleteReadException, match="VACUUM deletes files for good"):
            txn.commit()
        assert ids(DeltaTable(path)) == [20]


def test_background_work_of_this_process_is_done_before(tmp_path, maintenance_in_background):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    table, done = DeltaTable(tmp_path / "t"), []

    def checkpoint():
        until(background.is_awaited)
        done.append((tmp_path / "t" / "late.parquet").touch())

    background.run(table.table_uri, background.MAINTENANCE, checkpoint)
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True) == ["late.parquet"]
    assert done


@pytest.mark.parametrize(
    ("formats", "stays"), [("iceberg", True), (" hudi, Iceberg", True), ("hudi", False), (None, False)]
)
def test_the_metadata_of_iceberg_stays_in_tables_that_iceberg_reads(tmp_path, formats, stays):
    write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    snapshot = DeltaTable(tmp_path / "t")._handle.snapshot
    configuration = {} if formats is None else {"delta.universalFormat.enabledFormats": formats}
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=configuration)
    keys = pa.chunked_array(
        [["metadata/v1.metadata.json", "p=1/metadata/x", "metadata-1/x", ".hoodie/x", "a/metadata"]]
    )
    hidden = module._is_hidden(keys, dataclasses.replace(snapshot, metadata=metadata)).to_pylist()
    assert hidden == [stays, stays, False, True, False]
