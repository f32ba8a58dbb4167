"""Small things that Arrow leaves to its callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

# Arrow picks rows of a batch by their numbers, whatever it is given; where so many stay, by a mask column by column is
# two to five times faster, and otherwise slower.
_MOST = 0.8


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array, copied only where it is in several pieces.

    A column without any piece is an empty array; older versions of pyarrow leave that one chunked.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def as_schema(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these columns, each cast where the schema has another type for it."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def take_rows(batch: pa.RecordBatch, numbers: pa.Array) -> pa.RecordBatch:
    """Some rows of a batch, by their numbers, which ascend."""
    if not batch.num_columns or len(numbers) <= _MOST * batch.num_rows:
        return batch.take(numbers)
    mask = np.zeros(batch.num_rows, dtype=bool)
    mask[numbers.to_numpy()] = True
    return filter_rows(batch, pa.array(mask))


def filter_rows(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """The rows of a batch for which a mask is true."""
    if not batch.num_columns or mask.true_count <= _MOST * batch.num_rows:
        return batch.filter(mask)
    return pa.RecordBatch.from_arrays([column.filter(mask) for column in batch.columns], schema=batch.schema)


def check_values(batch: pa.RecordBatch) -> None:
    """Look whether a batch that came from a file is what Arrow takes it for: its texts UTF-8, above all, at which
    Parquet's reader does not look.

    Raises:
        pyarrow.ArrowInvalid: it is not.
    """
    for column in batch.columns:
        # Text by text, the check takes a tenth of the time of reading; of most tables, text is ASCII.
        if not (pa.types.is_string(column.type) and _is_ascii(column)):
            column.validate(full=True)


def _is_ascii(column: pa.StringArray) -> bool:
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    first, last = (memoryview(offsets).cast("i")[column.offset + at] for at in (0, len(column)))
    return bool(0 <= first <= last <= data.size and data.slice(first, last - first).to_pybytes().isascii())


def floor_divide(array: Any, divisor: int) -> Any:
    """Integers divided by a positive one, rounded down; Arrow rounds towards zero."""
    cut = pc.divide(array, divisor)
    below = pc.less(pc.subtract(array, pc.multiply(cut, divisor)), 0)
    return pc.subtract(cut, below.cast(cut.type))


def modulo(array: Any, divisor: int) -> Any:
    """What is left of :func:`floor_divide`; never negative."""
    return pc.subtract(array, pc.multiply(floor_divide(array, divisor), divisor))
