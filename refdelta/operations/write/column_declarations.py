"""Declarations of generated columns, column defaults and identity columns.

They are stored in the metadata of the column. For a new table they are checked by the rules of delta-spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta import arguments
from refdelta.arrow.field_metadata import DECLARATIONS, check_reserved
from refdelta.engine.parquet.fit import plan_fit
from refdelta.errors import (
    ColumnNotFoundError,
    ConstraintViolationError,
    ExpressionError,
    InvalidArgumentError,
    InvalidLogError,
    SchemaMismatchError,
)
from refdelta.operations.shared.identity import EXPLICIT, MARK, START, STEP
from refdelta.operations.shared.row_rules import DEFAULT, INVARIANTS, invariant_sql
from refdelta.table.column_mapping import each_field, without_mapping
from refdelta.table.evolution import TYPE_CHANGES, as_nullable
from refdelta.table.features import GENERATION
from refdelta.table.types import LONG, ArrayType, DataType, MapType, StructType, every_field

if TYPE_CHECKING:
    from refdelta.table.types import StructField

MARKS = (GENERATION, DEFAULT, START, STEP, EXPLICIT, MARK)
_LATER = 10**15  # in microseconds: another day, month and year


@dataclass(frozen=True)
class Identity:
    """The declaration of an identity column: new rows get numbers in it that no row had before.

    Attributes:
        start: the first number.
        step: the difference of successive numbers; not 0. Numbers may be skipped.
        always: whether the table always gives the numbers. If False, writers may give numbers themselves, and must make
            sure that they are unique.

    Example::

        schema = pa.schema({"id": pa.int64(), "town": pa.string()})
        DeltaTable.create(uri, schema, identity={"id": Identity(start=1000, step=10)})
    """

    start: int = 1
    step: int = 1
    always: bool = True

    def __post_init__(self) -> None:
        start, step = arguments.whole("start", self.start), arguments.whole("step", self.step)
        if start is None or not step or not all(-(2**63) <= number < 2**63 for number in (start, step)):
            raise InvalidArgumentError(
                f"start and step of an identity column must be whole numbers of 64 bits, and step not 0; they are "
                f"{self.start!r} and {self.step!r}"
            )


def declared(
    schema: StructType,
    *,
    generated: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    identity: Mapping[str, Identity] | None = None,
) -> StructType:
    """A schema with declarations in the metadata of its columns.

    Args:
        schema: the columns.
        generated: see :meth:`refdelta.DeltaTable.create`, like the next two.
        defaults: see ``generated``.
        identity: see ``generated``.

    Raises:
        ColumnNotFoundError: the schema lacks a column.
        InvalidArgumentError: a value is not a string of SQL, or not an :class:`Identity`.
    """
    for what, key, given in (("generated", GENERATION, generated), ("defaults", DEFAULT, defaults)):
        for name, sql in (arguments.mapping(what, given) or {}).items():
            if not isinstance(sql, str):
                raise InvalidArgumentError(f"{what} must have a string of SQL for each column; {name!r} has {sql!r}")
            schema = with_mark(schema, name, key, sql)
    for name, numbering in (arguments.mapping("identity", identity) or {}).items():
        if not isinstance(numbering, Identity):
            raise InvalidArgumentError(
                f"identity must have a refdelta.Identity for each column; {name!r} has {numbering!r}"
            )
        marks = {START: numbering.start, STEP: numbering.step, EXPLICIT: not numbering.always}
        for key, value in marks.items():
            schema = with_mark(schema, name, key, value)
    return schema


def with_mark(schema: StructType, name: str, key: str, value: Any) -> StructType:
    """A schema with an entry in the metadata of a column; None removes the entry. Raises ``ColumnNotFoundError``."""
    column = schema.field(name)
    metadata = {**column.metadata, key: value}
    if value is None:
        del metadata[key]
    return StructType(tuple(replace(field, metadata=metadata) if field is column else field for field in schema))


def of_another_table(schema: StructType) -> StructType:
    """The columns of another table for a new one: without the physical names, the ids and the history of types, which
    describe that table's files.
    """
    schema = without_mapping(schema)
    if all(TYPE_CHANGES not in item.metadata for item in every_field(schema)):
        return schema
    return each_field(
        schema, lambda item: replace(item, metadata={k: v for k, v in item.metadata.items() if k != TYPE_CHANGES})
    )


def check_added(schema: StructType, added: StructType, path: str = "") -> None:
    """Check the metadata of columns that a statement adds to a table with rows.

    Args:
        schema: the columns of the table, or the fields of a struct in it.
        added: the columns or fields of the statement. Those that ``schema`` has may repeat its declarations only; their
            other metadata is not looked at.
        path: the path of the struct, with a dot at its end.

    Raises:
        InvalidArgumentError: a column declares values or rules that it cannot have; the key is named.
    """
    for item in added:
        own = schema.find(item.name)
        if own is None:
            for field in every_field(StructType((item,))):
                check_reserved(field, path + item.name)
                if marks := sorted(DECLARATIONS & field.metadata.keys()):
                    raise InvalidArgumentError(
                        f"cannot add column {path + field.name!r} with {', '.join(marks)}: existing rows have no such "
                        "value; add it without these"
                    )
            continue
        for key in sorted(DECLARATIONS & item.metadata.keys() - {MARK}):
            if item.metadata[key] != own.metadata.get(key):
                raise InvalidArgumentError(
                    f"column {path + item.name!r} comes with {key}={item.metadata[key]!r}, and has "
                    f"{own.metadata.get(key, 'no such declaration')!r} in the table; a write cannot change it: remove "
                    "it from the field's metadata"
                )
        _check_added_within(own.type, item.type, path + item.name)


def _check_added_within(own: DataType, added: DataType, path: str) -> None:
    match own, added:
        case StructType(), StructType():
            check_added(own, added, f"{path}.")
        case ArrayType(), ArrayType():
            _check_added_within(own.element, added.element, f"{path}.element")
        case MapType(), MapType():
            _check_added_within(own.key, added.key, f"{path}.key")
            _check_added_within(own.value, added.value, f"{path}.value")


def check_declared(schema: StructType, partition_columns: Collection[str]) -> None:
    """Check the declarations of a new table's columns.

    Raises:
        InvalidArgumentError: a declaration is on a part of a column, is not valid, or there are two for one column; an
            identity column is not of type long, or is a partition column; this engine cannot parse or bind an
            expression; a key of Delta is not known.
    """
    for field in every_field(schema):
        check_reserved(field, field.name)
        if INVARIANTS in field.metadata:
            try:
                invariant_sql(field, field.name)
            except InvalidLogError as error:
                raise InvalidArgumentError(str(error)) from None
    others = StructType(tuple(field for field in schema if GENERATION not in field.metadata))
    for field in schema:
        own = [key for key in (GENERATION, DEFAULT, START) if key in field.metadata]
        if len(own) > 1:
            raise InvalidArgumentError(
                f"column {field.name!r} has a value from {' and from '.join(own)}; declare only one of them"
            )
        numbering = sorted({START, STEP, EXPLICIT, MARK} & field.metadata.keys())
        if numbering and not {START, STEP, EXPLICIT} <= field.metadata.keys():
            raise InvalidArgumentError(
                f"column {field.name!r} comes with {', '.join(numbering)}; an identity column needs {START}, {STEP} "
                f"and {EXPLICIT}"
            )
        if START in field.metadata and field.type != LONG:
            raise InvalidArgumentError(f"column {field.name!r} is {field.type}; an identity column must be long")
        if START in field.metadata and field.name in partition_columns:
            raise InvalidArgumentError(f"column {field.name!r} is an identity column, and cannot partition the table")
        if GENERATION in field.metadata:
            _check_readable(field, others)
        if _declares_within(field.type):
            raise InvalidArgumentError(
                f"a part of column {field.name!r} is declared as generated, identity or with a default; only whole "
                "columns can be"
            )


def check_expressions(schema: StructType) -> None:
    """Check the expressions of a new table's columns by the rules of delta-spark.

    They can be parsed and bound: :class:`~refdelta.operations.shared.row_rules.RowRules` has done it.

    Raises:
        InvalidArgumentError: an expression has another type than its column, or depends on the time; a column cannot
            hold its default.
    """
    for field in schema:
        if GENERATION in field.metadata:
            _check_generated(field, StructType(tuple(f for f in schema if GENERATION not in f.metadata)))
        if DEFAULT in field.metadata:
            check_default(field)


def check_default(field: StructField) -> None:
    """Check that a column's default is a constant that the column can hold.

    Raises:
        InvalidArgumentError: it is not.
    """
    from refdelta.expressions.assignment import store_assign
    from refdelta.expressions.evaluate import evaluate_value
    from refdelta.expressions.sql import parse_expression

    sql = str(field.metadata[DEFAULT])
    try:
        value = store_assign(parse_expression(sql, StructType()), as_nullable(field.type), field.name)
        found = evaluate_value(value, pa.record_batch({"": [0]}))
        if not found.null_count:
            rows = pa.record_batch({field.name: found})
            plan_fit(rows.schema, StructType((field,))).apply(rows)
    except (InvalidArgumentError, SchemaMismatchError, ExpressionError, ConstraintViolationError) as error:
        raise InvalidArgumentError(
            f"{sql} cannot be the default of column {field.name!r}, a {field.type}: {error}"
        ) from None


def _check_readable(field: StructField, others: StructType) -> None:
    """Check that an expression can be parsed and bound: the error names the column, before the table exists."""
    from refdelta.expressions.assignment import store_assign
    from refdelta.expressions.sql import parse_expression

    sql = str(field.metadata[GENERATION])
    try:
        store_assign(parse_expression(sql, others, now=0), as_nullable(field.type), field.name)
    except ColumnNotFoundError:
        raise InvalidArgumentError(
            f"column {field.name!r} cannot be generated by {sql}: the expression must use columns that are not "
            f"generated themselves: {', '.join(others.names)}"
        ) from None
    except (InvalidArgumentError, SchemaMismatchError) as error:
        raise InvalidArgumentError(f"column {field.name!r} cannot be generated: {error}") from error


def _check_generated(field: StructField, others: StructType) -> None:
    from refdelta.expressions.sql import parse_expression

    sql = field.metadata[GENERATION]
    value, later = (parse_expression(sql, others, now=now) for now in (0, _LATER))
    if value != later:
        raise InvalidArgumentError(
            f"the expression of column {field.name!r} ({sql}) depends on the time; a generated column must not"
        )
    if value.type != as_nullable(field.type):
        raise InvalidArgumentError(
            f"column {field.name!r} is {field.type}, and its expression ({sql}) is {value.type}; cast it"
        )


def _declares_within(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(set(MARKS) & field.metadata.keys() or _declares_within(field.type) for field in kind)
        case ArrayType():
            return _declares_within(kind.element)
        case MapType():
            return _declares_within(kind.key) or _declares_within(kind.value)
    return False
