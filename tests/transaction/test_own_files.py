"""Since when VACUUM may delete the files that a transaction wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
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
    found = txn._with_own_files(txn.reads)
    return found.written_since, found.unowned_since


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


def test_a_commit_without_files_goes_by(tmp_path, txn):
    txn.describe("SET TBLPROPERTIES", {}, {}, always=True)
    DeltaTable(tmp_path).delete()
    DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert txn.commit().version == 4
