"""Small things that Arrow leaves to its callers."""

from __future__ import annotations

import pyarrow as pa


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array, copied only where it is in several pieces.

    A column without any piece is an empty array; older versions of pyarrow leave that one chunked.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
