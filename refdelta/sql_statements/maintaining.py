"""OPTIMIZE, VACUUM, RESTORE, REORG, GENERATE, FSCK REPAIR; DESCRIBE and SHOW."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.errors import InvalidArgumentError
from refdelta.sql_statements.query import read_version
from refdelta.sql_statements.words import without

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.sql_statements.session import Session
    from refdelta.sql_statements.words import Words

    Run = Callable[[Session], Any]


def optimize(words: Words) -> Run:
    """OPTIMIZE table [FULL] [WHERE condition] [ZORDER BY (columns)]."""
    words.take("TABLE")
    name = words.table()
    full = words.take("FULL")
    where = without((name[-1],))(words.expression("ZORDER BY")) if words.take("WHERE") else None
    columns: list[str] = []
    if words.take("ZORDER", "BY"):
        columns = words.columns() if words.at("(") else [words.column()]
        while words.take(","):
            columns.append(words.column())

    def run(session: Session) -> Any:
        table = session.table(name)
        if columns:
            return table.optimize.z_order(columns, where, **session.options)
        if full or (where is None and table.detail().get("clusteringColumns")):
            return table.optimize.cluster(full=full, **session.options)
        return table.optimize.compact(where, **session.options)

    return run


def vacuum(words: Words) -> Run:
    """VACUUM table [FULL] [RETAIN n HOURS] [DRY RUN]."""
    words.take("TABLE")
    name = words.table()
    full = not words.take("LITE")
    words.take("FULL")
    hours = None
    if words.take("RETAIN"):
        hours = words.whole("a number of hours")
        words.need("HOURS")
    dry = words.take("DRY", "RUN")

    def run(session: Session) -> Any:
        given = {key: value for key, value in session.options.items() if key in ("commit_properties", "executor")}
        return session.table(name).vacuum(hours, dry, full=full, **given)

    return run


def restore(words: Words) -> Run:
    """RESTORE table TO VERSION AS OF n."""
    words.take("TABLE")
    name = words.table()
    words.take("TO")
    version = read_version(words)
    if version is None:
        raise words.expected("VERSION AS OF or TIMESTAMP AS OF")
    return lambda session: session.table(name).restore(version, **session.options)


def reorg(words: Words) -> Run:
    """REORG TABLE table [WHERE condition] APPLY (PURGE | UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = n))."""
    words.need("TABLE")
    name = words.table()
    where = without((name[-1],))(words.expression("APPLY")) if words.take("WHERE") else None
    words.need("APPLY", "(")
    if words.take("PURGE"):
        words.need(")")
        return lambda session: session.table(name).reorg_purge(where, **session.options)
    words.need("UPGRADE", "UNIFORM", "(", "ICEBERG_COMPAT_VERSION", "=")
    version = words.whole()
    words.need(")", ")")
    return lambda session: session.table(name).reorg_upgrade_uniform(version, **session.options)


def generate(words: Words) -> Run:
    """GENERATE symlink_format_manifest FOR TABLE table."""
    mode: Any = words.name("symlink_format_manifest").lower()
    words.need("FOR", "TABLE")
    name = words.table()
    return lambda session: session.table(name).generate(mode)


def repair(words: Words) -> Run:
    """FSCK REPAIR TABLE table [DRY RUN]."""
    words.need("REPAIR", "TABLE")
    name = words.table()
    dry = words.take("DRY", "RUN")
    return lambda session: session.table(name).repair(dry, **session.options)


def describe(words: Words) -> Run:
    """DESCRIBE HISTORY, DETAIL, or the columns of a table."""
    if words.take("HISTORY"):
        name = words.table()
        limit = words.whole() if words.take("LIMIT") else None
        return lambda session: session.table(name).history(limit)
    if words.take("DETAIL"):
        name = words.table()
        return lambda session: session.table(name).detail()
    words.take("TABLE")
    if not words.take("EXTENDED"):
        words.take("FORMATTED")
    name = words.table()
    return lambda session: _columns(session, name)


def _columns(session: Session, name: tuple[str, ...]) -> pa.Table:
    fields = session.table(name).schema().fields
    return pa.table(
        {
            "col_name": pa.array([item.name for item in fields], pa.string()),
            "data_type": pa.array([str(item.type) for item in fields], pa.string()),
            "comment": pa.array([item.metadata.get("comment") for item in fields], pa.string()),
        }
    )


def show(words: Words) -> Run:
    """SHOW TBLPROPERTIES, COLUMNS, TABLES."""
    if words.take("TABLES"):
        namespace = ".".join(words.path()) if words.take("IN") or words.take("FROM") else None
        return lambda session: _tables(session, namespace)
    if words.take("COLUMNS"):
        words.one_of("IN", "FROM")
        name = words.table()
        return lambda session: _columns(session, name).select(["col_name"])
    if words.take("PARTITIONS"):
        partitioned = words.table()
        return lambda session: pa.Table.from_pylist(session.table(partitioned).partitions())
    if not words.take("TBLPROPERTIES"):
        raise words.expected("TBLPROPERTIES, COLUMNS, TABLES or PARTITIONS")
    name = words.table()
    key = None
    if words.take("("):
        key = words.property_name()
        words.need(")")

    def run(session: Session) -> pa.Table:
        found = dict(session.table(name).metadata().configuration or {})
        if key is not None:
            found = {key: found[key]} if key in found else {}
        keys = sorted(found)
        return pa.table(
            {"key": pa.array(keys, pa.string()), "value": pa.array([found[one] for one in keys], pa.string())}
        )

    return run


def _tables(session: Session, namespace: str | None) -> pa.Table:
    if session.catalog is None:
        raise InvalidArgumentError("SHOW TABLES is for a catalog: give one to sql()")
    return pa.table({"name": pa.array([str(one) for one in session.catalog.tables(namespace)], pa.string())})
