"""The shared parts of functions over columns: constants, bounds, masks, and functions of numpy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import as_numpy
from refdelta.arrow.schema import arrow_type
from refdelta.errors import ExpressionError
from refdelta.expressions.expression import Call, Literal

Numbers = np.ndarray[Any, np.dtype[np.int64]]

MOST_BYTES = 2**30
"""The most bytes of text that a function makes for a batch, as much as is read for one."""


def bounded(name: str, size: int, rows: int) -> None:
    """Raise ``ExpressionError`` if a function would make more than :data:`MOST_BYTES` of text.

    Args:
        name: the function, for the message.
        size: the bytes of its result.
        rows: the number of rows.
    """
    if size > MOST_BYTES:
        raise ExpressionError(
            f"{name} would make {size:,} bytes of text for {rows:,} rows; at most {MOST_BYTES:,} are made at once"
        )


def constant(node: Call, place: int) -> Any:
    """The value of an argument that is a constant."""
    arg = node.args[place]
    return arg.value if isinstance(arg, Literal) else None


def checked(node: Call, found: tuple[pa.Array, pa.Array]) -> pa.Array:
    """Values, unless a mask says that one of them does not fit: then ``ArrowInvalid``."""
    result, bad = found
    if pc.any(bad).as_py():
        raise pa.ArrowInvalid(f"a value does not fit into {node.type}")
    return result


def all_valid(columns: Sequence[pa.Array]) -> pa.BooleanArray:
    """A mask of the rows in which no column is null."""
    return functools.reduce(pc.and_, (column.is_valid() for column in columns))


def emptied(array: pa.Array) -> pa.Array:
    """An empty string for each value."""
    return pc.if_else(array.is_valid(), "", pa.scalar(None, array.type))


def days(array: pa.Array) -> pa.Array:
    """Dates as 64-bit integers."""
    return array.cast(pa.int32()).cast(pa.int64())


def dated(node: Call, found: Any) -> Any:
    """Days since 1970 as what the call gives. Raises ``ArrowInvalid`` if they do not fit."""
    kind = arrow_type(node.type)
    return found.cast(pa.int32()).view(kind) if pa.types.is_date(kind) else found


def over_integers(function: Callable[..., Numbers], *columns: pa.Array) -> pa.Array:
    """A numpy function of columns of 64-bit integers, which have the same length; null where one of them is null."""
    rows = len(columns[0])
    if not rows:
        return pa.nulls(0, pa.int64())
    found = np.ascontiguousarray(function(*map(_numbers, columns)))
    result = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(found)])
    for column in columns:
        result = pc.if_else(column.is_valid(), result, None) if column.null_count else result
    return result


def _numbers(column: pa.Array) -> Numbers:
    return as_numpy(column if not column.null_count else pc.fill_null(column, 0), np.int64)
