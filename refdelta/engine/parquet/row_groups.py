"""Which row groups of a file need not be read for a filter: pruning of files, with Parquet's own statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from refdelta.core.table.row_tracking import kind_of
from refdelta.core.table.types import StructField, StructType, physical_name
from refdelta.engine.log.state import STATS_PARSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.engine.parquet.columns import ColumnSource
    from refdelta.engine.parquet.limits import BoundedParquetFile
    from refdelta.engine.scan.filters import RowFilter


def groups_to_read(
    parquet: BoundedParquetFile,
    row_filter: RowFilter,
    columns: Mapping[str, tuple[StructField, ColumnSource]],
    fields: tuple[StructField, ...],
) -> list[int]:
    """The row groups that may hold a row that meets a filter.

    Args:
        parquet: the file.
        row_filter: the filter.
        columns: the table's columns that come from the file, by logical name, each with where it comes from.
        fields: those and the partition columns: all that the filter looks at are among them.

    Returns:
        Their numbers, ascending; all of them where nothing is known.

    Raises:
        ValueError: the file's footer contradicts itself.
    """
    footer = parquet.footer
    everything = list(range(footer.num_row_groups))
    places = {name: leaf for name, leaf in _leaves(footer).items() if leaf not in parquet.without_bounds}
    usable = [
        (item, source, places[source.name])
        for item, source in columns.values()
        if item.name in row_filter.columns
        and _has_bounds(source)
        and source.name in places
        # Of row ids a file holds those alone that differ from the default.
        and kind_of(item) is None
    ]
    if len(everything) < 2 or not usable:
        return everything
    groups = [footer.row_group(number) for number in everything]
    low, high, nulls = {}, {}, {}
    for item, source, place in usable:
        statistics = [group.column(place).statistics for group in groups]
        name = physical_name(item)
        low[name] = _bounds(statistics, "min", source.type)
        high[name] = _bounds(statistics, "max", source.type)
        nulls[name] = pa.array([s.null_count if s is not None and s.has_null_count else None for s in statistics])
    stats = _struct(
        {
            "numRecords": pa.array([group.num_rows for group in groups], pa.int64()),
            "minValues": _struct(low),
            "maxValues": _struct(high),
            "nullCount": _struct({name: counts.cast(pa.int64()) for name, counts in nulls.items()}),
        }
    )
    # To the pruner, a row group is a small file. Its partition values hold for all of the file: pruning has seen them.
    partitions = pa.nulls(len(groups), pa.map_(pa.string(), pa.string()))
    listed = pa.table({"partitionValues": partitions, STATS_PARSED: stats})
    keep = row_filter.prune(listed, StructType(fields), ()).keep
    return [number for number, kept in zip(everything, keep.to_pylist(), strict=True) if kept]


def _leaves(footer: Any) -> dict[str, int]:
    """The position of each leaf column by its path; a dot may be part of a name or stand between two, so those are
    out.
    """
    names = [footer.schema.column(i).path for i in range(footer.num_columns)]
    return {name: i for i, name in enumerate(names) if "." not in name and names.count(name) == 1}


def _has_bounds(source: ColumnSource) -> bool:
    # A column that is converted has bounds of another type; and those of floats pass over NaN, which is the greatest.
    kind = source.type
    return (
        source.name is not None
        and source.convert is None
        and not (pt.is_nested(kind) or pt.is_floating(kind) or pt.is_binary(kind) or pt.is_null(kind))
    )


def _bounds(statistics: list[Any], side: str, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([getattr(s, side) if s is not None and s.has_min_max else None for s in statistics], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(len(statistics), kind)  # a value that Python cannot hold, such as a date after the year 9999


def _struct(columns: dict[str, pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
