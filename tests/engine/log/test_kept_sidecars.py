"""V2 checkpoints that keep sidecars of the one before: the same table for every reader, and little is written anew.

Tests of engine.log.statistics.
"""

from __future__ import annotations

import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from refdelta.core.log.actions import Add, CommitInfo, Metadata, Protocol, Remove
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import SIDECARS, commit_key
from refdelta.engine.log.checkpoint import read_sidecars, sidecars_of
from refdelta.engine.log.checkpoint_write import write_checkpoint
from refdelta.engine.log.listing import find_segment
from refdelta.engine.log.snapshot import follow, load_snapshot
from refdelta.engine.log.state import keys_of
from refdelta_storage import MemoryStore
from tiers import examples

FEATURES = ["deletionVectors", "v2Checkpoint"]
V2 = Protocol(min_reader_version=3, min_writer_version=7, reader_features=FEATURES, writer_features=FEATURES)
NOW = time.time_ns() // 1_000_000
DAY = 24 * 60 * 60 * 1000
STRUCT = {"checkpoint.writeStatsAsStruct": "true"}
SCHEMA = '{"type":"struct","fields":[{"name":"n","type":"TYPE","nullable":true,"metadata":{}}]}'


def metadata(kind="integer", **configuration):
    configuration = {f"delta.{name}": value for name, value in configuration.items()}
    return Metadata(
        id="t",
        schema_string=SCHEMA.replace("TYPE", kind),
        partition_columns=[],
        configuration={"delta.checkpointPolicy": "v2", **configuration},
    )


def add(name, **fields):
    stats = '{"numRecords":1,"minValues":{"n":1},"maxValues":{"n":1},"nullCount":{"n":0}}'
    fields = {"size": 1, "modification_time": 0, "data_change": True, "stats": stats} | fields
    return Add(path=f"f{name}", partition_values={}, **fields)


def remove(name):
    return Remove(path=f"f{name}", deletion_timestamp=NOW, data_change=True)


class Log:
    """A table that one handle follows; ``snapshot`` is the newest version."""

    def __init__(self, *actions, configuration=None):
        self.store, self.snapshot = MemoryStore(None), None
        self.commit(V2, metadata(**configuration or {}), *actions)

    def commit(self, *actions):
        version = 0 if self.snapshot is None else self.snapshot.version + 1
        data = encode_commit([CommitInfo({}), *actions])
        self.store.put_if_absent(commit_key(version), data)
        self.snapshot = follow(self.store, self.snapshot, [data])

    def checkpoint(self):
        """Write one. Returns the sidecars that it keeps and those that are new."""
        before = {info.key for info in self.store.list(f"{SIDECARS}/")}
        write_checkpoint(self.store, self.snapshot)
        now = self.sidecars()
        return now & before, now - before

    def sidecars(self):
        return {*sidecars_of(self.store, find_segment(self.store).checkpoint)}


def state(snapshot):
    """The files and tombstones of a version, in no order."""
    files = snapshot.files.drop_columns(["dataChange"]).to_pylist()
    return sorted(map(repr, files)), sorted(keys_of(snapshot.tombstones()).to_pylist())


def from_the_checkpoint(log):
    """The table as those see it who have no commit."""
    copy = MemoryStore(None)
    for info in log.store.list():
        if not info.key.endswith(".json") or "checkpoint" in info.key:
            copy.put(info.key, log.store.get(info.key))
    return load_snapshot(copy)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("refdelta.engine.log.checkpoint_write.LISTED_ITSELF", 2)


@pytest.fixture(params=["one handle", "a new handle"])
def again(request):
    """What comes between two checkpoints: nothing, or all that the handle knew is read again."""

    def reopened(log):
        if request.param == "a new handle":
            log.snapshot = load_snapshot(log.store)

    return reopened


@pytest.mark.tier("test")
def test_appends_add_one_sidecar_for_what_is_new(again):
    log = Log(*(add(i) for i in range(40)))
    assert [len(found) for found in log.checkpoint()] == [0, 1]
    again(log)
    log.commit(*(add(i) for i in range(40, 50)))
    first = log.sidecars()
    kept, new = log.checkpoint()
    assert (kept, len(new)) == (first, 1)
    again(log)
    log.commit(add(50), add(51))
    assert [len(found) for found in log.checkpoint()] == [2, 1]
    assert state(from_the_checkpoint(log)) == state(log.snapshot)
    again(log)
    assert [len(found) for found in log.checkpoint()] == [3, 0]  # there is nothing new
    assert state(from_the_checkpoint(log)) == state(log.snapshot)


@pytest.mark.tier("test")
def test_they_stay_few_and_each_file_is_written_a_few_times(again):
    log, written = Log(), 0
    for number in range(40):
        log.commit(*(add(5 * number + i) for i in range(5)))
        again(log)
        _, new = log.checkpoint()
        listed = read_sidecars(log.store, find_segment(log.store).checkpoint)
        written += sum(int(one.tags["refdelta.numAddFiles"]) for one in listed if f"{SIDECARS}/{one.path}" in new)
        assert len(listed) <= 6
    assert written < 4 * 200  # 40 whole checkpoints would have 4,100
    assert state(from_the_checkpoint(log)) == state(log.snapshot)


def test_large_ones_are_never_merged(monkeypatch):
    monkeypatch.setattr("refdelta.engine.log.checkpoint_write._LISTED", 8)
    log = Log()
    for number in range(6):
        log.commit(*(add(4 * number + i) for i in range(4)))
        log.checkpoint()
    assert len(log.sidecars()) == 6
    assert state(from_the_checkpoint(log)) == state(log.snapshot)


@pytest.mark.tier("test")
def test_a_sidecar_with_a_file_that_a_commit_removed_is_written_anew_and_the_others_are_kept(again):
    log = Log(*(add(i) for i in range(40)))
    log.checkpoint()
    log.commit(*(add(i) for i in range(40, 50)))
    (first,), (second,) = log.checkpoint()
    again(log)
    log.commit(remove(45))
    kept, new = log.checkpoint()
    assert (kept, second in log.sidecars(), len(new)) == ({first}, False, 2)  # 9 files, and a tombstone
    assert state(from_the_checkpoint(log)) == state(log.snapshot)
    again(log)
    log.commit(remove(1), add(60))
    kept, _ = log.checkpoint()
    assert first not in kept
    assert state(from_the_checkpoint(log)) == state(log.snapshot)


@pytest.mark.parametrize("change", [{"tags": {"k": "v"}}, {"base_row_id": 5}])
def test_a_file_that_is_added_again_is_listed_once_as_it_is_now(again, change):
    log = Log(*(add(i) for i in range(40)))
    log.checkpoint()
    again(log)
    log.commit(add(3, **change))
    kept, _ = log.checkpoint()
    assert not kept
    assert state(from_the_checkpoint(log)) == state(log.snapshot)


@pytest.mark.tier("test")
def test_a_removed_file_that_is_added_again_has_no_tombstone(again):
    log = Log(*(add(i) for i in range(40)))
    log.commit(remove(7))
    log.checkpoint()
    again(log)
    log.commit(add(7), add(41))
    log.checkpoint()
    assert state(from_the_checkpoint(log)) == state(log.snapshot) == state(load_snapshot(log.store))
    assert log.snapshot.tombstones().num_rows == 0


def test_none_is_kept_that_a_cleanup_might_remove(again, monkeypatch):
    """One that runs beside a writer, and finds the checkpoint expired that named it."""
    log = Log(*(add(i) for i in range(40)), configuration={"logRetentionDuration": "interval 10 days"})
    log.checkpoint()
    again(log)
    log.commit(add(41))
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 4 * DAY * 1_000_000)
    assert len(log.checkpoint()[0]) == 1
    again(log)
    log.commit(add(42))
    monkeypatch.setattr(time, "time_ns", lambda: now() + 6 * DAY * 1_000_000)
    old = log.sidecars()
    kept, _ = log.checkpoint()
    assert len(old - kept) == 2
    assert state(from_the_checkpoint(log)) == state(log.snapshot)


@pytest.mark.parametrize("change", [metadata(**STRUCT), metadata("long", **STRUCT)])
def test_none_is_kept_whose_columns_differ_from_those_of_a_new_one(again, change):
    before = STRUCT if "long" in change.schema_string else {}
    log = Log(*(add(i) for i in range(40)), configuration=before)
    log.checkpoint()
    log.commit(add(41))
    assert len(log.checkpoint()[0]) == 1
    again(log)
    log.commit(change)
    assert len(log.checkpoint()[0]) == 0
    again(log)
    log.commit(add(42))
    assert len(log.checkpoint()[0]) == 1


def test_a_sidecar_of_another_engine_is_not_kept(again, monkeypatch):
    """It may list tombstones beside the files."""
    log = Log(*(add(i) for i in range(40)))
    with monkeypatch.context() as patched:
        patched.setattr("refdelta.engine.log.checkpoint_write.ADDS_TAG", "theirs")
        log.checkpoint()
    again(log)
    log.snapshot.newest_checkpoint.layout = None
    log.commit(add(41))
    assert len(log.checkpoint()[0]) == 0
    assert state(from_the_checkpoint(log)) == state(log.snapshot)


names = st.integers(0, 30)
commits = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(names, min_size=1, max_size=6, unique=True)),
        st.tuples(st.just("remove"), st.lists(names, min_size=1, max_size=3, unique=True)),
        st.tuples(st.sampled_from(["checkpoint", "reopen"]), st.just([])),
    ),
    max_size=12,
)


@pytest.mark.tier("test")
@examples(100)
@given(commits, st.integers(1, 12))
def test_whatever_happens_a_checkpoint_says_what_the_log_says(steps, most):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("refdelta.engine.log.checkpoint_write._LISTED", most)
        log = Log(*(add(i) for i in range(100, 110)))
        for verb, chosen in [*steps, ("checkpoint", [])]:
            if verb == "add":
                log.commit(*(add(i, tags={"at": str(log.snapshot.version)}) for i in chosen))
            elif verb == "remove":
                log.commit(*map(remove, chosen))
            elif verb == "reopen":
                log.snapshot = load_snapshot(log.store)
            elif verb == "checkpoint":
                log.checkpoint()
                assert state(from_the_checkpoint(log)) == state(log.snapshot)
        assert state(log.snapshot) == state(load_snapshot(log.store))
