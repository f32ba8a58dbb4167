"""Both engines write tables whose rows are tracked: each reads the ids that the other keeps, and keeps them further."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_tables
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.spark import SparkExecutor

pytestmark = pytest.mark.spark

IDS = ["_metadata.row_id", "_metadata.row_commit_version"]
SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("v", pa.string())])


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "p": [k % 2 for k in keys], "v": [f"v{k}" for k in keys]}, SCHEMA)


def ours(path) -> list[tuple]:
    table = DeltaTable(path).to_pyarrow_table(columns=["k", "v", *IDS])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def sparks(spark, path) -> list[tuple]:
    found = spark.sql(f"SELECT k, v, {', '.join(IDS)} FROM {oracle.identifier(path)}").collect()
    return sorted(map(tuple, found))


def check(spark, path) -> list[tuple]:
    found = ours(path)
    assert found == sparks(spark, path)
    assert len({row[2] for row in found}) == len(found)
    return found


def both_write(spark, path) -> None:
    """Statements of one engine, then of the other, over and over; rows keep their ids through all of them."""
    write_deltalake(path, rows(*range(10)), mode="append")
    spark_tables.write(spark, path, rows(*range(10, 20)))
    known = {key: row_id for key, _, row_id, _ in check(spark, path)}
    table = DeltaTable(path)

    def merge() -> None:
        merger = table.merge(rows(3, 13, 30), "s.k = t.k")
        merger.when_matched_update({"v": "'ours'"}).when_not_matched_insert_all().execute()

    insert_or_update = (
        "MERGE INTO {t} t USING (SELECT id AS k FROM range(4, 50, 10)) s ON s.k = t.k "
        "WHEN MATCHED THEN UPDATE SET v = 'M' WHEN NOT MATCHED THEN INSERT (k, p, v) VALUES (s.k, 0, 'inserted')"
    )
    turns = [
        lambda: table.update({"v": "'u'"}, predicate="k IN (1, 11)"),
        "UPDATE {t} SET v = 'U' WHERE k IN (2, 12)",
        merge,
        insert_or_update,
        lambda: table.delete("k IN (0, 10)"),
        "DELETE FROM {t} WHERE k IN (5, 15)",
        table.optimize.compact,
        lambda: write_deltalake(path, rows(60, 61), mode="append"),
        "OPTIMIZE {t} ZORDER BY (v)",
        lambda: table.update({"v": "'again'"}, predicate="k > 16"),
        lambda: table.optimize.z_order(["v"]),
    ]
    for turn in turns:
        before = {row[0]: row for row in ours(path)}
        if callable(turn):
            table.update_incremental()
            turn()
        else:
            spark_tables.sql(spark, path, turn)
        version = DeltaTable(path).version()
        for key, value, row_id, since in check(spark, path):
            assert known.setdefault(key, row_id) == row_id
            if key not in before:
                assert since == version
            elif value == before[key][1] and value not in ("u", "U", "again"):
                assert since in (before[key][3], version)
        tags = DeltaTable(path).history(1)[0].get("tags")
        assert tags == {"delta.rowTracking.preserved": "true"}, turn


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_both_keep_the_ids_of_rows(quick_spark, fresh_path, vectors):
    path = fresh_path()
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": vectors}
    if vectors == "true":
        DeltaTable.create(path, SCHEMA, configuration=properties)
    else:
        spark_tables.create(quick_spark, path, SCHEMA, ["p"], properties)
    both_write(quick_spark, path)


@pytest.mark.tier("nightly")
def test_each_enables_it_on_a_table_of_the_other(quick_spark, fresh_path):
    mine, theirs = fresh_path(), fresh_path()
    write_deltalake(mine, rows(1, 2, 3), configuration={"delta.enableDeletionVectors": "true"})
    spark_tables.write(quick_spark, theirs, rows(1, 2, 3))
    for path in (mine, theirs):
        write_deltalake(path, rows(4), mode="append")
        DeltaTable(path).delete("k = 2")
    spark_tables.sql(quick_spark, mine, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    DeltaTable(theirs).alter.set_table_properties({"delta.enableRowTracking": "true"})
    for path in (mine, theirs):
        found = check(quick_spark, path)
        assert {row[2] for row in found} <= {0, 1, 2, 3}
        assert load_snapshot(DeltaTable(path).store).files.column("baseRowId").null_count == 0
        write_deltalake(path, rows(7), mode="append")
        spark_tables.write(quick_spark, path, rows(8))
        spark_tables.sql(quick_spark, path, "UPDATE {t} SET v = 'U' WHERE k = 1")
        DeltaTable(path).optimize.compact()
        after = {row[0]: row for row in check(quick_spark, path)}
        assert [after[row[0]][2] for row in found] == [row[2] for row in found]


@pytest.mark.tier("nightly")
def test_the_tasks_of_spark_keep_the_ids_of_rows(quick_spark, fresh_path):
    for vectors in ("true", "false"):
        path = fresh_path()
        DeltaTable.create(
            path, SCHEMA, configuration={"delta.enableRowTracking": "true", "delta.enableDeletionVectors": vectors}
        )
        write_deltalake(path, rows(*range(10)), mode="append")
        before = {row[0]: row for row in check(quick_spark, path)}
        for broadcast in (0, 2**20):
            table = DeltaTable(path)
            executor = SparkExecutor(quick_spark, broadcast_bytes=broadcast)
            source = quick_spark.sql("SELECT id AS k, 0L AS p, 'merged' AS v FROM range(3, 14, 5)")
            merger = table.merge(source, "s.k = t.k", executor=executor)
            merger.when_matched_update({"v": "concat(s.v, t.v)"}).when_not_matched_insert_all().execute()
            table.update({"v": "'u'"}, predicate="k = 1", executor=executor)
            table.delete(f"k = {5 if broadcast else 6}", executor=executor)
            table.optimize.compact(executor=executor)
        for key, value, row_id, since in check(quick_spark, path):
            if key in before:
                assert row_id == before[key][2]
                assert (since, value) == (before[key][3], before[key][1]) or key in (1, 3, 8)


def test_changes_follow_the_rows_through_an_optimize_of_spark(quick_spark, fresh_path):
    path = fresh_path()
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"}
    DeltaTable.create(path, SCHEMA, configuration=properties)
    for some in (range(5), range(5, 8), range(8, 12)):
        write_deltalake(path, rows(*some), mode="append")
    DeltaTable(path).delete("k = 6")
    ids = {row[0]: row[2] for row in check(quick_spark, path)}
    delete, update, merge, late = (DeltaTable(path).begin() for _ in range(4))
    delete.delete("k IN (1, 11)")
    update.update({"v": "'u'"}, predicate="k IN (2, 5)")
    merge.merge(rows(3, 40), "s.k = t.k").when_matched_delete().when_not_matched_insert_all().execute()
    late.delete("k = 2")
    spark_tables.sql(quick_spark, path, "OPTIMIZE {t} ZORDER BY (v)")
    assert [transaction.commit().fallbacks for transaction in (delete, update, merge)] == [()] * 3
    with pytest.raises(errors.ConcurrentModificationError):
        late.commit()
    found = check(quick_spark, path)
    assert {row[0]: row[1] for row in found} == {
        **{k: f"v{k}" for k in (0, 4, 7, 8, 9, 10, 40)},
        **dict.fromkeys((2, 5), "u"),
    }
    assert all(row[2] == ids.get(row[0], row[2]) for row in found)
