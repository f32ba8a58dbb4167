"""Statistics of a data file (PROTOCOL.md, "Per-file Statistics"), and how long strings are shortened in them.

Bounds stay bounds when strings are shortened. Strings are compared by their UTF-8 bytes, which is the order of code
points and so Python's own.
"""

from __future__ import annotations

from typing import Any

import msgspec

STRING_PREFIX = 32
"""How many characters of a string the bounds keep by default, as in delta-spark."""

_ASCII_MAX = "\x7f"
_UNICODE_MAX = "\U0010ffff"


def truncate_min(value: str, n: int = STRING_PREFIX) -> str:
    """A lower bound of ``value`` of at most ``n`` characters: its prefix."""
    return value[:n]


def truncate_max(value: str, n: int = STRING_PREFIX) -> str | None:
    """An upper bound of ``value``, short where that is possible.

    A prefix is followed by a character that is larger than the one it replaces. Where that one is itself the largest
    there is, the prefix grows, up to ``2 * n`` characters.

    Returns:
        The bound, or None where none is short enough: then the file has no maximum for the column.
    """
    if len(value) <= n:
        return value
    for length in range(n, min(2 * n, len(value) - 1) + 1):
        if value[length] != _UNICODE_MAX:
            return value[:length] + (_ASCII_MAX if value[length] < _ASCII_MAX else _UNICODE_MAX)
    return value if len(value) <= 2 * n else None


class FileStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The statistics of one file; nested maps mirror the schema, by physical names.

    Attributes:
        num_records: rows in the file, those that a deletion vector hides included.
        tight_bounds: whether the bounds are reached by rows that are live; False after a deletion vector was written.
            Absent means True.
        min_values: lower bounds by column.
        max_values: upper bounds by column.
        null_count: nulls by column; with wide bounds meaningful only where it is 0 or ``num_records``.
    """

    num_records: int | None = None
    tight_bounds: bool | None = None
    min_values: dict[str, Any] | None = None
    max_values: dict[str, Any] | None = None
    null_count: dict[str, Any] | None = None

    @property
    def tight(self) -> bool:
        """Whether the bounds are tight."""
        return self.tight_bounds is not False


_DECODER = msgspec.json.Decoder(FileStats, strict=True)
_ENCODER = msgspec.json.Encoder()


def parse_stats(text: str | None) -> FileStats | None:
    """The statistics in ``add.stats``; None where there are none, or where they are not what the specification
    describes.

    Statistics are an aid: a file whose statistics cannot be read is a file without statistics.
    """
    if not text:
        return None
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def encode_stats(stats: FileStats) -> str:
    """The inverse of :func:`parse_stats`: JSON without spaces, absent fields left out."""
    return _ENCODER.encode(stats).decode()
