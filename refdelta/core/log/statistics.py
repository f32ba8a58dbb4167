"""The statistics of a data file as the log has them (PROTOCOL.md, "Per-file Statistics").

They are an aid: what cannot be read is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add


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


_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def widened(text: str | None, num_records: int | None = None) -> str | None:
    """Statistics of a file of which some rows are hidden from now on: bounds still hold, but need not be reached
    (``tightBounds``).

    Args:
        text: ``add.stats`` as it was. What it says of values stays as it is, character by character.
        num_records: rows in the file, the hidden ones included; for statistics that do not say it.

    Returns:
        The new ``add.stats``; None where there is nothing to say.
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


def num_records(add: Add) -> int | None:
    """How many rows a file has, hidden ones included, as its statistics say."""
    found = parse_stats(add.stats)
    return None if found is None else found.num_records
