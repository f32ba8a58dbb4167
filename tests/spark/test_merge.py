"""MERGE of a DataFrame that stays with Spark's workers: what comes of it is what the local engine makes of the rows.

Tests of spark.buckets, spark.merging.
"""

from __future__ import annotations

import datetime as dt
import decimal
import gc

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.errors import (
    ColumnNotFoundError,
    ConcurrentModificationError,
    ConstraintViolationError,
    ExpressionError,
    InvalidArgumentError,
)
from refdelta.spark import SparkExecutor, SparkUnavailableError, merging
from refdelta.spark import read as spark_read

pytestmark = pytest.mark.spark

VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def shuffled(spark):
    """No source is small enough to be collected."""
    return SparkExecutor(spark, group_bytes=1, broadcast_bytes=0)


def table_at(path, *, vectors=True, partition_by=None):
    """Four files, of which one has a row deleted; keys 0 to 39 and one row without a key."""
    configuration = VECTORS if vectors else {"delta.enableDeletionVectors": "false"}
    for start in range(0, 40, 10):
        ids = [*range(start, start + 10)]
        if start == 20:
            ids[5] = None
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "part": pa.array([start // 20] * 10, pa.int32()),
                "name": [f"n{start + i}" for i in range(10)],
            }
        )
        write_deltalake(path, rows, mode="append", partition_by=partition_by, configuration=configuration)
    DeltaTable(path).delete("id = 13")


def held(path):
    return sorted(map(repr, DeltaTable(path).to_pyarrow_table().to_pylist()))


SOURCE = pa.table(
    {
        "id": pa.array([3, 17, 24, 38, 50, 51, None, 52, 0], pa.int32()),
        "part": pa.array([0, 0, 1, 1, 3, 3, 3, 0, 0], pa.int32()),
        "name": ["a", None, "c", "d", "e", "skip", "no key", "f", "keep"],
    }
)

COUNTED = (
    "num_source_rows",
    "num_target_rows_inserted",
    "num_target_rows_updated",
    "num_target_rows_deleted",
    "num_target_rows_copied",
    "num_output_rows",
    "num_target_files_scanned",
    "num_target_files_skipped_during_scan",
    "num_target_files_removed",
    "num_deletion_vectors_added",
)

ON = "s.id = t.id"
CASES = {
    "update": (ON, lambda m: m.when_matched_update_all("s.name is not null")),
    "delete": (ON, lambda m: m.when_matched_delete()),
    "insert": (ON, lambda m: m.when_not_matched_insert_all("s.name <> 'skip'")),
    "all": (
        ON,
        lambda m: (
            m.when_matched_delete("s.name is null")
            .when_matched_update({"name": "concat(t.name, s.name)", "part": "s.part + 1"}, "s.name <> 'keep'")
            .when_not_matched_insert({"id": "s.id", "part": "9"}, "s.id = 50")
            .when_not_matched_insert_all("s.name <> 'skip'")
            .when_not_matched_by_source_delete("t.id = 30")
            .when_not_matched_by_source_update({"name": "'gone'"}, "t.id > 35 or t.id is null")
        ),
    ),
    "nulls match": (
        "s.id <=> t.id",
        lambda m: m.when_matched_update({"name": "s.name"}).when_not_matched_insert_all(),
    ),
    "two keys and more": (
        "s.id = t.id and t.part = s.part and t.part = 0 and s.name > 'a' and (t.name = 'n0' or s.id > t.part)",
        lambda m: m.when_matched_update({"name": "s.name"}).when_not_matched_insert_all(),
    ),
    "an expression": (
        "t.id = s.id * 2 and s.part = t.part",
        lambda m: m.when_matched_update({"name": "concat('twice ', s.name)"}),
    ),
    "as a fraction": ("cast(t.id as double) = s.id", lambda m: m.when_matched_delete().when_not_matched_insert_all()),
    "no row matches": ("s.id = t.id and t.id > 1000", lambda m: m.when_matched_delete()),
}


SHOWN = [("vectors", case) for case in CASES] + [("copies", "all"), ("copies", "delete"), ("partitions", "all")]


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(("kind", "case"), SHOWN)
def test_the_rows_are_those_of_the_local_engine(tmp_path, shuffled, spark, kind, case):
    on, clauses = CASES[case]
    made = []
    for place, source, executor in (
        ("here", SOURCE, None),
        ("there", spark.createDataFrame(SOURCE).repartition(3), shuffled),
    ):
        path = str(tmp_path / place)
        table_at(path, vectors=kind != "copies", partition_by=["part"] if kind == "partitions" else None)
        result = clauses(DeltaTable(path).merge(source, on, executor=executor)).execute()
        noted = DeltaTable(path).history(1)[0]["operationParameters"]
        made.append((held(path), result.version, {name: result[name] for name in COUNTED}, noted))
    assert made[0] == made[1]


def files(path):
    return {str(file) for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


NAN = float("nan")


@pytest.mark.tier("nightly")
def test_keys_of_all_kinds_are_equal_where_they_are_for_the_local_engine(tmp_path, shuffled, spark):
    """Each kind of key alone, with a null in each; as columns, and as what a function makes of them."""
    stamp = dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC)
    columns = {
        "f": pa.array([0.0, -0.0, NAN, 1.5, None, 7.0], pa.float64()),
        "g": pa.array([1.0, -0.0, NAN, 2.5, None, 8.0], pa.float32()),
        "d": pa.array([decimal.Decimal(n) / 100 for n in (1, -1, 250, 0, 99)] + [None], pa.decimal128(20, 2)),
        "s": ["", "ä", None, "A", "a", " a"],
        "b": pa.array([b"", b"\0", None, b"x", b"y", b"xy"], pa.binary()),
        "t": pa.array([stamp + dt.timedelta(hours=h) for h in range(5)] + [None], pa.timestamp("us", "UTC")),
        "day": pa.array([dt.date(1500 + y, 3, 1) for y in range(5)] + [None]),
        "in": pa.array([{"x": 1}, {"x": 2}, {"x": None}, None, {"x": 3}, {"x": 4}], pa.struct([("x", pa.int16())])),
    }
    rows = pa.table({"n": range(6), **columns})
    source = rows.take([5, 3, 1, 2, 0, 4, 1])
    path = str(tmp_path)
    write_deltalake(path, rows, configuration=VECTORS)
    frame = spark.createDataFrame(source)
    keys = ("f", "g", "d", "s", "b", "t", "day", "in.x")
    for on in [f"s.{key} = t.{key}" for key in keys] + ["s.f <=> t.f and s.s <=> t.s", "upper(s.s) = upper(t.s)"]:
        # Neither commits: what they match and what they have read is compared.
        counted = []
        for data, executor in ((source, None), (frame, shuffled)):
            with DeltaTable(path).begin(executor=executor) as txn:
                txn.merge(data, on).when_matched_delete().execute()
                reads = txn._transaction.reads
                operation = txn._transaction.description.operation_metrics
                counted.append(
                    (
                        {name: count for name, count in operation.items() if name.startswith("numTargetRows")},
                        sorted(one.predicate.text for one in reads.reads),
                    )
                )
                txn.abort()
        assert counted[0] == counted[1], on


def test_new_columns_and_nested_ones(tmp_path, shuffled, spark):
    """Schema evolution, columns that hold no null, odd names, structs, lists and maps."""
    rows = pa.table(
        [
            pa.array([1, 2, 3], pa.int64()),
            pa.array(
                [{"x": 1, "y": "a"}, None, {"x": 3, "y": None}], pa.struct([("x", pa.int32()), ("y", pa.string())])
            ),
            pa.array([[1], [], None], pa.list_(pa.int32())),
        ],
        schema=pa.schema(
            [
                pa.field("the_id", pa.int64(), nullable=False),
                ("in", pa.struct([("x", pa.int32()), ("y", pa.string())])),
                ("l", pa.list_(pa.int32())),
            ]
        ),
    )
    source = pa.table(
        {
            "THE_ID": [2, 4],
            "in": pa.array(
                [{"x": 9, "z": 1.5}, {"x": 8, "z": None}], pa.struct([("x", pa.int32()), ("z", pa.float64())])
            ),
            "new.col": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None],
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        }
    )
    made = []
    for place, data, executor in (("here", source, None), ("there", spark.createDataFrame(source), shuffled)):
        path = str(tmp_path / place)
        write_deltalake(path, rows, configuration=VECTORS)
        merge = DeltaTable(path).merge(data, "s.the_id = t.the_id", merge_schema=True, executor=executor)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        made.append((held(path), [(f.name, f.type, f.nullable) for f in DeltaTable(path).schema().fields]))
    assert made[0] == made[1]
    null = spark.createDataFrame([(None, 1)], "id long, x int")
    merge = DeltaTable(path).merge(null, "s.x = t.the_id + 100", executor=shuffled)
    with pytest.raises(ConstraintViolationError, match="the_id"):
        merge.when_not_matched_insert({"the_id": "s.id"}).execute()


def test_errors_leave_nothing(tmp_path, shuffled, spark):
    path = str(tmp_path)
    table_at(path)
    before, rows = files(tmp_path), held(path)
    twice = spark.createDataFrame(pa.concat_tables([SOURCE, SOURCE]))
    merge = DeltaTable(path).merge(twice, ON, executor=shuffled).when_matched_update({"name": "s.name"})
    with pytest.raises(ConstraintViolationError, match="2 rows of the source match one row of the table"):
        merge.execute()
    frame = spark.createDataFrame(SOURCE)
    merge = DeltaTable(path).merge(frame, ON, executor=shuffled).when_matched_update({"part": "s.part"})
    with pytest.raises(ExpressionError):
        merge.when_not_matched_insert({"id": "cast(s.name as bigint)"}).execute()
    with pytest.raises(ColumnNotFoundError):
        DeltaTable(path).merge(frame, "s.nothing = t.id", executor=shuffled).when_matched_delete().execute()
    assert (files(tmp_path), held(path)) == (before, rows)


@pytest.mark.tier("nightly")
def test_what_others_commit_meanwhile_is_judged_by_rows(tmp_path, shuffled, spark):
    """As with a source in memory: other rows do not matter, rows that the MERGE touched do, and so do new rows with
    a key of the source, but not those with a key beside it.
    """
    path = str(tmp_path)
    table_at(path)
    table = DeltaTable(path)
    frame = spark.createDataFrame(SOURCE)

    def upsert(meanwhile, isolation="Serializable"):
        with DeltaTable(path).begin(executor=shuffled, isolation=isolation) as txn:
            txn.merge(frame, ON).when_matched_update({"name": "s.name"}).when_not_matched_insert_all().execute()
            meanwhile()
            return txn.commit()

    def insert(key):
        rows = pa.table({"id": pa.array([key], pa.int64()), "part": pa.array([1], pa.int32()), "name": ["x"]})
        write_deltalake(path, rows, mode="append")

    before = files(tmp_path)
    with pytest.raises(ConcurrentModificationError):
        upsert(lambda: DeltaTable(path).update({"name": "'theirs'"}, predicate="id = 24"))
    with pytest.raises(ConcurrentModificationError):
        upsert(lambda: insert(51))
    assert len(files(tmp_path) - before) == 2  # one of the update, one of the insert
    table.update_incremental()
    theirs = table.version()
    DeltaTable(path).delete("id = 51")
    result = upsert(lambda: (DeltaTable(path).delete("id = 25 or id = 4"), insert(49)))
    assert result.rebased_over == (theirs + 2, theirs + 3)
    rows = DeltaTable(path).to_pyarrow_table()
    names = dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))
    assert not {4, 25}.intersection(names)
    assert (names[24], names[49], names[50]) == ("c", "x", "e")


def test_a_source_made_of_the_table_rests_on_it(tmp_path, shuffled, spark):
    path = str(tmp_path)
    table_at(path)
    source = spark_read(spark, path).where("id > 30").selectExpr("id + 100 as id", "part", "name")
    with DeltaTable(path).begin(executor=shuffled, isolation="Serializable") as txn:
        txn.merge(source, ON).when_not_matched_insert_all().execute()
        DeltaTable(path).delete("id = 0")
        with pytest.raises(ConcurrentModificationError):
            txn.commit()
    with pytest.raises(InvalidArgumentError, match="the data are of version 4 of this table"):
        DeltaTable(path).merge(source, ON, executor=shuffled).when_not_matched_insert_all().execute()


def test_without_an_equality_the_source_has_to_be_small(tmp_path, spark):
    path = str(tmp_path)
    table_at(path)
    frame = spark.createDataFrame(SOURCE)
    refused = DeltaTable(path).merge(frame, "s.id < t.id", executor=SparkExecutor(spark, broadcast_bytes=100))
    with pytest.raises(InvalidArgumentError, match=r"ON has no equality .*broadcast_bytes, 100"):
        refused.when_matched_delete().execute()
    small = DeltaTable(path).merge(frame, "s.id < t.id and s.id > 30", executor=SparkExecutor(spark))
    assert small.when_matched_delete("s.id = 38").execute()["num_target_rows_deleted"] == 1
    with pytest.raises(InvalidArgumentError, match="broadcast_bytes is -1"):
        SparkExecutor(spark, broadcast_bytes=-1)
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidArgumentError, match="foreachBatch"):
        DeltaTable(path).merge(stream, "true", executor=SparkExecutor(spark)).when_matched_delete().execute()


def test_a_source_is_computed_once_never_collected_and_not_kept(tmp_path, shuffled, spark, monkeypatch):
    from pyspark.sql import functions as f
    from pyspark.sql.classic.dataframe import DataFrame

    path = str(tmp_path)
    write_deltalake(path, pa.table({"id": range(100), "name": ["old"] * 100}), configuration=VECTORS)
    before = set(spark.sparkContext._jsc.getPersistentRDDs())
    monkeypatch.setattr(DataFrame, "toArrow", None)
    # Whoever asks such a DataFrame twice gets other rows.
    source = spark.range(200).where(f.rand() < 0.5).select("id", f.lit("new").alias("name"))
    merge = DeltaTable(path).merge(source, ON, executor=shuffled)
    result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    rows = DeltaTable(path).to_pyarrow_table()
    new = rows.filter(pa.compute.equal(rows.column("name"), "new"))
    assert 50 < new.num_rows == result["num_source_rows"] < 150
    assert result["num_target_rows_updated"] + result["num_target_rows_inserted"] == new.num_rows
    assert rows.num_rows == 100 + result["num_target_rows_inserted"] == len(set(rows.column("id").to_pylist()))
    del merge, result
    gc.collect()
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= before


def test_each_bucket_holds_its_share(tmp_path, shuffled, spark, monkeypatch):
    """The source's rows by their keys, without those that have none; rows of the table without a key are spread."""
    path = str(tmp_path)
    ids = pa.array([*range(4000), *[None] * 4000], pa.int64())
    write_deltalake(path, pa.table({"id": ids}), configuration=VECTORS)
    parts, real = [], merging.in_buckets

    def sizes(bucket):
        found = {"source": [len(bucket.ids)], "target": [sum(batch.num_rows for batch in bucket.target)]}
        yield pa.record_batch(found)

    def noted(plan, source, target, count, work, schema):
        parts.extend(real(plan, source, target, 8, sizes, "source long, target long").collect())
        return real(plan, source, target, 8, work, schema)

    monkeypatch.setattr(merging, "in_buckets", noted)
    source = spark.range(2000).selectExpr("nullif(id, 7) as id")
    merge = DeltaTable(path).merge(source, ON, executor=shuffled)
    result = merge.when_matched_delete().when_not_matched_by_source_delete("t.id = 2500").execute()
    assert result["num_target_rows_deleted"] == 2000
    assert sum(part.source for part in parts) == 1999
    assert sum(part.target for part in parts) == 8000
    assert len(parts) == 8
    assert max(part.source for part in parts) < 2000 // 4
    assert max(part.target for part in parts) < 8000 // 4


def test_the_session_s_time_zone_does_not_matter(tmp_path, shuffled, spark):
    stamp = dt.datetime(2026, 3, 8, 6, 30, tzinfo=dt.UTC)
    rows = pa.table({"at": pa.array([stamp], pa.timestamp("us", "UTC")), "v": ["old"]})
    source = pa.table({"at": pa.array([stamp, stamp + dt.timedelta(hours=1)], pa.timestamp("us", "UTC"))})
    path, before = str(tmp_path), spark.conf.get("spark.sql.session.timeZone")
    write_deltalake(path, rows, configuration=VECTORS)
    frame = spark.createDataFrame(source)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        merge = DeltaTable(path).merge(frame, "s.at = t.at", executor=shuffled)
        merge.when_matched_update({"v": "'new'"}).when_not_matched_insert({"at": "s.at"}).execute()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert DeltaTable(path).to_pyarrow_table().sort_by("at").to_pylist() == [
        {"at": stamp, "v": "new"},
        {"at": stamp + dt.timedelta(hours=1), "v": None},
    ]


def test_rows_of_the_source_that_are_lost_with_a_worker(tmp_path, shuffled, spark, monkeypatch):
    real = merging._measured

    def lost(kept, plan):
        found = real(kept, plan)
        kept.frame._jdf.queryExecution().logical().rdd().unpersist(True)
        return found

    monkeypatch.setattr(merging, "_measured", lost)
    path = str(tmp_path)
    table_at(path)
    before, rows = files(tmp_path), held(path)
    merge = DeltaTable(path).merge(spark.createDataFrame(SOURCE), ON, executor=shuffled)
    with pytest.raises(SparkUnavailableError, match="a worker that held rows of the source of the MERGE is lost"):
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (files(tmp_path), held(path)) == (before, rows)


def test_in_a_table_without_files_nothing_is_looked_for(tmp_path, shuffled, spark, monkeypatch):
    path = str(tmp_path)
    write_deltalake(path, pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())}))
    monkeypatch.setattr(merging, "in_buckets", None)
    merge = DeltaTable(path).merge(spark.createDataFrame(SOURCE.drop_columns(["part"])), ON, executor=shuffled)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert held(path) == sorted(map(repr, SOURCE.drop_columns(["part"]).to_pylist()))


def test_changed_and_new_rows_do_not_return_to_java_before_they_are_written(tmp_path, shuffled, spark, monkeypatch):
    schemas, real = [], merging.tasks.over

    def noted(frame, function, schema):
        schemas.append(schema)
        return real(frame, function, schema)

    path = str(tmp_path)
    write_deltalake(path, pa.table({"id": range(10), "name": ["old"] * 10}), configuration=VECTORS)
    monkeypatch.setattr(merging.tasks, "over", noted)
    source = spark.range(5, 15).selectExpr("id", "'new' as name")
    merge = DeltaTable(path).merge(source, ON, executor=shuffled)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert DeltaTable(path).to_pyarrow_table().num_rows == 15
    # Sizes and keys, the rows that match, and then the files of the changed and of the new rows.
    assert schemas == ["size long, keys binary", "part binary", *["attempt string, written binary"] * 2]


def test_the_size_of_a_source_is_found_without_its_rows(spark):
    count = 1000
    frame = spark.range(count).selectExpr(
        "id",
        "CAST(id AS INT) AS number",
        "CAST(id AS DECIMAL(15, 2)) AS price",
        "id % 2 = 0 AS even",
        "DATE'2026-01-01' AS day",
        "CAST(NULL AS STRING) AS nothing",
        "repeat('é', 10) AS `a text`",
        "X'0102' AS bytes",
        "array('abc', 'd') AS listed",
        "named_struct('a', id) AS `in`",
        "map('k', 1.5D) AS pairs",
        "parse_json('{\"a\": 1}') AS any",
    )
    sizes = [row.n for row in frame.select(merging._bytes(frame).alias("n")).collect()]
    fixed = 8 + 4 + 16 + 1 + 4 + 3 * 4 + 20 + 2
    assert len(sizes) == count
    assert all(fixed < size < fixed + 100 for size in sizes)
