"""The store in memory: who shares it with whom."""

import copy
import gc
import os
import pickle
import subprocess
import sys

import pytest

from refdelta_storage import MemoryStore, StorageError, open_store


def test_stores_of_one_name_share_their_objects():
    name = f"shared-{os.urandom(4).hex()}"
    MemoryStore(name).put("x", b"1")
    assert MemoryStore(name).get("x") == b"1"
    assert open_store(f"memory://{name}").get("x") == b"1"
    assert open_store(f"memory://{name}/").get("x") == b"1"
    assert list(MemoryStore(name + "-other").list()) == []
    assert MemoryStore(name).uri == f"memory://{name}"


def test_stores_without_a_name_share_nothing():
    one, two = MemoryStore(), MemoryStore()
    one.put("x", b"1")
    assert list(two.list()) == []
    assert one.uri != two.uri


@pytest.mark.parametrize("name", ["copied", None])
def test_copies_in_the_same_process_see_the_same(name):
    store = MemoryStore(name)
    for twin in (pickle.loads(pickle.dumps(store)), copy.copy(store), copy.deepcopy(store)):
        twin.put("x", os.urandom(3))
        assert store.get("x") == twin.get("x")


@pytest.mark.tier("test")
def test_a_copy_that_outlives_an_unnamed_store_says_so():
    pickled = pickle.dumps(MemoryStore())
    gc.collect()
    with pytest.raises(StorageError, match="another process"):
        list(pickle.loads(pickled).list())


def test_another_process_is_told_that_it_sees_nothing():
    store = MemoryStore("elsewhere")
    store.put("x", b"1")
    code = """
import pickle, sys
from refdelta_storage import StorageError
store = pickle.loads(bytes.fromhex(sys.argv[1]))
for call in (lambda: store.get("x"), lambda: list(store.list()), lambda: store.put("x", b""),
             lambda: store.put_if_absent("y", b""), lambda: store.delete(["x"]), lambda: store.head("x"),
             lambda: store.open_output("z").__enter__()):
    try:
        call()
        print("nothing was raised")
    except StorageError as error:
        print(error)
"""
    command = [sys.executable, "-c", code, pickle.dumps(store).hex()]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    assert lines == ["memory://elsewhere lives in the memory of another process"] * 7


def test_a_forked_child_is_told_too():
    store = MemoryStore("forked")
    store.put("x", b"1")
    pid = os.fork()
    if pid == 0:
        try:
            store.get("x")
        except StorageError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_data_is_copied_on_the_way_in():
    store, data = MemoryStore(), bytearray(b"before")
    store.put("x", data)
    data[:] = b"after!"
    assert store.get("x") == b"before"
