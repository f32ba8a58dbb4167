"""Transactions over two and eight tables of a catalog, ten rows to each, one writer on local disk: beside a commit a
table, which is not atomic, and beside the database's own transactions of the same size.

The last one moves the version of each table and inserts its commit, by the same statements over the same connection,
and writes no data file: it is what the database takes of each transaction, and the floor. ``CPU ms`` is the processor
time of the process a transaction, with its background work; that of PostgreSQL's own processes is not in it.

The second contest counts conflicts: transfers between accounts of several tables, of which eight begin at one moment.
Rows decide here; beside that stands how many of the same transfers would be aborted if any change of one of their
tables meanwhile aborted them.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from contest import Engine, Goal

from refdelta import errors, write_deltalake
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

    def counted(self, run: Callable[[SqlCatalog], None]) -> Callable[[SqlCatalog], dict[str, float]]:
        """A run that tells its processor time."""

        def work(catalog: SqlCatalog) -> dict[str, float]:
            began = time.process_time()
            run(catalog)
            background.settle()
            return {"CPU ms": (time.process_time() - began) * 1000 / self.transactions}

        return work

    def together(self, catalog: SqlCatalog) -> None:
        for _ in range(self.transactions):
            with catalog.transaction() as tx:
                for name in self.names:
                    tx[name].append(ROWS)

    def one_by_one(self, catalog: SqlCatalog) -> None:
        for _ in range(self.transactions):
            for name in self.names:
                write_deltalake(catalog.table(name), ROWS, mode="append")

    def by_handles(self, catalog: SqlCatalog) -> None:
        tables = [catalog.table(name) for name in self.names]
        for _ in range(self.transactions):
            for table in tables:
                write_deltalake(table, ROWS, mode="append")

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
        ids = [one.entry.table_id for one in found.values()]
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

    def engine(name: str, run: Callable[[SqlCatalog], None], settings: str) -> Engine:
        return Engine(name, work.counted(run), work.before, work.after, settings)

    durable = "synchronous=FULL" if server is None else "fsync"
    contest.run(
        [
            engine("refdelta", work.together, f"one transaction over all tables, {durable}"),
            engine("commits", work.one_by_one, "a commit a table, not atomic, by catalog.table(name)"),
            engine("commits by handles", work.by_handles, "a commit a table, not atomic; handles are kept"),
            Engine(
                "floor", work.counted(work.database_alone), work.before, _closed, "the database's transaction alone"
            ),
        ],
        rounds=size(smoke=1, default=5),
        units=transactions,
        unit="transaction",
        goals=[
            Goal("no slower than a commit a table", 1.0, rival="commits"),
            Goal("no slower than a commit a table by handles", 1.0, rival="commits by handles"),
        ],
        note=f"{database}, inline commits",
        tables=tables,
    )


AT_ONCE, ACCOUNTS, BALANCE = 8, 250, 1000
ACCOUNT = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
BY_ROWS, BY_TABLES = "abort rate", "abort rate by tables"


class Transfers:
    """Transfers between accounts of several tables, of which :data:`AT_ONCE` begin at one moment."""

    def __init__(self, folder: Any, tables: int, rounds: int) -> None:
        self.folder, self.numbers = folder, itertools.count()
        self.names = [f"branch{number}" for number in range(tables)]
        chance = random.Random(47)
        self.rounds = [[self._transfer(chance) for _ in range(AT_ONCE)] for _ in range(rounds)]

    def _transfer(self, chance: random.Random) -> tuple[list[str], list[int]]:
        return chance.sample(self.names, 2), [chance.randrange(ACCOUNTS) for _ in range(2)]

    def before(self) -> SqlCatalog:
        number = next(self.numbers)
        catalog = SqlCatalog(f"sqlite:///{self.folder}/transfers-{number}.db", self.folder / f"transfers-{number}")
        rows = pa.table({"id": range(ACCOUNTS), "amount": [BALANCE] * ACCOUNTS}, ACCOUNT)
        for name in self.names:
            write_deltalake(
                catalog.create_table(name, ACCOUNT, configuration=RARELY, commits="inline"), rows, mode="append"
            )
        return catalog

    def run(self, catalog: SqlCatalog) -> dict[str, float]:
        aborted, count = 0, sum(map(len, self.rounds))
        for transfers in self.rounds:
            begun = []
            for tables, accounts in transfers:
                tx = catalog.transaction()
                for table, account, sign in zip(tables, accounts, "-+", strict=True):
                    tx[table].update({"amount": f"amount {sign} 1"}, predicate=f"id = {account}")
                begun.append(tx)
            for tx in begun:
                try:
                    tx.commit()
                except errors.ConcurrentModificationError:
                    aborted += 1
        return {BY_ROWS: aborted / count, BY_TABLES: self.aborted_by_tables() / count}

    def aborted_by_tables(self) -> int:
        """The number of transfers that come after another one of their round in one of their tables."""
        aborted = 0
        for transfers in self.rounds:
            changed: set[str] = set()
            for tables, _ in transfers:
                if changed.isdisjoint(tables):
                    changed.update(tables)
                else:
                    aborted += 1
        return aborted

    def after(self, catalog: SqlCatalog) -> None:
        background.settle()
        found = [table.to_pyarrow_table()["amount"].to_pylist() for table in catalog.snapshot().values()]
        assert sum(map(sum, found)) == BALANCE * ACCOUNTS * len(self.names)
        catalog.close()


@pytest.mark.parametrize("tables", [2, 8])
def bench_transfers_that_begin_at_one_moment(contest, size, folder, tables):
    """The share of the transfers that are aborted, by rows and by tables."""
    work = Transfers(folder, tables, size(smoke=2, default=12))
    contest.run(
        [Engine("refdelta", work.run, work.before, work.after, f"{AT_ONCE} at a time, {ACCOUNTS} accounts a table")],
        rounds=1,
        units=sum(map(len, work.rounds)),
        unit="transaction",
        goals=[Goal("a tenth of those aborted by tables", 0.1, figure=BY_ROWS, over=BY_TABLES)],
        tables=tables,
    )
