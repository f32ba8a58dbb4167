"""Partition values as columns: the twin of :mod:`refdelta.table.partition_values`, which is the definition.

A partition column has few distinct values, so that each is converted once by the definition.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import array_of, one_array, pieces, scalar_of
from refdelta.arrow.char_padding import padded_column
from refdelta.arrow.schema import arrow_type
from refdelta.arrow.text_maps import TextMaps
from refdelta.table import partition_values
from refdelta.table.types import (
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FEW_COLUMNS = 16  # partition columns whose values are looked up one by one


def parse_partition_column(
    strings: pa.Array, data_type: DataType, *, column: str = "a partition column", zone: str | None = None
) -> pa.Array:
    """Typed values from the strings of ``partitionValues`` (PROTOCOL.md, "Partition Value Serialization").

    Args:
        strings: one string a file, null or empty for null.
        data_type: the column's type.
        column: its name, for errors.
        zone: the zone of timestamps without an offset; None for UTC.

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
    texts = encoded.dictionary.to_pylist()
    values = [partition_values.parse(text, data_type, column=column, zone=zone) for text in texts]
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
    kind = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])
    if not fields:
        return pa.table([], schema=kind)

    def typed(maps: pa.MapArray) -> Iterator[pa.Array]:
        for item, texts in zip(fields, _looked_up(maps, [physical_name(item) for item in fields]), strict=True):
            values = parse_partition_column(texts, item.type, column=item.name, zone=item.zone)
            yield values if as_stored else padded_column(values, item)

    parts = [one_array(piece.column(0)) for piece in pieces(files.select(["partitionValues"]))]
    return pa.concat_tables([pa.table([*typed(maps)], schema=kind) for maps in parts])


def _looked_up(maps: pa.MapArray, names: Sequence[str]) -> Iterator[pa.Array]:
    """The value of each name in each map; null where the map lacks it. The first of several counts."""
    if len(names) <= _FEW_COLUMNS:
        yield from (pc.map_lookup(maps, scalar_of(name, pa.string()), "first").cast(pa.string()) for name in names)
        return
    # Each look-up goes through all entries: for many names, these are put in the order of the names once.
    found = TextMaps.of(maps)
    places = pc.fill_null(pc.index_in(found.keys, value_set=array_of(names, pa.string())), -1)
    numbers = np.asarray(places.to_numpy(zero_copy_only=False), np.int64)
    order, rows = np.argsort(numbers, kind="stable"), found.rows
    ends = np.searchsorted(numbers[order], np.arange(len(names) + 1))
    for first, last in itertools.pairwise(ends):
        entries = order[first:last][::-1]
        at = np.full(len(maps), -1, np.int64)
        at[rows[entries]] = entries
        yield found.items.take(pa.array(at, mask=at < 0)).cast(pa.string())


def to_internal(column: pa.Array, data_type: DataType) -> list[Any]:
    """Internal values (see :mod:`refdelta.table.partition_values`) of a short Arrow array."""
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
