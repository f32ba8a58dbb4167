"""char(n) and varchar(n): strings in the log, whose lengths Spark records in the metadata of the column.

The recorded value is the SQL type of the whole column, such as ``array<varchar(5)>``. It is not part of PROTOCOL.md; a
writer that ignores it would store values that Spark does not allow.

A ``char(n)`` value is read with n characters. Files and partition values of other writers may lack the spaces, so
values are padded when they are read, at every depth (:func:`padding_of`), and the bounds in statistics are widened to
the padded values (:func:`padded_upper`). In a comparison of a column with constants or with another ``char`` column,
the shorter side is padded too (:mod:`refdelta.expressions.binding`); in other comparisons it is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from refdelta.errors import UnsupportedFeatureError
from refdelta.table.types import STRING, DataType, StructField, StructType

NOTE = "__CHAR_VARCHAR_TYPE_STRING"

_NESTED = re.compile(r"(struct|array|map)<")
_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|([^`:<>,]+)):")
_PLAIN = re.compile(r"(?:[^<>,()]|\([^()]*\))+")
# A collation may follow.
_LENGTH = re.compile(r"(char|varchar)\((\d{1,10})\)(?: collate \S+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Length:
    """The length of the strings of a column, in characters (code points).

    Attributes:
        limit: the most that a string may have.
        padded: whether shorter ones are filled with spaces: ``char``, not ``varchar``.
    """

    limit: int
    padded: bool

    def __str__(self) -> str:
        return f"{'char' if self.padded else 'varchar'}({self.limit})"


Lengths = Length | dict[str, "Lengths"]
"""Of a string, or of what is in a nested type: by the names of a struct's fields in lower case, or ``element``,
``key`` and ``value``; what has no length is not there."""


def lengths_of(column: StructField) -> Lengths | None:
    """The lengths that a column's metadata note, or None where there are none.

    Raises:
        UnsupportedFeatureError: a note that is not a type.
    """
    note = column.metadata.get(NOTE)
    if note is None:
        return None
    try:
        return _TypeReader(str(note)).whole()
    except (_BadNoteError, RecursionError):
        raise UnsupportedFeatureError([f"the type {note} of column {column.name}"], "write to") from None


def padding_of(column: StructField) -> Lengths | None:
    """The lengths to which strings of a column are padded when they are read: those of ``char``; None where there are
    none, or where the note is no type.

    Raises:
        UnsupportedFeatureError: strings of so many characters that a batch of rows would not fit into memory.
    """
    if NOTE not in column.metadata:
        return None
    try:
        found = _padded_only(lengths_of(column))
    except UnsupportedFeatureError:
        return None
    if _longest(found) > LONGEST:
        raise UnsupportedFeatureError([f"the type {column.metadata[NOTE]} of column {column.name}"], "read")
    return found


def char_length(schema: StructType, path: tuple[str, ...]) -> int | None:
    """The length to which a string of a table is padded when it is read, or None.

    Args:
        schema: the table's.
        path: of the column or the field of a struct, names in any case.
    """
    found = None
    here: DataType = schema
    for depth, name in enumerate(path):
        item = here.find(name) if isinstance(here, StructType) else None
        if item is None:
            return None
        # Spark knows of the lengths by the column alone.
        found = padding_of(item) if depth == 0 else found.get(name.lower()) if isinstance(found, dict) else None
        here = item.type
    return found.limit if isinstance(found, Length) and here == STRING else None


def padded(text: str, length: int) -> str:
    """A string, padded as a ``char(length)``."""
    return text.ljust(length)


def padded_upper(bound: str, length: int) -> str:
    """An upper bound of the padded forms of all strings that are at most ``bound``.

    Padding moves a string after those that continue with a character below the space.
    """
    longest = padded(_BELOW_SPACE.sub("", bound), length)
    return max(bound, longest, key=str.encode)


_BELOW_SPACE = re.compile("[\x00-\x1f].*", re.DOTALL)


LONGEST = 2**15 - 1
"""The greatest length to which strings are padded: an Arrow array holds 2 GiB, and a batch has 65,536 rows."""


def _longest(lengths: Lengths | None) -> int:
    if isinstance(lengths, dict):
        return max(map(_longest, lengths.values()))
    return 0 if lengths is None else lengths.limit


def _padded_only(lengths: Lengths | None) -> Lengths | None:
    if isinstance(lengths, dict):
        inner = {name: kept for name, part in lengths.items() if (kept := _padded_only(part)) is not None}
        return inner or None
    return lengths if lengths is not None and lengths.padded else None


class _BadNoteError(Exception):
    """Our own signal, which does not leave this module."""


class _TypeReader:
    """Reads one note from left to right."""

    def __init__(self, text: str):
        self.text, self.at = text, 0

    def whole(self) -> Lengths | None:
        found = self._type()
        if self.at != len(self.text):
            raise _BadNoteError
        return found

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.at):
            raise _BadNoteError
        self.at += len(mark)

    def _type(self) -> Lengths | None:
        nested = self._take(_NESTED)
        if nested is None:
            plain = self._take(_PLAIN)
            if plain is None:
                raise _BadNoteError
            length = _LENGTH.fullmatch(plain[0])
            return Length(int(length[2]), length[1].lower() == "char") if length else None
        if nested[1] == "struct":
            parts = self._fields()
        elif nested[1] == "array":
            parts = {"element": self._type()}
        else:
            parts = {"key": self._type()}
            self._expect(",")
            parts["value"] = self._type()
        self._expect(">")
        return {name: lengths for name, lengths in parts.items() if lengths is not None} or None

    def _fields(self) -> dict[str, Lengths | None]:
        parts: dict[str, Lengths | None] = {}
        while not self.text.startswith(">", self.at):
            if parts:
                self._expect(",")
            name = self._take(_FIELD)
            if name is None:
                raise _BadNoteError
            parts[(name[2] or name[1].replace("``", "`")).lower()] = self._type()
        return parts
