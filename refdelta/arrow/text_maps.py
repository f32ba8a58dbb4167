"""Columns of maps from text to text, as partition values and tags are, taken apart and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import one_array

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class TextMaps:
    """A column of maps as its entries, one after the other.

    Attributes:
        lengths: the number of entries of each map; 0 for null.
        keys: the keys of all entries.
        items: the values of all entries, some of which may be null.
    """

    lengths: NDArray[np.int64]
    keys: pa.StringArray
    items: pa.StringArray

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.MapArray) -> TextMaps:
        """The entries of a column of type map<string, string>."""
        maps = one_array(column)
        lists = _as_lists(maps)
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
        entries = pc.list_flatten(lists)
        return cls(lengths, pc.struct_field(entries, [0]), pc.struct_field(entries, [1]))

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def has_key_twice(self) -> bool:
        """True if a map has a key more than once."""
        if not len(self.keys) or self.lengths.max() < 2:
            return False
        codes = self.keys.dictionary_encode()
        pairs = self.rows * len(codes.dictionary) + np.asarray(codes.indices, np.int64)
        return len(np.unique(pairs)) < len(pairs)

    def differing(self, other: TextMaps) -> NDArray[np.bool_]:
        """For each row, False if both columns have the same entries in the same order."""
        found: NDArray[np.bool_] = self.lengths != other.lengths
        if found.any():
            same = np.flatnonzero(~found)
            found[same] = self._some(same).differing(other._some(same))
            return found
        for one, two in ((self.keys, other.keys), (self.items, other.items)):
            if not one.equals(two):
                found[self.rows[differing(one, two)]] = True
        return found

    def _some(self, rows: NDArray[np.int64]) -> TextMaps:
        wanted = np.zeros(len(self.lengths), bool)
        wanted[rows] = True
        entries = pa.array(wanted[self.rows])
        return TextMaps(self.lengths[rows], self.keys.filter(entries), self.items.filter(entries))


def _as_lists(maps: pa.MapArray) -> pa.ListArray:
    entry = pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)])
    return maps.cast(pa.list_(entry))


def differing(one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """For each row, True if the values differ; null equals null."""
    unequal = pc.fill_null(pc.not_equal(one, other), True)
    if one.null_count and other.null_count:
        unequal = pc.and_(unequal, pc.or_(one.is_valid(), other.is_valid()))
    return np.asarray(unequal)
