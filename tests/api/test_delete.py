"""DELETE: SQL's three-valued logic, copy on write, and what the commit says."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.errors import ConstraintViolationError, PredicateError
from written_tables import actions, with_vector


def held(path, column="id"):
    return sorted(DeltaTable(path).to_pyarrow_table().column(column).to_pylist(), key=lambda v: (v is None, v))


@pytest.fixture
def path(tmp_path):
    """Three files: 1 2 3, 4 5 null, 7 8 9."""
    where = tmp_path / "t"
    for values in ([1, 2, 3], [4, 5, None], [7, 8, 9]):
        write_deltalake(where, pa.table({"id": pa.array(values, pa.int64())}), mode="append")
    return where


def test_only_files_with_rows_that_go_are_touched(path):
    result = DeltaTable(path).delete("id >= 3 AND id < 5")
    assert held(path) == [1, 2, 5, 7, 8, 9, None]
    assert result.version == 3
    wanted = {"num_removed_files": 2, "num_added_files": 1, "num_deleted_rows": 2, "num_copied_rows": 4}
    assert {name: result[name] for name in wanted} == wanted
    removes, adds = actions(path, 3, "remove"), actions(path, 3, "add")
    assert (len(removes), len(adds)) == (2, 1)
    assert all(remove["dataChange"] and remove["extendedFileMetadata"] for remove in removes)
    assert json.loads(adds[0]["stats"])["numRecords"] == 4


def test_a_file_whose_rows_all_go_is_removed_and_not_written_anew(path):
    result = DeltaTable(path).delete("id > 6")
    assert (result["num_removed_files"], result["num_added_files"], result["num_copied_rows"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        ("id <> 4", [4, None]),
        ("NOT (id = 4)", [4, None]),
        ("id IS NULL", [1, 2, 3, 4, 5, 7, 8, 9]),
        ("id <=> NULL", [1, 2, 3, 4, 5, 7, 8, 9]),
        ("NULL", [1, 2, 3, 4, 5, 7, 8, 9, None]),
        ("id NOT IN (1, NULL)", [1, 2, 3, 4, 5, 7, 8, 9, None]),
        ("TRUE", []),
    ],
)
def test_rows_for_which_the_predicate_is_null_stay(path, predicate, left):
    DeltaTable(path).delete(predicate)
    assert held(path) == left


def test_nan_and_zero_as_in_spark(tmp_path):
    where = tmp_path / "t"
    write_deltalake(where, pa.table({"x": [float("nan"), 0.0, -0.0, 1.0]}))
    DeltaTable(where).delete("x = 0.0")
    DeltaTable(where).delete("x > 5")
    assert held(where, "x") == [1.0]


def test_a_delete_that_matches_nothing_commits_nothing(path):
    table = DeltaTable(path)
    result = table.delete("id = 6")
    assert result.version is None
    assert result["num_deleted_rows"] == 0
    assert table.version() == 2
    assert DeltaTable(path).version() == 2


def test_deleting_everything(path):
    result = DeltaTable(path).delete()
    assert result["num_deleted_rows"] == 9
    assert held(path) == []
    info = DeltaTable(path).history(1)[0]
    assert (info["operation"], info["operationParameters"]) == ("DELETE", {"predicate": '["true"]'})
    assert DeltaTable(path).delete().version is None


def test_partitions_are_removed_without_reading_them(tmp_path):
    where = tmp_path / "t"
    data = pa.table({"p": ["a", "a", "b", None], "v": [1, 2, 3, 4]})
    write_deltalake(where, data, partition_by="p")
    for file in where.rglob("p=a/*.parquet"):
        file.write_bytes(b"not Parquet")
    result = DeltaTable(where).delete("p = 'a'")
    assert (result["num_removed_files"], result["num_added_files"], result["num_deleted_rows"]) == (1, 0, 2)
    assert held(where, "v") == [3, 4]
    DeltaTable(where).delete("p = 'b' AND v = 3 OR p IS NULL")
    assert held(where, "v") == []


def test_what_the_commit_says(path):
    DeltaTable(path).delete("id = 2")
    info = DeltaTable(path).history(1)[0]
    assert info["operation"] == "DELETE"
    assert json.loads(info["operationParameters"]["predicate"]) == ["id = 2"]
    assert (info["readVersion"], info["isBlindAppend"], info["isolationLevel"]) == (2, False, "WriteSerializable")
    metrics = info["operationMetrics"]
    wanted = {
        "numRemovedFiles": "1",
        "numAddedFiles": "1",
        "numDeletedRows": "1",
        "numCopiedRows": "2",
        "numDeletionVectorsAdded": "0",
        "numDeletionVectorsRemoved": "0",
        "numDeletionVectorsUpdated": "0",
        "numAddedChangeFiles": "0",
    }
    assert {name: metrics[name] for name in wanted} == wanted
    assert int(metrics["numRemovedBytes"]) > 0 < int(metrics["numAddedBytes"])
    assert metrics.keys() - wanted.keys() == {"numRemovedBytes", "numAddedBytes", "executionTimeMs"}


@pytest.mark.breaks_tables
def test_deletion_vectors_of_other_engines(tmp_path):
    """Rows that a vector deletes stay deleted in the file that is written anew, and the remove names the vector."""
    path = tmp_path / "t"
    vector = with_vector(path, [0, 9])
    table = DeltaTable(path)
    assert table.delete("id = 9").version is None
    result = table.delete("id = 4")
    assert held(path) == [1, 2, 3, 5, 6, 7, 8]
    (remove,) = actions(path, 2, "remove")
    (add,) = actions(path, 2, "add")
    assert remove["deletionVector"] == vector
    assert "deletionVector" not in add
    assert json.loads(add["stats"])["numRecords"] == 7
    assert (result["num_deleted_rows"], result["num_copied_rows"]) == (1, 7)
    assert table.history(1)[0]["operationMetrics"]["numDeletionVectorsRemoved"] == "1"


@pytest.mark.parametrize("predicate", [None, "id < 100"])
@pytest.mark.breaks_tables
def test_rows_that_a_vector_deleted_are_not_counted_again(tmp_path, predicate):
    path = tmp_path / "t"
    vector = with_vector(path, [0, 9])
    result = DeltaTable(path).delete(predicate)
    assert (result["num_deleted_rows"], result["num_added_files"]) == (8, 0)
    assert actions(path, 2, "remove")[0]["deletionVector"] == vector
    assert held(path) == []


def test_append_only_tables_refuse(tmp_path):
    where = tmp_path / "t"
    write_deltalake(where, pa.table({"id": [1]}), configuration={"delta.appendOnly": "true"})
    for predicate in (None, "id = 1", "id = 2"):
        with pytest.raises(ConstraintViolationError, match="append-only"):
            DeltaTable(where).delete(predicate)
    assert held(where) == [1]


@pytest.mark.parametrize(
    ("predicate", "error"),
    [("id ~ 3", PredicateError), ("nope = 1", errors.ColumnNotFoundError), ("id IN (SELECT 1)", PredicateError)],
)
def test_bad_predicates_are_one_clear_error(path, predicate, error):
    with pytest.raises(error):
        DeltaTable(path).delete(predicate)
    assert DeltaTable(path).version() == 2


def test_two_deletes_of_one_file_conflict_and_leave_nothing(path):
    table = DeltaTable(path)
    one, two = table.begin(), table.begin()
    one.delete("id = 1")
    two.delete("id = 2")
    one.commit()
    files = sorted(path.glob("*.parquet"))
    with pytest.raises(errors.ConcurrentModificationError):
        two.commit()
    assert held(path) == [2, 3, 4, 5, 7, 8, 9, None]
    assert len(sorted(path.glob("*.parquet"))) == len(files) - 1


def test_a_delete_beside_appends_in_one_transaction(path):
    table = DeltaTable(path)
    with table.begin() as txn:
        moved = txn.read(predicate="id < 3")
        txn.delete("id < 3")
        txn.append(pa.table({"id": pa.array([value + 100 for value in moved.column("id").to_pylist()])}))
        txn.commit()
    assert held(path) == [3, 4, 5, 7, 8, 9, 101, 102, None]
    assert table.history(1)[0]["operation"] == "DELETE"
