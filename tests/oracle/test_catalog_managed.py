"""Catalog-managed tables of a :class:`SqlCatalog` that delta-spark writes, too: in turns and at once.

Tests of crosscheck.published.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from oracle.spark_coordinator import Coordinator, connect
from refdelta import DeltaTable, errors, verify, write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.crosscheck import oracle
from refdelta.crosscheck.published import by_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "orders"
MERGE = """
MERGE INTO orders t USING (SELECT 4L id, 'm' town UNION ALL SELECT 9L, 'n') s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


@pytest.fixture
def coordinator(quick_spark: Any) -> Coordinator:
    return connect(quick_spark)


@pytest.fixture
def database(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a new database: a SQLite file, or one of PostgreSQL's where the test asks for it."""
    if getattr(request, "param", "sqlite") == "postgres":
        return str(request.getfixturevalue("postgres_server").database())
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def catalog(tmp_path: Path, database: str) -> Iterator[SqlCatalog]:
    with SqlCatalog(database, warehouse=tmp_path / "warehouse") as catalog:
        yield catalog


@pytest.fixture
def table(quick_spark: Any, coordinator: Coordinator, catalog: SqlCatalog) -> Iterator[DeltaTable]:
    """A table of our catalog with the rows 1 and 2, which delta-spark knows by its name."""
    table = catalog.create_table(NAME, pa.schema({"id": pa.int64(), "town": pa.string()}))
    coordinator.serve(table)
    write_deltalake(table, towns(1, 2), mode="append")
    with by_path(quick_spark):
        quick_spark.sql(f"CREATE TABLE {NAME} USING delta LOCATION '{table.table_uri}'")
    yield table
    quick_spark.sql(f"DROP TABLE {NAME}")
    coordinator.before_commit.clear()


def towns(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "town": [f"town {number}" for number in ids]})


def here(table: DeltaTable) -> list[tuple[int, str]]:
    table.update_incremental()
    return read(table)


def read(table: DeltaTable) -> list[tuple[int, str]]:
    return sorted((row["id"], row["town"]) for row in table.to_pyarrow_table().to_pylist())


def in_spark(spark: Any, where: str = "") -> list[tuple[int, str]]:
    return sorted((row.id, row.town) for row in spark.sql(f"SELECT id, town FROM {NAME} {where}").collect())


def infos(table: DeltaTable) -> list[dict[str, Any]]:
    """The commitInfo of each version, oldest first."""
    found = []
    for version in range(table.version() + 1):
        first = table.store.get(f"_delta_log/{version:020d}.json").splitlines()[0]
        found.append(json.loads(first)["commitInfo"])
    return found


def sound(table: DeltaTable) -> None:
    """It is sound, its timestamps rise, and no two rows have one id."""
    table.update_incremental()
    assert not verify(table, sample=None).findings
    stamps = [info["inCommitTimestamp"] for info in infos(table)]
    assert stamps == sorted(set(stamps))


@pytest.mark.tier("nightly")
def test_in_turns(quick_spark: Any, coordinator: Coordinator, table: DeltaTable) -> None:
    """Inserts, statements, MERGE, RESTORE: each engine goes on from what the other left, published or not."""
    steps = [
        "INSERT INTO orders VALUES (3, 'three')",
        lambda: table.update({"town": "'two'"}, predicate="id = 2"),
        "UPDATE orders SET town = 'TWO' WHERE id = 2",
        lambda: table.delete("id = 1"),
        "DELETE FROM orders WHERE id = 3",
        lambda: write_deltalake(table, towns(4, 5), mode="append"),
        MERGE,
        table.optimize.compact,
        "RESTORE TABLE orders TO VERSION AS OF 2",
        lambda: table.delete("id = 2"),
        "INSERT INTO orders VALUES (6, 'six')",
    ]
    for step in steps:
        table.update_incremental()
        if isinstance(step, str):
            quick_spark.sql(step)
        else:
            step()
        assert here(table) == in_spark(quick_spark), step
    assert here(table) == [(1, "town 1"), (3, "three"), (6, "six")]
    for version in (2, 5, 8):
        there = in_spark(quick_spark, f"VERSION AS OF {version}")
        assert there == read(DeltaTable.in_store(table.store, version)), version
    assert coordinator.refused == 0
    ids = [row.row_id for row in quick_spark.sql("SELECT _metadata.row_id FROM orders").collect()]
    assert len(set(ids)) == 3
    sound(table)


def test_it_moves_its_insert_over_ours(quick_spark: Any, coordinator: Coordinator, table: DeltaTable) -> None:
    before, refused = table.version(), coordinator.refused
    other = DeltaTable.in_store(table.store)
    coordinator.before_commit.append(lambda: write_deltalake(other, towns(7, 8), mode="append"))
    quick_spark.sql("INSERT INTO orders VALUES (3, 'three'), (4, 'four')")
    assert coordinator.refused == refused + 1
    wanted = [(1, "town 1"), (2, "town 2"), (3, "three"), (4, "four"), (7, "town 7"), (8, "town 8")]
    assert here(table) == in_spark(quick_spark) == wanted
    assert table.version() == before + 2
    ids = [row.row_id for row in quick_spark.sql("SELECT _metadata.row_id FROM orders").collect()]
    assert sorted(ids) == [0, 1, 2, 3, 4, 5]
    sound(table)


def test_its_statement_conflicts_with_ours(quick_spark: Any, coordinator: Coordinator, table: DeltaTable) -> None:
    before = table.version()
    other = DeltaTable.in_store(table.store)
    coordinator.before_commit.append(lambda: other.update({"town": "'ours'"}, predicate="id = 1"))
    with pytest.raises(Exception, match="DELTA_CONCURRENT"):
        quick_spark.sql("UPDATE orders SET town = 'its' WHERE id = 1")
    assert here(table) == in_spark(quick_spark) == [(1, "ours"), (2, "town 2")]
    assert table.version() == before + 1
    sound(table)


def test_we_move_our_commits_over_its_and_conflict_by_rows(quick_spark: Any, table: DeltaTable) -> None:
    table.update_incremental()
    append, other_row, same_row = table.begin(), table.begin(), table.begin()
    append.append(towns(5))
    other_row.update({"town": "'ours'"}, predicate="id = 2")
    same_row.delete("id = 1")
    quick_spark.sql("UPDATE orders SET town = 'its' WHERE id = 1")
    quick_spark.sql("INSERT INTO orders VALUES (6, 'six')")
    its = table.version() + 2
    assert append.commit().rebased_over == (its - 1, its)
    assert other_row.commit().rebased_over == (its - 1, its, its + 1)
    with pytest.raises(errors.ConcurrentModificationError) as caught:
        same_row.commit()
    assert (caught.value.conflict.version, caught.value.conflict.operation) == (its - 1, "UPDATE")
    assert here(table) == in_spark(quick_spark) == [(1, "its"), (2, "ours"), (5, "town 5"), (6, "six")]
    sound(table)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
def test_at_once(quick_spark: Any, table: DeltaTable) -> None:
    """Three threads of ours append and update while delta-spark inserts: every row is there once."""
    failures: list[BaseException] = []

    def ours(start: int) -> None:
        try:
            handle = DeltaTable.in_store(table.store)
            for number in range(start, start + 8):
                write_deltalake(handle, towns(number), mode="append")
                handle.update({"town": f"'{number}'"}, predicate=f"id = {number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ours, args=(start,)) for start in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for number in range(400, 406):
        quick_spark.sql(f"INSERT INTO orders VALUES ({number}, '{number}')")
    for thread in threads:
        thread.join()
    assert not failures, failures
    wanted = [*range(100, 108), *range(200, 208), *range(300, 308), *range(400, 406)]
    assert here(table) == in_spark(quick_spark) == [(1, "town 1"), (2, "town 2"), *((n, str(n)) for n in wanted)]
    assert len({info["txnId"] for info in infos(table)}) == table.version() + 1
    sound(table)


@pytest.mark.tier("nightly")
def test_its_streams_and_checkpoints(quick_spark: Any, table: DeltaTable, tmp_path: Path) -> None:
    """One stream reads what both commit, published or not; another one writes; its checkpoint is one for us."""
    copy, sink, source = (str(tmp_path / name) for name in ("copy", "sink", "source"))

    def copied() -> list[tuple[int, str]]:
        with by_path(quick_spark):  # its streams ask for the table's folder
            rows = quick_spark.readStream.table(NAME).writeStream.format("delta").trigger(availableNow=True)
            rows.option("checkpointLocation", sink).start(copy).awaitTermination()
        return read(DeltaTable(copy))

    assert copied() == here(table)
    write_deltalake(table, towns(3), mode="append")
    quick_spark.sql("INSERT INTO orders VALUES (4, 'four')")
    assert copied() == here(table) == [(1, "town 1"), (2, "town 2"), (3, "town 3"), (4, "four")]
    with by_path(quick_spark):
        back = quick_spark.readStream.format("delta").load(copy).writeStream.format("delta").trigger(availableNow=True)
        back.option("checkpointLocation", source).toTable(NAME).awaitTermination()
    assert here(table) == in_spark(quick_spark) == sorted(2 * read(DeltaTable(copy)))
    newest = table.version()
    with by_path(quick_spark):
        oracle.checkpoint(quick_spark, table.table_uri.removeprefix("file://"))
    fresh = DeltaTable.in_store(table.store)
    assert fresh._handle.snapshot.segment.checkpoint.version == newest
    assert read(fresh) == here(table)
    sound(table)


@pytest.mark.tier("nightly")
def test_its_tables_have_the_features_that_ours_have(quick_spark: Any, table: DeltaTable, tmp_path: Path) -> None:
    """A table that delta-spark creates as a catalog-managed one, and ours: one protocol, one set of properties."""
    path = tmp_path / "its"
    feature = "'delta.feature.catalogManaged' = 'supported'"
    with by_path(quick_spark):
        columns = "(id BIGINT, town STRING)"
        quick_spark.sql(f"CREATE TABLE its {columns} USING delta LOCATION '{path}' TBLPROPERTIES ({feature})")
    quick_spark.sql("DROP TABLE its")
    lines = [json.loads(line) for line in (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]
    its = {kind: action for line in lines for kind, action in line.items()}
    first = table.store.get(f"_delta_log/{0:020d}.json").splitlines()
    ours = {kind: action for line in map(json.loads, first) for kind, action in line.items()}
    for kind in ("readerFeatures", "writerFeatures"):
        assert sorted(ours["protocol"][kind]) == sorted(its["protocol"][kind]), kind
    names = ("enableInCommitTimestamps", "enableDeletionVectors", "enableRowTracking", "checkpointPolicy")
    for name in map("delta.{}".format, names):
        assert ours["metaData"]["configuration"].get(name) == its["metaData"]["configuration"].get(name), name
    assert "commitInfo" in lines[0]
    assert b"commitInfo" in first[0]


@pytest.mark.tier("nightly")
def test_what_it_may_not_do_ours_may(quick_spark: Any, table: DeltaTable) -> None:
    with pytest.raises(Exception, match="DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION"):
        quick_spark.sql("OPTIMIZE orders")
    write_deltalake(table, towns(3), mode="append")
    table.optimize.compact()
    table.vacuum(dry_run=False, retention_hours=0, enforce_retention_duration=False)
    table.create_checkpoint()
    assert here(table) == in_spark(quick_spark)
    sound(table)


@pytest.mark.tier("nightly")
def test_the_parts_of_a_transaction_over_two_tables(
    quick_spark: Any, coordinator: Coordinator, catalog: SqlCatalog, table: DeltaTable
) -> None:
    """delta-spark reads both tables after it, unpublished and published, and goes on writing to them."""
    lines = catalog.create_table("lines", pa.schema({"id": pa.int64(), "town": pa.string()}))
    coordinator.serve(lines)
    write_deltalake(lines, towns(1), mode="append")
    with by_path(quick_spark):
        quick_spark.sql(f"CREATE TABLE lines USING delta LOCATION '{lines.table_uri}'")
    try:
        with catalog.transaction() as tx:
            tx[NAME].update({"town": "'moved'"}, predicate="id = 1")
            tx["lines"].append(towns(7))
        for name, own in ((NAME, table), ("lines", lines)):
            there = sorted((row.id, row.town) for row in quick_spark.sql(f"SELECT id, town FROM {name}").collect())
            assert there == here(own), name
            quick_spark.sql(f"INSERT INTO {name} VALUES (8, 'of spark')")
            assert (8, "of spark") in here(own), name
            newest, ours = quick_spark.sql(f"DESCRIBE HISTORY {name}").collect()[:2]
            assert (newest.operation, ours.operation) == ("WRITE", {NAME: "UPDATE"}.get(name, "WRITE"))
            group = own.history(2)[1]["transactionGroup"]
            assert group["transactionId"] == tx.transaction_id
            assert [one["tableName"] for one in group["participants"]] == [NAME, "lines"]
            catalog.publish(name)
            sound(own)
    finally:
        quick_spark.sql("DROP TABLE lines")
