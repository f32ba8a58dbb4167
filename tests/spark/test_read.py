"""A table read by Spark has the rows that the engine reads, whatever the table is made of.

Tests of spark.counted, spark.types.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_tables
import strategies
from comparison import assert_same_rows, assert_same_table
from handmade import MAPPED, Handmade, field, metadata, struct
from refdelta import DeltaTable, write_deltalake
from refdelta.errors import (
    ColumnNotFoundError,
    DataFileNotFoundError,
    InvalidArgumentError,
    PredicateError,
    StoreError,
    TableNotFoundError,
    VersionNotFoundError,
)
from refdelta.spark import frames, read, register
from refdelta.spark.failures import raise_again
from refdelta_storage import LocalStore
from spark_tables import tries

pytestmark = pytest.mark.spark

VECTORS_ON = {"delta.enableDeletionVectors": "true"}


def assert_read_alike(spark, path, *, native=True, **options):
    """Spark's rows are the engine's, by the way that is meant."""
    scan = DeltaTable(path, version=options.get("version"))._planned(options.get("columns"), options.get("filter"))
    assert frames._is_native(spark, scan) == native
    found = read(spark, path, **options).toArrow()
    assert_same_table(found, scan.to_table())
    return found


def by_engine(monkeypatch):
    monkeypatch.setattr(frames, "_is_native", lambda *_: False)


@pytest.fixture
def deleted(tmp_path):
    """Files by a partition column of nulls and odd values, some with vectors, one without."""
    path = tmp_path / "a table [of] {odd} *names? #1%20"
    parts = [None, "a b", "x/y", "é%=&", "[*]", "_hidden", "plain"]
    data = pa.table({"part": [part for part in parts for _ in range(10)], "row": range(70), "half": [0.5] * 70})
    write_deltalake(path, data, partition_by=["part"], configuration=VECTORS_ON)
    DeltaTable(path).delete("row % 4 = 1 AND row < 60")
    write_deltalake(path, data.slice(0, 25), mode="append")
    return path


@pytest.mark.tier("nightly")
@tries(6)
@given(table=strategies.tables(columns=5), data=st.data())
def test_spark_reads_what_the_engine_reads(spark, fresh_path, table, data):
    path = fresh_path()
    for part in table.parts:
        write_deltalake(path, part, mode="append", partition_by=table.partition_by or None)
    columns = data.draw(st.none() | st.permutations(table.schema.names).map(lambda names: names[:2]), label="columns")
    scan = DeltaTable(path)._planned(columns)
    with raise_again():
        found = read(spark, path, columns=columns).toArrow()
    assert_same_table(found, scan.to_table())


def test_vectors_partitions_and_odd_paths(spark, deleted):
    found = assert_read_alike(spark, deleted)
    assert found.num_rows == 70 - 15 + 25
    assert read(spark, deleted).count() == found.num_rows
    assert_read_alike(spark, deleted, columns=["half"])
    assert_read_alike(spark, deleted, version=0)


def test_the_engine_s_own_reader_gives_the_same(spark, deleted, monkeypatch):
    by_engine(monkeypatch)
    assert_read_alike(spark, deleted, native=False)
    assert_read_alike(spark, deleted, native=False, columns=["half"], filter="row > 12")


@pytest.mark.parametrize(("rows", "known_by"), [((10, 200, 3000), "file_size"), ((200, 10, 200), "file_path")])
def test_vectors_meet_their_files_by_the_sizes_where_these_differ(spark, tmp_path, rows, known_by):
    path = tmp_path / "t"
    for file, count in enumerate(rows):
        data = pa.table({"row": range(count), "file": [file] * count})
        write_deltalake(path, data, mode="append", configuration=VECTORS_ON)
        DeltaTable(path).delete(f"file = {file} AND row % 10 = {file}")
    assert len({*DeltaTable(path)._planned().files["size"].to_pylist()}) == len({*rows})
    found = assert_read_alike(spark, path)
    assert found.num_rows == sum(rows) * 9 // 10
    plan = read(spark, path)._jdf.queryExecution().executedPlan().toString()
    assert [name in plan for name in ("file_size", "file_path")] == [known_by == "file_size", known_by == "file_path"]


@pytest.mark.parametrize("blocks", [0, 2**16])
def test_deleted_rows_at_the_edges_of_words_and_blocks(spark, tmp_path, monkeypatch, blocks):
    """Files of several blocks, the first, the last, or none of whose rows are deleted; a bitmap is of 4,096 rows."""
    monkeypatch.setattr(frames, "_BLOCKS", blocks)
    files = {  # the rows of each file, and those of them that are deleted
        10_000: [0, 1, 62, 63, 64, 65, 127, 128, 4095, 4096, 4097, 8191, 9999],
        9_000: [],
        8_192: [8191],
        8_193: [8192],
        4_096: [*range(4096)][::2],
        20_000: [*range(5000, 15_000)],
    }
    path = tmp_path / "t"
    for file, (count, rows) in enumerate(files.items()):
        data = pa.table({"row": range(count), "file": [file] * count})
        write_deltalake(path, data, mode="append", configuration=VECTORS_ON)
        if rows:
            DeltaTable(path).delete(f"file = {file} AND row IN ({', '.join(map(str, rows))})")
    found = assert_read_alike(spark, path)
    assert found.num_rows == sum(files) - sum(map(len, files.values()))
    assert_read_alike(spark, path, columns=["file"], filter="row % 64 = 63")
    scan = DeltaTable(path)._planned(["row"])
    located = frames.scan_frame(spark, scan, file_column="file", row_column="place").where("row != place")
    assert located.count() == 0
    joined = read(spark, path)._jdf.queryExecution().optimizedPlan().toString()
    assert ("LeftAnti" in joined) == (blocks == 0)


def test_files_without_deleted_rows_are_read_alone_where_they_are_large(spark, tmp_path, monkeypatch):
    path = tmp_path / "t"
    for file in range(3):
        data = pa.table({"row": range(file * 10 + 10), "file": [file] * (file * 10 + 10)})
        write_deltalake(path, data, mode="append", configuration=VECTORS_ON)
    DeltaTable(path).delete("file = 1 AND row = 3")
    assert "Union" not in read(spark, path)._jdf.queryExecution().analyzed().toString()
    assert_read_alike(spark, path)
    monkeypatch.setattr(frames, "_TOGETHER_BYTES", 0)
    assert "Union" in read(spark, path)._jdf.queryExecution().analyzed().toString()
    assert_read_alike(spark, path)


def test_a_file_that_has_the_size_of_one_with_deleted_rows_keeps_its_rows(spark, tmp_path):
    path = tmp_path / "t"
    for file in range(3):
        data = pa.table({"row": range(10), "file": [file] * 10})
        write_deltalake(path, data, mode="append", configuration=VECTORS_ON)
    DeltaTable(path).delete("file = 1 AND row < 3")
    assert len({*DeltaTable(path)._planned().files["size"].to_pylist()}) == 1
    assert assert_read_alike(spark, path).num_rows == 27


def test_rows_are_counted_without_a_job(spark, deleted):
    def jobs():
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))

    frame, rows = read(spark, deleted), DeltaTable(deleted).count()
    before = jobs()
    assert frame.count() == rows
    assert jobs() == before
    assert frame.where("row >= 0").count() == frame.select("half").count() == rows
    assert read(spark, deleted, filter="row < 10").count() == DeltaTable(deleted)._planned(None, "row < 10").count()
    before = jobs()
    assert frame.cache().count() == rows
    assert jobs() > before
    frame.unpersist()


def test_a_size_that_the_log_has_wrong_tells_no_files_apart(spark, tmp_path):
    path = tmp_path / "t"
    for file in range(2):
        write_deltalake(path, pa.table({"row": range(file * 10 + 10)}), mode="append", configuration=VECTORS_ON)
    DeltaTable(path).delete("row = 3")
    scan = DeltaTable(path)._planned()
    sizes = scan.files["size"].to_pylist()[::-1]
    files = scan.files.set_column(scan.files.schema.get_field_index("size"), "size", pa.array(sizes, pa.int64()))
    frame = frames.scan_frame(spark, dataclasses.replace(scan, files=files))
    assert sorted(frame.toArrow()["row"].to_pylist()) == sorted(scan.to_table()["row"].to_pylist())


@pytest.mark.parametrize("native", [True, False])
def test_a_row_is_found_again_by_its_file_and_place(spark, deleted, monkeypatch, native):
    if not native:
        by_engine(monkeypatch)
    scan = DeltaTable(deleted)._planned(["row"])
    frame = frames.scan_frame(spark, scan, file_column="file", row_column="place")
    assert frame.columns == ["row", "file", "place"]
    assert [kind for _, kind in frame.dtypes[1:]] == ["bigint", "bigint"]
    paths = scan.files.column("path").to_pylist()
    stored = {}
    for found in frame.collect():
        if found.file not in stored:
            key = frames.scan_files(scan)[found.file].key
            stored[found.file] = pq.read_table(LocalStore(deleted).local_path(key)).column("row").to_pylist()
        assert stored[found.file][found.place] == found.row
    assert set(stored) == set(range(len(paths)))


@pytest.mark.parametrize("broadcast", [1, 1_000_000])
def test_many_deleted_rows_are_read_by_workers_and_joined_by_a_shuffle(spark, deleted, monkeypatch, broadcast):
    monkeypatch.setattr(frames, "_BROADCAST_ROWS", broadcast)
    monkeypatch.setattr(frames, "_TASK_ROWS", 1)
    assert_read_alike(spark, deleted)


@pytest.mark.sample(test=3)
@pytest.mark.parametrize(
    "predicate",
    [
        "row > 12",
        "part = 'a b'",
        "part IS NULL AND row % 2 = 0",
        "half < 1 AND NOT part = 'plain'",
        "`row` IN (1, 2, 60)",
    ],
)
def test_a_filter_keeps_the_rows_that_the_engine_keeps(spark, deleted, predicate):
    assert_read_alike(spark, deleted, filter=predicate)
    assert_read_alike(spark, deleted, columns=["half"], filter=predicate)


def test_files_are_pruned_by_the_filter(spark, tmp_path):
    for start in (0, 100, 200):
        write_deltalake(tmp_path, pa.table({"x": range(start, start + 100)}), mode="append")
    assert len(read(spark, tmp_path, filter="x < 120").inputFiles()) == 2
    assert read(spark, tmp_path, filter="x < 120").count() == 120


def test_a_filter_is_in_utc_whatever_the_session_says(spark, tmp_path):
    times = [dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in range(6)]
    write_deltalake(tmp_path, pa.table({"t": pa.array(times, pa.timestamp("us", "UTC"))}))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = read(spark, tmp_path, filter="t > '2024-01-01 03:00:00'")
        assert frame.count() == 2
        assert read(spark, tmp_path).count() == 6
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_version_is_settled_once(spark, tmp_path):
    write_deltalake(tmp_path, pa.table({"x": [1, 2, 3]}))
    frame = read(spark, tmp_path)
    write_deltalake(tmp_path, pa.table({"x": [4]}), mode="append")
    assert frame.count() == 3
    assert frame.join(frame.withColumnRenamed("x", "y"), frame.x < 2).count() == 3
    assert read(spark, tmp_path).count() == 4
    assert read(spark, tmp_path, version=0).count() == 3


def test_rows_of_earlier_schemas(spark, tmp_path):
    table = Handmade(struct(field("a", "integer")), store=LocalStore(tmp_path))
    table.commit(table.data("1.parquet", pa.table({"a": pa.array([1, None], pa.int32())})))
    inner = struct(field("x", "long"), field("y", "string"))
    many = {"type": "array", "elementType": inner, "containsNull": True}
    table.commit(metadata(struct(field("a", "long"), field("s", inner), field("many", many))))
    older = pa.struct([("x", pa.int64())])
    table.commit(
        table.data(
            "2.parquet",
            pa.table(
                {
                    "A": [3, 4],
                    "s": pa.array([{"x": 1}, None], older),
                    "many": pa.array([[{"x": 5}, None], []], pa.list_(older)),
                }
            ),
        ),
        table.data("3.parquet", pa.table({"s": pa.array([{"y": "only"}, None], pa.struct([("y", pa.string())]))})),
    )
    assert assert_read_alike(spark, tmp_path).num_rows == 6


def test_columns_under_physical_names(spark, tmp_path):
    def mapped(name, number, kind):
        annotations = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}.`x"}
        return {"name": name, "type": kind, "nullable": True, "metadata": annotations}

    inner = struct(mapped("in", 3, "string"), mapped("IN.2", 4, "long"))
    schema = struct(
        mapped("a b", 1, "long"),
        mapped("part`s", 2, "date"),
        mapped("nested", 5, inner),
        mapped("map", 6, {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}),
    )
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "6"}
    table = Handmade(schema, "part`s", protocol=MAPPED, configuration=mode, store=LocalStore(tmp_path))
    row = {"col-3.`x": "text", "col-4.`x": 7}
    kind = pa.struct([("col-3.`x", pa.string()), ("col-4.`x", pa.int64())])
    data = pa.table(
        {
            "col-5.`x": pa.array([row, None], kind),
            "col-1.`x": [1, 2],
            "col-6.`x": pa.array([[("k", row)], None], pa.map_(pa.string(), kind)),
        }
    )
    table.commit(table.data("1.parquet", data, partitionValues={"col-2.`x": "2024-02-29"}))
    found = assert_read_alike(spark, tmp_path)
    assert found.column_names == ["a b", "part`s", "nested", "map"]
    assert_read_alike(spark, tmp_path, filter="`a b` = 2 AND `part``s` = '2024-02-29'")


def test_every_widening_of_a_type(spark, tmp_path):
    """PROTOCOL.md, "Type Widening": the file has the type of its day."""
    number, price = [7, None], [decimal.Decimal("1.25"), None]
    changes = {
        "byte_short": (pa.array(number, pa.int8()), "short"),
        "byte_int": (pa.array(number, pa.int8()), "integer"),
        "short_long": (pa.array(number, pa.int16()), "long"),
        "int_long": (pa.array(number, pa.int32()), "long"),
        "float_double": (pa.array([1.5, None], pa.float32()), "double"),
        "byte_double": (pa.array(number, pa.int8()), "double"),
        "int_double": (pa.array(number, pa.int32()), "double"),
        "date_ntz": (pa.array([dt.date(1920, 2, 29), None]), "timestamp_ntz"),
        "more_digits": (pa.array(price, pa.decimal128(6, 2)), "decimal(12,2)"),
        "more_places": (pa.array(price, pa.decimal128(6, 2)), "decimal(22,4)"),
        "short_decimal": (pa.array(number, pa.int16()), "decimal(10,0)"),
        "int_decimal": (pa.array(number, pa.int32()), "decimal(14,2)"),
        "long_decimal": (pa.array(number, pa.int64()), "decimal(24,3)"),
    }
    schema = struct(*(field(name, kind) for name, (_, kind) in changes.items()))
    table = Handmade(schema, store=LocalStore(tmp_path))
    table.commit(table.data("1.parquet", pa.table({name: column for name, (column, _) in changes.items()})))
    assert_read_alike(spark, tmp_path)


@pytest.mark.parametrize(
    "name", ["_x.parquet", ".x", "c:d.parquet", "_a:b/x", "tab\tand\nline", "q\\r", "p%25q #?,;+.crc", "ü"]
)
def test_names_of_files_count_for_nothing(spark, tmp_path, name):
    table = Handmade(struct(field("a", "long"), field("p", "string")), "p", store=LocalStore(tmp_path))
    added = [table.data(key, pa.table({"a": [1, 2]}), partitionValues={"p": key}) for key in (name, "plain")]
    added[0]["add"]["path"] = quote(name)
    table.commit(*added)
    assert_read_alike(spark, tmp_path)


def test_columns_found_by_their_id(spark, fresh_path):
    path = fresh_path()
    data = pa.table({"a": [1, 2, 3], "b": [{"c": "x"}, None, {"c": "z"}]})
    spark_tables.write(spark, path, data, options={"delta.columnMapping.mode": "id"})
    assert_same_table(assert_read_alike(spark, path, native=False), data)


def test_a_column_of_type_void(spark, tmp_path):
    table = Handmade(struct(field("a", "long"), field("nothing", "void")), store=LocalStore(tmp_path))
    table.commit(table.data("1.parquet", pa.table({"a": [1, 2]})))
    found = read(spark, tmp_path).collect()
    assert sorted((row.a, row.nothing) for row in found) == [(1, None), (2, None)]


@pytest.mark.tier("nightly")
def test_rows_and_their_ids(spark, tmp_path):
    path, names = tmp_path / "t", ["a", "_metadata.row_id", "_metadata.row_commit_version"]
    data = pa.table({"a": range(8), "p": ["x", "y"] * 4})
    write_deltalake(path, data, partition_by=["p"], configuration={**VECTORS_ON, "delta.enableRowTracking": "true"})
    table = DeltaTable(path)
    table.update({"a": "a + 10"}, predicate="a IN (1, 4)")
    table.delete("a = 0")
    condition = "_metadata.row_id > 2 AND _metadata.row_commit_version = 0 OR a = 11"
    found = assert_read_alike(spark, path, native=False, columns=names, filter=condition)
    assert sorted(found[names[1]].to_pylist()) == [3, 4, 5, 6, 7]
    assert_read_alike(spark, path, native=False, columns=["a"], filter=condition)
    # The data source has them where its schema is said.
    schema = "`_metadata.row_id` BIGINT, a BIGINT"
    register(spark)
    source = spark.read.format("refdelta").schema(schema).option("filter", condition).load(str(path))
    assert_same_table(source.toArrow().select(names[:2]), found.select(names[:2]))
    theirs = spark.read.format("delta").load(str(path)).selectExpr("a", *(f"{name} AS `{name}`" for name in names[1:]))
    assert_same_table(read(spark, path, columns=names).toArrow(), theirs.toArrow())


def test_a_column_that_is_named_as_spark_s_own(spark, deleted, tmp_path):
    path = tmp_path / "other"
    data = pa.table({"_metadata": [1, 2, 3], "p": ["a", "a", "b"]})
    write_deltalake(path, data, partition_by=["p"])
    assert_read_alike(spark, path)


def test_no_rows_and_no_columns(spark, deleted, tmp_path):
    path = tmp_path / "empty"
    write_deltalake(path, pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}))
    assert_read_alike(spark, path, native=False)
    assert read(spark, deleted, columns=[]).count() == 80


def test_what_a_session_is_told_to_pass_over_is_missed_all_the_same(spark, tmp_path):
    write_deltalake(tmp_path, pa.table({"x": [1, 2, 3]}))
    settings = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for name in settings:
        spark.conf.set(name, "true")
    try:
        frame = read(spark, tmp_path)
        for file in tmp_path.glob("*.parquet"):
            file.unlink()
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            frame.collect()
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_a_file_that_is_gone_is_named(spark, tmp_path):
    write_deltalake(tmp_path, pa.table({"x": [1, 2, 3]}))
    (file,) = tmp_path.glob("*.parquet")
    file.unlink()
    with pytest.raises(DataFileNotFoundError, match=file.name):
        read(spark, tmp_path)


def test_a_vector_that_is_gone_is_named(spark, deleted, monkeypatch):
    monkeypatch.setattr(frames, "_TASK_ROWS", 1)
    frame = read(spark, deleted)
    for file in deleted.rglob("*.bin"):
        file.unlink()
    with pytest.raises(DataFileNotFoundError, match=r"deletion_vector_.*\.bin"), raise_again():
        frame.collect()
    monkeypatch.undo()
    with pytest.raises(DataFileNotFoundError, match=r"deletion_vector_.*\.bin"):
        read(spark, deleted)


def test_a_file_that_spark_does_not_see_is_read_all_the_same(spark, deleted, monkeypatch):
    monkeypatch.setattr(frames, "_plain", lambda uri: uri + "other")
    assert_read_alike(spark, deleted)


def test_rows_of_a_file_that_the_plan_does_not_know_are_an_error(spark, deleted, monkeypatch):
    monkeypatch.setattr(frames, "_in_metadata", lambda uri: uri + "other")
    frame = read(spark, deleted, columns=["part"])
    with pytest.raises(Exception, match="another path than was planned"):
        frame.collect()


def test_one_clear_error(spark, tmp_path, deleted):
    with pytest.raises(TableNotFoundError):
        read(spark, tmp_path / "none")
    with pytest.raises(VersionNotFoundError):
        read(spark, deleted, version=7)
    with pytest.raises(ColumnNotFoundError):
        read(spark, deleted, columns=["other"])
    with pytest.raises(PredicateError):
        read(spark, deleted, filter="row >")
    with pytest.raises(InvalidArgumentError, match="filter must be SQL"):
        read(spark, deleted, filter=["row > 1"])
    with pytest.raises(InvalidArgumentError, match="SparkSession"):
        read(None, deleted)


def test_a_store_of_this_process_alone(spark):
    uri = "memory://read-by-spark"
    write_deltalake(uri, pa.table({"x": [1]}))
    with pytest.raises(StoreError), raise_again():
        read(spark, uri).collect()


def test_rows_are_compared_with_delta_spark_too(spark, deleted):
    theirs = spark.read.format("delta").load(str(deleted)).toArrow()
    assert_same_rows(read(spark, deleted).toArrow(), theirs)


SETTINGS = {
    "spark.sql.sources.useV1SourceList": "",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.columnarReaderBatchSize": "1",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.files.maxPartitionBytes": "100",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "0",
    "spark.sql.sources.default": "csv",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_spark_s_own_reader_change_no_read(spark, tmp_path, name):
    uri = tmp_path / "t"
    moments = pa.array([0, -(10**16), None, 1], pa.timestamp("us"))
    rows = pa.table({"id": [1, 2, 3, 4], "k": [0, 0, 1, 1], "b": [b"a", b"", None, b"\xff"], "at": moments})
    vectors = {"delta.enableDeletionVectors": "true"}
    write_deltalake(uri, rows, partition_by="k", configuration=vectors)
    DeltaTable(uri).delete("id = 2")
    write_deltalake(uri, rows.append_column("late", pa.array(["x"] * 4)), mode="append", schema_mode="merge")
    expected = DeltaTable(uri).to_pyarrow_table()
    spark.conf.set(name, SETTINGS[name])
    try:
        found = read(spark, uri).toArrow()
        some = read(spark, uri, columns=["id"], filter="id > 1 and (late = 'x' or b is null)").toArrow()
    finally:
        spark.conf.unset(name)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    assert sorted(some.column("id").to_pylist()) == [2, 3, 3, 4]
