"""Hashes of rows, column by column: two 64-bit numbers a row, equal for equal rows.

A hash of a string or a list is that of its items as a polynomial modulo 2**64; the prefix sums of a whole column give
those of all its values at once. Hostile rows can be made to have equal hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    Numbers = np.ndarray[Any, np.dtype[np.uint64]]

HASH = np.dtype([("one", np.uint64), ("two", np.uint64)])
"""The type of a hash."""

_SEEDS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_MASK = 2**64 - 1


def row_hashes(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[Any]]:
    """The hash of each row, of type :data:`HASH`."""
    found = np.zeros(batch.num_rows, HASH)
    for name, seed in zip(HASH.names or (), _SEEDS, strict=True):
        total = np.full(batch.num_rows, seed, np.uint64)
        for column in batch.columns:
            total = _mixed(total * np.uint64(_odd(seed, 1)) + _hashes(column, seed))
        found[name] = total
    return found


def _hashes(column: pa.Array, seed: int) -> Numbers:
    """The hash of each value of a column; equal for all nulls."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hashes(column.dictionary_decode(), seed)
    if isinstance(column, pa.ExtensionArray):
        return _hashes(column.storage, seed)
    if pa.types.is_null(kind):
        return np.full(len(column), seed, np.uint64)
    if pa.types.is_struct(kind):
        found = np.full(len(column), seed, np.uint64)
        for field in column.flatten():
            found = _mixed(found * np.uint64(_odd(seed, 2)) + _hashes(field, seed))
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _sequences(*_lists(column), seed)
    elif pa.types.is_fixed_size_list(kind):
        found = _hashes(column.cast(pa.list_(kind.value_type)), seed)
    elif _is_text(kind):
        text = column.cast(pa.large_binary())
        _, offsets, data = text.buffers()
        ends = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
        letters = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]].astype(np.uint64)
        found = _sequences(ends - ends[0], letters + np.uint64(1), seed)
    else:
        found = _fixed(column, seed)
    if column.null_count:
        found = np.where(np.asarray(column.is_null()), np.uint64(seed), found)
    return found


def _is_text(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _lists(column: pa.Array) -> tuple[Any, Numbers | pa.Array]:
    """The ends of lists or maps, from 0, and their items as one array. A null has no items."""
    if pa.types.is_map(column.type):
        items = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    else:
        items = column.values
    ends = np.asarray(column.offsets).astype(np.int64)
    return ends - ends[0], items.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _sequences(ends: Any, items: Any, seed: int) -> Numbers:
    """The hashes of consecutive sequences of items."""
    numbers = items if isinstance(items, np.ndarray) else _hashes(items, seed)
    odd = _odd(seed, 3)
    # Item i counts odd**i; dividing by odd**start makes it independent of the place of the sequence.
    powers = _powers(odd, len(numbers))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(numbers * powers, dtype=np.uint64)])
    start = _powers(pow(odd, -1, 2**64), len(numbers) + 1)[ends[:-1]]
    lengths = (ends[1:] - ends[:-1]).astype(np.uint64)
    return _mixed((sums[ends[1:]] - sums[ends[:-1]]) * start + lengths * np.uint64(_odd(seed, 4)))


def _powers(base: int, count: int) -> Numbers:
    found = np.full(count, base, np.uint64)
    found[:1] = 1
    return np.cumprod(found, dtype=np.uint64)


def _fixed(column: pa.Array, seed: int) -> Numbers:
    """The hashes of values of fixed width, by their bytes."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    data = column.buffers()[1]
    raw = np.frombuffer(data or b"", np.uint8)[column.offset * width : (column.offset + len(column)) * width]
    padded = np.zeros((len(column), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = raw.reshape(len(column), width)
    found = np.full(len(column), seed, np.uint64)
    for words in padded.view(np.uint64).T:
        found = _mixed(found * np.uint64(_odd(seed, 5)) + words)
    return found


def _odd(seed: int, number: int) -> int:
    return (seed * (2 * number + 1) + 0x2545F4914F6CDD1D * number) & _MASK | 1


def _mixed(values: Numbers) -> Numbers:
    """The finalizer of SplitMix64, a bijection."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
