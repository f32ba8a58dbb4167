"""SELECT of one table or of given rows, TABLE and VALUES: rows, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.api.handle import handle_of
from refdelta.api.table import DeltaTable
from refdelta.arrow.schema import to_arrow
from refdelta.engine.parquet.fit import plan_fit
from refdelta.engine.scan.origin import mark, marks_of, noting
from refdelta.errors import InvalidArgumentError, PredicateError
from refdelta.expressions.evaluate import evaluate_value, row_mask
from refdelta.expressions.expression import Column, Value, walk
from refdelta.expressions.interval_types import INTERVALS
from refdelta.expressions.sql import parse_expression, parse_predicate
from refdelta.operations.write.source import open_source
from refdelta.schema import struct_of
from refdelta.sql_statements.words import without
from refdelta.table.types import StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.parquet.fit import Fitter
    from refdelta.expressions.expression import Predicate
    from refdelta.sql_statements.session import Name, Session
    from refdelta.sql_statements.words import Words

_REFUSED = (
    *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "LATERAL", "GROUP", "HAVING", "WINDOW", "UNION", "INTERSECT"),
    *("EXCEPT", "MINUS", "CLUSTER", "DISTRIBUTE", "SORT", "QUALIFY", "TABLESAMPLE", "PIVOT", "UNPIVOT"),
)
_STOPS = ("FROM", "WHERE", "ORDER BY", "LIMIT", "OFFSET", *_REFUSED)
_COUNTS = ("count(*)", "count(1)")
_ROWS = 65_536


@dataclass(frozen=True)
class Item:
    """A column of the result.

    Attributes:
        sql: the expression; ``*`` for all columns.
        name: its name in the result; None for that of its column, or else its words.
    """

    sql: str
    name: str | None = None


@dataclass(frozen=True)
class Order:
    """A part of ORDER BY: an expression, and where small values and nulls stand."""

    sql: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Query:
    """The rows of a SELECT.

    Attributes:
        source: the name of the table or rows; None for VALUES, or for expressions without a table.
        version: the version of the table, or a time; None for the newest.
        items: the columns.
        values: the rows of VALUES: the expressions of each.
        where: the condition; None for all rows.
        order: the order, by its most significant part first.
        limit: the most rows; None for all.
        offset: how many rows are left out first.
    """

    source: Name | None = None
    version: int | str | None = None
    items: tuple[Item, ...] = (Item("*"),)
    values: tuple[tuple[str, ...], ...] = ()
    where: str | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0

    def table(self, session: Session) -> pa.Table:
        """The rows in memory."""
        reader = self.reader(session)
        with noting() as seen:
            return mark(reader.read_all(), [*marks_of(reader), *seen])

    def reader(self, session: Session) -> pa.RecordBatchReader:
        """The rows, batch by batch unless they are ordered.

        Raises:
            TableNotFoundError: the name stands for nothing.
            PredicateError: an expression cannot be parsed or bound.
        """
        return self.of(self.found(session))

    def found(self, session: Session) -> Any:
        """The table or the rows that its source stands for; None without a source."""
        if self.source is None:
            return None
        if self.version is not None:
            return session.table(self.source, self.version)
        return session.rows(self.source, self.where)

    def of(self, found: Any) -> pa.RecordBatchReader:
        """The rows, over the result of :meth:`found`."""
        if self.values:
            return _values(self.values).to_reader()
        if found is None:
            one = pa.table({"": [None]})
            return self._of(_Rows(one.schema, iter(one.to_batches())), StructType())
        if isinstance(found, DeltaTable):
            return mark(self.of_table(found), [handle_of(found).snapshot])
        source = open_source(found)
        source.convert_for(None, None)
        return mark(self.of_rows(source.reader), source.tables.known)

    def of_table(self, table: DeltaTable) -> pa.RecordBatchReader:
        """The rows of a table at the version of its handle."""
        schema = table.schema().struct
        where = None if self.where is None else parse_predicate(self.where, schema)
        if self._counts:
            return self._counted(table.count(where))
        scan = table.scan(columns=self._columns(schema), predicate=where)
        return self._of(_Rows(scan.schema, iter(scan.to_reader())), schema)

    def of_rows(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The rows of others."""
        struct = struct_of(rows.schema)
        where = None if self.where is None else parse_predicate(self.where, struct)
        found = _Rows(to_arrow(struct), self._kept(rows, where, plan_fit(rows.schema.remove_metadata(), struct)))
        return (
            self._counted(sum(batch.num_rows for batch in found.batches)) if self._counts else self._of(found, struct)
        )

    @property
    def _counts(self) -> bool:
        """Whether the result is the number of rows."""
        return len(self.items) == 1 and self.items[0].sql.replace(" ", "").lower() in _COUNTS

    def _counted(self, rows: int) -> pa.RecordBatchReader:
        counted = pa.table({self.items[0].name or "count(1)": pa.array([rows], pa.int64())})
        return counted.slice(self.offset, self.limit).to_reader()

    @staticmethod
    def _kept(rows: pa.RecordBatchReader, where: Predicate | None, fitter: Fitter) -> Iterator[pa.RecordBatch]:
        """The rows for which the condition is true, in the types in which tables are read."""
        first = 0
        for batch in rows:
            fitted = fitter.apply(batch, first)
            first += batch.num_rows
            yield fitted if where is None else fitted.filter(row_mask(where, fitted))

    def _columns(self, schema: StructType) -> list[str]:
        """The columns that the expressions use, in the order of the table."""
        if any(item.sql == "*" for item in self.items):
            return schema.names
        parts = [*(item.sql for item in self.items), *map(self._sorted_by, self.order)]
        used = {
            node.path[0].lower()
            for sql in parts
            for node in walk(parse_expression(sql, schema))
            if isinstance(node, Column)
        }
        return [name for name in schema.names if name.lower() in used]

    def _sorted_by(self, order: Order) -> str:
        """The expression of a part of ORDER BY, which may be the name or the place of a column of the result."""
        if order.sql.isdecimal():
            if not 1 <= int(order.sql) <= len(self.items):
                raise InvalidArgumentError(f"ORDER BY {order.sql}: the result has {len(self.items)} columns")
            return self.items[int(order.sql) - 1].sql
        named = (item.sql for item in self.items if item.name and item.name.lower() == order.sql.lower())
        return next(named, order.sql)

    def _of(self, rows: _Rows, schema: StructType) -> pa.RecordBatchReader:
        result = _Projection.of(self.items, schema)
        if self.order:
            return self._ordered(pa.Table.from_batches(list(rows.batches), rows.schema), schema, result).to_reader()

        def batches() -> Iterator[pa.RecordBatch]:
            left, skipped = self.limit, self.offset
            for batch in rows.batches:
                if left == 0:
                    return
                some = batch.slice(skipped, left)
                skipped -= min(skipped, batch.num_rows)
                left = None if left is None else left - some.num_rows
                if some.num_rows:
                    yield result.apply(some)

        return pa.RecordBatchReader.from_batches(result.schema, batches())

    def _ordered(self, rows: pa.Table, schema: StructType, result: _Projection) -> pa.Table:
        projected = result.applied(rows)
        keys = []
        for one in self.order:
            key = evaluate_value(parse_expression(self._sorted_by(one), schema), rows)
            keys += [(pc.is_null(key), not one.nulls_first), (key, not one.descending)]
        columns = pa.table([key for key, _ in keys], names=[str(place) for place in range(len(keys))])
        order = pc.sort_indices(
            columns,
            sort_keys=[(str(place), "ascending" if up else "descending") for place, (_, up) in enumerate(keys)],
        )
        return projected.take(order.slice(self.offset, self.limit))


@dataclass(frozen=True)
class _Rows:
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class _Projection:
    """The columns of a result over the columns of its rows."""

    names: tuple[str, ...]
    values: tuple[Value, ...]

    @classmethod
    def of(cls, items: Sequence[Item], schema: StructType) -> _Projection:
        found: list[tuple[str, Value]] = []
        for item in items:
            if item.sql == "*":
                found += [(name, Column((name,), schema.field(name).type)) for name in schema.names]
            else:
                value = parse_expression(item.sql, schema)
                if value.type in INTERVALS and not isinstance(value, Column):
                    raise PredicateError(f"{item.sql} is an interval, which no column of a result can be")
                own = value.path[-1] if isinstance(value, Column) else item.sql
                found.append((item.name or own, value))
        return cls(tuple(name for name, _ in found), tuple(value for _, value in found))

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        fields = (StructField(name, value.type) for name, value in zip(self.names, self.values, strict=True))
        return to_arrow(StructType(tuple(fields)))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The result of a batch."""
        return pa.RecordBatch.from_arrays([evaluate_value(value, batch) for value in self.values], schema=self.schema)

    def applied(self, rows: pa.Table) -> pa.Table:
        """The result of a table."""
        return pa.Table.from_batches([self.apply(batch) for batch in rows.to_batches(_ROWS)], self.schema)


def _values(rows: Sequence[Sequence[str]]) -> pa.Table:
    """The rows of VALUES. The expressions of a column have one type, as the elements of an array in SQL have."""
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise PredicateError(f"the rows of VALUES have {' and '.join(map(str, sorted(widths)))} values")
    one, columns = pa.table({"": [None]}), []
    for place in range(widths.pop()):
        listed = parse_expression(f"array({', '.join(row[place] for row in rows)})", StructType())
        columns.append(evaluate_value(listed, one).flatten())
    return pa.table(columns, names=[f"col{number}" for number in range(1, len(columns) + 1)])


# --- reading the words ------------------------------------------------------------------------------------------


def at_a_query(words: Words) -> bool:
    """Whether a query comes next."""
    return words.at("SELECT") or words.at("VALUES") or words.at("TABLE") or words.at("(", "SELECT")


def read_query(words: Words) -> Query:
    """``SELECT ... FROM name ...``, ``TABLE name`` or ``VALUES (...), ...``."""
    if words.take("VALUES"):
        rows = [tuple(words.in_brackets())]
        while words.take(","):
            rows.append(tuple(words.in_brackets()))
        return Query(values=tuple(rows))
    if words.take("TABLE"):
        return Query(words.table())
    words.need("SELECT")
    if words.at("DISTINCT"):
        raise words.refused("SELECT DISTINCT is not supported; pyarrow's group_by makes rows distinct")
    items = [_item(words)]
    while words.take(","):
        items.append(_item(words))
    source, version = None, None
    names: tuple[str, ...] = ()
    if words.take("FROM"):
        source = words.table()
        version = read_version(words)
        names = (source[-1], *_alias(words))
        if words.at(","):
            raise words.refused("a join is not supported: a SELECT reads one table")
    _check_refused(words)
    where = words.expression(*_STOPS) if words.take("WHERE") else None
    _check_refused(words)
    order: list[Order] = []
    if words.take("ORDER", "BY"):
        order.append(_order(words))
        while words.take(","):
            order.append(_order(words))
    limit = None if not words.take("LIMIT") or words.take("ALL") else words.count("LIMIT")
    offset = words.count("OFFSET") if words.take("OFFSET") else 0
    _check_refused(words)
    plain = without(names)
    return Query(
        source,
        version,
        tuple(Item(plain(item.sql), item.name) for item in items),
        where=None if where is None else plain(where),
        order=tuple(Order(plain(one.sql), one.descending, one.nulls_first) for one in order),
        limit=limit,
        offset=offset,
    )


def read_version(words: Words) -> int | str | None:
    """``[FOR] VERSION AS OF n``, ``[FOR] TIMESTAMP AS OF 'time'`` or ``@vN``, if it comes next."""
    if words.take("@"):
        version = words.name("a version").lower()
        if not version.startswith("v") or not version[1:].isdecimal():
            raise words.refused(f"expected a version such as @v12, not @{version}")
        return int(version[1:])
    words.take("FOR")
    if words.take("VERSION", "AS", "OF") or words.take("SYSTEM_VERSION", "AS", "OF"):
        return words.whole("a version")
    if words.take("TIMESTAMP", "AS", "OF") or words.take("SYSTEM_TIME", "AS", "OF"):
        return words.string("a time in quotes")
    return None


def _item(words: Words) -> Item:
    if words.take("*"):
        return Item("*")
    sql = words.expression("AS", *_STOPS, commas=True)
    return Item(sql, words.name() if words.take("AS") else None)


def _alias(words: Words) -> tuple[str, ...]:
    if words.take("AS"):
        return (words.name("an alias"),)
    if any(words.at(*stop.split()) for stop in _STOPS) or not words.at_a_name():
        return ()
    return (words.name("an alias"),)


def _order(words: Words) -> Order:
    sql = words.expression("ASC", "DESC", "NULLS", *_STOPS, commas=True)
    descending = words.take("DESC")
    if not descending:
        words.take("ASC")
    nulls_first = not descending
    if words.take("NULLS"):
        nulls_first = words.one_of("FIRST", "LAST") == "FIRST"
    return Order(sql, descending, nulls_first)


def _check_refused(words: Words) -> None:
    for word in _REFUSED:
        if words.at(word):
            raise words.refused(f"{word} is not supported: a SELECT reads one table, with WHERE, ORDER BY and LIMIT")
