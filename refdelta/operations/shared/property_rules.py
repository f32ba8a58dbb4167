"""Rules between table properties, and between properties and columns, which are checked when a user sets a property.

Tables of other writers that break these rules are accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refdelta.engine.parquet.column_stats import StatsLeaf
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from refdelta.table.column_names import dotted, split_path
from refdelta.table.iceberg_compat import PROPERTIES as COMPATIBILITIES
from refdelta.table.iceberg_compat import version_of
from refdelta.table.properties import PROPERTIES, TableProperties
from refdelta.table.types import leaves, parse_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from refdelta.core.log.actions import Metadata
    from refdelta.table.types import StructType

_STATS: Final = PROPERTIES["delta.dataskippingstatscolumns"].name
_FORMATS: Final = PROPERTIES["delta.universalformat.enabledformats"].name


def check_properties(given: Collection[str], metadata: Metadata) -> None:
    """Check properties that a user sets against the table, as delta-spark does.

    Args:
        given: the names of the properties, as they are stored.
        metadata: the table's metadata with them.

    Raises:
        ColumnNotFoundError: ``delta.dataSkippingStatsColumns`` names a column that does not exist.
        InvalidArgumentError: it names a column whose type has no statistics, a column twice, or a partition column;
            ``delta.universalFormat.enabledFormats`` has an unknown format, or needs a property that is not set.
    """
    configuration = metadata.configuration or {}
    if _STATS in given:
        named = TableProperties.parse(configuration).data_skipping_stats_columns or ()
        _check_stats_columns(parse_schema(metadata.schema_string), metadata.partition_columns, named)
    if _FORMATS in given:
        formats = {one.strip() for one in configuration[_FORMATS].split(",")}
        if not formats <= {"iceberg", "hudi", ""}:
            raise InvalidArgumentError(
                f"property {_FORMATS} is {configuration[_FORMATS]!r}, but must be iceberg or hudi"
            )
        if "iceberg" in formats and not version_of(configuration):
            raise InvalidArgumentError(
                f"property {_FORMATS}=iceberg needs {COMPATIBILITIES[2]}=true; reorg_upgrade_uniform(2) sets it and "
                "rewrites the files"
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
            raise InvalidArgumentError(f"property {_STATS}: {name} is a partition column, which has no statistics")
        for path, kind in found:
            StatsLeaf(path, kind).check_bounded(f"property {_STATS}: {dotted(path)}")
            if path in seen:
                raise InvalidArgumentError(f"property {_STATS} names {dotted(path)} twice")
            seen.add(path)


def _lower(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)
