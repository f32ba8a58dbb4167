"""Parquet's metadata, read from its bytes (Parquet's specification, "Metadata" and "Page Header"): footers, which are
checked before pyarrow uses them, and headers of pages, which pyarrow does not expose.

Both are structs in Thrift's compact protocol: a field is one byte, with its kind and by how much its number is greater
than that of the field before, and its value; a zero byte ends the struct. :class:`CompactReader` goes through such
structs, yields the fields that are wanted and skips the others. It refuses everything that pyarrow may read in another
way, such as a field that occurs twice, and every number, length and depth that no valid file has. A footer describes
each column of each row group, often tens of thousands of chunks, and a loop over their bytes is slow in Python. So
there is a fast path: regular expressions that match descriptions of the form that most writers use. They match nothing
that the loop would refuse; whatever they do not match goes through the loop.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12

BytesAt = Callable[[int, int], bytes | memoryview]
"""Returns the bytes of a file from a position on: as many as are asked for, or as many as there are."""


# --- Thrift's compact protocol -----------------------------------------------------------------------------------


class CompactReader:
    """Goes through structs of Thrift's compact protocol. Every method raises ``IndexError`` at the end of the bytes,
    and ``ValueError`` for invalid bytes.

    Args:
        data: the bytes.
        what: a name for them, for errors.
        deepest: how deep structs and lists may nest.
        start: the position at which to begin.
    """

    __slots__ = ("_at", "_data", "_deepest", "_depth", "_what")

    def __init__(self, data: bytes, what: str, *, deepest: int, start: int = 0):
        self._data, self._at, self._depth = data, start, 0
        self._what, self._deepest = what, deepest

    @property
    def position(self) -> int:
        """The number of bytes that have been read."""
        return self._at

    def skip_chunk(self, pattern: ChunkPattern) -> bool:
        """Skip the description of a column chunk if the pattern matches it. Returns whether it does."""
        end = pattern.end(self._data, self._at)
        self._at = self._at if end is None else end
        return end is not None

    def fields(self, wanted: dict[int, int], after: Sequence[int] = ()) -> Iterator[int]:
        """Read a struct: yields the number of each wanted field, whose value the caller has to read next. Skips other
        fields, and fields of another kind than the wanted one.

        Args:
            wanted: the kind of each wanted field, by its number.
            after: the numbers of the wanted fields that were read already, if the struct is read from its middle.
        """
        self._descend()
        number, seen = 0, 0
        for number in after:
            seen |= 1 << number
        while True:
            head = self._data[self._at]
            self._at += 1
            kind = head & 15
            if kind == 0:
                break
            number = number + (head >> 4) if head >> 4 else self.integer()
            if number in wanted and kind == wanted[number]:
                if seen >> number & 1:
                    raise ValueError(f"{self._what} has a field twice")
                seen |= 1 << number
                yield number
            elif not -(2**15) <= number < 2**15:
                raise ValueError(f"{self._what} has a field of an impossible number")
            else:
                self._skip(kind)
        self._depth -= 1

    def integer(self, bits: int = 64) -> int:
        """A signed number of at most so many bits: pyarrow would leave the others out."""
        number = self._varint()
        if number >> bits:
            raise ValueError(f"{self._what} has a number of more than {bits} bits")
        return (number >> 1) ^ -(number & 1)

    def length(self, kind: int) -> int:
        """The number of elements of a list, which have this kind and follow.

        pyarrow reads the elements of a list that it knows as that kind, whatever the list says of them.
        """
        head = self._data[self._at]
        self._at += 1
        if head & 15 != kind:
            raise ValueError(f"{self._what} has a list of another kind")
        return self._count() if head >> 4 == 15 else head >> 4

    def skip_binary(self) -> int:
        """Skip a byte string. Returns its length."""
        length = self._count()
        self._at += length
        return length

    def skip_list(self, kind: int) -> None:
        """Skip a list of this kind."""
        self._skip_each(self.length(kind), (kind,))

    def copy(self, changed: Mapping[int, Callable[[], bytes]] | None = None, without: Collection[int] = ()) -> bytes:
        """Read a struct. Returns its bytes, with changes.

        Args:
            changed: by the number of a field, a function that reads its value and returns the bytes of a new one.
            without: the numbers of the fields that are left out.
        """
        if not changed and not without:
            start = self._at
            self._skip(STRUCT)
            return self._data[start : self._at]
        copied, last, number = bytearray(), 0, 0
        while head := self._data[self._at]:
            self._at += 1
            number = number + (head >> 4) if head >> 4 else self.integer()
            start = self._at
            if changed and number in changed:
                value = changed[number]()
            else:
                self._skip(head & 15)
                value = self._data[start : self._at]
            if number not in without:
                step = number - last
                copied += bytes([step << 4 | head & 15]) if step < 16 else bytes([head & 15]) + _unsigned(number << 1)
                copied += value
                last = number
        self._at += 1
        return bytes(copied) + b"\0"

    def copy_list(self, kind: int, element: Callable[[int], bytes]) -> bytes:
        """Read a list of this kind. Returns its bytes, with new elements.

        Args:
            kind: the kind of the elements.
            element: a function that reads the element of a number and returns the bytes of a new one.
        """
        start = self._at
        count = self.length(kind)
        return self._data[start : self._at] + b"".join(element(number) for number in range(count))

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > self._deepest:
            raise ValueError(f"{self._what} nests too deeply")

    def _count(self) -> int:
        count = self._varint()
        if count >= 2**31:
            raise ValueError(f"{self._what} has an impossible length")
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
            if number >> 64 or shift > 70:  # pyarrow would truncate it, or refuse it
                raise ValueError(f"{self._what} has a number of more than 64 bits")
        self._at = at
        return number

    def _skip(self, kind: int, *, in_list: bool = False) -> None:
        if 4 <= kind <= 6:
            self._varint()
        elif kind == BINARY:
            self.skip_binary()
        elif kind == STRUCT:
            for _ in self.fields({}):
                pass
        elif kind in (9, 10):
            each = self._data[self._at] & 15
            self._skip_each(self.length(each), (each,))
        elif kind == 11:
            count = self._count()
            kinds = self._data[self._at] if count else 0
            self._at += count > 0
            self._skip_each(count, (kinds >> 4, kinds & 15))
        elif kind in (1, 2):
            self._at += in_list  # a field's boolean is in its first byte
        elif kind in (3, 7):
            self._at += 1 if kind == 3 else 8
        else:
            raise ValueError(f"{self._what} has a field of the unknown kind {kind}")

    def _skip_each(self, count: int, kinds: tuple[int, ...]) -> None:
        if count > len(self._data):
            raise IndexError
        self._descend()
        for _ in range(count):
            for kind in kinds:
                # Almost all structs that are skipped are elements of the schema.
                end = end_of_schema_element(self._data, self._at) if kind == STRUCT else None
                if end is None:
                    self._skip(kind, in_list=True)
                else:
                    self._at = end
        self._depth -= 1


# --- footers -----------------------------------------------------------------------------------------------------

_TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
PHYSICAL_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
"""The bytes of a value in memory, by physical type."""
# Fields by number, each with its kind: of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData, Statistics and
# SizeStatistics; all fields that are lists are among them. The fields 8 and 9 belong to encrypted files and columns.
_FILE: Final = {2: LIST, 3: I64, 4: LIST, 5: LIST, 6: BINARY, 7: LIST, 8: STRUCT, 9: BINARY}
_SCHEMA, _ROWS, _GROUPS, _NOTES, _WRITER = 2, 3, 4, 5, 6
_GROUP: Final = {1: LIST, 3: I64, 4: LIST}
_CHUNK: Final = {3: STRUCT, 8: STRUCT, 9: BINARY}
_META: Final = {1: I32, 2: LIST, 3: LIST, 4: I32, 8: LIST, 12: STRUCT, 13: LIST, 16: STRUCT, 17: STRUCT}
_BOUNDS: Final = {1: BINARY, 2: BINARY, 5: BINARY, 6: BINARY}
_SIZES: Final = {2: LIST, 3: LIST}
_SHAPES: Final = {2: LIST}  # GeospatialStatistics
_CODECS: Final = 8
_LISTS: Final = {2: I32, 3: BINARY, 8: STRUCT, 13: STRUCT}  # of ColumnMetaData
_ENCRYPTED: Final = (8, 9)
DEEPEST_FOOTER: Final = 60
_USUAL_FOOTER: Final = 16 * 2**10  # bytes


@dataclass(frozen=True, slots=True)
class FooterForm:
    """The parts of a footer that most files of one writer share: the schema, and the notes after the row groups.

    Args:
        head: the bytes up to the number of rows.
        notes: the bytes from the key-value metadata on.
    """

    head: bytes
    notes: bytes

    @classmethod
    def of(cls, footer: bytes, metadata: Any) -> FooterForm | None:
        """The form of a footer; None if its ends do not show it.

        The row groups, whose descriptions are long, are not gone through: the notes are found by their first text.

        Args:
            footer: the footer.
            metadata: the same as a ``FileMetaData``.
        """
        keys = list(metadata.metadata or ())
        # The field after the row groups: a list of structs that begin with a key, or the name of the writer.
        first = bytes([1 << 4 | LIST, len(keys) << 4 & 240 | STRUCT, 1 << 4 | BINARY] if keys else [2 << 4 | BINARY])
        texts = keys or [(metadata.created_by or "").encode()]
        starts = [footer.rfind(first + bytes([len(text)]) + text) for text in texts if len(text) < _LONG]
        start = max(starts, default=-1)
        schema, notes = (CompactReader(part, "the footer", deepest=DEEPEST_FOOTER) for part in (footer, footer[start:]))
        try:
            head = next((schema.position for _ in schema.fields({3: I64})), 0)
            _ = list(notes.fields({}))
        except (IndexError, ValueError):
            return None
        whole = start > head > 0 and notes.position == len(footer) - start
        return cls(footer[:head], footer[start:]) if whole and len(keys) < 15 else None

    def matches(self, footer: bytes) -> bool:
        """Whether a footer has this form, so that its columns have the same names and types."""
        fits = len(footer) >= len(self.head) + len(self.notes)
        return fits and footer.startswith(self.head) and footer.endswith(self.notes)


def read_footer(path: str) -> bytes | None:
    """The footer of a local file; None if it has none that is not encrypted. Raises ``OSError``."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        size = os.fstat(file).st_size
        tail = _at(file, max(0, size - _USUAL_FOOTER), size)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if not tail.endswith(b"PAR1") or length > size:
            return None
        return (tail[-length:] if length <= len(tail) else _at(file, size - length, size))[:-8]
    finally:
        os.close(file)


def _at(file: int, start: int, end: int) -> bytes:
    os.lseek(file, start, os.SEEK_SET)
    return os.read(file, end - start)


def check_footer(metadata: Any, bytes_at: BytesAt, size: int) -> frozenset[int]:
    """Check whether pyarrow can be asked for the columns of a file's row groups.

    Some contradictory footers end the process in pyarrow's native code, so the check comes before any access to
    columns.

    Args:
        metadata: the file's ``FileMetaData``.
        bytes_at: returns bytes of the file.
        size: of the file, in bytes.

    Returns:
        The numbers of the leaf columns whose statistics must not be asked for: a bound is shorter than their type.

    Raises:
        ValueError: the footer contradicts itself. A column is missing, is encrypted, has another type than in the
            schema, or has sizes for another number of levels.
    """
    return examine_footer(metadata, bytes_at, size)[0]


def examine_footer(metadata: Any, bytes_at: BytesAt, size: int) -> tuple[frozenset[int], FooterForm | None]:
    """Same as :func:`check_footer`; also returns the footer's form, None if its fields are in an unusual order.

    Files of one form have the same columns, names, types and notes. The form is exact, unlike that of
    :meth:`FooterForm.of`: every field of the footer has been gone through.
    """
    # pyarrow's own length of the footer excludes bytes after the struct.
    length = int.from_bytes(bytes_at(size - 8, 4), "little")
    data = bytes(bytes_at(size - 8 - length, length))
    odd: set[int] = set()
    try:
        form = _check_file(data, metadata, odd)
    except IndexError:
        raise ValueError("the footer ends too early") from None
    return frozenset(odd), form


def _check_file(data: bytes, metadata: Any, odd: set[int]) -> FooterForm | None:
    global _known_heads  # noqa: PLW0603 - replaced as a whole, so that threads need no lock
    head, leaves = next((known for known in _known_heads if data.startswith(known[0])), (b"", []))
    reader = CompactReader(data, "the footer", deepest=DEEPEST_FOOTER, start=len(head))
    if head:
        reader.integer()
    else:
        leaves = [_FooterLeaf(metadata.schema.column(number)) for number in range(metadata.num_columns)]
    order = [_SCHEMA, _ROWS] if head else []
    notes = None
    for number in reader.fields(_FILE, order.copy()):
        order.append(number)
        if number in _ENCRYPTED:
            raise ValueError("the file is encrypted")
        if number == _ROWS:
            head = data[: reader.position]
            reader.integer()
        elif number == _GROUPS:
            for _ in range(reader.length(STRUCT)):
                _check_row_group(reader, leaves, odd)
        elif number == _WRITER:
            notes = reader.position if notes is None else notes
            reader.skip_binary()
        else:
            notes = reader.position if number == _NOTES else notes
            reader.skip_list(STRUCT)
    if order[:2] != [_SCHEMA, _ROWS]:
        return None
    if all(head != known for known, _ in _known_heads):
        _known_heads = ((head, leaves), *_known_heads[: _MOST_HEADS - 1])
    return None if notes is None else FooterForm(head, data[notes:])


def _check_row_group(reader: CompactReader, leaves: list[_FooterLeaf], odd: set[int]) -> None:
    found = 0
    for field in reader.fields(_GROUP):
        if field == 3:
            if (rows := reader.integer()) < 0:
                raise ValueError(f"a row group has {rows} rows")
            continue
        if field == 4:
            reader.skip_list(STRUCT)
            continue
        found = reader.length(STRUCT)
        if found != len(leaves):
            break
        for number, leaf in enumerate(leaves):
            if not _check_chunk(reader, leaf):
                odd.add(number)
    if found != len(leaves):
        raise ValueError(f"a row group has {found} columns, the schema {len(leaves)}")


class _FooterLeaf:
    """A leaf column by the schema: its path, physical type, width in bytes and number of levels."""

    __slots__ = ("levels", "path", "pattern", "type", "width")

    def __init__(self, column: Any):
        self.path = column.path
        self.type = column.physical_type
        self.width = PHYSICAL_WIDTHS.get(self.type, column.length if self.type == "FIXED_LEN_BYTE_ARRAY" else 0)
        self.levels = {2: column.max_repetition_level, 3: column.max_definition_level}  # as in _SIZES
        self.pattern = ChunkPattern(self.path, _TYPES.index(self.type), self.width, *self.levels.values())


# The schemas of the footers that were read last: the bytes up to the number of rows, and the leaf columns.
_known_heads: tuple[tuple[bytes, list[_FooterLeaf]], ...] = ()
_MOST_HEADS = 16


def _check_chunk(reader: CompactReader, leaf: _FooterLeaf) -> bool:
    """Read a ``ColumnChunk``. Returns whether its bounds have the width of its type."""
    if reader.skip_chunk(leaf.pattern):
        return True
    bounded, seen = True, False
    for number in reader.fields(_CHUNK):
        if number in _ENCRYPTED:
            raise ValueError(f"column {leaf.path} is encrypted")
        for part in reader.fields(_META):
            if part == 1:
                kind, seen = reader.integer(), True
                if not 0 <= kind < len(_TYPES) or _TYPES[kind] != leaf.type:
                    raise ValueError(f"column {leaf.path} has another type in a row group than in the schema")
            elif part == 4:
                if not 0 <= (codec := reader.integer(32)) < _CODECS:
                    raise ValueError(f"column {leaf.path} has the unknown codec {codec}")
            elif part == 12:
                for _ in reader.fields(_BOUNDS):
                    bounded &= reader.skip_binary() >= leaf.width
            elif part == 16:
                _check_sizes(reader, leaf)
            else:
                _skip_lists(reader, part)
    if not seen:
        raise ValueError(f"column {leaf.path} is not described in a row group")
    return bounded


def _skip_lists(reader: CompactReader, part: int) -> None:
    if part in _LISTS:
        reader.skip_list(_LISTS[part])
        return
    for _ in reader.fields(_SHAPES):
        reader.skip_list(I32)


def _check_sizes(reader: CompactReader, leaf: _FooterLeaf) -> None:
    for number in reader.fields(_SIZES):
        count = reader.length(I64)
        for _ in range(count):
            reader.integer()
        if count not in (0, leaf.levels[number] + 1):
            raise ValueError(f"column {leaf.path} has sizes of {count} levels, and another number of levels")


# --- the fast path for footers -----------------------------------------------------------------------------------

# The first byte of a field of each kind, whose number is greater by 1 to 15 than that of the field before. A struct has
# at most 40 fields here, so numbers stay small and no field can occur twice. Repetitions are atomic groups: possessive
# ones are broken in Python before 3.11.5.
_INTEGER, _BINARY, _STRUCT, _TRUTH, _BYTE = (
    b"[" + b"".join(re.escape(bytes([delta << 4 | kind])) for delta in range(1, 16) for kind in kinds) + b"]"
    for kinds in ((5, 6), (8,), (12,), (1, 2), (3,))
)
_NUMBER = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_INTEGERS = b"(?>(?:" + _INTEGER + _NUMBER + b"){0,40})"
_LONG = 128  # a length from here on takes two bytes
_COMPILE_AFTER = 500  # calls; so many of the loop take less time than compiling a pattern


class _LazyPattern:
    """A regular expression that matches nothing until it has been used often; then it is compiled."""

    def __init__(self, pattern: bytes):
        self._pattern, self._asked = pattern, 0
        self._compiled: re.Pattern[bytes] | None = None

    def match(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """Same as ``re.Pattern.match``."""
        if self._compiled is None:
            self._asked += 1
            if self._asked <= _COMPILE_AFTER:
                return None
            self._compiled = re.compile(self._pattern, re.DOTALL)
        return self._compiled.match(data, at)


def _list_of(kind: int, element: bytes) -> bytes:
    heads = (re.escape(bytes([count << 4 | kind])) + b"(?:" + element + b"){%d}" % count for count in range(7))
    return b"(?:" + b"|".join(heads) + b")"


def _struct_of(parts: list[bytes]) -> bytes:
    return b"(?>(?:" + b"|".join(parts) + rb"){0,40})\x00"


def _byte_string() -> bytes:
    return b"(?:" + b"|".join(re.escape(bytes([length])) + b".{%d}" % length for length in range(_LONG)) + b")"


# A ``ColumnChunk`` up to the path in its ``ColumnMetaData``: the type is captured, the encodings are skipped.
_FIRST = re.compile(rb"(?:\x26" + _NUMBER + rb"\x1c|\x3c)\x15(.)\x19" + _list_of(5, _NUMBER) + rb"\x19", re.DOTALL)


@functools.lru_cache(maxsize=100)
def _rest(width: int) -> _LazyPattern:
    """The rest of a ``ColumnChunk`` after the path; captures the first bytes of the lists of ``SizeStatistics``.

    Args:
        width: the number of bytes of each bound; 0 for any.
    """
    bound = re.escape(bytes([width])) + b".{%d}" % width if width else _byte_string()
    statistics = _struct_of([_BINARY + bound, _INTEGER + _NUMBER, _TRUTH])
    pages = _list_of(12, _INTEGERS + rb"\x00")
    # Of repetition levels, then of definition levels: fields 2 and 3, either of which may be missing.
    both = rb"(?:\x16" + _NUMBER + rb"(?:\x19(?P<a>L)(?:\x19(?P<b>L))?|\x29(?P<c>L))?"
    both += rb"|\x29(?P<d>L)(?:\x19(?P<e>L))?|\x39(?P<f>L))?"
    sizes = both.replace(b"L", _list_of(6, _NUMBER)) + rb"\x00"
    codec = rb"\x15[" + bytes(range(0, 2 * _CODECS, 2)) + b"]"
    meta = codec + _optional_fields(
        *(("values", 5, I64, _NUMBER), ("size", 6, I64, _NUMBER), ("stored", 7, I64, _NUMBER)),
        *(("data", 9, I64, _NUMBER), ("index", 10, I64, _NUMBER), ("dictionary", 11, I64, _NUMBER)),
        *(("statistics", 12, STRUCT, statistics), ("pages", 13, LIST, pages)),
        *(("bloom", 14, I64, _NUMBER), ("length", 15, I32, _NUMBER), ("sizes", 16, STRUCT, sizes)),
        after=4,
    )
    return _LazyPattern(meta + rb"\x00" + _INTEGERS + rb"\x00")


def _optional_fields(*fields: tuple[str, int, int, bytes], after: int) -> bytes:
    """Fields of a struct in their order, each of which may be missing. Unlike :func:`_struct_of` it tells them by their
    numbers: the first byte of each depends on the last one before it that is there.

    Args:
        fields: for each its name, number and kind, and what its value matches.
        after: the number of the field before.
    """
    found, pattern = [("", after)], b""
    for name, number, kind, value in fields:
        heads = [(before, re.escape(bytes([number - last << 4 | kind]))) for before, last in found]
        head = heads[0][1]
        for before, one in heads[1:]:
            head = b"(?(%s)%s|%s)" % (before.encode(), one, head)
        pattern += b"(?P<%s>%s%s)?" % (name.encode(), head, value)
        found.append((name, number))
    return pattern


@functools.cache
def _schema_element() -> _LazyPattern:
    """A ``SchemaElement``: numbers, a name, and a ``LogicalType`` with structs of up to four levels."""
    small = [_INTEGER + _NUMBER, _TRUTH, _BYTE + b"."]
    logical = _struct_of(small)
    for _ in range(3):
        logical = _struct_of([*small, _STRUCT + logical])
    return _LazyPattern(_struct_of([_INTEGER + _NUMBER, _STRUCT + logical, _BINARY + _byte_string()]))


def end_of_schema_element(data: bytes, at: int) -> int | None:
    """The end of the ``SchemaElement`` that begins at a position; None if the loop has to find it."""
    found = _schema_element().match(data, at)
    return None if found is None else found.end()


class ChunkPattern:
    """Matches sound descriptions of a column chunk in their usual form.

    Args:
        path: the path of the leaf column, with dots.
        kind: the number of its physical type.
        width: the bytes that each of its bounds has; 0 for any number.
        repetition: its maximum repetition level.
        definition: its maximum definition level.
    """

    __slots__ = ("_definitions", "_path", "_repetitions", "_rest", "_type")

    def __init__(self, path: str, kind: int, width: int, repetition: int, definition: int):
        parts = [part.encode() for part in path.split(".")]
        usual = 0 <= width < _LONG and len(parts) < 15 and max(map(len, parts)) < _LONG
        self._path = (
            bytes([len(parts) << 4 | 8]) + b"".join(bytes([len(part)]) + part for part in parts) if usual else b""
        )
        self._type = bytes([2 * kind])
        self._rest = _rest(width) if usual else None
        self._repetitions, self._definitions = (0, repetition + 1), (0, definition + 1)

    def end(self, data: bytes, at: int) -> int | None:
        """The end of the description that begins at a position; None if the loop has to read it."""
        first = _FIRST.match(data, at)
        if (
            first is None
            or self._rest is None
            or first[1] != self._type
            or not data.startswith(self._path, first.end())
        ):
            return None
        rest = self._rest.match(data, first.end() + len(self._path))
        if rest is None:
            return None
        a, b, c, d, e, f = rest.group(*"abcdef")
        for found, counts in ((a or d, self._repetitions), (b or c or e or f, self._definitions)):
            if found is not None and found[0] >> 4 not in counts:
                return None
        return rest.end()


# --- page headers ------------------------------------------------------------------------------------------------

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BY_DICTIONARY = frozenset([2, 8])  # PLAIN_DICTIONARY, RLE_DICTIONARY
_BY_PREFIX: Final = 7  # DELTA_BYTE_ARRAY
_OFFSET: Final = 4  # bytes
# Fields of PageHeader, and of its three inner headers, each of which begins with the number of values.
_TYPE, _SIZE, _STORED = 1, 2, 3
_INNER = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_ENCODING = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_PAGE: Final = {_TYPE: I32, _SIZE: I32, _STORED: I32, **dict.fromkeys(_INNER.values(), STRUCT)}
_COUNTS: Final = dict.fromkeys((1, *_ENCODING.values()), I32)
_DEEPEST_PAGE = 8
# A header has some ten bytes, and perhaps the least and the greatest value.
_FIRST_READ, _LONGEST = 256, 16 * 2**20
_MOST_PAGES = 2**20


@dataclass(slots=True)
class PageHeader:
    """The header of a page.

    Attributes:
        is_dictionary: whether the page holds the dictionary; otherwise it holds data.
        size: of the decompressed page, in bytes, as it is stated.
        values: the number of values, nulls included; for a dictionary, the number of entries.
        encoding: of the values, by Parquet's number.
        place: the position of the page's body in the file: the first byte, and how many.
    """

    is_dictionary: bool
    size: int
    values: int
    encoding: int
    place: tuple[int, int]

    @property
    def held(self) -> int:
        """The bytes that pyarrow has of the page: if they are not compressed, it does not look at the stated size."""
        return max(self.size, self.place[1])

    @property
    def by_dictionary(self) -> bool:
        """Whether the values are indexes into the dictionary."""
        return not self.is_dictionary and self.encoding in _BY_DICTIONARY

    @property
    def by_prefix(self) -> bool:
        """Whether each value may begin with a prefix of the value before it."""
        return self.encoding == _BY_PREFIX

    def unfolded(self, width: int, longest: int) -> int:
        """An upper bound of the bytes that the page and its values take in memory.

        Args:
            width: the bytes of a value, which a null takes too; 0 for strings, each of which has an offset.
            longest: the bytes of the longest entry of the dictionary.
        """
        if self.by_prefix:
            return self.values * self.held
        return self.held + self.values * (width or _OFFSET + (longest if self.by_dictionary else 0))


def read_page_headers(bytes_at: BytesAt, start: int, values: int) -> list[PageHeader]:
    """The pages of a column of a row group.

    Args:
        bytes_at: returns bytes of the file.
        start: the position of the first page.
        values: the number of values by the footer: the pages end when they have so many.

    Raises:
        ValueError: there is no valid page header.
    """
    pages: list[PageHeader] = []
    seen = 0
    for _ in range(_MOST_PAGES):
        page, length = _read_page(bytes_at, start)
        if page is not None:
            pages.append(page)
            seen += 0 if page.is_dictionary else page.values
        if seen >= values:
            return pages
        start += length
    raise ValueError(f"a column has more than {_MOST_PAGES:,} pages")


def _read_page(bytes_at: BytesAt, start: int) -> tuple[PageHeader | None, int]:
    """A page's header, None for other kinds of pages, and the length of the page with its header, in bytes."""
    wanted = _FIRST_READ
    while True:
        data = bytes(bytes_at(start, wanted))
        try:
            return _parse_page(data, start)
        except IndexError:
            if len(data) < wanted or wanted >= _LONGEST:
                raise ValueError(f"no page begins at byte {start}") from None
            wanted *= 16


def _parse_page(data: bytes, start: int) -> tuple[PageHeader | None, int]:
    usual = _usual_page(data)
    (kind, size, stored, values, encoding), position = _any_page(data) if usual is None else usual
    if kind is None or size is None or stored is None or min(size, stored) < 0:
        raise ValueError("a page without its kind and size")
    length = position + stored
    if kind not in _INNER:
        return None, length
    if values is None or encoding is None or values < 0:
        raise ValueError("a page without the number of its values")
    return PageHeader(kind == _DICTIONARY, size, values, encoding, (start + position, stored)), length


def _any_page(data: bytes) -> tuple[list[int | None], int]:
    """Kind, size, stored bytes, number of values and encoding of a page, and the end of its header."""
    reader = CompactReader(data, "a page's header", deepest=_DEEPEST_PAGE)
    numbers: dict[int, int] = {}
    inner: dict[int, dict[int, int]] = {}
    for number in reader.fields(_PAGE):
        if _PAGE[number] == I32:
            numbers[number] = reader.integer(32)
        else:
            inner[number] = {part: reader.integer(32) for part in reader.fields(_COUNTS)}
    kind = numbers.get(_TYPE)
    counts = {} if kind not in _INNER else inner.get(_INNER[kind], {})
    encoding = counts.get(_ENCODING[kind]) if kind in _ENCODING else None
    return [*(numbers.get(number) for number in (_TYPE, _SIZE, _STORED)), counts.get(1), encoding], reader.position


# A header of a page of data (version 1), or of a dictionary, up to its statistics, if it has some. Numbers have at most
# 32 bits; the loop reads longer ones.
_SHORT = rb"([\x80-\xff]{0,3}[\x00-\x7f]|[\x80-\xff]{4}[\x00-\x0f])"
_USUAL_PAGE = re.compile(
    rb"\x15(?:\x00\x15S\x15S(?:\x15S)?[\x1c\x2c]\x15S\x15S\x15S\x15S(?=[\x00\x1c])"
    rb"|\x04\x15S\x15S(?:\x15S)?[\x3c\x4c]\x15S\x15S[\x11\x12]?(?=\x00))".replace(b"S", _SHORT)
)


@functools.cache
def _page_statistics() -> _LazyPattern:
    """The statistics of a page: bounds, and counts."""
    return _LazyPattern(_struct_of([_BINARY + _byte_string(), _INTEGER + _NUMBER, _TRUTH]))


def _usual_page(data: bytes) -> tuple[list[int | None], int] | None:
    """Same as :func:`_any_page` for headers in their usual form; None for others."""
    found = _USUAL_PAGE.match(data)
    if found is None:
        return None
    size, stored, checksum, values, encoding = found.group(*((1, 2, 3, 4, 5) if found[1] else (8, 9, 10, 11, 12)))
    end = found.end()
    # The number of the inner header follows from that of the field before, which is the checksum if there is one.
    inner = data[found.start(4 if found[1] else 11) - 2]
    if inner >> 4 != (_INNER[_DATA if found[1] else _DICTIONARY] - (4 if checksum else 3)):
        return None
    if data[end] == _INLINE_STRUCT:
        bounds = _page_statistics().match(data, end + 1)
        if bounds is None:
            reader = CompactReader(data, "a page's header", deepest=_DEEPEST_PAGE - 2, start=end + 1)
            for _ in reader.fields({}):
                pass
            end = reader.position
        else:
            end = bounds.end()
    if data[end : end + 2] != b"\0\0":
        return None
    kind = _DATA if found[1] else _DICTIONARY
    return [kind, _signed(size), _signed(stored), _signed(values), _signed(encoding)], end + 2


_INLINE_STRUCT: Final = 1 << 4 | STRUCT


def _signed(data: bytes) -> int:
    if len(data) == 1:
        return (data[0] >> 1) ^ -(data[0] & 1)
    number = 0
    for byte in reversed(data):
        number = number << 7 | byte & 127
    return (number >> 1) ^ -(number & 1)


# --- a file with the entries of a dictionary ---------------------------------------------------------------------

# Lists are written with the kind of their elements in the upper four bits.
_NUMBERS, _NAMES, _STRUCTS = (kind << 4 | LIST for kind in (I32, BINARY, STRUCT))
_MAGIC, _BYTE_ARRAY = b"PAR1", 6
_Fields = list[tuple[int, int, Any]]


def dictionary_file(page: PageHeader, body: bytes, codec: int) -> bytes:
    """A Parquet file with one column of byte arrays, the entries of a dictionary: the same bytes as a page of data.

    Args:
        page: the dictionary page.
        body: its body, as stored.
        codec: its compression, by Parquet's number.
    """
    values, size = page.values, page.size
    inner: _Fields = [(1, I32, values), (2, I32, 0), (3, I32, 3), (4, I32, 3)]
    data = _written([(1, I32, _DATA), (2, I32, size), (3, I32, len(body)), (5, STRUCT, inner)]) + body
    start = len(_MAGIC)
    column: _Fields = [
        *((1, I32, _BYTE_ARRAY), (2, _NUMBERS, [0]), (3, _NAMES, [b"a"]), (4, I32, codec), (5, I64, values)),
        *((6, I64, size), (7, I64, len(data)), (9, I64, start)),
    ]
    group: _Fields = [
        (1, _STRUCTS, [[(2, I64, start), (3, STRUCT, column)]]),
        (2, I64, len(data)),
        (3, I64, values),
    ]
    schema: list[_Fields] = [
        [(4, BINARY, b"s"), (5, I32, 1)],
        [(1, I32, _BYTE_ARRAY), (3, I32, 0), (4, BINARY, b"a")],
    ]
    footer = _written([(1, I32, 1), (2, _STRUCTS, schema), (3, I64, values), (4, _STRUCTS, [group])])
    return b"".join([_MAGIC, data, footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _written(fields: _Fields) -> bytes:
    """A struct of fields, each with its number, its kind and its value."""
    return b"".join(bytes([kind & 15, number << 1]) + _value(kind, value) for number, kind, value in fields) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (I32, I64):
        return _unsigned(value << 1)
    if kind == BINARY:
        return _unsigned(len(value)) + bytes(value)
    if kind == STRUCT:
        return _written(value)
    return bytes([len(value) << 4 | kind >> 4]) + b"".join(_value(kind >> 4, one) for one in value)


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
