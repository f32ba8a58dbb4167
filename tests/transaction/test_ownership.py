"""The files of an open transaction: no copy of it owns them, and they go when it is dropped."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings

import pyarrow as pa
import pytest

import forks
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.transaction.transaction import Transaction
from refdelta_storage import LocalStore

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def path(tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    return tmp_path / "t"


def data_files(path):
    return {file.name for file in path.glob("*.parquet")}


# --- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps, lambda one: copy.deepcopy({"a": [one]})])
@pytest.mark.parametrize("public", [True, False])
def test_a_transaction_cannot_be_copied(path, copied, public):
    store = LocalStore(path)
    with DeltaTable(path).begin() if public else Transaction(store, load_snapshot(store)) as txn:
        if public:
            txn.append(ROWS)
        with pytest.raises(errors.NotCopyableError, match=r"two copies would own the same files.*begin one in each"):
            copied(txn)
        assert issubclass(errors.NotCopyableError, TypeError)
        if public:
            txn.commit()
    assert DeltaTable(path).count() == (6 if public else 3)


# --- forked children -------------------------------------------------------------------------------------------------


def refused(call):
    try:
        call()
    except errors.InvalidArgumentError as error:
        return "of which this one is a fork; begin a transaction here" in str(error)
    return False


def in_block(txn):
    with txn:
        pass


def dropped(txns):
    txns.clear()
    gc.collect()


IN_CHILD = {
    "commit": lambda txns: refused(txns[0].commit),
    "append": lambda txns: refused(lambda: txns[0].append(ROWS)),
    "read": lambda txns: refused(txns[0].read),
    "delete": lambda txns: refused(lambda: txns[0].delete("id = 1")),
    "abort": lambda txns: txns[0].abort() is None,
    "end of a block": lambda txns: in_block(txns[0]) is None,
    "garbage": lambda txns: dropped(txns) is None,
}


@pytest.mark.tier("test")
@pytest.mark.parametrize("does", IN_CHILD)
def test_a_forked_child_leaves_the_transaction_of_its_parent_alone(path, does):
    forks.alone(_fork_beside_a_transaction, path, does)


def _fork_beside_a_transaction(path, does):
    txns = [DeltaTable(path).begin()]
    txns[0].append(ROWS)
    before = data_files(path)
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if IN_CHILD[does](txns) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert data_files(path) == before
    assert DeltaTable(path).version() == 0
    txns[0].commit()
    assert DeltaTable(path).count() == 6


@pytest.mark.tier("test")
def test_a_child_of_multiprocessing_leaves_it_alone(path):
    forks.alone(_fork_by_multiprocessing, path)
    assert DeltaTable(path).count() == 6


def _fork_by_multiprocessing(path):
    with DeltaTable(path).begin() as txn:
        txn.append(ROWS)
        child = multiprocessing.get_context("fork").Process(target=_drop_all, args=([txn],))
        child.start()
        child.join()
        assert child.exitcode == 0
        txn.commit()


def _drop_all(txns):
    assert refused(txns[0].commit)
    dropped(txns)


@pytest.mark.tier("test")
def test_a_child_begins_its_own(path):
    forks.alone(_write_in_a_child, path)
    assert DeltaTable(path).count() == 6


def _write_in_a_child(path):
    child = os.fork()
    if not child:
        code = 1
        try:
            write_deltalake(path, ROWS, mode="append")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- garbage ---------------------------------------------------------------------------------------------------------


@pytest.mark.tier("test")
@pytest.mark.parametrize("circle", [False, True])
def test_a_dropped_transaction_removes_its_files(path, circle):
    before = data_files(path)
    txn = DeltaTable(path).begin()
    txn.append(ROWS)
    assert data_files(path) > before
    txns = [txn]
    if circle:
        txn.itself = txn
    del txn
    place = r"began at .*test_ownership\.py:\d+ and was dropped without"
    with pytest.warns(ResourceWarning, match=f"a transaction on file://{path} {place}"):
        dropped(txns)
    assert data_files(path) == before
    assert DeltaTable(path).version() == 0


@pytest.mark.tier("test")
def test_in_memory_too():
    write_deltalake("memory://dropped", ROWS)
    txns = [DeltaTable("memory://dropped").begin()]
    txns[0].append(ROWS)
    store = txns[0]._transaction.store
    with pytest.warns(ResourceWarning, match="its 1 files are removed"):
        dropped(txns)
    assert sum(info.key.endswith(".parquet") for info in store.list()) == 1


@pytest.mark.tier("test")
@pytest.mark.parametrize("does", ["nothing", "reads", "deletes", "commits", "aborts", "conflicts", "leaves a block"])
def test_no_warning_without_files_or_after_an_end(path, does):
    txn = DeltaTable(path).begin()
    match does:
        case "reads":
            txn.read()
        case "deletes":
            txn.set_table_properties({"mine": "1"})
        case "commits":
            txn.append(ROWS)
            txn.commit()
        case "aborts":
            txn.append(ROWS)
            txn.abort()
        case "conflicts":
            txn.update({"id": "4"})
            write_deltalake(path, ROWS, mode="overwrite")
            with pytest.raises(errors.ConcurrentModificationError):
                txn.commit()
        case "leaves a block":
            with txn:
                txn.append(ROWS)
    left = data_files(path)
    with warnings.catch_warnings(action="error"):
        del txn
        gc.collect()
    assert data_files(path) == left


@pytest.mark.tier("test")
@pytest.mark.parametrize("forked", [False, True])
def test_the_end_of_a_process(path, forked):
    code = f"""
import os, sys, pyarrow as pa
from refdelta import DeltaTable
txn = DeltaTable({str(path)!r}).begin()
txn.append(pa.table({{"id": [4]}}))
if {forked}:
    if os.fork():
        os.wait()
        print(len([name for name in os.listdir({str(path)!r}) if name.endswith(".parquet")]))
        txn.commit()
    sys.exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", code], capture_output=True, text=True, check=True
    )
    assert ("was dropped without commit() or abort()" in done.stderr) is not forked, done.stderr
    assert len(data_files(path)) == (2 if forked else 1)
    assert DeltaTable(path).count() == (4 if forked else 3)
