"""REORG TABLE APPLY (PURGE): no live file holds deleted rows any more."""

from __future__ import annotations

import collections
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, write_deltalake
from written_tables import actions, commit_of, with_vector

VECTORS = {"delta.enableDeletionVectors": "true"}


def rows_of(path):
    return collections.Counter(DeltaTable(path).to_pyarrow_table()["n"].to_pylist())


def some(start, count=10, p="a"):
    return pa.table({"n": list(range(start, start + count)), "p": [p] * count})


@pytest.fixture
def path(tmp_path):
    """Files of ten rows: two in the partition a, of which one has a vector; one in b, which has one."""
    where = tmp_path / "t"
    write_deltalake(where, some(0), partition_by=["p"], configuration=VECTORS)
    write_deltalake(where, some(10), mode="append")
    write_deltalake(where, some(20, p="b"), mode="append")
    DeltaTable(where).delete("n IN (3, 25, 26)")
    return where


def test_files_with_vectors_are_rewritten_and_no_others(path):
    before, version = rows_of(path), DeltaTable(path).version()
    kept = set(DeltaTable(path).files()["path"].to_pylist())
    result = DeltaTable(path).reorg_purge()
    assert rows_of(path) == before
    assert result.version == version + 1
    assert (result["numFilesAdded"], result["numFilesRemoved"], result["totalFilesSkipped"]) == (2, 2, 1)
    assert result["numDeletionVectorsRemoved"] == 2
    files = DeltaTable(path).files()
    assert sum(files["num_deleted"].to_pylist()) == 0
    assert len(kept & set(files["path"].to_pylist())) == 1
    held = [pq.read_table(path / add["path"])["n"].to_pylist() for add in actions(path, result.version, "add")]
    assert sorted(map(len, held)) == [8, 9]


def test_what_the_commit_says(path):
    result = DeltaTable(path).reorg_purge()
    (entry,) = DeltaTable(path).history(1)
    assert entry["operation"] == "REORG"
    assert entry["operationParameters"] == {"predicate": "[]", "applyPurge": "true"}
    assert entry["operationMetrics"]["numDeletionVectorsRemoved"] == "2"
    info = next(line["commitInfo"] for line in commit_of(path, result.version) if "commitInfo" in line)
    assert sorted(sum(place["rows"] for place in places) for places in info["rowPlaces"].values()) == [8, 9]
    removes = actions(path, result.version, "remove")
    assert all("deletionVector" in remove and not remove["dataChange"] for remove in removes)


def test_a_second_run_writes_nothing(path):
    DeltaTable(path).reorg_purge()
    result = DeltaTable(path).reorg_purge()
    assert (result.version, result["totalConsideredFiles"]) == (None, 3)


def test_a_partition(path):
    result = DeltaTable(path).reorg_purge(partition_filters="p = 'b'")
    assert result["numFilesRemoved"] == 1
    assert sum(DeltaTable(path).files()["num_deleted"].to_pylist()) == 1


def test_files_are_put_together_up_to_the_target_size(tmp_path):
    where = tmp_path / "t"
    for i in range(4):
        write_deltalake(where, some(10 * i), mode="append", configuration=None if i else VECTORS)
    DeltaTable(where).delete("n % 10 = 0")
    before = rows_of(where)
    size = DeltaTable(where).files()["size_bytes"][0].as_py()
    result = DeltaTable(where).reorg_purge(target_size=2 * size)
    assert (result["numFilesRemoved"], result["numFilesAdded"]) == (4, 2)
    assert rows_of(where) == before


@pytest.mark.breaks_tables
def test_a_vector_of_another_engine(tmp_path):
    where = tmp_path / "t"
    with_vector(where, [0, 9])
    result = DeltaTable(where).reorg_purge()
    assert result["numDeletionVectorsRemoved"] == 1
    assert sorted(DeltaTable(where).to_pyarrow_table()["id"].to_pylist()) == list(range(1, 9))


@pytest.mark.breaks_tables
def test_a_vector_without_a_count_of_rows(tmp_path):
    """Spark rewrites such a file with any OPTIMIZE, because nobody can tell how much of it is deleted."""
    where = tmp_path / "t"
    with_vector(where, [4, 5])
    log = where / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert DeltaTable(where).optimize.compact()["numFilesRemoved"] == 1
    (add,) = actions(where, 2, "add")
    assert json.loads(add["stats"])["numRecords"] == 8


def test_when_vectors_are_switched_off(path):
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.enableDeletionVectors": "false"})
    before = rows_of(path)
    assert table.reorg_purge()["numFilesRemoved"] == 2
    assert rows_of(path) == before


def test_in_a_transaction(path):
    before = rows_of(path)
    with DeltaTable(path).begin() as txn:
        txn.reorg_purge()
        txn.commit()
    assert rows_of(path) == before
    assert sum(DeltaTable(path).files()["num_deleted"].to_pylist()) == 0
