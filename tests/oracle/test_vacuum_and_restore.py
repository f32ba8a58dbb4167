"""VACUUM and RESTORE next to delta-spark's: the same files, the same rows, and each goes on where the other stopped."""

from __future__ import annotations

import shutil
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest

from api.needed import needs, objects
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from waiting import next_moment

pytestmark = pytest.mark.spark

NOW = {"retention_hours": 0, "enforce_retention_duration": False}
SETTINGS = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # The number of tasks that list the folders, 10,000 by default.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


@pytest.fixture(autouse=True, scope="module")
def settings(quick_spark):
    for setting, value in SETTINGS.items():
        quick_spark.conf.set(setting, value)
    yield
    for setting in SETTINGS:
        quick_spark.conf.unset(setting)


@pytest.fixture(scope="module")
def original(quick_spark, settings, tmp_path_factory):
    """A partitioned table with deletion vectors that delta-spark wrote and restored; and things lying about."""
    spark, path = quick_spark, tmp_path_factory.mktemp("original") / "t"
    name = oracle.identifier(path)
    spark.sql(
        f"create table {name} (id bigint, _p string) using delta partitioned by (_p) "
        "tblproperties ('delta.enableDeletionVectors' = 'true')"
    )
    for part in ("x y%", "é/ü"):
        spark.sql(f"insert into {name} select id, '{part}' from range(200)")
    spark.sql(f"delete from {name} where id % 7 = 3")  # 3
    spark.sql(f"update {name} set id = id + 1000 where id % 7 = 4")  # 4
    spark.sql(f"delete from {name} where _p = 'é/ü'")  # 5
    spark.sql(f"restore table {name} to version as of 3")  # 6
    spark.sql(f"delete from {name} where id % 7 = 5")  # 7
    for stray in ("orphan.parquet", "_p=a/orphan.parquet", "sub/_x/y", "sub/.y", "_y", "sub/z"):
        (path / stray).parent.mkdir(parents=True, exist_ok=True)
        (path / stray).touch()
    next_moment()
    return path


@pytest.fixture
def table(original, tmp_path):
    """A copy of it."""
    return DeltaTable(shutil.copytree(original, tmp_path / "t"))


def dry_run(spark, table, mode="", hours=0):
    """The files that delta-spark would remove; it counts empty folders in."""
    name = oracle.identifier(urlparse(table.table_uri).path)
    root = unquote(urlparse(table.table_uri).path)
    found = spark.sql(f"vacuum {name} {mode} retain {hours} hours dry run").collect()
    # These look like URIs, and are not escaped.
    return {row.path.removeprefix("file:").removeprefix(f"{root}/") for row in found}


@pytest.mark.tier("nightly")
def test_the_same_files_go(quick_spark, table, tmp_path):
    path = tmp_path / "t"
    there = {name for name in objects(path) if not name.endswith(".crc")}
    folders = {folder.relative_to(path).as_posix() for folder in path.rglob("*") if folder.is_dir()}
    full = dry_run(quick_spark, table) - folders
    assert full <= there
    assert set(table.vacuum(full=True, **NOW)) == full
    assert len(full) >= 6
    # delta-spark's LITE knows no more than the log; here, leftovers of vectors go as well.
    lite = dry_run(quick_spark, table, "LITE") - folders
    assert set(table.vacuum(**NOW)) == lite
    assert lite < full


def test_the_same_files_of_ours_go(quick_spark, tmp_path):
    """Of a table that only refdelta has written: vectors that were replaced, compacted files, sorted ones."""
    path = tmp_path / "t"
    for start in (0, 100):
        data = pa.table({"id": range(start, start + 100)})
        write_deltalake(path, data, mode="append", configuration={"delta.enableDeletionVectors": "true"})
    table = DeltaTable(path)
    table.delete("id % 10 = 3")
    table.update({"id": "id + 1000"}, predicate="id % 10 = 4")
    table.optimize.compact()
    table.delete("id < 5")
    table.optimize.z_order(["id"])
    table.restore(4)
    table.delete("id = 7")
    (path / "orphan.parquet").touch()
    next_moment()
    assert sorted(table.vacuum(full=True, **NOW)) == sorted(dry_run(quick_spark, table))
    assert sorted(table.vacuum(**NOW)) == sorted(dry_run(quick_spark, table, "LITE"))
    assert len(table.vacuum(**NOW)) > 6
    assert table.vacuum() == [] == [*dry_run(quick_spark, table, "LITE", hours=168)]


@pytest.mark.tier("nightly")
def test_delta_spark_goes_on_after_a_vacuum(quick_spark, table, tmp_path):
    path = tmp_path / "t"
    before = oracle.read_table(quick_spark, path).sort_by([("_p", "ascending"), ("id", "ascending")])
    kept = oracle.read_table(quick_spark, path, 5).sort_by("id")
    table.vacuum(dry_run=False, full=True, keep_versions=[5], **NOW)
    oracle.clear_cache(quick_spark)
    assert oracle.read_table(quick_spark, path).sort_by([("_p", "ascending"), ("id", "ascending")]) == before
    assert oracle.read_table(quick_spark, path, 5).sort_by("id") == kept
    end, start = oracle.history(quick_spark, path)[:2]
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationParameters"] == {
        "retentionCheckEnabled": "false",
        "specifiedRetentionMillis": "0",
        "defaultRetentionMillis": "604800000",
    }
    assert start["operationMetrics"].keys() == {"numFilesToDelete", "sizeOfDataToDelete"}
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"].keys() == {"numDeletedFiles", "numVacuumedDirectories"}

    table.vacuum(dry_run=False, full=True, **NOW)
    name = oracle.identifier(path)
    quick_spark.sql(f"vacuum {name} retain 0 hours")
    assert {n for n in objects(path) if "crc" not in n} >= set(needs(table, table.version()))
    quick_spark.sql(f"delete from {name} where id % 7 = 6")
    quick_spark.sql(f"optimize {name}")
    table.update_incremental()
    assert len(table.vacuum(dry_run=False, **NOW)) > 0
    oracle.clear_cache(quick_spark)
    assert oracle.frame(quick_spark, path).count() == table.count() == before.num_rows - 28 * 2


@pytest.mark.tier("nightly")
def test_restores_of_both(quick_spark, table, tmp_path):
    path, name = tmp_path / "t", oracle.identifier(tmp_path / "t")
    for version in (2, 4, 5):
        ours = table.restore(version)
        oracle.clear_cache(quick_spark)
        wanted = oracle.read_table(quick_spark, path, version).num_rows
        assert oracle.frame(quick_spark, path).count() == table.count() == wanted
        assert oracle.frame(quick_spark, path).exceptAll(oracle.frame(quick_spark, path, version)).count() == 0
        # delta-spark finds nothing to add or remove.
        (theirs,) = quick_spark.sql(f"restore table {name} to version as of {version}").collect()
        assert theirs.num_restored_files == theirs.num_removed_files == 0
        for figure in ("table_size_after_restore", "num_of_files_after_restore"):
            assert ours[figure] == theirs[figure]
        table.update_incremental()
    (theirs,) = oracle.history(quick_spark, path)[:1]
    table.restore(7)
    oracle.clear_cache(quick_spark)
    (ours,) = oracle.history(quick_spark, path)[:1]
    assert ours["operationParameters"] == {"version": "7", "timestamp": None}
    assert ours["operationParameters"].keys() == theirs["operationParameters"].keys()
    assert ours["operationMetrics"].keys() == theirs["operationMetrics"].keys()
    quick_spark.sql(f"delete from {name} where id < 100")
    table.update_incremental()
    assert table.count() == oracle.frame(quick_spark, path).count()


def test_delta_spark_cannot_vacuum_vectors_that_stand_in_the_log(quick_spark, tmp_path):
    """Its VACUUM knows vectors in files only, for as long as the table's state has another one. So it is not our
    default; where a table asks for them, ours takes over.
    """
    path = tmp_path / "t"
    properties = {"delta.enableDeletionVectors": "true", "refdelta.inlineDeletionVectors": "true"}
    write_deltalake(path, pa.table({"id": range(100)}), configuration=properties)
    DeltaTable(path).delete("id < 3")
    with pytest.raises(Exception, match=r"scala\.MatchError: Some\(DeletionVectorDescriptor\(i,"):
        quick_spark.sql(f"vacuum {oracle.identifier(path)} dry run")
    quick_spark.sql(f"update {oracle.identifier(path)} set id = -id where id > 90")
    DeltaTable(path).reorg_purge()
    assert len(DeltaTable(path).vacuum(dry_run=False, **NOW)) == 2  # a file, and the vector that Spark gave it
    assert oracle.read_table(quick_spark, path).num_rows == 97
