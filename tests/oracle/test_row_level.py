"""Conflicts that rows resolve: what is left is what the statements do one after the other, and delta-spark reads it so.

The judge is SQLite: it runs the same statements in the order of the log. Then delta-spark goes on writing to the table,
and refdelta on top of that.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import spark_tables
from concurrency.row_editor import ALL_SETS, ROWS, SETS, change, compact_until_over, create, race
from refdelta import DeltaTable, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.errors import ConcurrentModificationError
from row_judge import (
    COMPACT,
    PURGE,
    Z_ORDER,
    Judge,
    Rows,
    Statement,
    begun,
    delete,
    held,
    insert,
    listed,
    merge_away,
    rows,
    update,
    upsert,
)

pytestmark = pytest.mark.spark

VECTORS = {"delta.enableDeletionVectors": "true"}
SMALL = Statement(lambda txn: txn.compact(target_size=1500), "")
BEGINNING = [delete("id = 19"), update("7", "id = 18")]


def made(path: Path) -> Judge:
    """Four files of five rows, of which row 19 is deleted by a vector and row 18 was updated."""
    judge = Judge()
    for start in range(0, 20, 5):
        write_deltalake(path, rows(range(start, start + 5), 0), mode="append", configuration=VECTORS)
    for statement in BEGINNING:
        begun(DeltaTable(path), statement).commit()
        judge.run(statement)
    return judge


# --- schedules: all of them begin at one version, and commit in this order ---

DELETES = delete("id IN (1, 6)")
SCHEDULES: dict[str, list[Statement]] = {
    "delete, delete": [DELETES, delete("id IN (2, 7, 11)")],
    "delete of a file's rest": [delete("id < 3"), delete("id IN (3, 4)")],
    "two deletes and an update of one file": [delete("id = 0"), delete("id = 1"), update("v + 1", "id = 2")],
    "delete, update": [DELETES, update("v + 5", "id IN (0, 7, 18)")],
    "update, delete": [update("v + 5", "id IN (0, 7)"), DELETES],
    "update, update": [update("v + 5", "id IN (0, 7)"), update("v + 6", "id IN (1, 8, 18)")],
    "update, upsert": [update("v + 5", "id IN (0, 7)"), upsert(1, 8, 30, value=4)],
    "upsert, upsert": [upsert(0, 7, 31, value=3), upsert(1, 8, 30, value=4)],
    "delete, upsert": [DELETES, upsert(0, 7, 30, value=4)],
    "insert, delete": [insert(40, 41), DELETES],
    "delete, insert": [DELETES, insert(40, 41)],
    "delete, compact": [DELETES, COMPACT],
    "compact, delete": [COMPACT, DELETES],
    "compact to small files, delete": [SMALL, delete("id % 3 = 0")],
    "delete, compact to small files": [delete("id % 3 = 0"), SMALL],
    "delete of whole files, compact": [delete("id < 10"), COMPACT],
    "compact, delete of whole files": [COMPACT, delete("id < 10")],
    "update, compact": [update("v + 5", "id IN (0, 7)"), COMPACT],
    "compact, update": [COMPACT, update("v + 5", "id IN (0, 7, 18)")],
    "compact, upsert": [COMPACT, upsert(0, 7, 30, value=4)],
    "upsert, compact": [upsert(0, 7, 30, value=4), COMPACT],
    "purge, merge": [PURGE, merge_away(15, 16, 18)],
    "merge, purge": [merge_away(15, 16, 18), PURGE],
    "compact, compact": [COMPACT, COMPACT],
    "compact, purge": [COMPACT, PURGE],
    "sort, compact": [Z_ORDER, COMPACT],
    "sort, insert": [Z_ORDER, insert(40, 41)],
    "insert, sort": [insert(40, 41), Z_ORDER],
    "delete, update, upsert, compact": [DELETES, update("v + 5", "id = 2"), upsert(3, 8, 30, value=4), COMPACT],
    "compact, delete, update, upsert": [COMPACT, DELETES, update("v + 5", "id = 2"), upsert(3, 8, 30, value=4)],
    "delete, compact, update, merge": [DELETES, COMPACT, update("v + 5", "id = 2"), merge_away(3, 17, 18)],
}

# The last one begins first; each of the others begins when the one before it has committed.
CHAINS: dict[str, list[Statement]] = {
    "delete over ten deletes": [*[delete(f"id = {i}") for i in range(1, 11)], delete("id IN (0, 11)")],
    "update over three compactions and deletes": [
        *(COMPACT, delete("id = 1"), COMPACT, delete("id = 6"), COMPACT),
        update("v + 5", "id IN (0, 7, 18)"),
    ],
    "merge that leaves a row alone over two compactions and deletes": [
        *(COMPACT, delete("id = 17"), insert(50), COMPACT, delete("id = 16"), PURGE),
        merge_away(15, 18),
    ],
    "upsert over an update, a compaction and a delete": [
        *(update("v + 5", "id IN (0, 7)"), COMPACT, delete("id = 2")),
        upsert(1, 8, 30, value=4),
    ],
    "compaction over deletes of each of its files": [*[delete(f"id % 5 = {i}") for i in (1, 3)], COMPACT],
    "compaction over a compaction and deletes": [COMPACT, delete("id = 3"), insert(60, 61), COMPACT],
    "delete over small compactions": [SMALL, delete("id = 3"), insert(60, 61), SMALL, PURGE, delete("id IN (2, 12)")],
}

GOES_ON = [
    "compact, delete, update, upsert",
    "delete, compact, update, merge",
    "merge that leaves a row alone over two compactions and deletes",
    "delete over small compactions",
]


def play(path: Path, name: str) -> Judge:
    """Run a schedule. After each commit, the table has the rows of the judge."""
    judge = made(path)
    table = DeltaTable(path)
    if name in SCHEDULES:
        waiting = [(statement, begun(table, statement)) for statement in SCHEDULES[name]]
    else:
        *others, last = CHAINS[name]
        waiting = [*((statement, None) for statement in others), (last, begun(table, last))]
    for statement, early in waiting:
        txn = early or begun(table, statement)
        result = txn.commit()
        if result.version is not None or statement.sqlite is None:
            judge.run(statement)
        assert held(path) == judge.rows(), name
        assert DeltaTable(path).count() == len(judge.rows())
    if waiting[-1][0].sqlite is not None:
        assert result.rebased_over, name
    return judge


def on_spark(spark: Any, path: Path) -> Rows:
    return listed(oracle.read_table(spark, path))


@pytest.mark.tier("nightly")
def test_spark_reads_what_is_left_of_each_schedule(quick_spark, fresh_path):
    spark = quick_spark
    names = [*SCHEDULES, *CHAINS]
    paths = {name: fresh_path() for name in names}
    want = {name: play(path, name).rows() for name, path in paths.items()}
    with ThreadPoolExecutor(4) as pool:  # most of a read is waiting for tiny jobs
        got = dict(zip(names, pool.map(lambda name: on_spark(spark, paths[name]), names), strict=True))
        assert got == want
        assert all(pool.map(lambda name: oracle.validate_checksum(spark, paths[name]), CHAINS))


@pytest.mark.tier("nightly")
def test_spark_goes_on_from_what_is_left_and_refdelta_on_top_of_that(quick_spark, fresh_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: go_on(quick_spark, fresh_path(), name), GOES_ON))


def go_on(spark: Any, path: Path, name: str) -> None:
    judge = play(path, name)
    turns = [
        (True, delete("id % 5 = 2")),
        (False, delete("id IN (3, 13)")),
        (False, update("v + 50", "id % 2 = 0")),
        (True, COMPACT),
        (False, upsert(5, 15, 70, value=9)),
    ]
    for by_spark, statement in turns:
        if not by_spark:
            with begun(DeltaTable(path), statement) as txn:
                txn.commit()
        else:
            spark_tables.sql(spark, path, statement.spark)
        judge.run(statement)
        assert held(path) == judge.rows(), (name, statement.spark)
    assert on_spark(spark, path) == judge.rows(), name


SAME_ROWS = {
    "delete, delete": [delete("id = 3"), delete("id IN (2, 3)")],
    "update, delete": [update("v + 5", "id = 3"), delete("id = 3")],
    "delete, upsert": [delete("id = 3"), upsert(3, value=4)],
    "update, update into it": [update("v + 5", "id = 3"), update("0", "v IN (5, 7)")],
    "upsert, upsert of a new row": [upsert(30, value=4), upsert(30, value=5)],
    "sort, delete": [Z_ORDER, delete("id = 3")],
    "compact, sort": [COMPACT, Z_ORDER],
}


@pytest.mark.parametrize("name", SAME_ROWS)
def test_of_two_that_want_the_same_rows_the_first_has_them(fresh_path, name):
    """Not every schedule is resolved: the tests above distinguish theirs from these."""
    path = fresh_path()
    judge = made(path)
    first, second = SAME_ROWS[name]
    table = DeltaTable(path)
    winner, loser = begun(table, first), begun(table, second)
    winner.commit()
    judge.run(first)
    with pytest.raises(ConcurrentModificationError):
        loser.commit()
    assert held(path) == judge.rows()


@pytest.mark.tier("nightly")
def test_spark_agrees_after_a_race_of_processes(quick_spark, tmp_path):
    """As in ``tests/concurrency/test_row_races.py``, smaller."""
    path = tmp_path / "t"
    create(str(path))
    some = range(80)
    told = race(
        str(path), [(change, [i for i in some if i % 4 == process]) for process in range(4)], compact_until_over
    )
    assert all(version is not None for versions in told for version in versions)
    got = oracle.read_table(quick_spark, path)
    want = [
        (i, i % ALL_SETS % 2 if i % ALL_SETS in some else 0)
        for i in range(ROWS)
        if i % ALL_SETS not in some or i % ALL_SETS % 2
    ]
    assert sorted(zip(got["id"].to_pylist(), got["times"].to_pylist(), strict=True)) == want
    assert len(some) < SETS
    assert oracle.validate_checksum(quick_spark, path)
