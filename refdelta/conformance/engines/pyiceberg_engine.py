"""pyiceberg with its SQL catalog, in a SQLite file: another format, and the same questions about statements.

A transaction begins when the table is loaded; the statement runs, and its commit asks the catalog for the table that it
was loaded from, at ``commit``. Iceberg has no isolation level WriteSerializable: the default of its writers,
``serializable``, is used in all cases.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import EngineUnavailableError, Left, NotSupportedError, Session, one_statement
from refdelta.conformance.engines.refdelta_engine import SCHEMA, as_arrow, as_pairs

if TYPE_CHECKING:
    from refdelta.conformance.statements import Statement

_NAME = "cases.t"


class PyIceberg:
    """pyiceberg."""

    name = "pyiceberg"
    kinds: tuple[str, ...] = ("statements",)

    def version(self) -> str:
        """The version of the package."""
        try:
            import pyiceberg
            import pyiceberg.catalog.sql
        except ImportError:
            reason = "pyiceberg with its SQL catalog is not installed: pip install 'pyiceberg[sql-sqlite]'"
            raise EngineUnavailableError(reason) from None
        return str(pyiceberg.__version__)

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table."""
        return _Statements(case, folder)

    def close(self) -> None:
        """Nothing is open."""


class _Statements:
    def __init__(self, case: Case, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        if case.table.get("properties") or case.partition_columns:
            raise NotSupportedError("a table with properties or partitions of Delta")
        folder.mkdir(parents=True)
        self.case = case
        self.catalog = SqlCatalog("cases", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace("cases")
        table = self.catalog.create_table(_NAME, SCHEMA)
        for rows in case.table["rows"]:
            table.append(as_arrow(rows))
        self.begun: dict[str, Any] = {}

    def begin(self, name: str) -> None:
        verb = one_statement(self.case, name).verb
        if verb in ("copy", "update", "optimize"):
            raise NotSupportedError(f"pyiceberg has no {verb}")
        self.begun[name] = self.catalog.load_table(_NAME)

    def commit(self, name: str) -> Failure | None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        try:
            _run(self.begun[name], one_statement(self.case, name))
        except (CommitFailedException, ValidationException) as error:
            return Failure(type(error).__name__.removesuffix("Exception"), " ".join(str(error).split()))
        return None

    def left(self) -> Left:
        return as_pairs(self.catalog.load_table(_NAME).scan().to_arrow())

    def close(self) -> None:
        self.catalog.close()


def _run(table: Any, statement: Statement) -> None:
    match statement.verb:
        case "insert":
            table.append(as_arrow(statement.rows))
        case "overwrite":
            table.overwrite(as_arrow(statement.rows))
        case "delete":
            table.delete(statement.where)
        case "upsert":
            table.upsert(as_arrow(statement.rows), join_cols=["k"])
