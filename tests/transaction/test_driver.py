"""The shell around the loop: real stores, faults, what a commit costs, and a race of processes.

Tests of core.commit.committer, engine.log.file_committer.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import multiprocessing
import threading
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from concurrency.appender import CREATE, QUICKLY, ROWS, append, prepare, race
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.core.commit.effects import Pause
from refdelta.core.log.actions import Add
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.file_committer import list_versions, read_commit
from refdelta.transaction.driver import RetryPolicy, commit, store_errors
from refdelta_storage import Exists, LocalStore, MemoryStore, ObjectNotFoundError, ReadOnlyStore, StorageError
from refdelta_storage.wrappers import CountingStore, Fault, FaultyStore, TracingStore
from tiers import budget, examples

QUICK = RetryPolicy(base_delay=0.0001, max_delay=0.001, max_repeats=4)


def table(versions: int = 1, store: MemoryStore | None = None) -> MemoryStore:
    store = store or MemoryStore()
    commit(store, prepare("creation", -1, CREATE))
    for version in range(versions - 1):
        append(store, f"origin-{version}", version)
    return store


def owners(store) -> list[str]:
    """The transaction ids of the log, in the order of versions, after a look that there is no gap."""
    versions = [*list_versions(store, -1)]
    assert versions == list(range(len(versions)))
    return [decode_commit(read_commit(store, version), str(version))[0].fields["txnId"] for version in versions]


class Remote(MemoryStore):
    """As if a request cost a round trip."""

    @property
    def capabilities(self):
        return dataclasses.replace(super().capabilities, remote=True)


def test_a_commit_that_is_not_contended_costs_one_put_and_a_look_at_its_base():
    store = CountingStore(table(store=Remote()))
    append(store, "a", 0)
    assert dict(store.counts) == {"put_if_absent": 1, "head": 1}
    store.reset()
    commit(store, prepare("b", 1), seen_at=100.0, clock=lambda: 130.0)
    assert dict(store.counts) == {"put_if_absent": 1}
    store.reset()
    commit(store, prepare("c", 2), seen_at=100.0, clock=lambda: 200.0)
    assert dict(store.counts) == {"put_if_absent": 1, "head": 1}


def test_a_stale_commit_lists_once_and_reads_its_winners_in_one_go():
    store = TracingStore(table(6, Remote()))
    outcome = append(store, "late", 0)
    assert (outcome.version, outcome.attempts, outcome.rebased_over) == (6, 2, (1, 2, 3, 4, 5))
    assert in_order(store) == ["head", "put_if_absent", "get", "list", *["get_many"] * 4, "get", "put_if_absent"]


@pytest.mark.parametrize(
    ("winners", "age", "calls"),
    [
        (1, 1.0, ["put_if_absent", "get", "get", "get", "put_if_absent"]),
        (2, 1.0, ["put_if_absent", "get", "get", "list", "get", "put_if_absent"]),
        (4, 1.0, ["put_if_absent", "get", "get", "list", "get_many", "get_many", "get", "put_if_absent"]),
        (1, 100.0, ["head", "put_if_absent", "get", "list", "get", "put_if_absent"]),
    ],
)
def test_who_was_up_to_date_a_moment_ago_asks_for_the_next_version(winners, age, calls):
    store = TracingStore(table(1 + winners, Remote()))
    outcome = commit(store, prepare("late", 0), seen_at=0.0, clock=lambda: age)
    assert outcome.rebased_over == tuple(range(1, 1 + winners))
    assert outcome.log == tuple(read_commit(store.inner, version) for version in range(1, 2 + winners))
    assert in_order(store) == calls


def in_order(store: TracingStore) -> list[str]:
    """The operations; of the last two, which run side by side, the read comes first."""
    *before, one, other = [operation for operation, _ in store.calls]
    return [*before, *sorted([one, other])]


def test_the_winner_and_the_next_version_are_read_side_by_side():
    class Pairs(Remote):
        """A request for one of these is answered when the others are requested, too."""

        all = threading.Barrier(2, timeout=120)
        wanted: frozenset[tuple[str, int]] = frozenset()

        def get(self, key):
            self._meet("get", key)
            return super().get(key)

        def put_if_absent(self, key, data):
            self._meet("put", key)
            return super().put_if_absent(key, data)

        def _meet(self, operation, key):
            if (operation, key) in self.wanted:
                self.wanted -= {(operation, key)}
                self.all.wait()

    store = Pairs()
    table(2, store)
    store.wanted = frozenset({("get", commit_key(1)), ("get", commit_key(2))})
    outcome = commit(store, prepare("late", 0), seen_at=0.0, clock=lambda: 1.0)
    assert (outcome.version, outcome.rebased_over, store.wanted) == (2, (1,), frozenset())


class Losing(TracingStore):
    """The transaction ``late`` loses each of these versions, by a put that comes just before its own."""

    def __init__(self, inner, versions):
        super().__init__(inner)
        self.versions = set(versions)
        self.won = {version: threading.Event() for version in versions}

    def put_if_absent(self, key, data):
        found = next((version for version in self.versions if key == commit_key(version) and b'"late"' in data), None)
        if found is not None:
            self.versions.remove(found)
            append(self.inner, f"winner-{found}", found - 1)
            self.won[found].set()
        return super().put_if_absent(key, data)

    def calls_after(self, version):
        """The calls after the put of a version."""
        return self.calls[self.calls.index(("put_if_absent", commit_key(version))) + 1 :]


class Beside(Losing):
    """A read of a version while it is put is carried out after the winner's put."""

    asked: ClassVar[list[str]] = []

    def get(self, key):
        self.asked = [*self.asked, key]
        if self.asked.count(key) == 2:
            self.won[3].wait(120)
        return super().get(key)


def test_a_transaction_that_lost_reads_a_version_while_it_puts_it():
    store = Beside(table(3, Remote()), {3})
    outcome = commit(store, prepare("late", 1), seen_at=0.0, clock=lambda: 1.0)
    assert (outcome.version, outcome.rebased_over, outcome.attempts) == (4, (2, 3), 3)
    assert outcome.log == tuple(read_commit(store.inner, version) for version in (2, 3, 4))
    # It lost version 2, and had read that version 3 was missing. Then each version is put and read once.
    assert sorted(store.calls_after(2)) == [
        *[("get", commit_key(version)) for version in (2, 3, 3, 4)],
        *[("put_if_absent", commit_key(version)) for version in (3, 4)],
    ]


def test_a_read_that_was_too_early_for_the_winner_is_repeated():
    class Early(Losing):
        def put_if_absent(self, key, data):
            if key == commit_key(3):
                early.wait(120)
            return super().put_if_absent(key, data)

        def get(self, key):
            try:
                return super().get(key)
            finally:
                if self.calls.count(("get", commit_key(3))) == 2:
                    early.set()

    early, store = threading.Event(), Early(table(3, Remote()), {3})
    outcome = commit(store, prepare("late", 1), seen_at=0.0, clock=lambda: 1.0)
    assert (outcome.version, outcome.rebased_over, outcome.attempts) == (4, (2, 3), 3)
    assert store.calls.count(("get", commit_key(3))) == 3


def test_trouble_with_a_read_beside_a_put_is_none_of_the_put():
    class Stubborn(Beside):
        """Fails when version 3 is read for the second time."""

        def get(self, key):
            found = super().get(key)
            if key == commit_key(3) and self.asked.count(key) == 2:
                raise StorageError("no answer")
            return found

    store = Stubborn(table(3, Remote()), {3})
    outcome = commit(store, prepare("late", 1), seen_at=0.0, clock=lambda: 1.0)
    assert (outcome.version, outcome.rebased_over, outcome.attempts) == (4, (2, 3), 3)
    assert store.asked.count(commit_key(3)) == 3


def test_a_read_beside_a_put_finds_our_own_commit():
    class Resent(Beside):
        """Carries out the put of version 3 and says that the version exists."""

        def put_if_absent(self, key, data):
            outcome = super().put_if_absent(key, data)
            if key == commit_key(3):
                self.won[3].set()
                return Exists()
            return outcome

    store = Resent(table(3, Remote()), ())
    store.won[3] = threading.Event()
    outcome = commit(store, prepare("late", 1), seen_at=0.0, clock=lambda: 1.0)
    assert (outcome.version, outcome.rebased_over, outcome.recovered) == (3, (2,), True)
    assert owners(store.inner)[3] == "late"


def test_a_pause_is_as_long_as_the_puts_of_the_older_transactions_take():
    class Slow(Remote):
        def put_if_absent(self, key, data):
            now[0] += 0.25
            return super().put_if_absent(key, data)

    now, slept = [1.0], []
    store = table(20, Slow())
    commit(store, structs.replace(prepare("old", 9), commit_info={"operation": "WRITE", "readVersion": 9}))
    commit(
        store,
        prepare("late", 19),
        policy=RetryPolicy(eager_losses=0),
        seen_at=1.0,
        clock=lambda: now[0],
        sleep=slept.append,
        uniform=max,
    )
    assert slept == [0.5]


def test_what_is_committed_during_a_pause_is_seen():
    store = table(2, Remote())

    def others_go_on(seconds):
        assert seconds > 0
        append(store, "meanwhile", 1)

    policy = RetryPolicy(eager_losses=0)
    outcome = commit(
        store, prepare("late", 0), policy=policy, seen_at=0.0, clock=lambda: 1.0, sleep=others_go_on, uniform=max
    )
    assert (outcome.version, outcome.rebased_over, outcome.attempts) == (3, (1, 2), 2)


def test_trouble_with_the_next_version_is_none_of_the_winner():
    class Stubborn(Remote):
        """Fails when the version behind the winner is read for the first time."""

        failed = False

        def get(self, key):
            if key == commit_key(2) and not self.failed:
                self.failed = True
                raise StorageError("no answer")
            return super().get(key)

    store = Stubborn()
    table(2, store)
    outcome = commit(store, prepare("late", 0), seen_at=0.0, clock=lambda: 1.0)
    assert (outcome.version, outcome.rebased_over, outcome.attempts) == (2, (1,), 2)
    assert store.failed


def test_creating_a_table_costs_a_listing_and_a_put():
    store = CountingStore(MemoryStore())
    commit(store, prepare("creation", -1, CREATE))
    assert dict(store.counts) == {"list": 1, "put_if_absent": 1}


def test_of_two_creators_one_is_told_who_was_first():
    store = table()
    with pytest.raises(errors.ProtocolChangedException) as caught:
        commit(store, prepare("second", -1, CREATE))
    assert (caught.value.conflict.rule, caught.value.conflict.version) == ("table-created", 0)


def test_a_stale_handle_does_not_revive_a_version_that_was_cleaned_up():
    store = table(6)
    store.delete([commit_key(version) for version in range(4)])
    with pytest.raises(errors.CommitFailedError, match="no longer in the log"):
        append(store, "stale", 1)
    assert [*list_versions(store, -1)] == [4, 5]


def test_a_process_that_slept_past_a_cleanup_withdraws_its_file():
    store, now = table(6), [0.0]

    class Suspended(TracingStore):
        def put_if_absent(self, key, data):
            store.delete([commit_key(version) for version in range(4)])
            now[0] += 3600.0
            return super().put_if_absent(key, data)

    with pytest.raises(errors.CommitFailedError, match="was withdrawn"):
        commit(Suspended(store), prepare("stale", 1), clock=lambda: now[0])
    assert [*list_versions(store, -1)] == [4, 5]


def test_such_a_file_is_withdrawn_after_a_lost_version_and_a_lost_reply_too():
    now = [0.0]

    class Suspended(Beside):
        """The put of version 3 is carried out an hour later, and sent again."""

        def put_if_absent(self, key, data):
            if key != commit_key(3):
                return super().put_if_absent(key, data)
            for version in range(3, 8):
                append(self.inner, f"meanwhile-{version}", version - 1)
            self.delete([commit_key(version) for version in range(6)])
            now[0] += 3600.0
            super().put_if_absent(key, data)
            self.won[3].set()
            return Exists()

    store = Suspended(table(3, Remote()), ())
    store.won[3] = threading.Event()
    # By the replies alone, the first of both requests may have made a version, which was cleaned up.
    with pytest.raises(errors.CommitOutcomeUnknownError, match="its put was repeated"):
        commit(store, prepare("late", 1), seen_at=0.0, clock=lambda: now[0])
    assert [*list_versions(store.inner, -1)] == [6, 7]


@pytest.mark.parametrize("kind", ["drop", "lose_reply", "exists", "late"])
def test_each_fault_of_a_put_is_survived_without_doubling(kind):
    inner = table()
    store = FaultyStore(inner, [Fault(kind)])
    outcome = append(store, "a", 0, QUICK)
    store.land()
    assert store.injected
    assert outcome.version == 1
    assert owners(inner) == ["creation", "a"]


@examples(60)
@given(data=st.data())
def test_faults_at_random(data):
    kinds = st.sampled_from(["drop", "lose_reply", "exists", "late"])
    faults = [
        Fault(kind, skip=skip, calls=1 + skip % 4)
        for skip, kind in data.draw(st.dictionaries(st.integers(0, 8), kinds, max_size=3)).items()
    ]
    faults += [
        Fault("fail", operation=operation, skip=skip)
        for operation, skip in data.draw(
            st.sets(st.tuples(st.sampled_from(["get", "get_many", "list"]), st.integers(0, 3)), max_size=2)
        )
    ]
    inner = table(2)
    store = FaultyStore(inner, faults)
    landed = {name: append(store, name, data.draw(st.integers(0, 1)), QUICK).version for name in "abcd"}
    store.land()
    in_log = owners(inner)
    assert sorted(in_log) == sorted(["creation", "origin-0", *"abcd"])
    assert all(in_log[version] == name for name, version in landed.items())


def test_a_store_that_never_answers_leaves_the_outcome_unknown():
    store = FaultyStore(table(), [Fault("drop", times=100)])
    with pytest.raises(errors.CommitOutcomeUnknownError):
        append(store, "a", 0, QUICK)


def test_a_store_that_refuses_is_the_error_and_nothing_was_written():
    inner = table()
    with pytest.raises(errors.StoreError, match=r"cannot commit: .* was refused"):
        append(FaultyStore(inner, [Fault("fail")]), "a", 0)
    with pytest.raises(errors.StoreError, match="read-only"):
        append(ReadOnlyStore(inner), "a", 0)
    assert owners(inner) == ["creation"]


def test_listings_that_miss_versions_do_not_mislead():
    inner = table(6)

    class Behind(TracingStore):
        def list(self, prefix="", after=None):
            return (info for info in super().list(prefix, after) if info.key not in {commit_key(2), commit_key(3)})

    assert append(Behind(inner), "late", 0).rebased_over == (1, 2, 3, 4, 5)


def test_waiting_is_random_grows_and_is_bounded():
    policy = RetryPolicy(base_delay=1.0, max_delay=10.0, eager_losses=2)
    longest = [policy.delay(Pause(count, "lost"), lambda _low, high: high) for count in (1, 2, 3, 4, 5, 6, 7, 5000)]
    assert longest == [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert policy.delay(Pause(1, "undecided"), lambda low, _high: low) == 0.0
    # A store of this machine is through with the others' commits in milliseconds.
    assert policy.delay(Pause(9, "lost"), lambda _low, high: high, nearby=True) == 0.1
    assert policy.delay(Pause(9, "undecided"), lambda _low, high: high, nearby=True) == 10.0
    # Over a network, older transactions go first, and those of about the same age do not wait.
    ages = [policy.delay(Pause(9, "lost", one), lambda _low, high: high, put_seconds=0.25) for one in (0, 8, 10, 100)]
    assert ages == [0.0, 0.0, 0.5, 10.0]
    assert policy.delay(Pause(2, "lost", 10), lambda _low, high: high, put_seconds=0.25) == 0.0
    assert policy.delay(Pause(9, "lost", 10), lambda _low, high: high, put_seconds=0.25, nearby=True) == 0.1
    slept: list[float] = []
    store = FaultyStore(table(), [Fault("drop", times=2)])
    commit(store, prepare("a", 0), policy=policy, sleep=slept.append, uniform=lambda _low, high: high)
    assert slept == [1.0, 2.0]


def test_errors_of_a_store_become_ours_and_keep_their_cause():
    with pytest.raises(errors.StoreError, match="cannot read the log: gone") as caught, store_errors("read the log"):
        raise ObjectNotFoundError("gone")
    assert isinstance(caught.value.__cause__, ObjectNotFoundError)


# --- races ----------------------------------------------------------------------------------------------------------


def test_threads_lose_nothing():
    store = table()

    def work(thread: int) -> list[tuple[str, int]]:
        return [(f"{thread}-{n}", append(store, f"{thread}-{n}", 0).version) for n in range(10)]

    with ThreadPoolExecutor(8) as pool:
        landed = [entry for entries in pool.map(work, range(8)) for entry in entries]
    in_log = owners(store)
    assert len(in_log) == 81
    assert all(in_log[version] == name for name, version in landed)


@pytest.mark.tier("test")
@pytest.mark.parametrize("winners", [0, 2])
def test_the_snapshot_before_a_commit_does_not_wait_for_the_collector_of_cycles(tmp_path, winners):
    rows = pa.table([[1], [1]], schema=ROWS)
    write_deltalake(tmp_path, rows)
    table = DeltaTable(tmp_path, storage_options=QUICKLY)
    for _ in range(2):
        seen = []
        gc.collect()
        gc.disable()
        try:
            with table.begin() as txn:
                seen.append(weakref.ref(txn._transaction.existing))
                for _ in range(winners):
                    write_deltalake(tmp_path, rows, mode="append", storage_options=QUICKLY)
                txn.append(rows)
                txn.commit()
            del txn
            assert [one() for one in seen] == [None]
        finally:
            gc.enable()
    assert table.version() == 2 * (1 + winners)


@pytest.mark.tier("test")
def test_processes_lose_nothing_and_double_nothing(tmp_path):
    """2,000 appends of rows by ten processes are 2,000 versions, each of the row whose writer was told so."""
    processes, appends = 10, budget(200)
    uri = str(tmp_path / "table")
    write_deltalake(uri, ROWS.empty_table(), storage_options=QUICKLY)
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(race, uri, number, appends) for number in range(processes)]
        told = [future.result() for future in running]
    wanted = [(process, number) for process in range(processes) for number in range(appends)]
    assert sorted(version for versions in told for version in versions) == list(range(1, len(wanted) + 1))
    assert all(versions == sorted(versions) for versions in told)
    store = LocalStore(uri)
    assert len(set(owners(store))) == 1 + len(wanted)
    # The row of each version, by the statistics of its one file.
    for process, number in wanted:
        version = told[process][number]
        (add,) = (a for a in decode_commit(read_commit(store, version), str(version)) if isinstance(a, Add))
        assert json.loads(add.stats)["maxValues"] == {"process": process, "number": number}
    table = DeltaTable(uri).to_pyarrow_table()
    assert sorted(zip(table["process"].to_pylist(), table["number"].to_pylist(), strict=True)) == wanted
