"""The columnar list of files against the plain definition of replay."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import Replay, file_key
from refdelta.engine.log import state
from refdelta.engine.log.state import (
    FILE_SCHEMA,
    STATS_PARSED,
    TOMBSTONE_SCHEMA,
    adds_table,
    keys_of,
    reconcile,
    reconcile_tombstones,
    removes_table,
    to_adds,
    to_removes,
    unique_ids,
)
from tiers import examples

vectors = st.none() | st.builds(
    DeletionVectorDescriptor,
    storage_type=st.sampled_from("up"),
    path_or_inline_dv=st.sampled_from(["x", "y", "y@1"]),
    offset=st.none() | st.sampled_from([0, 1]),
    size_in_bytes=st.just(10),
    cardinality=st.integers(0, 3),
    max_row_index=st.none() | st.just(7),
)
strings = st.dictionaries(st.sampled_from(["p", "q"]), st.none() | st.text(max_size=3))
adds = st.builds(
    Add,
    path=st.sampled_from(["a", "b", "c=1/d", "e%20f", "e f"]),
    partition_values=strings,
    size=st.integers(0, 2**63 - 1),
    modification_time=st.integers(-(2**63), 2**63 - 1),
    data_change=st.booleans(),
    stats=st.none() | st.just('{"numRecords":1}'),
    tags=st.none() | strings,
    deletion_vector=vectors,
    base_row_id=st.none() | st.integers(0, 9),
    default_row_commit_version=st.none() | st.integers(0, 9),
    clustering_provider=st.none() | st.just("liquid"),
)
removes = st.builds(
    Remove,
    path=st.sampled_from(["a", "b", "c=1/d", "e%20f", "e f"]),
    deletion_timestamp=st.none() | st.integers(0, 9),
    data_change=st.booleans(),
    partition_values=st.none() | strings,
    size=st.none() | st.integers(0, 9),
    deletion_vector=vectors,
)
# Within a commit every logical file is referred to once; a commit's order then does not matter.
commits = st.lists(st.lists(adds | removes, max_size=6, unique_by=file_key), max_size=6)


@given(commits, st.integers(0, 6))
@examples(150)
def test_reconciliation_in_columns_is_that_of_replay(history, split):
    replay = Replay()
    for commit in history[:split]:
        replay.apply(commit)
    files, gone = adds_table(list(replay.files.values())), removes_table(list(replay.tombstones.values()))
    for commit in history[split:]:
        replay.apply(commit)

    files, gone = reconcile(files, history[split:]), reconcile_tombstones(gone, history[split:])

    assert files.schema == FILE_SCHEMA
    assert gone.schema == TOMBSTONE_SCHEMA
    # The order too: first what was there, then what came, each as the newest reference has it.
    assert to_adds(files) == list(replay.files.values())
    assert to_removes(gone) == list(replay.tombstones.values())


@given(st.lists(adds, max_size=5))
@examples(50)
def test_actions_survive_being_columns(actions):
    table = adds_table(actions)
    assert table.schema == FILE_SCHEMA
    assert to_adds(table) == actions
    ids = [None if add.deletion_vector is None else add.deletion_vector.unique_id for add in actions]
    assert unique_ids(table).to_pylist() == ids


def test_struct_statistics_of_a_checkpoint_stay_beside_new_files():
    def file(path):
        return Add(path=path, partition_values={}, size=1, modification_time=0, data_change=True)

    parsed = pa.chunked_array([pa.array([{"numRecords": 5}, {"numRecords": 6}])])
    base = adds_table([file("a"), file("b")]).append_column(STATS_PARSED, parsed)

    files = reconcile(base, [[Remove(path="a"), file("c")]])

    assert files.column("path").to_pylist() == ["b", "c"]
    assert files.column(STATS_PARSED).to_pylist() == [{"numRecords": 6}, None]
    assert [add.path for add in to_adds(files)] == ["b", "c"]


@given(st.lists(st.text("ab/.%:", min_size=1, max_size=4), min_size=1), st.sampled_from([0, 10**6]))
def test_paths_are_normalized_in_columns_as_one_by_one(paths, long_text):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(state, "_LONG_TEXT", long_text)
        files = [Add(path=path, partition_values={}, size=0, modification_time=0, data_change=True) for path in paths]
        assert keys_of(adds_table(files)).to_pylist() == list(map(same_path, paths))


def test_one_path_in_two_spellings_is_one_file():
    def add(path):
        return Add(path=path, partition_values={}, size=1, modification_time=1, data_change=True)

    base = adds_table([add("file:/some/a%20b"), add("x%2Fy"), add("plain")])
    removes = [Remove(path="/some/a b", data_change=True), Remove(path="x/y", data_change=True)]
    assert reconcile(base, [removes]).column("path").to_pylist() == ["plain"]
    removes = [Remove(path="a/b", data_change=True), Remove(path="c//d", data_change=True)]
    assert reconcile(adds_table([add("./a/b"), add("e")]), [removes]).column("path").to_pylist() == ["e"]
    assert reconcile(adds_table([add("c/d"), add("e")]), [removes]).column("path").to_pylist() == ["e"]


def test_many_small_commits_leave_few_pieces():
    files = adds_table(
        [Add(path=f"old{i}", size=1, modification_time=1, partition_values={}, data_change=True) for i in range(10_000)]
    )
    large = files.column("path").chunk(0)
    names = files.column("path").to_pylist()
    for i in range(100):
        files = reconcile(
            files, [[Add(path=f"new{i}", partition_values={}, size=1, modification_time=1, data_change=True)]]
        )
        names.append(f"new{i}")
        assert files.column("path").num_chunks < 20
    assert files.column("path").to_pylist() == names
    # What is large is not copied again and again.
    assert files.column("path").chunk(0).buffers()[2].address == large.buffers()[2].address
    assert [add.path for add in to_adds(reconcile(files, [[Remove(path=n, data_change=True) for n in names[1:]]]))] == [
        "old0"
    ]
