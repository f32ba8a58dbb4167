"""``refdelta.sql``: one statement in Spark's SQL, read as a whole and then run as the method that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.errors import InvalidArgumentError, unknown_name
from refdelta.sql_statements import altering, atomic, changing, defining, maintaining
from refdelta.sql_statements.query import at_a_query, read_query
from refdelta.sql_statements.session import Session
from refdelta.sql_statements.words import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from refdelta.catalog.base import Catalog
    from refdelta.transaction.options import StatementOptions

STATEMENTS: dict[str, Callable[[Words], Callable[[Session], Any]]] = {
    "INSERT": changing.insert,
    "DELETE": changing.delete,
    "UPDATE": changing.update,
    "MERGE": changing.merge,
    "TRUNCATE": changing.truncate,
    "CREATE": defining.create,
    "REPLACE": defining.replace,
    "CONVERT": defining.convert,
    "DROP": defining.drop,
    "COMMENT": defining.comment,
    "ALTER": altering.alter,
    "OPTIMIZE": maintaining.optimize,
    "VACUUM": maintaining.vacuum,
    "RESTORE": maintaining.restore,
    "REORG": maintaining.reorg,
    "GENERATE": maintaining.generate,
    "FSCK": maintaining.repair,
    "DESCRIBE": maintaining.describe,
    "DESC": maintaining.describe,
    "SHOW": maintaining.show,
    "BEGIN": atomic.block,
}
"""The statements by their first word. To add one, add a function that reads its words and returns what runs it."""


def sql(
    statement: str,
    *,
    catalog: Catalog | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: StatementOptions | None = None,
    executor: Any = None,
    **names: Any,
) -> Any:
    """Run one statement in Spark's SQL: the method of :class:`~refdelta.DeltaTable` that it stands for.

    SELECT (one table or given rows: columns and expressions, WHERE, ORDER BY, LIMIT; ``count(*)``), INSERT, DELETE,
    UPDATE, MERGE, TRUNCATE, CREATE TABLE (also AS SELECT and SHALLOW CLONE), ALTER TABLE, CONVERT TO DELTA, OPTIMIZE,
    VACUUM, RESTORE, REORG, GENERATE, FSCK REPAIR, DESCRIBE and SHOW; and BEGIN ATOMIC ... END, several statements that
    change rows of tables of a catalog as one transaction. Expressions are those of :meth:`DeltaTable.scan`.
    The whole statement is read before anything is done.

    Args:
        statement: the statement; a semicolon may end it.
        catalog: the catalog whose tables the statement names.
        storage_options: options of the store of tables that are named by their path.
        options: how a statement commits; see :class:`~refdelta.transaction.options.StatementOptions`.
        executor: where a statement reads and writes rows, as its method takes it.
        names: what the names in the statement stand for: a :class:`~refdelta.DeltaTable`, the path or URI of one, or
            rows that :func:`~refdelta.write_deltalake` takes. Tables are also named by their path: ``delta.`path```.

    Returns:
        A ``pyarrow.Table`` for SELECT, SHOW and DESCRIBE TABLE; the results by table for BEGIN ATOMIC; the result of
        the method for all others.

    Raises:
        PredicateError: the statement, or an expression in it, cannot be read; the message has the line and the column.
        TableNotFoundError: a name stands for no table.
        InvalidArgumentError: a name stands for rows, where the statement needs a table; or as for the method, whose
            further errors are raised, too.

    Example::

        write_deltalake(uri, rows)
        refdelta.sql("UPDATE t SET amount = amount + 1 WHERE id = 1", t=uri)
        refdelta.sql("SELECT id, amount * 2 AS twice FROM t ORDER BY id LIMIT 2", t=uri).to_pylist()
    """
    words = Words(statement)
    if at_a_query(words):
        query = read_query(words)
        words.end()
        return query.table(_session(names, catalog, storage_options, options, executor))
    verb = words.name("a statement").upper()
    if verb not in STATEMENTS:
        known = ["SELECT", "VALUES", "TABLE", *STATEMENTS]
        raise InvalidArgumentError(f"{unknown_name('statement', verb, known)}")
    run = STATEMENTS[verb](words)
    words.end()
    return run(_session(names, catalog, storage_options, options, executor))


def _session(
    names: Mapping[str, Any],
    catalog: Catalog | None,
    storage_options: Mapping[str, str] | None,
    options: StatementOptions | None,
    executor: Any,
) -> Session:
    given = {} if executor is None else {"executor": executor}
    arguments.mapping("options", options)
    return Session(
        {name.lower(): value for name, value in names.items()}, catalog, storage_options, {**given, **(options or {})}
    )
