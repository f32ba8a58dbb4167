"""DuckLake in races: DuckDB's extension. Its catalog is a database: PostgreSQL, or SQLite, which one of several writers
finds locked.

The extensions come from DuckDB's own server, or, for one version of DuckDB, from PyPI: ``pip install
duckdb-extensions duckdb-extension-ducklake duckdb-extension-sqlite-scanner duckdb-extension-postgres-scanner``.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from refdelta.errors import InvalidArgumentError
from refdelta.racing.engines import is_tuned
from refdelta.racing.engines.other_forms import name_of
from refdelta.racing.engines.rivals import RivalEngine, RivalHands
from refdelta.racing.mixes import Mix, Statement, first_pieces
from refdelta.racing.throughput import Acknowledged

TUNED_RETRIES = 100
"""``ducklake_max_retry_count`` of ``settings=tuned``; the default is 10."""

TUNED_SQLITE = "META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 5000"
"""Options of ``ATTACH`` for several writers of a catalog in SQLite: readers do not wait, and writers wait for 5 s."""


class DuckLakeHands(RivalHands):
    """One connection; each statement is a transaction."""

    def __init__(self, connection: Any, mix: Mix) -> None:
        import duckdb

        super().__init__(mix)
        self._sql, self.aborts = connection, (duckdb.TransactionException,)

    def append(self, rows: pa.Table) -> None:
        """See :meth:`RivalHands.append`."""
        self._sql.register("bench_rows", rows)
        self._sql.execute("INSERT INTO lake.t SELECT id, n FROM bench_rows")

    def delete(self, predicate: str) -> None:
        """See :meth:`RivalHands.delete`."""
        self._sql.execute(f"DELETE FROM lake.t WHERE {predicate}")

    def update(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.update`."""
        self._sql.execute(f"UPDATE lake.t SET n = {wanted.value} WHERE {wanted.predicate}")

    def merge(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.merge`."""
        self._sql.register("bench_rows", wanted.rows)
        self._sql.execute(
            "MERGE INTO lake.t USING bench_rows s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.n)"
        )

    def read(self, wanted: Statement) -> None:
        """See :meth:`RivalHands.read`."""
        self._sql.execute(f"SELECT * FROM lake.t WHERE {wanted.predicate}").fetchall()

    def compact(self) -> Acknowledged | None:
        """See :meth:`RivalHands.compact`."""
        self._sql.execute("CALL ducklake_merge_adjacent_files('lake')")
        return Acknowledged(None)


class DuckLakeEngine(RivalEngine):
    """DuckLake, in a local folder.

    Args:
        settings: ``defaults``, or ``tuned`` for :data:`TUNED_RETRIES` and, of SQLite, :data:`TUNED_SQLITE`.
        database: the URL of a database of PostgreSQL for the catalog, as SQLAlchemy or libpq write it; each race has a
            schema of its own there. Empty for SQLite, beside the data.
    """

    name = "ducklake"
    module = "duckdb"
    packages = ("duckdb",)

    def __init__(self, settings: str = "defaults", database: str = "") -> None:
        super().__init__()
        self._tuned = is_tuned(settings)
        if database and not database.startswith("postgresql"):
            raise InvalidArgumentError("the database of ducklake is one of PostgreSQL: postgresql://...")
        self._database = database

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`RivalEngine.prepare`."""
        if storage_options or "://" in folder:
            raise InvalidArgumentError("the engine ducklake races in a local folder")
        os.makedirs(folder)  # noqa: PTH103 - the folder is a string to every engine
        connection = _connected(folder, self._database, tuned=self._tuned)
        connection.execute("CREATE TABLE lake.t (id BIGINT, n BIGINT)")
        hands = DuckLakeHands(connection, mix)
        for piece in first_pieces(mix):
            hands.append(piece)
        connection.close()

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> DuckLakeHands:
        """See :meth:`RivalEngine.open`."""
        return DuckLakeHands(_connected(folder, self._database, tuned=self._tuned), mix)

    def rows(self, folder: str, storage_options: Mapping[str, str]) -> pa.Table:
        """See :meth:`RivalEngine.rows`."""
        return _connected(folder, self._database, tuned=self._tuned).sql("SELECT id, n FROM lake.t").to_arrow_table()


def _connected(folder: str, database: str, *, tuned: bool) -> Any:
    import duckdb

    connection = duckdb.connect()
    for name in ("ducklake", "postgres_scanner" if database else "sqlite_scanner"):
        try:
            if importlib.util.find_spec("duckdb_extensions") is not None:
                from duckdb_extensions import import_extension  # type: ignore[import-not-found]

                import_extension(name, con=connection)
            else:
                connection.install_extension(name)
            connection.load_extension(name)
        except (duckdb.Error, ImportError, OSError) as error:
            raise InvalidArgumentError(
                f"DuckDB {duckdb.__version__} has no extension {name} here: INSTALL {name} in it, or take the version "
                f"that pip install duckdb-extensions duckdb-extension-{name.replace('_', '-')} is for"
            ) from error
    options = f"DATA_PATH {_quoted(f'{folder}/data')}"
    catalog = f"ducklake:sqlite:{folder}/catalog.db"
    if database:
        catalog = f"ducklake:postgres:{database.replace('+psycopg', '', 1)}"
        options += f", METADATA_SCHEMA {_quoted(name_of(folder).partition('.')[2])}"
    elif tuned:
        options += f", {TUNED_SQLITE}"
    if tuned:
        connection.execute(f"SET ducklake_max_retry_count = {TUNED_RETRIES}")
    try:
        connection.execute(f"ATTACH {_quoted(catalog)} AS lake ({options})")
    except duckdb.Error as error:
        # Its message may have the whole URL, with the password.
        raise InvalidArgumentError(f"the catalog of ducklake cannot be opened: {type(error).__name__}") from None
    return connection


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
