"""CLUSTER BY: which columns a table may be clustered by, and ALTER TABLE (PROTOCOL.md, "Clustered Table")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refdelta import arguments
from refdelta.core.table.clustering import DOMAIN, FEATURE, clustering_domain
from refdelta.core.table.features import features_of
from refdelta.engine.parquet.column_stats import StatsLeaf
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError
from refdelta.operations.alter.change import change_table
from refdelta.operations.alter.names import dotted, find_column

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from refdelta.core.log.actions import Protocol
    from refdelta.core.table.clustering import ColumnPath
    from refdelta.core.table.types import StructType
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction

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
        StatsLeaf(path, kind).check_bounded(f"column {name!r} cannot cluster the table: it")
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
            f"cannot z_order: the table is clustered{by}, and its files keep that order; optimize.cluster() clusters "
            "them, and optimize.compact() puts small files together"
        )


def clustered_by(columns: Sequence[ColumnPath]) -> tuple[ColumnPath, ...]:
    """The columns to cluster a table's files by.

    Args:
        columns: its clustering columns.

    Raises:
        InvalidArgumentError: there are none.
    """
    if not columns:
        raise InvalidArgumentError(
            "cannot cluster: the table has no clustering columns; alter.cluster_by() names some, and "
            "optimize.compact() puts small files together"
        )
    return tuple(columns)


def cluster_by(txn: Transaction, snapshot: Snapshot, columns: Sequence[str] | str | None) -> None:
    """Stage ALTER TABLE CLUSTER BY; nothing where the table is clustered so, and where one that never was is to have no
    columns. Files that are there stay as they are.

    Implements PROTOCOL.md, "Clustered Table".

    Args:
        txn: the transaction.
        snapshot: what it sees.
        columns: the clustering columns, as users name them; None or none of them for CLUSTER BY NONE.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: the table is partitioned; more columns than a table may have, one named twice, or one of a
            type without minimum and maximum in the statistics.
    """
    names = arguments.names("cluster_by", columns) or []
    chosen, old = chosen_columns(snapshot.schema, names), snapshot.clustering_columns
    clustered = FEATURE in features_of(snapshot.protocol)
    if chosen == old and (clustered or not chosen):
        txn.read_domains([DOMAIN])
        return
    check_not_partitioned({FEATURE}, snapshot.partition_columns)
    before, after = (",".join(dotted(path) for path in paths) for paths in (old, chosen))
    txn.describe("CLUSTER BY", {"oldClusteringColumns": before, "newClusteringColumns": after}, {})
    change_table(txn, snapshot, snapshot.metadata, [FEATURE])
    txn.stage([clustering_domain(chosen, snapshot.schema)])
