"""Who reads a snapshot sees it to the end, whatever others do; who writes from one that is gone does not bring versions
back.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log import file_committer
from refdelta.engine.work import executor

VECTORS = {"delta.enableDeletionVectors": "true"}
FILES, ROWS = 15, 4000


@pytest.fixture(params=[VECTORS, {}], ids=["vectors", "files"])
def path(request, tmp_path):
    """Files of 4000 rows, less every tenth: it is hidden by a vector, or was never there. And an old leftover."""
    path = tmp_path / "t"
    for number in range(FILES):
        ids = [i for i in range(number * ROWS, (number + 1) * ROWS) if request.param or i % 10]
        data = pa.table({"id": ids, "text": ["x" * 50] * len(ids)})
        write_deltalake(path, data, mode="append", configuration=None if number else request.param)
    DeltaTable(path).delete("id % 10 = 0")
    (path / "_change_data").mkdir()
    (path / "_change_data" / "old").touch()
    os.utime(path / "_change_data" / "old", (0, 0))
    return path


def check(batches):
    """The rows of the snapshot, in some order, each once."""
    ids = pa.chunked_array([batch.column("id") for batch in batches]).combine_chunks()
    assert ids.sort().to_pylist() == [i for i in range(FILES * ROWS) if i % 10]


CHANGES = {
    "delete": lambda table: table.delete("id % 10 in (3, 7)"),
    "update": lambda table: table.update({"id": "-id"}, predicate="id % 10 = 5"),
    "merge": lambda table: (
        table.merge(pa.table({"id": [1, 2, 10**9], "text": ["m"] * 3}), "s.id = t.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    ),
    "compact": lambda table: table.optimize.compact(),
    "z_order": lambda table: table.optimize.z_order(["text", "id"]),
    "purge": lambda table: table.reorg_purge(),
    "checkpoint": lambda table: table.create_checkpoint(),
    "cleanup": lambda table: table.cleanup_metadata(),
    "vacuum": lambda table: table.vacuum(1, dry_run=False, enforce_retention_duration=False, full=True),
    "overwrite": lambda table: write_deltalake(table, pa.table({"id": [0], "text": [""]}), mode="overwrite"),
    "restore": lambda table: table.restore(FILES),
    "alter": lambda table: table.alter.set_table_properties({"mine": str(table.version())}),
    "delete all": lambda table: table.delete(),
}


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
def test_a_reader_sees_its_snapshot_to_the_end(path, monkeypatch):
    """Each change is made between two batches that the reader takes; it reads one ahead."""
    monkeypatch.setattr(executor, "LOOK_AHEAD_BYTES", 1)
    reader = DeltaTable(path).to_record_batch_reader(columns=["id"])
    writer = DeltaTable(path)
    pinned, began = DeltaTable(path, version=writer.version()), writer.version()
    changes, batches = iter(CHANGES.values()), []
    for batch in reader:
        batches.append(batch)
        change = next(changes, None)
        if change:
            change(writer)
    assert next(changes, None) is None, "fewer batches than changes"
    check(batches)
    check(pinned.to_pyarrow_table().to_batches())
    assert {info["operation"] for info in writer.history(writer.version() - began)} == {
        *(
            "DELETE",
            "UPDATE",
            "MERGE",
            "OPTIMIZE",
            "WRITE",
            "RESTORE",
            "SET TBLPROPERTIES",
            "VACUUM START",
            "VACUUM END",
        )
    }
    assert DeltaTable(path).count() == 0


@pytest.mark.tier("test")
def test_readers_and_writers_at_once(path):
    """Readers in threads of their own, while one thread changes the table again and again."""
    began = DeltaTable(path).version()
    handle = DeltaTable(path, version=began)
    done, seen, failed = threading.Event(), [], []

    def read():
        try:
            while not done.is_set() or not seen:
                check(handle.to_record_batch_reader(columns=["id"]))
                seen.append(1)
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    writer = DeltaTable(path)
    for change in (*CHANGES.values(), CHANGES["restore"], CHANGES["compact"], CHANGES["vacuum"]):
        change(writer)
    done.set()
    for thread in readers:
        thread.join()
    assert not failed, failed[0]
    assert seen
    writer.restore(began)
    check(writer.to_record_batch_reader(columns=["id"]))


# --- versions that log cleanup has removed ---


@contextmanager
def a_while_later(monkeypatch):
    """As if the handle had been left alone for longer than a version is taken to be still there."""
    with monkeypatch.context() as patch:
        patch.setattr(file_committer, "_TRUSTED_SECONDS", 0)
        yield


def age(path, days=60):
    """Let the log look as old as that."""
    then = time.time() - days * 86_400
    for file in (path / "_delta_log").iterdir():
        os.utime(file, (then, then))


@pytest.mark.tier("test")
@pytest.mark.parametrize("stale_at", [0, 3, 5])
def test_a_stale_handle_brings_no_version_back(tmp_path, monkeypatch, stale_at):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [0]}))
    appends = {}
    for number in range(1, 6):
        if number == stale_at + 1:
            appends["blind"], appends["reading"] = DeltaTable(path).begin(), DeltaTable(path).begin()
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
    if stale_at == 5:
        appends["blind"], appends["reading"] = DeltaTable(path).begin(), DeltaTable(path).begin()
    appends["blind"].append(pa.table({"id": [100]}))
    appends["reading"].delete("id = 0")
    age(path)
    table = DeltaTable(path)
    write_deltalake(table, pa.table({"id": [6]}), mode="append")
    table.create_checkpoint()
    write_deltalake(table, pa.table({"id": [7]}), mode="append")
    assert table.cleanup_metadata() > 0
    log = path / "_delta_log"
    assert not (log / f"{stale_at:020d}.json").exists()
    before = sorted(file.name for file in log.iterdir())

    with a_while_later(monkeypatch):
        for txn in appends.values():
            with pytest.raises(errors.CommitFailedError):
                txn.commit()
    assert sorted(file.name for file in log.iterdir()) == before
    assert sorted(DeltaTable(path).to_pyarrow_table().column("id").to_pylist()) == list(range(8))
    # The files that it wrote are gone; who opens the table anew can write.
    assert DeltaTable(path).vacuum(0, enforce_retention_duration=False, full=True) == []
    write_deltalake(table, pa.table({"id": [8]}), mode="append")
    assert table.version() == 8


def test_a_handle_that_is_kept_moves_on(tmp_path, monkeypatch):
    """A verb on a stale handle begins by moving it to the newest version, cleaned up or not."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [0]}))
    stale = DeltaTable(path)
    for number in range(1, 6):
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
    age(path)
    table = DeltaTable(path)
    write_deltalake(table, pa.table({"id": [6]}), mode="append")
    table.create_checkpoint()
    assert table.cleanup_metadata() > 0
    with a_while_later(monkeypatch):
        assert stale.delete("id = 3").version == 7
    assert DeltaTable(path).count() == 6
