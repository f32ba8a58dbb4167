"""Every schedule of a few writers through the real commit loop, with faults; and that wrong loops are found out."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.explorer import FAULTS, Explorer, Loop, Violation, World
from refdelta.concurrency.commit import CommitOutcome, Limits, PreparedCommit, commit_loop
from refdelta.concurrency.effects import (
    Created,
    Effect,
    Exists,
    NewestVersion,
    PutIfAbsent,
    ReadCommits,
    Reply,
)
from refdelta.concurrency.read_set import ReadSet
from refdelta.errors import CommitFailedError
from refdelta.protocol.actions import Add, CommitInfo, Metadata, Protocol
from refdelta.protocol.codec import encode_commit


def transaction(name: str, version: int, *, reads: bool = False) -> PreparedCommit:
    add = Add(path=name, partition_values={}, size=1, modification_time=1, data_change=True)
    created = [
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id=name, schema_string="{}", partition_columns=[]),
    ]
    return PreparedCommit(
        read_version=version,
        read_set=ReadSet(version=version, whole_table=reads),
        actions=[*(created if version < 0 else ()), add],
        commit_info={"operation": "WRITE"},
        txn_id=f"txn-{name}",
    )


def origin(*versions: int) -> dict[int, bytes]:
    return {version: encode_commit([CommitInfo(fields={"txnId": f"origin-{version}"})]) for version in versions}


def loop_with(**limits: int) -> Loop:
    return lambda prepared: commit_loop(prepared, Limits(**limits))


REAL = loop_with(max_repeats=2)


def explore(loop: Loop, prepared: list[PreparedCommit], first: dict[int, bytes], **options: object):
    report = Explorer(loop, prepared, first, **options).run()
    ends = f"{report.ends:,} ends: {sorted(report.outcomes)}"
    print(f"{report.schedules:,} schedules through {report.worlds:,} worlds, {ends}")
    return report


def test_three_blind_appends_with_a_fault_each():
    report = explore(REAL, [transaction(name, 0) for name in "abc"], origin(0))
    assert report.outcomes == {"CommitOutcome", "StoreError"}
    assert report.schedules > 1_000_000


def test_three_creators_of_one_table():
    report = explore(
        REAL,
        [transaction(name, -1) for name in "abc"],
        {},
        kinds=("lost request", "lost reply", "late"),
        must_commit=False,
    )
    assert report.outcomes == {"CommitOutcome", "ProtocolChangedException"}


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


@pytest.mark.parametrize(("newest", "cleaned"), [(2, 2), (3, 3)])
def test_a_stale_handle_while_cleanup_removes_what_it_builds_on(newest, cleaned):
    prepared = [transaction("stale", 0), transaction("fresh", newest)]
    report = explore(REAL, prepared, origin(*range(newest + 1)), cleanup=cleaned, must_commit=False)
    assert report.outcomes >= {"CommitOutcome", "CommitFailedError", "CommitOutcomeUnknownError", "StoreError"}


# --- the checker itself ------------------------------------------------------------------------------------------


def naive(*, on_exists: str = "read", on_unknown: str = "read", step: int = 1) -> Loop:
    """A loop as other engines have had it: it takes one reply or another at its word."""

    def loop(prepared: PreparedCommit) -> Generator[Effect, Reply, CommitOutcome]:
        data = encode_commit([CommitInfo(fields={"txnId": prepared.txn_id}), *prepared.actions])
        version = prepared.read_version + 1
        while True:
            reply = yield PutIfAbsent(version, data)
            if isinstance(reply, Created):
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


NO_REFUSALS = tuple(kind for kind in FAULTS if kind != "refused")


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


def test_the_right_naive_loop_passes_where_nothing_is_cleaned_up():
    report = explore(naive(), [transaction(name, 0) for name in "ab"], origin(0), kinds=NO_REFUSALS)
    assert report.outcomes == {"CommitOutcome"}


# --- longer schedules, at random -----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(data=st.data())
def test_long_schedules_with_many_faults(data):
    newest = data.draw(st.integers(0, 3), label="newest version")
    prepared = [
        transaction(f"w{number}", data.draw(st.integers(0, newest)), reads=data.draw(st.booleans()))
        for number in range(data.draw(st.integers(2, 6), label="writers"))
    ]
    explorer = Explorer(
        loop_with(max_repeats=3),
        prepared,
        origin(*range(newest + 1)),
        faults=data.draw(st.integers(0, 4)),
        must_commit=False,
    )
    world: World = explorer.start
    while steps := [*explorer.steps(world)]:
        explorer.check(world, at_end=False)
        _, world = steps[data.draw(st.integers(0, len(steps) - 1))]
    explorer.check(world, at_end=True)


def test_every_kind_of_fault_is_explored():
    """Guards the explorer against faults that are named and never happen."""
    for kind in FAULTS:
        alone = Explorer(REAL, [transaction("a", 0)], origin(0), kinds=(kind,)).run()
        assert alone.worlds > Explorer(REAL, [transaction("a", 0)], origin(0), kinds=()).run().worlds
