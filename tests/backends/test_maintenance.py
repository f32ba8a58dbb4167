"""Compaction, checkpoints, cleanup, VACUUM, RESTORE: the same on every backend."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from backends.tables import NOW, VECTORS, files, ids, numbers, objects, opened, paths, write
from refdelta import AddAction, errors
from refdelta.core.log.actions import CommitInfo
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import commit_key
from refdelta.engine.log import file_committer, store_clock
from refdelta.engine.log.location import open_location
from refdelta.operations.maintenance import vacuum

DAY = 24 * 3600 * 1_000_000_000


def log_of(place, ending):
    """The versions that have a log file with this ending."""
    return [int(key.split("/")[1][:20]) for key in sorted(objects(place, "_delta_log/0")) if key.endswith(ending)]


def days_later(monkeypatch, days):
    """Let cleanup think that so many days have passed, by the clock of the store, too."""
    later = time.time_ns() // 1_000_000 + days * DAY // 1_000_000
    monkeypatch.setattr(store_clock, "store_time", lambda _: later)


def test_rearranging_keeps_the_rows(place):
    for number in range(6):
        write(place, numbers(number, number + 10, number + 20, v=-number), mode="append", configuration=VECTORS)
    handle = opened(place)
    handle.delete("id in (3, 14, 25)")
    wanted = sorted({*range(6), *range(10, 16), *range(20, 26)} - {3, 14, 25})
    assert any(key.endswith(".bin") for key in files(place))
    assert handle.optimize.compact()["numFilesRemoved"] == 6
    assert (len(paths(place)), ids(place)) == (1, wanted)
    handle.delete("id = 4")
    wanted.remove(4)
    handle.reorg_purge()
    assert [row["numDeletedRows"] for row in handle.files().to_pylist() if row.get("numDeletedRows")] == []
    assert ids(place) == wanted
    # Sorted by the values, which fall as the ids of each file grow.
    handle.optimize.z_order(["v"])
    in_order = handle.to_pyarrow_table(["v"])["v"].to_pylist()
    assert in_order == sorted(in_order)
    assert ids(place) == wanted
    assert ids(place, 6) == sorted([*wanted, 4])
    assert [entry["operation"] for entry in handle.history(5)] == ["OPTIMIZE", "REORG", "DELETE", "OPTIMIZE", "DELETE"]


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
def test_a_checkpoint_carries_what_cleanup_has_removed(place, monkeypatch):
    every = {"delta.checkpointInterval": "10"}
    for number in range(12):
        write(place, numbers(number), mode="append", app_id="loader", app_version=number, configuration=every)
    handle = opened(place)
    assert log_of(place, ".checkpoint.parquet") == [10]
    handle.create_checkpoint()
    assert log_of(place, ".checkpoint.parquet") == [10, 11]
    assert handle.cleanup_metadata() == 0
    days_later(monkeypatch, 60)
    removed = handle.cleanup_metadata()
    assert removed >= 11
    assert log_of(place, ".json") == [11]
    assert log_of(place, ".checkpoint.parquet") == [11]
    assert (ids(place), opened(place).transaction_version("loader")) == (list(range(12)), 11)
    with pytest.raises(errors.VersionNotFoundError):
        opened(place, 5)
    # It goes on behind the checkpoint, and a handle from before is not in the way.
    write(place, numbers(12), mode="append")
    handle.delete("id = 0")
    assert (handle.version(), ids(place)) == (13, list(range(1, 13)))


def test_a_stale_handle_revives_no_version_that_cleanup_removed(place, monkeypatch):
    write(place, numbers(0))
    stale = opened(place).begin()
    known = files(place)
    stale.append(numbers(100))
    mine = files(place) - known
    for number in range(1, 4):
        write(place, numbers(number), mode="append")
    opened(place).create_checkpoint()
    days_later(monkeypatch, 60)
    opened(place).cleanup_metadata()
    assert log_of(place, ".json") == [3]
    monkeypatch.setattr(file_committer, "_TRUSTED_SECONDS", 0)  # as if the handle were a minute old
    before = objects(place)
    with pytest.raises(errors.CommitFailedError, match="cleaned up"):
        stale.commit()
    assert (ids(place), objects(place)) == ([0, 1, 2, 3], before - mine)


def test_a_handle_may_have_listed_commits_that_cleanup_removed(place):
    """Commits of files from elsewhere look for a VACUUM in progress, in all commits of the last day."""
    for number in range(5):
        write(place, numbers(number), mode="append")
    handle, store = opened(place), open_location(place.uri, place.options)
    opened(place).create_checkpoint()
    store.delete([commit_key(version) for version in (0, 1)])
    add = AddAction("f.parquet", 1, {}, 1, True, '{"numRecords":1}')
    handle.create_write_transaction([add], "append", handle.schema())
    assert len(opened(place).files()) == 6
    handle = opened(place)
    start = {"operation": "VACUUM START", "operationParameters": {}, "timestamp": time.time_ns() // 1_000_000}
    store.put(commit_key(6), encode_commit([CommitInfo(fields=start)]))
    late = opened(place)
    opened(place).create_checkpoint()
    store.delete([commit_key(version) for version in range(2, 6)])
    with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
        late.create_write_transaction([add], "append", handle.schema())
    assert caught.value.conflict.version == 6


def test_vacuum_takes_what_no_version_needs_and_leftovers(place, monkeypatch):
    write(place, numbers(*range(10)), configuration=VECTORS)
    handle = opened(place)
    handle.delete("id < 4")
    handle.optimize.compact()
    write(place, numbers(50), mode="overwrite")
    store = open_location(place.uri, place.options)
    for key in ("orphan.parquet", "deep/er/stray.bin", "_change_data/cdc-1.parquet", "_hidden/kept", ".dot/kept"):
        store.put(key, b"something")
    kept = {*paths(place), "_hidden/kept", ".dot/kept"}
    # Nothing is a week old.
    assert opened(place).vacuum(dry_run=False, full=True) == []
    before = files(place)
    told = opened(place).vacuum(full=True, **NOW)
    assert set(told) == before - kept
    assert files(place) == before
    in_a_week = time.time_ns() // 1_000_000 + 8 * DAY // 1_000_000
    monkeypatch.setattr(vacuum, "now_ms", lambda: in_a_week)
    monkeypatch.setattr(vacuum, "file_time", lambda *_: in_a_week)
    assert set(opened(place).vacuum(dry_run=False, full=True)) == before - kept
    assert files(place) == kept
    assert ids(place) == [50]
    with pytest.raises(errors.DataFileNotFoundError):
        ids(place, 0)
    assert [entry["operation"] for entry in opened(place).history(2)] == ["VACUUM END", "VACUUM START"]


def test_vacuum_keeps_the_versions_that_are_named(place):
    for number in range(4):
        write(place, numbers(number), mode="overwrite" if number else "error")
    wanted = {*paths(place, 1), *paths(place, 3)}
    opened(place).vacuum(dry_run=False, keep_versions=[1], **NOW)
    assert files(place) == wanted
    assert (ids(place, 1), ids(place)) == ([1], [3])


def test_restore_brings_rows_schema_and_properties_back(place):
    write(place, numbers(*range(6), p="a"), configuration=VECTORS, partition_by=["p"])
    handle = opened(place)
    handle.delete("id = 1")
    handle.alter.set_table_properties({"mine": "1"})
    write(place, numbers(7, p="b").append_column("more", numbers(1)["id"]), mode="append", schema_mode="merge")
    handle.optimize.compact()
    handle.restore(1)
    assert ids(place) == [0, 2, 3, 4, 5]
    assert "mine" not in handle.metadata().configuration
    assert [field.name for field in handle.schema().fields] == ["id", "v", "p"]
    handle.restore(0)
    assert ids(place) == list(range(6))
    handle.restore(3)
    assert ids(place) == [0, 2, 3, 4, 5, 7]
    entry = handle.history(1)[0]
    assert (entry["operation"], entry["operationParameters"]["version"]) == ("RESTORE", 3)
    assert handle.restore(handle.version()).version is None
    with pytest.raises(errors.VersionNotFoundError, match="after the newest version"):
        handle.restore(dt.datetime.now(dt.UTC) + dt.timedelta(days=1))


def test_a_restore_names_what_vacuum_has_taken(place):
    write(place, numbers(1))
    write(place, numbers(2), mode="overwrite")
    handle = opened(place)
    (gone,) = paths(place, 0)
    handle.vacuum(dry_run=False, **NOW)
    with pytest.raises(errors.DataFileNotFoundError, match=gone):
        handle.restore(0)
    handle.restore(0, ignore_missing_files=True)
    assert ids(place) == []
