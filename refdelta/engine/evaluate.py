"""Predicates over columns: the twin of :func:`refdelta.protocol.predicate.evaluate`, which is the definition."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.partition import from_internal
from refdelta.engine.schema import arrow_type
from refdelta.errors import ColumnNotFoundError, PredicateError
from refdelta.protocol.like import like_regex
from refdelta.protocol.predicate import (
    FLIPPED,
    And,
    BoolLiteral,
    Cast,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    Value,
)
from refdelta.protocol.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType, DecimalType


def row_mask(predicate: Predicate, batch: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
    """The predicate for every row: true, false, or null where it cannot be told.

    Args:
        predicate: bound to the schema of the table that the rows are of.
        batch: rows with at least the columns that the predicate looks at, by logical name, in the types of
            :func:`refdelta.engine.schema.to_arrow`.

    Returns:
        As many booleans as there are rows. ``filter`` drops the rows that are false or null, as WHERE does.

    Raises:
        ColumnNotFoundError: the batch lacks a column.
    """
    if isinstance(batch, pa.Table):
        batch = batch.combine_chunks()
        chunks = batch.to_batches()
        parts = [row_mask(predicate, chunk) for chunk in chunks]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.bool_())
    return _mask(predicate, batch)


def _mask(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    match predicate:
        case BoolLiteral(value):
            return pa.repeat(pa.scalar(value, pa.bool_()), batch.num_rows)
        case And(children):
            found = _mask(children[0], batch)
            for child in children[1:]:
                found = pc.and_kleene(found, _mask(child, batch))
            return found
        case Or(children):
            found = _mask(children[0], batch)
            for child in children[1:]:
                found = pc.or_kleene(found, _mask(child, batch))
            return found
        case Not(child):
            return pc.invert(_mask(child, batch))
        case Comparison(op, left, right) if isinstance(left, Literal):
            return compare(FLIPPED[op], values(right, batch), values(left, batch))
        case Comparison(op, left, right):
            return compare(op, values(left, batch), values(right, batch))
        case In(value, items):
            return _is_in(values(value, batch), items)
        case IsNull(column):
            return values(column, batch).is_null()
        case Like(column, pattern, escape):
            # RE2 anchors by text, not by line, unless told otherwise.
            return pc.match_substring_regex(values(column, batch), f"^{like_regex(pattern, escape)}$")


# --- values ------------------------------------------------------------------------------------------------------


def values(value: Value, batch: pa.RecordBatch) -> Any:
    """A column or cast as an array, a literal as a scalar."""
    match value:
        case Literal(constant, data_type):
            return scalar(constant, data_type)
        case Cast(child, target):
            return cast(values(child, batch), child.type, target)
        case Column(path):
            index = batch.schema.get_field_index(path[0])
            if index < 0:
                raise ColumnNotFoundError(path[0], batch.schema.names, "the data")
            array = batch.column(index)
            return pc.struct_field(array, list(path[1:])) if len(path) > 1 else array


def compute_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which values are compared; a comparison may need more digits than a column can have."""
    if isinstance(data_type, DecimalType) and data_type.precision > 38:
        return pa.decimal256(data_type.precision, data_type.scale)
    return arrow_type(data_type)


def scalar(value: Any, data_type: DataType) -> pa.Scalar:
    """An internal value as an Arrow scalar."""
    if value is None or isinstance(data_type, DecimalType):
        return pa.scalar(value, compute_type(data_type))
    return from_internal([value], data_type)[0]


def cast(array: Any, source: DataType, target: DataType) -> Any:
    """An array in a wider type, see :class:`refdelta.protocol.predicate.Cast`.

    Raises:
        PredicateError: a date that no timestamp reaches.
    """
    if source in (TIMESTAMP, TIMESTAMP_NTZ) and target in (TIMESTAMP, TIMESTAMP_NTZ):
        return array.cast(pa.int64()).cast(arrow_type(target))
    if source == DATE and target == TIMESTAMP:
        array, source = cast(array, DATE, TIMESTAMP_NTZ), TIMESTAMP_NTZ
        return cast(array, source, target)
    try:
        # A long that no double equals is compared by the nearest one, as in Spark.
        return pc.cast(array, compute_type(target), safe=source == DATE)
    except pa.ArrowInvalid as error:
        raise PredicateError(f"a value of type {source} is beyond {target}: {error}") from None


# --- comparisons -------------------------------------------------------------------------------------------------


def compare(op: str, left: Any, right: Any) -> pa.BooleanArray:
    """Two columns, or a column and a scalar, under a comparison operator."""
    match op:
        case "=":
            return _equal(left, right)
        case "<>":
            return pc.invert(_equal(left, right))
        case "<":
            return _less(left, right)
        case ">":
            return _less(right, left)
        case "<=":
            return pc.invert(_less(right, left))
        case ">=":
            return pc.invert(_less(left, right))
        case _:
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            return pc.coalesce(_equal(left, right), both_null)


def _floating(value: Any) -> bool:
    return bool(pa.types.is_floating(value.type))


def _equal(left: Any, right: Any) -> pa.BooleanArray:
    found = pc.equal(left, right)
    if _floating(left):
        # Arrow follows IEEE, where NaN equals nothing; in Spark it equals itself.
        return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return found


def _less(left: Any, right: Any) -> pa.BooleanArray:
    found = pc.less(left, right)
    if _floating(left):
        return pc.or_(found, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))
    return found


def _is_in(array: Any, items: tuple[Literal, ...]) -> pa.BooleanArray:
    constants = [item.value for item in items if item.value is not None]
    if any(isinstance(value, float) and value == 0 for value in constants):
        # Arrow looks values up by their bits, and zero has two forms.
        constants += [0.0, -0.0]
    data_type = items[0].type
    if isinstance(data_type, DecimalType):
        known = pa.array(constants, compute_type(data_type))
    else:
        known = from_internal(constants, data_type)
    found = pc.is_in(array, value_set=known)
    if any(isinstance(value, float) and math.isnan(value) for value in constants):
        found = pc.or_(found, pc.fill_null(pc.is_nan(array), False))
    if any(item.value is None for item in items):
        # A miss is unknown: the null may have been the value.
        found = pc.if_else(found, found, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_null(array), pa.scalar(None, pa.bool_()), found)
