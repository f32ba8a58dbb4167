"""DuckDB with its extension ``delta``, which appends in transactions of DuckDB.

A transaction is one of DuckDB, on a connection of its own, and its COMMIT is tried at ``commit``. There are two engines
by when its statements run, both after a first read at ``begin``, which fixes the version that the transaction sees:
:class:`DuckDB` runs them at ``begin``, and :class:`Late` at ``commit``. The table is made by refdelta, without deletion
vectors.
"""

from __future__ import annotations

import importlib.util
from contextlib import closing
from pathlib import Path
from typing import Any

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import EngineUnavailableError, Left, NotSupportedError, Session
from refdelta.conformance.engines.refdelta_engine import make_table

_TABLE = "t"
_PACKAGE = "duckdb_extension_delta"
_CONFLICT = "commit conflict"
_SEVERAL_FILES = "DeltaInsert::Sink expects a single row"
_OF_THE_EXTENSION = "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'delta'"


class DuckDB:
    """DuckDB, with the statements at ``begin``."""

    name = "duckdb"
    kinds: tuple[str, ...] = ("statements",)
    _late = False

    def version(self) -> str:
        """The versions of DuckDB and of its extension."""
        try:
            import duckdb
        except ImportError:
            raise EngineUnavailableError("duckdb is not installed: pip install duckdb") from None
        with closing(_connection()) as connection:
            return f"{duckdb.__version__}, delta {connection.execute(_OF_THE_EXTENSION).fetchone()[0]}"

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table."""
        for transaction in case.transactions.values():
            for statement in transaction.statements:
                if statement.verb not in ("insert", "copy"):
                    raise NotSupportedError(f"DuckDB has no {statement.verb} of Delta tables")
        return _Statements(case, folder, late=self._late)

    def close(self) -> None:
        """Nothing is open."""


class Late(DuckDB):
    """DuckDB, with the statements at ``commit``, as in a transaction that reads first and inserts later."""

    name = "duckdb-late"
    _late = True


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
    def __init__(self, case: Case, folder: Path, *, late: bool) -> None:
        self.case, self.folder, self.late = case, folder, late
        make_table(case, folder, vectors=False)
        self.begun: dict[str, Any] = {}

    def begin(self, name: str) -> None:
        connection = self.begun[name] = self._attached()
        connection.execute("BEGIN")
        connection.execute(f"SELECT count(*) FROM {_TABLE}")  # the transaction sees this version
        if not self.late:
            self._run_statements(name)

    def _run_statements(self, name: str) -> None:
        import duckdb

        for statement in self.case.transactions[name].statements:
            try:
                self.begun[name].execute(statement.sql(_TABLE))
            except duckdb.InternalException as error:
                if _SEVERAL_FILES not in str(error):
                    raise
                raise NotSupportedError("DuckDB ends an INSERT into several partitions by an internal error") from None

    def _attached(self) -> Any:
        connection = _connection()
        connection.execute(f"ATTACH '{self.folder}' AS {_TABLE} (TYPE delta)")
        return connection

    def commit(self, name: str) -> Failure | None:
        import duckdb

        if self.late:
            self._run_statements(name)
        try:
            self.begun[name].execute("COMMIT")
        except duckdb.TransactionException as error:
            if _CONFLICT not in str(error):
                raise
            return Failure("Transaction", " ".join(str(error).split()))
        return None

    def left(self) -> Left:
        with closing(self._attached()) as connection:
            return list(connection.execute(f"SELECT k, a FROM {_TABLE}").fetchall())

    def close(self) -> None:
        for connection in self.begun.values():
            connection.close()
