"""Statistics of a data file, collected while it is written (PROTOCOL.md, "Per-file Statistics").

The columns with statistics are those of ``delta.dataSkippingStatsColumns``, or else the first
``delta.dataSkippingNumIndexedCols`` leaves of the schema without its partition columns, and in any case the clustering
columns. A leaf is any column but a struct. Every such leaf has a null count. Numbers, dates, timestamps and strings,
the types for which delta-spark keeps bounds, have a minimum and a maximum too.

A bound that cannot be written exactly is widened or left out, never narrowed: long strings are cut by
:mod:`refdelta.pruning.stats`, the maximum of timestamps is rounded up to the millisecond, and a bound that is NaN,
infinite or beyond the year 9999 is left out. NaN is the greatest value, as in Spark: a file with one has no maximum.
So the bounds are exact, and where those of another writer would have a margin the file is marked
(:data:`refdelta.core.log.claims.EXACT_BOUNDS`).

Columns have their physical names, as in files.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.claims import EXACT_BOUNDS, needs_mark
from refdelta.engine.parquet.dictionaries import used_texts
from refdelta.errors import InvalidArgumentError
from refdelta.pruning.stats import truncate_max, truncate_min
from refdelta.table.clustering import ColumnPath
from refdelta.table.properties import TableProperties
from refdelta.table.types import DataType, DecimalType, PrimitiveType, StructType, leaves

_EPOCH = dt.date(1970, 1, 1).toordinal()
_EPOCH_TIME = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - used for arithmetic only, in the zone of the column
_WHOLE = frozenset({"byte", "short", "integer", "long"})
_FLOATING = frozenset({"float", "double"})
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_BOUNDED = _WHOLE | _FLOATING | _TIMES | {"date", "string"}

# Of so many values Python finds the bounds faster than Arrow.
_FEW_ROWS = 64

_Bound = int | float | str | Decimal


@dataclass(frozen=True, slots=True)
class StatsLeaf:
    """A leaf column with statistics.

    Attributes:
        path: its logical path.
        type: its type.
        stored: its physical path, in files and in statistics.
    """

    path: tuple[str, ...]
    type: DataType
    stored: tuple[str, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether its minimum and maximum are kept."""
        return isinstance(self.type, DecimalType) or _name(self.type) in _BOUNDED

    def check_bounded(self, what: str) -> None:
        """Raise ``InvalidArgumentError`` if no minimum and maximum are kept; ``what`` begins the message."""
        if not self.bounded:
            raise InvalidArgumentError(
                f"{what} is of type {self.type}, which has no minimum and maximum in the statistics of files; "
                "numbers, dates, timestamps and strings have"
            )


def stats_leaves(
    schema: StructType,
    partition_columns: Iterable[str],
    properties: TableProperties,
    clustering: Collection[ColumnPath] = (),
) -> list[StatsLeaf]:
    """The leaves of a table's data files for which statistics are kept, in the order of the schema.

    Args:
        schema: the table's schema.
        partition_columns: left out, since data files do not store them; they do not count towards the limit either.
        properties: ``delta.dataSkippingStatsColumns`` wins over ``delta.dataSkippingNumIndexedCols`` (-1: all leaves).
        clustering: the clustering columns, which have statistics for any properties (PROTOCOL.md, "Writer Requirements
            for Clustered Table").
    """
    absent = {name.lower() for name in partition_columns}
    both = zip(leaves(schema), leaves(schema, physical=True), strict=True)
    present = [
        StatsLeaf(path, leaf.type, stored) for (path, leaf), (stored, _) in both if path[0].lower() not in absent
    ]
    kept = present
    if properties.data_skipping_stats_columns is not None:
        wanted = [_path(name) for name in properties.data_skipping_stats_columns]
        # The path of a struct stands for all of its leaves.
        kept = [leaf for leaf in kept if any(_lower(leaf.path)[: len(path)] == path for path in wanted)]
    elif properties.data_skipping_num_indexed_cols >= 0:
        kept = kept[: properties.data_skipping_num_indexed_cols]
    paths = {*clustering, *(leaf.path for leaf in kept)}
    # Void columns count towards the limit, but files do not store them.
    return [leaf for leaf in present if leaf.path in paths and _name(leaf.type) != "void"]


@dataclass(slots=True)
class LeafStats:
    """The statistics of one leaf; bounds of dates and timestamps are days and microseconds since 1970."""

    nulls: int = 0
    low: _Bound | None = None
    high: _Bound | None = None
    has_nan: bool = False

    def merge(self, other: LeafStats) -> None:
        """Add the statistics of further rows."""
        self.nulls += other.nulls
        self.has_nan |= other.has_nan
        if other.low is not None:
            self.low = other.low if self.low is None else min(self.low, other.low)
        if other.high is not None:
            self.high = other.high if self.high is None else max(self.high, other.high)


@dataclass(slots=True)
class FileStatistics:
    """The statistics of some rows: one entry of ``leaves`` for each leaf of the collector."""

    rows: int
    leaves: list[LeafStats] = field(default_factory=list)


class StatsCollector:
    """Collects the statistics of one file.

    Args:
        leaves: the columns, from :func:`stats_leaves`.
    """

    def __init__(self, leaves: Sequence[StatsLeaf]):
        self.leaves = tuple(leaves)
        self.total = FileStatistics(0, [LeafStats() for _ in leaves])

    def measure(self, data: pa.RecordBatch | pa.Table) -> FileStatistics:
        """The statistics of a batch, for :meth:`merge`, which may run on another thread."""
        return FileStatistics(data.num_rows, [_measure(_column(data, leaf.stored), leaf) for leaf in self.leaves])

    def merge(self, part: FileStatistics) -> None:
        """Add the result of :meth:`measure`."""
        self.total.rows += part.rows
        for mine, theirs in zip(self.total.leaves, part.leaves, strict=True):
            mine.merge(theirs)

    def update(self, data: pa.RecordBatch | pa.Table) -> None:
        """Add a batch or table of rows, with the leaves' columns by their physical names."""
        self.merge(self.measure(data))

    def json(self) -> str:
        """The statistics as the ``stats`` field of an add action: one JSON object, with tight bounds."""
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        marked = False
        for leaf, stats in zip(self.leaves, self.total.leaves, strict=True):
            _put(nulls, leaf.stored, str(stats.nulls))
            if leaf.bounded:
                low, high = _low_json(stats, leaf.type), _high_json(stats, leaf.type)
                _put(lows, leaf.stored, low)
                _put(highs, leaf.stored, high)
                marked = marked or needs_mark(*_claimed_type(leaf.type), low, high)
        parts = {"numRecords": str(self.total.rows), "minValues": lows, "maxValues": highs, "nullCount": nulls}
        found = {name: part for name, part in parts.items() if part} | {"tightBounds": "true"}
        return _object(found | ({EXACT_BOUNDS: "true"} if marked else {}))


# --- measuring ---------------------------------------------------------------------------------------------------


def _measure(column: pa.ChunkedArray | pa.Array, leaf: StatsLeaf) -> LeafStats:
    stats = LeafStats(nulls=column.null_count)
    if not leaf.bounded or stats.nulls == len(column):
        return stats
    name = _name(leaf.type)
    if len(column) <= _FEW_ROWS:
        return _measure_few(column, name, stats)
    if name in _FLOATING:
        stats.has_nan = bool(pc.any(pc.is_nan(column)).as_py())
    elif name == "date":
        # Numbers, since Python's dates end with the year 9999.
        column = column.cast(pa.int32())
    elif name in _TIMES:
        column = column.cast(pa.int64())
    if pa.types.is_dictionary(column.type):
        column = used_texts(column)
    low, high = (bound.as_py() for bound in pc.min_max(column).values())
    # The minimum of only NaN is NaN, which does not bound further rows.
    if not (isinstance(low, float) and math.isnan(low)):
        stats.low, stats.high = low, high
    return stats


def _measure_few(column: pa.ChunkedArray | pa.Array, name: str | None, stats: LeafStats) -> LeafStats:
    """The same for few values, in a tenth of the time that Arrow's functions take to be called."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    as_numbers = pa.int32() if name == "date" else pa.int64() if name in _TIMES else None
    values = [
        value
        for chunk in chunks
        for value in (chunk if as_numbers is None else chunk.view(as_numbers)).to_pylist()
        if value is not None
    ]
    if name in _FLOATING:
        numbers = [value for value in values if value == value]  # noqa: PLR0124 - NaN is not
        stats.has_nan = len(numbers) < len(values)
        values = numbers
    if values:
        stats.low, stats.high = min(values), max(values)
    return stats


def _column(data: pa.RecordBatch | pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray | pa.Array:
    column = data.column(path[0])
    # struct_field makes the values in a null struct null, for any content of the child's buffer.
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


# --- as JSON -----------------------------------------------------------------------------------------------------


def _low_json(stats: LeafStats, kind: DataType) -> str | None:
    low = stats.low
    if low is None or (isinstance(low, float) and not math.isfinite(low)):
        return None
    return _json(truncate_min(low) if isinstance(low, str) else low, kind, up=False)


def _high_json(stats: LeafStats, kind: DataType) -> str | None:
    high = stats.high
    if high is None or stats.has_nan or (isinstance(high, float) and not math.isfinite(high)):
        return None
    bound = truncate_max(high) if isinstance(high, str) else high
    return None if bound is None else _json(bound, kind, up=True)


def _json(value: _Bound, kind: DataType, *, up: bool) -> str | None:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return repr(value + 0.0)  # a bound that is a negative zero would depend on the order of rows
    name = _name(kind)
    if name == "date":
        return _date_json(value)
    if name in _TIMES:
        return _time_json(-(-value // 1000) if up else value // 1000, zone="Z" if name == "timestamp" else "")
    return str(value)


def _date_json(days: int) -> str | None:
    ordinal = days + _EPOCH
    return f'"{dt.date.fromordinal(ordinal).isoformat()}"' if 1 <= ordinal <= dt.date.max.toordinal() else None


def _time_json(milliseconds: int, zone: str) -> str | None:
    try:
        moment = _EPOCH_TIME + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return f'"{moment.isoformat(timespec="milliseconds")}{zone}"'


def _put(tree: dict[str, Any], path: tuple[str, ...], value: str | None) -> None:
    if value is not None:
        for name in path[:-1]:
            tree = tree.setdefault(name, {})
        tree[path[-1]] = value


def _object(tree: dict[str, Any]) -> str:
    """A JSON object whose leaves are encoded JSON values, so that decimals are never converted to floats."""
    members = (
        f"{_name_json(name)}:{_object(value) if isinstance(value, dict) else value}" for name, value in tree.items()
    )
    return "{" + ",".join(members) + "}"


@functools.lru_cache
def _name_json(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


# --- the schema --------------------------------------------------------------------------------------------------


_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def _path(name: str) -> tuple[str, ...]:
    """A column's path from its name in a property: parts separated by dots, in backticks if they contain dots."""
    return tuple((quoted.replace("``", "`") or plain).strip().lower() for quoted, plain in _PART.findall(name))


def _claimed_type(kind: DataType) -> tuple[str | None, int]:
    return ("decimal", kind.precision) if isinstance(kind, DecimalType) else (_name(kind), 0)


def _name(kind: DataType) -> str | None:
    return kind.name if isinstance(kind, PrimitiveType) else None


def _lower(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)
