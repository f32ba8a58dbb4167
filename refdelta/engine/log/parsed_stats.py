"""Statistics and partition values as typed structs, for checkpoints that hold them so.

PROTOCOL.md, "Checkpoint Schema": ``stats_parsed`` and ``partitionValues_parsed`` mirror what ``stats`` and
``partitionValues`` say as strings, with the types of the table's columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.table.clustering import ColumnPath
from refdelta.core.table.properties import TableProperties
from refdelta.core.table.types import BOOLEAN, LONG, StructType, physical_name
from refdelta.engine.arrow.arrays import one_array
from refdelta.engine.expressions.partition import partition_table
from refdelta.engine.log.state import STATS_PARSED
from refdelta.engine.log.stats_json import Statistic, read_statistics
from refdelta.engine.parquet.column_stats import StatsLeaf, stats_leaves


def partition_values_parsed(
    files: pa.Table, schema: StructType, partition_columns: Sequence[str]
) -> pa.ChunkedArray | None:
    """The partition values of files as structs of the partition columns' types; None for an unpartitioned table.

    Raises:
        InvalidLogError: a value that is not of its column's type.
    """
    if not partition_columns:
        return None
    names = [physical_name(schema.field(name)) for name in partition_columns]
    typed = partition_table(files, schema, partition_columns, as_stored=True)
    return pa.chunked_array([pa.StructArray.from_arrays([one_array(column) for column in typed.columns], names)])


def stats_parsed(
    files: pa.Table,
    schema: StructType,
    partition_columns: Sequence[str],
    properties: TableProperties,
    clustering: Collection[ColumnPath] = (),
) -> pa.ChunkedArray:
    """The statistics of files as structs; null for a file that has none.

    A file's JSON is what counts; where there is none, its struct in ``files`` does, if that has such a column. A value
    that is not of its column's type is null, as in every reader: statistics are an aid.

    The structs have the columns for which the table keeps statistics, by physical names.
    """
    statistics = list(_statistics(stats_leaves(schema, partition_columns, properties, clustering)))
    known, columns = read_statistics(files.column("stats"), statistics)
    tree: dict[str, Any] = {}
    for (path, _), column in zip(statistics, columns, strict=True):
        here = tree
        for name in path[:-1]:
            here = here.setdefault(name, {})
        here[path[-1]] = column
    parsed = _struct(tree, known)
    if STATS_PARSED in files.column_names:
        parsed = pc.if_else(known, parsed, one_array(files.column(STATS_PARSED)).cast(parsed.type))
    return pa.chunked_array([parsed])


def _statistics(kept: Iterable[StatsLeaf]) -> Iterator[Statistic]:
    yield ("numRecords",), LONG
    leaves = [(leaf.stored, leaf) for leaf in kept]
    for part in ("minValues", "maxValues"):
        yield from (((part, *path), leaf.type) for path, leaf in leaves if leaf.bounded)
    yield from ((("nullCount", *path), LONG) for path, _ in leaves)
    yield ("tightBounds",), BOOLEAN


def _struct(tree: dict[str, Any], known: pa.Array | None = None) -> pa.Array:
    """Nested dicts of arrays as one array of structs; null where nothing is ``known``, or else where all is null."""
    columns = [_struct(part) if isinstance(part, dict) else part for part in tree.values()]
    if known is None:
        known = pc.invert(reduce(pc.and_, [column.is_null() for column in columns]))
    return pa.StructArray.from_arrays(columns, list(tree), mask=pc.invert(known))
