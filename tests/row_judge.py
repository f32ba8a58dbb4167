"""Statements that three engines understand: refdelta, delta-spark, and SQLite, which is the judge of what they do.

All are about a table of the columns ``id``, ``v`` and ``p``; ``p`` is the remainder of ``id`` by three.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from refdelta import DeltaTable
from refdelta.api.transaction import WriteTransaction

Rows = list[tuple[int, int]]


@dataclass(frozen=True)
class Statement:
    """One statement, or maintenance that changes no row.

    Attributes:
        stage: stages it in a transaction of refdelta.
        spark: the same in delta-spark's SQL, with ``{t}`` for the table.
        sqlite: the same in SQLite's; None where no row changes.
    """

    stage: Callable[[WriteTransaction], Any]
    spark: str
    sqlite: str | None = None


def delete(where: str) -> Statement:
    return Statement(lambda txn: txn.delete(where), f"DELETE FROM {{t}} WHERE {where}", f"DELETE FROM t WHERE {where}")


def update(value: str, where: str) -> Statement:
    change = f"SET v = {value} WHERE {where}"
    return Statement(
        lambda txn: txn.update({"v": value}, predicate=where), f"UPDATE {{t}} {change}", f"UPDATE t {change}"
    )


def insert(*ids: int, value: int = 0) -> Statement:
    listed = _listed(ids, value)
    return Statement(
        lambda txn: txn.append(rows(ids, value)), f"INSERT INTO {{t}} VALUES {listed}", f"INSERT INTO t VALUES {listed}"
    )


def upsert(*ids: int, value: int) -> Statement:
    def stage(txn: WriteTransaction) -> None:
        merging = txn.merge(rows(ids, value), "s.id = t.id")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    listed = _listed(ids, value)
    return Statement(
        stage,
        f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {listed} AS s(id, v, p)) s ON s.id = t.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        f"INSERT INTO t VALUES {listed} ON CONFLICT (id) DO UPDATE SET v = excluded.v",
    )


def merge_away(*ids: int) -> Statement:
    """A MERGE that matches rows, deletes those with ``v = 0``, and leaves the others alone."""
    return Statement(
        lambda txn: txn.merge(rows(ids, 0), "s.id = t.id").when_matched_delete("t.v = 0").execute(),
        f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {_listed(ids, 0)} AS s(id, v, p)) s ON s.id = t.id "
        "WHEN MATCHED AND t.v = 0 THEN DELETE",
        f"DELETE FROM t WHERE v = 0 AND id IN ({', '.join(map(str, ids))})",
    )


COMPACT = Statement(lambda txn: txn.compact(), "OPTIMIZE {t}")
PURGE = Statement(lambda txn: txn.reorg_purge(), "REORG TABLE {t} APPLY (PURGE)")
Z_ORDER = Statement(lambda txn: txn.z_order(["v", "id"]), "OPTIMIZE {t} ZORDER BY (v, id)")


def rows(ids: Iterable[int], value: int) -> pa.Table:
    listed = list(ids)
    columns = {"id": listed, "v": [value] * len(listed), "p": [i % 3 for i in listed]}
    return pa.table({name: pa.array(numbers, pa.int64()) for name, numbers in columns.items()})


def _listed(ids: Iterable[int], value: int) -> str:
    return ", ".join(f"({i}, {value}, {i % 3})" for i in ids)


class Judge:
    """The table in SQLite, where it begins with the rows 0 to 19, each with ``v = 0``."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", check_same_thread=False)  # any thread may collect it
        weakref.finalize(self, self.database.close)  # Python 3.13 warns of a connection that is left open
        self.database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER, p INTEGER)")
        self.run(insert(*range(20)))

    def run(self, statement: Statement) -> None:
        if statement.sqlite is not None:
            self.database.execute(statement.sqlite)

    def rows(self) -> Rows:
        return self.database.execute("SELECT id, v FROM t ORDER BY id").fetchall()

    def put_back(self, earlier: Rows) -> None:
        """Make the table what it was."""
        self.database.execute("DELETE FROM t")
        self.database.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i, v, i % 3) for i, v in earlier])


def begun(table: DeltaTable, statement: Statement) -> WriteTransaction:
    """A transaction in which the statement is staged."""
    txn = table.begin()
    statement.stage(txn)
    return txn


def held(path: Path) -> Rows:
    """What refdelta reads."""
    return listed(DeltaTable(path).to_pyarrow_table())


def listed(table: pa.Table) -> Rows:
    """The rows in order, without the column that follows from them."""
    assert table["p"].to_pylist() == [i % 3 for i in table["id"].to_pylist()]
    return sorted(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
