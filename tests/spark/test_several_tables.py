"""Transactions over several tables of a catalog whose rows Spark's workers write: the driver commits them together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import refdelta.spark
from refdelta import errors, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.core.commit.together import GROUP
from refdelta.spark import SparkExecutor
from refdelta.transaction import background

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark
SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int64()})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path / "warehouse") as catalog:
        for name in ("a", "b"):
            table = catalog.create_table(name, SCHEMA)
            write_deltalake(table, pa.table({"id": [1, 2], "k": [0, 0]}, SCHEMA), mode="append")
        yield catalog


def ids(catalog: SqlCatalog) -> dict[str, list[int]]:
    return {name: sorted(one.to_pyarrow_table()["id"].to_pylist()) for name, one in catalog.snapshot().items()}


def files(folder: Path) -> list[str]:
    background.settle()
    return sorted(str(one) for one in folder.rglob("*.parquet") if "_delta_log" not in str(one))


def frame(spark: Any, first: int, end: int) -> Any:
    return spark.range(first, end, 1, 3).selectExpr("id", "id % 2 AS k")


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("broadcast_bytes", [0, 2**20], ids=["shuffled", "collected"])
def test_workers_write_and_the_driver_commits_all_tables(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, broadcast_bytes: int
) -> None:
    before = files(tmp_path)
    with catalog.transaction(executor=SparkExecutor(spark, broadcast_bytes=broadcast_bytes)) as tx:
        tx["a"].append(frame(spark, 10, 16))
        merge = tx["b"].merge(frame(spark, 2, 4), "t.id = s.id", "s", "t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        tx.create_table("c", SCHEMA).append(frame(spark, 20, 22))
        # One file a partition: a task wrote each.
        assert len(files(tmp_path)) >= len(before) + 6
        assert ids(catalog) == {"a": [1, 2], "b": [1, 2]}
    assert ids(catalog) == {"a": [1, 2, *range(10, 16)], "b": [1, 2, 3], "c": [20, 21]}
    groups = [catalog.table(name).history(1)[0][GROUP] for name in ("a", "b", "c")]
    assert groups[0] == groups[1] == groups[2]
    assert groups[0]["transactionId"] == tx.transaction_id
    with catalog.table("a").begin(executor=SparkExecutor(spark)) as one:
        one.overwrite(frame(spark, 30, 31), "k = 0")
        one.commit()
    assert ids(catalog)["a"] == [11, 13, 15, 30]


@pytest.mark.tier("nightly")
def test_a_conflict_in_one_table_removes_the_files_of_all(spark: Any, catalog: SqlCatalog, tmp_path: Path) -> None:
    tx = catalog.transaction(executor=SparkExecutor(spark))
    before = files(tmp_path)
    tx["a"].append(frame(spark, 10, 16))
    tx["b"].overwrite(frame(spark, 2, 4))
    catalog.table("b").delete("id = 1")
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        tx.commit()
    assert caught.value.conflict.table == "b"
    assert set(files(tmp_path)) == set(before)
    assert ids(catalog) == {"a": [1, 2], "b": [2]}


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("merged", [False, True], ids=["appended", "merged"])
def test_rows_of_another_table_of_the_transaction_are_reads_of_it(
    spark: Any, catalog: SqlCatalog, merged: bool
) -> None:
    """By refdelta.spark.read and by the format ``refdelta``; a version that is named is no read."""
    refdelta.spark.register(spark)

    def source(**options: Any) -> Any:
        named = spark.read.format("refdelta").options(catalog=catalog.name, table="a", **options)
        return named.load()

    def save(tx: Any, rows: Any) -> None:
        if merged:
            tx["b"].merge(rows, "t.id = s.id", "s", "t").when_matched_update_all().execute()
        else:
            tx["b"].append(rows)

    for made, conflicts in (
        (lambda: refdelta.spark.read(spark, catalog.table("a")), True),
        (source, True),
        (lambda: source(versionAsOf=1), False),
    ):
        rows = made()
        tx = catalog.transaction(executor=SparkExecutor(spark))
        save(tx, rows.where("id > 0"))
        assert ("a" in tx._parts) == conflicts
        write_deltalake(catalog.table("a"), pa.table({"id": [9], "k": [9]}, SCHEMA), mode="append")
        if conflicts:
            with pytest.raises(errors.ConcurrentModificationError) as caught:
                tx.commit()
            assert caught.value.conflict.table == "a"
            # A frame of an older version than the transaction reads is refused at once.
            with (
                pytest.raises(errors.InvalidArgumentError, match="of version"),
                catalog.transaction(executor=SparkExecutor(spark)) as late,
            ):
                save(late, rows)
        else:
            tx.commit()


@pytest.mark.tier("nightly")
def test_a_table_in_memory_is_out_of_reach(spark: Any) -> None:
    memory = refdelta.DeltaTable.create("memory://frames", SCHEMA)
    with (
        pytest.raises(errors.InvalidArgumentError, match="memory of one process"),
        memory.begin(executor=SparkExecutor(spark)) as txn,
    ):
        txn.append(frame(spark, 1, 2))
