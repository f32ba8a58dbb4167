"""ALTER TABLE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta.errors import InvalidArgumentError
from refdelta.sql_statements.defining import AT_THE_END, Columns, columns_in_brackets

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.api.alter import TableAlterer
    from refdelta.sql_statements.session import Session
    from refdelta.sql_statements.words import Words

    Change = Callable[[TableAlterer, dict[str, Any]], Any]


def alter(words: Words) -> Callable[[Session], Any]:
    """ALTER TABLE, one change."""
    words.need("TABLE")
    name = words.table()
    if words.take("RENAME", "TO"):
        new = ".".join(words.table())
        return lambda session: _renamed(session, ".".join(name), new)
    change = _change(words)
    return lambda session: change(session.table(name).alter, dict(session.options))


def _renamed(session: Session, name: str, new: str) -> None:
    rename = getattr(session.catalog, "rename_table", None)
    if rename is None:
        raise InvalidArgumentError("RENAME TO is for tables of a SqlCatalog; a table that is a folder is moved as one")
    rename(name, new)


def _change(words: Words) -> Change:
    if words.take("SET", "TBLPROPERTIES"):
        properties = words.properties()
        return lambda table, options: table.set_table_properties(properties, **options)
    if words.take("UNSET", "TBLPROPERTIES"):
        exists = words.take("IF", "EXISTS")
        words.need("(")
        names = [words.property_name()]
        while words.take(","):
            names.append(words.property_name())
        words.need(")")
        return lambda table, options: table.unset_table_properties(names, if_exists=exists, **options)
    if words.take("CLUSTER", "BY"):
        columns = None if words.take("NONE") else words.columns()
        return lambda table, options: table.cluster_by(columns, **options)
    if words.take("ADD"):
        return _add(words)
    if words.take("DROP"):
        return _drop(words)
    if words.take("RENAME", "COLUMN"):
        old = words.column()
        words.need("TO")
        new = words.name("a column")
        return lambda table, options: table.rename_column(old, new, **options)
    if words.take("ALTER") or words.take("CHANGE"):
        words.take("COLUMN")
        return _column(words, words.column())
    raise words.expected("SET, UNSET, ADD, DROP, RENAME, ALTER COLUMN or CLUSTER BY")


def _add(words: Words) -> Change:
    if words.take("CONSTRAINT"):
        name = words.name("a constraint")
        words.need("CHECK")
        (condition,) = words.in_brackets()
        return lambda table, options: table.add_constraint({name: condition}, **options)
    if not words.take("COLUMNS") and not words.take("COLUMN"):
        raise words.expected("COLUMNS, COLUMN or CONSTRAINT")
    if words.at("("):
        columns = columns_in_brackets(words)
    else:
        columns = Columns()
        columns.read(words)
    if any(columns.declared().values()):
        raise words.refused("an added column has no default and is not generated; ALTER COLUMN ... SET DEFAULT follows")
    if words.at("FIRST") or words.at("AFTER"):
        raise words.refused(AT_THE_END)
    return lambda table, options: table.add_columns(columns.schema(), **options)


def _drop(words: Words) -> Change:
    if words.take("CONSTRAINT"):
        exists = words.take("IF", "EXISTS")
        name = words.name("a constraint")
        return lambda table, options: table.drop_constraint(name, not exists, **options)
    if words.take("FEATURE"):
        feature = words.name("a feature")
        truncates = words.take("TRUNCATE", "HISTORY")
        return lambda table, options: table.drop_feature(feature, truncate_history=truncates, **options)
    if not words.take("COLUMNS") and not words.take("COLUMN"):
        raise words.expected("COLUMNS, COLUMN, CONSTRAINT or FEATURE")
    exists = words.take("IF", "EXISTS")
    columns = words.columns() if words.at("(") else [words.column()]
    while words.take(","):
        columns.append(words.column())
    return lambda table, options: table.drop_columns(columns, if_exists=exists, **options)


def _column(words: Words, column: str) -> Change:
    if words.take("TYPE"):
        data_type = words.data_type()
        return lambda table, options: table.change_type(column, data_type, **options)
    if words.take("COMMENT"):
        text = words.string()
        return lambda table, options: table.set_column_metadata(column, {"comment": text}, **options)
    if words.take("FIRST"):
        return lambda table, options: table.move_column(column, **options)
    if words.take("AFTER"):
        after = words.column()
        return lambda table, options: table.move_column(column, after=after, **options)
    if words.take("SYNC", "IDENTITY"):
        return lambda table, options: table.sync_identity(column, **options)
    if words.take("SET", "DEFAULT"):
        default = words.expression()
        return lambda table, options: table.set_default(column, default, **options)
    if words.take("DROP", "DEFAULT"):
        return lambda table, options: table.drop_default(column, **options)
    if words.one_of("SET", "DROP") == "SET":
        words.need("NOT", "NULL")
        return lambda table, options: table.set_nullable(column, False, **options)
    words.need("NOT", "NULL")
    return lambda table, options: table.set_nullable(column, True, **options)
