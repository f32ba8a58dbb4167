"""Every store against the contract, and against the store in memory.

Tests of refdelta_storage.base, refdelta_storage.streams, refdelta_storage.testing.
"""

import dataclasses
import pickle
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from refdelta_storage import (
    Capabilities,
    CountingStore,
    FaultyStore,
    FsspecStore,
    LocalStore,
    MemoryStore,
    TracingStore,
)
from refdelta_storage import local as local_module
from refdelta_storage.testing import StoreContract, state_machine
from refdelta_storage.wrappers import WrapperStore
from tiers import examples

SAFE = Capabilities(put_if_absent=True, list_after=False, durable=False, remote=True)


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "not yet there")

    def test_nothing_temporary_is_left_by_any_of_it(self, store, tmp_path):
        self.test_one_of_many_writers_wins(store)
        self.test_an_aborted_output_leaves_nothing(LocalStore(tmp_path / "b"))
        self.test_readers_never_see_a_part(LocalStore(tmp_path / "c"))
        assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


class TestLocalStoreWithoutSync(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path, fsync=False)


class TestLocalStoreWithoutHardLinks(StoreContract):
    """The exclusive rename of the kernel, as on file systems that refuse links."""

    @pytest.fixture
    def store(self, tmp_path, monkeypatch):
        def refuse(*_args, **_kwargs):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(local_module.os, "link", refuse)
        return LocalStore(tmp_path, fsync=False)


class Below(WrapperStore):
    """One folder of a store, and all that is in it, as a store."""

    def __init__(self, inner, folder):
        super().__init__(inner)
        self.folder = f"{folder}/"

    def _up(self, infos):
        return [dataclasses.replace(info, key=f"{self.folder}{info.key}") for info in infos]

    def _down(self, infos):
        return [dataclasses.replace(info, key=info.key.removeprefix(self.folder)) for info in infos]

    def put_if_absent(self, key, data):
        return self.inner.put_if_absent(self.folder + key, data)

    def put(self, key, data):
        self.inner.put(self.folder + key, data)

    def open_output(self, key):
        return self.inner.open_output(self.folder + key)

    def create_output(self, key):
        return self.inner.create_output(self.folder + key)

    def get(self, key):
        return self.inner.get(self.folder + key)

    def get_range(self, key, start, length):
        return self.inner.get_range(self.folder + key, start, length)

    def get_ranges(self, key, ranges):
        return self.inner.get_ranges(self.folder + key, ranges)

    def open_input(self, key, size=None):
        return self.inner.open_input(self.folder + key, size)

    def head(self, key):
        return self._down([self.inner.head(self.folder + key)])[0]

    def list(self, prefix="", after=None):
        return iter(self._down(self.inner.list(self.folder + prefix, after and self.folder + after)))

    def leftovers(self):
        return iter(self._down(self.inner.leftovers()))

    def delete(self, keys):
        self.inner.delete([self.folder + key for key in keys])

    def delete_unchanged(self, infos):
        self.inner.delete_unchanged(self._up(infos))

    def get_many(self, keys):
        return self.inner.get_many([self.folder + key for key in keys])

    def local_path(self, key):
        return self.inner.local_path(self.folder + key)

    @contextmanager
    def pinned(self, folder):
        with self.inner.pinned(self.folder + folder) as inner:
            yield Below(inner, self.folder.rstrip("/"))

    def remove_empty(self, folder):
        self.inner.remove_empty(self.folder + folder)


class TestPinnedFolder(StoreContract):
    """The view of a folder by its descriptor, as a store of its own."""

    @pytest.fixture
    def store(self, tmp_path):
        (tmp_path / "log").mkdir()
        with LocalStore(tmp_path).pinned("log") as view:
            yield Below(view, "log")

    def test_a_pickled_store_is_the_same_place(self, store):
        with pytest.raises(TypeError, match="cannot be pickled: it is for one block of one process"):
            pickle.dumps(store)


class TestPinnedFolderWithoutHardLinks(TestPinnedFolder):
    @pytest.fixture
    def store(self, tmp_path, monkeypatch):
        def refuse(*_args, **_kwargs):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(local_module.os, "link", refuse)
        (tmp_path / "log").mkdir()
        with LocalStore(tmp_path, fsync=False).pinned("log") as view:
            yield Below(view, "log")


class TestMemoryStore(StoreContract):
    flat = True

    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestFsspecStore(StoreContract):
    @pytest.fixture
    def store(self, honest):
        return FsspecStore(honest, "/bucket/table", "honest://bucket/table", SAFE)

    def test_a_pickled_store_is_the_same_place(self, store):
        # The file system of this test lives in its instance, so the copy has other objects.
        copy = pickle.loads(pickle.dumps(store))
        assert (copy.uri, copy.capabilities) == (store.uri, store.capabilities)


class TestWrappers(StoreContract):
    flat = True

    @pytest.fixture
    def store(self):
        return CountingStore(TracingStore(FaultyStore(MemoryStore())))


def local():
    return LocalStore(tempfile.mkdtemp(prefix="refdelta-test-"), fsync=False)


def discard(store):
    shutil.rmtree(Path(store.local_path("x")).parent)


@pytest.mark.tier("test")
@pytest.mark.parametrize("which", ["local", "fsspec", "wrapped"])
def test_does_the_same_as_the_store_in_memory(which, honest):
    makers = {
        "local": (local, discard),
        "fsspec": (lambda: FsspecStore(type(honest)(), "/t", "honest://t", SAFE), lambda _store: None),
        "wrapped": (lambda: CountingStore(FaultyStore(MemoryStore())), lambda _store: None),
    }
    run_state_machine_as_test(
        state_machine(*makers[which]),
        settings=examples(40, stateful_step_count=25),
    )


def test_capabilities_are_stated(tmp_path):
    assert LocalStore(tmp_path).capabilities == Capabilities(True, False, True, False)
    assert LocalStore(tmp_path, fsync=False).capabilities.durable is False
    assert MemoryStore().capabilities == Capabilities(True, True, False, False)
