"""pyiceberg in races: an Iceberg table of a SQL catalog.

It writes no position deletes: a change of a row writes its file anew; and it has no compaction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from refdelta.conformance.engines.pyiceberg_engine import iceberg_options
from refdelta.racing.crew import RaceFailedError
from refdelta.racing.engines import is_tuned
from refdelta.racing.engines.other_forms import name_of, own_database
from refdelta.racing.engines.rivals import RivalEngine, RivalHands
from refdelta.racing.mixes import SCHEMA, Mix, Statement, first_pieces
from refdelta.racing.throughput import Acknowledged

TUNED = {
    "commit.retry.num-retries": "100",
    "commit.retry.min-wait-ms": "10",
    "commit.retry.max-wait-ms": "1000",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "5",
}
"""The table properties of ``settings=tuned``: what Iceberg's configuration offers to many writers and many commits."""


class PyIcebergHands(RivalHands):
    """One table of the catalog, refreshed before each change."""

    def __init__(self, table: Any, mix: Mix) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException
        from sqlalchemy.exc import OperationalError

        super().__init__(mix)
        # SQLite says that it is locked by an OperationalError: the pointer was not moved.
        self._table, self.aborts = table, (CommitFailedException, ValidationException, OperationalError)

    def append(self, rows: pa.Table) -> None:
        """See :meth:`RivalHands.append`."""
        self._table.refresh()
        self._table.append(rows)

    def delete(self, predicate: str) -> None:
        """See :meth:`RivalHands.delete`."""
        self._table.refresh()
        self._table.delete(predicate)

    def update(self, wanted: Statement) -> None:
        """There is no UPDATE: the rows are read, and overwritten in the same transaction."""
        self._table.refresh()
        with self._table.transaction() as transaction:
            rows = self._table.scan(row_filter=wanted.predicate).to_arrow()
            transaction.overwrite(wanted.updated(rows), overwrite_filter=wanted.predicate)

    def merge(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.merge`; its upsert takes values, so the rows that are there are read first."""
        self._table.refresh()
        with self._table.transaction() as transaction:
            there = self._table.scan(row_filter=wanted.predicate).to_arrow()
            transaction.upsert(wanted.merged(there), join_cols=["id"])

    def read(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.read`."""
        self._table.refresh()
        self._table.scan(row_filter=wanted.predicate).to_arrow()

    def compact(self) -> Acknowledged | None:
        """It has none."""
        raise RaceFailedError("pyiceberg compacts no files: the mixes beside OPTIMIZE are not for it")


class PyIcebergEngine(RivalEngine):
    """pyiceberg with a SQL catalog.

    Args:
        database: the URL of the catalog's database, as SQLAlchemy writes it; a file of SQLite that is removed at the
            end of the process by default.
        settings: ``defaults``, or ``tuned`` for :data:`TUNED`.
    """

    name = module = "pyiceberg"
    packages = ("pyiceberg", "sqlalchemy")

    def __init__(self, database: str = "", settings: str = "defaults") -> None:
        super().__init__()
        self._properties = TUNED if is_tuned(settings) else {}
        if not database:
            database = own_database()
        self._database = database

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`RivalEngine.prepare`."""
        catalog = self._catalog(folder, storage_options)
        catalog.create_namespace_if_not_exists("bench")
        table = catalog.create_table(
            name_of(folder), SCHEMA, location=f"{_uri(folder)}/table", properties=self._properties
        )
        for piece in first_pieces(mix):
            table.append(piece)

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> PyIcebergHands:
        """See :meth:`RivalEngine.open`."""
        return PyIcebergHands(self._catalog(folder, storage_options).load_table(name_of(folder)), mix)

    def rows(self, folder: str, storage_options: Mapping[str, str]) -> pa.Table:
        """See :meth:`RivalEngine.rows`."""
        found: pa.Table = self._catalog(folder, storage_options).load_table(name_of(folder)).scan().to_arrow()
        return found

    def _catalog(self, folder: str, storage_options: Mapping[str, str]) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        options = iceberg_options(storage_options) if storage_options else {}
        return SqlCatalog("bench", uri=self._database, warehouse=_uri(folder), **options)


def _uri(folder: str) -> str:
    return folder if "://" in folder else f"file://{os.path.abspath(folder)}"  # noqa: PTH100 - a URI may not be resolved
