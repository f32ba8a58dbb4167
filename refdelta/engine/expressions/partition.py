"""Partition values as columns: the twin of :mod:`refdelta.core.expressions.partition_values`, which is the definition.

A partition column has few distinct values, so that each is converted once by the definition.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.expressions import partition_values
from refdelta.core.table.types import (
    DATE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
    physical_name,
)
from refdelta.engine.arrow.arrays import array_of, one_array, scalar_of
from refdelta.engine.arrow.char_padding import padded_column
from refdelta.engine.arrow.schema import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_partition_column(strings: pa.Array, data_type: DataType, *, column: str = "a partition column") -> pa.Array:
    """Typed values from the strings of ``partitionValues`` (PROTOCOL.md, "Partition Value Serialization").

    Args:
        strings: one string a file, null or empty for null.
        data_type: the column's type.
        column: its name, for errors.

    Returns:
        An array as long as ``strings``, of the Arrow type of ``data_type``.

    Raises:
        InvalidLogError: a string is not of the type.
    """
    target = arrow_type(data_type)
    strings = one_array(strings)
    if data_type == VOID:
        return pa.nulls(len(strings), target)
    if data_type == STRING:
        return pc.if_else(pc.equal(strings, scalar_of("", strings.type)), scalar_of(None, target), strings).cast(target)
    encoded = strings.dictionary_encode()
    values = [partition_values.parse(text, data_type, column=column) for text in encoded.dictionary.to_pylist()]
    return from_internal(values, data_type).take(encoded.indices)


def partition_strings(column: pa.Array, data_type: DataType, *, name: str = "a partition column") -> pa.Array:
    """The strings of ``partitionValues`` for typed values; null for null and for empty strings.

    Args:
        column: of the Arrow type of ``data_type``.
        data_type: the column's type.
        name: its name, for errors.

    Raises:
        SchemaMismatchError: a value has no string that all readers convert back to the same value.
    """
    column = one_array(column)
    encoded = column.dictionary_encode() if not pa.types.is_null(column.type) else None
    if encoded is None:
        return pa.nulls(len(column), pa.string())
    if data_type == FLOAT:
        # The shortest text of a float differs from that of the equal double.
        texts = [
            None if text is None else partition_values.format_float(value) if not math.isfinite(value) else text
            for value, text in zip(
                encoded.dictionary.to_pylist(), pc.cast(encoded.dictionary, pa.string()).to_pylist(), strict=True
            )
        ]
    else:
        texts = [
            partition_values.serialize(v, data_type, column=name) for v in to_internal(encoded.dictionary, data_type)
        ]
    return array_of(texts, pa.string()).take(encoded.indices)


def partition_table(
    files: pa.Table, schema: StructType, partition_columns: Sequence[str], *, as_stored: bool = False
) -> pa.Table:
    """The typed partition values of files.

    Args:
        files: has a column ``partitionValues``, a map of strings by physical column name.
        schema: the table's schema.
        partition_columns: its partition columns, by logical name.
        as_stored: whether strings of char(n) columns are as in the log, not padded.

    Returns:
        One column for each partition column, with its logical name, and one row for each file. A missing value is null.

    Raises:
        InvalidLogError: a string is not of the column's type.
        ColumnNotFoundError: the schema lacks a column.
    """
    fields = [schema.field(name) for name in partition_columns]
    maps = one_array(files["partitionValues"])
    columns = []
    for item in fields:
        texts = pc.map_lookup(maps, scalar_of(physical_name(item), pa.string()), "first").cast(pa.string())
        values = parse_partition_column(texts, item.type, column=item.name)
        columns.append(values if as_stored else padded_column(values, item))
    return pa.table(columns, schema=pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields]))


def to_internal(column: pa.Array, data_type: DataType) -> list[Any]:
    """Internal values (see :mod:`refdelta.core.expressions.partition_values`) of a short Arrow array."""
    if data_type == DATE:
        return list(column.view(pa.int32()).to_pylist())
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return list(column.view(pa.int64()).to_pylist())
    if isinstance(data_type, ArrayType | MapType):
        return _nested_to_internal(column, data_type)
    return list(column.to_pylist())


def _nested_to_internal(column: pa.Array, data_type: ArrayType | MapType) -> list[Any]:
    found: list[Any] = []
    for row in column:
        if not row.is_valid:
            found.append(None)
        elif isinstance(data_type, ArrayType):
            found.append(to_internal(row.values, data_type.element))
        else:
            keys, items = (row.values.field(place) for place in (0, 1))
            found.append(list(zip(to_internal(keys, data_type.key), to_internal(items, data_type.value), strict=True)))
    return found


def from_internal(values: list[Any], data_type: DataType) -> pa.Array:
    """The inverse of :func:`to_internal`."""
    target = arrow_type(data_type)
    if data_type == DATE:
        return array_of(values, pa.int32()).view(target)
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return array_of(values, pa.int64()).view(target)
    return array_of(values, target)
