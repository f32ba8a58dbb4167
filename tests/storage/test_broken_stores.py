"""The contract has teeth: stores that are broken on purpose fail it, each by the test that is meant for it."""

import dataclasses
import io
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from refdelta_storage import (
    Committed,
    Exists,
    LocalStore,
    MemoryStore,
    ObjectExistsError,
    StorageError,
    Store,
    Unknown,
)
from refdelta_storage.testing import StoreContract, assert_one_winner, state_machine
from refdelta_storage.wrappers import WrapperStore
from servers.running import S3_TEMPORARY
from waiting import GENEROUS

PART = 50
"""Fewer bytes than this are a part of an object."""


class Meeting:
    """Where the first writer of a key waits for the second one, so that both have looked before one of them writes."""

    def __init__(self):
        self._counts, self._changed = Counter(), threading.Condition()

    def wait(self, key):
        with self._changed:
            self._counts[key] += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._counts[key] > 1, GENEROUS)


class TwoWinners(WrapperStore):
    """A check, then a write: how fsspec's local file system does it."""

    def __init__(self, inner):
        super().__init__(inner)
        self.meeting = Meeting()

    def put_if_absent(self, key, data):
        if any(info.key == key for info in self.inner.list(key)):
            return Exists()
        self.meeting.wait(key)
        self.inner.put(key, data)
        return Committed()


class LastWins(WrapperStore):
    """The condition is ignored: how a server that does not know If-None-Match does it."""

    def put_if_absent(self, key, data):
        self.inner.put(key, data)
        return Committed()


class FirstWriterIsTold(WrapperStore):
    """One is told that it won, but another's bytes stay."""

    def put_if_absent(self, key, data):
        outcome = self.inner.put_if_absent(key, data)
        if isinstance(outcome, Exists):
            self.inner.put(key, data)
        return outcome


class Parts(WrapperStore):
    """A store that keeps a part of an object until one such part was seen. Parts are short, and objects are not."""

    def __init__(self, inner):
        super().__init__(inner)
        self._seen = threading.Event()

    def _look(self, *sizes):
        if min(sizes, default=PART) < PART:
            self._seen.set()

    def get(self, key):
        data = self.inner.get(key)
        self._look(len(data))
        return data

    def head(self, key):
        info = self.inner.head(key)
        self._look(info.size)
        return info

    def list(self, prefix="", after=None):
        found = [*self.inner.list(prefix, after)]
        self._look(*(info.size for info in found))
        return iter(found)

    def complete(self, key, data):
        """Make a part whole, once a part was seen."""
        assert self._seen.wait(GENEROUS)
        self.inner.put(key, data)


class Torn(Parts):
    """An exclusive open, then a write: readers see an empty object."""

    def put_if_absent(self, key, data):
        outcome = self.inner.put_if_absent(key, b"")
        if isinstance(outcome, Committed):
            self.complete(key, data)
        return outcome


class TornReplace(Parts):
    """Readers see the beginning of an object."""

    def put(self, key, data):
        self.inner.put(key, data[:10])
        self.complete(key, data)


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


class OneTag(WrapperStore):
    """A tag that is of the key, and not of the object."""

    def tag(self, info):
        return dataclasses.replace(info, tag=f"tag of {info.key}")

    def head(self, key):
        return self.tag(self.inner.head(key))

    def list(self, prefix="", after=None):
        return map(self.tag, self.inner.list(prefix, after))


class TagOfTheSize(OneTag):
    def tag(self, info):
        return dataclasses.replace(info, tag=info.size)


class QuotedTag(OneTag):
    """Quotation marks around the tag in a reply to HEAD, and none in a listing."""

    def head(self, key):
        info = self.inner.head(key)
        return dataclasses.replace(info, tag=f'"{info.tag}"')

    def list(self, prefix="", after=None):
        return (dataclasses.replace(info, tag=str(info.tag)) for info in self.inner.list(prefix, after))


class ReplacingOutput(WrapperStore):
    """Whatever has the key is replaced."""

    def create_output(self, key):
        return self.inner.open_output(key)


class EarlyLook(WrapperStore):
    """Only what is there when the block begins is not replaced."""

    @contextmanager
    def create_output(self, key):
        taken = any(info.key == key for info in self.inner.list(key))
        with self.inner.open_output(key) as stream:
            yield stream
            if taken:
                raise ObjectExistsError(key)


class LateLook(WrapperStore):
    """Two that look at once both write."""

    def __init__(self, inner):
        super().__init__(inner)
        self.meeting = Meeting()

    @contextmanager
    def create_output(self, key):
        stream = io.BytesIO()
        yield stream
        if any(info.key == key for info in self.inner.list(key)):
            raise ObjectExistsError(key)
        self.meeting.wait(key)
        self.inner.put(key, stream.getvalue())


class EarlyError(WrapperStore):
    """The error comes before the block, and not at its end."""

    def create_output(self, key):
        if any(info.key == key for info in self.inner.list(key)):
            raise ObjectExistsError(key)
        return self.inner.create_output(key)


class VisibleCreation(WrapperStore):
    """The key is taken by an empty object while it is written, and after an exception."""

    @contextmanager
    def create_output(self, key):
        outcome = self.inner.put_if_absent(key, b"")
        stream = io.BytesIO()
        yield stream
        if isinstance(outcome, Exists):
            raise ObjectExistsError(key)
        self.inner.put(key, stream.getvalue())


class DeletesByKey(WrapperStore):
    def delete_unchanged(self, infos):
        self.inner.delete([info.key for info in infos])


class DeletesManyByKey(WrapperStore):
    """Looks at a few objects only."""

    def delete_unchanged(self, infos):
        infos = [*infos]
        self.inner.delete_unchanged(infos) if len(infos) < 5 else self.inner.delete([info.key for info in infos])


class DeletesBySize(WrapperStore):
    def delete_unchanged(self, infos):
        sizes = {info.key: info.size for info in self.inner.list()}
        self.inner.delete([info.key for info in infos if sizes.get(info.key) == info.size])


class DeletesAllOrNothing(WrapperStore):
    """Where one object has changed, all stay."""

    def delete_unchanged(self, infos):
        infos, there = [*infos], [*self.inner.list()]
        if all(any(info.is_same(one) for one in there) for info in infos):
            self.inner.delete_unchanged(infos)


class PinsNothing(WrapperStore):
    """The view writes to whatever has the folder's path."""

    @contextmanager
    def pinned(self, folder):
        self.inner.head(f"{folder}/old")
        yield self.inner


class PinsWhatIsThere(WrapperStore):
    """As the one before, and into a folder that exists only."""

    @contextmanager
    def pinned(self, folder):
        self.inner.head(f"{folder}/old")
        yield IntoFolders(self.inner)


class IntoFolders(WrapperStore):
    def look(self, key):
        if not Path(self.inner.local_path(key)).parent.parent.exists():
            raise StorageError("no such folder")

    def put(self, key, data):
        self.look(key)
        self.inner.put(key, data)

    def put_if_absent(self, key, data):
        self.look(key)
        return self.inner.put_if_absent(key, data)

    def open_output(self, key):
        self.look(key)
        return self.inner.open_output(key)

    def create_output(self, key):
        self.look(key)
        return self.inner.create_output(key)


class PinsForWritesAlone(WrapperStore):
    """Deletes by path, whatever folder has it by now."""

    @contextmanager
    def pinned(self, folder):
        with self.inner.pinned(folder) as view:
            view.delete = self.inner.delete
            view.delete_unchanged = self.inner.delete_unchanged
            yield view


class PinsForStreamsByPath(WrapperStore):
    @contextmanager
    def pinned(self, folder):
        with self.inner.pinned(folder) as view:
            view.open_output = self.inner.open_output
            yield view


class ForgetsThePin(WrapperStore):
    """A wrapper as it was written before stores had pinned folders: what is inherited would know of no folder."""

    pinned = Store.pinned


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
        (OneTag, "test_another_content_of_a_key_has_another_tag"),
        (OneTag, "test_objects_that_are_as_they_were_are_deleted"),
        (TagOfTheSize, "test_another_content_of_a_key_has_another_tag"),
        (QuotedTag, "test_another_content_of_a_key_has_another_tag"),
        (QuotedTag, "test_objects_that_are_as_they_were_are_deleted"),
        (ReplacingOutput, "test_a_new_object_replaces_none"),
        (ReplacingOutput, "test_one_of_many_streams_creates_an_object"),
        (EarlyLook, "test_a_new_object_replaces_none"),
        (LateLook, "test_one_of_many_streams_creates_an_object"),
        (EarlyError, "test_a_new_object_replaces_none"),
        (VisibleCreation, "test_a_new_object_by_a_stream"),
        (VisibleCreation, "test_a_new_object_that_is_aborted_leaves_nothing"),
        (DeletesByKey, "test_objects_that_are_as_they_were_are_deleted"),
        (DeletesManyByKey, "test_objects_that_are_as_they_were_are_deleted"),
        (DeletesBySize, "test_objects_that_are_as_they_were_are_deleted"),
        (DeletesAllOrNothing, "test_objects_that_are_as_they_were_are_deleted"),
    ],
)
def test_a_broken_store_fails_the_contract(broken, test):
    contract = getattr(StoreContract(), test)
    contract(MemoryStore())  # it is the fault that fails, not the test
    with pytest.raises(AssertionError):
        contract(broken(MemoryStore()))


@pytest.mark.sample(check=3)
@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (PinsNothing, "test_a_pinned_folder_that_was_removed_is_not_made_again"),
        (PinsNothing, "test_what_goes_into_a_pinned_folder_goes_into_no_other"),
        (PinsWhatIsThere, "test_a_pinned_folder_that_was_removed_is_not_made_again"),
        (PinsWhatIsThere, "test_what_goes_into_a_pinned_folder_goes_into_no_other"),
        (PinsForWritesAlone, "test_what_goes_into_a_pinned_folder_goes_into_no_other"),
        (PinsForStreamsByPath, "test_a_pinned_folder_that_was_removed_is_not_made_again"),
        (PinsForStreamsByPath, "test_what_goes_into_a_pinned_folder_goes_into_no_other"),
        (ForgetsThePin, "test_a_folder_that_is_not_there_is_not_pinned"),
        (ForgetsThePin, "test_a_pinned_folder_that_was_removed_is_not_made_again"),
        (ForgetsThePin, "test_what_goes_into_a_pinned_folder_goes_into_no_other"),
    ],
)
def test_a_broken_store_in_folders_fails_the_contract(broken, test, tmp_path):
    contract = getattr(StoreContract(), test)
    contract(LocalStore(tmp_path / "good"))
    with pytest.raises(AssertionError):
        contract(broken(LocalStore(tmp_path / "broken")))


class ShownTemporaries(WrapperStore):
    """Lists a temporary name of the server beside each object, as while it is replaced."""

    def list(self, prefix="", after=None):
        for info in self.inner.list(prefix, after):
            folder, slash, name = info.key.rpartition("/")
            yield dataclasses.replace(info, key=f"{folder}{slash}.{name}.sgwtmp.1753900000000000000")
            yield info


def test_temporary_names_of_a_server_are_allowed_where_they_are_declared():
    contract = StoreContract()
    with pytest.raises(AssertionError, match=r"\.sgwtmp\."):
        contract.test_readers_never_see_a_part(ShownTemporaries(MemoryStore()))
    contract.foreign = S3_TEMPORARY
    contract.test_readers_never_see_a_part(ShownTemporaries(MemoryStore()))
    with pytest.raises(AssertionError, match=r"'torn/replaced' was"):
        contract.test_readers_never_see_a_part(TornReplace(MemoryStore()))
    with pytest.raises(AssertionError, match=r"\.part' was listed"):
        contract.test_readers_never_see_a_part(PartsBeside(MemoryStore()))


class PartsBeside(WrapperStore):
    """Lists a file of its own while it writes an object."""

    def list(self, prefix="", after=None):
        for info in self.inner.list(prefix, after):
            yield dataclasses.replace(info, key=f"{info.key}.part")
            yield info


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
@pytest.mark.parametrize(
    "broken", [LastWins, VisibleOutput, IncludesAfter, ShortRange, ReplacingOutput, VisibleCreation]
)
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
            [(b"a", Committed()), (b"b", Exists())],
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
            [(b"a", Committed()), (b"b", Committed())],
            [(b"a", Exists()), (b"b", Committed())],
            [(b"a", Exists()), (b"b", Exists())],
            [(b"c", Unknown()), (b"b", Unknown())],
            [(b"a", Unknown()), (b"b", Committed())],
        ],
    )
    def test_not_allowed(self, outcomes):
        with pytest.raises(AssertionError):
            assert_one_winner(self.store(b"a"), "k", outcomes)
