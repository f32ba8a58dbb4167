"""Commits by intents: several writers share versions without a server.

Tests of core.commit.intent_file, core.commit.leading, transaction.leader, transaction.traffic.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import refdelta
from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.core.commit import intents as core
from refdelta.core.commit.intent_file import FOLDER, decode_intent, encode_intent, hash_of, intent_key, prepared_of
from refdelta.core.commit.intents import FILES_MS, FRESH_MS, RULES, WINDOW, Candidate, Head, Named, fate, left_out
from refdelta.core.log.paths import commit_key
from refdelta.engine.parquet.dv import VectorLoader
from refdelta.errors import CommitFailedError, ConcurrentModificationError, InvalidArgumentError
from refdelta.transaction import background, intents, leader, post_commit
from refdelta.transaction.traffic import Traffic
from refdelta_storage import Committed, MemoryStore, Unknown, open_store
from tiers import budget
from waiting import until

pytestmark = pytest.mark.usefixtures("patient")

ALWAYS = CommitProperties(group="always")
WRITER = Path(__file__).parent / "intent_writer.py"


def table(path, ids=(1, 2, 3, 4), **configuration) -> str:
    write_deltalake(str(path), pa.table({"id": pa.array(ids, pa.int64())}), configuration=configuration)
    return str(path)


def ids(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table()["id"].to_pylist())


def members(uri: str) -> list[int]:
    return [len(commit.get("members", [0])) for commit in DeltaTable(uri).history()]


def all_at_once(*functions) -> list[Exception | None]:
    """Run each in a thread; its error."""
    errors: list[Exception | None] = [None] * len(functions)
    barrier = threading.Barrier(len(functions))

    def run(number, function):
        barrier.wait()
        try:
            function()
        except Exception as error:
            errors[number] = error

    threads = [threading.Thread(target=run, args=one) for one in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


# --- the decisions --------------------------------------------------------------------------------------------------

HEAD = Head(id="b", base=3, base_hash="three")


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("base", {"base_hash": "another"}),
        ("missing", {"base_hash": None}),
        ("missing", {"chain": (None, Named())}),
        ("missing", {"chain": (Named(),)}),
        ("named", {"chain": (Named(members=("b",)), Named())}),
        ("named", {"chain": (Named(), Named(refused={"b": 1}))}),
        ("named", {"chain": (Named(), Named(withdrawn=frozenset("b")))}),
        ("window", {"version": 4 + WINDOW, "chain": (Named(),) * WINDOW}),
        ("stale", {"age_ms": FRESH_MS + 1}),
        ("files", {"files_ms": FILES_MS + 1}),
    ],
)
def test_an_intent_is_left_out_by_each_rule(rule, options, monkeypatch):
    monkeypatch.setattr(core, "FRESH_MS", FRESH_MS)
    good = {"head": HEAD, "version": 6, "base_hash": "three", "chain": (Named(), Named()), "age_ms": FRESH_MS}
    assert left_out(Candidate(**good)) is None
    assert left_out(Candidate(**{**good, **options})) == rule
    assert rule in RULES


def test_the_first_version_that_names_a_transaction_decides():
    late = Named(withdrawn=frozenset("b"))
    assert fate(HEAD, "three", [Named(), Named(members=("a", "b")), late]).version == 5
    assert fate(HEAD, "three", [late, Named(members=("b",))]).kind == "withdrawn"
    assert fate(HEAD, "three", [Named()] * WINDOW).kind == "passed"
    assert fate(HEAD, "three", [Named()] * (WINDOW - 1)).kind == "open"
    assert fate(HEAD, "another", [Named(members=("b",))]).kind == "unknown"


# --- the file -------------------------------------------------------------------------------------------------------


def prepared(uri: str, change, **options):
    transaction = DeltaTable(uri).begin(**options)
    change(transaction)
    inner = getattr(transaction, "_transaction", transaction)
    inner._dropped.detach()  # it is not ended: its writer is killed
    return inner._prepared(inner.description)


def test_an_intent_is_the_transaction(tmp_path):
    uri = table(tmp_path, **{"delta.enableDeletionVectors": "true"})
    one = prepared(uri, lambda t: t.delete("id = 2"))
    data = encode_intent(one, 0, "hash", replaces=["old"], now_ms=5)
    intent = decode_intent(data, intent_key(0, one.txn_id))
    assert intent.head == Head(id=one.txn_id, base=0, base_hash="hash", replaces=("old",))
    again = prepared_of(intent, one)
    for name in ("read_version", "actions", "txn_id", "level", "records_predicates"):
        assert getattr(again, name) == getattr(one, name), name
    assert again.changes.deletes == one.changes.deletes
    assert [read.predicate.text for read in again.read_set.reads] == [r.predicate.text for r in one.read_set.reads]
    assert again.read_set.files == one.read_set.files


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"format":2}'])
def test_what_is_no_intent_is_left_out(broken):
    assert decode_intent(broken, intent_key(0, "a")) is None


def test_an_intent_with_unknown_fields_or_under_another_name_is_left_out(tmp_path):
    uri = table(tmp_path)
    one = prepared(uri, lambda t: t.append(pa.table({"id": [9]})))
    data = encode_intent(one, 0, "hash")
    assert decode_intent(data, intent_key(0, one.txn_id)) is not None
    assert decode_intent(data, intent_key(1, one.txn_id)) is None
    assert decode_intent(data.replace(b'{"format"', b'{"more":1,"format"'), intent_key(0, one.txn_id)) is None


# --- writers --------------------------------------------------------------------------------------------------------


def test_appends_of_several_writers_share_versions(tmp_path):
    uri = table(tmp_path, [])
    told = {}

    def append(number):
        for k in range(3):
            id_ = number * 10 + k
            how = CommitProperties(group="always", user_metadata=str(id_))
            result = write_deltalake(uri, pa.table({"id": [id_]}), mode="append", commit_properties=how)
            told[result.version, result.member] = str(id_)

    assert all_at_once(*(lambda n=n: append(n) for n in range(5))) == [None] * 5
    assert ids(uri) == sorted(n * 10 + k for n in range(5) for k in range(3))
    assert max(members(uri)) > 1
    refdelta.settle()
    history = {commit["version"]: commit.get("members", []) for commit in DeltaTable(uri).history()}
    assert {
        place: history[place[0]][place[1]]["userMetadata"] for place in told if place[1] is not None
    }.items() <= told.items()
    assert len(told) == 15
    assert not [*Path(uri, FOLDER).iterdir()]
    named = [m["txnId"] for commit in DeltaTable(uri).history() for m in commit.get("members", [commit])]
    assert len(named) == len(set(named)) == 16


def test_the_first_member_of_a_version_does_the_work_after_it(tmp_path, monkeypatch):
    uri, done = table(tmp_path, []), []
    monkeypatch.setattr(post_commit, "_write_checksum", lambda snapshot: done.append(snapshot.version))
    rows = pa.table({"id": [1]})
    append = lambda: write_deltalake(uri, rows, mode="append", commit_properties=ALWAYS)  # noqa: E731
    assert all_at_once(*[append] * 5) == [None] * 5
    assert max(members(uri)) > 1
    assert sorted(done) == [*range(1, DeltaTable(uri).version() + 1)]


def test_the_threads_of_a_group_may_put_intents_too(tmp_path):
    """Two groups, as of two processes: their transactions share versions with each other, and each group sees what its
    own have committed.
    """
    uri = table(tmp_path)
    with DeltaTable(uri).group_commit() as one, DeltaTable(uri).group_commit() as two:
        groups = [one, two] * 4

        def append(group, number):
            return lambda: group.append(pa.table({"id": [number]}), commit_properties=ALWAYS)

        assert all_at_once(*(append(group, 10 + number) for number, group in enumerate(groups))) == [None] * 8
        assert max(members(uri)) > 1
        assert max(one._group.snapshot.version, two._group.snapshot.version) == DeltaTable(uri).version()
        one.append(pa.table({"id": [30]}))
    assert ids(uri) == [1, 2, 3, 4, *range(10, 18), 30]


def test_deletes_of_different_rows_of_a_file_share_its_vector(tmp_path):
    uri = table(tmp_path, range(8), **{"delta.enableDeletionVectors": "true"})
    handles = [DeltaTable(uri) for _ in range(4)]
    jobs = [lambda n=n: handles[n].delete(f"id = {n}", commit_properties=ALWAYS) for n in range(4)]
    assert all_at_once(*jobs) == [None] * 4
    assert ids(uri) == [4, 5, 6, 7]
    assert len([*Path(uri).glob("*.bin")]) <= DeltaTable(uri).version()


def test_intents_that_append_share_no_version_with_those_that_change_rows(tmp_path):
    uri = table(tmp_path, range(8), **{"delta.enableDeletionVectors": "true"})
    handles = [DeltaTable(uri) for _ in range(8)]

    def job(number, handle):
        if number % 2:
            return lambda: handle.delete(f"id = {number}", commit_properties=ALWAYS)
        return lambda: write_deltalake(handle, pa.table({"id": [10 + number]}), mode="append", commit_properties=ALWAYS)

    assert all_at_once(*map(job, range(8), handles)) == [None] * 8
    assert max(members(uri)) > 1
    for commit in DeltaTable(uri).history():
        assert len({one["operation"] for one in commit.get("members", [commit])}) == 1
    appended = [change.rows["id"].to_pylist() for change in DeltaTable(uri).follow(0, 0, skip_change_commits=True)]
    assert sorted(number for some in appended for number in some) == [10, 12, 14, 16]
    assert ids(uri) == [0, 2, 4, 6, 10, 12, 14, 16]


def test_vectors_that_this_process_wrote_are_not_read_again(tmp_path, monkeypatch):
    uri = table(tmp_path, range(8), **{"delta.enableDeletionVectors": "true"})
    reads = []
    load = VectorLoader.load
    monkeypatch.setattr(VectorLoader, "load", lambda loader, one: [reads.append(one), load(loader, one)][1])
    late = DeltaTable(uri).begin(commit_properties=ALWAYS)
    late.delete("id = 1")
    DeltaTable(uri).delete("id = 0", commit_properties=ALWAYS)
    assert late.commit().rebased_over == (1,)
    assert reads == []
    assert ids(uri) == list(range(2, 8))


def test_of_two_that_delete_one_row_one_is_refused(tmp_path):
    uri = table(tmp_path, range(8), **{"delta.enableDeletionVectors": "true"})
    handles = [DeltaTable(uri) for _ in range(3)]
    jobs = [lambda t=t: t.delete("id = 3", commit_properties=ALWAYS) for t in handles]
    errors = all_at_once(*jobs)
    assert errors.count(None) == 1
    assert all(isinstance(error, ConcurrentModificationError) for error in errors if error is not None)
    assert ids(uri) == [0, 1, 2, 4, 5, 6, 7]


def test_a_lone_writer_puts_no_intent(tmp_path):
    uri = table(tmp_path)
    one = CommitProperties(group="intents")
    for number in range(3):
        write_deltalake(uri, pa.table({"id": [10 + number]}), mode="append", commit_properties=one)
    assert not Path(uri, FOLDER).exists()
    assert ids(uri) == [1, 2, 3, 4, 10, 11, 12]


def lay(uri: str, change, *, replaces=(), before=lambda: None, **options) -> str:
    """Put the intent of a writer that is then killed; returns the id of the transaction."""
    one = prepared(uri, change, **options)
    before()
    base = Path(uri, "_delta_log", f"{one.read_version:020d}.json").read_bytes()
    # At once, as a writer does: a leader in the background would take a part of it for one that is broken.
    data = encode_intent(one, one.read_version, hash_of(base), replaces=replaces, now_ms=2**60)
    open_store(uri).put(intent_key(one.read_version, one.txn_id), data)
    return one.txn_id


def append_nine(transaction) -> None:
    transaction.append(pa.table({"id": [9]}))


def test_the_intent_of_a_dead_writer_is_committed_by_another(tmp_path):
    uri = table(tmp_path)
    dead = lay(uri, append_nine)
    assert DeltaTable(uri).outcome(dead).kind == "open"
    write_deltalake(uri, pa.table({"id": [10]}), mode="append", commit_properties=ALWAYS)
    assert ids(uri) == [1, 2, 3, 4, 9, 10]
    assert DeltaTable(uri).outcome(dead) == intents.intents.Fate("member", 1)


def test_a_withdrawn_transaction_is_never_committed(tmp_path):
    uri = table(tmp_path)
    dead = lay(uri, append_nine)
    assert DeltaTable(uri).outcome(dead, withdraw=True).kind == "withdrawn"
    write_deltalake(uri, pa.table({"id": [10]}), mode="append", commit_properties=ALWAYS)
    assert ids(uri) == [1, 2, 3, 4, 10]
    assert DeltaTable(uri).outcome(dead, withdraw=True).kind == "withdrawn"
    assert DeltaTable(uri).version() == 2  # nothing was withdrawn again


def test_a_later_try_withdraws_the_earlier_one(tmp_path):
    uri = table(tmp_path)
    dead = lay(uri, append_nine)
    again = CommitProperties(group="intents", replaces=[dead])
    write_deltalake(uri, pa.table({"id": [9]}), mode="append", commit_properties=again)
    assert ids(uri) == [1, 2, 3, 4, 9]
    assert DeltaTable(uri).outcome(dead).kind == "withdrawn"


def test_an_intent_of_a_table_that_was_made_anew_is_left_out(tmp_path):
    uri = table(tmp_path / "a")
    other = table(tmp_path / "b")
    lay(uri, append_nine)
    Path(uri, FOLDER).rename(Path(other, FOLDER))
    write_deltalake(other, pa.table({"id": [10]}), mode="append", commit_properties=ALWAYS)
    assert ids(other) == [1, 2, 3, 4, 10]


def test_an_old_intent_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(core, "FRESH_MS", FRESH_MS)
    uri = table(tmp_path)
    lay(uri, append_nine)
    (path,) = Path(uri, FOLDER).iterdir()
    old = path.stat().st_mtime - FRESH_MS / 1000 - 1
    os.utime(path, (old, old))
    write_deltalake(uri, pa.table({"id": [10]}), mode="append", commit_properties=ALWAYS)
    assert ids(uri) == [1, 2, 3, 4, 10]


def test_an_intent_that_conflicts_is_refused_by_name(tmp_path):
    uri = table(tmp_path, range(8), **{"delta.enableDeletionVectors": "true"})
    dead = lay(uri, lambda t: t.delete("id = 3"))
    DeltaTable(uri).delete("id = 3")
    write_deltalake(uri, pa.table({"id": [10]}), mode="append", commit_properties=ALWAYS)
    assert DeltaTable(uri).outcome(dead).kind == "refused"
    assert DeltaTable(uri).history(1)[0]["refused"][dead]["version"] == 1


def test_replaces_needs_a_group(tmp_path):
    uri = table(tmp_path)
    with pytest.raises(InvalidArgumentError, match="group"):
        write_deltalake(uri, pa.table({"id": [9]}), mode="append", commit_properties=CommitProperties(replaces=["a"]))
    with pytest.raises(InvalidArgumentError, match="group"):
        DeltaTable(uri).delete("id = 1", commit_properties=CommitProperties(group="none"))
    assert issubclass(ConcurrentModificationError, CommitFailedError)


# --- a machine that stalls ------------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass in waits alone."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock of all commits by intents."""
    one = Clock()
    monkeypatch.setattr(intents, "commit", functools.partial(intents.commit, clock=one, sleep=one.sleep))
    yield one
    refdelta.settle()


def test_a_writer_leads_when_others_would_leave_its_intent_out(tmp_path, clock):
    """The leader of the last version has stalled for a minute, by which the next writer would wait for two."""
    uri = table(tmp_path)
    write_deltalake(uri, pa.table({"id": [10]}), mode="append", commit_properties=ALWAYS)
    refdelta.settle()
    path = Path(uri, commit_key(1))
    path.write_bytes(re.sub(rb'"leadMs":\d+', b'"leadMs":60000', path.read_bytes()))
    assert b'"leadMs":60000' in path.read_bytes()
    began = clock.now
    write_deltalake(uri, pa.table({"id": [11]}), mode="append", commit_properties=ALWAYS)
    assert FRESH_MS / 2000 <= clock.now - began <= FRESH_MS / 1000 + 1
    assert ids(uri) == [1, 2, 3, 4, 10, 11]


@pytest.mark.parametrize("others", [0, 1])
def test_a_writer_whose_listings_are_always_too_old_commits_alone(tmp_path, clock, monkeypatch, others):
    monkeypatch.setattr(core, "LISTING_SECONDS", 5.0)
    uri = table(tmp_path)
    laid = [lay(uri, append_nine) for _ in range(others)]
    listed = leader.listed

    def slow(store):
        found = listed(store)
        clock.sleep(core.LISTING_SECONDS + 1)
        return found

    monkeypatch.setattr(leader, "listed", slow)
    result = write_deltalake(uri, pa.table({"id": [10]}), mode="append", commit_properties=ALWAYS)
    refdelta.settle()
    assert result.version == DeltaTable(uri).version() == 1
    assert ids(uri) == [1, 2, 3, 4, 10]
    assert [DeltaTable(uri).outcome(one).kind for one in laid] == ["open"] * others


# --- whether writers share ------------------------------------------------------------------------------------------


def test_two_writers_put_no_intents(tmp_path):
    """Each sees the other in every version; with one other writer there is nothing to gain."""
    uri = table(tmp_path)
    handles = [DeltaTable(uri), DeltaTable(uri)]
    turn = threading.Barrier(2)

    def append(number):
        for k in range(6):
            turn.wait()
            if k % 2 == number:
                rows = pa.table({"id": [100 * number + k]})
                write_deltalake(
                    handles[number], rows, mode="append", commit_properties=CommitProperties(group="intents")
                )

    assert all_at_once(lambda: append(0), lambda: append(1)) == [None] * 2
    assert not Path(uri, FOLDER).exists()
    assert DeltaTable(uri).version() == 6


def test_a_writer_shares_with_two_others():
    traffic = Traffic()
    traffic.saw(["own", "a"], 10.0)
    assert not traffic.shares(10.0, "own")
    traffic.saw(["b"], 11.0)
    assert traffic.shares(11.0, "own")
    assert traffic.shares(12.0, "own")
    assert not traffic.shares(12.5, "own")


@pytest.mark.parametrize(
    ("first", "second", "shares"), [("", "a", False), ("a", "a", True), ("a", "b", False), ("", "ab", True)]
)
def test_a_writer_shares_where_intents_wait(first, second, shares, monkeypatch):
    """Several, or one that was there before: it waits in vain while this writer wins all versions."""
    now = 500.0
    monkeypatch.setattr("refdelta.transaction.traffic.time", SimpleNamespace(monotonic=lambda: now))
    store, traffic = MemoryStore("looks"), Traffic()
    for number, there in enumerate((first, second)):
        for key in [info.key for info in store.list()]:
            store.delete([key])
        for name in there:
            store.put(intent_key(0, name), b"")
        traffic.look(store, 10.0 * number)
        background.settle(store.uri)
    assert traffic.shares(now, "own") == shares


def test_a_transaction_that_always_loses_is_put_as_an_intent(tmp_path, monkeypatch):
    """Where one writer wins all versions, only intents show that there are others."""
    uri = table(tmp_path)
    other, losses, told = DeltaTable(uri), 0, []
    put = leader.FileCommitter._put

    def loses(committer, version, data):
        nonlocal losses
        if not isinstance(committer, leader.LeaderCommitter) and b'"user":"slow"' in data:
            losses += 1
            write_deltalake(other, pa.table({"id": [100 + losses]}), mode="append")
        return put(committer, version, data)

    monkeypatch.setattr(leader.FileCommitter, "_put", loses)
    how = CommitProperties(group="intents", custom_metadata={"user": "slow"})
    with refdelta.observe_commits(told.append):
        write_deltalake(uri, pa.table({"id": [9]}), mode="append", commit_properties=how)
    assert losses == 8
    (event,) = [one for one in told if one.read_version == 0 and one.version != 1]
    assert (event.version, event.attempts, event.puts, event.outcome) == (9, 9, 10, "committed")
    assert "leadMs" in DeltaTable(uri).history(1)[0]
    assert ids(uri) == [1, 2, 3, 4, 9, *range(101, 109)]


# --- a leader that goes on ------------------------------------------------------------------------------------------


@pytest.fixture
def stays(monkeypatch):
    """A leader in the background ends only when it is waited for."""
    monkeypatch.setattr(leader, "IDLE_SECONDS", 86_400.0)
    monkeypatch.setattr(leader, "TERM_SECONDS", 86_400.0)
    yield
    refdelta.settle()


def begun(uri: str) -> str:
    """A leader is in the background, after version 1 with a transaction of another writer. Returns the table."""
    lay(uri, append_nine)
    write_deltalake(uri, pa.table({"id": [10]}), mode="append", commit_properties=ALWAYS)
    assert members(uri)[0] == 2
    return uri


def is_member(uri: str, txn_id: str) -> bool:
    return DeltaTable(uri).outcome(txn_id).kind == "member"


@pytest.mark.tier("test")
def test_a_leader_commits_several_groups_in_a_row(tmp_path, stays):
    uri = begun(table(tmp_path, range(8), **{"delta.enableDeletionVectors": "true"}))
    for number in range(3):
        one = lay(uri, lambda t, n=number: t.delete(f"id = {n}"))
        until(lambda one=one: is_member(uri, one))
    assert DeltaTable(uri).version() == 4
    refdelta.settle()
    assert ids(uri) == [3, 4, 5, 6, 7, 9, 10]
    assert not [*Path(uri, FOLDER).iterdir()]
    assert len([*Path(uri).glob("*.bin")]) <= 3
    late = lay(uri, append_nine)
    assert refdelta.settle(timeout=0)  # no leader any more
    assert DeltaTable(uri).outcome(late).kind == "open"


def test_a_leader_reads_ahead_while_its_put_is_under_way(tmp_path, stays, monkeypatch):
    uri = begun(table(tmp_path))
    looked, commit, look = threading.Event(), leader.LeaderCommitter.commit, leader.Leader.look
    ahead = []

    def slow(committer, version, data):
        looked.clear()
        ahead.append(looked.wait(120))
        return commit(committer, version, data)

    def noted(self):
        found = look(self)
        looked.set()
        return found

    monkeypatch.setattr(leader.Leader, "look", noted)
    monkeypatch.setattr(leader.LeaderCommitter, "commit", slow)
    one = lay(uri, append_nine)
    until(lambda: is_member(uri, one))
    assert ahead == [True]


def test_versions_that_came_meanwhile_are_read_side_by_side():
    """After the put of an intent several versions are there already: one round trip reads them, and not one each."""
    store = MemoryStore("ahead")
    asked: list[str] = []
    for version in (3, 4, 5, 7):
        store.put(commit_key(version), b"%d" % version)
    get = store.get
    store.get = lambda key: [asked.append(key), get(key)][1]
    committer = leader.LeaderCommitter(store, 2)
    assert committer.read_on(3, 4) == [b"3", b"4", b"5"]
    assert {*asked} == {commit_key(version) for version in range(3, 7)}
    asked.clear()
    assert [committer.read_on(version, 1) for version in (5, 6, 7)] == [[b"5"], [], [b"7"]]
    assert asked == [commit_key(6), commit_key(7)]
    assert committer.held(4) == b"4"
    store.put(commit_key(6), b"6")
    assert committer.read_on(6, 8) == [b"6", b"7"]


def test_a_writer_asks_for_as_many_versions_as_came_last_time(tmp_path, monkeypatch):
    uri, asked = table(tmp_path), []
    read_on = leader.LeaderCommitter.read_on

    def noted(self, first, ahead):
        asked.append(ahead)
        return read_on(self, first, ahead)

    monkeypatch.setattr(leader.LeaderCommitter, "read_on", noted)
    mine, other = DeltaTable(uri), DeltaTable(uri)

    def late(txn):
        txn.append(pa.table({"id": [100]}))
        for _ in range(3):
            write_deltalake(other, pa.table({"id": [200]}), mode="append")

    mine.transact(late, commit_properties=ALWAYS)
    first, _ = asked[0], asked.clear()
    mine.transact(late, commit_properties=ALWAYS)
    assert (first, max(asked)) == (1, 4)
    assert ids(uri) == sorted([1, 2, 3, 4, 100, 100, *[200] * 6])


def test_row_ids_and_times_follow_each_other_in_the_versions_of_a_leader(tmp_path, stays):
    uri = table(tmp_path, **{"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"})
    begun(uri)
    for _ in range(2):
        some = [lay(uri, append_nine), lay(uri, append_nine)]
        until(lambda some=some: is_member(uri, some[0]) and is_member(uri, some[1]))
    times, first = [], []
    for version in range(DeltaTable(uri).version() + 1):
        lines = map(json.loads, Path(uri, f"_delta_log/{version:020d}.json").read_text().splitlines())
        for line in lines:
            times += [line["commitInfo"]["inCommitTimestamp"]] if "commitInfo" in line else []
            first += [line["add"]["baseRowId"]] if "add" in line else []
    assert times == sorted(set(times))
    assert sorted(first) == [0, 4, 5, 6, 7, 8, 9]


def test_a_leader_settles_a_put_whose_reply_is_lost(tmp_path, stays, monkeypatch):
    uri = begun(table(tmp_path))
    put, lost = leader.LeaderCommitter._put, []

    def loses(committer, version, data):
        outcome, winner = put(committer, version, data)
        if isinstance(outcome, Committed) and not lost:
            lost.append(version)
            return Unknown(OSError("the reply is lost")), None
        return outcome, winner

    monkeypatch.setattr(leader.LeaderCommitter, "_put", loses)
    for _ in range(2):
        one = lay(uri, append_nine)
        until(lambda one=one: is_member(uri, one))
    assert lost == [2]
    assert DeltaTable(uri).version() == 3
    assert ids(uri) == [1, 2, 3, 4, 9, 9, 9, 10]


def test_a_leader_ends_where_another_one_or_other_metadata_is_there(tmp_path, stays):
    uri = begun(table(tmp_path))
    one = lay(uri, append_nine, before=lambda: DeltaTable(uri).alter.add_columns(pa.field("b", pa.int64())))
    until(lambda: not background._tasks)
    assert DeltaTable(uri).outcome(one).kind == "open"
    assert DeltaTable(uri).version() == 2


ENDS = """
import sys
import pyarrow as pa
from refdelta import CommitProperties, write_deltalake
from refdelta.transaction import background, leader
leader.IDLE_SECONDS = leader.TERM_SECONDS = 3600.0
how = CommitProperties(group="always")
write_deltalake(sys.argv[1], pa.table({"id": [10]}), mode="append", commit_properties=how)
print(len(background._tasks), flush=True)
"""


@pytest.mark.tier("test")
def test_a_process_ends_although_it_leads(tmp_path):
    uri = table(tmp_path)
    lay(uri, append_nine)
    done = subprocess.run([sys.executable, "-c", ENDS, uri], stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    assert done.stdout == "1\n"
    assert ids(uri) == [1, 2, 3, 4, 9, 10]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_leader_ends_before_a_fork(tmp_path, stays):
    uri = begun(table(tmp_path))
    assert background._tasks
    child = os.fork()
    if not child:
        os._exit(len(background._tasks))
    assert os.waitpid(child, 0)[1] == 0
    assert not background._tasks
    assert ids(uri) == [1, 2, 3, 4, 9, 10]


# --- kills ----------------------------------------------------------------------------------------------------------


def kill_and_judge(uri: str, die: int, **options) -> None:
    """Two processes die at a call each; a third one goes on. Nothing is lost, and nothing is there twice."""
    command = [sys.executable, str(WRITER), uri]
    environment = {**os.environ, "INTENT_OPTIONS": json.dumps(options)}
    plans = [(1, 3, die), (2, 3, -die), (3, budget(3, fewest=2), 0)]
    running = [
        subprocess.Popen([*command, *map(str, plan)], stdout=subprocess.PIPE, text=True, env=environment)
        for plan in plans
    ]
    told = [[int(line) for line in process.communicate(timeout=120)[0].split()] for process in running]
    assert running[2].returncode == 0
    found = sorted(DeltaTable(uri, storage_options=options).to_pyarrow_table()["id"].to_pylist())
    assert len(found) == len(set(found))
    assert set(found) >= {one for some in told for one in some}
    for number, acknowledged in enumerate(told, 1):
        mine = [one for one in found if one // 1000 == number]
        assert len(mine) - len(acknowledged) in (0, 1), "a dead writer's last one may be in"


@pytest.mark.tier("test")
@pytest.mark.parametrize("die", [*range(1, 22), *range(-21, 0)])
@pytest.mark.sample(check=2, test=2)
def test_nothing_is_lost_or_doubled_where_writers_are_killed(tmp_path, die):
    kill_and_judge(table(tmp_path, []), die)


@pytest.mark.parametrize("die", [*range(1, 22, 3), *range(-21, 0, 3)])
@pytest.mark.sample(test=2)
def test_nothing_is_lost_or_doubled_on_s3_where_writers_are_killed(s3_server, die):
    place = s3_server.place(f"intents{die}")
    rows = pa.table({"id": pa.array([], pa.int64())})
    write_deltalake(place.uri, rows, storage_options=s3_server.options())
    kill_and_judge(place.uri, die, **s3_server.options())
