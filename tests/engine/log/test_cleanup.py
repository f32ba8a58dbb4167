"""The log's retention takes what nobody needs, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import Add, Metadata, Protocol
from refdelta.core.log.checksum import encode_checksum
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import SIDECARS, checkpoint_key, commit_key, compacted_key
from refdelta.core.log.segment import build_segment
from refdelta.engine.log.checkpoint import read_checkpoint, sidecars_of
from refdelta.engine.log.checkpoint_write import write_checkpoint
from refdelta.engine.log.checksum_write import put_checksum
from refdelta.engine.log.cleanup import cleanup_log
from refdelta.engine.log.listing import list_log
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.errors import StoreError
from refdelta_storage import LocalStore
from refdelta_storage.wrappers import Fault, FaultyStore
from tiers import examples

HOUR = 60 * 60 * 1000
DAY = 24 * HOUR
MIDNIGHT = 20_000 * DAY
NOW = MIDNIGHT + 7 * HOUR
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
FEATURES = ["v2Checkpoint"]
V2 = Protocol(min_reader_version=3, min_writer_version=7, reader_features=FEATURES, writer_features=FEATURES)


def add(name):
    return Add(path=name, partition_values={}, size=1, modification_time=0, data_change=True)


def table(root, ages, checkpoints=(), protocol=PROTOCOL, **configuration):
    """One commit of each age, in milliseconds before NOW, the oldest version first."""
    store = LocalStore(root, create=True, fsync=False)
    metadata = Metadata(
        id="t",
        schema_string='{"type":"struct","fields":[]}',
        partition_columns=[],
        configuration={"delta.logRetentionDuration": "interval 30 days"}
        | {f"delta.{name}": value for name, value in configuration.items()},
    )
    for version in range(len(ages)):
        first = [protocol, metadata] if version == 0 else []
        store.put_if_absent(commit_key(version), encode_commit([*first, add(f"f{version}")]))
        snapshot = load_snapshot(store)
        put_checksum(store, snapshot, encode_checksum(snapshot.checksum()))
        if version in checkpoints:
            write_checkpoint(store, snapshot, now_ms=NOW)
    for version, age in enumerate(ages):
        for path in Path(root, "_delta_log").glob(f"{version:020d}.*"):
            os.utime(path, ns=((NOW - age) * 1_000_000,) * 2)
    return store


def versions(store):
    """The versions that can be read."""
    found = []
    for version in range(load_snapshot(store).version + 1):
        try:
            found.append(load_snapshot(store, version).version)
        except LookupError:
            continue
    return found


def clean(store):
    return cleanup_log(store, load_snapshot(store), NOW)


@pytest.mark.tier("test")
def test_versions_before_the_covering_checkpoint_go(tmp_path):
    ages = [60 * DAY, 50 * DAY, 45 * DAY, 40 * DAY, 35 * DAY, 20 * DAY, 1 * DAY]
    store = table(tmp_path / "t", ages, checkpoints={1, 3, 6})
    files = load_snapshot(store).num_files
    deleted = clean(store)
    # Version 5 is the oldest to keep; it is built from the checkpoint at 3, whose own commit stays too.
    assert deleted[0] == f"_delta_log/{0:020d}.crc"
    assert {int(key.split("/")[1][:20]) for key in deleted} == {0, 1, 2}
    assert len(deleted) == 3 * 2 + 1
    assert versions(store) == [3, 4, 5, 6]
    assert load_snapshot(store).num_files == files
    assert clean(store) == []


def test_nothing_goes_without_a_checkpoint(tmp_path):
    store = table(tmp_path / "t", [60 * DAY, 50 * DAY, 0])
    assert clean(store) == []
    # A checkpoint that only the newest version could use does not help the versions that are kept.
    assert clean(table(tmp_path / "u", [60 * DAY, 10 * DAY, 0], checkpoints={2})) == []
    assert versions(store) == [0, 1, 2]


def test_retention_counts_from_midnight(tmp_path):
    edge = 7 * HOUR + 30 * DAY
    kept = table(tmp_path / "t", [edge - 1, 1000, 0], checkpoints={1})
    assert clean(kept) == []
    gone = table(tmp_path / "u", [edge, edge, 0], checkpoints={1})
    assert {key for key in clean(gone) if key.endswith(".json")} == {commit_key(0)}


def test_all_versions_expired_keeps_the_newest(tmp_path):
    store = table(tmp_path / "t", [90 * DAY, 80 * DAY, 70 * DAY], checkpoints={0, 1})
    clean(store)
    assert versions(store) == [1, 2]


def test_the_property_switches_it_off(tmp_path):
    store = table(tmp_path / "t", [90 * DAY, 80 * DAY], checkpoints={1}, enableExpiredLogCleanup="false")
    assert clean(store) == []


def test_a_damaged_checkpoint_covers_nothing(tmp_path):
    store = table(tmp_path / "t", [90 * DAY, 80 * DAY, 70 * DAY, 0], checkpoints={1, 2})
    store.put(checkpoint_key(2), b"PAR1 torn")
    clean(store)
    assert versions(store) == [1, 2, 3]
    snapshot = load_snapshot(store)
    store.put(checkpoint_key(1), b"")
    assert cleanup_log(store, snapshot, NOW) == []


def test_checkpoint_protection_is_honoured(tmp_path):
    ages, checkpoints = [90 * DAY, 80 * DAY, 70 * DAY, 0], {1, 2}
    protected = {"requireCheckpointProtectionBeforeVersion": "3"}
    assert clean(table(tmp_path / "t", ages, checkpoints, **protected)) == []
    protected = {"requireCheckpointProtectionBeforeVersion": "2"}
    assert clean(table(tmp_path / "u", ages, checkpoints, **protected)) != []


def test_other_files_are_left_alone(tmp_path):
    store = table(tmp_path / "t", [90 * DAY, 80 * DAY, 70 * DAY, 0], checkpoints={2})
    store.put(compacted_key(0, 1), store.get(commit_key(1)))
    store.put("_delta_log/_sidecars/s.parquet", b"s")
    store.put(f"_delta_log/{0:020d}.tmp", b"x")
    store.put("f0", b"data")
    deleted = clean(store)
    assert compacted_key(0, 1) in deleted
    left = {info.key for info in store.list()}
    assert {"_delta_log/_sidecars/s.parquet", f"_delta_log/{0:020d}.tmp", "f0", "_delta_log/_last_checkpoint"} <= left


def test_a_compacted_file_goes_if_it_begins_before_the_checkpoint(tmp_path):
    store = table(tmp_path / "t", [90 * DAY, 80 * DAY, 70 * DAY, 50 * DAY, 0], checkpoints={2})
    for hi in (2, 3):
        store.put(compacted_key(1, hi), b"".join(store.get(commit_key(version)) for version in range(1, hi + 1)))
    store.put(compacted_key(3, 4), store.get(commit_key(3)) + store.get(commit_key(4)))
    deleted = clean(store)
    assert {compacted_key(1, 2), compacted_key(1, 3)} <= set(deleted)
    assert compacted_key(3, 4) not in deleted
    assert versions(store) == [2, 3, 4]


def test_a_failing_store_is_one_clear_error(tmp_path):
    store = table(tmp_path / "t", [90 * DAY, 80 * DAY, 0], checkpoints={1})
    with pytest.raises(StoreError, match="clean up the log"):
        cleanup_log(FaultyStore(store, [Fault("fail", "delete")]), load_snapshot(store), NOW)


@pytest.mark.tier("test")
@examples(40)
@given(data=st.data())
def test_kept_versions_stay_readable(fresh_path, data):
    """Whatever the clocks said and wherever checkpoints lie: what is young enough can be read as before."""
    ages = data.draw(st.lists(st.integers(0, 40).map(lambda days: days * 2 * DAY), min_size=1, max_size=7))
    checkpoints = data.draw(st.sets(st.integers(0, len(ages) - 1)))
    store = table(fresh_path(), ages, checkpoints)
    clean(store)
    readable = versions(store)
    young = [version for version, age in enumerate(ages) if age < 30 * DAY]
    assert set(young) | {len(ages) - 1} <= set(readable)
    assert readable == list(range(readable[0], len(ages)))
    for version in readable:
        assert load_snapshot(store, version).num_files == version + 1
    # What goes has expired, with all before it.
    latest = [max(NOW - age for age in ages[: version + 1]) for version in range(len(ages))]
    assert all(latest[version] <= MIDNIGHT - 30 * DAY for version in range(readable[0]))


@pytest.mark.tier("test")
def test_sidecars_go_with_the_checkpoints_that_name_them(tmp_path, monkeypatch):
    monkeypatch.setattr("refdelta.engine.log.checkpoint_write._LISTED", 1)
    store = table(tmp_path / "t", [60 * DAY, 50 * DAY, 40 * DAY, 1 * DAY], {1, 2}, V2, checkpointPolicy="v2")
    sidecars = {
        version: set(sidecars_of(store, load_snapshot(store, version).segment.checkpoint)) for version in (1, 2)
    }
    assert [len(found) for found in sidecars.values()] == [2, 3]
    store.put(f"{SIDECARS}/left-by-a-dead-writer.parquet", b"")
    store.put(f"{SIDECARS}/of-one-at-work.parquet", b"")
    for path in Path(tmp_path, "t", *SIDECARS.split("/")).iterdir():
        if "at-work" not in path.name:
            os.utime(path, ns=((NOW - 50 * DAY) * 1_000_000,) * 2)
    files = load_snapshot(store).num_files
    deleted = clean(store)
    gone = {f"{SIDECARS}/left-by-a-dead-writer.parquet", *sidecars[1]} - sidecars[2]
    assert {key for key in deleted if key.startswith(SIDECARS)} == gone
    left = {info.key for info in store.list(f"{SIDECARS}/")}
    assert left == {f"{SIDECARS}/of-one-at-work.parquet", *sidecars[2]}
    assert (versions(store), load_snapshot(store).num_files) == ([2, 3], files)


@pytest.mark.parametrize("top_level", ["parquet", "json"])
def test_old_readers_find_a_checkpoint_by_a_name_that_they_know(tmp_path, top_level):
    store = table(tmp_path / "t", [60 * DAY, 50 * DAY, 1 * DAY], (), V2, checkpointPolicy="v2")
    write_checkpoint(store, load_snapshot(store, 1), now_ms=NOW, top_level=top_level)
    os.utime(next(Path(tmp_path).glob(f"t/_delta_log/{1:020d}.checkpoint*")), ns=((NOW - 50 * DAY) * 1_000_000,) * 2)
    clean(store)
    segment = load_snapshot(store).segment
    assert segment.checkpoint.kind == "uuid"
    classic = build_segment(list_log(store), unreadable=[segment.checkpoint.files[0].key]).checkpoint
    assert (classic.kind, classic.version) == ("classic", 1)
    assert read_checkpoint(store, classic).files.select(["path", "size"]) == load_snapshot(store, 1).files.select(
        ["path", "size"]
    )


@pytest.mark.tier("test")
def test_a_checkpoint_without_one_of_its_sidecars_covers_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("refdelta.engine.log.checkpoint_write._LISTED", 1)
    store = table(tmp_path / "t", [60 * DAY, 50 * DAY, 40 * DAY, 1 * DAY], {2}, V2, checkpointPolicy="v2")
    first, *_ = sidecars_of(store, load_snapshot(store).segment.checkpoint)
    kept, snapshot = store.get(first), load_snapshot(store)
    store.delete([first])
    assert cleanup_log(store, snapshot, NOW) == []
    store.put(first, kept)
    assert cleanup_log(store, snapshot, NOW) != []
    assert versions(store) == [2, 3]
