"""What a Parquet footer says of its columns, held against its schema, before pyarrow is asked about them.

pyarrow ends the process where a footer contradicts itself: an exception of its C++ code passes through code that knows
of none. It is careful when it opens a file and when it reads rows, but not when Python asks for a column of a row
group. So that is looked at here, in the footer as pyarrow holds it (Parquet's specification, "Metadata").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Fields by their numbers: of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, Statistics, SizeStatistics.
_ROW_GROUPS: Final = 4
_COLUMNS: Final = 1
_META_DATA, _ENCRYPTED = 3, (8, 9)
_TYPE, _STATISTICS, _SIZES = 1, 12, 16
_BOUNDS: Final = (1, 2, 5, 6)
_REPETITIONS, _DEFINITIONS = 2, 3
_MAGIC: Final = 4


def check_footer(metadata: Any) -> frozenset[int]:
    """Look whether pyarrow can be asked about the columns of a file's row groups.

    Args:
        metadata: the file's ``FileMetaData``.

    Returns:
        The numbers of the leaf columns whose bounds it must not be asked for.

    Raises:
        ValueError: the footer contradicts itself: a column is missing, is encrypted or is of another type than in the
            schema, or counts of its levels are as many as it cannot have.
    """
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    leaves = [_Leaf(metadata.schema.column(number)) for number in range(metadata.num_columns)]
    reader = _Reader(memoryview(sink.getvalue()).tobytes(), _MAGIC)
    odd: set[int] = set()
    for _ in reader.fields(_ROW_GROUPS):
        for _ in range(reader.list_length()):
            _row_group(reader, leaves, odd)
    return frozenset(odd)


def _row_group(reader: _Reader, leaves: list[_Leaf], odd: set[int]) -> None:
    found = 0
    for _ in reader.fields(_COLUMNS):
        found = reader.list_length()
        if found != len(leaves):
            break
        for number, leaf in enumerate(leaves):
            if not _column(reader, leaf):
                odd.add(number)
    if found != len(leaves):
        raise ValueError(f"a row group has {found} columns, the schema {len(leaves)}")


class _Leaf:
    """What the schema says of a leaf column."""

    __slots__ = ("levels", "path", "type", "width")

    def __init__(self, column: Any):
        self.path = column.path
        self.type = column.physical_type
        self.width = _WIDTHS.get(self.type, column.length if self.type == "FIXED_LEN_BYTE_ARRAY" else 0)
        self.levels = {_REPETITIONS: column.max_repetition_level, _DEFINITIONS: column.max_definition_level}


def _column(reader: _Reader, leaf: _Leaf) -> bool:
    """Pass over a ``ColumnChunk``. Returns whether its bounds are as long as their type asks."""
    bounded, seen = True, False
    for number in reader.fields(_META_DATA, *_ENCRYPTED):
        if number in _ENCRYPTED:
            raise ValueError(f"column {leaf.path} is encrypted")
        seen = True
        for part in reader.fields(_TYPE, _STATISTICS, _SIZES):
            if part == _TYPE:
                kind = reader.integer()
                if not 0 <= kind < len(_TYPES) or _TYPES[kind] != leaf.type:
                    raise ValueError(f"column {leaf.path} is of another type in a row group than in the schema")
            elif part == _STATISTICS:
                for _ in reader.fields(*_BOUNDS):
                    bounded &= reader.skip_binary() >= leaf.width
            else:
                _sizes(reader, leaf)
    if not seen:
        raise ValueError(f"column {leaf.path} is not described in a row group")
    return bounded


def _sizes(reader: _Reader, leaf: _Leaf) -> None:
    for number in reader.fields(*leaf.levels):
        count = reader.list_length()
        for _ in range(count):
            reader.integer()
        if count not in (0, leaf.levels[number] + 1):
            raise ValueError(f"column {leaf.path} has sizes of {count} levels, and not so many levels")


class _Reader:
    """Thrift's compact protocol, as pyarrow writes it: so it is sound, and nothing needs to be checked."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int):
        self.data, self.at = data, at

    def fields(self, *wanted: int) -> Iterator[int]:
        """Go through a struct: gives the number of each wanted field, whose value the caller then reads; passes over
        the others.
        """
        number = 0
        while True:
            head = self.data[self.at]
            self.at += 1
            if head == 0:
                return
            number = number + (head >> 4) if head >> 4 else self.integer()
            if number in wanted:
                yield number
            else:
                self._skip(head & 15)

    def integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def list_length(self) -> int:
        head = self.data[self.at]
        self.at += 1
        return self._varint() if head >> 4 == 15 else head >> 4

    def skip_binary(self) -> int:
        """Pass over bytes. Returns how many."""
        length = self._varint()
        self.at += length
        return length

    def _varint(self) -> int:
        data, at = self.data, self.at
        byte = data[at]
        at += 1
        number = byte & 127
        shift = 7
        while byte > 127:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
        self.at = at
        return number

    def _skip(self, kind: int, *, in_list: bool = False) -> None:
        if 4 <= kind <= 6:
            data, at = self.data, self.at
            while data[at] > 127:
                at += 1
            self.at = at + 1
        elif kind == 8:
            self.skip_binary()
        elif kind == 12:
            for _ in self.fields():
                pass
        elif kind in (9, 10):
            each = self.data[self.at] & 15
            for _ in range(self.list_length()):
                self._skip(each, in_list=True)
        elif kind == 11:
            count = self._varint()
            if count:
                kinds = self.data[self.at]
                self.at += 1
                for _ in range(count):
                    self._skip(kinds >> 4, in_list=True)
                    self._skip(kinds & 15, in_list=True)
        else:
            # A boolean is in the head of its field, but for those of a list.
            self.at += {1: int(in_list), 2: int(in_list), 3: 1, 7: 8}[kind]
