"""Small things that Arrow leaves to its callers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array, copied only where it is in several pieces.

    A column without any piece is an empty array; older versions of pyarrow leave that one chunked.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def floor_divide(array: Any, divisor: int) -> Any:
    """Integers divided by a positive one, rounded down; Arrow rounds towards zero."""
    cut = pc.divide(array, divisor)
    below = pc.less(pc.subtract(array, pc.multiply(cut, divisor)), 0)
    return pc.subtract(cut, below.cast(cut.type))


def modulo(array: Any, divisor: int) -> Any:
    """What is left of :func:`floor_divide`; never negative."""
    return pc.subtract(array, pc.multiply(floor_divide(array, divisor), divisor))
