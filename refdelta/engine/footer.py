"""What a Parquet footer says of its columns, held against its schema, before pyarrow is asked about them.

pyarrow ends the process where a footer contradicts itself: an exception of its C++ code passes through code that knows
of none. It is careful when it opens a file and when it reads rows, but not when Python asks for a column of a row
group. So that is looked at here (Parquet's specification, "Metadata"; the bytes are Thrift's compact protocol). What
pyarrow might read in another way than this module, such as a field that is there twice, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from refdelta.engine.usual_chunks import UsualChunk, end_of_element

_TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
# Fields by their numbers, each with its kind: of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, Statistics and
# SizeStatistics. What is encrypted has fields of its own.
_FILE: Final = {4: _LIST, 8: _STRUCT, 9: _BINARY}
_GROUP: Final = {1: _LIST, 3: _I64}
_CHUNK: Final = {3: _STRUCT, 8: _STRUCT, 9: _BINARY}
_META: Final = {1: _I32, 12: _STRUCT, 16: _STRUCT}
_BOUNDS: Final = {1: _BINARY, 2: _BINARY, 5: _BINARY, 6: _BINARY}
_SIZES: Final = {2: _LIST, 3: _LIST}
_ENCRYPTED: Final = (8, 9)
_DEEPEST, _MOST = 60, 2**31


def check_footer(metadata: Any, bytes_at: Callable[[int, int], bytes | memoryview], size: int) -> frozenset[int]:
    """Look whether pyarrow can be asked about the columns of a file's row groups.

    Args:
        metadata: the file's ``FileMetaData``.
        bytes_at: gives the bytes of the file from a position on, so many or as many as there are.
        size: of the file, in bytes.

    Returns:
        The numbers of the leaf columns whose bounds it must not be asked for.

    Raises:
        ValueError: the footer contradicts itself: a column is missing, is encrypted or is of another type than in the
            schema, or counts of its levels are as many as it cannot have.
    """
    # Not what pyarrow says of its length: that leaves out what may stand behind its end.
    length = int.from_bytes(bytes_at(size - 8, 4), "little")
    data = bytes(bytes_at(size - 8 - length, length))
    leaves = [_Leaf(metadata.schema.column(number)) for number in range(metadata.num_columns)]
    odd: set[int] = set()
    try:
        _file(_Reader(data), leaves, odd)
    except IndexError:
        raise ValueError("the footer ends too early") from None
    return frozenset(odd)


def _file(reader: _Reader, leaves: list[_Leaf], odd: set[int]) -> None:
    for number in reader.fields(_FILE):
        if number in _ENCRYPTED:
            raise ValueError("the file is encrypted")
        for _ in range(reader.length()):
            _row_group(reader, leaves, odd)


def _row_group(reader: _Reader, leaves: list[_Leaf], odd: set[int]) -> None:
    found = 0
    for field in reader.fields(_GROUP):
        if field == 3:
            if (rows := reader.integer()) < 0:
                raise ValueError(f"a row group has {rows} rows")
            continue
        found = reader.length()
        if found != len(leaves):
            break
        for number, leaf in enumerate(leaves):
            if not _column(reader, leaf):
                odd.add(number)
    if found != len(leaves):
        raise ValueError(f"a row group has {found} columns, the schema {len(leaves)}")


class _Leaf:
    """What the schema says of a leaf column."""

    __slots__ = ("levels", "path", "type", "usual", "width")

    def __init__(self, column: Any):
        self.path = column.path
        self.type = column.physical_type
        self.width = _WIDTHS.get(self.type, column.length if self.type == "FIXED_LEN_BYTE_ARRAY" else 0)
        self.levels = {2: column.max_repetition_level, 3: column.max_definition_level}  # as in _SIZES
        self.usual = UsualChunk(self.path, _TYPES.index(self.type), self.width, *self.levels.values())


def _column(reader: _Reader, leaf: _Leaf) -> bool:
    """Pass over a ``ColumnChunk``. Returns whether its bounds are as long as their type asks."""
    if reader.passes(leaf.usual):
        return True
    bounded, seen = True, False
    for number in reader.fields(_CHUNK):
        if number in _ENCRYPTED:
            raise ValueError(f"column {leaf.path} is encrypted")
        for part in reader.fields(_META):
            if part == 1:
                kind, seen = reader.integer(), True
                if not 0 <= kind < len(_TYPES) or _TYPES[kind] != leaf.type:
                    raise ValueError(f"column {leaf.path} is of another type in a row group than in the schema")
            elif part == 12:
                for _ in reader.fields(_BOUNDS):
                    bounded &= reader.skip_binary() >= leaf.width
            else:
                _sizes(reader, leaf)
    if not seen:
        raise ValueError(f"column {leaf.path} is not described in a row group")
    return bounded


def _sizes(reader: _Reader, leaf: _Leaf) -> None:
    for number in reader.fields(_SIZES):
        count = reader.length()
        for _ in range(count):
            reader.integer()
        if count not in (0, leaf.levels[number] + 1):
            raise ValueError(f"column {leaf.path} has sizes of {count} levels, and not so many levels")


class _Reader:
    """Thrift's compact protocol. Raises ``IndexError`` where the bytes end."""

    __slots__ = ("_at", "_data", "_depth")

    def __init__(self, data: bytes):
        self._data, self._at, self._depth = data, 0, 0

    def passes(self, usual: UsualChunk) -> bool:
        """Pass over a column chunk, if it is one of the usual ones."""
        end = usual.end(self._data, self._at)
        self._at = self._at if end is None else end
        return end is not None

    def fields(self, wanted: dict[int, int]) -> Iterator[int]:
        """Go through a struct: gives the number of each wanted field, whose value the caller then reads; passes over
        the others, and over those that are not of the kind that is wanted.
        """
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("the footer nests too deeply")
        number, seen = 0, 0
        while True:
            head = self._data[self._at]
            self._at += 1
            kind = head & 15
            if kind == 0:
                break
            number = number + (head >> 4) if head >> 4 else self.integer()
            if number in wanted and kind == wanted[number]:
                if seen >> number & 1:
                    raise ValueError("the footer has a field twice")
                seen |= 1 << number
                yield number
            elif not -(2**15) <= number < 2**15:
                raise ValueError("the footer has a field of an impossible number")
            else:
                self._skip(kind)
        self._depth -= 1

    def integer(self) -> int:
        """A signed number."""
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def length(self) -> int:
        """How many elements a list has; they follow."""
        head = self._data[self._at]
        self._at += 1
        return self._count() if head >> 4 == 15 else head >> 4

    def skip_binary(self) -> int:
        """Pass over bytes. Returns how many."""
        length = self._count()
        self._at += length
        return length

    def _count(self) -> int:
        count = self._varint()
        if count >= _MOST:
            raise ValueError("the footer counts more than there can be")
        return count

    def _varint(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        at += 1
        number = byte & 127
        shift = 7
        while byte > 127:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if number >= 1 << 64:  # pyarrow would take what is left of it in 64 bits
                raise ValueError("the footer has a number without end")
        self._at = at
        return number

    def _skip(self, kind: int, *, in_list: bool = False) -> None:
        if 4 <= kind <= 6:
            self._varint()
        elif kind == _BINARY:
            self.skip_binary()
        elif kind == _STRUCT:
            for _ in self.fields({}):
                pass
        elif kind in (9, 10):
            each = self._data[self._at] & 15
            self._skip_each(self.length(), (each,))
        elif kind == 11:
            count = self._count()
            kinds = self._data[self._at] if count else 0
            self._at += count > 0
            self._skip_each(count, (kinds >> 4, kinds & 15))
        elif kind in (1, 2):
            self._at += in_list  # else it is in the head of its field
        elif kind in (3, 7):
            self._at += 1 if kind == 3 else 8
        else:
            raise ValueError(f"the footer has a field of the unknown kind {kind}")

    def _skip_each(self, count: int, kinds: tuple[int, ...]) -> None:
        if count > len(self._data):
            raise IndexError
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("the footer nests too deeply")
        for _ in range(count):
            for kind in kinds:
                # Almost all structs that are passed over are of the schema.
                end = end_of_element(self._data, self._at) if kind == _STRUCT else None
                if end is None:
                    self._skip(kind, in_list=True)
                else:
                    self._at = end
        self._depth -= 1
