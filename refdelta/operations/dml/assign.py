"""SET: new values for columns, and for fields of structs."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta import arguments
from refdelta.arrow.arrays import few_chunks, one_batch, scalar_of, take
from refdelta.arrow.partition import from_internal
from refdelta.arrow.schema import arrow_type, to_arrow
from refdelta.engine.parquet.fit import Fitter, RowMisfitError, plan_fit
from refdelta.errors import ExpressionError, InvalidArgumentError, SchemaMismatchError, unknown_name
from refdelta.expressions.assignment import store_assign
from refdelta.expressions.binding import resolve_column
from refdelta.expressions.evaluate import evaluate_value
from refdelta.expressions.exact_cast import fitted_value
from refdelta.expressions.expression import Column, columns
from refdelta.expressions.interval_types import INTERVALS
from refdelta.expressions.sql import parse_expression
from refdelta.operations.shared.identity import START
from refdelta.operations.shared.row_rules import DEFAULT
from refdelta.table.column_names import named_path
from refdelta.table.evolution import as_nullable, without_type
from refdelta.table.features import GENERATION
from refdelta.table.row_tracking import ROW_COMMIT_VERSION
from refdelta.table.types import (
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    is_nested,
)

if TYPE_CHECKING:
    from refdelta.expressions.expression import Value
    from refdelta.expressions.scope import Scope
    from refdelta.operations.shared.row_rules import RowRules

Evaluate = Callable[[pa.RecordBatch], pa.Array]


@dataclass(frozen=True)
class Assignment:
    """One ``column = value``.

    Attributes:
        path: the path of the column or struct field, as the schema spells it.
        value: computes the values for a batch of the statement's input, in the Arrow type of the column.
        columns: the columns that the value depends on.
    """

    path: tuple[str, ...]
    value: Evaluate
    columns: frozenset[tuple[str, ...]] = frozenset()


def expressions(
    given: Mapping[str, str],
    schema: StructType,
    scope: StructType | Scope,
    *,
    alias: str = "",
    source: str = "",
    now: int,
    evolving: bool = False,
) -> list[Assignment]:
    """Assignments of SQL expressions.

    Structs, arrays and maps are cast by value, as written data are, and so are the columns of a source. Computed values
    of other types are cast as Spark's store assignment does it.

    Args:
        given: by column, with or without the alias, SQL in Spark's dialect; or DEFAULT, for the column's default.
        schema: the schema of the table that is changed.
        scope: the columns that the expressions may name.
        alias: the alias of the table.
        source: the alias of a relation whose columns are data to write.
        now: the time of the statement, in microseconds since 1970 (UTC).
        evolving: whether the statement evolves the schema, so that structs may lack fields of their columns, which are
            null then.

    Raises:
        ColumnNotFoundError: a column does not exist.
        PredicateError: an expression cannot be parsed or bound.
        SchemaMismatchError: an expression cannot be assigned to its column, by its type.
        InvalidArgumentError: a column is assigned twice.
    """
    found = []
    for name, text in (arguments.mapping("updates", given) or {}).items():
        if not isinstance(text, str):
            raise InvalidArgumentError(
                f"the new value of {name!r} must be a string of SQL, not {text!r}; new_values takes Python values"
            )
        column = resolve_column(path_in(name, schema, alias), schema)
        sql = default_of(column, schema) if text.strip().lower() == "default" else text
        if sql is None:
            continue
        value, kind = parse_expression(sql, scope, now=now), as_nullable(column.type)
        if _is_fitted(value, kind, source, evolving):
            evaluate = fitting(
                functools.partial(_evaluated, value), arrow_type(value.type), StructField(".".join(column.path), kind)
            )
        else:
            try:
                value = store_assign(value, kind, name)
            except SchemaMismatchError as error:
                if not source or evolving or not is_nested(value.type) or not is_nested(kind):
                    raise
                raise SchemaMismatchError(f"{error}; with merge_schema=True structs may have other fields") from None
            evaluate = functools.partial(_evaluated, value)
        found.append(Assignment(column.path, evaluate, columns(value)))
    return _distinct(found)


def _is_fitted(value: Value, kind: DataType, source: str, evolving: bool) -> bool:
    """True for values that are cast by value, as written data are."""
    if value.type in (kind, VOID):
        return False
    if is_nested(value.type) or is_nested(kind):
        return _same_names(value.type, kind, evolving)
    return isinstance(value, Column) and bool(source) and value.path[0] == source


def _same_names(one: DataType, other: DataType, fewer: bool) -> bool:
    """True if two types have fields of the same names, in any case and order, at every depth, and the first one has no
    intervals. With ``fewer`` the first one may lack some of the fields.
    """
    match one, other:
        case StructType(), StructType():
            twins = [(field, other.find(field.name)) for field in one]
            return (fewer or len(one) == len(other)) and all(
                twin is not None and _same_names(field.type, twin.type, fewer) for field, twin in twins
            )
        case ArrayType(), ArrayType():
            return _same_names(one.element, other.element, fewer)
        case MapType(), MapType():
            return _same_names(one.key, other.key, fewer) and _same_names(one.value, other.value, fewer)
    return one == VOID or (is_nested(one) == is_nested(other) and one not in INTERVALS)


def fitting(values: Evaluate, kind: pa.DataType, column: StructField, growth: str = "") -> Evaluate:
    """Computes values and casts them by value to the type of a column, as written data are.

    Args:
        values: computes them.
        kind: their type.
        column: the column, whose name stands in errors.
        growth: as for :func:`~refdelta.engine.parquet.fit.plan_fit`.

    Raises:
        SchemaMismatchError: no value of the type fits. For a single value that does not fit, the result raises
            :class:`~refdelta.engine.parquet.fit.RowMisfitError`.
    """
    given = pa.schema([pa.field(column.name, kind)])
    nullable = StructType((replace(column, type=as_nullable(column.type), nullable=True),))
    fitter = plan_fit(given, nullable, growth=growth)
    return functools.partial(_fitted, fitter, given, values)


def _fitted(fitter: Fitter, given: pa.Schema, values: Evaluate, batch: pa.RecordBatch) -> pa.Array:
    rows = pa.RecordBatch.from_arrays([_as(values(batch), given.field(0).type)], schema=given)
    return fitter.apply(rows, None).column(0)


def default_of(column: Column, schema: StructType) -> str | None:
    """The SQL of DEFAULT; None for a generated or an identity column, to which the table gives values unless it is set.

    Args:
        column: the column, or a field of one, which has no default.
        schema: the schema of the table.
    """
    metadata = schema.field(column.path[0]).metadata if len(column.path) == 1 else {}
    return None if GENERATION in metadata or START in metadata else str(metadata.get(DEFAULT, "NULL"))


def constants(given: Mapping[str, Any], schema: StructType, timezone: str | None = None) -> list[Assignment]:
    """Assignments of Python values. Raises as :func:`expressions`.

    Args:
        given: the values, by the names of columns.
        schema: the table's.
        timezone: the zone of times without one where the column is a timestamp; None for UTC.
    """
    zone = None if timezone is None or timezone == "UTC" else ZoneInfo(timezone)
    found = []
    for name, value in given.items():
        column = resolve_column(named_path(name, schema), schema)
        try:
            if isinstance(value, str) and column.type in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
                # With the names of zones, which Arrow does not know.
                scalar = from_internal([fitted_value(value, STRING, column.type, zone=timezone)], column.type)[0]
            else:
                own = value if zone is None else _in_zone(value, column.type, zone)
                scalar = _scalar(own, arrow_type(as_nullable(column.type)))
        except (pa.ArrowException, ExpressionError, TypeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError(
                f"{value!r} cannot be a value of column {name!r}, a {column.type}: {error}{without_type(column.type)}"
            ) from None
        found.append(Assignment(column.path, functools.partial(_repeated, scalar)))
    return _distinct(found)


def _in_zone(value: Any, kind: DataType, zone: ZoneInfo) -> Any:
    """The value; its times without a zone have this one where they are points in time in the table."""
    if kind == TIMESTAMP:
        if isinstance(value, np.datetime64):
            value = value.astype("datetime64[us]").item()
        if isinstance(value, dt.datetime) and value.tzinfo is None:
            return value.replace(tzinfo=zone)
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return dt.datetime(value.year, value.month, value.day, tzinfo=zone)
    elif isinstance(kind, StructType) and isinstance(value, Mapping):
        types = {field.name: field.type for field in kind}
        return {name: _in_zone(part, types[name], zone) if name in types else part for name, part in value.items()}
    elif isinstance(kind, ArrayType) and isinstance(value, (list, tuple)):
        return [_in_zone(part, kind.element, zone) for part in value]
    elif isinstance(kind, MapType) and value is not None:
        entries = value.items() if isinstance(value, Mapping) else value
        return [(_in_zone(key, kind.key, zone), _in_zone(part, kind.value, zone)) for key, part in entries]
    return value


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_nested(kind):
        _check_parts(value, kind)
        return pa.array([value], kind)[0]
    # In two steps: with a type, pa.array truncates numbers silently, but a cast refuses to.
    return pa.array([value]).cast(kind)[0]


def _check_parts(value: Any, kind: pa.DataType) -> None:
    """Refuse what Arrow would leave out of a nested value, or cut. Raises ``ValueError``."""
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        if unknown := [name for name in value if kind.get_field_index(name) < 0]:
            raise ValueError(unknown_name("field", unknown[0], kind.names))
        for name, part in value.items():
            _check_parts(part, kind.field(name).type)
    elif pa.types.is_map(kind) and value is not None:
        for key, part in value.items() if isinstance(value, Mapping) else value:
            _check_parts(key, kind.key_type)
            _check_parts(part, kind.item_type)
    elif pa.types.is_list(kind) and isinstance(value, Iterable):
        for part in value:
            _check_parts(part, kind.value_type)
    elif pa.types.is_integer(kind) and isinstance(value, (float, Decimal)) and value % 1:
        raise ValueError(f"{value} is not a whole number")


def _evaluated(value: Value, batch: pa.RecordBatch) -> pa.Array:
    return evaluate_value(value, batch)


def _repeated(scalar: pa.Scalar, batch: pa.RecordBatch) -> pa.Array:
    return pa.repeat(scalar, batch.num_rows) if scalar.is_valid else pa.nulls(batch.num_rows, scalar.type)


def path_in(name: str, schema: StructType, alias: str) -> tuple[str, ...]:
    """The path of a name, without the table's alias if it begins with it. Raises as :func:`named_path`."""
    path = named_path(name, schema)
    if len(path) < 2 or not alias or path[0].lower() != alias.lower():
        return path
    head, _, rest = name.partition(".")
    if head.strip().lower() == alias.lower() and rest in schema:
        return named_path(rest, schema)
    return path[1:] if path[1] in schema or path[0] not in schema else path


def _distinct(assignments: list[Assignment]) -> list[Assignment]:
    # The assigned paths, and the first one that begins with each path.
    seen: set[tuple[str, ...]] = set()
    within: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path in (one.path for one in assignments):
        parts = [path[:length] for length in range(1, len(path) + 1)]
        other = next((part for part in parts if part in seen), within.get(path))
        if other is not None:
            raise InvalidArgumentError(f"column {'.'.join(path)} is assigned twice: also by {'.'.join(other)}")
        seen.add(path)
        for part in parts:
            within.setdefault(part, path)
    return assignments


class Setter:
    """Makes rows with new values, and checks them by the table's schema and rules."""

    def __init__(
        self, schema: StructType, assignments: Sequence[Assignment], rules: RowRules, *, inserting: bool = False
    ):
        assigned = {assignment.path[0] for assignment in assignments}
        rules.check_given(assigned, update=not inserting)
        self._made = rules.left_out(assigned) if inserting else rules.following(assigned)
        # Nulls are checked when the rows are complete.
        self._schema = to_arrow(StructType(tuple(replace(f, type=as_nullable(f.type), nullable=True) for f in schema)))
        self._fitter = plan_fit(self._schema, schema, self._made)
        self._by_column: dict[str, list[Assignment]] = {}
        for assignment in assignments:
            self._by_column.setdefault(assignment.path[0], []).append(assignment)
        self._rules = rules

    def __call__(
        self, rows: pa.RecordBatch, inputs: pa.RecordBatch, first: int = 0, numbers: pa.Array | None = None
    ) -> pa.RecordBatch:
        """The rows with their new values.

        Args:
            rows: rows of the table.
            inputs: as many rows, with the columns that the expressions name.
            first: the number of rows that were numbered before these, if they are new.
            numbers: the numbers of the rows in the data, for errors; None if they have none.

        Raises:
            ConstraintViolationError: a null in a column without nulls, or a row breaks a rule.
            ExpressionError: a value cannot be computed, or does not fit its column.
            SchemaMismatchError: a value that is written as data does not fit its column.
        """
        try:
            columns = self._columns(rows, inputs)
        except RowMisfitError as error:
            raise error.of_row(None if numbers is None else numbers[error.place].as_py()) from None
        made = self._fitter.apply(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        whole = self._rules.complete(made, self._made, first)
        self._rules.hold(whole, self._made)
        return whole

    def _columns(self, rows: pa.RecordBatch, inputs: pa.RecordBatch) -> list[pa.Array]:
        columns = []
        for field, column in zip(self._schema, rows.columns, strict=True):
            if field.name == ROW_COMMIT_VERSION:
                # The version of the commit, which is that of the new file.
                columns.append(pa.nulls(rows.num_rows, field.type))
                continue
            values = [(a.path[1:], a.value(inputs)) for a in self._by_column.get(field.name, ())]
            columns.append(_with_fields(_as(column, field.type), field.type, values))
        return columns


def _with_fields(array: pa.Array, kind: pa.DataType, values: list[tuple[tuple[str, ...], pa.Array]]) -> pa.Array:
    """The array with new values for some fields; a null struct becomes one whose other fields are null."""
    if not values:
        return array
    for path, value in values:
        if not path:
            return _as(value, kind)
    of_fields: dict[str, list[tuple[tuple[str, ...], pa.Array]]] = {}
    for path, value in values:
        of_fields.setdefault(path[0], []).append((path[1:], value))
    children = [
        _with_fields(child, field.type, of_fields.get(field.name, []))
        for field, child in zip(kind, array.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def merged_rows(rows: pa.RecordBatch, mask: pa.BooleanArray, changed: pa.RecordBatch) -> pa.RecordBatch:
    """The rows; those for which ``mask`` is true are replaced by the rows of ``changed``, in order."""
    if not changed.num_rows:
        return rows
    if changed.num_rows == rows.num_rows:
        return changed
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), scalar_of(1, pa.int64()))
    own = pa.arange(0, rows.num_rows)
    indices = pc.if_else(mask, pc.add(places, scalar_of(rows.num_rows, pa.int64())), own)
    return one_batch(take(few_chunks(pa.Table.from_batches([rows, changed])), indices))
