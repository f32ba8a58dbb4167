"""The state of the verifier as columns, against the plain definitions: reconciliation, and differences of two adds.

Tests of arrow.text_maps, verifier.file_index.
"""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import checkpoint_file
from refdelta.arrow.text_maps import TextMaps
from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import Replay
from refdelta.engine.log.state import adds_table, key_of, removes_table, to_adds
from refdelta.verifier import file_index, log_files
from refdelta.verifier.log_files import CheckpointRows
from refdelta.verifier.state import State, StateComparison, add_differences
from refdelta_storage import MemoryStore
from verifier.tables import add, found, remove, table

# --- strategies --------------------------------------------------------------------------------------------------

PATHS = st.sampled_from(["a", "b", "c%20d", "c d", "./e", "e", "f=1/g"])
TEXTS = st.dictionaries(st.sampled_from(["p", "q", "r"]), st.sampled_from(["1", "", "x", None]), max_size=3)
VECTORS = st.none() | st.builds(
    DeletionVectorDescriptor,
    storage_type=st.just("u"),
    path_or_inline_dv=st.sampled_from(["one", "two"]),
    offset=st.none() | st.just(1),
    size_in_bytes=st.integers(1, 2),
    cardinality=st.integers(1, 2),
)
ADDS = st.builds(
    Add,
    path=PATHS,
    partition_values=TEXTS,
    size=st.integers(0, 2),
    modification_time=st.just(0) | st.integers(0, 1),
    data_change=st.booleans(),
    stats=st.sampled_from([None, "", '{"numRecords":1}', '{"numRecords": 1}', '{"numRecords":2}', "{"]),
    tags=st.none() | TEXTS,
    deletion_vector=VECTORS,
    base_row_id=st.none() | st.integers(0, 1),
    default_row_commit_version=st.none() | st.integers(0, 1),
    clustering_provider=st.sampled_from([None, "x"]),
)
REMOVES = st.builds(Remove, path=PATHS, deletion_timestamp=st.none() | st.integers(0, 3), deletion_vector=VECTORS)
COMMITS = st.lists(st.lists(ADDS | REMOVES, max_size=4), max_size=8)


def replayed(commits):
    replay = Replay()
    for actions in commits:
        replay.apply(actions)
    return replay


def stepped(commits):
    state = State()
    for version, actions in enumerate(commits):
        state.step(version, actions)
    return state


# --- reconciliation ----------------------------------------------------------------------------------------------


def facts(one):
    """An add without the difference of no tags and empty ones."""
    return json.dumps([repr(one)])


@pytest.mark.parametrize(("recent", "dead"), [(10**6, 10**6), (1, 10**6), (1, 0), (3, 2)])
@given(commits=COMMITS)
def test_the_files_are_those_of_the_definition(recent, dead, commits):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_index, "_RECENT", recent)
        patch.setattr(file_index, "_DEAD", dead)
        state, right = stepped(commits), replayed(commits)
        live = list(right.files.values())
        paths = {same_path(action.path) for actions in commits for action in actions}
        by_path = {path: [one for one in live if same_path(one.path) == path] for path in paths}
        assert {path: sorted(map(facts, adds)) for path, adds in state.files.live(paths).items()} == {
            path: sorted(map(facts, adds)) for path, adds in by_path.items()
        }
        assert [add for batch in state.files.batches() for add in to_adds(pa.Table.from_batches([batch]))] == live
        assert [(path, size) for _, path, size in state.files.named()] == [(one.path, one.size) for one in live]
        rows = [row for row, _, _ in state.files.named()]
        assert state.files.actions(rows[::-1]) == live[::-1]
    files, vectors = state.files, [one.deletion_vector for one in live if one.deletion_vector is not None]
    assert (len(files), files.size, files.vectors) == (len(live), sum(one.size for one in live), len(vectors))
    assert files.deleted == sum(vector.cardinality for vector in vectors) == files.deleted_counts().sum()
    assert files.sizes().tolist() == [one.size for one in live]
    assert files.vector_ids() == {vector.unique_id for vector in vectors}
    assert files.paths.keys() == paths
    gone = {key_of(one): (one.path, one.deletion_timestamp or 0) for one in right.tombstones.values()}
    assert state.tombstones == gone


@given(pieces=st.lists(st.lists(ADDS, max_size=5), max_size=4), removes=st.lists(REMOVES, max_size=4))
def test_a_state_that_begins_with_columns(pieces, removes):
    state, right = State(), replayed([*pieces, removes])
    for adds in pieces:
        state.take_adds(adds_table(adds))
    state.take_removes(removes_table(removes))
    assert [add for batch in state.files.batches() for add in to_adds(pa.Table.from_batches([batch]))] == [
        *right.files.values()
    ]
    assert state.tombstones.keys() == {key_of(one) for one in right.tombstones.values()}


# --- comparison --------------------------------------------------------------------------------------------------


def differences(own, right):
    """The findings about two states of files, by the definition."""
    names = []
    for key, one in own.files.items():
        if key not in right.files:
            names.append(f"the file {one.path!r} is live here, and not live by the commits")
        elif add_differences(one, right.files[key]):
            fields = ", ".join(add_differences(one, right.files[key]))
            names.append(f"{fields} of the file {one.path!r} differ from the commits")
    names += [f"the live file {one.path!r} is missing" for key, one in right.files.items() if key not in own.files]
    for key, one in own.tombstones.items():
        if key not in right.tombstones:
            names.append(f"the tombstone of {one.path!r} is not in the commits")
    for key, one in right.tombstones.items():
        if key not in own.tombstones:
            names.append(f"the tombstone of {one.path!r} has not expired, and is missing")
    return sorted(names)


@given(st.lists(ADDS, max_size=8), st.lists(ADDS, max_size=8), st.lists(REMOVES, max_size=3), st.data())
def test_the_findings_about_a_checkpoint_are_those_of_the_definition(right, other, removes, data):
    kept = data.draw(st.permutations(right).map(lambda adds: adds[: data.draw(st.integers(0, len(adds)))]))
    own = data.draw(st.permutations([*kept, *other[:2]]))
    at = data.draw(st.integers(0, len(own)))
    names = []
    comparison = StateComparison(stepped([[*right, *removes]]), names.append)
    for part in (own[:at], own[at:]):
        comparison.take_adds(adds_table(part))
    comparison.take_removes(removes_table(removes[1:]))
    comparison.end(State(), None)
    assert sorted(names) == differences(replayed([own, removes[1:]]), replayed([[*right, *removes]]))


@given(st.lists(st.tuples(st.none() | TEXTS, st.none() | TEXTS), max_size=8), st.integers(0, 3))
def test_maps_that_differ_are_found(pairs, start):
    kind = pa.map_(pa.string(), pa.string())
    columns = [
        pa.array([one and list(one.items()) for one in side], kind).slice(start) for side in zip(*pairs, strict=True)
    ]
    if not columns:
        return
    one, two = map(TextMaps.of, columns)
    for (first, second), differs in zip(pairs[start:], one.differing(two), strict=True):
        if (first or {}) != (second or {}):
            assert differs
        elif list((first or {}).items()) == list((second or {}).items()):
            assert not differs


def test_a_comparison_after_many_files_were_removed(monkeypatch):
    """Rows keep their numbers while a checkpoint is compared, also if most of them are dead."""
    monkeypatch.setattr(file_index, "_DEAD", 0)
    files = [Add(path=str(n), partition_values={}, size=n, modification_time=0, data_change=True) for n in range(9)]
    state = stepped([files, [Remove(path=str(n)) for n in range(6)]])
    names = []
    comparison = StateComparison(state, names.append)
    comparison.take_adds(adds_table(files[6:8]))
    comparison.take_removes(removes_table([Remove(path=str(n)) for n in range(6)]))
    comparison.end(State(), None)
    assert names == ["the live file '8' is missing"]


def test_a_key_that_occurs_twice_in_a_map():
    kind = pa.map_(pa.string(), pa.string())
    twice = pa.array([[("a", "1"), ("b", "1")], None, [("b", "1"), ("b", "2")]], kind)
    assert TextMaps.of(twice).has_key_twice()
    assert not TextMaps.of(twice.slice(0, 2)).has_key_twice()


# --- reading a checkpoint ----------------------------------------------------------------------------------------


class Taken:
    """The file actions that were taken, as columns."""

    def __init__(self):
        self.added, self.removed = [], []

    def take_adds(self, files):
        self.added.append(files)

    def take_removes(self, files):
        self.removed.append(files)


def read(data, *, by_columns=True):
    store = MemoryStore()
    store.put("_delta_log/c.parquet", data)
    taken = Taken()
    with pytest.MonkeyPatch.context() as patch:
        if not by_columns:
            patch.setattr(log_files, "_file_columns", lambda *_: None)
        rows = CheckpointRows(store, "_delta_log/c.parquet", taken).read()
    lists = [[row for part in parts for row in part.to_pylist()] for parts in (taken.added, taken.removed)]
    return lists, rows.count, rows.marked, rows.actions


@given(actions=st.lists(ADDS | REMOVES, max_size=6))
def test_columns_of_a_checkpoint_are_its_rows(actions):
    adds = [one for one in actions if isinstance(one, Add)]
    removes = [one for one in actions if isinstance(one, Remove)]
    parts = [
        pa.table({"add": adds_table(adds).to_struct_array()}),
        pa.table({"remove": removes_table(removes).to_struct_array()}),
    ]
    sink = io.BytesIO()
    pq.write_table(pa.concat_tables(parts, promote_options="default"), sink, store_schema=False)
    assert read(sink.getvalue()) == read(sink.getvalue(), by_columns=False)


ODD = {
    "a time of 32 bits": lambda kind: {**kind, "modificationTime": pa.int32()},
    "a size as text": lambda kind: {**kind, "size": pa.string()},
    "a size with a fraction": lambda kind: {**kind, "size": pa.float64()},
    "no size": lambda kind: {name: one for name, one in kind.items() if name != "size"},
    "values of numbers": lambda kind: {**kind, "partitionValues": pa.map_(pa.string(), pa.int64())},
    "a path of bytes": lambda kind: {**kind, "path": pa.binary()},
}


@pytest.mark.parametrize("name", ODD)
def test_columns_of_other_types_are_read_as_rows_are(name):
    kind = ODD[name](
        {
            "path": pa.string(),
            "partitionValues": pa.map_(pa.string(), pa.string()),
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
        }
    )
    values = {"path": "a", "partitionValues": [], "size": 1, "modificationTime": 1, "dataChange": False}
    row = {
        field: (b"a" if type_ == pa.binary() else str(values[field]) if type_ == pa.string() else values[field])
        for field, type_ in kind.items()
    }
    sink = io.BytesIO()
    pq.write_table(pa.table({"add": pa.array([row], pa.struct(list(kind.items())))}), sink, store_schema=False)

    def outcome(*, by_columns):
        try:
            return read(sink.getvalue(), by_columns=by_columns)
        except Exception as error:
            return type(error), str(error)

    assert outcome(by_columns=True) == outcome(by_columns=False)


def test_a_checkpoint_is_read_without_an_action_for_each_file(monkeypatch):
    made = table("part")
    adds = [add(f"part=x/{number}", partitionValues={"part": "x"}) for number in range(300)]
    made.commit(*adds)
    made.commit(remove("gone"))
    first = [json.loads(line) for line in made.store.get(f"_delta_log/{0:020d}.json").splitlines()]
    made.put(f"_delta_log/{2:020d}.checkpoint.parquet", checkpoint_file([*first, *adds, remove("gone")]))
    decoded = []
    decode = log_files.decode_action
    monkeypatch.setattr(log_files, "decode_action", lambda *at: decoded.append(at) or decode(*at))
    assert found(made) == []
    assert len(decoded) == 2  # protocol and metaData


# --- adds against the metadata -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clause", "values"),
    [
        ("part-3", {"part": "x"}),
        ("file-3", {}),
        ("file-3", {"other": "1"}),
        ("file-3", {"part": "1", "other": "1"}),
    ],
)
@pytest.mark.parametrize("begins", [False, True])
def test_one_bad_file_of_many(clause, values, begins):
    schema = {"type": "struct", "fields": [{"name": "part", "type": "integer", "nullable": True, "metadata": {}}]}
    made = table("part", schema=schema)
    adds = [add(str(number), partitionValues={"part": None if number % 9 else str(number)}) for number in range(200)]
    adds[137] = add("137", partitionValues=values)
    made.commit(*adds)
    if begins:
        first = [json.loads(line) for line in made.store.get(f"_delta_log/{0:020d}.json").splitlines()]
        made.put(f"_delta_log/{1:020d}.checkpoint.parquet", checkpoint_file([*first, *adds]))
        made.store.delete([f"_delta_log/{0:020d}.json"])
        assert {(name, line) for name, _, line in found(made)} == {(clause, None)}
    else:
        assert {(name, line) for name, _, line in found(made)} == {(clause, 138)}


def test_lines_are_counted_with_blank_ones():
    made = table()
    made.commit(add("a"))
    name = f"_delta_log/{1:020d}.json"
    bad = json.dumps(add("b", rows=-1)).encode()
    made.put(name, made.store.get(name) + b"\n" + bad + b"\n")
    assert found(made) == [("stats-4", 1, 3)]
    made.put(name, json.dumps(add("a")).encode() + b"\n" + bad)
    assert found(made) == [("stats-4", 1, 2)]
