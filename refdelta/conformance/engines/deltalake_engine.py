"""deltalake, the Python package of delta-rs.

Its transactions are single statements. A handle sees the version at which it was opened, so a transaction begins when
its handle is opened; the statement runs, and its commit is checked against the versions after it, at ``commit``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.engines import EngineUnavailableError, Left, NotSupportedError, Session, one_statement
from refdelta.conformance.engines.refdelta_engine import SCHEMA, as_arrow, as_pairs

if TYPE_CHECKING:
    from refdelta.conformance.statements import Statement


class DeltaRs:
    """deltalake."""

    name = "deltalake"
    kinds: tuple[str, ...] = ("statements",)
    unknown: tuple[type[Exception], ...] = ()

    def version(self) -> str:
        """The version of the package."""
        try:
            import deltalake
        except ImportError:
            raise EngineUnavailableError("deltalake is not installed: pip install deltalake") from None
        return str(deltalake.__version__)

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table."""
        return HandleSession(case, folder, _run)

    def open_in_store(self, case: Case, uri: str, storage_options: Mapping[str, Any]) -> Session:
        """Make the table in a store."""
        return HandleSession(case, uri, _run, storage_options)

    def close(self) -> None:
        """Nothing is open."""


class HandleSession:
    """A case of statements whose transactions are handles of deltalake.

    Args:
        case: the case.
        folder: where to make the table.
        execute: runs a statement on a handle. Raises ``NotSupportedError`` for one that the engine does not have.
        storage_options: options of the store.
    """

    def __init__(
        self,
        case: Case,
        folder: Path | str,
        execute: Callable[[Any, Statement], None],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        from deltalake import DeltaTable, write_deltalake

        if case.table.get("properties"):
            raise NotSupportedError(f"the properties {', '.join(case.table['properties'])}")
        self.case, self.path, self._execute = case, str(folder), execute
        self._options = None if storage_options is None else dict(storage_options)
        properties = {} if case.level == "default" else {"delta.isolationLevel": case.level}
        table = DeltaTable.create(
            self.path,
            SCHEMA,
            partition_by=case.partition_columns or None,
            configuration=dict(properties),
            storage_options=self._options,
        )
        for rows in case.table["rows"]:
            write_deltalake(table, as_arrow(rows), mode="append")
        self.begun: dict[str, Any] = {}

    def begin(self, name: str) -> None:
        """Open a handle."""
        if one_statement(self.case, name).verb == "copy":
            raise NotSupportedError("an INSERT SELECT: its reads are not part of a write")
        self.begun[name] = self._table()

    def commit(self, name: str) -> Failure | None:
        """Run the statement on its handle. Returns the failure, or None."""
        from deltalake.exceptions import CommitFailedError

        try:
            self._execute(self.begun[name], one_statement(self.case, name))
        except CommitFailedError as error:
            return Failure(type(error).__name__, " ".join(str(error).split()))
        return None

    def left(self) -> Left:
        """The rows, read by a new handle."""
        return as_pairs(self._table().to_pyarrow_table())

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.path, storage_options=self._options)

    def close(self) -> None:
        """Let go of the handles."""
        self.begun.clear()


def _run(table: Any, statement: Statement) -> None:
    from deltalake import write_deltalake

    match statement.verb:
        case "insert":
            write_deltalake(table, as_arrow(statement.rows), mode="append")
        case "overwrite":
            write_deltalake(table, as_arrow(statement.rows), mode="overwrite")
        case "delete":
            table.delete(statement.where)
        case "update":
            table.update(updates=dict(statement.columns), predicate=statement.where)
        case "upsert":
            merging = table.merge(as_arrow(statement.rows), "s.k = t.k", source_alias="s", target_alias="t")
            merging.when_matched_update({"a": "s.a"}).when_not_matched_insert_all().execute()
        case "optimize":
            table.optimize.compact()
