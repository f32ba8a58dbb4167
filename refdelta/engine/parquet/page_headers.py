"""The headers of Parquet's pages (Parquet's specification, "Page Header", in Thrift's compact protocol).

pyarrow does not show them. Only what says how much a page unfolds to is kept; the rest is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from refdelta.engine.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, CompactReader

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BY_DICTIONARY = frozenset([2, 8])  # PLAIN_DICTIONARY, RLE_DICTIONARY
_BY_PREFIX: Final = 7  # DELTA_BYTE_ARRAY
# Fields of PageHeader, and of its three inner headers, each of which begins with the number of values.
_TYPE, _SIZE, _STORED = 1, 2, 3
_INNER = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_ENCODING = {_DATA: 2, _DICTIONARY: 2, _DATA_V2: 4}
_PAGE: Final = {_TYPE: I32, _SIZE: I32, _STORED: I32, **dict.fromkeys(_INNER.values(), STRUCT)}
_COUNTS: Final = dict.fromkeys((1, *_ENCODING.values()), I32)
_DEEPEST = 8
# A header has some ten bytes, and the least and the greatest value, where the writer put them there.
_FIRST_READ, _LONGEST = 256, 16 * 2**20
_MOST_PAGES = 2**20


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
            return _parse(CompactReader(data, "a page's header", deepest=_DEEPEST), start)
        except IndexError:
            if len(data) < wanted or wanted >= _LONGEST:
                raise ValueError(f"no page begins at byte {start}") from None
            wanted *= 16


def _parse(reader: CompactReader, start: int) -> tuple[PageHeader | None, int]:
    said: dict[int, int] = {}
    inner: dict[int, dict[int, int]] = {}
    for number in reader.fields(_PAGE):
        if _PAGE[number] == I32:
            said[number] = reader.integer()
        else:
            inner[number] = {part: reader.integer() for part in reader.fields(_COUNTS)}
    kind, size, stored = (said.get(number) for number in (_TYPE, _SIZE, _STORED))
    if kind is None or size is None or stored is None or min(size, stored) < 0:
        raise ValueError("a page without its kind and size")
    length = reader.position + stored
    if kind not in _INNER:
        return None, length
    counts = inner.get(_INNER[kind], {})
    values, encoding = counts.get(1), counts.get(_ENCODING[kind])
    if values is None or encoding is None or values < 0:
        raise ValueError("a page without the number of its values")
    place = (start + reader.position, stored)
    return PageHeader(kind == _DICTIONARY, size, values, encoding, place), length


def texts_file(page: PageHeader, body: bytes, codec: int) -> bytes:
    """A Parquet file whose one column, of byte arrays, is what a dictionary holds: the same bytes, as a page of data.

    Args:
        page: the dictionary.
        body: its body, as it is stored.
        codec: how that is compressed, by Parquet's number.
    """
    values, size = page.values, page.size
    inner: Written = [(1, I32, values), (2, I32, 0), (3, I32, 3), (4, I32, 3)]
    data = _write([(1, I32, _DATA), (2, I32, size), (3, I32, len(body)), (5, STRUCT, inner)]) + body
    start = len(_MAGIC)
    column: Written = [
        *((1, I32, _BYTE_ARRAY), (2, _NUMBERS, [0]), (3, _NAMES, [b"a"]), (4, I32, codec), (5, I64, values)),
        *((6, I64, size), (7, I64, len(data)), (9, I64, start)),
    ]
    group: Written = [
        (1, _STRUCTS, [[(2, I64, start), (3, STRUCT, column)]]),
        (2, I64, len(data)),
        (3, I64, values),
    ]
    schema: list[Written] = [
        [(4, BINARY, b"s"), (5, I32, 1)],
        [(1, I32, _BYTE_ARRAY), (3, I32, 0), (4, BINARY, b"a")],
    ]
    footer = _write([(1, I32, 1), (2, _STRUCTS, schema), (3, I64, values), (4, _STRUCTS, [group])])
    return b"".join([_MAGIC, data, footer, len(footer).to_bytes(4, "little"), _MAGIC])


# Lists are written with the kind of their elements above their own.
_NUMBERS, _NAMES, _STRUCTS = (kind << 4 | LIST for kind in (I32, BINARY, STRUCT))
_MAGIC, _BYTE_ARRAY = b"PAR1", 6
Written = list[tuple[int, int, Any]]


def _write(fields: Written) -> bytes:
    """A struct of numbered fields, each with its kind and its value."""
    return b"".join(bytes([kind & 15, number << 1]) + _value(kind, value) for number, kind, value in fields) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (I32, I64):
        return _unsigned(value << 1)
    if kind == BINARY:
        return _unsigned(len(value)) + bytes(value)
    if kind == STRUCT:
        return _write(value)
    return bytes([len(value) << 4 | kind >> 4]) + b"".join(_value(kind >> 4, one) for one in value)


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
