"""Threads that commit together: each call has its own outcome, and what was acknowledged is there once.

Tests of api.group_commit.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, verify, write_deltalake
from refdelta.core.log.paths import commit_key
from refdelta.engine.parquet.dv import VectorLoader
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    ConcurrentDeleteReadException,
    InvalidArgumentError,
    ReadOnlyTableError,
    SchemaMismatchError,
    StoreError,
)
from refdelta_storage import Committed, Exists, LocalStore, Unknown
from waiting import until

ROWS = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "v": pa.array([0, 0, 0, 0], pa.int64())})


class HeldStore(LocalStore):
    """A folder whose puts into the log wait until they are let go, so that a group forms behind them."""

    def __init__(self, path):
        super().__init__(path)
        self.open = threading.Event()
        self.open.set()
        self.arrived = threading.Event()
        self.outcomes: list[object] = []
        self.puts: list[str] = []

    def put_if_absent(self, key, data):
        if not key.endswith(".json") or not key.startswith("_delta_log/0"):
            return super().put_if_absent(key, data)
        self.arrived.set()
        self.puts.append(key)
        assert self.open.wait(120)
        if not self.outcomes:
            return super().put_if_absent(key, data)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome == "lost":
            super().put_if_absent(key, data)
            return Unknown(TimeoutError("no reply"))
        return outcome


@pytest.fixture
def store(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration={"delta.enableDeletionVectors": "true"})
    return HeldStore(tmp_path)


@pytest.fixture
def table(store):
    return DeltaTable.in_store(store)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([1] * len(ids), pa.int64())})


def behind_a_put(group, store, *calls):
    """Run calls so that the first one's version is being put when the others commit. Returns what each returned or
    raised.
    """
    store.open.clear()
    store.arrived.clear()
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(calls[0])]
        assert store.arrived.wait(120)
        for call in calls[1:]:
            before = len(group._group._queue)
            futures.append(pool.submit(call))
            until(lambda before=before: len(group._group._queue) > before or futures[-1].done())
        store.open.set()
        return [future.exception() or future.result() for future in futures]


def test_those_that_commit_during_a_put_share_the_next_version(table, store):
    with table.group_commit() as group:
        found = behind_a_put(group, store, *[lambda n=n: group.append(rows(10 + n)) for n in range(4)])
    assert [(one.version, one.member) for one in found] == [(1, None), (2, 0), (2, 1), (2, 2)]
    assert found[1].metrics["num_added_rows"] == 1
    assert table.version() == 2
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 10, 11, 12, 13]
    info = table.history(1)[0]
    assert [one["operation"] for one in info["members"]] == ["WRITE"] * 3
    assert info["operationMetrics"]["numOutputRows"] == "3"


def test_those_that_began_before_a_version_of_their_group_try_the_one_after_it(table, store):
    """They have read the version before it: a put of its number would be lost for certain, and cost a round trip."""
    with table.group_commit() as group:
        found = behind_a_put(group, store, *[lambda n=n: group.append(rows(10 + n)) for n in range(4)])
    assert store.puts == [commit_key(1), commit_key(2)]
    assert [(one.attempts, one.rebased_over) for one in found] == [(1, ()), *[(1, (1,))] * 3]


def test_vectors_of_the_group_s_own_versions_are_not_read_again(table, store, monkeypatch):
    """Each of those that wait compares its rows with the version before: a request each, over a network."""
    reads = []
    load = VectorLoader.load
    monkeypatch.setattr(VectorLoader, "load", lambda loader, one: [reads.append(one), load(loader, one)][1])
    with table.group_commit() as group:
        calls = [lambda n=n: group.transact(lambda txn: txn.delete(f"id = {n}")) for n in range(1, 4)]
        assert [one.version for one in behind_a_put(group, store, *calls)] == [1, 2, 2]
    assert reads == []
    assert table.to_pyarrow_table()["id"].to_pylist() == [4]


def test_one_that_conflicts_fails_alone(table, store):
    with table.group_commit() as group:
        found = behind_a_put(
            group,
            store,
            lambda: group.append(rows(9)),
            lambda: group.transact(lambda txn: txn.delete("id = 1"), attempts=1),
            lambda: group.transact(lambda txn: txn.update({"v": "v + 1"}, predicate="id = 1"), attempts=1),
            lambda: group.transact(lambda txn: txn.update({"v": "v + 7"}, predicate="id = 2"), attempts=1),
        )
    assert [getattr(one, "version", None) for one in found] == [1, 2, None, 2]
    assert isinstance(found[2], ConcurrentDeleteReadException)
    winner = found[2].conflict.winner
    assert (winner.version, winner.member, winner.operation, winner.predicate) == (2, 0, "DELETE", "id = 1L")
    assert dict(zip(*(column.to_pylist() for column in table.to_pyarrow_table().columns), strict=True)) == {
        2: 7, 3: 0, 4: 0, 9: 1,
    }  # fmt: skip


def test_transact_repeats_after_a_conflict_with_an_earlier_member(table, store):
    with table.group_commit() as group:
        found = behind_a_put(
            group,
            store,
            lambda: group.append(rows(9)),
            *[lambda: group.transact(lambda txn: txn.update({"v": "v + 1"}, predicate="id = 1"))] * 3,
        )
    assert sorted(one.version for one in found) == [1, 2, 3, 4]
    assert table.to_pyarrow_table(filters="id = 1")["v"].to_pylist() == [3]


def test_a_single_writer_waits_for_no_other(table):
    with table.group_commit(max_wait_ms=60_000) as group:
        assert [group.append(rows(n)).member for n in range(10, 13)] == [None] * 3


def test_what_changes_the_schema_goes_alone(table, store):
    with table.group_commit() as group:
        found = behind_a_put(
            group,
            store,
            lambda: group.append(rows(9)),
            lambda: group.transact(lambda txn: txn.set_table_properties({"delta.appendOnly": "false"})),
            lambda: group.append(rows(10)),
        )
    assert [getattr(one, "member", one) for one in found] == [None, None, None]
    assert sorted(one.version for one in found) == [1, 2, 3]


def test_a_lost_reply_is_settled_for_each(table, store):
    store.outcomes = [Committed(), "lost"]
    store.outcomes = ["lost", "lost"]
    with table.group_commit() as group:
        found = behind_a_put(group, store, *[lambda n=n: group.append(rows(10 + n)) for n in range(3)])
    assert [(one.version, one.member) for one in found] == [(1, None), (2, 0), (2, 1)]
    assert table.count() == 7


def test_a_put_that_fails_leaves_nothing_of_its_members(table, store, tmp_path):
    store.outcomes = [StoreError("no room")]
    with table.group_commit() as group:
        with pytest.raises(StoreError, match="no room"):
            group.append(rows(9))
        files = {path.name for path in tmp_path.glob("*.parquet")}
        assert len(files) == 1
        assert group.append(rows(9)).version == 1


def test_an_outcome_that_stays_unknown_is_so_for_each_member(table, store, tmp_path, monkeypatch):
    from refdelta.core.commit import budget

    monkeypatch.setattr(budget.Limits, "__post_init__", lambda self: None)
    with table.group_commit() as group:
        real = store.get

        def get(key):
            if key.endswith("1.json"):
                raise StoreError("away")
            return real(key)

        monkeypatch.setattr(store, "get", get)
        monkeypatch.setattr("refdelta.transaction.driver.RetryPolicy.delay", lambda *_, **__: 0.0)
        store.outcomes = [Unknown(None)] * 20
        with pytest.raises(CommitOutcomeUnknownError) as error:
            group.append(rows(9))
    assert error.value.uri == store.uri
    assert len(list(tmp_path.glob("*.parquet"))) == 2  # the files stay


def test_an_interrupted_leader_leaves_nobody_waiting(table, store):
    store.outcomes = [KeyboardInterrupt()]
    with table.group_commit() as group:
        found = behind_a_put(group, store, *[lambda n=n: group.append(rows(10 + n)) for n in range(3)])
    assert isinstance(found[0], KeyboardInterrupt)
    assert [one.version for one in found[1:]] == [1, 1]


def test_commits_of_others_come_between(table, store, tmp_path):
    with table.group_commit() as group:
        group.append(rows(9))
        write_deltalake(tmp_path, rows(20), mode="append")
        result = group.append(rows(10))
        assert (result.version, result.rebased_over) == (3, (2,))
        write_deltalake(tmp_path, rows(21), mode="append")
        assert group.transact(lambda txn: txn.append(txn.read(predicate="id = 21"))).rebased_over == ()
    assert table.count() == 4 + 2 + 2 + 1


@pytest.mark.parametrize("versions", [1, 3, 5, 9])
@pytest.mark.parametrize("looked", [False, True])
def test_a_transaction_that_began_on_a_table_which_was_replaced_is_not_in_the_new_one(tmp_path, versions, looked):
    """Whether the new one has fewer versions or more, and whether another call of the group has seen it already."""
    uri = tmp_path / "t"
    write_deltalake(uri, rows(0))
    with DeltaTable(uri).group_commit() as group:
        for number in (1, 2, 3):
            group.append(rows(number))

        def late(txn):
            txn.append(rows(4))
            shutil.rmtree(uri)
            for number in range(versions):
                write_deltalake(uri, rows(100 + number), mode="append")
            if looked:
                group.append(rows(200))

        with pytest.raises(CommitFailedError):
            group.transact(late, attempts=1)
        assert group.append(rows(300)).version == versions + looked
    expected = [*range(100, 100 + versions), *[200] * looked, 300]
    assert sorted(DeltaTable(uri).to_pyarrow_table()["id"].to_pylist()) == expected


def test_deletion_vectors_that_no_version_names_are_removed(table, store, tmp_path):
    with table.group_commit() as group:
        behind_a_put(
            group,
            store,
            lambda: group.append(rows(9)),
            *[lambda n=n: group.transact(lambda txn: txn.delete(f"id = {n}")) for n in (1, 2, 3)],
        )
    assert len(list(tmp_path.glob("deletion_vector*"))) <= 1
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["id"].to_pylist()) == [4, 9]
    assert not verify(tmp_path).findings


def test_rows_that_do_not_fit_are_refused(table):
    with table.group_commit() as group, pytest.raises(SchemaMismatchError):
        group.append(pa.table({"other": [1]}))
    assert table.version() == 0


def test_limits_of_retries_of_its_own_commit_alone(table):
    with table.group_commit() as group:
        result = group.append(rows(9), commit_properties=CommitProperties(max_commit_retries=0))
    assert (result.version, result.member) == (1, None)


def test_submit_and_await(table):
    async def main():
        async with table.group_commit() as group:
            found = await asyncio.gather(*(group.append_async(rows(10 + n)) for n in range(8)))
            found.append(await group.transact_async(lambda txn: txn.delete("id = 1")))
            found.append(group.submit(lambda txn: txn.append(rows(30))).result())
        return found

    found = asyncio.run(main())
    assert len({(one.version, one.member) for one in found}) == 10
    assert table.count() == 4 + 8 - 1 + 1


@pytest.mark.tier("test")
def test_many_threads(table, tmp_path):
    """Each call is in the table once, under random statements of sixteen threads."""

    def work(group, number):
        for turn in range(6):
            group.append(rows(100 + 10 * number + turn))
        group.transact(lambda txn: txn.delete(f"id = {100 + 10 * number}"))
        group.transact(lambda txn: txn.update({"v": "v + 1"}, predicate=f"id = {101 + 10 * number}"))

    with table.group_commit(max_transactions=5) as group, ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: work(group, number), range(16)))
    found = DeltaTable(tmp_path).to_pyarrow_table(filters="id >= 100")
    assert sorted(found["id"].to_pylist()) == [100 + 10 * n + turn for n in range(16) for turn in range(1, 6)]
    assert sorted(found["v"].to_pylist()) == [1] * 64 + [2] * 16
    assert not verify(tmp_path).findings


# --- misuse ---------------------------------------------------------------------------------------------------------


def test_after_its_end(table):
    group = table.group_commit()
    group.close()
    group.close()
    for call in (lambda: group.append(rows(9)), lambda: group.submit(lambda txn: txn.append(rows(9))).result()):
        with pytest.raises(InvalidArgumentError, match=r"the group has ended"):
            call()
    assert table.version() == 0


def test_in_a_fork(table):
    with table.group_commit() as group:
        child = os.fork()
        if not child:
            try:
                group.append(rows(9))
            except InvalidArgumentError:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    "given", [{"max_transactions": 0}, {"max_transactions": "8"}, {"max_wait_ms": -1}, {"max_wait_ms": None}]
)
def test_arguments(table, given):
    with pytest.raises(InvalidArgumentError):
        table.group_commit(**given)


def test_a_pinned_handle(table):
    with pytest.raises(ReadOnlyTableError):
        DeltaTable(table.table_uri, version=0).group_commit()


def test_versions_that_others_took_are_lost_and_tried_again(table, store, tmp_path):
    class Racing(HeldStore):
        def put_if_absent(self, key, data):
            if key.endswith("1.json") and not self.raced:
                self.raced = True
                write_deltalake(tmp_path, rows(50), mode="append")
            return super().put_if_absent(key, data)

    racing = Racing(tmp_path)
    racing.raced = False
    with DeltaTable.in_store(racing).group_commit() as group:
        found = behind_a_put(group, racing, *[lambda n=n: group.append(rows(10 + n)) for n in range(3)])
    assert found[0].version == 2
    assert found[0].rebased_over == (1,)
    assert {one.version for one in found[1:]} == {3}
    assert isinstance(racing.put_if_absent("_delta_log/00000000000000000003.json", b""), Exists)


@pytest.mark.tier("test")
def test_the_handle_sees_what_it_was_told(table):
    """When a call returns, its version is there for the next read of the handle."""

    def work(group, number):
        for turn in range(5):
            version = group.append(rows(100 + 10 * number + turn)).version
            assert table.version() >= version
            assert group.transact(lambda txn: txn.delete("id = 1")).version is None

    table.delete("id = 1")
    with table.group_commit() as group, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: work(group, number), range(8)))


def test_a_store_that_cannot_commit(table, store, monkeypatch):
    with table.group_commit() as group:
        cannot = dataclasses.replace(store.capabilities, put_if_absent=False)
        monkeypatch.setattr(type(store), "capabilities", cannot)
        with pytest.raises(StoreError, match="cannot commit"):
            group.append(rows(9))
