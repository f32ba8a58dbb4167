"""Lists of files for engines that read Parquet and no Delta log: GENERATE symlink_format_manifest.

Tests of operations.maintenance.symlink_manifest.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, errors, write_deltalake

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["a b", None, "x%y"]})


def listed(place):
    """The rows of the files that the lists name, by the folder of the list."""
    root = place / "_symlink_format_manifest"
    return {
        str(path.parent.relative_to(root)): sorted(
            row
            for line in path.read_text().splitlines()
            for row in pq.read_table(line, partitioning=None)["id"].to_pylist()
        )
        for path in root.rglob("manifest")
    }


def test_each_partition_has_a_list_and_stale_ones_go(tmp_path):
    write_deltalake(tmp_path, ROWS, partition_by=["p"])
    table = DeltaTable(tmp_path)
    assert len(table.generate()) == 3
    assert listed(tmp_path) == {"p=a b": [1], "p=__HIVE_DEFAULT_PARTITION__": [2], "p=x%25y": [3]}
    table.delete("id = 3")
    write_deltalake(table, ROWS.slice(0, 1), mode="append")
    table.generate()
    assert listed(tmp_path) == {"p=a b": [1, 1], "p=__HIVE_DEFAULT_PARTITION__": [2]}
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert listed(tmp_path) == {"p=a b": [1, 1], "p=__HIVE_DEFAULT_PARTITION__": [2]}


def test_a_table_without_partitions_has_one_list_also_without_rows(tmp_path):
    write_deltalake(tmp_path, ROWS)
    assert DeltaTable(tmp_path).generate("symlink_format_manifest") == ["_symlink_format_manifest/manifest"]
    assert listed(tmp_path) == {".": [1, 2, 3]}
    DeltaTable(tmp_path).delete()
    DeltaTable(tmp_path).generate()
    assert listed(tmp_path) == {".": []}


def test_what_readers_of_parquet_would_read_wrongly_is_refused(tmp_path):
    write_deltalake(tmp_path / "v", ROWS, configuration={"delta.enableDeletionVectors": "true"})
    table = DeltaTable(tmp_path / "v")
    table.generate()
    table.delete("id = 1")
    with pytest.raises(errors.UnsupportedFeatureError, match="reorg_purge"):
        table.generate()
    write_deltalake(tmp_path / "m", ROWS, configuration={"delta.columnMapping.mode": "name"})
    with pytest.raises(errors.UnsupportedFeatureError, match="columnMapping"):
        DeltaTable(tmp_path / "m").generate()
    with pytest.raises(errors.InvalidArgumentError, match="symlink_format_manifest"):
        table.generate("hudi")
