"""settle() waits for background work; a handle on a table that was made anew says so, or goes on with the new one."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import refdelta
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.transaction import background

ROW = pa.table({"id": pa.array([1], pa.int64())})
EVERY = {"delta.checkpointInterval": "1"}


@pytest.fixture
def gate():
    """Maintenance of the tables waits for it."""
    opened = threading.Event()
    yield opened
    opened.set()
    background.settle()


@pytest.mark.tier("test")
def test_a_folder_can_be_removed_after_it(maintenance_in_background):
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            write_deltalake(folder, ROW, configuration=EVERY)
            write_deltalake(folder, ROW, mode="append")
            assert refdelta.settle() is True
        assert not Path(folder).exists()


def test_it_waits_for_one_table_by_its_uri_and_by_its_folder(tmp_path, gate):
    write_deltalake(tmp_path / "a", ROW)
    write_deltalake(tmp_path / "b", ROW)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    table, other, link = (DeltaTable(tmp_path / name) for name in ("a", "b", "link"))
    background.run(table.store.uri, background.MAINTENANCE, lambda: None)
    background.run(table.store.uri, background.CHECKSUM, gate.wait)
    assert other.settle() is True
    assert table.settle(timeout=0.01) is link.settle(0.01) is refdelta.settle(0.01) is False
    gate.set()
    assert table.settle() is link.settle(timeout=30) is refdelta.settle() is True


@pytest.mark.parametrize("timeout", [-1, "1", float("nan"), True])
def test_a_timeout_is_a_number_of_seconds(tmp_path, timeout):
    with pytest.raises(errors.InvalidArgumentError, match="timeout must be a number of seconds"):
        refdelta.settle(timeout)
    write_deltalake(tmp_path, ROW)
    with pytest.raises(errors.InvalidArgumentError, match="timeout must be a number of seconds"):
        DeltaTable(tmp_path).settle(timeout)


def test_a_transaction_of_a_table_that_was_made_anew_fails_and_leaves_nothing(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, ROW)
    txn = DeltaTable(path).begin()
    txn.append(ROW)
    shutil.rmtree(path)
    deltalake.write_deltalake(str(path), pa.table({"id": [7]}))
    with pytest.raises(errors.CommitFailedError, match=r"the table was removed or replaced\. Nothing was committed"):
        txn.commit()
    assert sorted(file.name for file in (path / "_delta_log").iterdir() if file.is_file()) == [f"{0:020}.json"]


def test_a_handle_on_a_table_that_was_made_anew_goes_on_with_the_new_one(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, ROW)
    table = DeltaTable(path)
    shutil.rmtree(path)
    deltalake.write_deltalake(str(path), pa.table({"id": [7]}))
    table.update_incremental()
    assert table.to_pyarrow_table()["id"].to_pylist() == [7]
    shutil.rmtree(path)
    deltalake.write_deltalake(str(path), pa.table({"id": [8]}))
    write_deltalake(table, ROW, mode="append")
    assert sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist()) == [1, 8]
