"""DuckDB with its extension ``delta``, which appends in transactions of DuckDB.

A transaction is one of DuckDB, on a connection of its own: the statements run at ``begin``, and its COMMIT is tried at
``commit``. The table is made by refdelta, without deletion vectors.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import EngineUnavailableError, Left, NotSupportedError, Session
from refdelta.conformance.engines.refdelta_engine import make_table

_TABLE = "t"
_PACKAGE = "duckdb_extension_delta"
_CONFLICT = "commit conflict"


class DuckDB:
    """DuckDB."""

    name = "duckdb"
    kinds: tuple[str, ...] = ("statements",)

    def version(self) -> str:
        """The version of DuckDB."""
        try:
            import duckdb
        except ImportError:
            raise EngineUnavailableError("duckdb is not installed: pip install duckdb") from None
        _connection().close()
        return str(duckdb.__version__)

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table."""
        return _Statements(case, folder)

    def close(self) -> None:
        """Nothing is open."""


def _connection() -> Any:
    """A new database in memory with the extension.

    Raises:
        EngineUnavailableError: this version of DuckDB has no such extension here.
    """
    import duckdb

    connection = duckdb.connect()
    try:
        connection.execute(f"LOAD {_extension(duckdb.__version__)}")
    except duckdb.Error:
        connection.close()
        raise EngineUnavailableError(
            f"DuckDB {duckdb.__version__} has no extension delta here: run INSTALL delta in DuckDB, "
            "or pip install duckdb-extension-delta of the same version"
        ) from None
    return connection


def _extension(version: str) -> str:
    """The extension that a package brings for this version of DuckDB; else the name of an installed one."""
    package = importlib.util.find_spec(_PACKAGE)
    folders = package.submodule_search_locations or () if package else ()
    files = (Path(folder) / "extensions" / f"v{version}" / "delta.duckdb_extension" for folder in folders)
    return next((f"'{file}'" for file in files if file.exists()), "delta")


class _Statements:
    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        make_table(case, folder, vectors=False)
        self.begun: dict[str, Any] = {}

    def begin(self, name: str) -> None:
        statements = self.case.transactions[name].statements
        for statement in statements:
            if statement.verb not in ("insert", "copy"):
                raise NotSupportedError(f"DuckDB has no {statement.verb} of Delta tables")
        connection = self.begun[name] = self._attached()
        connection.execute("BEGIN")
        connection.execute(f"SELECT count(*) FROM {_TABLE}")  # the transaction sees this version
        for statement in statements:
            connection.execute(statement.sql(_TABLE))

    def _attached(self) -> Any:
        connection = _connection()
        connection.execute(f"ATTACH '{self.folder}' AS {_TABLE} (TYPE delta)")
        return connection

    def commit(self, name: str) -> Failure | None:
        import duckdb

        try:
            self.begun[name].execute("COMMIT")
        except duckdb.TransactionException as error:
            if _CONFLICT not in str(error):
                raise
            return Failure("Transaction", " ".join(str(error).split()))
        return None

    def left(self) -> Left:
        connection = self._attached()
        try:
            return list(connection.execute(f"SELECT k, a FROM {_TABLE}").fetchall())
        finally:
            connection.close()

    def close(self) -> None:
        for connection in self.begun.values():
            connection.close()
