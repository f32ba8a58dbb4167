"""pyiceberg with its SQL catalog, in a SQLite file: another format, and the same questions about statements.

A transaction begins when the table is loaded; the statement runs, and its commit asks the catalog for the table that it
was loaded from, at ``commit``. Iceberg has no isolation level WriteSerializable: the default of its writers,
``serializable``, is used in all cases. Of a table in S3 the catalog is a file on this machine, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import (
    EngineUnavailableError,
    Left,
    NotSupportedError,
    Session,
    one_statement,
    only_s3,
)
from refdelta.conformance.engines.refdelta_engine import SCHEMA, as_arrow, as_pairs
from refdelta_storage.protocols import renamed_s3

if TYPE_CHECKING:
    from refdelta.conformance.statements import Statement

_NAME = "cases.t"
_OPTIONS = {
    "key": "s3.access-key-id",
    "secret": "s3.secret-access-key",
    "token": "s3.session-token",
    "region_name": "s3.region",
    "endpoint_url": "s3.endpoint",
}
"""The options of S3, in pyiceberg's names."""


class PyIceberg:
    """pyiceberg."""

    name = "pyiceberg"
    kinds: tuple[str, ...] = ("statements",)
    unknown: tuple[type[Exception], ...] = ()

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
        return _Statements(case, f"file://{folder}", {})

    def open_in_store(self, case: Case, uri: str, storage_options: Mapping[str, Any]) -> Session:
        """Make the table in S3."""
        only_s3(uri)
        return _Statements(case, uri, iceberg_options(storage_options))

    def close(self) -> None:
        """Nothing is open."""


def iceberg_options(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Storage options of S3, by the names of s3fs or of deltalake, in pyiceberg's; all others unchanged.

    Args:
        storage_options: the options.

    Returns:
        Properties of a catalog. Without a region, for which pyiceberg would ask Amazon, it is us-east-1.
    """
    return {"s3.region": "us-east-1", **renamed_s3(storage_options, _OPTIONS)}


class _Statements:
    def __init__(self, case: Case, place: str, options: Mapping[str, str]) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        if case.table.get("properties") or case.partition_columns:
            raise NotSupportedError("a table with properties or partitions of Delta")
        self.case, self.folder = case, tempfile.TemporaryDirectory(prefix="refdelta-catalog-")
        self.catalog = SqlCatalog("cases", uri=f"sqlite:///{self.folder.name}/catalog.db", warehouse=place, **options)
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
        self.folder.cleanup()


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
