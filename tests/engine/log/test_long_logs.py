"""Thousands of log files: tables whose checkpoints nobody wrote, and logs that nobody cleaned up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from handmade import PROTOCOL, Handmade, add, field, metadata, struct
from refdelta import DeltaTable, write_deltalake
from refdelta.core.log.actions import Add, CommitInfo, Remove
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import checksum_key, commit_key
from refdelta_storage import open_store
from servers.proxies import CountingProxy

ROW = pa.table({"n": pa.array(range(10), pa.int64())})
SMALL = [PROTOCOL, metadata(struct(field("n", "long")), configuration={"delta.checkpointInterval": "1000000"})]


def commit(version):
    """Adds a file; each tenth version removes the one before."""
    info = CommitInfo(fields={"operation": "WRITE", "txnId": f"w{version}"})
    actions = [Add(path=f"f{version}", partition_values={}, size=1, modification_time=1, data_change=True)]
    if version % 10 == 0:
        actions.append(Remove(path=f"f{version - 1}", data_change=True, deletion_timestamp=1))
    return encode_commit([info, *actions])


def names(folder: Path, versions: int) -> None:
    """A commit and a checksum of each version before this one, which nobody is to read."""
    (folder / "_delta_log").mkdir(parents=True)
    for version in range(versions):
        (folder / commit_key(version)).touch()
        (folder / checksum_key(version)).touch()


def paths(table):
    return {path for path in table.files()["path"].to_pylist() if path.startswith("f")}


@pytest.mark.tier("test")
def test_five_thousand_commits_without_a_checkpoint(tmp_path):
    write_deltalake(tmp_path, ROW, configuration={"delta.checkpointInterval": "1000000"})
    for version in range(1, 5001):
        (tmp_path / commit_key(version)).write_bytes(commit(version))
    table = DeltaTable(tmp_path)
    assert table.version() == 5000
    assert paths(table) == {f"f{v}" for v in range(1, 5001) if v % 10 != 9}
    late = table.begin()
    late.append(ROW)
    for _ in range(3):
        write_deltalake(table, ROW, mode="append")
    assert late.commit().version == 5004
    assert table.version() == 5004
    assert DeltaTable(tmp_path, version=2500).version() == 2500
    assert [entry["version"] for entry in table.history(3)] == [5004, 5003, 5002]
    assert table._handle.snapshot.tombstones().num_rows == 500
    table.create_checkpoint()
    again = DeltaTable(tmp_path)
    assert again.files().sort_by("path").equals(table.files().sort_by("path"))


@pytest.mark.tier("test")
def test_twenty_thousand_names_behind_a_checkpoint(tmp_path):
    names(tmp_path, 10_000)
    made = Handmade(store=open_store(str(tmp_path), {}))
    made.version = 9_999
    made.commit(add("f1"))
    made.checkpoint(10_000, [*SMALL, add("f1")])
    made.commit(add("f2"))
    table = DeltaTable(tmp_path)
    assert (table.version(), paths(table)) == (10_001, {"f1", "f2"})
    write_deltalake(table, ROW, mode="append")
    write_deltalake(tmp_path, ROW, mode="append")
    table.update_incremental()
    assert (table.version(), len(table.files())) == (10_003, 4)
    table.create_checkpoint()
    assert table.cleanup_metadata() == 0
    assert DeltaTable(tmp_path).files().sort_by("path").equals(table.files().sort_by("path"))


def test_a_log_of_several_pages_on_s3(s3_server, monkeypatch):
    """The whole log is listed in pages of a thousand names; its tail, and what cleanup looks at, are one page."""
    with CountingProxy(s3_server) as proxy:
        place = proxy.place()
        names(s3_server.path(place.uri), 1200)
        made = Handmade(store=open_store(place.uri, place.options))
        made.version = 1199
        made.commit(add("f1"))
        made.checkpoint(1200, [*SMALL, add("f1")])
        proxy.reset()
        table = DeltaTable(place.uri, storage_options=place.options)
        assert paths(table) == {"f1"}
        assert proxy.counts == {"GET hint": 1, "LIST log": 3, "GET checkpoint": 1}
        for looks, moment in (({"LIST log": 1}, 0.0), ({}, 600.0)):
            monkeypatch.setattr("refdelta.api.handle._MOMENT", moment)
            proxy.reset()
            write_deltalake(table, ROW, mode="append")
            table.settle()
            # The commit is read again in the background, to see that the checksum is beside it.
            assert proxy.counts == {**looks, "PUT data": 1, "PUT commit": 1, "PUT checksum": 1, "GET commit": 1}
        proxy.reset()
        table.cleanup_metadata()
        # The time is asked of the store before anything may be deleted for its age.
        assert proxy.counts == {"LIST log": 2, "PUT log": 1, "HEAD log": 1, "DELETE log": 1}
        table.create_checkpoint()
        proxy.reset()
        assert DeltaTable(place.uri, storage_options=place.options).version() == 1202
        assert proxy.counts == {"GET hint": 1, "LIST log": 1, "GET checkpoint": 1}
