"""Dictionaries: of columns in memory, and for which columns of a Parquet file one is worth the attempt.

Texts that are but moved from file to file may stay places in a dictionary, as the files have them, in some batches and
not in others.

Parquet's writer puts the values of a column into a dictionary until that is too large, and writes the rest as they are.
Where nearly all values differ it looks up a value and another, stores them twice, and has gained nothing. So some rows
are looked at before: a column whose dictionary would be too large is written as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.engine.arrow.arrays import as_schema

# Parquet's writer gives a dictionary up at so many bytes.
_DICTIONARY_BYTES = 2**20
_SAMPLE = 16 * 1024
_SHORT = 32  # of texts up to so many bytes, each is taken for as long as the longest


def joined(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches of one schema, but that texts are dictionaries in some. What is one in all of them has one for all."""
    if any(batch.schema != batches[0].schema for batch in batches):
        batches = [plain(batch) for batch in batches]
    rows = pa.Table.from_batches(batches).unify_dictionaries()
    for index, column in enumerate(rows.columns):
        # Parquet's writer counts null for a text that some row has: it would take the bounds of all of them.
        odd = pt.is_dictionary(column.type) and column.null_count
        if odd and len(used_texts(column)) < len(column.chunk(0).dictionary):
            rows = rows.set_column(index, rows.field(index).name, column.cast(column.type.value_type))
    return rows


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows without dictionaries."""
    fields = [f.with_type(f.type.value_type) if pt.is_dictionary(f.type) else f for f in rows.schema]
    return as_schema(rows.columns, pa.schema(fields))


def text_size(rows: pa.RecordBatch) -> int:
    """What rows take in memory when their dictionaries are made texts, in bytes, or somewhat more."""
    size: int = rows.nbytes
    for column in rows.columns:
        if pt.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary)
            longest = pc.max(lengths).as_py() or 0
            size += longest * len(column) if longest <= _SHORT else pc.sum(lengths.take(column.indices)).as_py() or 0
    return size


def used_texts(column: pa.ChunkedArray) -> pa.Array:
    """Those texts of a column's dictionary, the same in all chunks, that a row has."""
    dictionary = column.chunk(0).dictionary
    used = np.zeros(len(dictionary), bool)
    for chunk in column.chunks:
        indices = chunk.indices
        used[(indices.drop_null() if indices.null_count else indices).to_numpy()] = True
    return dictionary.filter(pa.array(used))


def with_dictionaries(schema: pa.Schema, types: Sequence[pa.DataType]) -> pa.Schema:
    """A schema with those of the types of its columns that are dictionaries."""
    fields = zip(schema, types, strict=True)
    return pa.schema([field.with_type(kind) if pt.is_dictionary(kind) else field for field, kind in fields])


def dictionary_columns(rows: pa.Table) -> bool | list[str]:
    """The columns to write with a dictionary, as ``ParquetWriter`` takes them: true for all.

    Args:
        rows: a row group; those after it are taken to be like it.
    """
    # Names of nested columns are paths to their leaves here; texts are not worth it, since to copy them costs as much.
    if any(pt.is_nested(kind) for kind in rows.schema.types):
        return True
    asked = {name: most for name in rows.column_names if (most := _most(rows.column(name).type)) < rows.num_rows}
    if not asked:
        return True
    places = np.sort(np.random.default_rng(0).integers(0, rows.num_rows, _SAMPLE))
    sample = rows.select(list(asked)).take(pa.array(places))
    without = {name for name, most in asked.items() if len(pc.unique(sample.column(name))) > _expected(most)}
    return [name for name in rows.column_names if name not in without] if without else True


def _most(kind: pa.DataType) -> float:
    """How many values a dictionary may have; infinitely many for types that are not asked about."""
    if pt.is_decimal(kind):
        # As store_decimal_as_integer has it; longer ones take their bytes.
        width = 4 if kind.precision <= 9 else 8 if kind.precision <= 18 else kind.byte_width
    elif pt.is_integer(kind) or pt.is_floating(kind) or pt.is_temporal(kind):
        width = max(4, kind.bit_width // 8)
    else:
        return math.inf
    return _DICTIONARY_BYTES / width


def _expected(values: float) -> float:
    """How many different values the sample has of so many that are all as likely."""
    return values * -math.expm1(-_SAMPLE / values)
