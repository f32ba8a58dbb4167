"""Storing a value in a column of another type: Spark's store assignment in UPDATE and MERGE.

A value with an ANSI cast to the type may be stored, and fails for rows whose value does not fit. Structs are stored
field by field if their fields have the same names.
"""

from __future__ import annotations

from refdelta.errors import PredicateError, SchemaMismatchError
from refdelta.expressions.casting import convertible
from refdelta.expressions.coercion import literal_as, wider
from refdelta.expressions.expression import Cast, Convert, Literal, Value
from refdelta.table.evolution import without_type
from refdelta.table.types import VOID, ArrayType, DataType, MapType, StructType, is_nested


def store_assign(value: Value, target: DataType, column: str = "a column") -> Value:
    """A value as it is stored in a column.

    Args:
        value: bound.
        target: the column's type.
        column: its name, for errors.

    Returns:
        A value of type ``target``. It raises ``ExpressionError`` where it is evaluated for a row whose value the column
        cannot hold.

    Raises:
        SchemaMismatchError: no value of this type is stored in such a column.
    """
    if value.type == target:
        return value
    if isinstance(value, Literal) and value.value is None:
        return Literal(None, target)
    if is_nested(value.type) or is_nested(target):
        if not _same_shape(value.type, target):
            raise _refused(value, target, column)
        return Cast(value, target)
    if not convertible(value.type, target):
        raise _refused(value, target, column)
    if isinstance(value, Literal):
        try:
            return literal_as(value, target)
        except PredicateError:
            # There may be no row to store it in.
            return Convert(value, target)
    return Cast(value, target) if wider(value.type, target) == target else Convert(value, target)


def _refused(value: Value, target: DataType, column: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {column} is {target}: {value} ({value.type}) cannot be stored there{without_type(target)}"
    )


def _same_shape(source: DataType, target: DataType) -> bool:
    """Whether two types differ in nullability at most."""
    match source, target:
        case StructType(), StructType():
            return len(source) == len(target) and all(
                one.name == other.name and _same_shape(one.type, other.type)
                for one, other in zip(source, target, strict=True)
            )
        case ArrayType(), ArrayType():
            return _same_shape(source.element, target.element)
        case MapType(), MapType():
            return _same_shape(source.key, target.key) and _same_shape(source.value, target.value)
    return source in (target, VOID)
