"""Every schedule of a few writers through the real commit loop, with faults; and that wrong loops are found out."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from model import explorer
from model.contents import Rows, Violation
from model.explorer import FAULTS, CleanedUp, Explorer, Loop, World
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.effects import Committed, Effect, Exists, NewestVersion, ReadCommits, Reply, TryCommit
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.core.conflicts.reads import EVERYTHING, ReadSet, ReadTable
from refdelta.core.conflicts.state import RowChanges
from refdelta.core.log.actions import Add, CommitInfo, DeletionVectorDescriptor, Metadata, Protocol
from refdelta.core.log.codec import encode_commit
from refdelta.core.rows.deletes import RowDelete
from refdelta.core.rows.file_state import FileState
from refdelta.core.rows.relocation import CopiedRows, Group, Input, Output
from refdelta.errors import CommitFailedError, DeltaError
from refdelta.expressions.sql import parse_predicate
from refdelta.pruning.row_predicate import row_predicate
from refdelta.table.types import LONG, StructField, StructType
from tiers import examples


def transaction(name: str, version: int, *, reads: bool = False) -> PreparedCommit:
    add = Add(path=name, partition_values={}, size=1, modification_time=1, data_change=True)
    created = [
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id=name, schema_string="{}", partition_columns=[]),
    ]
    return PreparedCommit(
        read_version=version,
        read_set=ReadSet(version=version, reads=(EVERYTHING,) if reads else ()),
        actions=[*(created if version < 0 else ()), add],
        commit_info={"operation": "WRITE"},
        txn_id=f"txn-{name}",
    )


def origin(*versions: int) -> dict[int, bytes]:
    return {version: encode_commit([CommitInfo(fields={"txnId": f"origin-{version}"})]) for version in versions}


def loop_with(**limits: int) -> Loop:
    return lambda prepared: commit_loop(prepared, Limits(**limits))


REAL = loop_with(max_repeats=2)
NO_REFUSALS = tuple(kind for kind in FAULTS if kind != "refused")


def explore(loop: Loop, prepared: list[PreparedCommit], first: dict[int, bytes], **options: object):
    report = Explorer(loop, prepared, first, **options).run()
    ends = f"{report.ends:,} ends: {sorted(report.outcomes)}"
    print(f"{report.schedules:,} schedules through {report.worlds:,} worlds, {ends}")
    return report


@pytest.mark.tier("nightly")
def test_three_blind_appends_with_a_fault_each():
    report = explore(REAL, [transaction(name, 0) for name in "abc"], origin(0))
    assert report.outcomes == {"CommitOutcome", "StoreError"}
    assert report.schedules > 1_000_000


@pytest.mark.tier("test")
def test_three_creators_of_one_table():
    report = explore(
        REAL,
        [transaction(name, -1) for name in "abc"],
        {},
        kinds=("lost request", "lost reply", "late"),
        must_commit=False,
    )
    assert report.outcomes == {"CommitOutcome", "ProtocolChangedException"}


@pytest.mark.tier("test")
def test_readers_and_an_appender():
    report = explore(
        REAL,
        [transaction("a", 0), transaction("b", 0, reads=True), transaction("c", 1)],
        origin(0, 1),
        kinds=("lost request", "resent", "crash after"),
        must_commit=False,
    )
    assert report.outcomes == {"CommitOutcome", "ConcurrentAppendException"}


def test_a_writer_that_gives_up_in_doubt_says_so():
    report = explore(loop_with(max_repeats=1), [transaction(name, 0) for name in "ab"], origin(0), must_commit=False)
    assert report.outcomes == {"CommitOutcome", "StoreError", "CommitOutcomeUnknownError"}


def test_a_writer_that_runs_out_of_attempts_has_committed_nothing():
    report = explore(
        loop_with(max_attempts=1, max_repeats=2),
        [transaction(n, 0) for n in "abc"],
        origin(0),
        faults=0,
        must_commit=False,
    )
    assert report.outcomes == {"CommitOutcome", "CommitRetriesExhaustedError"}


@pytest.mark.tier("test")
@pytest.mark.parametrize(("newest", "cleaned"), [(2, 2), (3, 3)])
def test_a_stale_handle_while_cleanup_removes_what_it_builds_on(newest, cleaned):
    prepared = [transaction("stale", 0), transaction("fresh", newest)]
    report = explore(REAL, prepared, origin(*range(newest + 1)), cleanup=cleaned, must_commit=False)
    assert report.outcomes >= {"CommitOutcome", "CommitFailedError", "CommitOutcomeUnknownError", "StoreError"}


@pytest.mark.tier("test")
def test_log_cleanup_may_remove_versions_whose_puts_are_in_doubt():
    """A writer sleeps for longer than cleanup waits, and so do requests."""
    report = CleanedUp(REAL, [transaction(name, 0) for name in "ab"], origin(0), cleanup=3).run()
    assert report.outcomes >= {"CommitOutcome", "CommitFailedError", "CommitOutcomeUnknownError"}


@pytest.mark.tier("test")
def test_a_winner_that_is_believed_without_its_base_doubles_a_transaction(monkeypatch):
    def believes(_loop: Loop, _version: int) -> Generator[Effect, Reply, None]:
        return
        yield

    monkeypatch.setattr("refdelta.core.commit.loop.Loop._confirm_winner", believes)
    with pytest.raises(Violation, match="in the table twice"):
        CleanedUp(REAL, [transaction(name, 0) for name in "ab"], origin(0), cleanup=3).run()


@pytest.mark.parametrize("keeps_times", [True, False])
def test_a_version_that_a_late_put_created_anew_is_not_built_on(keeps_times):
    """Its bytes are the same: only the time of the file tells."""
    stale = CleanedUp(REAL, [transaction("a", 1)], origin(0, 1, 2, 3), cleanup=3, keeps_times=keeps_times)
    stale.start = replace(stale.start, late=frozenset({(0, 1, origin(1)[1])}))
    if keeps_times:
        assert stale.run().outcomes >= {"CommitOutcome", "CommitFailedError", "CommitOutcomeUnknownError"}
    else:
        with pytest.raises(Violation, match="was told version 2, and is at"):
            stale.run()


# --- rows of one file ---------------------------------------------------------------------------------------------

HIDDEN = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="of-version-0", offset=1, size_in_bytes=1, cardinality=1
)
SHARED = Add(
    path="shared",
    partition_values={},
    size=1,
    modification_time=1,
    data_change=True,
    stats='{"numRecords":6}',
    deletion_vector=HIDDEN,
)
BASE = BitMap64([0])
LIVE = tuple(f"row {number}" for number in range(1, 6))
FILES = {"shared": ("row 0", *LIVE), "copy": LIVE, "other": ("appended",)}


def deletes(name: str, *rows: int, reads: tuple[int, ...] = ()) -> PreparedCommit:
    """Of the shared file; it has read these rows, and others that it leaves alone."""
    return PreparedCommit(
        read_version=0,
        read_set=ReadSet(version=0).with_rows([(SHARED, BitMap64([*rows, *reads]))]),
        actions=[],
        commit_info={"operation": "DELETE", "engineInfo": "refdelta/0.2.0"},
        txn_id=f"txn-{name}",
        changes=RowChanges(deletes=(RowDelete(SHARED, BASE, BitMap64(rows)),), vectors=True, row_level=True),
    )


def compacts(name: str) -> PreparedCommit:
    """The shared file, into one that has its live rows."""
    copy = msgspec.structs.replace(SHARED, path="copy", deletion_vector=None, stats='{"numRecords":5}')
    group = Group((Input(SHARED, BASE),), (Output(copy, (CopiedRows("shared", HIDDEN, 0, 5),)),))
    return PreparedCommit(
        read_version=0,
        read_set=ReadSet(version=0),
        actions=[],
        commit_info={"operation": "OPTIMIZE", "engineInfo": "refdelta/0.2.0"},
        txn_id=f"txn-{name}",
        changes=RowChanges(groups=(group,), vectors=True, row_level=True),
    )


def on_shared(prepared: list[PreparedCommit], loop: Loop = REAL, **options: object):
    first = {0: encode_commit([CommitInfo(fields={"operation": "WRITE", "txnId": "origin"}), SHARED])}
    taken = {
        i: {FILES["shared"][row] for edit in one.changes.deletes for row in edit.rows} for i, one in enumerate(prepared)
    }
    rows = Rows(FILES, {HIDDEN.unique_id: BASE}, taken)
    return explore(loop, prepared, first, rows=rows, **options)


@pytest.mark.tier("nightly")
def test_three_writers_of_one_file_with_a_fault_each():
    """Each deletes rows of its own: all of them commit, whatever befalls them."""
    report = on_shared([deletes("a", 1, 2), deletes("b", 3), deletes("c", 5)], kinds=("lost reply", "late"))
    assert report.outcomes == {"CommitOutcome"}
    assert report.schedules > 100_000


@pytest.mark.tier("test")
def test_two_writers_of_one_file_with_two_faults_each():
    report = on_shared([deletes("a", 1, 2), deletes("b", 3)], loop_with(max_repeats=3), faults=2)
    assert report.outcomes == {"CommitOutcome", "StoreError"}


@pytest.mark.tier("test")
def test_a_compaction_among_writers_of_its_input():
    prepared = [deletes("a", 1, 2), compacts("b"), deletes("c", 4, reads=(5,))]
    report = on_shared(prepared, kinds=("lost reply", "crash after"))
    assert report.outcomes == {"CommitOutcome"}


@pytest.mark.tier("test")
def test_vectors_that_are_read_before_their_turn():
    """The last of four steps over two at once, and reads the vectors of both in one go."""
    prepared = [deletes("a", 1), deletes("b", 2), deletes("c", 3), deletes("d", 5, reads=(4,))]
    report = on_shared(prepared, faults=0)
    assert report.outcomes == {"CommitOutcome"}


@pytest.mark.tier("test")
def test_writers_who_together_leave_no_row():
    report = on_shared([deletes("a", 1, 2), deletes("b", 3, 4), deletes("c", 5)], kinds=("lost request", "resent"))
    assert report.outcomes == {"CommitOutcome"}


@pytest.mark.tier("test")
def test_of_those_who_delete_the_same_row_one_commits():
    prepared = [deletes("a", 1, 2), deletes("b", 2), deletes("c", 3, reads=(2,))]
    report = on_shared(prepared, kinds=("lost reply", "refused"), must_commit=False)
    assert report.outcomes == {"CommitOutcome", "ConcurrentDeleteReadException", "StoreError"}


def test_a_writer_that_gives_up_in_doubt_keeps_its_vectors():
    """The version may yet come to be there, and names them."""
    prepared = [deletes("a", 1), deletes("b", 3)]
    report = on_shared(prepared, loop_with(max_repeats=1), must_commit=False)
    assert report.outcomes == {"CommitOutcome", "StoreError", "CommitOutcomeUnknownError"}


@pytest.mark.tier("test")
@pytest.mark.parametrize("matches", [False, True])
def test_a_look_at_the_rows_of_an_append(matches):
    schema = StructType((StructField("k", LONG),))
    k = row_predicate(parse_predicate("k = 1", schema), schema, ())
    appends = msgspec.structs.replace(SHARED, path="other", deletion_vector=None, stats=None)
    reader = PreparedCommit(
        read_version=0,
        read_set=ReadSet(version=0).with_predicate(k).with_rows([(SHARED, BitMap64([1]))]),
        actions=[],
        commit_info={"operation": "DELETE", "engineInfo": "refdelta/0.2.0"},
        txn_id="txn-reads",
        table=ReadTable(),
        changes=RowChanges(deletes=(RowDelete(SHARED, BASE, BitMap64([1])),), vectors=True, row_level=True),
    )
    writer = PreparedCommit(
        read_version=0,
        read_set=ReadSet(version=0),
        actions=[appends],
        commit_info={"operation": "WRITE", "isBlindAppend": True},
        txn_id="txn-appends",
    )
    first = {0: encode_commit([CommitInfo(fields={"operation": "WRITE", "txnId": "origin"}), SHARED])}
    rows = Rows({}, {HIDDEN.unique_id: BASE}, matches=lambda _: matches)
    report = explore(REAL, [reader, writer], first, must_commit=False, rows=rows)
    # Where the store refuses the look, any row may match.
    assert report.outcomes == {"CommitOutcome", "ConcurrentAppendException", "StoreError"}
    report = explore(REAL, [reader, writer], first, must_commit=not matches, kinds=NO_REFUSALS, rows=rows)
    assert ("ConcurrentAppendException" in report.outcomes) is matches


# --- the checker itself ------------------------------------------------------------------------------------------


def naive(*, on_exists: str = "read", on_unknown: str = "read", step: int = 1) -> Loop:
    """A loop as other engines have had it: it takes one reply or another at its word."""

    def loop(prepared: PreparedCommit) -> Generator[Effect, Reply, CommitOutcome]:
        data = encode_commit([CommitInfo(fields={"txnId": prepared.txn_id}), *prepared.actions])
        version = prepared.read_version + 1
        while True:
            reply = yield TryCommit(version, data)
            if isinstance(reply, Committed):
                return CommitOutcome(version=version, attempts=1)
            believed = on_exists if isinstance(reply, Exists) else on_unknown
            if believed == "ours":
                return CommitOutcome(version=version, attempts=1)
            if believed == "failed":
                raise CommitFailedError("timed out")
            if believed == "read":
                found = yield ReadCommits(version, version)
                if found.data[0] == data:
                    return CommitOutcome(version=version, attempts=1)
                if found.data[0] is None:
                    continue
            newest = yield NewestVersion(version)
            version = newest.version + step

    return loop


@pytest.mark.parametrize(
    ("broken", "kinds", "symptom"),
    [
        (naive(on_exists="lost"), ("resent",), "twice"),
        (naive(on_unknown="lost"), ("lost reply",), "twice"),
        (naive(on_unknown="lost"), ("late",), "a gap"),
        (naive(on_unknown="failed"), ("late",), "was told CommitFailedError"),
        (naive(on_unknown="ours"), ("lost request",), r"was told version \d, and is at \[\]"),
        (naive(step=2), (), "a gap"),
    ],
)
def test_a_wrong_loop_is_found_out(broken, kinds, symptom):
    with pytest.raises(Violation, match=symptom):
        explore(broken, [transaction(name, 0) for name in "ab"], origin(0), kinds=kinds)


def test_a_loop_that_does_not_confirm_its_base_revives_a_version():
    with pytest.raises(Violation, match="was told version 1, and is at \\[\\]"):
        explore(naive(), [transaction("stale", 0)], origin(0, 1, 2), cleanup=2, faults=0)


def test_a_vector_that_goes_before_the_outcome_is_certain_is_missed(monkeypatch):
    monkeypatch.setattr(explorer, "CERTAIN_FAILURES", (DeltaError,))
    with pytest.raises(Violation, match="vectors that are gone"):
        on_shared([deletes("a", 1), deletes("b", 3)], loop_with(max_repeats=1), must_commit=False)


def test_a_vector_that_forgets_what_a_winner_deleted_is_found_out(monkeypatch):
    monkeypatch.setattr(FileState, "hides", property(lambda held: BASE | held.gone))
    with pytest.raises(Violation, match="the rows are"):
        on_shared([deletes("a", 1), deletes("b", 3)], faults=0)


def test_the_right_naive_loop_passes_where_nothing_is_cleaned_up():
    report = explore(naive(), [transaction(name, 0) for name in "ab"], origin(0), kinds=NO_REFUSALS)
    assert report.outcomes == {"CommitOutcome"}


# --- longer schedules, at random -----------------------------------------------------------------------------------


@examples(60)
@given(data=st.data())
def test_long_schedules_with_many_faults(data):
    newest = data.draw(st.integers(0, 3), label="newest version")
    prepared = [
        transaction(f"w{number}", data.draw(st.integers(0, newest)), reads=data.draw(st.booleans()))
        for number in range(data.draw(st.integers(2, 6), label="writers"))
    ]
    search = Explorer(
        loop_with(max_repeats=3),
        prepared,
        origin(*range(newest + 1)),
        faults=data.draw(st.integers(0, 4)),
        must_commit=False,
    )
    world: World = search.start
    while steps := [*search.steps(world)]:
        search.check(world, at_end=False)
        _, world = steps[data.draw(st.integers(0, len(steps) - 1))]
    search.check(world, at_end=True)


def test_every_kind_of_fault_is_explored():
    """Guards the explorer against faults that are named and never happen."""
    for kind in FAULTS:
        alone = Explorer(REAL, [transaction("a", 0)], origin(0), kinds=(kind,)).run()
        assert alone.worlds > Explorer(REAL, [transaction("a", 0)], origin(0), kinds=()).run().worlds
