"""INSERT, DELETE, UPDATE, MERGE, TRUNCATE: statements that change rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from refdelta.api.table import DeltaTable
from refdelta.engine.scan.origin import mark, marks_of
from refdelta.errors import InvalidArgumentError
from refdelta.expressions.binding import resolve_column
from refdelta.operations.dml.assign import default_of
from refdelta.operations.write.source import same_place
from refdelta.sql_statements.query import Item, Query, at_a_query, read_query
from refdelta.sql_statements.words import without
from refdelta.table.column_names import named_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.api.merge_builder import TableMerger
    from refdelta.api.transaction import WriteTransaction
    from refdelta.sql_statements.session import Name, Session
    from refdelta.sql_statements.words import Words
    from refdelta.table.types import StructType
    from refdelta.transaction.results import CommitResult

    Run = Callable[[Session], Any]


# --- INSERT ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Insert:
    """An INSERT: the rows of a query into a table.

    Attributes:
        target: the table.
        query: the rows.
        columns: the columns in the order of the query's; None for those of the table.
        by_name: whether the query's columns have the names of the table's.
        overwrite: whether the rows replace others.
        where: the rows that they replace; None for all.
        evolves: whether columns of the rows that the table lacks are added to it.
    """

    target: Name
    query: Query
    columns: tuple[str, ...] | None
    by_name: bool
    overwrite: bool
    where: str | None
    evolves: bool = False

    def run(self, session: Session) -> CommitResult | None:
        table = session.table(self.target)
        if _has_default(self.query):
            return self._with_defaults(table.schema().struct).run(session)
        source = self.query.found(session)
        if isinstance(source, DeltaTable) and not source.pinned and same_place(source.table_uri, table.table_uri):
            if self.evolves:
                raise InvalidArgumentError(
                    "WITH SCHEMA EVOLUTION takes rows of other tables, and not of the table itself"
                )
            return table.transact(lambda txn: self._of_itself(txn, table), **_transacted(session))
        rows = self._named(self.query.of(source), table)
        mode: Literal["overwrite", "append"] = "overwrite" if self.overwrite else "append"
        return session.write(table, rows, mode, self.where, evolves=self.evolves)

    def _with_defaults(self, schema: StructType) -> _Insert:
        """The statement with the default of its column for each DEFAULT, NULL where a column has none. A column that
        the table computes is left out.
        """
        if self.by_name:
            raise InvalidArgumentError("DEFAULT is the default of a column by its place: it does not go with BY NAME")
        names = list(self.columns) if self.columns is not None else schema.names
        rows = self.query.values or (tuple(item.sql for item in self.query.items),)
        if any(len(row) != len(names) for row in rows):
            raise InvalidArgumentError(
                f"the INSERT has {len(rows[0])} columns for the {len(names)} columns {', '.join(names)}"
            )
        kept: list[tuple[str, list[str]]] = []
        for name, column in zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True):
            default = default_of(resolve_column(named_path(name, schema), schema), schema)
            asked = [_is_default(sql) for sql in column]
            if default is not None:
                kept.append((name, [default if one else sql for one, sql in zip(asked, column, strict=True)]))
            elif not all(asked):
                kept.append((name, column))
                if any(asked):
                    raise InvalidArgumentError(
                        f"column {name!r} is computed by the table: all rows of the INSERT have DEFAULT for it, or none"
                    )
        if not kept:
            raise InvalidArgumentError("the INSERT gives no column a value: the table computes all of them")
        changed = list(zip(*(column for _, column in kept), strict=True))
        items = tuple(Item(sql) for sql in changed[0])
        query = replace(self.query, values=tuple(changed)) if self.query.values else replace(self.query, items=items)
        return replace(self, query=query, columns=tuple(name for name, _ in kept))

    def _of_itself(self, txn: WriteTransaction, table: DeltaTable) -> None:
        """From the table itself: the rows are read in the transaction, so that no commit comes between."""
        read = txn.read(predicate=self.query.where)
        rows = self._named(replace(self.query, where=None).of_rows(read.to_reader()), table)
        if self.overwrite:
            txn.overwrite(rows, predicate=self.where)
        else:
            txn.append(rows)

    def _named(self, rows: pa.RecordBatchReader, table: DeltaTable) -> pa.RecordBatchReader:
        """The rows with the names of the table's columns."""
        if self.by_name:
            return rows
        names = table.schema().names if self.columns is None else list(self.columns)
        if len(names) != len(rows.schema):
            raise InvalidArgumentError(
                f"the INSERT has {len(rows.schema)} columns for the {len(names)} columns {', '.join(names)}"
            )
        schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
        named = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
        return mark(pa.RecordBatchReader.from_batches(schema, named), marks_of(rows))


def _has_default(query: Query) -> bool:
    """Whether a value of a query is DEFAULT."""
    return any(_is_default(sql) for row in query.values for sql in row) or any(
        _is_default(item.sql) for item in query.items
    )


def _is_default(sql: str) -> bool:
    return sql.strip().lower() == "default"


def _transacted(session: Session) -> dict[str, Any]:
    return {**session.options, "attempts": session.options.get("attempts") or 1}


def insert(words: Words) -> Run:
    """INSERT INTO or OVERWRITE, WITH SCHEMA EVOLUTION, with columns, BY NAME, REPLACE WHERE."""
    evolves = words.take("WITH", "SCHEMA", "EVOLUTION")
    overwrite = words.one_of("INTO", "OVERWRITE") == "OVERWRITE"
    words.take("TABLE")
    target = words.table()
    if words.at("PARTITION"):
        raise words.refused("PARTITION is not supported: give the partition columns as the others, or REPLACE WHERE")
    columns, where = None, None
    if words.at("(") and not at_a_query(words):
        columns = tuple(words.columns())
    by_name = words.take("BY", "NAME")
    if words.take("REPLACE"):
        words.need("WHERE")
        overwrite, where = True, words.expression("SELECT", "VALUES", "TABLE", "FROM")
    bracket = words.take("(")
    if not at_a_query(words):
        raise words.expected("SELECT, VALUES or TABLE")
    query = read_query(words)
    if bracket:
        words.need(")")
    plain = without((target[-1],))
    where = None if where is None else plain(where)
    return _Insert(target, query, columns, by_name, overwrite, where, evolves).run


# --- DELETE, UPDATE, TRUNCATE -------------------------------------------------------------------------------------


def delete(words: Words) -> Run:
    """DELETE FROM."""
    words.need("FROM")
    target, names = _target(words)
    where = words.expression() if words.take("WHERE") else None
    plain = without(names)
    return lambda session: session.table(target).delete(where and plain(where), **session.options)


def truncate(words: Words) -> Run:
    """TRUNCATE TABLE."""
    words.need("TABLE")
    target = words.table()
    return lambda session: session.table(target).delete(**session.options)


def update(words: Words) -> Run:
    """UPDATE."""
    target, names = _target(words)
    words.need("SET")
    plain = without(names)
    updates = _once(words, [(plain(column), plain(sql)) for column, sql in _assignments(words, "WHERE")])
    where = words.expression() if words.take("WHERE") else None
    return lambda session: session.table(target).update(updates, predicate=where and plain(where), **session.options)


def _target(words: Words) -> tuple[Name, tuple[str, ...]]:
    """The table of a statement, and the names that stand for it in expressions."""
    target = words.table()
    alias = _alias(words, "WHERE", "SET", "USING")
    return target, (alias or target[-1],)


def _alias(words: Words, *stops: str) -> str | None:
    if words.take("AS"):
        return words.name("an alias")
    return words.name() if words.at_a_name() and not any(words.at(stop) for stop in stops) else None


def _assignments(words: Words, *stops: str) -> list[tuple[str, str]]:
    found = []
    while True:
        column = words.column()
        words.need("=")
        found.append((column, words.expression(*stops, commas=True)))
        if not words.take(","):
            return found


def _once(words: Words, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Values by column, none of which is named twice."""
    words.once("column", (column for column, _ in pairs))
    return dict(pairs)


# --- MERGE -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Clause:
    """A WHEN clause: the method of the builder and its arguments."""

    method: str
    given: tuple[Any, ...] = ()
    predicate: str | None = None

    def add(self, merge: TableMerger[Any]) -> None:
        getattr(merge, self.method)(*self.given, predicate=self.predicate)


def merge(words: Words) -> Run:
    """MERGE INTO, with all its clauses."""
    evolves = words.take("WITH", "SCHEMA", "EVOLUTION")
    words.need("INTO")
    target = words.table()
    alias = _alias(words, "USING") or target[-1]
    words.need("USING")
    source: Query
    if words.take("("):
        source = read_query(words)
        words.need(")")
        source_alias = _alias(words, "ON")
    else:
        name = words.table()
        source = Query(name)
        source_alias = _alias(words, "ON") or name[-1]
    words.need("ON")
    condition = words.expression("WHEN")
    clauses = []
    while words.take("WHEN"):
        clauses.append(_clause(words, without((alias,))))
    if not clauses:
        raise words.expected("WHEN")

    def run(session: Session) -> CommitResult:
        whole = source.source is not None and source == Query(source.source)
        rows = session.rows(source.source) if whole and source.source else source.table(session)
        builder = session.table(target).merge(
            rows, condition, source_alias or "", alias, merge_schema=evolves, **session.options
        )
        for clause in clauses:
            clause.add(builder)
        return builder.execute()

    return run


def _clause(words: Words, plain: Callable[[str], str]) -> _Clause:
    matched = not words.take("NOT")
    words.need("MATCHED")
    by_source = False
    if not matched and words.take("BY"):
        by_source = words.one_of("TARGET", "SOURCE") == "SOURCE"
    condition = words.expression("THEN") if words.take("AND") else None
    words.need("THEN")
    kind = "when_matched" if matched else "when_not_matched_by_source" if by_source else "when_not_matched"
    if kind == "when_not_matched":
        words.need("INSERT")
        if words.take("*"):
            return _Clause(f"{kind}_insert_all", predicate=condition)
        columns = words.columns()
        words.need("VALUES")
        values = words.in_brackets()
        if len(values) != len(columns):
            raise words.refused(f"INSERT has {len(columns)} columns and {len(values)} values")
        named = _once(words, [(plain(column), value) for column, value in zip(columns, values, strict=True)])
        return _Clause(f"{kind}_insert", (named,), condition)
    if words.take("DELETE"):
        return _Clause(f"{kind}_delete", predicate=condition)
    words.need("UPDATE", "SET")
    if matched and words.take("*"):
        return _Clause(f"{kind}_update_all", predicate=condition)
    updates = _once(words, [(plain(column), sql) for column, sql in _assignments(words, "WHEN")])
    return _Clause(f"{kind}_update", (updates,), condition)
