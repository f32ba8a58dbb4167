"""Statistics of a file against its rows (PROTOCOL.md, "Per-file Statistics")."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.claims import CUT_LENGTH
from refdelta.pruning.stats import lookup, statistic
from refdelta.table.char_varchar import char_length
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FRACTIONAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    DataType,
    StructType,
    is_nested,
    leaves,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_TIMES = (TIMESTAMP, TIMESTAMP_NTZ)
_MILLISECOND = 1000


class ColumnSummary:
    """The nulls and bounds of one column over the rows of a file.

    Attributes:
        path: its logical path.
        physical: its physical path, which statistics use.
        type: its type.
        nulls: the number of nulls in all rows of the file, deleted ones included.
        live_nulls: the number of nulls in live rows.
        low: the least live value except NaN, as an internal value; None if there is none.
        high: the greatest live value, likewise.
        nan: whether a live row has NaN.
        padded: whether the reader pads values with spaces that the file may lack; trailing spaces are then ignored.
    """

    def __init__(self, path: tuple[str, ...], physical: tuple[str, ...], kind: DataType, *, padded: bool = False):
        self.path, self.physical, self.type, self.padded = path, physical, kind, padded
        self.nulls = self.live_nulls = 0
        self.low: Any = None
        self.high: Any = None
        self.nan = False
        self.bounded = not is_nested(kind) and kind not in (BINARY, VOID, VARIANT)

    def take(self, rows: pa.RecordBatch, live: pa.RecordBatch) -> None:
        """Add a batch: all of its rows, and those of them that are live."""
        self.nulls += _column(rows, self.path).null_count
        column = _column(live, self.path)
        self.live_nulls += column.null_count
        if not self.bounded or column.null_count == len(column):
            return
        if self.type in FRACTIONAL:
            here = pc.is_nan(column)
            self.nan = self.nan or bool(pc.any(here).as_py())
            column = column.filter(pc.invert(here))
        elif self.type == DATE:
            column = column.view(pa.int32())
        elif self.type in _TIMES:
            column = column.view(pa.int64())
        elif self.type == BOOLEAN:
            column = column.cast(pa.uint8())
        elif self.padded:
            column = pc.utf8_rtrim(column, " ")
        bounds = pc.min_max(column)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)


def _column(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def file_leaves(schema: StructType, partition_columns: Collection[str]) -> list[ColumnSummary]:
    """The columns of which files have statistics, as empty summaries."""
    pairs = zip(leaves(schema), leaves(schema, physical=True), strict=True)
    return [
        ColumnSummary(path, physical, item.type, padded=char_length(schema, path) is not None)
        for (path, item), (physical, _) in pairs
        if path[0] not in partition_columns
    ]


class StatsCheck:
    """The check of the statistics of a file against its rows.

    Args:
        stats: the JSON of ``add.stats``.
        vector: whether the file has a deletion vector.
        rows: the number of its rows, deleted ones included.
        find: takes clause and message of a finding.
    """

    def __init__(self, stats: dict[str, Any], *, vector: bool, rows: int, find: Callable[[str, str], None]):
        self.stats, self.vector, self.rows, self.find = stats, vector, rows, find
        self.tight = stats.get("tightBounds") is not False

    def run(self, leaf: ColumnSummary, live_rows: int) -> None:
        """Check the statistics of one column."""
        self._nulls(leaf, live_rows)
        if leaf.low is None or not leaf.bounded:
            return
        for part, upper in (("minValues", False), ("maxValues", True)):
            raw = lookup(self.stats.get(part), leaf.physical)
            if raw is None:
                continue
            bound = statistic(raw, leaf.type)
            if bound is None:
                self.find("stats-6", f"{part} of {_name(leaf)} is {raw!r}, which is not a value of type {leaf.type}")
            elif not (isinstance(bound, float) and math.isnan(bound)):
                self._bound(leaf, part, bound, upper=upper)

    def _nulls(self, leaf: ColumnSummary, live_rows: int) -> None:
        said = lookup(self.stats.get("nullCount"), leaf.physical)
        if not isinstance(said, int) or isinstance(said, bool):
            return
        name = _name(leaf)
        if self.tight:
            if said not in (leaf.nulls, leaf.live_nulls):
                self.find("stats-5", f"nullCount of {name} is {said}, and {leaf.nulls} rows are null")
        elif said == self.rows and leaf.live_nulls != live_rows:
            self.find("stats-5", f"nullCount of {name} is {said}, the number of all rows, and live rows are not null")
        elif said == 0 and leaf.live_nulls:
            self.find("stats-5", f"nullCount of {name} is 0, and {leaf.live_nulls} live rows are null")

    def _bound(self, leaf: ColumnSummary, part: str, bound: Any, *, upper: bool) -> None:
        value = leaf.high if upper else leaf.low
        if leaf.type == BOOLEAN:
            bound = int(bound)
        elif leaf.padded:
            bound = bound.rstrip(" ")
            value = value.ljust(len(bound))  # a truncated bound may end in a space, raised by one
        outside = bound < value if upper else bound > value
        if outside and not _rounded(leaf.type, bound, value):
            self.find("stats-1", f"{part} of {_name(leaf)} is {bound!r}, and a live row has {value!r}")
        elif upper and leaf.nan and self.tight:
            return  # NaN is the greatest value; writers then omit the maximum, or give that of the other values
        elif self.tight and not self.vector and not _reached(leaf.type, bound, value):
            self.find(
                "stats-3",
                f"{part} of {_name(leaf)} is {bound!r} with tight bounds, and the value of the rows is {value!r}",
            )


def _rounded(kind: DataType, bound: Any, value: Any) -> bool:
    """True if a value lies outside of a bound only because of a truncation that the specification allows."""
    if kind in _TIMES:
        return bool(0 <= value - bound < _MILLISECOND)
    if kind in FRACTIONAL:
        return bool(np.float32(bound) == np.float32(value))
    # PROTOCOL.md lets strings be "cut off at a fixed prefix length".
    return kind == STRING and len(bound) >= CUT_LENGTH and bool(value.startswith(bound))


def _reached(kind: DataType, bound: Any, value: Any) -> bool:
    if bound == value:
        return True
    if kind in _TIMES:
        return bool(abs(value - bound) < _MILLISECOND)
    if kind in FRACTIONAL:
        return bool(np.float32(bound) == np.float32(value))
    # A truncated string, perhaps with a character appended, or with its last character raised.
    return kind == STRING and len(bound) >= CUT_LENGTH and bool(value.startswith(bound[:-1]))


def _name(leaf: ColumnSummary) -> str:
    return ".".join(leaf.path)
