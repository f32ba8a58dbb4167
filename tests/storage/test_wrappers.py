"""Wrappers: what they count, what they record, what they forbid, and the faults that they inject."""

import pickle

import pytest

import refdelta_storage
from refdelta_storage import (
    Committed,
    CountingStore,
    Exists,
    FaultyStore,
    LocalStore,
    MemoryStore,
    ObjectNotFoundError,
    ReadOnlyStore,
    ReadOnlyStoreError,
    StorageError,
    TracingStore,
    Unknown,
)
from refdelta_storage.wrappers import Fault


def everything(store):
    """Call each operation once."""
    store.put_if_absent("a", b"a")
    store.put("b", b"b")
    with store.open_output("c") as stream:
        stream.write(b"c")
    store.get("a")
    store.get_range("a", 0, 1)
    store.get_ranges("a", [(0, 1)])
    store.open_input("a").close()
    store.head("a")
    list(store.list("x", "y"))
    store.get_many(["a", "b"])
    store.local_path("a")
    store.delete(["a", "b"])
    list(store.leftovers())


OPERATIONS = ["put_if_absent", "put", "open_output", "get", "get_range", "get_ranges", "open_input"]
OPERATIONS += ["head", "list"]


def test_a_wrapper_has_the_authority_of_the_store_that_it_wraps():
    class Governed(MemoryStore):
        authority = "a catalog"

    assert MemoryStore().authority is None
    assert CountingStore(MemoryStore()).authority is None
    assert ReadOnlyStore(CountingStore(Governed())).authority == "a catalog"


def test_the_former_name_of_a_committed_put_warns():
    with pytest.warns(DeprecationWarning, match="use refdelta_storage.Committed"):
        former = refdelta_storage.Created
    assert isinstance(MemoryStore().put_if_absent("a", b"a"), former)


def test_counting():
    store = CountingStore(MemoryStore())
    everything(store)
    assert store.counts == dict.fromkeys([*OPERATIONS, "get_many", "local_path", "delete", "leftovers"], 1)
    assert store.total == 12
    copy = pickle.loads(pickle.dumps(store))
    copy.get("c")
    assert (copy.counts["get"], store.counts["get"]) == (2, 1)
    store.reset()
    assert store.total == 0
    with pytest.raises(ObjectNotFoundError):
        store.get("missing")
    assert store.counts == {"get": 1}


def test_tracing():
    store = TracingStore(MemoryStore())
    everything(store)
    assert store.calls == [
        *(zip(OPERATIONS, ["a", "b", "c", "a", "a", "a", "a", "a", "x"], strict=True)),
        ("get_many", "a"),
        ("get_many", "b"),
        ("local_path", "a"),
        ("delete", "a"),
        ("delete", "b"),
        ("leftovers", ""),
    ]


def test_read_only():
    inner = MemoryStore()
    inner.put("a", b"a")
    store = ReadOnlyStore(inner, "it is an archive")
    for write in (
        lambda: store.put_if_absent("b", b""),
        lambda: store.put("b", b""),
        lambda: store.open_output("b"),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(ReadOnlyStoreError, match="it is an archive"):
            write()
    assert (store.get("a"), store.head("a").size, [info.key for info in store.list()]) == (b"a", 1, ["a"])
    assert not store.capabilities.put_if_absent
    assert store.capabilities.list_after


class TestFaults:
    def test_a_request_that_is_dropped(self):
        store = FaultyStore(MemoryStore(), [Fault("drop")])
        assert isinstance(store.put_if_absent("k", b"1"), Unknown)
        assert list(store.list()) == []
        assert isinstance(store.put_if_absent("k", b"1"), Committed)
        assert store.injected == [("drop", "put_if_absent", "k")]

    def test_a_reply_that_is_lost(self):
        store = FaultyStore(MemoryStore(), [Fault("lose_reply")])
        outcome = store.put_if_absent("k", b"1")
        assert isinstance(outcome, Unknown)
        assert "reply was lost" in str(outcome.cause)
        assert store.get("k") == b"1"
        assert isinstance(store.put_if_absent("k", b"1"), Exists)

    def test_a_client_that_resends_on_its_own(self):
        store = FaultyStore(MemoryStore(), [Fault("exists")])
        assert isinstance(store.put_if_absent("k", b"ours"), Exists)
        assert store.get("k") == b"ours"

    def test_a_request_that_lands_late(self):
        store = FaultyStore(MemoryStore(), [Fault("late", calls=2)])
        assert isinstance(store.put_if_absent("k", b"late"), Unknown)
        for _ in range(2):
            with pytest.raises(ObjectNotFoundError):
                store.get("k")
        assert store.get("k") == b"late"

    def test_a_late_request_may_lose(self):
        store = FaultyStore(MemoryStore(), [Fault("late", key="a", calls=99), Fault("late", "put", calls=99)])
        assert isinstance(store.put_if_absent("a", b"late"), Unknown)
        with pytest.raises(StorageError, match="is late"):
            store.put("b", b"late")
        assert isinstance(store.put_if_absent("a", b"other"), Committed)
        store.land()
        assert store.get("a") == b"other"
        assert store.get("b") == b"late"
        store.put("b", b"later")
        store.land()
        assert store.get("b") == b"later"

    def test_a_refusal(self):
        store = FaultyStore(MemoryStore(), [Fault("fail")])
        with pytest.raises(StorageError, match="was refused"):
            store.put_if_absent("k", b"1")
        assert list(store.list()) == []

    def test_a_delay(self):
        slept = []
        store = FaultyStore(MemoryStore(), [Fault("delay", "*", seconds=2.5, times=2)], sleep=slept.append)
        assert isinstance(store.put_if_absent("k", b"1"), Committed)
        assert store.get("k") == b"1"
        assert store.get("k") == b"1"
        assert slept == [2.5, 2.5]

    @pytest.mark.parametrize("operation", [*OPERATIONS, "get_many", "delete"])
    @pytest.mark.parametrize("kind", ["drop", "lose_reply", "fail"])
    def test_every_operation_can_fail(self, operation, kind):
        inner = MemoryStore()
        inner.put("old", b"old")
        store = FaultyStore(inner, [Fault(kind, operation)])

        def stream():
            with store.open_output("new") as output:
                output.write(b"new")

        calls = {
            "put": lambda: store.put("new", b"new"),
            "put_if_absent": lambda: store.put_if_absent("new", b"new"),
            "open_output": stream,
            "get": lambda: store.get("old"),
            "get_range": lambda: store.get_range("old", 0, 1),
            "get_ranges": lambda: store.get_ranges("old", [(0, 1)]),
            "open_input": lambda: store.open_input("old"),
            "head": lambda: store.head("old"),
            "list": store.list,
            "get_many": lambda: store.get_many(["old"]),
            "delete": lambda: store.delete(["old"]),
        }
        if operation == "put_if_absent" and kind != "fail":
            assert isinstance(calls[operation](), Unknown)
        else:
            with pytest.raises(StorageError, match=r"injected|lost"):
                calls[operation]()
        done = kind == "lose_reply"
        assert ("new" in {info.key for info in inner.list()}) is (done and operation in OPERATIONS[:3])
        assert ("old" in {info.key for info in inner.list()}) is not (done and operation == "delete")
        calls[operation]()  # the fault was for one call

    def test_which_calls(self):
        store = FaultyStore(MemoryStore(), [Fault("fail", "put", key="log/*.json", skip=1, times=2)])
        told = []
        for key in ("log/1.json", "data", "log/2.json", "log/x", "log/3.json", "log/4.json"):
            try:
                store.put(key, b"")
            except StorageError:
                told.append(key)
        assert told == ["log/2.json", "log/3.json"]

    def test_the_first_fault_that_is_left_happens(self):
        store = FaultyStore(MemoryStore(), [Fault("fail"), Fault("lose_reply", skip=1)])
        with pytest.raises(StorageError):
            store.put_if_absent("a", b"")
        assert isinstance(store.put_if_absent("a", b""), Unknown)
        assert isinstance(store.put_if_absent("b", b""), Committed)

    def test_an_aborted_output_is_no_call(self):
        store = FaultyStore(MemoryStore(), [Fault("fail", "open_output")])
        with pytest.raises(ValueError, match="mine"), store.open_output("x"):
            raise ValueError("mine")
        with pytest.raises(StorageError), store.open_output("x") as stream:
            stream.write(b"x")
        assert list(store.list()) == []

    def test_native_readers_do_not_go_round_the_faults(self, tmp_path):
        inner = LocalStore(tmp_path)
        assert FaultyStore(inner, [Fault("fail", "open_input")]).local_path("x") is None
        assert FaultyStore(inner, [Fault("fail")]).local_path("x") == f"{tmp_path}/x"

    def test_nonsense_is_refused(self):
        with pytest.raises(ValueError, match="'exists' is for put_if_absent"):
            Fault("exists", "get")
        with pytest.raises(ValueError, match="'late' is for"):
            Fault("late", "get")
