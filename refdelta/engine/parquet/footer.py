"""What a Parquet footer says of its columns, held against its schema, before pyarrow is asked about them.

pyarrow ends the process where a footer contradicts itself: an exception of its C++ code passes through code that knows
of none. It is careful when it opens a file and when it reads rows, but not when Python asks for a column of a row
group. So that is looked at here (Parquet's specification, "Metadata"; the bytes are Thrift's compact protocol). What
pyarrow might read in another way than this module, such as a field that is there twice, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from refdelta.engine.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, CompactReader
from refdelta.engine.parquet.usual_chunks import UsualChunk

_TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Fields by their numbers, each with its kind: of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, Statistics and
# SizeStatistics. What is encrypted has fields of its own.
_FILE: Final = {4: LIST, 8: STRUCT, 9: BINARY}
_GROUP: Final = {1: LIST, 3: I64}
_CHUNK: Final = {3: STRUCT, 8: STRUCT, 9: BINARY}
_META: Final = {1: I32, 12: STRUCT, 16: STRUCT}
_BOUNDS: Final = {1: BINARY, 2: BINARY, 5: BINARY, 6: BINARY}
_SIZES: Final = {2: LIST, 3: LIST}
_ENCRYPTED: Final = (8, 9)
_DEEPEST: Final = 60


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
        _file(CompactReader(data, "the footer", deepest=_DEEPEST), leaves, odd)
    except IndexError:
        raise ValueError("the footer ends too early") from None
    return frozenset(odd)


def _file(reader: CompactReader, leaves: list[_Leaf], odd: set[int]) -> None:
    for number in reader.fields(_FILE):
        if number in _ENCRYPTED:
            raise ValueError("the file is encrypted")
        for _ in range(reader.length()):
            _row_group(reader, leaves, odd)


def _row_group(reader: CompactReader, leaves: list[_Leaf], odd: set[int]) -> None:
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


def _column(reader: CompactReader, leaf: _Leaf) -> bool:
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


def _sizes(reader: CompactReader, leaf: _Leaf) -> None:
    for number in reader.fields(_SIZES):
        count = reader.length()
        for _ in range(count):
            reader.integer()
        if count not in (0, leaf.levels[number] + 1):
            raise ValueError(f"column {leaf.path} has sizes of {count} levels, and not so many levels")
