"""DuckDB with its extension ``delta``, which appends in transactions of DuckDB.

A transaction is one of DuckDB, on a connection of its own, and its COMMIT is tried at ``commit``. There are two engines
by when its statements run, both after a first read at ``begin``, which fixes the version that the transaction sees:
:class:`DuckDB` runs them at ``begin``, and :class:`Late` at ``commit``. The table is made by refdelta, without deletion
vectors. In S3 the extension ``httpfs`` is needed, too: it has the secrets.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import EngineUnavailableError, Left, NotSupportedError, Session, only_s3
from refdelta.conformance.engines.refdelta_engine import make_table
from refdelta_storage.protocols import renamed_s3

_TABLE = "t"
_NAMES = {
    "key": "KEY_ID",
    "secret": "SECRET",
    "token": "SESSION_TOKEN",
    "region_name": "REGION",
    "endpoint_url": "ENDPOINT",
}
"""The options of S3, in the names of DuckDB's secrets."""
_CONFLICT = "commit conflict"
_SEVERAL_FILES = "DeltaInsert::Sink expects a single row"
_OF_THE_EXTENSION = "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'delta'"


class DuckDB:
    """DuckDB, with the statements at ``begin``."""

    name = "duckdb"
    kinds: tuple[str, ...] = ("statements",)
    _late = False
    unknown: tuple[type[Exception], ...] = ()

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
        _check(case)
        return _Statements(case, str(folder), None, late=self._late)

    def open_in_store(self, case: Case, uri: str, storage_options: Mapping[str, Any]) -> Session:
        """Make the table in S3.

        Raises:
            NotSupportedError: it is in another store.
            EngineUnavailableError: this version of DuckDB has no extension for S3 here.
        """
        only_s3(uri)
        _check(case)
        _connection("httpfs").close()
        return _Statements(case, uri, storage_options, late=self._late)

    def close(self) -> None:
        """Nothing is open."""


class Late(DuckDB):
    """DuckDB, with the statements at ``commit``, as in a transaction that reads first and inserts later."""

    name = "duckdb-late"
    _late = True


def _check(case: Case) -> None:
    """Raise ``NotSupportedError`` for a case that does more than to insert."""
    for transaction in case.transactions.values():
        for statement in transaction.statements:
            if statement.verb not in ("insert", "copy"):
                raise NotSupportedError(f"DuckDB has no {statement.verb} of Delta tables")


def _connection(*extensions: str) -> Any:
    """A new database in memory with the extension ``delta``, and others.

    Raises:
        EngineUnavailableError: this version of DuckDB does not have one of them here.
    """
    import duckdb

    connection = duckdb.connect()
    for name in (*extensions, "delta"):
        try:
            connection.execute(f"LOAD {_extension(name, duckdb.__version__)}")
        except duckdb.Error:
            connection.close()
            raise EngineUnavailableError(
                f"DuckDB {duckdb.__version__} has no extension {name} here: run INSTALL {name} in DuckDB, "
                f"or pip install duckdb-extension-{name} of the same version"
            ) from None
    return connection


def _extension(name: str, version: str) -> str:
    """The extension that a package brings for this version of DuckDB; else the name of an installed one."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    folders = package.submodule_search_locations or () if package else ()
    files = (Path(folder) / "extensions" / f"v{version}" / f"{name}.duckdb_extension" for folder in folders)
    return next((f"'{file}'" for file in files if file.exists()), name)


def _secret(storage_options: Mapping[str, Any]) -> str:
    """The statement that gives DuckDB the options of an S3 server without TLS."""
    named = {name: value for name, value in renamed_s3(storage_options, _NAMES).items() if name in _NAMES.values()}
    named["ENDPOINT"] = str(named["ENDPOINT"]).partition("://")[2]
    given = {"REGION": "us-east-1", **named, "URL_STYLE": "path", "USE_SSL": "false"}
    quoted = (f"{name} '{str(value).replace(chr(39), chr(39) * 2)}'" for name, value in given.items())
    return f"CREATE SECRET (TYPE s3, {', '.join(quoted)})"


class _Statements:
    def __init__(self, case: Case, place: str, options: Mapping[str, Any] | None, *, late: bool) -> None:
        self.case, self.place, self.options, self.late = case, place, options, late
        make_table(case, place, options, vectors=False)
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
        connection = _connection() if self.options is None else _connection("httpfs")
        if self.options is not None:
            connection.execute(_secret(self.options))
        connection.execute(f"ATTACH '{self.place}' AS {_TABLE} (TYPE delta, READ_WRITE)")
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
