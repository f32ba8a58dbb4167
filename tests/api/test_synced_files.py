"""All files of a commit, and their names, are on the disk before the log's entry is, in every statement."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta_storage import LocalStore, StorageError

PARTS = 70  # more than one task encodes
ROWS = pa.table({"p": [i % PARTS for i in range(3 * PARTS)], "v": list(range(3 * PARTS))})


@pytest.fixture
def synced(monkeypatch):
    """The paths that were synced, in order; files without a name by the name that they get."""
    order = []
    fsync = os.fsync

    def spy(descriptor):
        order.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    return order


def merged(table):
    merger = table.merge(ROWS, "t.p = s.p and t.v = s.v", source_alias="s", target_alias="t")
    merger.when_matched_update({"v": "s.v + 1"}).when_not_matched_insert_all().execute()


STATEMENTS = {
    "append": lambda table: write_deltalake(table, ROWS, mode="append"),
    "overwrite": lambda table: write_deltalake(table, ROWS, mode="overwrite"),
    "overwrite of partitions": lambda table: write_deltalake(table, ROWS, mode="overwrite", predicate="p >= 0"),
    "update": lambda table: table.update({"v": "v + 1"}, predicate="v % 2 = 0"),
    "delete": lambda table: table.delete("v % 3 = 0"),
    "merge": merged,
    "optimize": lambda table: table.optimize.compact(),
}


def paths(folder):
    return {path for path in Path(folder).rglob("*") if "_delta_log" not in path.parts}


def unsynced(folder, synced, statement):
    """The new files of a statement, and the folders with new names, that were not synced before the log's entry."""
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(folder, ROWS, partition_by=["p"], configuration=feed)
    write_deltalake(folder, ROWS, mode="append")
    old = paths(folder)
    synced.clear()
    table = DeltaTable(folder)
    STATEMENTS[statement](table)
    entry = folder / "_delta_log" / f"{DeltaTable(folder).version():020}.json"
    before = set(synced[: synced.index(entry.stat().st_ino)])
    new = paths(folder) - old
    assert sum(path.suffix == ".parquet" for path in new) >= PARTS
    return {path for path in {*new, *(path.parent for path in new)} if path.stat().st_ino not in before}


@pytest.mark.tier("test")
@pytest.mark.parametrize("statement", STATEMENTS)
def test_files_and_folders_are_synced_before_the_entry(tmp_path, synced, statement):
    assert unsynced(tmp_path / "t", synced, statement) == set()


def test_a_sync_that_is_left_out_is_found(tmp_path, synced, monkeypatch):
    monkeypatch.setattr(LocalStore, "sync", lambda _store, _keys: None)
    assert len(unsynced(tmp_path / "t", synced, "append")) >= PARTS


def test_a_new_table_is_synced_in_the_folder_above(tmp_path, synced):
    write_deltalake(tmp_path / "new" / "t", ROWS, partition_by=["p"])
    assert {(tmp_path / name).stat().st_ino for name in (".", "new", "new/t")} <= set(synced)


def test_a_new_folder_whose_sync_fails_is_synced_by_the_next_one(tmp_path, synced, monkeypatch):
    store = LocalStore(tmp_path / "new" / "t")
    hasty = store.hasty()
    with hasty.open_output("f") as stream:
        stream.write(b"x")
    with monkeypatch.context() as broken:
        broken.setattr("refdelta_storage.local.sync_folder", fails_to_sync)
        with pytest.raises(StorageError, match="the disk is broken"):
            store.sync(["f"])
    synced.clear()
    store.sync(["f"])
    assert {(tmp_path / name).stat().st_ino for name in (".", "new", "new/t")} <= set(synced)


def fails_to_sync(_folder):
    raise OSError("the disk is broken")


def test_each_folder_is_synced_once_for_all_of_its_files(tmp_path, synced):
    store = LocalStore(tmp_path, create=True)
    hasty = store.hasty()
    synced.clear()
    keys = [f"p={number % 2}/f{number}" for number in range(8)]
    for key in keys:
        with hasty.open_output(key) as stream:
            stream.write(b"x")
    assert synced == []
    store.sync(keys)
    files, folders = synced[: len(keys)], synced[len(keys) :]
    assert sorted(files) == sorted((tmp_path / key).stat().st_ino for key in keys)
    assert sorted(folders) == sorted((tmp_path / name).stat().st_ino for name in (".", "p=0", "p=1"))
    synced.clear()
    LocalStore(tmp_path, fsync=False).sync(keys)
    assert synced == []


@pytest.mark.parametrize("threads", [True, False])
def test_an_error_of_one_sync_is_raised_also_where_no_thread_starts(tmp_path, monkeypatch, threads):
    def refused(_thread):
        raise RuntimeError("can't start new thread")

    store = LocalStore(tmp_path, create=True)
    keys = [f"p={number}/f" for number in range(20)]
    for key in keys:
        with store.hasty().open_output(key) as stream:
            stream.write(b"x")
    if not threads:
        monkeypatch.setattr("threading.Thread.start", refused)
    store.sync(keys)
    (tmp_path / "p=13" / "f").unlink()
    with pytest.raises(StorageError, match="p=13"):
        store.sync(keys)


def test_a_file_that_cannot_be_synced_fails_the_write(tmp_path, monkeypatch):
    write_deltalake(tmp_path, ROWS, partition_by=["p"])
    old = paths(tmp_path)

    def fails(_store, _keys):
        raise OSError("the disk is broken")

    monkeypatch.setattr("refdelta_storage.local.LocalStore.sync", fails)
    with pytest.raises(OSError, match="the disk is broken"):
        write_deltalake(tmp_path, ROWS, mode="append")
    assert DeltaTable(tmp_path).version() == 0
    assert paths(tmp_path) == old
