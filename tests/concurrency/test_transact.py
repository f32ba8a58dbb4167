"""``DeltaTable.transact``: a transaction is repeated after conflicts, and after nothing else."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pyarrow as pa
import pytest

from concurrency import counter
from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from refdelta.transaction.repeat import repeat


@pytest.fixture
def uri(tmp_path):
    counter.create(str(tmp_path / "t"), vectors=True)
    return str(tmp_path / "t")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch, request):
    if "paused" not in request.fixturenames:
        monkeypatch.setitem(repeat.__kwdefaults__, "sleep", lambda _: None)


@pytest.fixture
def paused():
    """Pauses are those of users."""


@pytest.mark.tier("test")
@pytest.mark.usefixtures("paused")
@pytest.mark.parametrize("vectors", [True, False])
def test_threads_lose_no_increase(tmp_path, vectors):
    uri = str(tmp_path / "t")
    counter.create(uri, vectors=vectors)
    with ThreadPoolExecutor(4) as pool:
        calls = list(pool.map(lambda _: counter.increase(uri, 4), range(4)))
    assert counter.value(uri) == 16
    assert DeltaTable(uri).version() == 16
    assert sum(calls) >= 16


@pytest.mark.usefixtures("paused")
@pytest.mark.tier("test")
def test_processes_lose_no_increase(uri):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, context) as pool:
        calls = list(pool.map(counter.increase, [uri] * 4, [8] * 4))
    assert counter.value(uri) == 32
    assert sum(calls) > 32, "processes that begin at once conflict"


def conflicting(uri, times):
    """A function that updates the row, of which another writer changes the same row this often in between."""
    seen = []

    def fn(txn):
        seen.append(txn.version)
        txn.update({"n": "n + 1"}, predicate="id = 1")
        if len(seen) <= times:
            DeltaTable(uri).update({"n": "n + 100"}, predicate="id = 1")

    return fn, seen


def test_each_attempt_sees_what_the_winners_wrote(uri):
    fn, seen = conflicting(uri, 2)
    table = DeltaTable(uri)
    result = table.transact(fn)
    assert seen == [0, 1, 2], "each attempt begins on the newest version"
    assert (result.version, table.version()) == (3, 3)
    assert counter.value(uri) == 201


def test_the_last_conflict_is_raised_and_leaves_nothing(uri):
    fn, seen = conflicting(uri, 99)
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        DeltaTable(uri).transact(fn, attempts=3)
    assert caught.value.conflict.version == 3
    assert seen == [0, 1, 2]
    assert counter.value(uri) == 300
    fn, seen = conflicting(uri, 1)
    with pytest.raises(errors.ConcurrentModificationError):
        DeltaTable(uri).transact(fn, attempts=1)
    assert len(seen) == 1


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"),
        KeyboardInterrupt(),
        errors.CommitRetriesExhaustedError("lost"),
        errors.CommitOutcomeUnknownError("no answer", 1, "id"),
        errors.StoreError("gone"),
    ],
)
def test_anything_else_is_raised_at_once(uri, error):
    calls = []

    def fn(txn):
        calls.append(txn)
        txn.append(pa.table({"id": [3], "n": [0]}))
        raise error

    with pytest.raises(type(error)):
        DeltaTable(uri).transact(fn)
    assert len(calls) == 1
    assert DeltaTable(uri).version() == 0
    with pytest.raises(errors.InvalidArgumentError, match="aborted"):
        calls[0].commit()


def test_the_options_are_those_of_every_attempt(uri):
    fn, seen = conflicting(uri, 1)
    properties = CommitProperties(user_metadata="counted")
    table = DeltaTable(uri)
    result = table.transact(fn, isolation="Serializable", commit_properties=properties, app_id="job", app_version=1)
    assert (len(seen), result.version) == (2, 2)
    (entry,) = table.history(1)
    assert (entry["isolationLevel"], entry["userMetadata"]) == ("Serializable", "counted")
    assert table.transact(fn, app_id="job", app_version=1).version is None, "recorded already"


def test_a_function_that_stages_nothing_commits_nothing(uri):
    assert DeltaTable(uri).transact(lambda _: None).version is None
    assert DeltaTable(uri).version() == 0


def test_misuse_is_refused(uri):
    table = DeltaTable(uri)
    with pytest.raises(errors.InvalidArgumentError, match="fn must be a function of a transaction, not of type str"):
        table.transact("id = 1")
    for attempts in (0, -1, None, 1.5, "3", True):
        with pytest.raises(errors.InvalidArgumentError, match="attempts"):
            table.transact(lambda _: None, attempts=attempts)
    with pytest.raises(TypeError, match="did you mean 'isolation'"):
        table.transact(lambda _: None, isolaton="Serializable")
    with pytest.raises(errors.InvalidArgumentError, match="isolation level"):
        table.transact(lambda _: None, isolation="snapshot")
    with pytest.raises(errors.InvalidArgumentError, match="committed already"):
        table.transact(lambda txn: txn.commit())
    with pytest.raises(errors.ReadOnlyTableError):
        DeltaTable(uri, version=0).transact(lambda _: None)


def test_pauses_grow_and_are_random():
    conflict = errors.ConcurrentAppendException("x", errors.ConflictDetails("files-added", 1, None))
    left, asked, slept = 15, [], []

    def work():
        nonlocal left
        left -= 1
        if left:
            raise conflict
        return "done"

    def uniform(low, high):
        asked.append((low, high))
        return high / 2

    assert repeat(work, attempts=15, sleep=slept.append, uniform=uniform) == "done"
    assert [low for low, _ in asked] == [0] * 14
    highs = [high for _, high in asked]
    assert highs[:4] == [0.01, 0.02, 0.04, 0.08]
    assert highs[-1] == 1.0 == max(highs)
    assert slept == [high / 2 for high in highs]


def test_a_write_of_another_table_may_be_part_of_it(uri, tmp_path):
    def fn(txn):
        txn.delete("id = 2")
        write_deltalake(tmp_path / "other", pa.table({"id": [2]}), mode="append")

    assert DeltaTable(uri).transact(fn).version == 1
