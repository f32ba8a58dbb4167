"""Versions of a table, from its log: hints, gaps, time travel, moving on, and what is wrong with broken ones.

Tests of engine.log.timestamps.
"""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import MAPPED, PROTOCOL, Handmade, add, field, lines, metadata, remove, struct
from refdelta.core.log.segment import parse_last_checkpoint
from refdelta.engine.log import snapshot as snapshots
from refdelta.engine.log.checkpoint_write import write_checkpoint
from refdelta.engine.log.snapshot import follow, load_snapshot
from refdelta.engine.log.timestamps import version_at
from refdelta.errors import (
    InvalidLogError,
    StoreError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from refdelta_storage import CountingStore, LocalStore, ObjectNotFoundError, StorageError
from refdelta_storage.wrappers import Fault, FaultyStore, WrapperStore
from tiers import examples

SCHEMA = struct(field("x", "long"), field("P", "string"))
SMALL = [PROTOCOL, metadata(SCHEMA)]


def paths(snapshot):
    return snapshot.files.column("path").to_pylist()


def make(commits=4, **configuration):
    configuration = {f"delta.{name}": value for name, value in configuration.items()}
    table = Handmade(SCHEMA, "p", configuration={"delta.appendOnly": "true", **configuration})
    for i in range(1, commits):
        table.commit(add(f"f{i}", size=10), {"txn": {"appId": "app", "version": i}})
    return table


def test_newest_and_older_versions():
    table = make()
    snapshot = load_snapshot(table.store)
    assert (snapshot.version, paths(snapshot)) == (3, ["f1", "f2", "f3"])
    assert (snapshot.num_files, snapshot.size_bytes) == (3, 30)
    assert snapshot.schema.names == ["x", "P"]
    assert snapshot.partition_columns == ["P"]  # spelled as in the schema
    assert snapshot.properties.append_only
    assert snapshot.txns["app"].version == 3
    older = load_snapshot(table.store, 1)
    assert (older.version, paths(older), older.txns["app"].version) == (1, ["f1"], 1)
    empty = load_snapshot(table.store, 0)
    assert (empty.num_files, empty.size_bytes) == (0, 0)


@pytest.mark.parametrize("version", [4, 99, -1])
def test_a_version_that_is_not_there(version):
    with pytest.raises(VersionNotFoundError, match=str(version)):
        load_snapshot(make().store, version)


def test_no_table():
    with pytest.raises(TableNotFoundError):
        load_snapshot(Handmade().store)
    with pytest.raises(TableNotFoundError):
        version_at(Handmade().store, 0)


@pytest.mark.parametrize("missing", [0, 2])
def test_a_missing_commit_is_named(missing):
    table = make()
    table.store.delete([f"_delta_log/{missing:020d}.json"])
    with pytest.raises(InvalidLogError, match=f"version {missing} is missing"):
        load_snapshot(table.store)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b'{"add":{"path"', 1), (lines(add("g")) + b'{"remove":{"pa', 2), (b'{"add":{"path":7}}\n', 1)],
)
def test_a_broken_commit_is_named_with_its_line(content, line):
    table = make()
    table.put("_delta_log/00000000000000000004.json", content)
    with pytest.raises(InvalidLogError) as caught:
        load_snapshot(table.store)
    assert (caught.value.file, caught.value.line) == ("_delta_log/00000000000000000004.json", line)


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_log_without_metadata_or_protocol(missing):
    table = Handmade()
    table.commit(*[action for action in SMALL if missing not in action], add("f"))
    with pytest.raises(InvalidLogError, match=f"no {missing}"):
        load_snapshot(table.store)


def test_a_partition_column_that_the_schema_lacks():
    table = Handmade(SCHEMA, "q")
    with pytest.raises(InvalidLogError, match="'q'"):
        _ = load_snapshot(table.store).partition_columns


def test_an_unknown_feature_is_named():
    table = make()
    features = {"readerFeatures": ["flyingCarpets"], "writerFeatures": ["flyingCarpets"]}
    table.commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features})
    with pytest.raises(UnsupportedFeatureError, match="flyingCarpets"):
        load_snapshot(table.store)
    assert load_snapshot(table.store, 3).version == 3


# --- the hint ----------------------------------------------------------------------------------------------------


def with_checkpoint():
    table = make(6)
    table.checkpoint(3, [*SMALL, add("f1"), add("f2"), add("f3")])
    return table


@pytest.mark.parametrize(
    "hint",
    [
        None,
        *(b"", b"{", b"[]", b'{"version":-1,"size":1}', b'{"version":2,"size":1}', b'{"version":99,"size":1}'),
        *(b'{"version":3,"size":1}', b'{"version":3,"size":1,"checksum":"0"}', b'{"version":5,"size":1}'),
    ],
)
def test_any_hint_will_do(hint):
    table = with_checkpoint()
    if hint is not None:
        table.put("_delta_log/_last_checkpoint", hint)
    for version in (None, 5, 4, 3, 2, 0):
        snapshot = load_snapshot(table.store, version)
        expected = 5 if version is None else version
        assert (snapshot.version, paths(snapshot)) == (expected, [f"f{i}" for i in range(1, expected + 1)])


def test_a_hint_that_cannot_be_read_is_none():
    table = with_checkpoint()
    table.hint(3)
    faults = [Fault("fail", method, "*/_last_checkpoint", times=9) for method in ("get", "get_range")]
    store = FaultyStore(table.store, faults)
    assert paths(load_snapshot(store)) == ["f1", "f2", "f3", "f4", "f5"]
    write_checkpoint(store, load_snapshot(store))
    assert len(store.injected) == 3
    assert parse_last_checkpoint(table.store.get("_delta_log/_last_checkpoint")).version == 5


def test_commits_before_the_checkpoint_are_not_needed():
    table = with_checkpoint()
    table.hint(3)
    table.store.delete([f"_delta_log/{version:020d}.json" for version in range(4)])
    assert paths(load_snapshot(table.store)) == ["f1", "f2", "f3", "f4", "f5"]
    assert load_snapshot(table.store, 3).version == 3
    with pytest.raises(VersionNotFoundError, match="version 2"):
        load_snapshot(table.store, 2)


def test_the_listing_starts_at_the_hint():
    class Listing(WrapperStore):
        seen = ()

        def list(self, prefix="", after=None):
            found = list(super().list(prefix, after))
            self.seen += tuple(info.key for info in found)
            return iter(found)

    table = with_checkpoint()
    table.hint(3)
    store = Listing(table.store)
    load_snapshot(store)
    assert min(store.seen) == "_delta_log/00000000000000000003.checkpoint.parquet"


@given(st.integers(0, 7), st.sets(st.integers(0, 7)), st.integers(0, 9))
@examples(40)
def test_checkpoints_and_hints_change_nothing(version, checkpoints, hint):
    history = [[add("a")], [add("b")], [remove("a"), add("c")], [add("a")], [remove("b")], [add("b"), remove("c")]]
    history.append([{"txn": {"appId": "app", "version": 1}}])
    table = Handmade(SCHEMA)
    plain = Handmade(SCHEMA)
    for commit in history:
        table.commit(*commit)
        plain.commit(*commit)
    for at in checkpoints:
        live = load_snapshot(plain.store, at)
        table.checkpoint(at, [*SMALL, *(add(path) for path in paths(live))])
    table.hint(hint)
    assert sorted(paths(load_snapshot(table.store, version))) == sorted(paths(load_snapshot(plain.store, version)))


# --- moving on ---------------------------------------------------------------------------------------------------


def test_advance_reads_only_the_new_commits():
    table = make()
    store = CountingStore(table.store)
    old = load_snapshot(store)
    assert old.advance() is old
    table.commit(remove("f2"), add("f4"), {"txn": {"appId": "other", "version": 1}})
    table.commit(metadata(struct(field("y", "long"))), add("f5"))
    store.reset()

    new = old.advance()

    assert (store.counts["list"], store.counts["get"]) == (1, 0)
    assert (new.version, paths(new)) == (5, ["f1", "f3", "f4", "f5"])
    assert (set(new.txns), new.schema.names) == ({"app", "other"}, ["y"])
    assert (old.version, paths(old), old.schema.names) == (3, ["f1", "f2", "f3"], ["x", "P"])
    assert [f.version for f in new.segment.commits] == [0, 1, 2, 3, 4, 5]
    assert new.tombstones().column("path").to_pylist() == ["f2"]
    assert new.advance() is new


def test_advance_after_the_log_was_cleaned_up():
    table = make()
    old = load_snapshot(table.store)
    for i in range(4, 8):
        table.commit(add(f"f{i}"))
    table.checkpoint(6, [*SMALL, *(add(f"f{i}") for i in range(1, 7))])
    table.store.delete([f"_delta_log/{version:020d}.json" for version in range(6)])
    new = old.advance()
    assert (new.version, paths(new)) == (7, [f"f{i}" for i in range(1, 8)])
    assert new.segment.checkpoint.version == 6


def test_advance_takes_up_a_newer_checkpoint():
    table = make()
    old = load_snapshot(table.store)
    table.commit(add("f4"))
    table.checkpoint(4, [*SMALL, *(add(f"f{i}") for i in range(1, 5))])
    table.commit(add("f5"))
    new = old.advance()
    assert paths(new) == [f"f{i}" for i in range(1, 6)]
    assert new.segment.checkpoint.version == 4


def test_advance_over_a_table_that_was_replaced():
    table = make()
    old = load_snapshot(table.store)
    table.store.delete([f"_delta_log/{version:020d}.json" for version in range(4)])
    again = Handmade(SCHEMA, store=table.store)
    again.commit(add("new"))
    assert paths(old.advance()) == ["new"]
    again.store.delete([f"_delta_log/{version:020d}.json" for version in range(2)])
    with pytest.raises(TableNotFoundError):
        old.advance()


def test_advance_checks_the_protocol():
    table = make()
    old = load_snapshot(table.store)
    table.commit({"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}})
    with pytest.raises(UnsupportedFeatureError):
        old.advance()


def log_behind(table, version):
    return [table.store.get(f"_delta_log/{v:020d}.json") for v in range(version + 1, table.version + 1)]


def test_a_snapshot_goes_on_from_commits_that_are_at_hand():
    table = make()
    store = CountingStore(table.store)
    old = load_snapshot(store)
    table.commit({"commitInfo": {"txnId": "one"}}, remove("f2"), add("f4"), {"txn": {"appId": "other", "version": 1}})
    table.commit({"commitInfo": {"txnId": "two"}}, metadata(struct(field("y", "long"))), add("f5"))
    log = log_behind(table, 3)
    store.reset()

    new = follow(store, old, log)

    assert store.total == 0
    read = load_snapshot(table.store)
    assert (new.version, paths(new), new.files) == (5, paths(read), read.files)
    assert (new.protocol, new.metadata, new.txns, new.domains) == (
        (read.protocol, read.metadata, read.txns, read.domains)
    )
    assert new.commit_info.fields == {"txnId": "two"}
    assert new.tombstones().equals(read.tombstones())
    # The time of our own commit is the file's, as a listing has it.
    assert new.timestamp_ms == read.timestamp_ms
    store.reset()
    newest = new.advance()
    assert (store.counts["list"], store.total) == (1, 2)  # the second one compares our own commit
    assert newest.segment == read.segment
    assert newest.advance() is newest


def test_behind_one_commit_of_our_own_three_files_of_a_near_store_are_looked_at():
    table = make()
    store = CountingStore(table.store)
    new = load_snapshot(store)
    for file in ("f4", "f5"):  # one behind a listing, one behind what was looked at
        old = new
        table.commit(add(file))
        ours = follow(store, old, log_behind(table, old.version))
        store.reset()
        new = ours.advance()
        assert (store.counts["head"], store.total) == (3, 3)
        assert new.segment == load_snapshot(table.store).segment
        store.reset()
        assert new.advance() is new
        assert (store.counts["head"], store.total) == (2, 2)
    table.commit(add("f6"))
    assert paths(new.advance()) == paths(load_snapshot(table.store))


@pytest.mark.parametrize("change", ["another size", "gone", "another time"])
def test_a_commit_of_our_own_that_is_not_as_it_was_sends_us_to_the_listing(tmp_path, change):
    store = LocalStore(tmp_path, create=True)
    table = Handmade(SCHEMA, "p", store=store)
    ours = follow(store, load_snapshot(store), log_behind(table, table.commit(add("f1")) - 1))
    known = ours.advance()
    assert (known.version, known.segment.listed.mtime_ms is None) == (1, False)
    path = tmp_path / "_delta_log" / f"{1:020d}.json"
    if change == "gone":
        path.unlink()
    elif change == "another size":
        path.write_bytes(path.read_bytes().replace(b'"f1"', b'"file1"'))
    else:
        os.utime(path, (1, 1))
    for snapshot in (ours, known):
        read = snapshot.advance()
        same = snapshot is ours and change == "another time"  # of which nobody has told the time yet
        assert paths(read) == (["f1"] if same else paths(load_snapshot(store)))
        assert read is not snapshot


def test_where_a_checkpoint_is_due_the_listing_shows_it():
    table = make(commits=10, checkpointInterval="10")
    old = load_snapshot(table.store)
    table.commit(add("f10"))
    table.checkpoint(10, [*SMALL, *(add(f"f{i}") for i in range(1, 11))])
    newest = follow(table.store, old, log_behind(table, 9)).advance()
    assert newest.segment == load_snapshot(table.store).segment
    assert newest.segment.checkpoint.version == 10


def test_the_first_commits_of_a_table_make_a_snapshot():
    table = make()
    made = follow(table.store, None, log_behind(table, -1))
    read = load_snapshot(table.store)
    assert (made.version, paths(made), made.files) == (3, paths(read), read.files)
    assert made.advance().segment == read.segment


def test_a_table_that_was_replaced_behind_our_own_commit_is_found_out(tmp_path):
    """The new one looks the same to the byte: what tells is the commit before, whose time a listing has shown."""
    for place in ("ours", "theirs"):
        store = LocalStore(tmp_path / place, create=True)
        table = Handmade(SCHEMA, "p", store=store)
        for i in range(1, 4):
            table.commit(add(f"{place[0]}{i}"))
            os.utime(tmp_path / place / "_delta_log" / f"{i:020d}.json", (i, i + 10 * (place == "theirs")))
        if place == "ours":
            ours = follow(store, load_snapshot(store, 2), log_behind(table, 2))
            assert (ours.version, ours.advance().version) == (3, 3)
    shutil.rmtree(tmp_path / "ours")
    (tmp_path / "theirs").rename(tmp_path / "ours")
    assert paths(ours.advance()) == ["t1", "t2", "t3"]


def test_others_who_won_while_we_committed_are_read():
    table = make()
    old = load_snapshot(table.store)
    table.commit(add("f4"))
    ours = follow(table.store, old, log_behind(table, 3))
    table.commit(add("f5"))
    table.checkpoint(4, [*SMALL, *(add(f"f{i}") for i in range(1, 5))])
    newest = ours.advance()
    assert paths(newest) == [f"f{i}" for i in range(1, 6)]
    assert newest.segment.checkpoint.version == 4


# --- trouble between the listing and the reading -------------------------------------------------------------------


def test_files_that_cleanup_takes_while_we_read():
    table = with_checkpoint()

    class Cleaned(WrapperStore):
        """After the first listing everything before the checkpoint goes."""

        done = False

        def list(self, prefix="", after=None):
            found = list(super().list(prefix, after))
            if not self.done:
                self.done = True
                found = [info for info in found if "checkpoint" not in info.key]
                self.inner.delete([f"_delta_log/{version:020d}.json" for version in range(3)])
            return iter(found)

    assert paths(load_snapshot(Cleaned(table.store))) == [f"f{i}" for i in range(1, 6)]


def test_tombstones_of_a_log_that_was_cleaned_up_meanwhile():
    table = make()
    table.commit(remove("f2"))
    snapshot = load_snapshot(table.store)
    table.checkpoint(4, [*SMALL, add("f1"), add("f3"), remove("f2")])
    table.store.delete([f"_delta_log/{version:020d}.json" for version in range(4)])
    assert snapshot.tombstones().column("path").to_pylist() == ["f2"]
    table.store.delete([info.key for info in table.store.list()])
    with pytest.raises(TableNotFoundError):
        snapshot.tombstones()


def test_a_log_that_cannot_be_held_still():
    class Vanishing(WrapperStore):
        def get_many(self, keys):
            raise ObjectNotFoundError("gone")

    with pytest.raises(InvalidLogError, match="disappear"):
        load_snapshot(Vanishing(make().store))


def test_trouble_of_the_store_is_a_store_error():
    class Broken(WrapperStore):
        def get_many(self, keys):
            raise StorageError("no connection")

    with pytest.raises(StoreError, match="no connection"):
        load_snapshot(Broken(make().store))


# --- time --------------------------------------------------------------------------------------------------------


def timed(folder, times, **options):
    """A table on disk whose commits have these modification times, in milliseconds."""
    table = Handmade(SCHEMA, store=LocalStore(folder), **options)
    for i in range(1, len(times)):
        table.commit(add(f"f{i}"))
    for version, time in enumerate(times):
        os.utime(folder / f"_delta_log/{version:020d}.json", ns=(0, time * 1_000_000))
    return table.store


def test_version_at_a_file_time(tmp_path):
    store = timed(tmp_path, [1000, 2000, 1500, 5000])  # the third was copied out of order: it counts as 2001
    times = (1000, 1999, 2000, 2001, 4999, 5000, 5001, 10**15)
    assert [version_at(store, t) for t in times] == [0, 0, 1, 2, 2, 3, 3, 3]
    with pytest.raises(VersionNotFoundError, match="before the first") as caught:
        version_at(store, 999)
    assert "0 (1970-01-01T00:00:01.000+00:00) to 3 (1970-01-01T00:00:05.000+00:00)" in str(caught.value)
    assert load_snapshot(store).timestamp_ms == 5000


def test_version_at_a_time_whose_version_is_gone(tmp_path):
    store = timed(tmp_path, [1000, 2000, 3000, 4000])
    table = Handmade(store=store)
    table.checkpoint(2, [*SMALL, add("f1"), add("f2")])
    store.delete(["_delta_log/00000000000000000000.json"])  # so version 1 cannot be rebuilt either
    assert version_at(store, 3000) == 2
    with pytest.raises(VersionNotFoundError, match="before the first"):
        version_at(store, 2500)


ICT_PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}}


def info(time):
    return {"commitInfo": {"inCommitTimestamp": time, "operation": "WRITE"}}


def test_version_at_an_in_commit_time():
    table = Handmade()
    on = {"delta.enableInCommitTimestamps": "true"}
    table.commit(info(100), ICT_PROTOCOL, metadata(SCHEMA, configuration=on))
    for i in range(1, 40):
        table.commit(info(100 + 10 * i), add(f"f{i}"))
    store = CountingStore(table.store)
    assert [version_at(store, t) for t in (100, 109, 110, 489, 490)] == [0, 0, 1, 38, 39]
    store.reset()
    version_at(store, 300)
    assert store.counts["get"] < 20  # a search, not a walk
    assert version_at(store, 491) == 39
    with pytest.raises(VersionNotFoundError):
        version_at(store, 99)
    snapshot = load_snapshot(store)
    assert snapshot.timestamp_ms == 490


def test_version_at_where_in_commit_times_came_late(tmp_path):
    store = timed(tmp_path, [1000, 2000])
    on = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": "3000",
    }
    table = Handmade(store=store)
    table.version = 1
    table.commit(info(3000), ICT_PROTOCOL, metadata(SCHEMA, configuration=on))
    table.commit(info(4000), add("g"))
    assert [version_at(store, t) for t in (1000, 1500, 2000, 2999, 3000, 3999, 4000)] == [0, 0, 1, 1, 2, 2, 3]


def test_the_time_of_a_version_whose_commit_only_a_checkpoint_covers():
    table = Handmade()
    on = {"delta.enableInCommitTimestamps": "true"}
    table.commit(info(100), ICT_PROTOCOL, metadata(SCHEMA, configuration=on))
    content = [ICT_PROTOCOL, metadata(SCHEMA, configuration=on)]
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    table.put(f"_delta_log/00000000000000000000.checkpoint.{uuid}.json", lines(*content))
    snapshot = load_snapshot(table.store)
    assert snapshot.commit_info is None
    assert snapshot.timestamp_ms == 100


def test_column_mapping_tables_can_be_opened():
    table = Handmade(SCHEMA, protocol=MAPPED, configuration={"delta.columnMapping.mode": "name"})
    assert load_snapshot(table.store).properties.column_mapping_mode == "name"


@pytest.mark.parametrize("unset", [{}, {"schemaString": None}])
def test_a_table_that_gets_its_schema_later(unset):
    """As Databricks' pipelines create tables."""
    first = metadata(SCHEMA)
    del first["metaData"]["schemaString"]
    first["metaData"] |= unset
    table = Handmade()
    table.commit(PROTOCOL, first)
    table.commit(metadata(SCHEMA))
    table.commit(add("a"))
    assert load_snapshot(table.store).schema.names == ["x", "P"]
    assert load_snapshot(table.store, version=0).schema.names == []


def test_a_handle_follows_many_commits_in_parts(monkeypatch):
    """The actions of a part are gone before the next one is read; those that are not of files count to the end."""
    made = Handmade(struct(field("n", "long")))
    made.commit(add("first"))
    before = load_snapshot(made.store)
    made.commit(metadata(struct(field("n", "long"), field("m", "long"))), {"commitInfo": {"operation": "ALTER"}})
    made.commit({"txn": {"appId": "app", "version": 7}}, add("a"))
    made.commit(remove("first"))
    for number in range(10):
        made.commit({"commitInfo": {"operation": "WRITE", "n": number}}, add(f"f{number}"))
    parts, read = [], snapshots.commit_contents
    monkeypatch.setattr(
        snapshots, "commit_contents", lambda store, files: parts.append(len(files)) or read(store, files)
    )
    monkeypatch.setattr(snapshots, "_READ_BYTES", 500)
    later = before.advance()
    assert sum(parts) == 13
    assert max(parts) < 7
    monkeypatch.undo()
    fresh = load_snapshot(made.store)
    assert later.files.combine_chunks().equals(fresh.files.combine_chunks())
    assert (later.version, later.metadata, later.txns) == (fresh.version, fresh.metadata, fresh.txns)
    assert later.txns["app"].version == 7
    assert later.commit_info == fresh.commit_info
    assert later.commit_info.fields["n"] == 9
    assert later.no_removes_since == fresh.no_removes_since == later.version
