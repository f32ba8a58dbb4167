"""Padding of strings of char(n) columns when they are read, at every depth; see
:mod:`refdelta.table.char_varchar`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.table.char_varchar import Length, padding_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.table.char_varchar import Lengths
    from refdelta.table.types import StructField


def padder(column: StructField) -> Callable[[pa.Array], pa.Array] | None:
    """A function that pads a column of a file; None if it has no char(n)."""
    lengths = padding_of(column)
    return None if lengths is None else lambda array: _padded(array, lengths)


def padded_column(array: pa.Array, column: StructField) -> pa.Array:
    """A column of a table with its strings padded."""
    pad = padder(column)
    return array if pad is None else pad(array)


def padded_uppers(bounds: pa.Array, length: int) -> pa.Array:
    """The twin of :func:`refdelta.table.char_varchar.padded_upper`."""
    longest = pc.utf8_rpad(pc.replace_substring_regex(bounds, r"(?s)[\x00-\x1f].*", ""), length)
    return pc.if_else(pc.greater(longest, bounds), longest, bounds)


def _padded(array: pa.Array, lengths: Lengths) -> pa.Array:
    kind = array.type
    if isinstance(lengths, Length):
        return pc.utf8_rpad(array, lengths.limit) if pt.is_string(kind) else array
    if pt.is_struct(kind):
        parts = [_within(array.field(i), lengths.get(item.name.lower())) for i, item in enumerate(kind)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pt.is_list(kind):
        return _around(array, _within(array.values, lengths.get("element")))
    if pt.is_map(kind):
        parts = [_within(array.keys, lengths.get("key")), _within(array.items, lengths.get("value"))]
        return _around(array, pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field]))
    return array


def _within(array: pa.Array, lengths: Lengths | None) -> pa.Array:
    return array if lengths is None else _padded(array, lengths)


def _around(array: pa.Array, child: Any) -> pa.Array:
    """A list or map with the same offsets and nulls around another child."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(array.type, len(array), [validity, offsets], offset=array.offset, children=[child])
