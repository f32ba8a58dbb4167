"""Small Parquet files that are written by hand, page by page: their headers and footers are given."""

from __future__ import annotations

from typing import Any

MAGIC = b"PAR1"
INT32, INT64, BYTE_ARRAY, FIXED = 1, 2, 6, 7


class I32(int):
    """A number of Thrift's 32 bits; plain ones have 64."""


def _varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 127
        out.append(low | (128 if number else 0))
        if not number:
            return bytes(out)


def _zigzag(number: int) -> bytes:
    return _varint((number << 1) ^ (number >> 63))


def _kind(value: Any) -> int:
    return {I32: 5, int: 6, bytes: 8, list: 9, dict: 12}[type(value)]


def thrift(value: Any) -> bytes:
    """A value in Thrift's compact protocol; a struct is a mapping of the numbers of its fields."""
    match value:
        case bytes():
            return _varint(len(value)) + value
        case int():
            return _zigzag(value)
        case list():
            kind = _kind(value[0]) if value else 5
            many = bytes([len(value) << 4 | kind]) if len(value) < 15 else bytes([0xF0 | kind]) + _varint(len(value))
            return many + b"".join(map(thrift, value))
    fields = b"".join(bytes([_kind(item)]) + _zigzag(number) + thrift(item) for number, item in value.items())
    return fields + b"\0"


def run(count: int, value: int = 0) -> bytes:
    """So many equal levels or places in a dictionary, of one bit."""
    return _varint(count << 1) + bytes([value])


def levels(*runs: bytes) -> bytes:
    """Levels as a page has them."""
    body = b"".join(runs)
    return len(body).to_bytes(4, "little") + body


def text(value: bytes) -> bytes:
    """A value of variable length as a page has it."""
    return len(value).to_bytes(4, "little") + value


def column(kind: int, name: str = "a", *, length: int | None = None, string: bool = False) -> list[dict[int, Any]]:
    """A nullable column of a schema."""
    return [{1: I32(kind)} | ({2: I32(length)} if length else {}) | _named(name, string)]


def _named(name: str, string: bool) -> dict[int, Any]:
    return {3: I32(1), 4: name.encode()} | ({6: I32(0)} if string else {})


def list_column(kind: int, name: str = "a", *, string: bool = False) -> list[dict[int, Any]]:
    """A list of such."""
    leaf = {1: I32(kind), 3: I32(0), 4: b"element"} | ({6: I32(0)} if string else {})
    return [
        {3: I32(1), 4: name.encode(), 5: I32(1), 6: I32(3)},
        {3: I32(2), 4: b"list", 5: I32(1)},
        leaf,
    ]


def parquet_file(schema: list[dict[int, Any]], pages: list[bytes], *, kind: int, values: int) -> bytes:
    """A file of one row group with one flat column, called a, whose pages are not compressed."""
    start = len(MAGIC)
    body = b"".join(pages)
    meta: dict[int, Any] = {
        1: I32(kind),
        2: [I32(0), I32(3), I32(8)],
        3: [b"a"],
        4: I32(0),
        5: values,
        6: len(body),
        7: len(body),
        9: start,
    }
    group = {1: [{2: start, 3: meta}], 2: len(body), 3: values}
    top = {4: b"schema", 5: I32(1)}
    footer = thrift({1: I32(1), 2: [top, *schema], 3: values, 4: [group]})
    return MAGIC + body + footer + len(footer).to_bytes(4, "little") + MAGIC
