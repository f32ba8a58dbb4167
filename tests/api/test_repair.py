"""REPAIR: entries of data files that are gone leave the table."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, write_deltalake
from written_tables import ids_of

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["a", "b", "b c"]})


@pytest.fixture
def place(tmp_path):
    write_deltalake(tmp_path / "t", ROWS, partition_by=["p"])
    return tmp_path / "t"


def lose(place, name):
    (path,) = place.glob(f"p={name}/*.parquet")
    path.unlink()
    return str(path.relative_to(place))


def test_entries_of_missing_files_leave_the_table(place):
    gone = [lose(place, "b"), lose(place, "b c")]
    with pytest.raises(errors.DataFileNotFoundError):
        ids_of(place)
    result = DeltaTable(place).repair(commit_properties=CommitProperties(user_metadata="lost"))
    assert (result.version, result["dry_run"], sorted(result["files_removed"])) == (1, False, sorted(gone))
    assert ids_of(place) == [1]
    (commit,) = DeltaTable(place).history(1)
    assert (commit["operation"], commit["userMetadata"]) == ("FSCK", "lost")
    lines = [json.loads(line) for line in (place / "_delta_log" / f"{1:020}.json").read_text().splitlines()]
    assert all(line["remove"]["dataChange"] for line in lines if "remove" in line)


def test_a_dry_run_only_lists_them(place):
    gone = lose(place, "b")
    result = DeltaTable(place).repair(dry_run=True)
    assert (result.version, result["files_removed"]) == (None, [gone])
    assert DeltaTable(place).version() == 0


def test_a_whole_table_gets_no_commit(place):
    result = DeltaTable(place).repair()
    assert (result.version, result["files_removed"]) == (None, [])
    assert DeltaTable(place).version() == 0


def test_rows_of_an_append_only_table_are_not_given_up(place):
    DeltaTable(place).alter.set_table_properties({"delta.appendOnly": "true"})
    gone = lose(place, "a")
    with pytest.raises(errors.ConstraintViolationError, match="append-only"):
        DeltaTable(place).repair()
    assert DeltaTable(place).repair(dry_run=True)["files_removed"] == [gone]


@pytest.mark.parametrize("vectors", [False, True])
def test_a_concurrent_removal_of_the_file_conflicts(place, vectors):
    DeltaTable(place).alter.set_table_properties({"delta.enableDeletionVectors": str(vectors).lower()})
    lose(place, "b")
    txn = DeltaTable(place).begin()
    txn.repair()
    DeltaTable(place).delete("p = 'b'")
    with pytest.raises(errors.ConcurrentModificationError):
        txn.commit()


def test_concurrent_appends_and_other_files_do_not_conflict(place):
    lose(place, "b")
    with DeltaTable(place).begin() as txn:
        txn.repair()
        write_deltalake(place, ROWS.slice(0, 1), mode="append")
        DeltaTable(place).delete("p = 'b c'")
        assert txn.commit().version == 3
    assert ids_of(place) == [1, 1]
