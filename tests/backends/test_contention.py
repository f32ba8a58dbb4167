"""Threads that write at once, and stores that lose requests and replies: nothing is lost, nothing is done twice."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from backends.tables import NOW, VECTORS, files, ids, numbers, objects, opened, write
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log import location
from refdelta.transaction import driver
from refdelta_storage import FaultyStore, open_store
from refdelta_storage.wrappers import Fault

THREADS = 6


def at_once(work):
    """Run ``work(number)`` in as many threads, all at the same time; what each gives."""
    meeting = threading.Barrier(THREADS, timeout=120)

    def run(number):
        meeting.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


@pytest.mark.sample(check=1)
def test_threads_that_append_lose_nothing(place):
    write(place, numbers())
    shared = opened(place)

    def append(number):
        """By a handle of all, by one of its own, and by none."""
        table = (shared, opened(place), place.uri)[number % 3]
        return [
            write_deltalake(table, numbers(10 * number + i), mode="append", storage_options=place.options).version
            for i in range(4)
        ]

    told = at_once(append)
    assert sorted(version for versions in told for version in versions) == list(range(1, 4 * THREADS + 1))
    assert all(versions == sorted(versions) for versions in told)
    assert ids(place) == [10 * number + i for number in range(THREADS) for i in range(4)]


@pytest.mark.tier("test")
@pytest.mark.sample(test=3)
def test_threads_that_change_different_rows_of_a_file_all_commit(place):
    write(place, numbers(*range(10 * THREADS)), configuration=VECTORS)

    def change(number):
        table, first = opened(place), 10 * number
        table.delete(f"id between {first} and {first + 2}")
        table.update({"v": "v + 1"}, predicate=f"id between {first + 3} and {first + 5}")
        if number == 0:
            table.optimize.compact(min_file_size=10**9)
        merging = table.merge(numbers(first + 6, 1000 + number, v=9), "s.id = t.id")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    at_once(change)
    table = opened(place).to_pyarrow_table()
    values = [None, None, None, 1, 1, 1, 9, 0, 0, 0]
    wanted = {i: values[i % 10] for i in range(10 * THREADS)} | {1000 + number: 9 for number in range(THREADS)}
    assert dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True)) == {
        i: v for i, v in wanted.items() if v is not None
    }
    assert table.num_rows == opened(place).count()


def test_of_threads_that_want_the_same_row_one_gets_it(place):
    write(place, numbers(1, 2), configuration=VECTORS)
    handles = [opened(place).begin() for _ in range(THREADS)]
    for number, txn in enumerate(handles):
        txn.update({"v": str(100 + number)}, predicate="id = 1")

    def commit(number):
        try:
            return handles[number].commit().version
        except errors.ConcurrentModificationError as error:
            return type(error).__name__

    told = Counter(at_once(commit))
    assert told[1] == 1
    assert told.keys() <= {1, "ConcurrentAppendException", "ConcurrentDeleteReadException"}
    assert ids(place) == [1, 2]
    assert len(ids(place, filters="v >= 100")) == 1


def test_one_of_the_threads_creates_the_table(place):
    def create(number):
        try:
            return write(place, numbers(number)).version
        except (errors.ProtocolChangedException, errors.TableAlreadyExistsError):
            return None

    (winner,) = [number for number, version in enumerate(at_once(create)) if version == 0]
    assert ids(place) == [winner]
    assert len(files(place)) == 1


# --- a store that is in trouble ---


@pytest.fixture
def faulty(place, monkeypatch):
    """``faulty(fault, ...)`` opens the table by a store with these faults; it says of the store what it did."""

    def through(*faults):
        store = FaultyStore(open_store(place.uri, place.options), faults, sleep=lambda _: None)
        with monkeypatch.context() as patch:
            patch.setattr(location, "open_store", lambda *_: store)
            return DeltaTable(place.uri), store

    write(place, numbers(*range(10)), configuration=VECTORS)
    return through


COMMITS = "_delta_log/*.json"


@pytest.mark.sample(check=8, test=12)
@pytest.mark.parametrize("kind", ["drop", "lose_reply", "exists", "late"])
@pytest.mark.parametrize("verb", ["append", "delete", "overwrite"])
def test_a_commit_whose_request_or_reply_is_lost_happens_once(place, faulty, kind, verb):
    table, store = faulty(Fault(kind, key=COMMITS, times=2 if kind in ("drop", "lose_reply") else 1))
    if verb == "delete":
        result, wanted = table.delete("id < 3"), list(range(3, 10))
    else:
        result = write_deltalake(table, numbers(50), mode=verb)
        wanted = [*range(10), 50] if verb == "append" else [50]
    store.land()
    assert store.injected
    assert (result.version, opened(place).version()) == (1, 1)
    assert ids(place) == wanted
    # What follows goes on from there.
    assert write_deltalake(table, numbers(60), mode="append").version == 2
    assert ids(place) == [*wanted, 60]


def test_a_commit_that_nobody_can_tell_of_says_how_to_find_out_and_keeps_its_files(place, faulty, monkeypatch):
    monkeypatch.setattr(driver.RetryPolicy, "delay", lambda *_, **__: 0.0)
    table, store = faulty(Fault("late", key=COMMITS, times=10**6, calls=10**6))
    with pytest.raises(errors.CommitOutcomeUnknownError, match=r"version 1\b") as caught:
        write_deltalake(table, numbers(50), mode="append")
    assert (opened(place).version(), ids(place)) == (0, list(range(10)))
    # One of the requests arrives after all: the version is whole.
    store.land()
    assert ids(place) == [*range(10), 50]
    (entry,) = opened(place).history(1)
    assert f'"txnId":"{entry["txnId"]}"' in str(caught.value)


@pytest.mark.parametrize("verb", ["write", "delete"])
def test_an_interrupt_while_a_commit_is_on_its_way_keeps_its_files(place, faulty, monkeypatch, verb):
    table, store = faulty()

    def interrupted(key, data):
        type(store).put_if_absent(store, key, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "put_if_absent", interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.delete("id = 0") if verb == "delete" else write_deltalake(table, numbers(50), mode="overwrite")
    assert ids(place) == (list(range(1, 10)) if verb == "delete" else [50])


@pytest.mark.parametrize("fault", [("open_output", "*.parquet"), ("put_if_absent", COMMITS)])
def test_a_write_that_the_store_refuses_leaves_nothing(place, faulty, fault):
    before = objects(place)
    table, _ = faulty(Fault("fail", *fault, times=10**6))
    for change in (
        lambda: table.update({"v": "1"}, predicate="id < 3"),
        lambda: write_deltalake(table, numbers(50), mode="append"),
    ):
        with pytest.raises(errors.StoreError, match="injected"):
            change()
        assert objects(place) == before
        assert ids(place) == list(range(10))


@pytest.mark.parametrize("key", ["*.parquet", "_delta_log/*"])
def test_a_read_that_the_store_refuses_says_so(place, faulty, key):
    table, store = faulty()
    store.faults, store._matched = [Fault("fail", "*", key=key, times=10**6)], [0]
    with pytest.raises(errors.StoreError, match="injected"):
        table.to_pyarrow_table() if key == "*.parquet" else table.update_incremental()
    store.faults = []
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(10))


def test_hooks_that_fail_do_not_fail_the_commit(place, faulty):
    table, store = faulty(
        Fault("fail", "put", times=10**6),
        Fault("fail", "put_if_absent", key="*.crc", times=10**6),
        Fault("fail", "open_output", key="*checkpoint*", times=10**6),
    )
    table.alter.set_table_properties({"delta.checkpointInterval": "2"})
    for number in range(20, 23):
        write_deltalake(table, numbers(number), mode="append")
    assert store.injected
    assert opened(place).version() == 4
    assert ids(place) == [*range(10), 20, 21, 22]
    assert not [key for key in objects(place) if "checkpoint" in key]


def test_leftovers_of_a_checkpoint_and_a_delete_that_failed_are_harmless(place, faulty):
    table, _ = faulty(Fault("lose_reply", "open_output", key="*checkpoint*"), Fault("fail", "delete", times=10**6))
    with pytest.raises(errors.DeltaError):
        table.create_checkpoint()
    lost = table.begin()
    lost.append(numbers(50))
    lost.abort()
    assert ids(place) == list(range(10))
    assert len(files(place)) == 2
    write(place, numbers(60), mode="append")
    opened(place).create_checkpoint()
    opened(place).vacuum(dry_run=False, full=True, **NOW)
    assert (ids(place), len(files(place))) == ([*range(10), 60], 2)
