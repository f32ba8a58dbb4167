"""The change data feed between the engines: each reads what the other recorded, and derives the rest alike."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_tables
from comparison import assert_same_table, rows
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.spark import SparkExecutor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
KINDS = {
    "plain": ((), FEED),
    "vectors": ((), {**FEED, **VECTORS}),
    "partitions": (("p",), FEED),
    "mapped": (("p",), {**FEED, **VECTORS, "delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}),
    "by id": ((), {**FEED, "delta.columnMapping.mode": "id", "delta.enableInCommitTimestamps": "true"}),
}
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("s", pa.struct([("x", pa.int32()), ("t", pa.string())]))])
STATEMENTS = [
    "INSERT INTO {t} SELECT id, if(id % 4 = 3, null, concat('p ', id % 4)), struct(int(id), string(id)) FROM range(20)",
    "UPDATE {t} SET s = named_struct('x', -1, 't', 'new') WHERE id % 5 = 0",
    "DELETE FROM {t} WHERE id % 7 = 1",
    """
    MERGE INTO {t} t USING (SELECT id * 2 AS id FROM range(8, 14)) s ON t.id = s.id
    WHEN MATCHED AND s.id < 18 THEN DELETE WHEN MATCHED THEN UPDATE SET p = 'moved'
    WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, 'p 0')
    """,
    "DELETE FROM {t} WHERE p = 'p 1'",
    "ALTER TABLE {t} ADD COLUMNS (later DATE)",
    "INSERT INTO {t} VALUES (100, 'p 2', null, DATE'2026-01-01'), (101, null, null, null)",
    "INSERT INTO {t} REPLACE WHERE p = 'p 2' SELECT 102, 'p 2', null, null",
    "OPTIMIZE {t}",
    "RESTORE TABLE {t} TO VERSION AS OF 7",
    "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    "DELETE FROM {t}",
]


def feed(spark: Any, path: Path, **options: Any) -> pa.Table:
    """The rows that delta-spark reads."""
    return spark.read.format("delta").option("readChangeFeed", "true").options(**options).load(str(path)).toArrow()


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("kind", KINDS)
def test_reading_what_delta_spark_records(quick_spark, tmp_path, kind):
    partitions, properties = KINDS[kind]
    spark_tables.create(quick_spark, tmp_path, SCHEMA, partitions, properties)
    for statement in STATEMENTS:
        spark_tables.sql(quick_spark, tmp_path, statement)
    table = DeltaTable(tmp_path)
    last = table.version()
    assert last >= len(STATEMENTS) - 1
    whole = table.load_cdf().read_all()
    theirs = feed(quick_spark, tmp_path, startingVersion=0)
    if kind == "by id":  # delta-spark gives the files' times here, against PROTOCOL.md
        theirs = theirs.drop_columns(["_commit_timestamp"])
        assert_same_table(whole.drop_columns(["_commit_timestamp"]), theirs)
    else:
        assert_same_table(whole, theirs)
    assert whole.column("_commit_version").to_pylist() == sorted(whole.column("_commit_version").to_pylist())
    told = {entry["version"]: entry["timestamp"] for entry in table.history()}
    stamps = zip(
        whole.column("_commit_version").to_pylist(), whole.column("_commit_timestamp").to_pylist(), strict=True
    )
    assert {version: round(time.timestamp() * 1000) for version, time in stamps}.items() <= told.items()
    # Each range by versions, by times, and with a filter and columns, is a part of it.
    picked = ["_change_type", "id", "_commit_version"]
    for first, end in [(2, 4), (3, 3), (4, last)]:
        part = table.load_cdf(first, end, columns=picked, predicate="id < 100 and _change_type <> 'delete'").read_all()
        keep = [
            row
            for row in whole.select(picked).to_pylist()
            if first <= row["_commit_version"] <= end and row["id"] < 100 and row["_change_type"] != "delete"
        ]
        assert rows(part) == rows(pa.Table.from_pylist(keep, part.schema))
        times = [datetime.fromtimestamp(told[v] / 1000, UTC).isoformat() for v in (first, end)]
        by_time = table.load_cdf(starting_timestamp=times[0], ending_timestamp=times[1]).read_all()
        assert rows(by_time) == rows(table.load_cdf(first, end).read_all())
    # A column that came later; where columns are mapped, the schema is that of the last version that is read.
    assert ("later" in table.load_cdf(2, 4).schema.names) is (kind not in ("mapped", "by id"))


@pytest.mark.tier("nightly")
def test_what_cannot_be_read_is_refused_by_both(quick_spark, tmp_path):
    spark = quick_spark
    spark_tables.create(spark, tmp_path, SCHEMA, (), {**FEED, "delta.columnMapping.mode": "name"})
    for statement in [
        STATEMENTS[0],
        "ALTER TABLE {t} RENAME COLUMN s TO r",
        "UPDATE {t} SET r = null WHERE id = 3",
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.enableChangeDataFeed')",
        "DELETE FROM {t} WHERE id = 4",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "DELETE FROM {t} WHERE id = 5",
    ]:
        spark_tables.sql(spark, tmp_path, statement)
    table = DeltaTable(tmp_path)

    def both(first: int, last: int | None) -> type[Exception] | None:
        options = {"startingVersion": first} | ({} if last is None else {"endingVersion": last})
        try:
            ours = table.load_cdf(first, last).read_all()
        except errors.DeltaError as error:
            with pytest.raises(Exception):  # noqa: B017, PT011 - of several classes of Java's
                feed(spark, tmp_path, **options)
            return type(error)
        assert_same_table(ours, feed(spark, tmp_path, **options))
        return None

    assert both(0, 1) is None  # with the columns of that time
    assert both(0, 2) is errors.SchemaMismatchError
    assert both(2, 3) is None
    assert both(2, 4) is errors.InvalidArgumentError
    assert both(5, 5) is errors.InvalidArgumentError
    assert both(6, None) is None
    assert both(6, 99) is None  # up to the newest
    assert both(8, None) is errors.VersionNotFoundError
    assert both(3, 2) is errors.InvalidArgumentError
    assert table.load_cdf(8, allow_out_of_range=True).read_all().num_rows == 0
    late = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(errors.VersionNotFoundError):
        table.load_cdf(starting_timestamp=late)
    assert table.load_cdf(starting_timestamp=late, allow_out_of_range=True).read_all().num_rows == 0


def test_the_feed_of_before_vectors_were_dropped(quick_spark, tmp_path):
    """delta-spark passes over the vectors of versions that had them: spec_notes/divergences.md."""
    write_deltalake(tmp_path, pa.table({"id": [1, 2, 3]}), configuration=FEED | VECTORS)
    table = DeltaTable(tmp_path)
    table.delete("id = 2")
    expected = feed(quick_spark, tmp_path, startingVersion=0)
    table.alter.drop_feature("deletionVectors")
    ours = table.load_cdf().read_all()
    assert_same_table(ours, expected)
    theirs = rows(feed(quick_spark, tmp_path, startingVersion=0)) - rows(ours)
    assert {(row[0], row[1]) for row in theirs} == {(1, "delete"), (3, "delete")}


WRITING = {
    "plain": ((), FEED),
    "vectors": ((), {**FEED, **VECTORS}),
    "mapped": (("p",), {**FEED, **VECTORS, "delta.columnMapping.mode": "name"}),
    "by id": (("p",), {**FEED, "delta.columnMapping.mode": "id"}),
}


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("kind", WRITING)
def test_delta_spark_reads_what_is_recorded_here(quick_spark, tmp_path, kind):
    partitions, properties = WRITING[kind]
    source = pa.table(
        {"id": pa.array([3, 4, 5, 70], pa.int64()), "p": ["a", None, "b", "a"]},
    )
    rows_of = {"id": pa.array(range(30), pa.int64()), "p": [["a", "b c", None][i % 3] for i in range(30)]}
    structs = pa.array([{"x": i, "t": str(i)} if i % 4 else None for i in range(30)], SCHEMA.field("s").type)
    whole = pa.table({**rows_of, "s": structs})
    write_deltalake(tmp_path, whole, configuration=properties, partition_by=list(partitions))
    table = DeltaTable(tmp_path)
    table.update({"p": "'moved'"}, predicate="id % 10 = 0")
    table.delete("id % 7 = 1")

    def merge(into: Any, **named: Any) -> None:
        into.merge(source, "s.id = t.id", **named).when_matched_delete("s.id = 3").when_matched_update(
            {"p": "s.p"}, predicate="s.id < 70"
        ).when_not_matched_insert({"id": "s.id", "p": "s.p"}).when_not_matched_by_source_update(
            {"p": "'rest'"}, predicate="t.id = 20"
        ).execute()

    merge(table)
    table.alter.add_columns(pa.schema([("later", pa.date32())]))
    write_deltalake(tmp_path, whole.slice(20), mode="overwrite", predicate="id >= 20")
    write_deltalake(tmp_path, whole.slice(0, 2), mode="append")
    spark_tables.sql(quick_spark, tmp_path, "UPDATE {t} SET later = DATE'2026-01-01' WHERE id IN (1, 5)")
    table.optimize.compact()
    table.restore(7)
    table.delete("p = 'b c'")
    # The same with Spark's workers; a source of theirs is shuffled.
    executor = SparkExecutor(quick_spark)
    table.update({"s": "null"}, predicate="id = 21", executor=executor)
    table.delete("id in (23, 24)", executor=executor)
    frame = spark_tables.frame(quick_spark, pa.table({"id": pa.array([26, 27, 80], pa.int64()), "q": ["a", "b", "c"]}))
    frame_merge = table.merge(frame, "s.id = t.id", executor=executor).when_matched_delete("s.id = 27")
    frame_merge.when_matched_update({"p": "s.q"}).when_not_matched_insert({"id": "s.id", "p": "s.q"}).execute()
    table = DeltaTable(tmp_path)
    assert table.version() == 13
    ours = table.load_cdf().read_all()
    assert_same_table(ours, feed(quick_spark, tmp_path, startingVersion=0))
    ids = [(row["_change_type"], row["id"]) for row in table.load_cdf(13).read_all().to_pylist()]
    updated = [("update_postimage", 26), ("update_preimage", 26)]
    assert sorted(ids) == [("delete", 27), ("insert", 80), *updated]
    # What each version holds follows from the feed.
    state: Counter[str] = Counter()
    told = ours.to_pylist()
    for version in range(14):
        for row in told:
            if row["_commit_version"] == version:
                kind_of = row["_change_type"]
                key = str([row[name] for name in table.schema().names])
                state[key] += 1 if kind_of in ("insert", "update_postimage") else -1
        held = DeltaTable(tmp_path, version=version).to_pyarrow_table().to_pylist()
        names = table.schema().names
        expected = Counter(str([row.get(name) for name in names]) for row in held)
        assert {key: count for key, count in state.items() if count} == expected


@pytest.mark.parametrize("properties", [FEED, FEED | VECTORS], ids=["plain", "vectors"])
def test_a_statement_and_an_append_in_one_version(quick_spark, tmp_path, properties):
    """delta-spark passes over the files of a MERGE that changed no row; appended rows are in change files there."""
    write_deltalake(tmp_path, pa.table({"id": range(10)}), configuration=properties)
    statements = [
        lambda txn: txn.delete("id = 2"),
        lambda txn: txn.delete("id < 5"),
        lambda txn: txn.merge(pa.table({"k": [99]}), "t.id = s.k").when_matched_delete().execute(),
        lambda txn: txn.merge(pa.table({"k": [7]}), "t.id = s.k").when_matched_delete().execute(),
    ]
    for number, statement in enumerate(statements):
        with DeltaTable(tmp_path).begin() as txn:
            txn.append(pa.table({"id": [100 + number]}))
            statement(txn)
            txn.commit()
    ours = DeltaTable(tmp_path).load_cdf().read_all()
    assert_same_table(ours, feed(quick_spark, tmp_path, startingVersion=0))
    told = zip(ours.column("_change_type").to_pylist(), ours.column("id").to_pylist(), strict=True)
    deleted = [("delete", number) for number in [2, 0, 1, 3, 4, 7]]
    assert Counter(told) == Counter([("insert", number) for number in [*range(10), *range(100, 104)]] + deleted)
