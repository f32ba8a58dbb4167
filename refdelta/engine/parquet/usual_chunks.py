"""What most writers write of a column of a row group, as a pattern: :mod:`refdelta.engine.parquet.footer` without its
loop.

A footer describes each column of each row group, often tens of thousands of them, and the loop goes through that byte
by byte. Patterns do so ten times faster, once they are compiled. They take nothing that the loop would refuse, and by
far not all that it would accept: what they do not take, the loop looks at. The bytes are Thrift's compact protocol: a
struct is its fields, each with a byte that says by how much its number is greater than the last one's, and its kind; a
zero byte ends it.
"""

from __future__ import annotations

import functools
import re

# A field of a kind, its number by one to fifteen greater than the last one's. They are no more than forty, so that
# numbers stay small: no field can be there twice. Repetitions are atomic groups: the possessive ones of Python before
# 3.11.5 do not match what they should.
_INTEGER, _BINARY, _LIST, _STRUCT, _TRUTH, _BYTE = (
    b"[" + b"".join(re.escape(bytes([delta << 4 | kind])) for delta in range(1, 16) for kind in kinds) + b"]"
    for kinds in ((5, 6), (8,), (9,), (12,), (1, 2), (3,))
)
_NUMBER = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_INTEGERS = b"(?>(?:" + _INTEGER + _NUMBER + b"){0,40})"
_LONG = 128  # a length from here on takes two bytes
_OFTEN = 500  # so many times the loop takes less time than it takes to compile a pattern


class _Pattern:
    """A pattern that takes nothing until it has been asked often: then it is compiled."""

    def __init__(self, pattern: bytes):
        self._pattern, self._asked = pattern, 0
        self._compiled: re.Pattern[bytes] | None = None

    def match(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """As that of a compiled one."""
        if self._compiled is None:
            self._asked += 1
            if self._asked <= _OFTEN:
                return None
            self._compiled = re.compile(self._pattern, re.DOTALL)
        return self._compiled.match(data, at)


def _list(kind: int, element: bytes) -> bytes:
    heads = (re.escape(bytes([count << 4 | kind])) + b"(?:" + element + b"){%d}" % count for count in range(7))
    return b"(?:" + b"|".join(heads) + b")"


def _lengths() -> bytes:
    return b"|".join(re.escape(bytes([length])) + b".{%d}" % length for length in range(_LONG))


# A ``ColumnChunk`` as far as the path in its ``ColumnMetaData``: the type is taken, the encodings are passed over.
_FIRST = re.compile(rb"(?:\x26" + _NUMBER + rb"\x1c|\x3c)\x15(.)\x19" + _list(5, _NUMBER) + rb"\x19", re.DOTALL)


@functools.lru_cache(maxsize=100)
def _rest(width: int) -> _Pattern:
    """What follows the path, to the end of the ``ColumnChunk``; takes what the lists of ``SizeStatistics`` begin with.

    Args:
        width: how many bytes each bound has; 0 where any number will do.
    """
    bound = re.escape(bytes([width])) + b".{%d}" % width if width else _lengths()
    part = b"|".join([_BINARY + b"(?:" + bound + b")", _INTEGER + _NUMBER, _TRUTH])
    statistics = _STRUCT + b"(?>(?:" + part + rb"){0,40})\x00"
    pages = _LIST + _list(12, _INTEGERS + rb"\x00")
    # Of repetition levels, then of definition levels: fields 2 and 3, of which either may be missing.
    both = rb"(?:\x16" + _NUMBER + rb"(?:\x19(?P<a>L)(?:\x19(?P<b>L))?|\x29(?P<c>L))?"
    both += rb"|\x29(?P<d>L)(?:\x19(?P<e>L))?|\x39(?P<f>L))?"
    sizes = _STRUCT + both.replace(b"L", _list(6, _NUMBER)) + rb"\x00"
    meta = b"(?>(?:" + b"|".join([_INTEGER + _NUMBER, pages, statistics]) + b"){0,40})(?:" + sizes + rb")?\x00"
    return _Pattern(meta + _INTEGERS + rb"\x00")


def _struct(parts: list[bytes]) -> bytes:
    return b"(?>(?:" + b"|".join(parts) + rb"){0,40})\x00"


@functools.cache
def _element() -> _Pattern:
    """A ``SchemaElement``: numbers, a name, and a ``LogicalType``, whose structs are four deep at most."""
    small = [_INTEGER + _NUMBER, _TRUTH, _BYTE + b"."]
    logical = _struct(small)
    for _ in range(3):
        logical = _struct([*small, _STRUCT + logical])
    return _Pattern(_struct([_INTEGER + _NUMBER, _STRUCT + logical, _BINARY + b"(?:" + _lengths() + b")"]))


def end_of_element(data: bytes, at: int) -> int | None:
    """Where the ``SchemaElement`` that begins there ends, or None: the loop has to look."""
    found = _element().match(data, at)
    return None if found is None else found.end()


class UsualChunk:
    """Descriptions of a leaf column, sound and of the usual form.

    Args:
        path: the column's, with dots.
        kind: the number of its physical type.
        width: how many bytes each of its bounds has to have; 0 where any number will do.
        repetition: its greatest repetition level.
        definition: its greatest definition level.
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
        """Where the description that begins there ends, or None: the loop has to look."""
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
        a, b, c, d, e, f = rest.groups()
        for found, counts in ((a or d, self._repetitions), (b or c or e or f, self._definitions)):
            if found is not None and found[0] >> 4 not in counts:
                return None
        return rest.end()
