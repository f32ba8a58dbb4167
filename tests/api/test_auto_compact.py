"""Auto-compaction: when a write sets it off, what it takes, and that it never harms the write."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import StoreError
from refdelta.operations.layout import auto_compact, optimize

ON = {"delta.autoOptimize.autoCompact": "true"}


@pytest.fixture(autouse=True)
def six_are_many(monkeypatch):
    monkeypatch.setattr(auto_compact, "MIN_FILES", 6)


def some(*values, p="a"):
    return pa.table({"n": pa.array(values, pa.int64()), "p": [p] * len(values)})


def fill(path, files, *, configuration=None, partition="a"):
    """Appends of a row each, by a table without auto-compaction, which is then set."""
    for i in range(files):
        write_deltalake(path, some(i, p=partition), mode="append", partition_by=["p"])
    if configuration:
        DeltaTable(path).alter.set_table_properties(configuration)


def held(path):
    return sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist())


def operations(path):
    return [entry["operation"] for entry in DeltaTable(path).history()]


def append(path):
    return write_deltalake(path, some(100), mode="append")


def append_by_hand(path):
    with DeltaTable(path).begin() as txn:
        txn.append(some(100))
        return txn.commit()


def update(path):
    return DeltaTable(path).update({"n": "100"}, predicate="n = 0")


def merge(path):
    merging = DeltaTable(path).merge(some(100), "s.n = t.n")
    return merging.when_not_matched_insert_all().execute()


@pytest.mark.parametrize("change", [append, append_by_hand, update, merge])
def test_every_write_sets_it_off(tmp_path, change):
    path = tmp_path / "t"
    fill(path, 6, configuration=ON)
    result = change(path)
    assert result.version == 7
    assert operations(path)[0] == "OPTIMIZE"
    (optimized, *_) = DeltaTable(path).history(1)
    assert optimized["operationParameters"]["auto"] == "true"
    assert DeltaTable(path).files().num_rows == 1
    assert held(path) == sorted([100, *range(1, 6)] if change is update else [100, *range(6)])


def test_the_handle_sees_what_the_compaction_left(tmp_path):
    path = tmp_path / "t"
    fill(path, 6, configuration=ON)
    table = DeltaTable(path)
    result = write_deltalake(table, some(100), mode="append")
    assert (result.version, table.version(), table.files().num_rows) == (7, 8, 1)


@pytest.mark.tier("test")
def test_not_before_there_are_enough_files(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, some(0), configuration=ON, partition_by=["p"])
    for i in range(1, 12):
        write_deltalake(path, some(i), mode="append")
    # At the sixth file, and when five more have come to what that left.
    assert operations(path)[::-1] == [*["WRITE"] * 6, "OPTIMIZE", *["WRITE"] * 5, "OPTIMIZE", "WRITE"]
    assert held(path) == list(range(12))


def test_only_partitions_that_the_commit_wrote_to(tmp_path):
    path = tmp_path / "t"
    fill(path, 8, partition="a")
    fill(path, 8, partition="b")
    DeltaTable(path).alter.set_table_properties(ON)
    write_deltalake(path, some(100, p="b"), mode="append")
    partitions = [row["p"] for row in DeltaTable(path).files()["partition_values"].to_pylist(maps_as_pydicts="strict")]
    assert sorted(partitions) == ["a"] * 8 + ["b"]


@pytest.mark.tier("test")
def test_large_files_do_not_count(tmp_path):
    path = tmp_path / "t"
    size = 450
    fill(path, 8, configuration={**ON, "delta.targetFileSize": str(2 * size)})
    assert DeltaTable(path).files()["size_bytes"][0].as_py() > 0
    largest = max(DeltaTable(path).files()["size_bytes"].to_pylist())
    DeltaTable(path).alter.set_table_properties({"delta.targetFileSize": str(2 * largest - 2)})
    append(path)
    assert operations(path)[0] == "WRITE"
    DeltaTable(path).alter.set_table_properties({"delta.targetFileSize": str(2 * largest + 2)})
    append(path)
    assert operations(path)[0] == "OPTIMIZE"


@pytest.mark.sample(check=3)
@pytest.mark.parametrize(
    ("configuration", "wanted"),
    [
        ({"delta.autoOptimize.autoCompact": "auto"}, True),
        ({"delta.autoOptimize.autoCompact": "LEGACY"}, True),
        ({"delta.autoOptimize": "true"}, True),
        ({"delta.autoOptimize.autoCompact": "false"}, False),
        ({"delta.autoOptimize.optimizeWrite": "true"}, False),
        ({"delta.autoOptimize": "false", "delta.autoOptimize.autoCompact": "true"}, True),
    ],
)
def test_the_values_of_the_property(tmp_path, configuration, wanted):
    path = tmp_path / "t"
    fill(path, 6, configuration=configuration)
    append(path)
    assert ("OPTIMIZE" in operations(path)) == wanted


def test_a_value_that_means_nothing_is_told_to_the_log(tmp_path, caplog):
    path = tmp_path / "t"
    fill(path, 6, configuration={"delta.autoOptimize.autoCompact": "perhaps"})
    with caplog.at_level(logging.WARNING, "refdelta"):
        append(path)
    assert operations(path)[0] == "WRITE"
    assert "'perhaps'" in caplog.text


def test_compactions_and_changes_of_the_table_do_not(tmp_path):
    path = tmp_path / "t"
    fill(path, 8, configuration=ON)
    table = DeltaTable(path)
    table.alter.set_table_properties({"mine": "x"})
    table.delete("n = 1")
    assert table.optimize.compact(partition_filters="p = 'z'").version is None
    table.optimize.z_order(["n"])
    assert operations(path)[:4] == ["OPTIMIZE", "DELETE", "SET TBLPROPERTIES", "SET TBLPROPERTIES"]


def test_trouble_leaves_the_write_as_it_is(tmp_path, caplog, monkeypatch):
    path = tmp_path / "t"
    fill(path, 6, configuration=ON)

    def fail(*_, **__):
        raise StoreError("the store is full")

    monkeypatch.setattr(optimize, "optimize", fail)
    with caplog.at_level(logging.WARNING, "refdelta"):
        result = append(path)
    assert result.version == 7
    assert held(path) == [0, 1, 2, 3, 4, 5, 100]
    assert "version 7 is committed, but auto-compaction failed: the store is full" in caplog.text


@pytest.mark.breaks_tables
def test_a_damaged_file_leaves_the_write_as_it_is(tmp_path, caplog):
    path = tmp_path / "t"
    fill(path, 6, configuration=ON)
    victim = path / DeltaTable(path).files()["path"][0].as_py()
    victim.write_bytes(b"damaged")
    before = len(list(path.rglob("*.parquet")))
    with caplog.at_level(logging.WARNING, "refdelta"):
        assert append(path).version == 7
    assert DeltaTable(path).version() == 7
    assert len(list(path.rglob("*.parquet"))) == before + 1
    assert victim.name in caplog.text


def test_another_writer_in_between(tmp_path, caplog, monkeypatch):
    path = tmp_path / "t"
    fill(path, 6, configuration=ON)
    real = optimize.optimize

    def late(txn, *arguments):
        report = real(txn, *arguments)
        DeltaTable(path).delete("n = 3")
        return report

    monkeypatch.setattr(optimize, "optimize", late)
    with caplog.at_level(logging.WARNING, "refdelta"):
        assert append(path).version == 7
    assert held(path) == [0, 1, 2, 4, 5, 100]
    assert operations(path)[0] == "DELETE"
    assert "auto-compaction failed" in caplog.text
