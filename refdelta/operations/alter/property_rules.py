"""What properties ask of each other and of the table, where a user sets them: what no value by itself can tell.

A table that has them otherwise was written by somebody else, and is used as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refdelta.core.table.iceberg_compat import PROPERTIES as COMPATIBILITIES
from refdelta.core.table.iceberg_compat import version_of
from refdelta.core.table.properties import PROPERTIES, TableProperties
from refdelta.core.table.types import leaves, parse_schema
from refdelta.engine.parquet.column_stats import StatsLeaf
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from refdelta.operations.alter.names import dotted, split_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from refdelta.core.log.actions import Metadata
    from refdelta.core.table.types import StructType

_STATS: Final = PROPERTIES["delta.dataskippingstatscolumns"].name
_FORMATS: Final = PROPERTIES["delta.universalformat.enabledformats"].name


def check_properties(given: Collection[str], metadata: Metadata) -> None:
    """Hold properties that a user sets to the table that they are set for, as delta-spark does.

    Args:
        given: the names that are set, as they are stored.
        metadata: the table's, with them.

    Raises:
        ColumnNotFoundError: statistics are wanted of a column that does not exist.
        InvalidArgumentError: of one that has none, twice, or of a partition column; Iceberg's readers are promised a
            table that they could not read.
    """
    configuration = metadata.configuration or {}
    if _STATS in given:
        named = TableProperties.parse(configuration).data_skipping_stats_columns or ()
        _check_stats_columns(parse_schema(metadata.schema_string), metadata.partition_columns, named)
    if _FORMATS in given:
        formats = {one.strip() for one in configuration[_FORMATS].split(",")}
        if not formats <= {"iceberg", "hudi", ""}:
            raise InvalidArgumentError(f"property {_FORMATS} is {configuration[_FORMATS]!r}, but it must be iceberg")
        if "iceberg" in formats and not version_of(configuration):
            raise InvalidArgumentError(
                f"property {_FORMATS}=iceberg goes with {COMPATIBILITIES[2]}=true: reorg_upgrade_uniform(2) makes a "
                "table one that Iceberg can have"
            )


def _check_stats_columns(schema: StructType, partition_columns: Iterable[str], named: Sequence[str]) -> None:
    partitioning = {name.lower() for name in partition_columns}
    seen = set[tuple[str, ...]]()
    for name in named:
        wanted = _lower(split_path(name))
        found = [(path, leaf.type) for path, leaf in leaves(schema) if _lower(path)[: len(wanted)] == wanted]
        if not found:
            raise ColumnNotFoundError(name, [dotted(path) for path, _ in leaves(schema)])
        if wanted[0] in partitioning:
            raise InvalidArgumentError(f"property {_STATS}: {name} is a partition column, which files do not hold")
        for path, kind in found:
            StatsLeaf(path, kind).check_bounded(f"property {_STATS}: {dotted(path)}")
            if path in seen:
                raise InvalidArgumentError(f"property {_STATS} names {dotted(path)} twice")
            seen.add(path)


def _lower(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)
