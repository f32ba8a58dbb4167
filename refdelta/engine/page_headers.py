"""The headers of Parquet's pages (Parquet's specification, "Page Header", in Thrift's compact protocol).

pyarrow does not show them. Only what says how much a page unfolds to is kept; the rest is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BY_DICTIONARY = frozenset([2, 8])  # PLAIN_DICTIONARY, RLE_DICTIONARY
_BY_PREFIX: Final = 7  # DELTA_BYTE_ARRAY
# Fields of PageHeader, and of its three inner headers, each of which begins with the number of values.
_TYPE, _SIZE, _STORED = 1, 2, 3
_INNER = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_ENCODING = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
# A header has some ten bytes, and the least and the greatest value, where the writer put them there.
_FIRST_READ, _LONGEST = 256, 16 * 2**20
_MOST_PAGES = 2**20

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What a page says of itself.

    Attributes:
        is_dictionary: whether it holds the dictionary, else data.
        size: in bytes, when it is decompressed.
        values: how many values it has, nulls included; of a dictionary, how many entries.
        encoding: of the values, by Parquet's number.
        place: where its body stands in the file: the first byte, and how many.
    """

    is_dictionary: bool
    size: int
    values: int
    encoding: int
    place: tuple[int, int]

    @property
    def by_dictionary(self) -> bool:
        """Whether its values are places in the dictionary."""
        return not self.is_dictionary and self.encoding in _BY_DICTIONARY

    @property
    def by_prefix(self) -> bool:
        """Whether each of its values may begin with what the one before it is."""
        return self.encoding == _BY_PREFIX

    def unfolded(self, width: int) -> int:
        """How many bytes its values take at most.

        Args:
            width: how many bytes a value has, or the longest in the dictionary.
        """
        if self.by_prefix:
            return self.values * self.size
        return self.size + (self.values * width if self.encoding != 0 else 0)


def read_page_headers(bytes_at: Callable[[int, int], bytes | memoryview], start: int, values: int) -> list[PageHeader]:
    """The pages of a column of a row group.

    Args:
        bytes_at: gives the bytes of the file from a position on, so many or as many as there are.
        start: where the first page begins.
        values: how many values the column has there by the footer: the pages end with the one that has the last. With
            0 it is the first page alone.

    Raises:
        ValueError: what stands there is no header of a page.
    """
    pages: list[PageHeader] = []
    seen = 0
    for _ in range(_MOST_PAGES):
        page, length = _read(bytes_at, start)
        if page is not None:
            pages.append(page)
            seen += 0 if page.is_dictionary else page.values
        if seen >= values:
            return pages
        start += length
    raise ValueError(f"a column has more than {_MOST_PAGES:,} pages")


def _read(bytes_at: Callable[[int, int], bytes | memoryview], start: int) -> tuple[PageHeader | None, int]:
    """A page's header, None for kinds that are passed over, and how many bytes the page has, its header included."""
    wanted = _FIRST_READ
    while True:
        data = bytes(bytes_at(start, wanted))
        try:
            return _parse(_Compact(data), start)
        except IndexError:
            if len(data) < wanted or wanted >= _LONGEST:
                raise ValueError(f"no page begins at byte {start}") from None
            wanted *= 16


def _parse(compact: _Compact, start: int) -> tuple[PageHeader | None, int]:
    fields = compact.struct()
    kind, size, stored = (fields.get(number) for number in (_TYPE, _SIZE, _STORED))
    if not isinstance(kind, int) or not isinstance(size, int) or not isinstance(stored, int) or min(size, stored) < 0:
        raise ValueError("a page without its kind and size")
    length = compact.position + stored
    if kind not in _INNER:
        return None, length
    inner = fields.get(_INNER[kind])
    values, encoding = (inner.get(1), inner.get(_ENCODING[kind])) if isinstance(inner, dict) else (None, None)
    if not isinstance(values, int) or not isinstance(encoding, int) or values < 0:
        raise ValueError("a page without the number of its values")
    place = (start + compact.position, stored)
    return PageHeader(kind == _DICTIONARY, size, values, encoding, place), length


def texts_file(page: PageHeader, body: bytes, codec: int) -> bytes:
    """A Parquet file whose one column, of byte arrays, is what a dictionary holds: the same bytes, as a page of data.

    Args:
        page: the dictionary.
        body: its body, as it is stored.
        codec: how that is compressed, by Parquet's number.
    """
    values, size = page.values, page.size
    inner: Written = [(1, _I32, values), (2, _I32, 0), (3, _I32, 3), (4, _I32, 3)]
    data = _write([(1, _I32, _DATA), (2, _I32, size), (3, _I32, len(body)), (5, _STRUCT, inner)]) + body
    start = len(_MAGIC)
    column: Written = [
        *((1, _I32, _BYTE_ARRAY), (2, _LIST, [0]), (3, _NAMES, [b"a"]), (4, _I32, codec), (5, _I64, values)),
        *((6, _I64, size), (7, _I64, len(data)), (9, _I64, start)),
    ]
    group: Written = [
        (1, _STRUCTS, [[(2, _I64, start), (3, _STRUCT, column)]]),
        (2, _I64, len(data)),
        (3, _I64, values),
    ]
    schema: list[Written] = [
        [(4, _BINARY, b"s"), (5, _I32, 1)],
        [(1, _I32, _BYTE_ARRAY), (3, _I32, 0), (4, _BINARY, b"a")],
    ]
    footer = _write([(1, _I32, 1), (2, _STRUCTS, schema), (3, _I64, values), (4, _STRUCTS, [group])])
    return b"".join([_MAGIC, data, footer, len(footer).to_bytes(4, "little"), _MAGIC])


# Kinds of fields that are written: numbers, bytes, structs, and lists of each, whose kind has its elements' above it.
_I32, _I64 = 5, 6
_LIST, _NAMES, _STRUCTS = (kind << 4 | 9 for kind in (_I32, _BINARY, _STRUCT))
_MAGIC, _BYTE_ARRAY = b"PAR1", 6
Written = list[tuple[int, int, Any]]


def _write(fields: Written) -> bytes:
    """A struct of numbered fields, each with its kind and its value."""
    return b"".join(bytes([kind & 15, number << 1]) + _value(kind, value) for number, kind, value in fields) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (_I32, _I64):
        return _unsigned(value << 1)
    if kind == _BINARY:
        return _unsigned(len(value)) + bytes(value)
    if kind == _STRUCT:
        return _write(value)
    return bytes([len(value) << 4 | kind >> 4]) + b"".join(_value(kind >> 4, one) for one in value)


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


Fields = dict[int, "int | Fields | None"]


class _Compact:
    """Thrift's compact protocol, as far as it is needed: integers and structs; others are passed over.

    Raises ``IndexError`` where the bytes end.
    """

    def __init__(self, data: bytes):
        self._data = data
        self.position = 0

    def struct(self, depth: int = 0) -> Fields:
        """A struct: the integers and structs in it, by the numbers of their fields."""
        if depth > 8:
            raise ValueError("a page's header nests too deeply")
        found: Fields = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return found
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._integer()
            if kind in _INTEGERS:
                found[number] = self._integer()
            elif kind == _STRUCT:
                found[number] = self.struct(depth + 1)
            else:
                self._skip(kind, depth)

    def _skip(self, kind: int, depth: int) -> None:
        if kind in _BOOLEANS:
            return
        if kind == _BYTE:
            self._forward(1)
        elif kind == _DOUBLE:
            self._forward(8)
        elif kind == _BINARY:
            self._forward(self._varint())
        elif kind in _LISTS:
            head = self._byte()
            self._skip_each(self._varint() if head >> 4 == 15 else head >> 4, [head & 15], depth)
        elif kind == _MAP:
            count = self._varint()
            types = self._byte() if count else 0
            self._skip_each(count, [types >> 4, types & 15], depth)
        else:
            raise ValueError(f"a page's header has a field of the unknown kind {kind}")

    def _skip_each(self, count: int, kinds: list[int], depth: int) -> None:
        if count > len(self._data):
            raise IndexError
        for _ in range(count):
            for kind in kinds:
                if kind in _INTEGERS:
                    self._varint()
                elif kind == _STRUCT:
                    self.struct(depth + 1)
                elif kind in _BOOLEANS:
                    self._forward(1)  # in a list, each has a byte
                else:
                    self._skip(kind, depth + 1)

    def _byte(self) -> int:
        byte = self._data[self.position]
        self.position += 1
        return byte

    def _forward(self, length: int) -> None:
        self.position += length
        if self.position > len(self._data):
            raise IndexError

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a page's header has a number without end")

    def _integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)
