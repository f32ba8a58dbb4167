"""Transactions that are older than a VACUUM: deletion vectors of commits in between do not exist any more."""

from __future__ import annotations

import pytest

from refdelta import DeltaTable, errors, write_deltalake
from written_tables import id_rows, ids_of

NOW = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}


def vector_files(path):
    return sorted(file.name for file in path.glob("deletion_vector_*.bin"))


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "t"
    write_deltalake(where, id_rows(*range(20)), configuration={"delta.enableDeletionVectors": "true"})
    return where


def delete(path, *values):
    for value in values:
        DeltaTable(path).delete(f"id = {value}")


def vacuum(path, *, left):
    DeltaTable(path).vacuum(**NOW)
    assert len(vector_files(path)) == left


def test_a_delete_passes_winners_whose_vectors_were_replaced_and_removed(path):
    delete(path, 1)
    txn = DeltaTable(path).begin()
    txn.delete("id = 2")
    delete(path, 3, 4, 5)
    vacuum(path, left=1)
    assert txn.commit().rebased_over[:3] == (2, 3, 4)
    assert ids_of(path) == [0, *range(6, 20)]


@pytest.mark.tier("test")
def test_a_delete_of_a_row_that_any_of_them_removed_is_a_conflict(path):
    delete(path, 1)
    for value in (3, 4, 5):
        txn = DeltaTable(path).begin()
        txn.delete(f"id = {value}")
        delete(path, value, value + 10, value + 13)
        vacuum(path, left=1)
        with pytest.raises(errors.ConcurrentDeleteReadException) as caught:
            txn.commit()
        assert caught.value.conflict.rows == 1


def test_an_append_after_a_read_passes_too(path):
    delete(path, 1)
    txn = DeltaTable(path).begin()
    txn.append(txn.read(predicate="id < 3"))
    delete(path, 3, 4)
    vacuum(path, left=1)
    txn.commit()
    assert ids_of(path) == [0, 0, 2, 2, *range(5, 20)]


def test_a_compaction_passes_too_and_keeps_the_rows_deleted(path):
    write_deltalake(path, id_rows(*range(20, 30)), mode="append")
    delete(path, 1)
    txn = DeltaTable(path).begin()
    txn.compact()
    delete(path, 3, 4)
    vacuum(path, left=1)
    txn.commit()
    assert len(DeltaTable(path).files()) == 1
    assert ids_of(path) == [0, 2, *range(5, 30)]


def test_a_delete_follows_its_rows_into_a_compaction_whose_inputs_were_removed(path):
    write_deltalake(path, id_rows(*range(20, 30)), mode="append")
    delete(path, 1)
    txn = DeltaTable(path).begin()
    txn.delete("id = 2")
    DeltaTable(path).optimize.compact()
    vacuum(path, left=0)
    txn.commit()
    assert ids_of(path) == [0, *range(3, 30)]


@pytest.mark.parametrize("end", ["restored", "compacted"])
def test_what_no_vector_can_tell_is_a_conflict_and_not_a_missing_file(path, end):
    write_deltalake(path, id_rows(*range(20, 30)), mode="append")
    delete(path, 1)
    version = DeltaTable(path).version()
    txn = DeltaTable(path).begin()
    txn.delete("id = 2")
    delete(path, 3, 4)
    if end == "restored":
        DeltaTable(path).restore(version)
    else:
        DeltaTable(path).optimize.compact()
    vacuum(path, left=int(end == "restored"))
    with pytest.raises(errors.ConcurrentDeleteReadException, match="Repeat the operation") as caught:
        txn.commit()
    assert any("VACUUM has removed deletion vectors" in reason for reason in caught.value.conflict.fallbacks)
    assert 2 in ids_of(path)


def test_a_restore_whose_own_vector_was_replaced_is_a_conflict(path):
    delete(path, 1)
    version = DeltaTable(path).version()
    delete(path, 3)
    txn = DeltaTable(path).begin()
    assert txn.read(predicate="id = 3").num_rows == 0
    txn.append(id_rows(100))
    DeltaTable(path).restore(version)
    delete(path, 5)
    vacuum(path, left=1)
    with pytest.raises(errors.ConcurrentModificationError):
        txn.commit()
    assert 100 not in ids_of(path)


def test_the_newest_vector_that_is_missing_is_a_damaged_table_and_said_so(path):
    txn = DeltaTable(path).begin()
    txn.delete("id = 2")
    delete(path, 3, 4)
    for name in vector_files(path):
        (path / name).unlink()
    with pytest.raises(errors.DataFileNotFoundError, match="deletion vector"):
        txn.commit()
