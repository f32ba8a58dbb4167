"""delta-spark, Delta Kernel and deltalake read versions in which several transactions of this engine are members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from comparison import assert_same_table
from grouped import append, delete, grown, mixing, rows, together, update
from refdelta import DeltaTable, verify, write_deltalake
from refdelta.conformance.engines.delta_kernel import DeltaKernel
from refdelta.crosscheck import oracle
from refdelta.engine.log.state import to_adds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
KEPT = {"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"}
IDS = ["_metadata.row_id", "_metadata.row_commit_version"]


def feed(spark: Any, path: Path) -> pa.Table:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    return reader.load(str(path)).toArrow()


def streamed(spark: Any, path: Path, checkpoint: Path, **options: str) -> list[tuple[Any, ...]]:
    """The rows that a streaming query reads, up to the newest version, from where its checkpoint is."""
    found: list[tuple[Any, ...]] = []
    frame = spark.readStream.format("delta").options(**options).load(str(path))
    kept = [name for name in ("id", "_change_type", "_commit_version") if name in frame.columns]
    writer = frame.select(*kept).writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect()))).start().awaitTermination()
    return sorted(found)


@pytest.fixture(scope="module")
def kernel(spark):
    # The session has fetched the JARs, or was skipped.
    engine = DeltaKernel()
    yield engine
    engine.close()


def files_by_kernel(kernel: DeltaKernel, path: Path, version: int) -> set[tuple[str, int]]:
    """The live files of a version, each with the number of its deleted rows."""
    table = kernel.kernel.Table.forPath(kernel.engine, str(path))
    batches = table.getSnapshotAsOfVersion(kernel.engine, version).getScanBuilder().build().getScanFiles(kernel.engine)
    utils = kernel.kernel.internal.InternalScanFileUtils
    found = set()
    while batches.hasNext():
        files = batches.next().getRows()
        while files.hasNext():
            file = files.next()
            vector = utils.getDeletionVectorDescriptorFromRow(file)
            name = utils.getAddFileStatus(file).getPath().rsplit("/", 1)[-1]
            found.add((name, 0 if vector is None else vector.getCardinality()))
    return found


@pytest.mark.tier("nightly")
def test_kernel_and_deltalake_read_each_version(kernel, tmp_path):
    path = tmp_path / "t"
    table = grown(path, VECTORS)
    assert any(one.get("members") for one in table.history())
    for version in range(table.version() + 1):
        wanted = DeltaTable(path, version=version)
        adds = to_adds(wanted._handle.snapshot.files)
        ours = {(one.path, one.deletion_vector.cardinality if one.deletion_vector else 0) for one in adds}
        assert files_by_kernel(kernel, path, version) == ours
        assert len(ours) == len(adds)
        # Its reader for pyarrow knows no deletion vectors; that of its SQL does.
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path, version=version))
        theirs = pa.table(query.execute("SELECT id, v FROM t").read_all())
        assert_same_table(wanted.to_pyarrow_table(), theirs)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize(
    "properties", [VECTORS, {**VECTORS, **FEED, **KEPT}, KEPT], ids=["vectors", "all", "no vectors"]
)
def test_delta_spark_reads_each_version(quick_spark, tmp_path, properties):
    path = tmp_path / "t"
    if VECTORS.items() <= properties.items():
        table = grown(path, properties)
    else:  # without vectors, deletes of one file conflict: appends and deletes of several files
        write_deltalake(path, rows(1, 2), configuration=properties)
        write_deltalake(path, rows(3, 4), mode="append")
        with mixing():
            found = together(DeltaTable(path), append(20), delete("id = 1"), delete("id = 3"), append(21))
        assert sorted((one.version, one.member) for one in found) == [(2, at) for at in range(4)]
        table = DeltaTable(path)
    for version in range(table.version() + 1):
        assert_same_table(
            DeltaTable(path, version=version).to_pyarrow_table(), oracle.read_table(quick_spark, path, version)
        )
    theirs = oracle.history(quick_spark, path)
    ours = table.history()
    assert [one["version"] for one in theirs] == [one["version"] for one in ours]
    assert [one["operation"] for one in theirs] == [one["operation"] for one in ours]
    if KEPT.items() <= properties.items():
        selected = ", ".join(["id", "v", *IDS])
        tracked = sorted(map(tuple, quick_spark.sql(f"SELECT {selected} FROM {oracle.identifier(path)}").collect()))
        columns = table.to_pyarrow_table(columns=["id", "v", *IDS]).columns
        assert tracked == sorted(zip(*(column.to_pylist() for column in columns), strict=True))
        assert len({one[2] for one in tracked}) == len(tracked)
        stamps = [round(one["timestamp"].timestamp() * 1000) for one in theirs]
        assert stamps == [one["timestamp"] for one in ours]
        assert stamps == sorted(set(stamps), reverse=True)
    if FEED.items() <= properties.items():
        assert_same_table(table.load_cdf().read_all(), feed(quick_spark, path))
    # delta-spark writes after them, and this engine after delta-spark.
    quick_spark.sql(f"DELETE FROM {oracle.identifier(path)} WHERE id = 20")
    write_deltalake(path, rows(50), mode="append")
    assert_same_table(DeltaTable(path).to_pyarrow_table(), oracle.read_table(quick_spark, path))
    assert not verify(path).findings


@pytest.mark.tier("nightly")
def test_rows_keep_their_ids(quick_spark, tmp_path):
    """Updates that share a version keep the ids of their rows, for both engines."""
    path = tmp_path / "t"
    write_deltalake(path, rows(*range(6)), configuration={**VECTORS, **KEPT})
    ids = f"SELECT id, {IDS[0]} FROM {oracle.identifier(path)}"
    before = dict(map(tuple, quick_spark.sql(ids).collect()))
    found = together(DeltaTable(path), update("1", "id = 1"), update("2", "id = 4"), append(9), append(8))
    assert [one.version for one in found] == [1, 1, 2, 2]
    after = dict(map(tuple, quick_spark.sql(ids).collect()))
    assert {key: after[key] for key in before} == before
    assert len(set(after.values())) == 8


@pytest.mark.tier("nightly")
def test_a_stream_of_delta_spark_has_the_rows_of_each_member_once(quick_spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(0), configuration={**VECTORS, **FEED})
    found = together(DeltaTable(path), append(1), append(2), append(3))
    assert {one.version for one in found} == {1}
    assert streamed(quick_spark, path, tmp_path / "c", maxFilesPerTrigger="1") == [(0,), (1,), (2,), (3,)]
    together(DeltaTable(path), append(4), append(5))
    assert streamed(quick_spark, path, tmp_path / "c", maxFilesPerTrigger="1") == [(4,), (5,)]
    together(DeltaTable(path), append(6), delete("id = 1"), delete("id = 2"))
    options = {"readChangeFeed": "true", "startingVersion": "0"}
    assert streamed(quick_spark, path, tmp_path / "d", **options) == [
        (0, "insert", 0),
        *[(number, kind, version) for number, kind, version in [
            (1, "delete", 4), (1, "insert", 1), (2, "delete", 4), (2, "insert", 1), (3, "insert", 1),
            (4, "insert", 2), (5, "insert", 2), (6, "insert", 3),
        ]],
    ]  # fmt: skip


@pytest.mark.tier("nightly")
def test_a_stream_of_delta_spark_that_passes_over_changes_of_rows_has_each_append(quick_spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(0, 1, 2, 3), configuration=VECTORS)
    assert len(streamed(quick_spark, path, tmp_path / "c", skipChangeCommits="true")) == 4
    calls = [append(10), delete("id = 1"), append(11), update("v + 1", "id = 2"), append(12), delete("id = 3")]
    found = together(DeltaTable(path), *calls)
    assert {one.version for one in found} == {1, 2}
    assert streamed(quick_spark, path, tmp_path / "c", skipChangeCommits="true") == [(10,), (11,), (12,)]
