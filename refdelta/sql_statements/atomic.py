"""BEGIN ATOMIC ... END: statements over tables of a catalog as one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from refdelta.errors import InvalidArgumentError
from refdelta.sql_statements import changing
from refdelta.sql_statements.session import Session, check_no_files, files_of, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from refdelta.api.merge_builder import TableMerger
    from refdelta.catalog.transaction import CatalogTransaction, PartOfTransaction
    from refdelta.schema import Schema
    from refdelta.sql_statements.session import Name
    from refdelta.sql_statements.words import Words
    from refdelta.transaction.results import CommitResult

STATEMENTS = {
    "INSERT": changing.insert,
    "DELETE": changing.delete,
    "UPDATE": changing.update,
    "MERGE": changing.merge,
    "TRUNCATE": changing.truncate,
}
"""The statements of a block, by their first word."""


@dataclass(frozen=True)
class _Part:
    """The part for one table, with the methods of a table that statements call."""

    part: PartOfTransaction
    table_uri: str

    def schema(self) -> Schema:
        from refdelta.schema import Schema

        return Schema(self.part._transaction.existing.schema)  # noqa: SLF001 - of the same distribution

    def delete(self, predicate: str | None = None) -> None:
        self.part.delete(predicate)

    def update(self, updates: dict[str, str], *, predicate: str | None) -> None:
        self.part.update(updates, predicate=predicate)

    def merge(self, rows: Any, condition: str, source: str, target: str, *, merge_schema: bool) -> TableMerger[None]:
        return self.part.merge(rows, condition, source, target, merge_schema)


@dataclass(frozen=True)
class _Block(Session):
    """The meaning of the names in a block: tables are those of the transaction."""

    tx: CatalogTransaction | None = field(default=None, kw_only=True)

    def table(self, name: Name, version: int | str | None = None) -> Any:
        check_no_files(name)
        if version is not None or path_of(name) is not None or isinstance(found := self._given(name), str):
            raise InvalidArgumentError(
                f"{'.'.join(name)}: in BEGIN ATOMIC tables are named as in the catalog, and are of the version at "
                "which the block begins"
            )
        if found is not None:
            return super().table(name)
        assert self.tx is not None  # noqa: S101 - made with one
        part = self.tx.table(".".join(name))
        return _Part(part, part._transaction.store.uri)  # noqa: SLF001 - of the same distribution

    def rows(self, name: Name, where: str | None = None) -> Any:
        found = self._given(name)
        if (found is not None and not isinstance(found, str)) or files_of(name) is not None:
            return super().rows(name, where)
        return self.table(name).part.read(predicate=where)

    def write(
        self,
        table: Any,
        rows: pa.RecordBatchReader,
        mode: Literal["overwrite", "append"],
        where: str | None,
        *,
        evolves: bool,
    ) -> None:
        if not isinstance(table, _Part):
            raise InvalidArgumentError("in BEGIN ATOMIC rows are written to tables of the catalog only")
        if evolves:
            raise InvalidArgumentError("in BEGIN ATOMIC an INSERT changes no schema: ALTER TABLE before it does")
        if mode == "overwrite":
            table.part.overwrite(rows, where)
        else:
            table.part.append(rows)


def block(words: Words) -> Callable[[Session], dict[str, CommitResult]]:
    """BEGIN ATOMIC, statements with a semicolon after each, END."""
    if not words.take("ATOMIC"):
        raise words.refused(
            "only BEGIN ATOMIC ... END is supported, which is one transaction; transactions over several calls are "
            "those of catalog.transaction()"
        )
    runs = []
    for one in words.statements("END"):
        verb = one.one_of(*STATEMENTS)
        runs.append(STATEMENTS[verb](one))
        one.end()
    if not runs:
        raise words.expected("a statement")

    def run(session: Session) -> dict[str, CommitResult]:
        if session.catalog is None:
            raise InvalidArgumentError("BEGIN ATOMIC is for tables of a catalog: give sql() one")
        options = dict(session.options)
        attempts = options.pop("attempts", None) or 1
        if refused := [name for name in ("app_id", "app_version") if options.pop(name, None) is not None]:
            raise InvalidArgumentError(f"{refused[0]} is recorded table by table: leave it out of BEGIN ATOMIC")

        def work(tx: CatalogTransaction) -> None:
            own = _Block(session.given, session.catalog, session.storage_options, {}, tx=tx)
            for one in runs:
                one(own)

        return session.catalog.transact(work, attempts=attempts, **options)

    return run
