"""Every store against the contract, and against the store in memory."""

import pickle
import shutil
import tempfile
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
