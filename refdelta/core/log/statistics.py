"""The statistics of data files in the log (PROTOCOL.md, "Per-file Statistics"). Unreadable ones count as missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from refdelta.core.log.claims import row_count

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add, Remove


class FileStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The statistics of one file; nested maps mirror the schema, by physical names.

    Attributes:
        num_records: rows in the file, those that a deletion vector hides included.
        tight_bounds: whether live rows reach the bounds; False after a deletion vector was written. Absent means True.
        min_values: lower bounds by column.
        max_values: upper bounds by column.
        null_count: nulls by column; with wide bounds meaningful only if it is 0 or ``num_records``.
    """

    num_records: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
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
    """The statistics in ``add.stats``; None if there are none, or if they do not follow the specification."""
    if not text:
        return None
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def widened(text: str | None, num_records: int | None = None) -> str | None:
    """The statistics of a file after rows of it were hidden: the bounds hold but may be wide (``tightBounds``).

    Args:
        text: the old ``add.stats``. Its other members are kept, character by character.
        num_records: rows in the file, the hidden ones included; for statistics without it.

    Returns:
        The new ``add.stats``; None if it would be empty.
    """
    try:
        found = _RAW.decode(text) if parse_stats(text) is not None and text else {}
    except msgspec.MsgspecError:
        found = {}
    if num_records is not None and found.get("numRecords", _NULL) == _NULL:
        found = {
            "numRecords": msgspec.Raw(b"%d" % num_records),
            **{k: v for k, v in found.items() if k != "numRecords"},
        }
    return _ENCODER.encode({**found, "tightBounds": msgspec.Raw(b"false")}).decode() if found else None


_NULL = msgspec.Raw(b"null")


def num_records(add: Add | Remove) -> int | None:
    """The number of rows of a file, hidden ones included, from its statistics; None if they do not say it."""
    found = parse_stats(add.stats)
    return None if found is None else row_count(found.num_records)
