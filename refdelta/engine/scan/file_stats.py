"""The statistics of many files as columns: bounds and null counts of the columns of a predicate.

They are read from ``add.stats`` (JSON) or from a ``stats_parsed`` struct (PROTOCOL.md, "Per-file Statistics").
Statistics are an aid: a statistic that is missing, malformed or contradictory is null, which means "unknown", and never
an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.pruning.stats_source import StatsSource
from refdelta.core.table.types import (
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    StructType,
)
from refdelta.engine.arrow.arrays import one_array
from refdelta.engine.arrow.char_padding import padded_uppers
from refdelta.engine.arrow.schema import arrow_type
from refdelta.engine.expressions.arithmetic import compare
from refdelta.engine.log.statistics import Statistic, child_of, read_statistics

if TYPE_CHECKING:
    from collections.abc import Iterable

_MILLISECOND = 1_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one column in each file. All arrays have one value a file; null is unknown.

    Attributes:
        low: a lower bound of the values that are not null.
        high: an upper bound of these values.
        nulls: the number of nulls; with wide bounds only 0 and the number of rows have a meaning.
        nested: whether a parent of the column may be null; not every writer counts such nulls.
    """

    low: pa.Array
    high: pa.Array
    nulls: pa.Array
    nested: bool = False


@dataclass(frozen=True, slots=True)
class FileStatsView:
    """The statistics of files, for some columns.

    Attributes:
        rows: the number of rows in each file, deleted ones included; null is unknown.
        bounds: by the column's logical path.
    """

    rows: pa.Array
    bounds: dict[tuple[str, ...], Bounds]


def view_stats(files: pa.Table, schema: StructType, paths: Iterable[tuple[str, ...]]) -> FileStatsView:
    """Read the statistics of some columns.

    Args:
        files: has the column ``stats`` (JSON strings), or ``stats_parsed`` (a struct), or both; the JSON wins.
        schema: the table's.
        paths: logical paths of columns, spelled as in the schema.
    """
    wanted = {path: StatsSource.of(schema, path) for path in paths}
    leaves = _statistics(wanted.values())
    found = [pa.nulls(files.num_rows, arrow_type(kind)) for _, kind in leaves]
    if "stats" in files.column_names:
        _, found = read_statistics(files["stats"], leaves)
    if "stats_parsed" in files.column_names and pa.types.is_struct(files.schema.field("stats_parsed").type):
        parsed = one_array(files["stats_parsed"])
        found = [_coalesced(column, parsed, leaf) for column, leaf in zip(found, leaves, strict=True)]
    rows, columns = found[0], found[1:]
    bounds = {path: _bounds(wanted[path], *columns[3 * i : 3 * i + 3]) for i, path in enumerate(wanted)}
    return FileStatsView(rows, bounds)


def num_records(files: pa.Table) -> pa.Array:
    """The number of physical rows of each file, deleted ones included; null where its statistics do not have it.

    Implements PROTOCOL.md, "Per-file Statistics", ``numRecords``.
    """
    rows = view_stats(files, StructType(), ()).rows
    return pc.if_else(pc.greater_equal(rows, 0), rows, pa.scalar(None, pa.int64()))


def _bounds(item: StatsSource, low: pa.Array, high: pa.Array, nulls: pa.Array) -> Bounds:
    if item.type == STRING:
        # Older Spark cut a string after 32 UTF-16 units and appended U+FFFD, which sorts before emoji; half of an emoji
        # became "?".
        high = pc.replace_substring_regex(high, "\\??\ufffd$", "\U0010ffff")
        if item.char is not None:
            high = padded_uppers(high, item.char)
    elif item.type in (TIMESTAMP, TIMESTAMP_NTZ):
        high = _whole_millisecond(high)
    if item.bounded:
        # Bounds in the wrong order are dropped: times of some writers overflow.
        sane = pc.fill_null(compare("<=", low, high), True)
        low, high = (pc.if_else(sane, side, pa.scalar(None, side.type)) for side in (low, high))
    return Bounds(low, high, nulls, item.nested)


def _whole_millisecond(high: pa.Array) -> pa.Array:
    """The end of the millisecond of each bound: statistics cut times to milliseconds."""
    micros = high.cast(pa.int64())
    cut = pc.equal(pc.subtract(micros, pc.multiply(pc.divide(micros, _MILLISECOND), _MILLISECOND)), 0)
    room = pc.less(micros, 2**63 - _MILLISECOND)
    later = pc.add(micros, pc.if_else(pc.and_(cut, room), _MILLISECOND - 1, 0))
    return later.cast(high.type)


def _statistics(wanted: Iterable[StatsSource]) -> list[Statistic]:
    """The row count, then minimum, maximum and null count of every column."""
    found: list[Statistic] = [(("numRecords",), LONG)]
    for item in wanted:
        bound = item.type if item.bounded else VOID
        found += [(("minValues", *item.physical), bound), (("maxValues", *item.physical), bound)]
        found.append((("nullCount", *item.physical), LONG))
    return found


def _coalesced(column: pa.Array, stats: pa.Array, statistic: Statistic) -> pa.Array:
    """The statistic from JSON, or where that is null from the struct of a checkpoint."""
    path, _ = statistic
    array = child_of(stats, path)
    if array is None or pa.types.is_null(column.type):
        return column
    return pc.coalesce(column, _of_struct(array, column.type, upper=path[0] == "maxValues"))


def _of_struct(array: pa.Array, kind: pa.DataType, *, upper: bool) -> pa.Array:
    if array.type == kind:
        return array
    try:
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(kind):
            cut = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
            if upper and array.type.unit == "ns":
                # Rounded up, so that it stays an upper bound. A whole microsecond is not changed: it may be a whole
                # millisecond too, which shows that digits were cut when the bound was written.
                rest = pc.less(pc.multiply(cut, 1000), array.cast(pa.int64()))
                cut = pc.add(cut, rest.cast(pa.int64()))
            return cut.cast(kind)
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(array), kind)
