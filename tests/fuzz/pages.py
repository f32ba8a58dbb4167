"""Small Parquet files whose pages state other sizes than they have: reading them takes the memory of the bounds.

An input is a seed: a file of one to sixteen columns is drawn from it, whose pages are decodable and take some megabytes
at most, and then some of its numbers are replaced by ones of the same size. The limits are lowered to a 4,096th;
Arrow's own count of its memory is compared with them. The files run in children with limits, and are not kept.
"""

from __future__ import annotations

from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa

from fuzz.targets import Target
from fuzz.written import BYTE_ARRAY, FIXED, I32, INT32, INT64, MAGIC, column, levels, list_column, run, text, thrift
from refdelta.engine.parquet import limits
from refdelta.engine.parquet.files import data_errors
from refdelta.engine.parquet.limits import BoundedParquetFile

SMALLER = 2**12
MOST = limits.ROW_BYTES // SMALLER
"""The bytes of a batch with its pages and dictionaries."""

TWICE = 3
"""Arrow may hold a batch and its parts more than once: while it grows, and while a page is decompressed."""

_CODECS = {
    0: None,
    1: pa.Codec("snappy"),
    2: pa.Codec("gzip", 1),
    4: pa.Codec("brotli", 1),
    6: pa.Codec("zstd", 1),
}
_WIDTHS = {INT32: 4, INT64: 8, FIXED: 100}
_PLAIN, _DICTIONARY, _DELTA, _PREFIX, _SPLIT = 0, 8, 5, 7, 9
_LONG = 2**17  # bytes of a page, or of a value, that is long here
_ROWS = 64


def make(seed: bytes) -> bytes:
    """The file of a seed."""
    return _Draw(Random(seed)).file()


def read(data: bytes) -> Any:
    """Read the file of a seed: its rows or an error, and at most the memory of the limits."""
    content = make(data)
    # The count of pages is the default pool's, whose maximum nothing resets: this input has to set another one.
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    smaller = {name: getattr(limits, name) // SMALLER for name in ("BATCH_BYTES", "DICTIONARY_BYTES", "ROW_BYTES")}
    most = TWICE * MOST + 2 * len(content)
    try:
        with mock.patch.multiple(limits, **smaller, UNFOLDED=2), data_errors("x.parquet"):
            return _rows(content)
    finally:
        peak = pool.max_memory()
        assert peak <= max(before, most), f"{peak:,} bytes for a file of {len(content):,}"


def _rows(content: bytes) -> int:
    source = pa.BufferReader(content)
    found = 0
    with BoundedParquetFile(source, lambda at, length: content[at : at + length]) as file:
        for number, batch in enumerate(file.iter_batches(use_threads=False)):
            found += batch.num_rows
            if number > 3:
                break
    return found


class _Draw:
    def __init__(self, random: Random):
        self.random = random
        self.body = bytearray(MAGIC)
        self.lies = random.choice([0, 0, 0.01, 0.03])

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def number(self, value: int) -> int:
        """A number of a header or footer, sometimes another one."""
        if not self.chance(self.lies):
            return value
        return self.random.choice([0, 1, -1, value + 1, value - 1, value * 2, value // 2])

    def file(self) -> bytes:
        random = self.random
        rows = random.choice([1, 10, _ROWS])
        count = random.choice([1, 2, 4, 8, 16])
        shared = self.chance(0.5)
        schema, chunks = [], []
        drawn: tuple[list[Any], dict[int, Any]] | None = None
        for number in range(count):
            if drawn is None or not shared:
                drawn = self.column(rows)
            leaf, meta = drawn
            name = f"c{number}"
            own = [{**leaf[0], 4: name.encode()}, *leaf[1:]]
            schema += own
            path = [name.encode(), *(part[4] for part in own[1:])]
            chunks.append({2: 4, 3: {key: path if key == 3 else meta[key] for key in sorted({*meta, 3})}})
        groups = [{1: chunks, 2: len(self.body), 3: self.number(rows)}] * random.choice([1, 1, 2])
        top = {4: b"schema", 5: I32(count)}
        footer = thrift({1: I32(1), 2: [top, *schema], 3: self.number(rows * len(groups)), 4: groups})
        return bytes(self.body) + footer + len(footer).to_bytes(4, "little") + MAGIC

    def column(self, rows: int) -> tuple[list[Any], dict[int, Any]]:
        """The schema of a column, and its ``ColumnMetaData`` without the path."""
        random = self.random
        kind = random.choice([INT32, INT64, BYTE_ARRAY, BYTE_ARRAY, FIXED])
        self.codec = random.choice(list(_CODECS))
        self.repeated = self.chance(0.3)
        values = rows if not self.repeated else random.choice([rows, 2**7])
        start, has_dictionary = len(self.body), self.chance(0.5)
        late = has_dictionary and self.chance(0.1)
        if has_dictionary and not late:
            self.dictionary(kind)
        first, left = len(self.body), values
        while left > 0:
            some = left if self.chance(0.7) else random.randrange(1, left + 1)
            self.data(kind, some, has_dictionary, first=left == values)
            left -= some
            if late:
                self.dictionary(kind)
                late = False
        stored = len(self.body) - start
        meta: dict[int, Any] = {1: I32(kind), 2: [I32(0), I32(3), I32(8)], 4: I32(self.codec)}
        meta |= {5: self.number(values), 6: self.number(stored), 7: self.number(stored), 9: self.number(first)}
        if has_dictionary and not self.chance(0.1):
            meta[11] = self.number(start)
        length = 100 if kind == FIXED else None
        if self.repeated:
            leaf = list_column(kind, string=kind == BYTE_ARRAY and self.chance(0.5))
            leaf[2] |= {2: I32(length)} if length else {}
            leaf[2] = dict(sorted(leaf[2].items()))
            return leaf, meta
        return column(kind, length=length, string=kind == BYTE_ARRAY and self.chance(0.5)), meta

    def page(self, kind: int, inner: int, numbers: dict[int, Any], body: bytes) -> None:
        codec = _CODECS[self.codec]
        stored = body if codec is None else codec.compress(body, asbytes=True)
        wide = {key: self.wide(value) for key, value in numbers.items()}
        size = len(body)
        if self.chance(3 * self.lies):
            size = self.random.choice([0, 4, 100, size // 2, 2 * size])
        head = {1: self.wide(kind), 2: self.wide(size), 3: self.wide(len(stored)), inner: wide}
        self.body += thrift(head) + stored

    def wide(self, value: int) -> I32:
        return I32(self.number(value))

    def dictionary(self, kind: int) -> None:
        entries = self.random.choice([1, 1, 100])
        if kind == BYTE_ARRAY:
            body = text(b"x" * self.random.choice([1, 100, 2**12, 2**14, _LONG])) + text(b"y") * (entries - 1)
        else:
            entries = self.random.choice([entries, 2**16 // _WIDTHS[kind]])
            body = bytes(_WIDTHS[kind] * entries)
        self.page(2, 7, {1: entries, 2: 0}, body)

    def data(self, kind: int, values: int, has_dictionary: bool, *, first: bool) -> None:
        nulls = self.chance(0.2)
        above = levels(run(1) if first else run(1, 1), run(values - 1, 1)) if self.repeated else b""
        depth = 2 if self.repeated else 1
        above += levels(run(values, 1 if nulls and self.repeated else 0 if nulls else depth))
        if nulls:
            encoding, body = _PLAIN, b""
        elif has_dictionary and self.chance(0.8):
            encoding, body = _DICTIONARY, bytes([1]) + run(values)
        elif kind == BYTE_ARRAY:
            encoding, body = self.texts(values)
        else:
            encoding, body = _PLAIN, bytes(_WIDTHS[kind] * values)
        if self.chance(0.4):  # bytes after the values
            body += bytes(_LONG)
        self.page(0, 5, {1: values, 2: encoding, 3: 3, 4: 3}, above + body)

    def texts(self, values: int) -> tuple[int, bytes]:
        if self.chance(0.5):
            return _PREFIX, prefixes(values, self.random.choice([1, 100, _LONG]))
        return _PLAIN, text(b"z" * self.random.choice([1, 10, _LONG])) + text(b"") * (values - 1)


def prefixes(count: int, length: int) -> bytes:
    """Equal values of ``length`` bytes, the first of which is stored, as DELTA_BYTE_ARRAY."""
    return _deltas(0, length, count) + _deltas(length, 0, count) + b"x" * length


def _deltas(first: int, then: int, count: int) -> bytes:
    """DELTA_BINARY_PACKED of one number, and then of others that are equal."""
    step = then - first
    least = min(step, 0)
    width = abs(step).bit_length()
    numbers = [step - least] + [-least] * 127
    out = _varint(128) + _varint(4) + _varint(count) + _varint(2 * first)
    if count < 2:
        return out
    out += _varint((least << 1) ^ (least >> 63)) + bytes([width] * 4)
    for at in range(0, 128, 32):
        packed = sum(number << place * width for place, number in enumerate(numbers[at : at + 32]))
        out += packed.to_bytes(4 * width, "little")
    return out + (_varint(0) + bytes(4)) * (max(0, count - 2) // 128)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _seeds() -> list[bytes]:
    return [str(number).encode() for number in range(8)]


TARGETS = (Target("pages", read, "bytes", 4, _seeds, outside=True),)
