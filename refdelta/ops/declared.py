"""Columns with values of the table's own, as a user declares them: generated, with a default, identity.

What is declared stands in the metadata of the column, whoever puts it there; a new table is held to what delta-spark
asks of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta import arguments
from refdelta.engine.evaluate import evaluate_value
from refdelta.engine.sql import parse_expression
from refdelta.errors import ExpressionError, InvalidArgumentError, SchemaMismatchError
from refdelta.ops.row_rules import DEFAULT, GENERATION
from refdelta.protocol.assignment import store_assign
from refdelta.protocol.evolution import as_nullable
from refdelta.protocol.types import ArrayType, DataType, MapType, StructType

if TYPE_CHECKING:
    from refdelta.protocol.types import StructField

MARKS = (GENERATION, DEFAULT)
_LATER = 10**15  # in microseconds: another day, month and year


def declared(
    schema: StructType, *, generated: Mapping[str, str] | None = None, defaults: Mapping[str, str] | None = None
) -> StructType:
    """A schema with values of the table's own for some of its columns.

    Args:
        schema: the columns.
        generated: of columns, the SQL that their values are made by, in Spark's dialect.
        defaults: of columns, the SQL of the values that they have where a writer gives none.

    Raises:
        ColumnNotFoundError: a column that the schema lacks.
        InvalidArgumentError: something else than SQL as text.
    """
    for what, key, given in (("generated", GENERATION, generated), ("defaults", DEFAULT, defaults)):
        for name, sql in (arguments.mapping(what, given) or {}).items():
            if not isinstance(sql, str):
                raise InvalidArgumentError(f"{what} has SQL for each column, as text; for {name!r} it has {sql!r}")
            schema = with_mark(schema, name, key, sql)
    return schema


def with_mark(schema: StructType, name: str, key: str, value: Any) -> StructType:
    """A schema with something in the metadata of a column; None takes it away. Raises ``ColumnNotFoundError``."""
    column = schema.field(name)
    metadata = {**column.metadata, key: value}
    if value is None:
        del metadata[key]
    return StructType(tuple(replace(field, metadata=metadata) if field is column else field for field in schema))


def check_declared(schema: StructType) -> None:
    """Hold what is declared of a new table's columns to what delta-spark asks of it.

    The columns' expressions can be read and bound: :class:`~refdelta.ops.row_rules.RowRules` has done it.

    Raises:
        InvalidArgumentError: a declaration within another column, two for one column, an expression of another type
            than its column, or one that is not the same at all times.
    """
    for field in schema:
        own = [key for key in MARKS if key in field.metadata]
        if len(own) > 1:
            raise InvalidArgumentError(f"column {field.name!r} has a value from {' and from '.join(own)}; one is to be")
        if _declares_within(field.type):
            raise InvalidArgumentError(
                f"only whole columns have values of the table's own, not parts of {field.name!r}"
            )
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
        evaluate_value(value, pa.record_batch({"": [0]}))
    except (InvalidArgumentError, SchemaMismatchError, ExpressionError) as error:
        raise InvalidArgumentError(f"{sql} is no default for column {field.name!r}, a {field.type}: {error}") from None


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
