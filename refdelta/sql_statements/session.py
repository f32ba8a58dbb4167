"""The meaning of the names in a statement: given tables and rows, tables by path, and tables of a catalog."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from refdelta.api.table import DeltaTable
from refdelta.errors import InvalidArgumentError, TableNotFoundError, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from refdelta.catalog.base import Catalog
    from refdelta.transaction.results import CommitResult

Name = tuple[str, ...]
_FORMATS = ("json", "csv", "text", "orc", "avro", "xml", "binaryfile", "iceberg", "hudi")


@dataclass(frozen=True)
class Session:
    """The meaning of the names in a statement.

    Attributes:
        given: tables, paths and rows by their names in the statement, in lower case.
        catalog: the catalog of all other names; None for none.
        storage_options: options of the store, for tables that are named by their path.
        options: how statements commit; see :class:`~refdelta.transaction.options.StatementOptions`.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    catalog: Catalog | None = None
    storage_options: Mapping[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def table(self, name: Name, version: int | str | None = None) -> DeltaTable:
        """The table of a name, at a version or at a time.

        Raises:
            InvalidArgumentError: the name stands for rows.
            TableNotFoundError: it stands for nothing.
        """
        found = self._given(name)
        if found is None:
            check_no_files(name)
        if found is None and (found := path_of(name)) is None:
            if self.catalog is None:
                raise self._unknown(name)
            return self.catalog.table(".".join(name), version)
        if isinstance(found, DeltaTable):
            return found if version is None else DeltaTable.in_store(found.store, version)
        if not isinstance(found, str):
            raise InvalidArgumentError(f"{'.'.join(name)} stands for rows, where the statement needs a table")
        return DeltaTable(found, version, dict(self.storage_options or {}))

    def rows(self, name: Name, where: str | None = None) -> Any:  # noqa: ARG002 - for a transaction, which reads them
        """The table of a name, or the rows that were given by it.

        Args:
            name: the name.
            where: the condition of the rows that count; the result may have others.
        """
        found = self._given(name)
        if found is None and (path := files_of(name)) is not None:
            from refdelta.operations.write.parquet_files import open_parquet_files

            return open_parquet_files(path, self.storage_options)
        return self.table(name) if found is None or isinstance(found, str) else found

    def write(
        self,
        table: Any,
        rows: pa.RecordBatchReader,
        mode: Literal["overwrite", "append"],
        where: str | None,
        *,
        evolves: bool,
    ) -> CommitResult | None:
        """Write rows to a table: after the others, or in the place of those that satisfy a condition.

        Args:
            table: the table.
            rows: the rows.
            mode: whether they replace others.
            where: the condition of the rows that they replace; None for all.
            evolves: whether columns that the table lacks are added to it.
        """
        from refdelta.api.writer import write_deltalake

        merging: Literal["merge"] | None = "merge" if evolves else None
        return write_deltalake(table, rows, mode=mode, predicate=where, schema_mode=merging, **self.options)

    def place(self, name: Name) -> str | None:
        """The path of a table that may not exist yet; None if it is one of the catalog.

        Raises ``InvalidArgumentError`` if the name stands for rows, and ``TableNotFoundError`` if for nothing.
        """
        found = self._given(name)
        if isinstance(found, DeltaTable):
            return found.table_uri
        if found is None:
            check_no_files(name)
            if (path := path_of(name)) is not None or self.catalog is not None:
                return path
            raise self._unknown(name)
        if not isinstance(found, str):
            raise InvalidArgumentError(f"{'.'.join(name)} stands for rows, where the statement needs a table")
        return found

    def _given(self, name: Name) -> Any:
        found = self.given.get(name[0].lower()) if len(name) == 1 else None
        return str(found) if hasattr(found, "__fspath__") else found

    def _unknown(self, name: Name) -> TableNotFoundError:
        whole = ".".join(name)
        return TableNotFoundError(
            f"{whole} stands for no table{suggestion(whole, self.given)}: give it to sql() by its name, or a catalog, "
            "or write delta.`path`"
        )


def path_of(name: Name) -> str | None:
    """The path in ``delta.`path```; None for other names."""
    return name[1] if len(name) == 2 and name[0].lower() == "delta" else None


def files_of(name: Name) -> str | None:
    """The path in ``parquet.`path```; None for other names."""
    return name[1] if len(name) == 2 and name[0].lower() == "parquet" else None


def check_no_files(name: Name) -> None:
    """Refuse files by their format and path, such as ``parquet.`path```, where a table is named.

    Raises:
        InvalidArgumentError: the name is one; other formats than Parquet are not read either.
    """
    shown = f"{name[0]}.`{name[-1]}`"
    if files_of(name) is not None:
        raise InvalidArgumentError(
            f"{shown} names Parquet files, whose rows SELECT, INSERT and MERGE read, and not a table: write "
            f"delta.`{name[-1]}` for a Delta table; CONVERT TO DELTA makes one of the files"
        )
    if len(name) == 2 and name[0].lower() in _FORMATS and "/" in name[1]:
        raise InvalidArgumentError(
            f"{shown}: files of this format are not read by SQL; read them, for example with pyarrow, and give the "
            "rows to sql() by a name"
        )
