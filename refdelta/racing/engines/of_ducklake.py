"""DuckLake in races: DuckDB's extension, whose catalog is a database. With SQLite several processes share it.

The extensions come from DuckDB's own server, or, for one version of DuckDB, from PyPI: ``pip install
duckdb-extensions duckdb-extension-ducklake duckdb-extension-sqlite-scanner``.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from refdelta.errors import InvalidArgumentError
from refdelta.racing.engines.rivals import RivalEngine, RivalHands
from refdelta.racing.mixes import Mix, Statement, first_pieces
from refdelta.racing.throughput import Acknowledged


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
    """DuckLake with a catalog in SQLite beside the data, at its defaults, in a local folder."""

    name = "ducklake"
    module = "duckdb"
    packages = ("duckdb",)

    def prepare(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> None:
        """See :meth:`RivalEngine.prepare`."""
        if storage_options or "://" in folder:
            raise InvalidArgumentError("the engine ducklake races in a local folder")
        os.makedirs(folder)  # noqa: PTH103 - the folder is a string to every engine
        connection = _connected(folder)
        connection.execute("CREATE TABLE lake.t (id BIGINT, n BIGINT)")
        hands = DuckLakeHands(connection, mix)
        for piece in first_pieces(mix):
            hands.append(piece)
        connection.close()

    def open(self, folder: str, mix: Mix, storage_options: Mapping[str, str]) -> DuckLakeHands:
        """See :meth:`RivalEngine.open`."""
        return DuckLakeHands(_connected(folder), mix)

    def rows(self, folder: str, storage_options: Mapping[str, str]) -> pa.Table:
        """See :meth:`RivalEngine.rows`."""
        return _connected(folder).sql("SELECT id, n FROM lake.t").to_arrow_table()


def _connected(folder: str) -> Any:
    import duckdb

    connection = duckdb.connect()
    for name in ("ducklake", "sqlite_scanner"):
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
    path = folder.replace("'", "''")
    connection.execute(f"ATTACH 'ducklake:sqlite:{path}/catalog.db' AS lake (DATA_PATH '{path}/data')")
    return connection
