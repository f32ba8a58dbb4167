"""What the statistics of files say, file by file: how many rows, and all of it as the log writes it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.actions import Add
from refdelta.core.log.statistics import parse_stats
from refdelta.core.table.types import StructType
from refdelta.engine.log.state import STATS_PARSED, to_adds
from refdelta.engine.scan.file_stats import view_stats

_ENCODER = msgspec.json.Encoder(decimal_format="number")
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def num_records(files: pa.Table) -> pa.Array:
    """How many physical rows each file of a list has, deleted ones included; null where its statistics do not say.

    Implements PROTOCOL.md, "Per-file Statistics", ``numRecords``.
    """
    rows = view_stats(files, StructType(), ()).rows
    return pc.if_else(pc.greater_equal(rows, 0), rows, pa.scalar(None, pa.int64()))


def whole_adds(files: pa.Table) -> list[Add]:
    """The entries of a file list as actions, in their order; statistics that a checkpoint has as a struct alone are
    written as JSON.
    """
    adds = to_adds(files)
    if STATS_PARSED not in files.column_names:
        return adds
    column = files.column(STATS_PARSED)
    return [
        add if parse_stats(add.stats) is not None else msgspec.structs.replace(add, stats=_text(column.slice(row, 1)))
        for row, add in enumerate(adds)
    ]


def counted_add(file: pa.Table, physical_rows: int) -> Add:
    """The entry of a file that is to get a deletion vector: its statistics say how many rows it has, whatever the log
    says of that.

    Implements PROTOCOL.md, "Writer Requirement for Deletion Vectors": without ``numRecords`` nobody could tell how many
    rows are live. Statistics that a checkpoint has as a struct alone are kept, as JSON.

    Args:
        file: one row of a snapshot's file list.
        physical_rows: how many rows the file has by its footer, deleted ones included.
    """
    (add,) = whole_adds(file)
    stats = add.stats
    known = parse_stats(stats)
    if known is None or stats is None:
        stats = _ENCODER.encode({"numRecords": physical_rows}).decode()
    elif known.num_records != physical_rows:
        rest = {name: value for name, value in _RAW.decode(stats).items() if name != "numRecords"}
        stats = _ENCODER.encode({"numRecords": physical_rows, **rest}).decode()
    return msgspec.structs.replace(add, stats=stats)


def _text(parsed: pa.ChunkedArray) -> str | None:
    try:
        (value,) = parsed.to_pylist()
    except (ValueError, OverflowError):  # a date that Python's calendar does not have
        return None
    return None if value is None else _ENCODER.encode(_json(value)).decode()


def _json(value: Any) -> Any:
    """A value of a struct of statistics as JSON has it; None for what JSON has no form for."""
    if isinstance(value, dict):
        parts = {name: _json(part) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part is not None}
    if isinstance(value, dt.datetime):
        utc = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        return utc.isoformat(timespec="microseconds") + ("" if value.tzinfo is None else "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | Decimal) else None
