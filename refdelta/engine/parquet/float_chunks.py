"""Column chunks of floating-point numbers in files that are written, and what is left out of their footers.

Spark, DuckDB and pyarrow's datasets skip row groups and pages by the footer, and lose rows by it:

- NaN. pyarrow leaves NaN out of the minimum and maximum. Parquet's specification allows it, and asks readers that look
  for NaN to ignore both; but these readers take them for bounds of NaN too. So a column chunk with NaN has no bounds,
  neither in the footer nor in the index of pages. It keeps its number of nulls.
- Zeros. To Spark ``0.0`` equals ``-0.0``, but its Parquet reader compares the bits of the values in a dictionary, and
  skips a row group that has only the other zero there. It does so only if the footer says that all pages use the
  dictionary. The footer does not say it of a column chunk with a zero.

pyarrow has options for this, but only for whole columns of a file, and before its first row is written. Small files are
known by then: their columns with zeros are written without a dictionary. Otherwise the footer is changed after pyarrow
wrote it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from refdelta.arrow.arrays import as_numpy, map_as_lists
from refdelta.engine.parquet.metadata import DEEPEST_FOOTER, STRUCT, CompactReader

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FloatLeaf:
    """A leaf column of floating-point numbers.

    Attributes:
        number: its number among the leaf columns of a file.
        path: the number of the column, and those of the fields that lead from it to the leaf; None for the elements of
            a list and the entries of a map.
    """

    number: int
    path: tuple[int | None, ...]

    def values(self, rows: pa.Table) -> list[NDArray[Any]]:
        """The values of the leaf that are not null."""
        return [_values(array, self.path[1:]) for array in rows.column(self.path[0]).chunks]


def float_leaves(schema: pa.Schema) -> list[FloatLeaf]:
    """The leaf columns of floating-point numbers in a file of this Arrow schema."""
    leaves = itertools.chain.from_iterable(_leaves(item.type, (number,)) for number, item in enumerate(schema))
    return [FloatLeaf(number, path) for number, (kind, path) in enumerate(leaves) if pt.is_floating(kind)]


def _leaves(kind: pa.DataType, path: tuple[int | None, ...]) -> Iterator[tuple[pa.DataType, tuple[int | None, ...]]]:
    if not pt.is_nested(kind):
        yield kind, path
    elif pt.is_struct(kind):
        for number, item in enumerate(kind):
            yield from _leaves(item.type, (*path, number))
    elif pt.is_map(kind):
        yield from _leaves(kind.key_type, (*path, None, 0))
        yield from _leaves(kind.item_type, (*path, None, 1))
    else:
        yield from _leaves(kind.value_type, (*path, None))


def _values(array: pa.Array, path: Sequence[int | None]) -> NDArray[Any]:
    # These functions leave out the values under a null, which a file does not store.
    for step in path:
        if step is not None:
            array = pc.struct_field(array, [step])
        else:
            array = pc.list_flatten(map_as_lists(array) if pt.is_map(array.type) else array)
    found = array.drop_null() if array.null_count else array
    return as_numpy(found, f"f{found.type.bit_width // 8}")


def _has_nan(values: NDArray[Any]) -> bool:
    return bool(np.isnan(values).any())


def _has_zero(values: NDArray[Any]) -> bool:
    return bool((values == 0).any())


# --- the footer --------------------------------------------------------------------------------------------------

# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and Statistics, by number.
_ROW_GROUPS, _COLUMNS, _META, _STATISTICS, _ENCODING_STATS = 4, 1, 3, 12, 13
_COLUMN_INDEX = (6, 7)  # its offset and its length; the other index, of the places of pages, stays
_BOUNDS = (1, 2, 5, 6, 7, 8)  # minimum and maximum in both forms, and whether they are exact


@dataclass
class FloatChunks:
    """The column chunks of a file that have NaN or zeros, each by the numbers of its row group and its leaf column.

    Args:
        leaves: the leaf columns of floating-point numbers, by :func:`float_leaves`.
    """

    leaves: Sequence[FloatLeaf]
    nan: set[tuple[int, int]] = field(default_factory=set)
    zero: set[tuple[int, int]] = field(default_factory=set)
    groups: int = 0

    def add(self, rows: pa.Table, group_rows: int) -> None:
        """Add rows that are written as row groups of so many rows; the last one may have fewer."""
        if not self.leaves:
            return
        for start in range(0, rows.num_rows, group_rows):
            group = rows if rows.num_rows <= group_rows else rows.slice(start, group_rows)
            for leaf in self.leaves:
                values = leaf.values(group)
                if any(map(_has_nan, values)):
                    self.nan.add((self.groups, leaf.number))
                if any(map(_has_zero, values)):
                    self.zero.add((self.groups, leaf.number))
            self.groups += 1

    def take_zeros(self) -> set[int]:
        """The numbers of the leaf columns with zeros, for a file that is written without their dictionaries: the footer
        is not changed for them.
        """
        found, self.zero = {leaf for _, leaf in self.zero}, set()
        return found

    def __bool__(self) -> bool:
        """Whether the footer has to be changed."""
        return bool(self.nan or self.zero)

    def changed(self, file: bytes) -> bytes:
        """The file with the changed footer (Parquet's specification, "Metadata").

        Args:
            file: the file as pyarrow wrote it, or as much of its end as includes the footer.

        Returns:
            The same bytes but for the footer, in which column chunks with NaN have no bounds and no index of the bounds
            of pages, and those with zeros no encodings of pages.
        """
        end = len(file) - 8
        start = end - int.from_bytes(file[end : end + 4], "little")
        reader = CompactReader(file, "the footer", deepest=DEEPEST_FOOTER, start=start)

        def statistics() -> bytes:
            return reader.copy(without=_BOUNDS)

        def columns(group: int) -> bytes:
            return reader.copy_list(STRUCT, lambda leaf: column((group, leaf)))

        def column(place: tuple[int, int]) -> bytes:
            unbounded, encodings = place in self.nan, [_ENCODING_STATS] if place in self.zero else []
            if unbounded:
                return reader.copy({_META: lambda: reader.copy({_STATISTICS: statistics}, encodings)}, _COLUMN_INDEX)
            return reader.copy({_META: lambda: reader.copy(without=encodings)} if encodings else None)

        def groups() -> bytes:
            return reader.copy_list(STRUCT, lambda group: reader.copy({_COLUMNS: lambda: columns(group)}))

        footer = reader.copy({_ROW_GROUPS: groups})
        return file[:start] + footer + len(footer).to_bytes(4, "little") + file[end + 4 :]
