"""A state machine that does the same to a store and to the one in memory; part of :mod:`refdelta_storage.testing`."""

# A contract asserts.
# ruff: noqa: S101

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refdelta_storage.base import Store
from refdelta_storage.errors import InvalidKeyError, ObjectNotFoundError, StorageError
from refdelta_storage.memory import MemoryStore

# Names of folders and of files in the state machine; none is both, so that folders can hold them.
_FOLDERS = ("a", "a-b", "a.b", "é", "_delta_log", "p=1 %")
_FILES = ("0", "0.json", "0-1", "ä", "x*", "_last", "00000000000000000010.json")


def state_machine(make: Callable[[], Store], discard: Callable[[Store], None] = lambda _store: None) -> type[Any]:  # noqa: C901
    """A hypothesis ``RuleBasedStateMachine`` that does the same to a new store and to one in memory, and compares.

    Run it with ``hypothesis.stateful.run_state_machine_as_test``, or take its ``TestCase``.

    Args:
        make: gives an empty store, for each run.
        discard: is called with the store after the run.
    """
    import hypothesis.strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, rule

    folders = st.lists(st.sampled_from(_FOLDERS), max_size=3)
    keys = st.builds(lambda folder, name: "/".join([*folder, name]), folders, st.sampled_from(_FILES))
    places = st.one_of(
        keys, st.just(""), folders.map("/".join), folders.map(lambda parts: "".join(f"{p}/" for p in parts))
    )
    data = st.binary(max_size=40)

    class StoreMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.store = MemoryStore(), make()

        def teardown(self) -> None:
            discard(self.store)

        def same(self, call: Callable[[Store], Any]) -> None:
            expected, found = outcome(call, self.model), outcome(call, self.store)
            assert found == expected, f"the store gives {found!r}, the model {expected!r}"

        def one_of_those_there(self, pick: int) -> str:
            there = [info.key for info in self.model.list()]
            return there[pick % len(there)] if there else ""

        @rule(key=keys, data=data)
        def put(self, key: str, data: bytes) -> None:
            self.same(lambda store: store.put(key, data))

        @rule(key=keys, data=data)
        def put_if_absent(self, key: str, data: bytes) -> None:
            self.same(lambda store: type(store.put_if_absent(key, data)))

        @rule(key=keys, chunks=st.lists(data, max_size=3), abort=st.booleans())
        def output(self, key: str, chunks: list[bytes], abort: bool) -> None:
            self.same(lambda store: _stream(store, key, chunks, abort=abort))

        @rule(key=keys)
        def read(self, key: str) -> None:
            self.same(lambda store: store.get(key))
            self.same(lambda store: store.head(key).size)
            self.same(lambda store: _read_stream(store, key))

        @rule(key=keys, start=st.integers(-1, 50), length=st.integers(-1, 50))
        def read_range(self, key: str, start: int, length: int) -> None:
            self.same(lambda store: store.get_range(key, start, length))

        @rule(key=keys, ranges=st.lists(st.tuples(st.integers(-1, 50), st.integers(-1, 50)), min_size=1, max_size=3))
        def read_ranges(self, key: str, ranges: list[tuple[int, int]]) -> None:
            self.same(lambda store: store.get_ranges(key, ranges))

        @rule(some=st.lists(keys, max_size=4))
        def read_many(self, some: list[str]) -> None:
            self.same(lambda store: store.get_many(some))

        @rule(some=st.lists(keys, max_size=4))
        def delete(self, some: list[str]) -> None:
            self.same(lambda store: store.delete(some))

        @rule(prefix=places, after=st.none() | places)
        def listing(self, prefix: str, after: str | None) -> None:
            self.same(lambda store: [(info.key, info.size) for info in store.list(prefix, after)])

        @rule(pick=st.integers(0, 30), start=st.integers(0, 5), length=st.integers(1, 10))
        def range_of_an_object(self, pick: int, start: int, length: int) -> None:
            key = self.one_of_those_there(pick)
            if key:
                self.same(lambda store: store.get_range(key, start, length))
                self.same(lambda store: store.get_ranges(key, [(start, length), (0, length)]))

        @rule(pick=st.integers(0, 30))
        def listing_after_an_object(self, pick: int) -> None:
            after = self.one_of_those_there(pick)
            self.same(lambda store: [info.key for info in store.list("", after)])
            self.same(lambda store: [info.key for info in store.list(after.rpartition("/")[0], after)])

        @rule()
        def everything(self) -> None:
            self.same(lambda store: [(info.key, info.size) for info in store.list()])

    return StoreMachine


def outcome(call: Callable[[Store], Any], store: Store) -> Any:
    """What a call gives, or which kind of error it raises: what two stores have to agree on."""
    try:
        return call(store)
    except (ObjectNotFoundError, InvalidKeyError) as error:
        return type(error)
    except StorageError:
        return StorageError


class _AbortedError(Exception):
    """Thrown by the state machine into its own blocks."""


def _read_stream(store: Store, key: str) -> bytes:
    with store.open_input(key) as stream:
        return stream.read()


def _stream(store: Store, key: str, chunks: Sequence[bytes], *, abort: bool) -> None:
    try:
        with store.open_output(key) as stream:
            for chunk in chunks:
                stream.write(chunk)
            if abort:
                raise _AbortedError  # noqa: TRY301 - an exception in the block is what is tried
    except _AbortedError:
        return
