"""Footers and page headers with changed fields, for our reader alone: its patterns and its loop say the same.

An input is a seed. From it the footer of a sound file, or the header of a page, is drawn, and some fields are changed:
numbers, also with more bits than their fields or more bytes than needed, kinds, numbers of fields, sizes and kinds of
lists; fields are repeated, left out, added. The bytes go to our check, with the metadata of the sound file; no file is
made of them. :mod:`fuzz.compared` does that, in children with limits.
"""

from __future__ import annotations

import functools
import io
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.mutate import NUMBERS
from fuzz.targets import Target
from fuzz.written import BYTE_ARRAY, INT64, levels, run, text
from fuzz.written import I32 as Small
from fuzz.written import thrift as written
from refdelta.engine.parquet import metadata as reader
from refdelta.engine.parquet.metadata import I32, I64, LIST, STRUCT, ChunkPattern, check_footer, read_page_headers

if TYPE_CHECKING:
    from collections.abc import Callable

_TRUE, _FALSE, _BYTE, _I16, _DOUBLE, _BINARY, _SET, _MAP = 1, 2, 3, 4, 7, 8, 10, 11
_INTEGERS = (_I16, I32, I64)
# A struct is a list of fields, each a list of its number, its kind and its value; a list is a tuple of the kind of its
# elements and these.


class Thrift:
    """Structs of Thrift's compact protocol as trees, and back; without checks."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def struct(self) -> list[list[Any]]:
        fields, number = [], 0
        while True:
            head = self.data[self.at]
            self.at += 1
            if head == 0:
                return fields
            number = number + (head >> 4) if head >> 4 else self.varint() >> 1
            fields.append([number, head & 15, self.value(head & 15)])

    def value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return self.varint()
        if kind == STRUCT:
            return self.struct()
        if kind == LIST:
            head = self.data[self.at]
            self.at += 1
            count = self.varint() if head >> 4 == 15 else head >> 4
            return head & 15, [self.value(head & 15) for _ in range(count)]
        length = {_BINARY: self.varint, _BYTE: lambda: 1}.get(kind, lambda: 0)()
        self.at += length
        return self.data[self.at - length : self.at]


class Writer:
    """Writes a tree; some of its parts in unusual forms, if ``random`` is given."""

    def __init__(self, random: Random | None = None, odd: float = 0.0):
        self.random, self.odd = random, odd

    def strange(self) -> bool:
        return self.random is not None and self.random.random() < self.odd

    def varint(self, number: int) -> bytes:
        out = bytearray()
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
        if self.strange():
            out[-1] |= 128
            out += bytes([128]) * self.random.choice([0, 1, 3, 8, 20]) + b"\0"
        return bytes(out)

    def struct(self, fields: list[list[Any]]) -> bytes:
        out, before = bytearray(), 0
        for number, kind, value in fields:
            if 0 < number - before < 16 and not self.strange():
                out.append(number - before << 4 | kind)
            else:
                wide = number + self.random.choice([0, 0, 2**16, 2**32]) if self.strange() else number
                out += bytes([kind]) + self.varint((wide << 1) ^ (wide >> 63))
            before = number
            out += self.value(kind, value)
        return bytes(out) + b"\0"

    def value(self, kind: int, value: Any) -> bytes:
        if isinstance(value, bytes):
            return (self.varint(len(value)) if kind == _BINARY else b"") + value
        if isinstance(value, int):
            return self.varint(value)
        if isinstance(value, list):
            return self.struct(value)
        each, items = value
        shown = self.random.choice([each, _BYTE, I32, _BINARY, STRUCT, 0, 15]) if self.strange() else each
        count = len(items) + (self.random.choice([1, -1, 2**31, 2**32, 14]) if self.strange() else 0)
        count = max(0, count)
        many = count > 14 or self.strange()
        head = bytes([0xF0 | shown]) + self.varint(count) if many else bytes([count << 4 | shown])
        return head + b"".join(self.value(each, item) for item in items)


def _places(value: Any) -> list[list[list[Any]]]:
    """All structs of a tree."""
    found, stack = [], [value]
    while stack:
        here = stack.pop()
        if isinstance(here, list):
            found.append(here)
            stack += [field[2] for field in here]
        elif isinstance(here, tuple):
            stack += here[1]
    return found


_ZIGZAG = [(number << 1) ^ (number >> 80) for number in NUMBERS]


def _change(random: Random, tree: list[list[Any]]) -> None:
    """Change one field of a struct somewhere in a tree."""
    fields = random.choice(_places(tree))
    if not fields:
        return
    field = random.choice(fields)
    match random.randrange(9):
        case 0:
            fields.remove(field)
        case 1:
            fields.insert(random.randrange(len(fields) + 1), [field[0], field[1], field[2]])
        case 2:
            field[0] += random.choice([1, -1, 5, 2**15, 2**16, 2**31])
        case 3:
            kind = random.choice([_TRUE, _FALSE, _BYTE, _I16, I32, I64, _DOUBLE, _BINARY, LIST, _SET, _MAP, STRUCT, 13])
            field[1] = kind
            if random.random() < 0.7:
                field[2] = _of_kind(random, kind)
        case 4:
            kind = random.choice([_TRUE, _BYTE, I32, I64, _BINARY, LIST, _SET, _MAP, STRUCT])
            number = random.choice([field[0], field[0] + 1, 30, 2**15 - 1])
            fields.insert(random.randrange(len(fields) + 1), [number, kind, _of_kind(random, kind)])
        case 5 if isinstance(field[2], tuple):
            items = list(field[2][1])
            items = random.choice([items[:-1], items + items[:1], []])
            field[2] = (random.choice([field[2][0], I32, STRUCT, _BINARY]), items)
        case _:
            numbers = [one for one in fields if isinstance(one[2], int)]
            if numbers:
                one = random.choice(numbers)
                more = [one[2] + 2**32, one[2] + 2**33, one[2] + 2**64, one[2] ^ 1, one[2] + 2, one[2] * 2]
                one[2] = random.choice([*_ZIGZAG, *more, *more, *more])


def _of_kind(random: Random, kind: int) -> Any:
    if kind in _INTEGERS:
        return random.choice([0, 1, 2, 200, 2**32, 2**40])
    if kind in (LIST, _SET):
        each = random.choice([_TRUE, I32, _BINARY, STRUCT])
        return each, [b"\1" if each == _TRUE else _of_kind(random, each) for _ in range(random.randrange(3))]
    if kind == STRUCT:
        return [[1, I32, 2]] if random.random() < 0.5 else []
    if kind == _MAP:
        return random.choice([b"\0", bytes([1, I32 << 4 | I32, 2, 2]), bytes([1, 0x11, 1, 1])])
    return {_BYTE: b"\7", _DOUBLE: bytes(8), _BINARY: b"xy", 13: bytes(16)}.get(kind, b"")


def changed(seed: bytes, tree: list[list[Any]]) -> bytes:
    random = Random(seed)
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        _change(random, tree)
    return Writer(random, random.choice([0, 0, 0, 0.02, 0.1])).struct(tree)


# --- footers -----------------------------------------------------------------------------------------------------


@functools.cache
def sound() -> list[bytes]:
    """Sound files."""
    tables = [
        pa.table({"id": [1, 2, 3]}),
        pa.table({"s": ["x", "y", None], "b": [True, None, False], "l": [[1, 2], [], None]}),
        pa.table({"d": pa.array(["1.5", None]).cast(pa.decimal128(30, 2)), "m": pa.array([1, 2], pa.timestamp("us"))}),
    ]
    files = []
    for number, table in enumerate(tables):
        sink = io.BytesIO()
        pq.write_table(
            table, sink, row_group_size=2, store_schema=number == 2, compression=["none", "snappy"][number % 2]
        )
        files.append(sink.getvalue())
    return files


@functools.cache
def _metadata() -> list[Any]:
    return [pq.ParquetFile(pa.BufferReader(data)).metadata for data in sound()]


def changed_footer(seed: bytes, which: int) -> bytes:
    """The footer of a sound file, with changes."""
    data = sound()[which]
    length = int.from_bytes(data[-8:-4], "little")
    return changed(seed, Thrift(data[-8 - length : -8]).struct())


def footer(seed: bytes) -> Any:
    """Check a changed footer: patterns and loop take the same, and both refuse it by a ``ValueError`` alone."""
    which = Random(seed + b"f").randrange(len(sound()))
    footer = changed_footer(seed, which)
    data = footer + len(footer).to_bytes(4, "little") + b"PAR1"

    def check() -> Any:
        return check_footer(_metadata()[which], lambda start, length: data[start : start + length], len(data))

    with mock.patch.multiple(reader, _known_heads=(), _COMPILE_AFTER=0):
        by_patterns = _refused_or(check)
    with (
        mock.patch.multiple(reader, _known_heads=(), end_of_schema_element=mock.Mock(return_value=None)),
        mock.patch.object(ChunkPattern, "end", return_value=None),
    ):
        by_loop = _refused_or(check)
    assert (by_patterns is None) == (by_loop is None), f"patterns: {by_patterns}, loop: {by_loop}"
    assert by_patterns == by_loop
    return by_patterns


def _refused_or(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError:
        return None


# --- page headers ------------------------------------------------------------------------------------------------


def pages(random: Random) -> tuple[int, list[tuple[list[list[Any]], bytes]], int]:
    """The pages of a column, each as the tree of its header and its body; the column's type, and its values."""
    kind = random.choice([INT64, BYTE_ARRAY])
    value = (7).to_bytes(8, "little") if kind == INT64 else text(b"abc")
    count = random.choice([1, 3, 200])
    plain, places = levels(run(count, 1)) + value * count, levels(run(count, 1)) + bytes([1]) + run(count)
    data = [(0, 5, 0, plain, 3), (0, 5, 0, plain, 3)]
    if random.random() < 0.5:
        data = [(2, 7, 0, value, None), (0, 5, 8, places, 3), (0, 5, 8, places, 3)]
    if random.random() < 0.3:
        data.insert(1, (1, 6, 0, b"", None))  # a page of another kind, which is skipped
    found = []
    for page, inner, encoding, body, of_levels in data:
        head: dict[int, Any] = {1: Small(page), 2: Small(len(body)), 3: Small(len(body))}
        if page != 1:
            counts = {1: Small(count if page == 0 else 1), 2: Small(encoding)}
            head[inner] = counts if of_levels is None else counts | {3: Small(of_levels), 4: Small(of_levels)}
        found.append((Thrift(written(head)).struct(), body))
    return kind, found, 2 * count


def headers(seed: bytes) -> Any:
    """Read pages of which one has a changed header: pattern and loop find the same pages."""
    _, trees, values = pages(Random(seed + b"h"))
    which = Random(seed + b"w").randrange(len(trees))
    stored = [(Writer().struct(head), body) for head, body in trees]
    stored[which] = (changed(seed, trees[which][0]), trees[which][1])
    data = b"".join(head + body for head, body in stored)

    def read() -> Any:
        return read_page_headers(lambda at, length: data[at : at + length], 0, values)

    with mock.patch.object(reader, "_COMPILE_AFTER", 0):
        by_pattern = _refused_or(read)
    with mock.patch.object(reader, "_usual_page", return_value=None):
        by_loop = _refused_or(read)
    assert by_pattern == by_loop
    if by_loop is None:
        return None
    for page in by_loop:
        numbers = (page.size, page.place[1], page.values, page.encoding)
        assert max(numbers) < 2**31, f"numbers of more than 32 bits: {numbers}"
    return tuple((page.is_dictionary, page.encoding % 16) for page in by_loop)[:4]


def seeds() -> list[bytes]:
    """The first inputs."""
    return [str(number).encode() for number in range(40)]


TARGETS = (Target("footers", footer, "bytes", 40, seeds), Target("page-headers", headers, "bytes", 40, seeds))
