"""refdelta: statements by its public transactions, actions by its commit core."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from refdelta import DeltaTable, __version__, write_deltalake
from refdelta.api.transaction import WriteTransaction
from refdelta.conformance.cases import Case, Failure
from refdelta.conformance.core_transactions import short
from refdelta.conformance.engines import Left, Session
from refdelta.conformance.replay import core_session
from refdelta.conformance.statements import COLUMNS, Statement, copied
from refdelta.errors import CommitOutcomeUnknownError, ConcurrentModificationError

SCHEMA = pa.schema([(column, pa.int64()) for column in COLUMNS])


class Rows:
    """refdelta with deletion vectors, where rows decide over conflicts."""

    name = "refdelta"
    kinds: tuple[str, ...] = ("statements", "actions")
    unknown: tuple[type[Exception], ...] = (CommitOutcomeUnknownError,)
    _vectors = True

    def version(self) -> str:
        """The version of refdelta."""
        return __version__

    def open(self, case: Case, folder: Path) -> Session:
        """Make the table."""
        return self._session(case, str(folder), None)

    def open_in_store(self, case: Case, uri: str, storage_options: Mapping[str, Any]) -> Session:
        """Make the table in a store."""
        return self._session(case, uri, storage_options)

    def _session(self, case: Case, place: str, options: Mapping[str, Any] | None) -> Session:
        if case.kind == "actions":
            return core_session(case, place, options)
        return _Statements(case, place, options, vectors=self._vectors)

    def close(self) -> None:
        """Nothing is open."""


class Files(Rows):
    """refdelta without deletion vectors, where files decide over conflicts."""

    name = "refdelta-files"
    kinds = ("statements",)
    _vectors = False


def make_table(
    case: Case, folder: Path | str, storage_options: Mapping[str, Any] | None = None, *, vectors: bool
) -> None:
    """Make the table of a case of statements, also for engines that only write to one."""
    own = {} if case.level == "default" else {"delta.isolationLevel": case.level}
    properties = {**own, "delta.enableDeletionVectors": str(vectors).lower(), **case.table.get("properties", {})}
    table = DeltaTable.create(
        folder,
        SCHEMA,
        partition_by=case.partition_columns or None,
        configuration=properties,
        storage_options=storage_options,
    )
    for rows in case.table["rows"]:
        write_deltalake(table, as_arrow(rows), mode="append")


class _Statements:
    def __init__(self, case: Case, folder: str, options: Mapping[str, Any] | None, *, vectors: bool) -> None:
        self.case, self.folder, self.options = case, folder, options
        make_table(case, folder, options, vectors=vectors)
        self.begun: dict[str, WriteTransaction] = {}

    def begin(self, name: str) -> None:
        txn = self.begun[name] = self._table().begin()
        for statement in self.case.transactions[name].statements:
            _stage(txn, statement)

    def commit(self, name: str) -> Failure | None:
        try:
            self.begun[name].commit()
        except ConcurrentModificationError as error:
            return Failure(short(type(error).__name__), " ".join(str(error).split()), error.conflict.rule)
        return None

    def left(self) -> Left:
        return as_pairs(self._table().to_pyarrow_table())

    def _table(self) -> DeltaTable:
        return DeltaTable(self.folder, storage_options=self.options)

    def close(self) -> None:
        for txn in self.begun.values():
            txn.__exit__(None, None, None)


def _stage(txn: WriteTransaction, statement: Statement) -> None:
    match statement.verb:
        case "insert":
            txn.append(as_arrow(statement.rows))
        case "copy":
            txn.append(as_arrow(copied(statement, as_pairs(txn.read(predicate=statement.where)))))
        case "delete":
            txn.delete(statement.where)
        case "update":
            txn.update(dict(statement.columns), predicate=statement.where)
        case "overwrite":
            txn.overwrite(as_arrow(statement.rows))
        case "upsert":
            merging = txn.merge(as_arrow(statement.rows), "s.k = t.k", source_alias="s", target_alias="t")
            merging.when_matched_update({"a": "s.a"}).when_not_matched_insert_all().execute()
        case "optimize":
            txn.compact()


def as_arrow(rows: object) -> pa.Table:
    """Rows (k, a) as a table."""
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], schema=SCHEMA)  # type: ignore[attr-defined]


def as_pairs(table: pa.Table) -> list[tuple[int | None, int | None]]:
    """The rows (k, a) of a table."""
    return list(zip(*(table[column].to_pylist() for column in COLUMNS), strict=True))
