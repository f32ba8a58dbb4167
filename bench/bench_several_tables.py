"""Transactions over two and eight tables of a catalog, ten rows to each, one writer on local disk: beside a commit a
table, which is not atomic, and beside the database's own transactions of the same size.

The last one moves the version of each table and inserts its commit, by the same statements over the same connection,
and writes no data file: it is what the database takes of each transaction, and the floor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from contest import Engine, Goal

from refdelta import write_deltalake
from refdelta.catalog import SqlCatalog
from refdelta.transaction import background
from servers.install import ServerUnavailableError
from servers.postgres import PostgresServer

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
ROWS = pa.table({"id": range(10), "value": [0.5] * 10}, SCHEMA)
# Checkpoints publish: what is measured is without them.
RARELY = {"delta.checkpointInterval": "10000"}


@pytest.fixture(scope="module")
def postgres():
    try:
        server = PostgresServer(fsync=True).start()
    except ServerUnavailableError as error:
        pytest.skip(str(error))
    yield server
    server.stop()


class Work:
    """The same rows to the same tables, in one of three ways."""

    def __init__(self, fresh: Callable[[], str], folder: Any, tables: int, transactions: int) -> None:
        self.fresh, self.folder = fresh, folder
        self.names = [f"t{number}" for number in range(tables)]
        self.transactions = transactions
        self.numbers = itertools.count()

    def before(self) -> SqlCatalog:
        catalog = SqlCatalog(self.fresh(), warehouse=self.folder / f"warehouse-{next(self.numbers)}")
        for name in self.names:
            catalog.create_table(name, SCHEMA, configuration=RARELY, commits="inline")
        return catalog

    def together(self, catalog: SqlCatalog) -> None:
        for _ in range(self.transactions):
            with catalog.transaction() as tx:
                for name in self.names:
                    tx[name].append(ROWS)

    def one_by_one(self, catalog: SqlCatalog) -> None:
        for _ in range(self.transactions):
            for name in self.names:
                write_deltalake(catalog.table(name), ROWS, mode="append")

    def after(self, catalog: SqlCatalog) -> None:
        background.settle()
        for name, table in catalog.snapshot().items():
            assert table.version() == self.transactions, f"a commit of {name} is lost"
            assert table.count() == 10 * self.transactions
        catalog.close()

    def database_alone(self, catalog: SqlCatalog) -> None:
        from refdelta.catalog.sql import COMMITS, TABLES

        engine = catalog._database  # noqa: SLF001 - its connections
        found = catalog._latest_of_all("read")  # noqa: SLF001 - the ids of its tables
        ids = [entry.table_id for entry, _ in found.values()]
        move = sa.update(TABLES).where(TABLES.c.id == sa.bindparam("table")).values(latest=TABLES.c.latest + 1)
        content = b"x" * 1500
        for version in range(1, self.transactions + 1):
            with engine.begin() as connection:
                for table in ids:
                    connection.execute(move, {"table": table})
                rows = [
                    {"table_id": one, "version": version, "size": 1500, "timestamp_ms": version, "data": content}
                    for one in ids
                ]
                connection.execute(sa.insert(COMMITS), rows)


def _closed(catalog: SqlCatalog) -> None:
    catalog.close()


@pytest.mark.parametrize("tables", [2, 8])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def bench_transactions_over_tables(contest, size, folder, request, database, tables):
    """refdelta: catalog.transaction(), inline commits."""
    numbers = itertools.count()
    server = request.getfixturevalue("postgres") if database == "postgres" else None

    def fresh() -> str:
        return f"sqlite:///{folder}/catalog-{next(numbers)}.db" if server is None else server.database()

    transactions = size(smoke=3, default=20)
    work = Work(fresh, folder, tables, transactions)
    durable = "synchronous=FULL" if server is None else "fsync"
    contest.run(
        [
            Engine("refdelta", work.together, work.before, work.after, f"one transaction over all tables, {durable}"),
            Engine(
                "commits", work.one_by_one, work.before, work.after, "a commit a table, not atomic; handles not kept"
            ),
            Engine("floor", work.database_alone, work.before, _closed, "the database's transaction alone"),
        ],
        rounds=3,
        units=transactions,
        unit="transaction",
        goals=[Goal("no slower than a commit a table", 1.0, rival="commits")],
        note=f"{database}, inline commits",
        tables=tables,
    )
