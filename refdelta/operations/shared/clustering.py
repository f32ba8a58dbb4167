"""CLUSTER BY: checks of clustering columns, and ALTER TABLE CLUSTER BY (PROTOCOL.md, "Clustered Table")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refdelta import arguments
from refdelta.engine.parquet.column_stats import StatsLeaf
from refdelta.errors import ColumnNotFoundError, InvalidArgumentError, InvalidLogError
from refdelta.operations.shared.change import change_table
from refdelta.table.clustering import DOMAIN, FEATURE, clustering_domain, is_clustered_by
from refdelta.table.column_names import dotted, find_column
from refdelta.table.features import features_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from refdelta.core.log.actions import Protocol
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.table.clustering import ColumnPath
    from refdelta.table.types import StructType
    from refdelta.transaction.transaction import Transaction

MOST: Final = 4
"""The maximum number of clustering columns, as in delta-spark: with each further one, all others prune less."""


def chosen_columns(schema: StructType, cluster_by: Sequence[str] | str) -> tuple[ColumnPath, ...]:
    """The clustering columns that a user names.

    Args:
        schema: the table's schema.
        cluster_by: column names in any case; dots separate the fields of structs, backticks quote a name with a dot.

    Returns:
        Their paths, spelled as in the schema.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: there are more than :data:`MOST` columns, one is named twice, or one has a type without
            minimum and maximum in the statistics, so that no file could be skipped by it.
    """
    names = [cluster_by] if isinstance(cluster_by, str) else list(cluster_by)
    if len(names) > MOST:
        raise InvalidArgumentError(f"cluster_by names {len(names)} columns; a table has at most {MOST} of them")
    return kept_columns(schema, names)


def kept_columns(schema: StructType, names: Sequence[str]) -> tuple[ColumnPath, ...]:
    """Same as :func:`chosen_columns`, without a maximum: the clustering columns of an existing table under a schema."""
    paths: list[ColumnPath] = []
    for name in names:
        found = find_column(schema, name)
        if found is None:
            raise ColumnNotFoundError(
                name, [dotted((known,)) for known in schema.names], where="the data, and cannot cluster the table"
            )
        path, kind = found
        StatsLeaf(path, kind).check_bounded(f"column {name!r} cannot cluster the table: it")
        if path in paths:
            raise InvalidArgumentError(f"cluster_by names column {dotted(path)!r} twice")
        paths.append(path)
    return tuple(paths)


def check_not_partitioned(features: Collection[str], partition_columns: Sequence[str]) -> None:
    """Refuse a table that would have partition columns and the clustering feature, even without clustering columns.

    Args:
        features: the features of its new protocol.
        partition_columns: its partition columns.

    Raises:
        InvalidArgumentError: it would have both.
    """
    if FEATURE in features and partition_columns:
        raise InvalidArgumentError(
            f"a clustered table cannot have partition columns, and this one would be partitioned by "
            f"{', '.join(partition_columns)}; a table keeps the feature {FEATURE!r} once it was clustered, and a "
            "partitioned table can be clustered if it is overwritten with partition_by=[]"
        )


def check_not_clustered(protocol: Protocol, columns: Sequence[ColumnPath]) -> None:
    """Refuse to sort a clustered table by other columns.

    Args:
        protocol: the table's protocol.
        columns: its clustering columns.

    Raises:
        InvalidArgumentError: the table is clustered.
    """
    if FEATURE in features_of(protocol):
        by = f" by {', '.join(dotted(path) for path in columns)}" if columns else ""
        raise InvalidArgumentError(
            f"cannot z_order: the table is clustered{by}; optimize.cluster() clusters its files, and "
            "optimize.compact() merges small files"
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
            "cannot cluster: the table has no clustering columns; alter.cluster_by() sets them, and "
            "optimize.compact() merges small files"
        )
    return tuple(columns)


def cluster_by(txn: Transaction, snapshot: Snapshot, columns: Sequence[str] | str | None) -> None:
    """Stage ALTER TABLE CLUSTER BY; nothing if the clustering columns do not change. Existing files do not change.

    Implements PROTOCOL.md, "Clustered Table".

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads.
        columns: the clustering columns, as users name them; None or an empty list for CLUSTER BY NONE.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidArgumentError: the table is partitioned; and as :func:`chosen_columns`.
    """
    names = arguments.names("cluster_by", columns) or []
    chosen = chosen_columns(snapshot.schema, names)
    clustered = FEATURE in features_of(snapshot.protocol)
    if is_clustered_by(chosen, snapshot.domains, snapshot.schema) and (clustered or not chosen):
        txn.read_domains([DOMAIN])
        return
    try:
        old = snapshot.clustering_columns
    except InvalidLogError:
        old = ()  # it is replaced
    check_not_partitioned({FEATURE}, snapshot.partition_columns)
    before, after = (",".join(dotted(path) for path in paths) for paths in (old, chosen))
    txn.describe("CLUSTER BY", {"oldClusteringColumns": before, "newClusteringColumns": after}, {})
    change_table(txn, snapshot, snapshot.metadata, [FEATURE])
    txn.stage([clustering_domain(chosen, snapshot.schema)])
