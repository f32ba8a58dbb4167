"""Checkpoints come after the commit, by a thread: no commit waits for one or fails with it, and none is lost.

Tests of transaction.post_commit.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forks
from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.core.log.segment import parse_last_checkpoint
from refdelta.engine.log import checkpoint_write
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.transaction import background
from refdelta_storage import LocalStore, StorageError
from refdelta_storage.wrappers import TracingStore
from waiting import until

pytestmark = pytest.mark.usefixtures("maintenance_in_background")

ROW = pa.table({"n": pa.array([1], pa.int64())})
EVERY_SECOND = {"delta.checkpointInterval": "2"}


def append(table, count=1, **options):
    for _ in range(count):
        write_deltalake(table, ROW, mode="append", **options)


def checkpoints(path):
    return [int(file.name[:20]) for file in sorted((path / "_delta_log").glob("*.checkpoint*"))]


@pytest.fixture
def gate(monkeypatch):
    """No checkpoint is written before the gate opens."""
    opened, write = threading.Event(), checkpoint_write.write_checkpoint

    def waiting(*args, **kwargs):
        assert opened.wait(120)
        return write(*args, **kwargs)

    monkeypatch.setattr(checkpoint_write, "write_checkpoint", waiting)
    yield opened
    opened.set()
    background.settle()


@pytest.fixture
def soon(monkeypatch):
    """Where the costs decide, a checkpoint is due at each multiple of ten."""
    monkeypatch.setattr("refdelta.core.log.checkpoint_schedule.MOST", 10)


def test_no_commit_waits_for_one_and_each_multiple_of_the_property_has_one(tmp_path, gate):
    write_deltalake(tmp_path, ROW, configuration=EVERY_SECOND)
    table = DeltaTable(tmp_path)
    append(table, 9)
    assert (table.version(), checkpoints(tmp_path)) == (9, [])
    assert DeltaTable(tmp_path).count() == 10
    gate.set()
    background.settle()
    assert checkpoints(tmp_path) == [2, 4, 6, 8]
    assert parse_last_checkpoint((tmp_path / "_delta_log/_last_checkpoint").read_bytes()).version == 8
    append(table)
    assert [file.version for file in table._handle.snapshot.segment.commits] == [9, 10]
    assert table.count() == DeltaTable(tmp_path).count() == 11


@pytest.mark.tier("test")
def test_while_nothing_was_removed_none_is_read_for_the_next_one(tmp_path):
    write_deltalake(tmp_path, ROW, configuration=EVERY_SECOND)
    store = TracingStore(LocalStore(tmp_path, fsync=False))
    table = DeltaTable.in_store(store)

    def read(appends):
        store.calls.clear()
        for _ in range(appends):
            append(table)
            background.settle()
        return [key for way, key in store.calls if way != "open_output" and key.endswith(".checkpoint.parquet")]

    assert read(6) == []
    assert checkpoints(tmp_path) == [2, 4, 6]
    table.delete()
    assert read(3) != []
    removed = pq.read_table(tmp_path / "_delta_log" / f"{10:020}.checkpoint.parquet", columns=["remove"])["remove"]
    assert len(removed) - removed.null_count == 7


@pytest.mark.tier("test")
def test_without_the_property_one_at_a_time_is_written(tmp_path, gate, soon):
    write_deltalake(tmp_path, ROW)
    table = DeltaTable(tmp_path)
    append(table, 45)
    gate.set()
    background.settle()
    assert checkpoints(tmp_path) == [10]
    append(table, 9)
    background.settle()
    assert checkpoints(tmp_path) == [10, 50]
    assert table.count() == DeltaTable(tmp_path).count() == 55


@pytest.mark.tier("test")
def test_where_checkpoints_are_slower_than_commits_for_ever_few_versions_are_held(tmp_path, gate):
    """With a property, none is left out. Then a commit waits at last, since each waiting one holds a version."""
    write_deltalake(tmp_path, ROW, configuration={"delta.checkpointInterval": "1"})
    writer = threading.Thread(target=append, args=(DeltaTable(tmp_path), 30))
    writer.start()
    writer.join(1)
    assert writer.is_alive()
    gate.set()
    writer.join(120)
    background.settle()
    assert checkpoints(tmp_path) == list(range(1, 31))


@pytest.mark.parametrize("error", [StorageError("full"), RuntimeError("bug"), MemoryError()])
def test_an_error_reaches_no_commit_and_the_next_one_makes_up_for_it(tmp_path, monkeypatch, caplog, soon, error):
    def fail(*_, **__):
        raise error

    write_deltalake(tmp_path, ROW)
    table = DeltaTable(tmp_path)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "refdelta"):
        patched.setattr(checkpoint_write, "_write_parquet", fail)
        append(table, 12)
        background.settle()
    assert checkpoints(tmp_path) == []
    assert "version 10 is committed, but a hook after the commit failed" in caplog.text
    append(table, 8)
    background.settle()
    assert checkpoints(tmp_path) == [20]
    assert table.count() == 21


def test_one_of_another_writer_is_found_and_not_written_again(tmp_path, soon):
    write_deltalake(tmp_path, ROW)
    table, other = DeltaTable(tmp_path), DeltaTable(tmp_path)
    append(table, 9)
    append(other, 1)  # its version is 10
    append(table, 9, commit_properties=CommitProperties(create_checkpoint=False))
    background.settle()
    assert checkpoints(tmp_path) == [10]
    # Nothing has shown it to the handle: its listings begin later.
    assert table._handle.snapshot.segment.checkpoint is None or table._handle.snapshot.segment.checkpoint.version == 10
    append(table, 1)
    background.settle()
    assert checkpoints(tmp_path) == [10, 20]
    append(table, 1)
    assert table._handle.snapshot.segment.checkpoint.version == 20
    assert table.count() == DeltaTable(tmp_path).count() == 22


def test_one_that_comes_late_spares_this_one(tmp_path, gate, soon):
    """While it waits for its turn, another process writes a newer one than the handle knows."""
    write_deltalake(tmp_path, ROW)
    table = DeltaTable(tmp_path)
    append(table, 15)
    gate.set()
    background.settle()
    (tmp_path / "_delta_log" / f"{10:020}.checkpoint.parquet").unlink()
    fresh = load_snapshot(table.store, 15)
    fresh.newest_checkpoint.files = None
    checkpoint_write.write_checkpoint(table.store, fresh)
    assert checkpoints(tmp_path) == [15]
    stale = load_snapshot(table.store, 14)
    assert stale.segment.checkpoint is None
    table._handle.snapshot = stale
    append(table, 5)
    background.settle()
    # At 20 the hint shows it: the tail since then is not worth another one.
    assert checkpoints(tmp_path) == [15]
    append(table, 1)
    assert [file.version for file in table._handle.snapshot.segment.commits] == [*range(16, 22)]
    assert table.count() == DeltaTable(tmp_path).count() == 22


@pytest.mark.parametrize("asked", [True, None])
def test_a_cleanup_that_was_asked_for_needs_no_checkpoint_of_its_own(tmp_path, monkeypatch, soon, asked):
    """Another writer's checkpoint spares this one's; the cleanup of this commit is its own affair."""
    cleaned = []
    monkeypatch.setattr("refdelta.engine.log.cleanup.cleanup_log", lambda *_, **__: cleaned.append(1))
    write_deltalake(tmp_path, ROW)
    table = DeltaTable(tmp_path)
    append(table, 19, commit_properties=CommitProperties(create_checkpoint=False))

    run = background.run

    def after_another_writer(*args, **kwargs):
        checkpoint_write.write_checkpoint(table.store, load_snapshot(table.store, 15))
        return run(*args, **kwargs)

    monkeypatch.setattr(background, "run", after_another_writer)
    append(table, 1, commit_properties=CommitProperties(cleanup_expired_logs=asked))
    background.settle()
    assert checkpoints(tmp_path) == [15]
    assert cleaned == ([1] if asked else [])


def test_nothing_is_written_into_a_table_that_has_taken_the_place_of_the_old_one(tmp_path, gate):
    path = tmp_path / "t"
    write_deltalake(path, ROW, configuration=EVERY_SECOND)
    append(DeltaTable(path), 8)  # those of 2 to 8 wait
    shutil.rmtree(path)
    gate.set()
    write_deltalake(path, ROW)
    background.settle()
    assert checkpoints(path) == []
    assert DeltaTable(path).version() == 0


def test_nothing_is_written_where_the_table_was_removed(tmp_path, gate, caplog):
    path = tmp_path / "t"
    write_deltalake(path, ROW, configuration=EVERY_SECOND)
    append(DeltaTable(path), 4)
    shutil.rmtree(path)
    gate.set()
    background.settle()
    assert not path.exists()


def test_a_checkpoint_that_the_user_asks_for_comes_after_those_of_commits(tmp_path, gate):
    write_deltalake(tmp_path, ROW, configuration=EVERY_SECOND)
    table = DeltaTable(tmp_path)
    append(table, 4)
    opening = threading.Thread(target=lambda: (until(background.is_awaited), gate.set()))
    opening.start()
    table.create_checkpoint()
    opening.join()
    assert checkpoints(tmp_path) == [2, 4]
    assert parse_last_checkpoint((tmp_path / "_delta_log/_last_checkpoint").read_bytes()).version == 4


@pytest.mark.tier("test")
def test_a_fork_waits_and_the_child_has_its_own(tmp_path):
    forks.alone(_fork_beside_a_checkpoint, tmp_path)


def _fork_beside_a_checkpoint(path):
    write_deltalake(path, ROW, configuration=EVERY_SECOND)
    table = DeltaTable(path)
    append(table, 2)
    child = os.fork()
    if not child:
        status = 1
        try:
            assert checkpoints(path) == [2]
            append(table, 2)
            background.settle()
            status = 0 if checkpoints(path) == [2, 4] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    append(table, 2)
    background.settle()
    assert checkpoints(path) == [2, 4, 6]
    assert table.count() == 7


SCRIPT = """
import os, sys, threading
import pyarrow as pa
from refdelta import write_deltalake
from refdelta.engine.log import checkpoint_write
from refdelta.transaction import background
write = checkpoint_write.write_checkpoint
def slowly(*args, **kwargs):
    while not background.is_awaited():  # by the end of the process
        threading.Event().wait(0.01)
    return write(*args, **kwargs)
checkpoint_write.write_checkpoint = slowly
checkpoint_write.LISTED_ITSELF = 1
for n in range(5):
    write_deltalake(sys.argv[1], pa.table({"n": [n]}), mode="append", configuration=CONFIGURATION if n == 0 else None)
END
"""


def run(path, end, configuration=EVERY_SECOND):
    code = SCRIPT.replace("CONFIGURATION", repr(configuration)).replace("END", end)
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)


@pytest.mark.tier("test")
@pytest.mark.sample(check=1, test=2)
@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise KeyError('end')"])
def test_a_process_that_ends_has_written_them(tmp_path, end, policy):
    done = run(tmp_path, end, {"delta.checkpointInterval": "2", "delta.checkpointPolicy": policy})
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(end, 1)
    assert "Traceback" not in done.stderr or "KeyError: 'end'" in done.stderr
    assert "hook" not in done.stderr
    assert checkpoints(tmp_path) == [2, 4]
    assert DeltaTable(tmp_path).count() == 5
    assert load_snapshot(DeltaTable(tmp_path).store).segment.checkpoint.version == 4


@pytest.mark.tier("test")
def test_a_process_that_dies_leaves_nothing_half_written_and_the_next_one_makes_up_for_it(tmp_path):
    done = run(tmp_path, "os._exit(9)")
    assert (done.returncode, done.stderr) == (9, "")
    assert checkpoints(tmp_path) == []
    assert not (tmp_path / "_delta_log/_last_checkpoint").exists()
    assert DeltaTable(tmp_path).count() == 5
    append(tmp_path, 2)
    background.settle()
    assert checkpoints(tmp_path) == [6]
