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

from refdelta.arrow.arrays import ARROW_FALSE, ARROW_TRUE, ARROW_ZERO, concat, one_array, pieces, scalar_of
from refdelta.arrow.char_padding import padded_uppers
from refdelta.arrow.decimals import decimal_margins
from refdelta.arrow.schema import arrow_type
from refdelta.core.log.claims import (
    CUT_LENGTH,
    EXACT_BOUNDS,
    LAST_CHARACTER,
    MILLISECOND,
    REPLACED,
    TEXT_MARGIN,
    TIME_MARGIN,
)
from refdelta.engine.log.statistics import Statistic, child_of, read_statistics
from refdelta.expressions.ordering import compare_columns
from refdelta.pruning.stats_source import StatsSource
from refdelta.table.types import (
    BOOLEAN,
    FRACTIONAL,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DecimalType,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        exact: for each file, whether its statistics have the mark of this engine; None if all have it, or no column
            needs it.
    """

    rows: pa.Array
    bounds: dict[tuple[str, ...], Bounds]
    exact: pa.BooleanArray | None = None


def view_stats(files: pa.Table, schema: StructType, paths: Iterable[tuple[str, ...]]) -> FileStatsView:
    """Read the statistics of some columns.

    Args:
        files: has the column ``stats`` (JSON strings), or ``stats_parsed`` (a struct), or both; the JSON wins. Of a
            long list one of its ``pieces``, since the columns become arrays.
        schema: the table's.
        paths: logical paths of columns, spelled as in the schema.
    """
    wanted = {path: StatsSource.of(schema, path) for path in paths}
    leaves = _statistics(wanted.values())
    found = [pa.nulls(files.num_rows, arrow_type(kind)) for _, kind in leaves]
    known = None
    if "stats" in files.column_names:
        known, found = read_statistics(files["stats"], leaves)
    if "stats_parsed" in files.column_names and pa.types.is_struct(files.schema.field("stats_parsed").type):
        parsed = one_array(files["stats_parsed"])
        if known is not None:
            # The mark of the JSON says nothing about the struct, so each file has its statistics from one of the two.
            parsed = pc.if_else(known, scalar_of(None, parsed.type), parsed)
        found = [_coalesced(column, parsed, leaf) for column, leaf in zip(found, leaves, strict=True)]
    rows, marks, columns = _row_counts(found[0]), found[1], found[2:]
    exact = pc.fill_null(marks, ARROW_FALSE) if pa.types.is_boolean(marks.type) else None
    if exact is not None and pc.all(exact, min_count=0).as_py():
        exact = None
    bounds = {}
    for i, path in enumerate(wanted):
        low, high, nulls = columns[3 * i : 3 * i + 3]
        bounds[path] = _bounds(wanted[path], low, high, nulls, rows, exact)
    return FileStatsView(rows, bounds, exact)


def num_records(files: pa.Table) -> pa.Array:
    """The number of physical rows of each file, deleted ones included; null where its statistics do not have it.

    Implements PROTOCOL.md, "Per-file Statistics", ``numRecords``.
    """
    return concat(view_stats(piece, StructType(), ()).rows for piece in pieces(files))


def num_deleted(files: pa.Table) -> pa.ChunkedArray:
    """The number of rows of each file that a deletion vector hides."""
    return pc.coalesce(pc.struct_field(files.column("deletionVector"), "cardinality"), ARROW_ZERO)


def _bounds(
    item: StatsSource, low: pa.Array, high: pa.Array, nulls: pa.Array, rows: pa.Array, exact: pa.BooleanArray | None
) -> Bounds:
    nulls = _null_counts(nulls, rows, pc.or_(low.is_valid(), high.is_valid()))
    if item.type == STRING:
        high = _text_highs(high, exact)
        if item.char is not None:
            high = padded_uppers(high, item.char)
    elif item.type in (TIMESTAMP, TIMESTAMP_NTZ):
        low, high = _time_bounds(low, high, exact)
    elif exact is not None and isinstance(item.type, DecimalType) and item.claimed:
        low, high = (pc.if_else(exact, side, decimal_margins(side, up=up)) for side, up in ((low, False), (high, True)))
    elif exact is not None and item.type in FRACTIONAL:
        low = pc.if_else(pc.or_(exact, pc.invert(pc.is_nan(low))), low, scalar_of(None, low.type))
    if item.bounded:
        # Bounds in the wrong order are dropped: times of some writers overflow.
        sane = pc.fill_null(compare_columns("<=", low, high), ARROW_TRUE)
        low, high = (pc.if_else(sane, side, scalar_of(None, side.type)) for side in (low, high))
    return Bounds(low, high, nulls, item.nested)


def _row_counts(rows: pa.Array) -> pa.Array:
    """The twin of :func:`refdelta.core.log.claims.row_count`."""
    return pc.if_else(pc.greater_equal(rows, scalar_of(0, rows.type)), rows, scalar_of(None, rows.type))


def _null_counts(nulls: pa.Array, rows: pa.Array, bounded: pa.Array) -> pa.Array:
    """The twin of :func:`refdelta.core.log.claims.null_count`."""
    most = pc.subtract(rows, bounded.cast(pa.int64()))
    fits = pc.and_kleene(pc.greater_equal(nulls, ARROW_ZERO), pc.fill_null(pc.less_equal(nulls, most), ARROW_TRUE))
    return pc.if_else(fits, nulls, scalar_of(None, nulls.type))


def _text_highs(high: pa.Array, exact: pa.BooleanArray | None) -> pa.Array:
    """The twin of :func:`refdelta.core.log.claims.text_high`."""
    cut = pc.ends_with(high, REPLACED)
    any_cut = pc.any(cut).as_py()
    body = pc.replace_substring_regex(high, f"\\??{REPLACED}$", "") if any_cut else high
    if any_cut:
        high = pc.if_else(cut, pc.binary_join_element_wise(body, LAST_CHARACTER, ""), high)
    if exact is None:
        return high
    plain = pc.and_(pc.invert(cut), pc.less(pc.utf8_length(high), scalar_of(CUT_LENGTH, pa.int32())))
    longer = pc.binary_join_element_wise(body, TEXT_MARGIN, "")
    if any_cut:
        longer = pc.if_else(pc.and_(cut, pc.ends_with(body, LAST_CHARACTER)), scalar_of(None, longer.type), longer)
    return pc.if_else(pc.or_(exact, plain), high, longer)


def _time_bounds(low: pa.Array, high: pa.Array, exact: pa.BooleanArray | None) -> tuple[pa.Array, pa.Array]:
    """The twin of :func:`refdelta.core.log.claims.time_low` and :func:`~refdelta.core.log.claims.time_high`."""
    kind, first, last = high.type, -(2**63), 2**63 - 1
    low, high = low.cast(pa.int64()), high.cast(pa.int64())
    whole = pc.multiply(pc.divide(high, _long(MILLISECOND)), _long(MILLISECOND))
    cut = pc.equal(pc.subtract(high, whole), ARROW_ZERO)
    room = pc.less_equal(high, _long(last - MILLISECOND))
    high = pc.add(high, pc.if_else(pc.and_(cut, room), _long(MILLISECOND - 1), ARROW_ZERO))
    if exact is not None:
        margin = pc.if_else(exact, ARROW_ZERO, _long(TIME_MARGIN))
        low = pc.subtract(pc.max_element_wise(low, _long(first + TIME_MARGIN), skip_nulls=False), margin)
        high = pc.add(pc.min_element_wise(high, _long(last - TIME_MARGIN), skip_nulls=False), margin)
    return low.cast(kind), high.cast(kind)


def _long(number: int) -> pa.Scalar:
    return scalar_of(number, pa.int64())


def _statistics(wanted: Iterable[StatsSource]) -> list[Statistic]:
    """The row count, the mark, then minimum, maximum and null count of every column."""
    wanted = list(wanted)
    found: list[Statistic] = [
        (("numRecords",), LONG),
        ((EXACT_BOUNDS,), BOOLEAN if any(item.claimed for item in wanted) else VOID),
    ]
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
