"""OPTIMIZE ZORDER BY: the same rows, in files that tell more apart."""

from __future__ import annotations

import collections
import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from written_tables import actions, commit_of


def points(count, seed=1, **columns):
    random = np.random.default_rng(seed)
    return pa.table({"x": random.permutation(count), "y": random.permutation(count), **columns})


def rows_of(path):
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return collections.Counter(tuple(row.items()) for row in rows)


def widths(path, column, count):
    """The mean share of a column's range that the statistics of a file leave open."""
    stats = [json.loads(text) for text in DeltaTable(path)._handle.newest_for_writing().files["stats"].to_pylist()]
    return float(np.mean([stat["maxValues"][column] - stat["minValues"][column] for stat in stats])) / count


@pytest.fixture(scope="module")
def count():
    return 20_000


@pytest.fixture
def path(tmp_path, count):
    where = tmp_path / "t"
    rows = points(count)
    for part in range(4):
        write_deltalake(where, rows.slice(part * count // 4, count // 4), mode="append")
    return where


@pytest.mark.tier("test")
def test_files_cover_narrow_ranges_of_each_column(path, count):
    before = rows_of(path)
    assert widths(path, "x", count) > 0.95
    size = sum(DeltaTable(path).files()["size_bytes"].to_pylist())
    result = DeltaTable(path).optimize.z_order(["x", "y"], target_size=size // 16)
    assert rows_of(path) == before
    assert result["numFilesAdded"] >= 10
    assert max(widths(path, name, count) for name in "xy") < 0.5
    # Half of the files or more can be skipped for a value, whichever of the columns it is in.
    for column in "xy":
        scans = [DeltaTable(path).scan(predicate=f"{column} = {value}").explain() for value in range(0, count, 1999)]
        assert np.mean([scan.files_read / scan.files for scan in scans]) < 0.5


def test_one_column_is_sorted_through_all_files(path, count):
    size = sum(DeltaTable(path).files()["size_bytes"].to_pylist())
    result = DeltaTable(path).optimize.z_order("x", target_size=size // 8)
    assert result["numFilesAdded"] > 4
    assert widths(path, "x", count) * result["numFilesAdded"] < 1.01


def test_what_the_commit_says(path):
    result = DeltaTable(path).optimize.z_order(["x", "y"])
    assert (result["numFilesAdded"], result["numFilesRemoved"], result["preserveInsertionOrder"]) == (1, 4, False)
    (entry,) = DeltaTable(path).history(1)
    assert entry["operation"] == "OPTIMIZE"
    parameters = {"predicate": "[]", "zOrderBy": '["x","y"]', "clusterBy": "[]", "auto": "false"}
    assert entry["operationParameters"] == parameters
    assert "rowPlaces" not in next(line["commitInfo"] for line in commit_of(path, 4) if "commitInfo" in line)
    assert not any(action["dataChange"] for kind in ("add", "remove") for action in actions(path, 4, kind))


def test_every_run_sorts_anew_and_compaction_leaves_it_alone(path):
    table = DeltaTable(path)
    assert table.optimize.z_order(["x"]).version == 4
    assert table.optimize.compact().version is None
    assert table.optimize.z_order(["x"]).version == 5


def test_deleted_rows_are_left_behind(tmp_path):
    where = tmp_path / "t"
    write_deltalake(where, points(100), configuration={"delta.enableDeletionVectors": "true"})
    DeltaTable(where).delete("x < 10")
    before = rows_of(where)
    result = DeltaTable(where).optimize.z_order(["x", "y"])
    assert rows_of(where) == before
    assert sum(before.values()) == 90
    (add,) = actions(where, result.version, "add")
    assert json.loads(add["stats"])["numRecords"] == 90


def test_partitions_are_sorted_each_and_can_be_chosen(tmp_path):
    where = tmp_path / "t"
    parts = ["a", "b", None] * 100
    for seed in (1, 2):
        write_deltalake(where, points(300, seed, p=parts), mode="append", partition_by=["p"])
    before = rows_of(where)
    result = DeltaTable(where).optimize.z_order(["y"], partition_filters=[("p", "=", "a")])
    assert (result["partitionsOptimized"], result["totalConsideredFiles"]) == (1, 2)
    result = DeltaTable(where).optimize.z_order(["y"], min_commit_interval=0)
    assert (result["partitionsOptimized"], result.version) == (3, 5)
    assert rows_of(where) == before


@pytest.mark.tier("test")
def test_a_partition_larger_than_memory(path, count, monkeypatch, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = rows_of(path)
    size = sum(DeltaTable(path).files()["size_bytes"].to_pylist())
    result = DeltaTable(path).optimize.z_order(["x", "y"], target_size=size // 16, max_spill_size=40_000)
    assert rows_of(path) == before
    assert result["numFilesAdded"] >= 10
    assert max(widths(path, name, count) for name in "xy") < 0.5
    assert list(temporary.iterdir()) == []
    with pytest.raises(InvalidArgumentError, match="max_temp_directory_size"):
        DeltaTable(path).optimize.z_order(["x"], max_spill_size=40_000, max_temp_directory_size=50_000)
    assert DeltaTable(path).version() == 4
    assert list(temporary.iterdir()) == []


def test_columns_of_many_types_with_nulls(tmp_path):
    where = tmp_path / "t"
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    data = pa.table({
        "text": [None if i % 5 == 0 else f"{i % 13}" for i in range(200)],
        "when": [None if i % 7 == 0 else moment + dt.timedelta(hours=i * 31 % 50) for i in range(200)],
        "flag": [None if i % 3 == 0 else i % 2 == 0 for i in range(200)],
        "real": [None if i % 11 == 0 else float("nan") if i % 12 == 0 else i * 7 % 40 / 3 for i in range(200)],
        "s": [None if i % 9 == 0 else {"deep": i % 17} for i in range(200)],
        "raw": [b"%d" % (i % 19) for i in range(200)],
    })  # fmt: skip
    write_deltalake(where, data)
    before = collections.Counter(map(str, DeltaTable(where).to_pyarrow_table().to_pylist()))
    DeltaTable(where).optimize.z_order(["text", "WHEN", "flag", "real", "s.deep", "raw"])
    after = DeltaTable(where).to_pyarrow_table()
    assert collections.Counter(map(str, after.to_pylist())) == before
    DeltaTable(where).optimize.z_order(["S.Deep"])
    deep = [row["s"]["deep"] if row["s"] else -1 for row in DeltaTable(where).to_pyarrow_table().to_pylist()]
    assert deep == sorted(deep)


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ([], InvalidArgumentError, "at least one column"),
        (["nope"], ColumnNotFoundError, "column 'nope' does not exist"),
        (["s.nope"], ColumnNotFoundError, "column 's.nope' does not exist"),
        (["x.y"], ColumnNotFoundError, "column 'x.y' does not exist"),
        (["p"], InvalidArgumentError, "'p': it is a partition column"),
        (["x", "P"], InvalidArgumentError, "'P': it is a partition column"),
        (["s"], InvalidArgumentError, "'s': it is a struct"),
        (["items"], InvalidArgumentError, "'items': it is an array"),
        (["pairs"], InvalidArgumentError, "'pairs': it is a map"),
        (["late"], InvalidArgumentError, "'late': it has no statistics"),
        (["nothing"], InvalidArgumentError, "'nothing': it has no statistics"),
        (["x", "x"], InvalidArgumentError, "'x' is named twice"),
    ],
)
def test_columns_that_cannot_be_sorted_by(tmp_path, columns, error, words):
    where = tmp_path / "t"
    schema = pa.schema([
        ("p", pa.string()), ("x", pa.int64()), ("s", pa.struct([("a", pa.int64())])), ("items", pa.list_(pa.int64())),
        ("pairs", pa.map_(pa.string(), pa.int64())), ("nothing", pa.null()), ("late", pa.int64()),
    ])  # fmt: skip
    DeltaTable.create(where, schema, partition_by=["p"], configuration={"delta.dataSkippingNumIndexedCols": "5"})
    with pytest.raises(error, match=words):
        DeltaTable(where).optimize.z_order(columns)


def test_statistics_may_be_asked_for_by_name(tmp_path):
    where = tmp_path / "t"
    write_deltalake(where, points(10), configuration={"delta.dataSkippingStatsColumns": "y"})
    with pytest.raises(InvalidArgumentError, match="has no statistics"):
        DeltaTable(where).optimize.z_order(["x"])
    assert DeltaTable(where).optimize.z_order(["y"]).version == 1


def test_in_a_transaction(path):
    with DeltaTable(path).begin() as txn:
        txn.z_order(["x"])
        with pytest.raises(InvalidArgumentError, match=r"already \(z_order\)"):
            txn.compact()
        assert txn.commit().version == 4


def test_an_empty_table(tmp_path):
    table = DeltaTable.create(tmp_path / "t", pa.schema([("x", pa.int64())]))
    assert table.optimize.z_order(["x"]).version is None
