"""The statements of cases: what each does to a table of the columns k and a, and the same in Spark's SQL.

A statement is an object of JSON; its first key says what it does:

* ``{"insert": [[10, 0]]}``: new rows;
* ``{"copy": {"k": "k + 20"}, "where": "a = 0"}``: INSERT SELECT of the matching rows, with these columns changed;
* ``{"delete": "a = 0"}``;
* ``{"update": {"a": "a + 1"}, "where": "k = 0"}``;
* ``{"upsert": [[2, 0]]}``: MERGE by k, which updates a where it matches and inserts otherwise;
* ``{"overwrite": [[13, 0]]}``: these rows instead of all others;
* ``{"optimize": true}``: compaction, which changes no row.

Predicates and expressions are such as SQLite and Spark evaluate alike: integers, ``+ - *``, comparisons, ``IN``,
``IS NULL``, ``AND``, ``OR``, ``NOT``. SQLite, which shares no code with any engine, evaluates them here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from refdelta.conformance.judge import Effect, Operation, Row, State
from refdelta.errors import InvalidArgumentError

COLUMNS: Final = ("k", "a")
_WITH_ROWS = ("insert", "upsert", "overwrite")
_WITH_COLUMNS = ("copy", "update")


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        verb: ``insert``, ``copy``, ``delete``, ``update``, ``upsert``, ``overwrite`` or ``optimize``.
        rows: of the verbs that bring rows, the rows as (k, a).
        columns: of copy and update, the expressions of changed columns, as pairs.
        where: of the verbs that read, the predicate.
    """

    verb: str
    rows: tuple[tuple[int | None, int | None], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    where: str = "true"

    def expression(self, column: str) -> str:
        """The new value of a column."""
        return dict(self.columns).get(column, column)

    def sql(self, table: str) -> str:
        """The statement in Spark's SQL.

        Args:
            table: the name of the table, quoted.
        """
        match self.verb:
            case "insert":
                return f"INSERT INTO {table} VALUES {self._values()}"
            case "copy":
                chosen = ", ".join(f"{self.expression(column)} AS {column}" for column in COLUMNS)
                return f"INSERT INTO {table} SELECT {chosen} FROM {table} WHERE {self.where}"
            case "delete":
                return f"DELETE FROM {table} WHERE {self.where}"
            case "update":
                changes = ", ".join(f"{column} = {text}" for column, text in self.columns)
                return f"UPDATE {table} SET {changes} WHERE {self.where}"
            case "upsert":
                source = f"(SELECT * FROM VALUES {self._values()} AS s(k, a))"
                return (
                    f"MERGE INTO {table} t USING {source} s ON s.k = t.k "
                    "WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT (k, a) VALUES (s.k, s.a)"
                )
            case "overwrite":
                return f"INSERT OVERWRITE {table} VALUES {self._values()}"
        return f"OPTIMIZE {table}"

    def _values(self) -> str:
        return ", ".join(f"({', '.join(_literal(value) for value in row)})" for row in self.rows)


def parse_statement(given: Any) -> Statement:
    """A statement from JSON.

    Args:
        given: an object as described at the top of this module.

    Raises:
        InvalidArgumentError: it is no statement.
    """
    verb = next(iter(given), None) if isinstance(given, dict) else None
    try:
        if verb in _WITH_ROWS and given.keys() == {verb}:
            rows = tuple((_number(k), _number(a)) for k, a in given[verb])
            return Statement(verb, rows)
        if verb in _WITH_COLUMNS and given.keys() <= {verb, "where"} and given[verb].keys() <= set(COLUMNS):
            statement = Statement(verb, columns=tuple(given[verb].items()), where=given.get("where", "true"))
        elif verb == "delete" and given.keys() == {verb} and isinstance(given[verb], str):
            statement = Statement(verb, where=given[verb])
        elif given == {"optimize": True}:
            return Statement("optimize")
        else:
            raise InvalidArgumentError(f"{given!r} is not a statement")
        effect((statement,), "T", frozenset())
    except (TypeError, ValueError, AttributeError, sqlite3.Error) as error:
        raise InvalidArgumentError(f"{given!r} is not a statement: {error}") from error
    return statement


def as_json(statement: Statement) -> dict[str, Any]:
    """The JSON of a statement, which :func:`parse_statement` reads."""
    if statement.verb in _WITH_ROWS:
        return {statement.verb: [list(row) for row in statement.rows]}
    if statement.verb in _WITH_COLUMNS:
        return {statement.verb: dict(statement.columns), "where": statement.where}
    return {"delete": statement.where} if statement.verb == "delete" else {"optimize": True}


def _number(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidArgumentError(f"{value!r} is neither an integer nor null")


def _literal(value: int | None) -> str:
    return "CAST(NULL AS BIGINT)" if value is None else str(value)


def copied(statement: Statement, rows: Iterable[tuple[int | None, int | None]]) -> list[tuple[Any, ...]]:
    """The rows that a ``copy`` inserts for the rows that it read; for engines that read and append in a transaction.

    Args:
        statement: the copy.
        rows: the rows that it read.
    """
    state = frozenset(Row(number, row) for number, row in enumerate(rows))
    return [values for _, values in _select("true", [statement.expression(column) for column in COLUMNS], state)]


def operation(statements: Sequence[Statement]) -> Operation:
    """A transaction of these statements, for the judge."""
    return lambda name, state: effect(statements, name, state)


def effect(statements: Sequence[Statement], name: str, state: State) -> Effect:
    """The effect of a transaction on a table, one statement after the other.

    Args:
        statements: its statements.
        name: its name, which is part of the identity of the rows that it writes.
        state: the table that it sees.
    """
    now = state
    for number, statement in enumerate(statements):
        now = _after(statement, (name, number), now)
    return Effect(state - now, now - state)


def _after(statement: Statement, writer: tuple[str, int], state: State) -> State:
    if statement.verb == "optimize":
        return state
    if statement.verb == "insert":
        return state | _new(writer, statement.rows)
    if statement.verb == "overwrite":
        return frozenset(_new(writer, statement.rows))
    where, changed = statement.where, [statement.expression(column) for column in COLUMNS]
    if statement.verb == "upsert":
        keys = ", ".join(str(k) for k, _ in statement.rows if k is not None)
        where = f"k IN ({keys})"
        value = " ".join(f"WHEN {k} THEN {_sqlite(a)}" for k, a in statement.rows if k is not None)
        changed = ["k", f"CASE k {value} END"]
    found = _select(where, changed, state)
    matched, made = {row for row, _ in found}, {Row((writer, row.identity), values) for row, values in found}
    match statement.verb:
        case "delete":
            return state - matched
        case "copy":
            return state | made
        case "update":
            return (state - matched) | made
    known = {row.values[0] for row in matched}
    return (state - matched) | made | _new(writer, [row for row in statement.rows if row[0] not in known])


def _sqlite(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def _new(writer: tuple[str, int], rows: Iterable[tuple[int | None, int | None]]) -> set[Row]:
    return {Row((writer, number), row) for number, row in enumerate(rows)}


def _select(where: str, columns: Sequence[str], state: State) -> list[tuple[Row, tuple[Any, ...]]]:
    """The rows for which a predicate is true, each with the values of expressions."""
    rows = list(state)
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (number INTEGER, k INTEGER, a INTEGER)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, *row.values) for n, row in enumerate(rows)])
        found = database.execute(f"SELECT number, {', '.join(columns)} FROM t WHERE {where}")
        return [(rows[number], tuple(values)) for number, *values in found]
