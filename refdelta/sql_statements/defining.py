"""CREATE TABLE, also from a query and as a clone; CONVERT TO DELTA, DROP TABLE, COMMENT ON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refdelta.api.convert import convert_to_deltalake
from refdelta.api.table import DeltaTable, create_at
from refdelta.arrow.schema import to_arrow
from refdelta.errors import InvalidArgumentError, TableNotFoundError
from refdelta.operations.write.column_declarations import Identity
from refdelta.operations.write.source import Source, TablesRead
from refdelta.schema import Schema
from refdelta.sql_statements.query import at_a_query, read_query, read_version
from refdelta.table.char_varchar import NOTE
from refdelta.table.types import STRING, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.sql_statements.query import Query
    from refdelta.sql_statements.session import Name, Session
    from refdelta.sql_statements.words import Words

    Run = Callable[[Session], Any]


AT_THE_END = "ADD COLUMNS adds at the end; ALTER COLUMN ... FIRST or AFTER moves a column"


@dataclass
class Columns:
    """Columns as they are declared.

    Attributes:
        fields: the columns.
        generated: the expressions of generated columns, by name.
        defaults: those of defaults.
        identity: the identity columns, by name.
    """

    fields: list[StructField] = field(default_factory=list)
    generated: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    identity: dict[str, Identity] = field(default_factory=dict)

    def read(self, words: Words) -> None:
        """One column: its name, its type and its declarations."""
        name = words.name("a column")
        if words.at("."):
            raise words.refused("a field of a struct is declared with its struct; add_columns of DeltaTable adds one")
        metadata: dict[str, Any] = {}
        if words.at("CHAR", "(") or words.at("VARCHAR", "("):
            kind = words.name().lower()
            words.need("(")
            metadata[NOTE] = f"{kind}({words.whole('a length')})"
            words.need(")")
            data_type: Any = STRING
        else:
            data_type = words.data_type()
        nullable = True
        while True:
            if words.take("NOT", "NULL"):
                nullable = False
            elif words.take("COMMENT"):
                metadata["comment"] = words.string()
            elif words.take("DEFAULT"):
                self.defaults[name] = words.expression("NOT", "COMMENT", "GENERATED", "FIRST", "AFTER", commas=True)
            elif words.take("GENERATED"):
                self._generated(words, name)
            else:
                break
        self.fields.append(StructField(name, data_type, nullable, metadata))

    def _generated(self, words: Words, name: str) -> None:
        always = not words.take("BY", "DEFAULT")
        if always:
            words.need("ALWAYS")
        words.need("AS")
        if not words.take("IDENTITY"):
            if not always:
                raise words.expected("IDENTITY")
            (self.generated[name],) = words.in_brackets()
            return
        start, step = 1, 1
        if words.take("("):
            while not words.take(")"):
                if words.one_of("START", "INCREMENT") == "START":
                    words.take("WITH")
                    start = words.whole()
                else:
                    words.take("BY")
                    step = words.whole()
                words.take(",")
        self.identity[name] = Identity(start, step, always=always)

    def declared(self) -> dict[str, Any]:
        """The declarations as the arguments of ``create``."""
        return {"generated": self.generated, "defaults": self.defaults, "identity": self.identity}

    def schema(self) -> Schema:
        """The schema of the columns."""
        return Schema(StructType(tuple(self.fields)))


def columns_in_brackets(words: Words) -> Columns:
    """``(name type ..., ...)``."""
    columns = Columns()
    words.need("(")
    columns.read(words)
    while words.take(","):
        if words.at("CONSTRAINT") or words.at("PRIMARY") or words.at("FOREIGN"):
            raise words.refused("constraints are added by ALTER TABLE ... ADD CONSTRAINT, and keys are not supported")
        columns.read(words)
    if words.at("FIRST") or words.at("AFTER"):
        raise words.refused(AT_THE_END)
    words.need(")")
    return columns


@dataclass(frozen=True)
class _Create:
    """A CREATE TABLE.

    Attributes:
        name: the table.
        mode: ``error``, ``ignore`` or ``overwrite``, as ``DeltaTable.create`` takes it.
        columns: the columns; None where a query has them.
        query: the rows; None for none.
        location: the folder, where the statement names one.
        described: further arguments of ``create``.
    """

    name: Name
    mode: Any
    columns: Columns | None
    query: Query | None
    location: str | None
    described: dict[str, Any]

    def run(self, session: Session) -> Any:
        place = self.location if self.location is not None else session.place(self.name)
        in_catalog = place is None or (self.location is not None and session.catalog is not None)
        if in_catalog and self.mode == "ignore" and self._is_known(session):
            return session.table(self.name)  # the query is not run
        rows = None if self.query is None else _rows_of(self.query, session)
        columns = self.columns or Columns()
        given = {**self.described, "commit_properties": session.options.get("commit_properties")}
        schema = columns.schema() if rows is None else rows.schema
        if rows is None:
            given |= columns.declared()
        if in_catalog:
            assert session.catalog is not None  # noqa: S101 - a name that stands for no place is one of a catalog
            name = ".".join(self.name)
            return session.catalog.create_table(name, schema, self.location, mode=self.mode, rows=rows, **given)
        assert place is not None  # noqa: S101 - not in the catalog
        return create_at(place, schema, self.mode, dict(session.storage_options or {}), rows=rows, **given)

    def _is_known(self, session: Session) -> bool:
        try:
            session.table(self.name)
        except TableNotFoundError:
            return False
        return True


def _rows_of(query: Query, session: Session) -> Source:
    """The rows of a query, with the table that they come from, of the version that is read."""
    found = query.found(session)
    tables = TablesRead()
    if isinstance(found, DeltaTable) and not found.pinned:
        tables.add([found._handle.snapshot])  # noqa: SLF001 - of the same distribution
    return Source(query.of(found), tables)


def create(words: Words) -> Run:
    """CREATE [OR REPLACE] TABLE [IF NOT EXISTS], REPLACE TABLE."""
    mode = "overwrite" if words.take("OR", "REPLACE") else "error"
    return _create(words, mode)


def replace(words: Words) -> Run:
    """REPLACE TABLE."""
    return _create(words, "overwrite")


def _create(words: Words, mode: str) -> Run:
    words.take("EXTERNAL")
    if not words.at("TABLE"):
        raise words.refused("only tables are created here")
    words.need("TABLE")
    if words.take("IF", "NOT", "EXISTS"):
        mode = "ignore"
    name = words.table()
    if words.take("SHALLOW", "CLONE"):
        return _clone(words, name, mode)
    if words.take("DEEP") or words.at("CLONE"):
        raise words.refused("only SHALLOW CLONE is supported; CREATE TABLE ... AS SELECT copies the rows")
    columns = columns_in_brackets(words) if words.at("(") else None
    location, described = _described(words)
    query = None
    words.take("AS")
    if at_a_query(words):
        if columns is not None:
            raise words.refused("a table has columns or a query, not both")
        bracket = words.take("(")
        query = read_query(words)
        if bracket:
            words.need(")")
    elif columns is None and location is not None:
        folder = location
        return lambda session: _registered(session, name, folder)
    elif columns is None:
        raise words.expected("columns in brackets, or AS SELECT")
    return _Create(name, mode, columns, query, location, described).run


def _registered(session: Session, name: Name, location: str) -> Any:
    """A table that is there already, under a name of the catalog."""
    if session.catalog is None:
        raise InvalidArgumentError("CREATE TABLE without columns registers a table in a catalog: give one to sql()")
    return session.catalog.register_table(".".join(name), location)


def _described(words: Words) -> tuple[str | None, dict[str, Any]]:
    """The words after the columns, in any order: the location, and the arguments of ``create``."""
    location: str | None = None
    described: dict[str, Any] = {}
    while True:
        if words.take("USING"):
            words.need("DELTA")
        elif words.take("PARTITIONED", "BY"):
            described["partition_by"] = words.columns()
        elif words.take("CLUSTER", "BY"):
            described["cluster_by"] = words.columns()
        elif words.take("TBLPROPERTIES"):
            described["configuration"] = words.properties()
        elif words.take("COMMENT"):
            described["description"] = words.string()
        elif words.take("LOCATION"):
            location = words.string()
        else:
            return location, described


def _clone(words: Words, name: Name, mode: str) -> Run:
    source = words.table()
    version = read_version(words)
    location = words.string() if words.take("LOCATION") else None

    def run(session: Session) -> Any:
        place = location if location is not None else session.place(name)
        if place is None:
            raise words.refused("a clone is made at a path, delta.`path` or LOCATION")
        options = dict(session.storage_options or {})
        if mode == "ignore" and DeltaTable.is_deltatable(place, options):
            return DeltaTable(place, storage_options=options)
        return session.table(source).shallow_clone(place, version, storage_options=options)

    return run


def convert(words: Words) -> Run:
    """CONVERT TO DELTA parquet.`path`."""
    words.need("TO", "DELTA")
    words.need("PARQUET", ".")
    path = words.name("a path in backticks")
    collects = not words.take("NO", "STATISTICS")
    partitioned = columns_in_brackets(words).schema() if words.take("PARTITIONED", "BY") else None
    given: dict[str, Any] = {}
    if partitioned is not None:
        given = {"partition_by": to_arrow(partitioned.struct), "partition_strategy": "hive"}
    return lambda session: convert_to_deltalake(
        path,
        collect_stats=collects,
        storage_options=dict(session.storage_options or {}),
        commit_properties=session.options.get("commit_properties"),
        **given,
    )


def drop(words: Words) -> Run:
    """DROP TABLE of a catalog."""
    words.need("TABLE")
    exists = words.take("IF", "EXISTS")
    name = words.table()
    purge = words.take("PURGE")

    def run(session: Session) -> None:
        if session.catalog is None or session.place(name) is not None:
            raise InvalidArgumentError("DROP TABLE is for tables of a catalog; delete the folder of another one")
        try:
            session.catalog.drop_table(".".join(name), purge=purge)
        except TableNotFoundError:
            if not exists:
                raise

    return run


def comment(words: Words) -> Run:
    """COMMENT ON TABLE or COLUMN."""
    words.need("ON")
    of_column = words.one_of("TABLE", "COLUMN") == "COLUMN"
    name = words.table()
    words.need("IS")
    text = None if words.take("NULL") else words.string()
    if of_column:
        if len(name) < 2:
            raise words.refused("a column is named with its table: table.column")
        *table, column = name
        entry = {"comment": text}
        return lambda session: session.table(tuple(table)).alter.set_column_metadata(column, entry, **session.options)
    return lambda session: session.table(name).alter.set_table_description(text, **session.options)
