"""Columns with values of the table's own, as a user declares them: generated, with a default, identity.

What is declared stands in the metadata of the column, whoever puts it there; a new table is held to what delta-spark
asks of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta import arguments
from refdelta.core.expressions.assignment import store_assign
from refdelta.core.pruning.generated_partitions import GENERATION
from refdelta.core.table.evolution import as_nullable
from refdelta.core.table.types import LONG, ArrayType, DataType, MapType, StructType
from refdelta.engine.expressions.evaluate import evaluate_value
from refdelta.engine.expressions.sql import parse_expression
from refdelta.engine.parquet.fit import plan_fit
from refdelta.errors import (
    ColumnNotFoundError,
    ConstraintViolationError,
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
)
from refdelta.operations.write.identity import EXPLICIT, MARK, START, STEP
from refdelta.operations.write.row_rules import DEFAULT

if TYPE_CHECKING:
    from refdelta.core.table.types import StructField

MARKS = (GENERATION, DEFAULT, START, STEP, EXPLICIT, MARK)
_LATER = 10**15  # in microseconds: another day, month and year


@dataclass(frozen=True)
class Identity:
    """An identity column, as a user declares it: new rows get numbers in it that no row has had.

    Attributes:
        start: the first number.
        step: from one number to the next; not 0. Numbers may be left out.
        always: whether the numbers are always the table's. Else writers may give them themselves, and have to know that
            no others are the same.
    """

    start: int = 1
    step: int = 1
    always: bool = True

    def __post_init__(self) -> None:
        start, step = arguments.whole("start", self.start), arguments.whole("step", self.step)
        if start is None or not step or not all(-(2**63) <= number < 2**63 for number in (start, step)):
            raise InvalidArgumentError(
                "start and step of an identity column are whole numbers of 64 bits, and step not 0"
            )


def declared(
    schema: StructType,
    *,
    generated: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    identity: Mapping[str, Identity] | None = None,
) -> StructType:
    """A schema with values of the table's own for some of its columns.

    Args:
        schema: the columns.
        generated: of columns, the SQL that their values are made by, in Spark's dialect.
        defaults: of columns, the SQL of the values that they have where a writer gives none.
        identity: which columns are identity columns, and how.

    Raises:
        ColumnNotFoundError: a column that the schema lacks.
        InvalidArgumentError: something else than SQL as text, or than an :class:`Identity`.
    """
    for what, key, given in (("generated", GENERATION, generated), ("defaults", DEFAULT, defaults)):
        for name, sql in (arguments.mapping(what, given) or {}).items():
            if not isinstance(sql, str):
                raise InvalidArgumentError(f"{what} has SQL for each column, as text; for {name!r} it has {sql!r}")
            schema = with_mark(schema, name, key, sql)
    for name, numbering in (arguments.mapping("identity", identity) or {}).items():
        if not isinstance(numbering, Identity):
            raise InvalidArgumentError(
                f"identity has a refdelta.Identity for each column; for {name!r} it has {numbering!r}"
            )
        marks = {START: numbering.start, STEP: numbering.step, EXPLICIT: not numbering.always}
        for key, value in marks.items():
            schema = with_mark(schema, name, key, value)
    return schema


def with_mark(schema: StructType, name: str, key: str, value: Any) -> StructType:
    """A schema with something in the metadata of a column; None takes it away. Raises ``ColumnNotFoundError``."""
    column = schema.field(name)
    metadata = {**column.metadata, key: value}
    if value is None:
        del metadata[key]
    return StructType(tuple(replace(field, metadata=metadata) if field is column else field for field in schema))


def check_declared(schema: StructType, partition_columns: Collection[str]) -> None:
    """Hold what is declared of a new table's columns to what such columns can be.

    Raises:
        InvalidArgumentError: a declaration within another column, two for one column, an identity column of another
            type than long or by which the table is partitioned, an expression that is no SQL of this engine.
    """
    others = StructType(tuple(field for field in schema if GENERATION not in field.metadata))
    for field in schema:
        own = [key for key in (GENERATION, DEFAULT, START) if key in field.metadata]
        if len(own) > 1:
            raise InvalidArgumentError(f"column {field.name!r} has a value from {' and from '.join(own)}; one is to be")
        if START in field.metadata and field.type != LONG:
            raise InvalidArgumentError(f"column {field.name!r} is {field.type}, and identity columns are long")
        if START in field.metadata and field.name in partition_columns:
            raise InvalidArgumentError(f"column {field.name!r} is an identity column, and cannot partition the table")
        if GENERATION in field.metadata:
            _check_readable(field, others)
        if _declares_within(field.type):
            raise InvalidArgumentError(
                f"only whole columns have values of the table's own, not parts of {field.name!r}"
            )


def check_expressions(schema: StructType) -> None:
    """Hold the expressions of a new table's columns to what delta-spark asks of them.

    They can be read and bound: :class:`~refdelta.operations.write.row_rules.RowRules` has done it.

    Raises:
        InvalidArgumentError: one of another type than its column, or one that is not the same at all times; a default
            that the column cannot hold.
    """
    for field in schema:
        if GENERATION in field.metadata:
            _check_generated(field, StructType(tuple(f for f in schema if GENERATION not in f.metadata)))
        if DEFAULT in field.metadata:
            check_default(field)


def check_default(field: StructField) -> None:
    """Hold a column's default to being a constant that the column can hold.

    Raises:
        InvalidArgumentError: it is none.
    """
    sql = str(field.metadata[DEFAULT])
    try:
        value = store_assign(parse_expression(sql, StructType()), as_nullable(field.type), field.name)
        found = evaluate_value(value, pa.record_batch({"": [0]}))
        if not found.null_count:
            rows = pa.record_batch({field.name: found})
            plan_fit(rows.schema, StructType((field,))).apply(rows)
    except (InvalidArgumentError, SchemaMismatchError, ExpressionError, ConstraintViolationError) as error:
        raise InvalidArgumentError(f"{sql} is no default for column {field.name!r}, a {field.type}: {error}") from None


def _check_readable(field: StructField, others: StructType) -> None:
    """Tell who declares an expression that it cannot be one, rather than that nobody can write the table then."""
    sql = str(field.metadata[GENERATION])
    try:
        store_assign(parse_expression(sql, others, now=0), as_nullable(field.type), field.name)
    except ColumnNotFoundError:
        raise InvalidArgumentError(
            f"column {field.name!r} cannot be generated by {sql}: an expression is about other columns of the table, "
            f"and none that is generated itself: {', '.join(others.names)}"
        ) from None
    except (InvalidArgumentError, SchemaMismatchError) as error:
        raise InvalidArgumentError(f"column {field.name!r} cannot be generated: {error}") from error


def _check_generated(field: StructField, others: StructType) -> None:
    sql = field.metadata[GENERATION]
    value, later = (parse_expression(sql, others, now=now) for now in (0, _LATER))
    if value != later:
        raise InvalidArgumentError(f"the expression of column {field.name!r} ({sql}) is another one at another time")
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
