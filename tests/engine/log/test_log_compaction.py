"""A compaction file says what its commits say, wherever in the log it stands."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.log.actions import (
    Add,
    Cdc,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import commit_key, compacted_key
from refdelta.core.log.replay import Replay
from refdelta.engine.log.log_compaction import compact_log, reconciled
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import to_adds
from refdelta_storage import MemoryStore
from tiers import examples

FEATURES = ["deletionVectors"]
PROTOCOL = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=FEATURES, writer_features=[*FEATURES, "domainMetadata"]
)
METADATA = Metadata(id="t", schema_string='{"type":"struct","fields":[]}', partition_columns=[])
PATHS = ["a", "b%20c", "c=1/d"]
VECTORS = [
    None,
    DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="wi5b=", size_in_bytes=4, cardinality=1),
    DeletionVectorDescriptor(storage_type="u", path_or_inline_dv="v" * 20, offset=1, size_in_bytes=4, cardinality=2),
]
files = st.tuples(st.sampled_from(PATHS), st.sampled_from(VECTORS))
actions = st.one_of(
    files.map(
        lambda f: Add(
            path=f[0], partition_values={}, size=1, modification_time=0, data_change=False, deletion_vector=f[1]
        )
    ),
    files.map(lambda f: Remove(path=f[0], data_change=False, deletion_timestamp=1, deletion_vector=f[1])),
    st.builds(Txn, app_id=st.sampled_from("xy"), version=st.integers(0, 9)),
    st.builds(
        DomainMetadata,
        domain=st.sampled_from(["u.a", "u.b"]),
        configuration=st.sampled_from(["{}", "1"]),
        removed=st.booleans(),
    ),
    st.just(Cdc(path="_change_data/x", partition_values={}, size=1, data_change=False)),
    st.builds(lambda n: CommitInfo({"n": n}), st.integers(0, 9)),
)
commits = st.lists(st.lists(actions, max_size=6), min_size=2, max_size=7)


def state(log):
    replay = Replay()
    for commit in log:
        replay.apply(commit)
    return replay.protocol, replay.metadata, replay.txns, replay.domains, replay.files, replay.tombstones


@given(log=commits, data=st.data())
def test_it_stands_for_its_commits(log, data):
    log = [[PROTOCOL, METADATA], *log]
    start = data.draw(st.integers(0, len(log) - 2))
    end = data.draw(st.integers(start + 1, len(log) - 1))
    one = reconciled(log[start : end + 1])
    assert state([*log[:start], one, *log[end + 1 :]]) == state(log)
    assert not any(isinstance(action, (CommitInfo, Cdc)) for action in one)


@examples(30)
@given(log=commits, data=st.data())
def test_a_snapshot_by_it_is_the_same(log, data):
    store = MemoryStore(None)
    log = [[PROTOCOL, METADATA], *([CommitInfo({"version": i}), *commit] for i, commit in enumerate(log, 1))]
    for version, commit in enumerate(log):
        store.put_if_absent(commit_key(version), encode_commit(commit))
    plain = load_snapshot(store)
    start = data.draw(st.integers(0, plain.version - 1))
    end = data.draw(st.integers(start + 1, plain.version))
    something = bool(reconciled(log[start : end + 1]))
    assert compact_log(store, plain, start, end) == (compacted_key(start, end) if something else None)
    assert compact_log(store, plain, start, end) is None  # it is there
    short = load_snapshot(store)
    assert len(short.segment.commits) == len(log) - (end - start) * something
    assert (short.protocol, short.txns, short.domains) == (plain.protocol, plain.txns, plain.domains)
    assert {repr(add) for add in to_adds(short.files)} == {repr(add) for add in to_adds(plain.files)}
    order = [("path", "ascending")]
    assert short.tombstones().sort_by(order).num_rows == plain.tombstones().sort_by(order).num_rows
    assert short.segment.last_commit == plain.segment.last_commit


def test_an_empty_one_is_passed_over():
    store = MemoryStore(None)
    for version, commit in enumerate([[PROTOCOL, METADATA], [CommitInfo({})], [CommitInfo({})]]):
        store.put_if_absent(commit_key(version), encode_commit(commit))
    store.put(compacted_key(1, 2), b"")
    assert len(load_snapshot(store).segment.commits) == 3


def rows(*numbers):
    return pa.table({"n": pa.array(numbers, pa.int64())})


def test_on_request(tmp_path):
    write_deltalake(tmp_path, rows(0), configuration={"delta.enableInCommitTimestamps": "true"})
    table = DeltaTable(tmp_path)
    table.compact_logs()  # one version: there is nothing to put together
    assert not list(tmp_path.glob("_delta_log/*.compacted.json"))
    for n in range(1, 4):
        write_deltalake(table, rows(n), mode="append")
    table.create_checkpoint()
    for n in range(4, 7):
        write_deltalake(table, rows(n), mode="append")
    table.compact_logs(1, 3)
    table.compact_logs()
    assert sorted(path.name for path in tmp_path.glob("_delta_log/*.compacted.json")) == [
        f"{1:020d}.{3:020d}.compacted.json",
        f"{4:020d}.{6:020d}.compacted.json",
    ]
    short = DeltaTable(tmp_path)
    assert len(short._handle.snapshot.segment.commits) == 1
    assert sorted(short.to_pyarrow_table()["n"].to_pylist()) == list(range(7))
    assert short._handle.snapshot.timestamp_ms == table.history(1)[0]["inCommitTimestamp"]
    assert sorted(DeltaTable(tmp_path, version=3).to_pyarrow_table()["n"].to_pylist()) == list(range(4))
    write_deltalake(short, rows(7), mode="append")
    assert DeltaTable(tmp_path).count() == 8


def test_by_a_property(tmp_path):
    properties = {"refdelta.logCompactionInterval": "2", "delta.checkpointInterval": "6"}
    for n in range(9):
        write_deltalake(tmp_path, rows(n), mode="append", configuration=properties if n == 0 else None)
    names = sorted(path.name for path in tmp_path.glob("_delta_log/*.compacted.json"))
    assert names == [compacted_key(lo, lo + 1).split("/")[1] for lo in (1, 3, 7)]
    data = (tmp_path / "_delta_log" / names[0]).read_bytes()
    assert [type(action) for action in decode_commit(data, names[0])] == [Add, Add]
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["n"].to_pylist()) == list(range(9))
    assert sorted(DeltaTable(tmp_path, version=5).to_pyarrow_table()["n"].to_pylist()) == list(range(6))


def test_what_cannot_be_compacted(tmp_path, monkeypatch):
    for n in range(3):
        write_deltalake(tmp_path, rows(n), mode="append")
    table = DeltaTable(tmp_path)
    with pytest.raises(errors.VersionNotFoundError, match="version 3"):
        table.compact_logs(1, 4)
    for start, end in ((2, 1), (1, 1), (-1, 2)):
        with pytest.raises(errors.InvalidArgumentError, match="two or more versions in ascending order"):
            table.compact_logs(start, end)
    with pytest.raises(errors.ReadOnlyTableError):
        DeltaTable(tmp_path, version=1).compact_logs()
    monkeypatch.setattr("refdelta.engine.log.log_compaction.MOST_BYTES", 100)
    with pytest.raises(errors.InvalidArgumentError, match="checkpoint"):
        table.compact_logs()
    assert not list(tmp_path.glob("_delta_log/*.compacted.json"))
