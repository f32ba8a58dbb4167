"""Reconciliation against its definition read literally, and the rules for one commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta.core.log.actions import (
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from refdelta.core.log.replay import Replay, file_key, validate_commit
from refdelta.errors import InvalidLogError


def vector(name):
    if name is None:
        return None
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=4, cardinality=1)


def add(path="f", dv=None, size=1):
    return Add(
        path=path, partition_values={}, size=size, modification_time=0, data_change=True, deletion_vector=vector(dv)
    )


def remove(path="f", dv=None):
    return Remove(path=path, data_change=True, deletion_timestamp=1, deletion_vector=vector(dv))


def metadata(id_="m"):
    return Metadata(id=id_, format=Format(), schema_string="{}", partition_columns=[])


def protocol(writer=2):
    return Protocol(min_reader_version=1, min_writer_version=writer)


def domain(name, removed=False, configuration=""):
    return DomainMetadata(domain=name, configuration=configuration, removed=removed)


paths = st.sampled_from("fgh")
dvs = st.sampled_from([None, "v", "w"])
actions = st.one_of(
    st.builds(add, paths, dvs, st.integers(0, 9)),
    st.builds(remove, paths, dvs),
    st.builds(Txn, app_id=st.sampled_from("ab"), version=st.integers(0, 9)),
    st.builds(domain, st.sampled_from("de"), st.booleans(), st.sampled_from("xy")),
    st.builds(metadata, st.sampled_from("mn")),
    st.builds(protocol, st.integers(1, 7)),
    st.builds(lambda n: CommitInfo({"n": n}), st.integers(0, 9)),
)


def legal(staged):
    try:
        validate_commit(staged)
    except InvalidLogError:
        return False
    return True


commits = st.lists(st.lists(actions, max_size=5).filter(legal), max_size=6)


def replay(history):
    state = Replay()
    for staged in history:
        state.apply(staged)
    return state


def newest(history, matches):
    """The definition, literally: search back from the newest commit."""
    for staged in reversed(history):
        for action in staged:
            if matches(action):
                return action
    return None


@pytest.mark.tier("test")
@given(commits)
def test_the_newest_reference_decides(history):
    state = replay(history)
    every = [action for staged in history for action in staged]
    for key in {file_key(a) for a in every if isinstance(a, (Add, Remove))}:
        last = newest(history, lambda a: isinstance(a, (Add, Remove)) and file_key(a) == key)  # noqa: B023
        assert state.files.get(key) == (last if isinstance(last, Add) else None)
        assert state.tombstones.get(key) == (last if isinstance(last, Remove) else None)
    for app in "ab":
        assert state.txns.get(app) == newest(history, lambda a: isinstance(a, Txn) and a.app_id == app)  # noqa: B023
    for name in "de":
        last = newest(history, lambda a: isinstance(a, DomainMetadata) and a.domain == name)  # noqa: B023
        assert state.domains.get(name) == (None if last is None or last.removed else last)
    assert state.protocol == newest(history, lambda a: isinstance(a, Protocol))
    assert state.metadata == newest(history, lambda a: isinstance(a, Metadata))
    assert state.commit_info == newest(history[-1:], lambda a: isinstance(a, CommitInfo))


@given(commits, st.randoms(use_true_random=False))
def test_order_inside_a_legal_commit_does_not_matter(history, order):
    state = replay(history)
    shuffled = [order.sample(staged, len(staged)) for staged in history]
    other = replay(shuffled)
    assert (other.files, other.tombstones, other.txns, other.domains) == (
        state.files, state.tombstones, state.txns, state.domains,
    )  # fmt: skip


@given(commits, commits)
def test_a_state_stands_for_its_history(before, after):
    """A checkpoint, which is the state written down, is as good as the commits before it."""
    early = replay(before)
    checkpoint = [*early.files.values(), *early.tombstones.values(), *early.txns.values(), *early.domains.values()]
    checkpoint += [a for a in (early.protocol, early.metadata) if a is not None]
    late, short = replay(before + after), replay([checkpoint, *after])
    assert (short.files, short.tombstones, short.txns, short.domains) == (
        late.files, late.tombstones, late.txns, late.domains,
    )  # fmt: skip
    assert (short.protocol, short.metadata) == (late.protocol, late.metadata)


def test_a_new_deletion_vector_is_a_new_logical_file():
    state = replay([[add("f")], [remove("f"), add("f", "v")], [remove("f", "v"), add("f", "w")]])
    assert list(state.files) == [("f", "uw@1")]
    assert list(state.tombstones) == [("f", None), ("f", "uv@1")]


def test_files_come_in_the_order_of_their_newest_reference():
    state = replay([[add("f"), add("g")], [add("f", size=2)]])
    assert [a.path for a in state.files.values()] == ["g", "f"]


def test_what_is_not_of_the_state():
    cdc = Cdc(path="c", partition_values={}, size=1, data_change=False)
    sidecar = Sidecar(path="s", size_in_bytes=1, modification_time=1)
    state = replay([[cdc, sidecar, CheckpointMetadata(version=1)]])
    assert vars(state) == vars(Replay())


# --- one commit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "staged",
    [
        [],
        [add("f"), add("g")],
        [remove("f"), add("f", "v")],
        [remove("f", "v"), add("f", "w")],
        [remove("f", "v"), add("f")],
        [Txn(app_id="a", version=1), Txn(app_id="b", version=1)],
        [CommitInfo({}), protocol(), metadata(), domain("d"), domain("e", removed=True)],
        [Cdc(path="c", partition_values={}, size=1, data_change=False)],
    ],
)
def test_legal_commits(staged):
    validate_commit(staged)
    validate_commit(staged, 7)


@pytest.mark.parametrize(
    ("staged", "reason"),
    [
        ([protocol(), protocol(3)], "2 protocol"),
        ([metadata(), metadata("n")], "2 metaData"),
        ([CommitInfo({}), CommitInfo({})], "2 commitInfo"),
        ([Txn(app_id="a", version=1), Txn(app_id="a", version=2)], "application 'a'"),
        ([domain("d"), domain("d", removed=True)], "domain 'd'"),
        ([add("f"), add("f")], "add of the path 'f'"),
        ([add("f"), add("f", "v")], "add of the path 'f'"),
        ([remove("f"), remove("f", "v")], "remove of the path 'f'"),
        ([remove("f"), add("f")], "both adds and removes 'f'"),
        ([remove("f", "v"), add("f", "v")], "both adds and removes 'f'"),
        ([Sidecar(path="s", size_in_bytes=1, modification_time=1)], "checkpoint"),
        ([CheckpointMetadata(version=1)], "checkpoint"),
        ([add("")], "without a path"),
        ([Cdc(path="c", partition_values={}, size=1, data_change=True)], "dataChange"),
    ],
)
def test_illegal_commits(staged, reason):
    with pytest.raises(InvalidLogError, match=reason):
        validate_commit(staged)


def test_the_first_commit_brings_protocol_and_metadata():
    validate_commit([protocol(), metadata()], 0)
    with pytest.raises(InvalidLogError, match="protocol"):
        validate_commit([metadata()], 0)
    with pytest.raises(InvalidLogError, match="metaData"):
        validate_commit([protocol(), add()], 0)
