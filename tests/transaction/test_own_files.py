"""Since when VACUUM may delete the files that a transaction wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import write_deltalake
from refdelta.core.conflicts.reads import ReadSet
from refdelta.core.log.actions import Add, Cdc
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.transaction.transaction import Transaction
from refdelta_storage import LocalStore


def add(modified):
    return Add(path="a", partition_values={}, size=1, modification_time=modified, data_change=True)


@pytest.fixture
def txn(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    store = LocalStore(tmp_path)
    return Transaction(store, load_snapshot(store))


def since(txn):
    found = txn._with_own_files(ReadSet(version=0))
    return found.written_since, found.unowned_since


def test_a_transaction_that_wrote_nothing_rests_on_no_file(txn):
    assert since(txn) == (None, None)


def test_files_are_as_old_as_their_transaction(txn):
    txn.own_files([add(txn.started_ms + 5)])
    assert since(txn) == (txn.started_ms, None)
    txn.abort()


def test_files_that_tasks_wrote_before_it_began_are_older(txn):
    txn.own_files([add(txn.started_ms - 5), add(txn.started_ms - 7)])
    assert since(txn) == (txn.started_ms - 7, None)
    txn.abort()


def test_any_vacuum_takes_files_of_the_change_data_feed(txn):
    txn.own_files([Cdc(path="_change_data/c", partition_values={}, size=1, data_change=False)])
    assert since(txn) == (txn.started_ms, txn.started_ms)
    txn.abort()
