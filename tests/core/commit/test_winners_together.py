"""Winners that concern a transaction in nothing are passed by together; that makes no difference but in time."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from concurrency.commits import TABLE, add, remove, where
from refdelta.core.commit import loop, member
from refdelta.core.commit.effects import (
    Commits,
    Committed,
    CommitTime,
    Elapsed,
    Exists,
    Newest,
    NewestVersion,
    Pause,
    ReadCommits,
    Time,
    TryCommit,
    VersionExists,
    Yes,
)
from refdelta.core.commit.transaction import PreparedCommit
from refdelta.core.commit.vectors import CHUNK_BYTES
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.log.actions import CommitInfo, DomainMetadata, Txn
from refdelta.core.log.assigned import CommitClock
from refdelta.core.log.codec import encode_action, encode_commit
from refdelta.errors import ConcurrentAppendException, ConcurrentDeleteReadException, DeltaError, InvalidLogError
from tiers import examples

READ = [add(f"mine-{number}", 1, a=(0, 9)) for number in range(3)]


def transaction(*, clock: CommitClock | None = None) -> PreparedCommit:
    """It deletes a partition that it has read."""
    return PreparedCommit(
        read_version=0,
        read_set=ReadSet(version=0).with_predicate(where("p = 1")).with_files(READ),
        actions=[remove(file.path, 1) for file in READ],
        commit_info={"operation": "DELETE"},
        txn_id="ours",
        table=TABLE,
        clock=clock,
    )


def run(prepared: PreparedCommit, winners: list[bytes]) -> tuple[list[tuple[int, int]], bytes, loop.CommitOutcome]:
    """What it reads at a time, what it puts last, and what it comes to."""
    running, read, put = loop.commit_loop(prepared), [], b""
    effect = next(running)
    try:
        while True:
            match effect:
                case VersionExists():
                    reply = Yes()
                case Pause():
                    reply = Elapsed(0.0)
                case CommitTime():
                    reply = Time(0)
                case NewestVersion():
                    reply = Newest(len(winners))
                case ReadCommits(first, last):
                    read.append((first, last))
                    reply = Commits(tuple(winners[first - 1 : last]))
                case TryCommit(version, put):
                    reply = Exists() if version <= len(winners) else Committed()
            effect = running.send(reply)
    except StopIteration as done:
        return read, put, done.value


def winner(*actions: object, txn: str = "theirs", **fields: object) -> bytes:
    return encode_commit([CommitInfo(fields={"operation": "UPDATE", "txnId": txn, **fields}), *actions])


def apart(number: int, **fields: object) -> bytes:
    """It has nothing to do with the transaction."""
    return winner(remove(f"old-{number}", 2), add(f"new-{number}", 2), txn=f"winner-{number}", **fields)


FILES = st.builds(add, st.sampled_from(["a", "b", "mine-0", "%6dine-1"]), st.integers(1, 3), a=st.just((0, 1)))
GONE = st.builds(remove, st.sampled_from(["a", "b", "mine-0", "mine-2"]), st.integers(1, 3))
OTHERS = st.sampled_from([Txn(app_id="app", version=1), DomainMetadata(domain="d", configuration="", removed=False)])
FOREIGN = st.builds(
    winner,
    *[st.builds(add, st.sampled_from("abc"), st.integers(2, 4)) | st.builds(remove, st.sampled_from("abc"))] * 2,
    inCommitTimestamp=st.integers(0, 9) | st.just("soon"),
)
LINES = FILES.map(encode_action) | GONE.map(encode_action) | OTHERS.map(encode_action)
ODD = [b"", b"\n", b"{}", b'{"add":null}', b'{"add":{"path":"x"}}', b'{"new":{}}', b'{"commitInfo":{"txnId":"ours"}}']
ODD += [encode_action(add("c", 2)) + b" " + encode_action(add("mine-0", 1)), b'{"commitInfo":{}}\n{"add":']
ODD += [encode_action(add("c", 2))[:-1] + b"," + encode_action(remove("mine-0", 1))[1:]]
STRANGE = st.lists(LINES | st.sampled_from(ODD), max_size=3).map(b"\n".join)


@examples(200)
@given(st.lists(FOREIGN | FOREIGN | STRANGE, min_size=1, max_size=8), st.sampled_from([1, 150, 2**16]))
@example([apart(1), b"", apart(2)], 2**16)
@example([apart(1), b"{}\n{}\n" + ODD[-1] + b"\n", apart(2)], 2**16)
def test_it_comes_to_the_same_as_one_by_one(winners, size):
    def found(*, together: bool):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(loop, "_TOGETHER_BYTES", size)
            if not together:
                patched.setattr(loop.Loop, "_pass_by", lambda _, members, __: list(members))
            try:
                return run(transaction(clock=CommitClock(now_ms=3)), [apart(0), *winners])
            except DeltaError as error:
                return type(error), str(error)

    assert found(together=True) == found(together=False)


def test_most_are_not_looked_at_one_by_one(monkeypatch):
    asked = []
    monkeypatch.setattr(
        member,
        "check",
        lambda state, one, facts, check=member.check: asked.append(one.version) or check(state, one, facts),
    )
    winners = [apart(number) for number in range(1, 400)]
    assert run(transaction(), winners)[2].rebased_over == tuple(range(1, 400))
    assert asked == [1]  # to which the first put was lost


@pytest.mark.parametrize(
    ("odd", "error", "words"),
    [
        (winner(add("new", 1)), ConcurrentAppendException, "version 77"),
        (winner(remove("mine-1", 1)), ConcurrentDeleteReadException, "version 77"),
        (apart(77)[:-9], InvalidLogError, "00000000000000000077.json, line 3"),
        (b"", InvalidLogError, "00000000000000000077.json: .*empty"),
        (apart(77).replace(b'"size":1', b'"size":"1"'), InvalidLogError, "00000000000000000077.json, line 3"),
    ],
)
def test_the_one_among_many_is_named(odd, error, words):
    winners = [apart(number) for number in range(1, 200)]
    winners[76] = odd
    with pytest.raises(error, match=words):
        run(transaction(), winners)


def test_our_own_among_many_is_found():
    winners = [apart(number) for number in range(1, 200)]
    winners[76] = winner(add("new", 2), txn="ours")
    outcome = run(transaction(), winners)[2]
    assert (outcome.version, outcome.recovered, outcome.rebased_over) == (77, True, tuple(range(1, 77)))


def test_the_latest_of_their_times_counts():
    winners = [apart(number, inCommitTimestamp=1_000 + number) for number in range(1, 50)]
    _, put, _ = run(transaction(clock=CommitClock(now_ms=5)), winners)
    assert json.loads(put.splitlines()[0])["commitInfo"]["inCommitTimestamp"] == 1_050


@pytest.mark.tier("test")
def test_long_ones_are_read_few_at_a_time():
    long = winner(*[add(f"part-{number:0100}", 2) for number in range(6_000)])
    read, _, outcome = run(transaction(), [long] * 20)
    assert outcome.version == 21
    assert max(last - first + 1 for first, last in read) * len(long) <= CHUNK_BYTES < 6 * len(long)
