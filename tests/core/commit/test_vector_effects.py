"""Deletion vectors between the loop and the store: when they are read and written, and what becomes of their files.

Tests of core.commit.vectors.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from concurrency.commits import vector
from refdelta import errors
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.effects import (
    Commits,
    Committed,
    Descriptors,
    Elapsed,
    Exists,
    Failed,
    Newest,
    NewestVersion,
    Pause,
    ReadCommits,
    ReadVectors,
    TryCommit,
    Unknown,
    Vectors,
    VersionExists,
    WriteVectors,
    Yes,
)
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.reads import ReadSet, ReadTable
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.log.actions import Add, CommitInfo, Metadata, Protocol, Remove
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.core.log.paths import commit_key
from refdelta.core.rows.deletes import RowDelete
from refdelta.engine.parquet.dv import load_deletion_vector
from refdelta.expressions.expression import Column, Comparison, Literal
from refdelta.pruning.row_predicate import row_predicate
from refdelta.table.types import LONG, StructField, StructType
from refdelta.transaction.driver import RetryPolicy, commit
from refdelta_storage import MemoryStore
from refdelta_storage.wrappers import Fault, FaultyStore
from tiers import examples

QUICK = RetryPolicy(base_delay=0.0001, max_delay=0.001, max_repeats=4)
PATIENT = RetryPolicy(base_delay=0.0001, max_delay=0.001, max_repeats=20)
SCHEMA = StructType((StructField("a", LONG),))
WHERE = row_predicate(Comparison("=", Column(("a",), LONG), Literal(1, LONG)), SCHEMA, ())
TABLE = ReadTable()


def file(dv=None) -> Add:
    return Add(
        path="f", partition_values={}, size=1, modification_time=1, data_change=True,
        stats='{"numRecords":1000000}', deletion_vector=dv,
    )  # fmt: skip


def prepared(name: str, rows: BitMap64, version: int = 0) -> PreparedCommit:
    edit = RowDelete(file(), BitMap64(), rows)
    return PreparedCommit(
        read_version=version,
        read_set=ReadSet(version=version).with_predicate(WHERE).with_rows([(edit.add, rows)]),
        actions=[],
        commit_info={"operation": "DELETE"},
        txn_id=name,
        table=TABLE,
        changes=RowChanges(deletes=(edit,), vectors=True, row_level=True),
    )


def theirs(dv) -> bytes:
    remove = Remove(path="f", deletion_timestamp=1, data_change=True)
    return encode_commit([CommitInfo(fields={"operation": "DELETE", "txnId": "theirs"}), remove, file(dv)])


class Script:
    """The loop by hand."""

    def __init__(self, txn: PreparedCommit, limits: Limits | None = None):
        self.loop = commit_loop(txn, limits)
        self.effect = next(self.loop)
        self.outcome = None

    def expect(self, kind: type, reply):
        effect = self.effect
        assert isinstance(effect, kind), effect
        try:
            self.effect = self.loop.send(reply)
        except StopIteration as done:
            self.outcome = done.value
        return effect


OURS, UNION, WON = vector("ours"), vector("union", 2), vector("won")


def test_vectors_are_written_before_the_put_and_again_once_all_winners_are_known():
    run = Script(prepared("us", BitMap64([1])))
    assert run.expect(WriteVectors, Descriptors((OURS,))).bitmaps == (BitMap64([1]),)
    run.expect(VersionExists, Yes())
    first = run.expect(TryCommit, Exists())
    assert json.loads(first.data.splitlines()[-1])["add"]["deletionVector"]["pathOrInlineDv"] == "ours"
    run.expect(ReadCommits, Commits((theirs(vector("w1")),)))
    run.expect(VersionExists, Yes())
    assert run.expect(ReadVectors, Vectors((BitMap64([7]),))).descriptors == (vector("w1"),)
    run.expect(Pause, Elapsed(0.0))
    run.expect(NewestVersion, Newest(2))
    run.expect(ReadCommits, Commits((theirs(vector("w2", 2)),)))
    # What was learned of the last one is not read again.
    assert run.expect(ReadVectors, Vectors((BitMap64([7, 8]),))).descriptors == (vector("w2", 2),)
    assert run.expect(WriteVectors, Descriptors((UNION,))).bitmaps == (BitMap64([1, 7, 8]),)
    run.expect(VersionExists, Yes())
    second = run.expect(TryCommit, Committed())
    run.expect(VersionExists, Yes())
    _, remove, add = (json.loads(line) for line in second.data.splitlines())
    assert remove["remove"]["deletionVector"]["pathOrInlineDv"] == "w2"
    assert add["add"]["deletionVector"]["pathOrInlineDv"] == "union"
    assert (run.outcome.version, run.outcome.vectors) == (3, (UNION,))


@pytest.mark.parametrize("reply", [Exists(), Unknown()])
def test_the_same_bytes_until_it_is_settled_whose_they_are(reply):
    run = Script(prepared("us", BitMap64([1])))
    run.expect(WriteVectors, Descriptors((OURS,)))
    run.expect(VersionExists, Yes())
    first = run.expect(TryCommit, reply)
    run.expect(ReadCommits, Commits((None,)))
    run.expect(Pause, Elapsed(0.0))
    run.expect(VersionExists, Yes())
    assert run.expect(TryCommit, Unknown()) == first
    run.expect(ReadCommits, Commits((first.data,)))
    run.expect(VersionExists, Yes())
    assert (run.outcome.version, run.outcome.recovered, run.outcome.vectors) == (1, True, (OURS,))


def test_a_winner_elsewhere_leaves_the_bytes_as_they_are():
    run = Script(prepared("us", BitMap64([1])))
    run.expect(WriteVectors, Descriptors((OURS,)))
    run.expect(VersionExists, Yes())
    first = run.expect(TryCommit, Exists())
    other = encode_commit([CommitInfo(fields={"txnId": "theirs"}), Remove(path="g", data_change=True)])
    run.expect(ReadCommits, Commits((other,)))
    run.expect(VersionExists, Yes())
    run.expect(Pause, Elapsed(0.0))
    run.expect(NewestVersion, Newest(1))
    run.expect(VersionExists, Yes())
    assert run.expect(TryCommit, Committed()).data == first.data


def test_vectors_that_cannot_be_written_or_read_are_the_error():
    trouble = Failed(errors.StoreError("no space"))
    run = Script(prepared("us", BitMap64([1])), Limits(max_repeats=2))
    run.expect(WriteVectors, trouble)
    run.expect(Pause, Elapsed(0.0))
    with pytest.raises(errors.StoreError, match="no space"):
        run.expect(WriteVectors, trouble)
    run = Script(prepared("us", BitMap64([1])), Limits(max_repeats=1))
    run.expect(WriteVectors, Descriptors((OURS,)))
    run.expect(VersionExists, Yes())
    run.expect(TryCommit, Exists())
    run.expect(ReadCommits, Commits((theirs(WON),)))
    run.expect(VersionExists, Yes())
    with pytest.raises(errors.DataFileError, match="damaged"):
        run.expect(ReadVectors, Failed(errors.DataFileError("damaged", file="x.bin")))


# --- files ------------------------------------------------------------------------------------------------------------


def store() -> MemoryStore:
    made = MemoryStore()
    metadata = Metadata(id="t", schema_string='{"type":"struct","fields":[]}', partition_columns=[])
    made.put(commit_key(0), encode_commit([Protocol(min_reader_version=3, min_writer_version=7), metadata, file()]))
    return made


def scattered(start: int) -> BitMap64:
    """Too many to stand in the log itself."""
    return BitMap64(range(start, 1_000_000, 1000))


def vector_files(made) -> set[str]:
    return {info.key for info in made.list() if info.key.endswith(".bin")}


def live(made) -> list[Add]:
    files = {}
    for version in range(sum(info.key.endswith(".json") for info in made.list("_delta_log/"))):
        actions = decode_commit(made.get(commit_key(version)), str(version))
        for action in actions:
            if isinstance(action, Remove):
                assert files.pop(action.path).deletion_vector == action.deletion_vector
        files |= {action.path: action for action in actions if isinstance(action, Add)}
    return list(files.values())


def hidden(made) -> BitMap64:
    (add,) = live(made)
    return load_deletion_vector(made, add.deletion_vector)


def test_superseded_vectors_are_removed_once_the_commit_is_there():
    made = store()
    commit(made, prepared("first", scattered(0)))
    before = vector_files(made)
    outcome = commit(made, prepared("second", scattered(1)))
    assert outcome.rebased_over == (1,)
    assert len(vector_files(made) - before) == 1
    assert hidden(made) == scattered(0) | scattered(1)


def test_a_commit_that_fails_leaves_no_vector():
    made = store()
    commit(made, prepared("first", scattered(0)))
    before = vector_files(made)
    with pytest.raises(errors.ConcurrentDeleteReadException):
        commit(made, prepared("second", scattered(0)))
    assert vector_files(made) == before


def test_where_nobody_knows_the_outcome_the_vectors_stay():
    made = store()
    with pytest.raises(errors.CommitOutcomeUnknownError):
        commit(FaultyStore(made, [Fault("drop", times=100)]), prepared("us", scattered(0)), policy=QUICK)
    assert len(vector_files(made)) == 1


@examples(40)
@given(data=st.data())
def test_faults_at_random_lose_and_double_no_row(data):
    kinds = st.sampled_from(["drop", "lose_reply", "exists", "late"])
    faults = [
        Fault(kind, skip=skip, calls=1 + skip % 4)
        for skip, kind in data.draw(st.dictionaries(st.integers(0, 10), kinds, max_size=4)).items()
    ]
    faults += [
        Fault("fail", operation=operation, skip=skip)
        for operation, skip in data.draw(
            st.sets(st.tuples(st.sampled_from(["get_many", "list", "put", "get_range"]), st.integers(0, 5)), max_size=3)
        )
    ]
    made = store()
    faulty = FaultyStore(made, faults)
    sets = [scattered(start) if start % 2 else BitMap64([start]) for start in range(5)]
    for number, rows in enumerate(sets):
        commit(faulty, prepared(f"t{number}", rows), policy=PATIENT)
    faulty.land()
    assert hidden(made) == BitMap64.union(*sets)
    # One vector of each version that wrote one is there, and no other.
    named = {
        action.deletion_vector.path_or_inline_dv
        for version in range(6)
        for action in decode_commit(made.get(commit_key(version)), str(version))
        if isinstance(action, Add) and action.deletion_vector and action.deletion_vector.storage_type == "u"
    }
    assert len(vector_files(made)) == len(named)
