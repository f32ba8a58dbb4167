"""Dictionary encoding: of string columns in memory, and of columns in Parquet files.

Strings that are moved from file to file may stay dictionary-encoded, in some batches and not in others.

Parquet's writer puts the values of a column into a dictionary until that is too large, and writes the rest plainly. If
nearly all values differ, that costs a lookup for each value and saves nothing. So a sample of the rows is taken first:
a column whose dictionary would be too large is written plainly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.arrow.arrays import array_of, as_schema

# Parquet's writer ends a dictionary at so many bytes.
_DICTIONARY_BYTES = 2**20
_SAMPLE = 16 * 1024
# No dictionary of fewer values is too large: decimals of 38 digits take the most bytes.
_FEW_ROWS = _DICTIONARY_BYTES // 16
_SHORT = 32  # if no string has more bytes, each is counted with the length of the longest


def joined(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches of one schema as one table. String columns may be dictionaries in some batches: a column that is one in
    all batches gets a common dictionary; other dictionaries are decoded.
    """
    if any(batch.schema != batches[0].schema for batch in batches):
        batches = [plain(batch) for batch in batches]
    rows = pa.Table.from_batches(batches)
    if not has_dictionaries(rows.schema):
        return rows
    rows = rows.unify_dictionaries()
    for index, column in enumerate(rows.columns):
        # With nulls, Parquet's writer would take the bounds of the whole dictionary, also of unused strings.
        odd = pt.is_dictionary(column.type) and column.null_count
        if odd and len(used_texts(column)) < len(column.chunk(0).dictionary):
            rows = rows.set_column(index, rows.field(index).name, column.cast(column.type.value_type))
    return rows


def has_dictionaries(schema: pa.Schema) -> bool:
    """Whether a column is dictionary-encoded."""
    return any(map(pt.is_dictionary, schema.types))


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows without dictionaries."""
    fields = [f.with_type(f.type.value_type) if pt.is_dictionary(f.type) else f for f in rows.schema]
    return as_schema(rows.columns, pa.schema(fields))


def decoded(column: pa.DictionaryArray) -> pa.StringArray:
    """The strings of a valid dictionary column. Together they have less than 2 GiB.

    Strings of one length, such as codes, are copied as values of that width, in a third of the time.
    """
    dictionary, indices = column.dictionary, column.indices
    width = 0 if dictionary.null_count or indices.null_count else _common_length(dictionary)
    if not width:
        return column.dictionary_decode()
    _, offsets, data = dictionary.buffers()
    first = memoryview(offsets).cast("i")[dictionary.offset]
    entries = pa.Array.from_buffers(pa.binary(width), len(dictionary), [None, data.slice(first)])
    ends = np.arange(0, (len(column) + 1) * width, width, dtype=np.int32)
    values = entries.take(indices).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(column), [None, pa.py_buffer(ends), values])


def _common_length(texts: pa.StringArray) -> int:
    """The number of bytes of each string; 0 if that differs, or if there are none."""
    lengths = pc.min_max(pc.binary_length(texts))
    shortest, longest = lengths["min"].as_py(), lengths["max"].as_py()
    return longest if longest and shortest == longest else 0


def text_size(rows: pa.RecordBatch) -> int:
    """An upper bound of the memory of rows when their dictionaries are decoded, in bytes."""
    size: int = rows.nbytes
    if not has_dictionaries(rows.schema):
        return size
    for column in rows.columns:
        if pt.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary)
            longest = pc.max(lengths).as_py() or 0
            size += longest * len(column) if longest <= _SHORT else pc.sum(lengths.take(column.indices)).as_py() or 0
    return size


def used_texts(column: pa.ChunkedArray) -> pa.Array:
    """The strings of a column's dictionary that a row uses; all chunks have the same dictionary."""
    dictionary = column.chunk(0).dictionary
    used = np.zeros(len(dictionary), bool)
    for chunk in column.chunks:
        indices = chunk.indices
        used[(indices.drop_null() if indices.null_count else indices).to_numpy()] = True
    return dictionary.filter(pa.array(used))


def with_dictionaries(schema: pa.Schema, types: Sequence[pa.DataType]) -> pa.Schema:
    """A schema with the given types of its columns where these are dictionaries."""
    if not any(map(pt.is_dictionary, types)):
        return schema
    fields = zip(schema, types, strict=True)
    return pa.schema([field.with_type(kind) if pt.is_dictionary(kind) else field for field, kind in fields])


def dictionary_columns(rows: pa.Table) -> bool | list[str]:
    """The columns to write with a dictionary, as ``use_dictionary`` of ``ParquetWriter``: True for all.

    Args:
        rows: the first row group of a file, which is taken as typical.
    """
    if rows.num_rows <= _FEW_ROWS:
        return True
    # Nested columns would have to be given by their leaves. Strings are not sampled, since copying them costs as much.
    if any(pt.is_nested(kind) for kind in rows.schema.types):
        return True
    asked = {name: most for name in rows.column_names if (most := _most(rows.column(name).type)) < rows.num_rows}
    if not asked:
        return True
    places = np.sort(np.random.default_rng(0).integers(0, rows.num_rows, _SAMPLE))
    sample = rows.select(list(asked)).take(array_of(places.tolist(), pa.int64()))
    without = {name for name, most in asked.items() if len(pc.unique(sample.column(name))) > _expected(most)}
    return [name for name in rows.column_names if name not in without] if without else True


def _most(kind: pa.DataType) -> float:
    """The most values that a dictionary may have; infinity for types that are not sampled."""
    if pt.is_decimal(kind):
        # With store_decimal_as_integer; longer decimals take their bytes.
        width = 4 if kind.precision <= 9 else 8 if kind.precision <= 18 else kind.byte_width
    elif pt.is_integer(kind) or pt.is_floating(kind) or pt.is_temporal(kind):
        width = max(4, kind.bit_width // 8)
    else:
        return math.inf
    return _DICTIONARY_BYTES / width


def _expected(values: float) -> float:
    """The expected number of distinct values in the sample, of so many values with equal probability."""
    return values * -math.expm1(-_SAMPLE / values)
