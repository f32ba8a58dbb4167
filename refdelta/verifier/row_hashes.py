"""Rows as numbers: two sets of rows, each row as often as it occurs, have the same sum of numbers if they are the same,
and almost never otherwise. So sets are compared of which neither is ever in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.uint64]

_NULL, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def row_sum(batch: pa.RecordBatch) -> int:
    """The sum of the numbers of all rows, modulo 2**64."""
    rows = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        rows = _mixed(rows * _STEP + numbers(column))
    return int(rows.sum(dtype=np.uint64))


def numbers(array: pa.Array) -> Numbers:
    """A number for each value, the same for equal ones, in whichever of Arrow's layouts they come."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    found = _mixed(_valid(array))
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _valid(array: pa.Array) -> Numbers:
    """Of values that are not null; at nulls, anything."""
    kind = array.type
    if pt.is_null(kind):
        return np.zeros(len(array), np.uint64)
    if pt.is_struct(kind):
        found = np.zeros(len(array), np.uint64)
        for inner in array.flatten():
            found = _mixed(found * _STEP + numbers(inner))
        return found
    if pt.is_map(kind):
        # The order of entries means nothing.
        return _within(_mixed(numbers(array.keys) * _STEP + numbers(array.items)), array.offsets)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _within(numbers(array.values), array.offsets, ordered=True)
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()):
        return _texts(array.cast(pa.large_binary()))
    if pt.is_boolean(kind):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    data, at = array.buffers()[1], array.offset
    if data is None:
        return np.zeros(len(array), np.uint64)
    raw = np.frombuffer(data, np.uint8)[at * width : (at + len(array)) * width]
    if pt.is_floating(kind):
        return _floats(raw.view(f"f{width}"))
    if width > np.uint64().itemsize:  # decimals
        parts = raw.view(np.uint64).reshape(-1, width // 8)
        return _mixed(parts[:, 0]) * _STEP + parts[:, 1]
    return raw.view(f"i{width}").astype(np.int64).view(np.uint64)


def _floats(values: NDArray[Any]) -> Numbers:
    """NaN is one value, and so are the two zeros."""
    wide = values.astype(np.float64) + 0.0
    wide[np.isnan(wide)] = np.nan
    return wide.view(np.uint64)


def _texts(array: pa.Array) -> Numbers:
    _, ends, data = array.buffers()
    offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    if data is None or begin == end:
        return np.zeros(len(array), np.uint64)
    text = np.frombuffer(data, np.uint8)[begin:end].astype(np.uint64) + np.uint64(1)
    return _sums(text * _powers(offsets), offsets - begin)


def _within(inner: Numbers, offsets: pa.Array, *, ordered: bool = False) -> Numbers:
    ends = offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    inner = inner[ends[0] : ends[-1]]
    lengths = np.diff(ends).astype(np.uint64)
    if ordered and len(inner):
        inner = _mixed(inner + _powers(ends))
    found: Numbers = _sums(inner, ends - ends[0]) + lengths
    return found


def _powers(offsets: NDArray[np.int64]) -> Numbers:
    """For each element of lists that follow each other, a number that goes by its place in its list."""
    lengths = np.diff(offsets)
    places = np.arange(offsets[-1] - offsets[0]) - np.repeat(offsets[:-1] - offsets[0], lengths)
    powers: Numbers = np.cumprod(np.full(int(lengths.max(initial=0)), _STEP), dtype=np.uint64)
    at_places: Numbers = powers[places]
    return at_places


def _sums(values: Numbers, offsets: NDArray[np.int64]) -> Numbers:
    running: Numbers = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)))
    sums: Numbers = running[offsets[1:]] - running[offsets[:-1]]
    return sums


def _mixed(values: Numbers) -> Numbers:
    """Each number as another one, each bit of which depends on all of its bits."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    mixed: Numbers = values ^ (values >> np.uint64(31))
    return mixed
