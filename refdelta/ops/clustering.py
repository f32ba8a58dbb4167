"""CLUSTER BY: which columns a table may be clustered by (PROTOCOL.md, "Clustered Table")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refdelta.engine.column_stats import StatsLeaf
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from refdelta.ops.names import dotted, find_column
from refdelta.protocol.clustering import FEATURE
from refdelta.protocol.features import features_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from refdelta.protocol.actions import Protocol
    from refdelta.protocol.clustering import ColumnPath
    from refdelta.protocol.types import StructType

MOST: Final = 4
"""How many clustering columns a table may have, as in delta-spark: with each, every one of them prunes less."""


def chosen_columns(schema: StructType, cluster_by: Sequence[str] | str) -> tuple[ColumnPath, ...]:
    """The clustering columns that a user names.

    Args:
        schema: the table's schema.
        cluster_by: columns in any case; dots lead into structs, and backticks keep a dot in a name.

    Returns:
        Their paths, spelled as in the schema.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: more than :data:`MOST`, one named twice, or one of a type without minimum and maximum in
            the statistics, so that no file could be skipped for it.
    """
    names = [cluster_by] if isinstance(cluster_by, str) else list(cluster_by)
    if len(names) > MOST:
        raise InvalidArgumentError(f"cluster_by names {len(names)} columns; a table has at most {MOST} of them")
    return kept_columns(schema, names)


def kept_columns(schema: StructType, names: Sequence[str]) -> tuple[ColumnPath, ...]:
    """The clustering columns that a table keeps under a schema, however many another engine gave it.

    Arguments and errors are otherwise those of :func:`chosen_columns`.
    """
    paths: list[ColumnPath] = []
    for name in names:
        found = find_column(schema, name)
        if found is None:
            raise ColumnNotFoundError(name, schema.names, where="the data, and cannot cluster the table")
        path, kind = found
        if not StatsLeaf(path, kind).bounded:
            raise InvalidArgumentError(
                f"column {name!r} cannot cluster the table: it is of type {kind}, which has no minimum and maximum in "
                "the statistics of files; numbers, dates, timestamps and strings have"
            )
        if path in paths:
            raise InvalidArgumentError(f"cluster_by names column {dotted(path)!r} twice")
        paths.append(path)
    return tuple(paths)


def check_not_partitioned(features: Collection[str], partition_columns: Sequence[str]) -> None:
    """Refuse a table that would be clustered and partitioned, even where it has no clustering columns any more.

    Args:
        features: those of the protocol that the table will have.
        partition_columns: its partition columns.

    Raises:
        InvalidArgumentError: it would be both.
    """
    if FEATURE in features and partition_columns:
        raise InvalidArgumentError(
            f"a clustered table has no partition columns, and this one would be partitioned by "
            f"{', '.join(partition_columns)}; a table that once was clustered stays so (its protocol has the feature "
            f"{FEATURE!r}), and one that is partitioned can be clustered when it is overwritten with partition_by=[]"
        )


def check_not_clustered(protocol: Protocol, columns: Sequence[ColumnPath]) -> None:
    """Refuse to sort a clustered table by other columns.

    Args:
        protocol: the table's.
        columns: its clustering columns.

    Raises:
        InvalidArgumentError: it is clustered.
    """
    if FEATURE in features_of(protocol):
        by = f" by {', '.join(dotted(path) for path in columns)}" if columns else ""
        raise InvalidArgumentError(
            f"cannot z_order: the table is clustered{by}, and its files keep that order; optimize.compact() puts small "
            "files together, and OPTIMIZE of delta-spark clusters them"
        )
