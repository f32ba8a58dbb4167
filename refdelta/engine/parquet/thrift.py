"""Thrift's compact protocol, in which Parquet writes its footers and the headers of its pages, as far as it is needed.

A struct is its fields, each with a byte that says by how much its number is greater than the last one's, and its kind;
a zero byte ends it. What is not wanted is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from refdelta.engine.parquet.usual_chunks import UsualChunk, end_of_element

I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12
_MOST = 2**31


class CompactReader:
    """Goes through bytes. Each method raises ``IndexError`` where they end, ``ValueError`` where they are none of it.

    Args:
        data: the bytes.
        what: what they are, for errors.
        deepest: how deep structs and lists may nest.
    """

    __slots__ = ("_at", "_data", "_deepest", "_depth", "_what")

    def __init__(self, data: bytes, what: str, *, deepest: int):
        self._data, self._at, self._depth = data, 0, 0
        self._what, self._deepest = what, deepest

    @property
    def position(self) -> int:
        """How many bytes have been gone through."""
        return self._at

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
        if self._depth > self._deepest:
            raise ValueError(f"{self._what} nests too deeply")
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
                    raise ValueError(f"{self._what} has a field twice")
                seen |= 1 << number
                yield number
            elif not -(2**15) <= number < 2**15:
                raise ValueError(f"{self._what} has a field of an impossible number")
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
            raise ValueError(f"{self._what} counts more than there can be")
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
                raise ValueError(f"{self._what} has a number without end")
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
            raise ValueError(f"{self._what} has a field of the unknown kind {kind}")

    def _skip_each(self, count: int, kinds: tuple[int, ...]) -> None:
        if count > len(self._data):
            raise IndexError
        self._depth += 1
        if self._depth > self._deepest:
            raise ValueError(f"{self._what} nests too deeply")
        for _ in range(count):
            for kind in kinds:
                # Almost all structs that are passed over are of the schema.
                end = end_of_element(self._data, self._at) if kind == STRUCT else None
                if end is None:
                    self._skip(kind, in_list=True)
                else:
                    self._at = end
        self._depth -= 1
