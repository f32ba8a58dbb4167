"""Transactions over several tables under every schedule of their effects, with faults: all or nothing, and no claim is
false.

Tests of core.commit.together.
"""

from __future__ import annotations

import json

import pytest

from model.contents import Violation
from model.together import KINDS, TogetherExplorer, Transaction
from refdelta.core.commit import effects
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.together import GROUP, TAG, OfTable, Together, TryTogether, commit_together, with_group
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.conflicts.reads import EVERYTHING, ReadSet
from refdelta.core.log.actions import Add, CommitInfo
from refdelta.core.log.codec import decode_commit, encode_commit
from refdelta.errors import CommitOutcomeUnknownError, ConcurrentAppendException, StoreError

FIRST = [encode_commit([CommitInfo(fields={"txnId": f"origin-{table}"})]) for table in range(3)]


def part(name: str, table: int, *, reads: bool = False, writes: bool = True) -> PreparedCommit:
    add = Add(path=f"{name}-{table}", partition_values={}, size=1, modification_time=1, data_change=True)
    return PreparedCommit(
        read_version=0,
        read_set=ReadSet(version=0, reads=(EVERYTHING,) if reads else ()),
        actions=[add] if writes else [],
        commit_info={"operation": "WRITE", "isBlindAppend": False},
        txn_id=f"txn-{name}-{table}",
        spans_tables=True,
    )


def over(name: str, *tables: int, pinned: int | None = None) -> Transaction:
    parts = [(table, part(name, table)) for table in tables]
    if pinned is not None:
        parts.append((pinned, part(name, pinned, writes=False)))
    return Transaction(tuple(parts), frozenset() if pinned is None else frozenset({pinned}))


@pytest.mark.parametrize("kind", [*KINDS, "all"])
def test_two_writers_over_the_same_two_tables_with_a_fault_each(kind):
    kinds = KINDS if kind == "all" else (kind,)
    report = TogetherExplorer([over("x", 0, 1), over("y", 1, 0)], FIRST, kinds=kinds).run()
    assert "dict" in report.outcomes
    assert report.schedules >= 10


def test_two_writers_of_which_each_one_pins_what_the_other_one_writes():
    report = TogetherExplorer([over("x", 0, pinned=1), over("y", 1, pinned=0)], FIRST).run()
    assert "dict" in report.outcomes


@pytest.mark.tier("test")
def test_a_writer_of_two_tables_beside_one_of_each():
    report = TogetherExplorer([over("x", 0, 1), over("y", 0), over("z", 1)], FIRST, kinds=("lost reply", "late")).run()
    assert "dict" in report.outcomes


def test_a_catalog_that_ratifies_table_by_table_is_found_out():
    with pytest.raises(Violation, match="in some of its tables only"):
        TogetherExplorer([over("x", 0, 1), over("y", 0)], FIRST, kinds=(), torn=True).run()


def test_a_coordinator_that_forgets_that_it_stands_is_found_out():
    def hasty(loops, pinned):
        """Takes an unknown outcome for a failure."""
        run = commit_together(loops, pinned)
        reply = None
        while True:
            try:
                ask = run.send(reply)
            except StopIteration as done:
                return done.value
            reply = yield ask
            if isinstance(reply, Together) and any(isinstance(one, effects.Unknown) for one in reply.replies.values()):
                raise StoreError("no answer")

    with pytest.raises(Violation, match="was told"):
        TogetherExplorer([over("x", 0, 1)], FIRST, kinds=("lost reply",), run=hasty).run()


# --- step by step ---


def drive(run, logs):
    """Carry out effects on logs in memory, up to the first put of all; yields each one, and is sent its reply."""
    reply = None
    while True:
        ask = run.send(reply)
        if isinstance(ask, TryTogether):
            reply = yield ask
            continue
        assert isinstance(ask, OfTable)
        log = logs[ask.table]
        match ask.effect:
            case effects.VersionExists():
                reply = effects.Yes()
            case effects.ReadCommits(first, last):
                reply = effects.Commits(tuple(log[v] if v < len(log) else None for v in range(first, last + 1)))
            case effects.NewestVersion(after):
                reply = effects.Newest(max(after, len(log) - 1))
            case effects.Pause():
                reply = effects.Elapsed(0.0)


def test_the_table_that_lost_moves_and_the_other_one_asks_for_the_same():
    logs = [[FIRST[0]], [FIRST[1]]]
    run = commit_together([commit_loop(part("x", 0)), commit_loop(part("x", 1))])
    driven = drive(run, logs)
    first = next(driven)
    assert {n: one.version for n, one in first.tries.items()} == {0: 1, 1: 1}
    winner = encode_commit([CommitInfo(fields={"txnId": "another"})])
    logs[0].append(winner)
    second = driven.send(Together({0: effects.Exists((winner,)), 1: effects.Deferred()}))
    assert {n: one.version for n, one in second.tries.items()} == {0: 2, 1: 1}
    assert second.tries[1] == first.tries[1]


def test_a_conflict_of_a_pinned_table_is_one_of_all():
    logs = [[FIRST[0]], [FIRST[1]]]
    run = commit_together([commit_loop(part("x", 0)), commit_loop(part("x", 1, reads=True, writes=False))], [1])
    driven = drive(run, logs)
    next(driven)
    add = Add(path="new", partition_values={}, size=1, modification_time=1, data_change=True)
    winner = encode_commit([CommitInfo(fields={"operation": "WRITE", "txnId": "another"}), add])
    logs[1].append(winner)
    with pytest.raises(ConcurrentAppendException):
        driven.send(Together({0: effects.Deferred(), 1: effects.Exists((winner,))}))


def test_a_table_that_has_another_commit_where_the_others_have_theirs_leaves_the_outcome_open():
    logs = [[FIRST[0]], [FIRST[1]]]
    run = commit_together([commit_loop(part("x", 0)), commit_loop(part("x", 1))])
    driven = drive(run, logs)
    asked = next(driven)
    logs[0].append(asked.tries[0].data)
    logs[1].append(encode_commit([CommitInfo(fields={"txnId": "another"})]))
    with pytest.raises(CommitOutcomeUnknownError, match="other tables of the transaction have it") as caught:
        driven.send(Together({0: effects.Unknown(), 1: effects.Unknown()}))
    assert caught.value.txn_id == "txn-x-1"


@pytest.mark.parametrize("wrong", [effects.Committed(), None])
def test_a_reply_of_another_kind_is_an_error_of_the_shell(wrong):
    run = commit_together([commit_loop(part("x", 0)), commit_loop(part("x", 1))])
    driven = drive(run, [[FIRST[0]], [FIRST[1]]])
    next(driven)
    with pytest.raises(TypeError, match="no reply to commits of several tables"):
        driven.send(wrong)
    run = commit_together([commit_loop(part("x", 0))])
    next(run)
    with pytest.raises(TypeError, match="no reply to an effect of one table"):
        run.send(Together({}))


def test_the_group_is_added_to_what_the_commit_says():
    add = Add(path="new", partition_values={}, size=1, modification_time=1, data_change=True)
    data = encode_commit([CommitInfo(fields={"txnId": "x", "tags": {"a": "b"}}), add])
    group = {"transactionId": "id", "participants": [], "coordinatingCatalog": "c"}
    info, kept = decode_commit(with_group(data, group), "a commit")
    assert kept == add
    assert info.fields == {"txnId": "x", "tags": {"a": "b", TAG: "id"}, GROUP: group}
    assert json.loads(with_group(encode_commit([CommitInfo(fields={})]), group))["commitInfo"]["tags"] == {TAG: "id"}
