"""The contract has teeth: stores that are broken on purpose fail it, each by the test that is meant for it."""

import io
import time
from contextlib import contextmanager

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from refdelta_storage import Created, Exists, MemoryStore, Unknown
from refdelta_storage.testing import StoreContract, assert_one_winner, state_machine
from refdelta_storage.wrappers import WrapperStore


class TwoWinners(WrapperStore):
    """A check, then a write: how fsspec's local file system does it."""

    def put_if_absent(self, key, data):
        if any(info.key == key for info in self.inner.list(key)):
            return Exists()
        time.sleep(0.002)
        self.inner.put(key, data)
        return Created()


class LastWins(WrapperStore):
    """The condition is ignored: how a server that does not know If-None-Match does it."""

    def put_if_absent(self, key, data):
        self.inner.put(key, data)
        return Created()


class FirstWriterIsTold(WrapperStore):
    """One is told that it won, but another's bytes stay."""

    def put_if_absent(self, key, data):
        outcome = self.inner.put_if_absent(key, data)
        if isinstance(outcome, Exists):
            self.inner.put(key, data)
        return outcome


class Torn(WrapperStore):
    """An exclusive open, then writes: readers see an empty object, and half of one."""

    def put_if_absent(self, key, data):
        outcome = self.inner.put_if_absent(key, b"")
        if isinstance(outcome, Created):
            for half in (data[: len(data) // 2], data):
                time.sleep(0.002)
                self.inner.put(key, half)
        return outcome


class TornReplace(WrapperStore):
    def put(self, key, data):
        self.inner.put(key, data[:10])
        time.sleep(0.002)
        self.inner.put(key, data)


class VisibleOutput(WrapperStore):
    """A stream whose object is there from the start, and stays after an exception."""

    @contextmanager
    def open_output(self, key):
        stream = io.BytesIO()
        self.inner.put(key, b"")
        try:
            yield stream
        finally:
            self.inner.put(key, stream.getvalue())


class PathOrder(WrapperStore):
    """Lists as a walk over sorted folders does: "a/b" before "a-b"."""

    def list(self, prefix="", after=None):
        return iter(sorted(self.inner.list(prefix, after), key=lambda info: info.key.split("/")))


class CodeUnitOrder(WrapperStore):
    """Sorts by UTF-16, as Java and JavaScript do: "😀" before U+FFEE."""

    def list(self, prefix="", after=None):
        return iter(sorted(self.inner.list(prefix, after), key=lambda info: info.key.encode("utf-16-be")))


class IncludesAfter(WrapperStore):
    def list(self, prefix="", after=None):
        return (info for info in self.inner.list(prefix) if after is None or info.key.encode() >= after.encode())


class PatternDelete(WrapperStore):
    """Takes keys for patterns, as fsspec's `rm` does."""

    def delete(self, keys):
        import fnmatch

        for key in list(keys):
            self.inner.delete([info.key for info in self.inner.list() if fnmatch.fnmatchcase(info.key, key)])


class ShortRange(WrapperStore):
    def get_range(self, key, start, length):
        return self.inner.get_range(key, start, max(0, length - 1))


class SortedRanges(WrapperStore):
    def get_ranges(self, key, ranges):
        return self.inner.get_ranges(key, sorted(ranges))


class UnsortedMany(WrapperStore):
    def get_many(self, keys):
        return self.inner.get_many(sorted(keys))


@pytest.mark.sample(check=6)
@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (TwoWinners, "test_one_of_many_writers_wins"),
        (LastWins, "test_one_of_many_writers_wins"),
        (LastWins, "test_put_if_absent_creates_once"),
        (FirstWriterIsTold, "test_one_of_many_writers_wins"),
        (Torn, "test_readers_never_see_a_part"),
        (TornReplace, "test_readers_never_see_a_part"),
        (VisibleOutput, "test_an_output_appears_when_it_is_finished"),
        (VisibleOutput, "test_an_aborted_output_leaves_nothing"),
        (PathOrder, "test_listings_are_in_the_order_of_bytes"),
        (CodeUnitOrder, "test_listings_are_in_the_order_of_bytes"),
        (IncludesAfter, "test_listings_after_a_key_and_under_a_prefix"),
        (PatternDelete, "test_delete_in_bulk"),
        (ShortRange, "test_ranges"),
        (SortedRanges, "test_several_ranges_come_in_their_order"),
        (UnsortedMany, "test_get_many_keeps_the_order"),
    ],
)
def test_a_broken_store_fails_the_contract(broken, test):
    contract = getattr(StoreContract(), test)
    contract(MemoryStore())  # it is the fault that fails, not the test
    with pytest.raises(AssertionError):
        contract(broken(MemoryStore()))


@pytest.mark.sample(check=1)
@pytest.mark.parametrize("broken", [LastWins, VisibleOutput, IncludesAfter, ShortRange])
def test_the_state_machine_finds_a_broken_store(broken):
    machine = state_machine(lambda: broken(MemoryStore()))
    # Found is enough: the smallest example is for people.
    settings = hypothesis.settings(
        max_examples=300, deadline=None, phases=[hypothesis.Phase.generate], database=None, derandomize=True
    )
    with pytest.raises(AssertionError, match="the model"):
        run_state_machine_as_test(machine, settings=settings)


class TestTheRulesOfARace:
    """What outcomes go with what content."""

    def store(self, content):
        store = MemoryStore()
        store.put("k", content)
        return store

    @pytest.mark.parametrize(
        "outcomes",
        [
            [(b"a", Created()), (b"b", Exists())],
            [(b"a", Unknown()), (b"b", Exists())],
            [(b"a", Unknown()), (b"b", Unknown())],
            [(b"a", Exists()), (b"b", Unknown())],
        ],
    )
    def test_allowed(self, outcomes):
        assert_one_winner(self.store(b"a"), "k", outcomes)

    @pytest.mark.parametrize(
        "outcomes",
        [
            [(b"a", Created()), (b"b", Created())],
            [(b"a", Exists()), (b"b", Created())],
            [(b"a", Exists()), (b"b", Exists())],
            [(b"c", Unknown()), (b"b", Unknown())],
            [(b"a", Unknown()), (b"b", Created())],
        ],
    )
    def test_not_allowed(self, outcomes):
        with pytest.raises(AssertionError):
            assert_one_winner(self.store(b"a"), "k", outcomes)
