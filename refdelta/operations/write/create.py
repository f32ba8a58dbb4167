"""CREATE TABLE and REPLACE TABLE: a version with metadata and without rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from refdelta.core.log.actions import Metadata, Protocol
from refdelta.core.table.clustering import DOMAIN, clustering_domain
from refdelta.core.table.column_names import dotted
from refdelta.core.table.features import features_of
from refdelta.core.table.protocol_choice import settled
from refdelta.engine.log.state import to_adds
from refdelta.operations.alter.change import still_protected
from refdelta.operations.dml.rewrite import remove_files
from refdelta.operations.layout.clustering import check_not_partitioned

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.target import Target
    from refdelta.transaction.transaction import Transaction


def create(txn: Transaction, target: Target, *, or_replace: bool = False) -> None:
    """Stage version 0.

    Args:
        txn: the transaction.
        target: the new table.
        or_replace: whether the statement is CREATE OR REPLACE, for the history.
    """
    metadata = next(action for action in target.changes if isinstance(action, Metadata))
    txn.stage(target.changes)
    operation = "CREATE OR REPLACE TABLE" if or_replace else "CREATE TABLE"
    txn.describe(operation, _parameters(metadata, target), {})


def replace(txn: Transaction, snapshot: Snapshot, target: Target) -> None:
    """Stage the replacement of a table, in the same history. The protocol keeps all of its features.

    Args:
        txn: the transaction.
        snapshot: the table that is replaced; all of it counts as read.
        target: the new table.

    Raises:
        UnsupportedFeatureError: the table's protocol has a feature that this engine cannot write.
        ConstraintViolationError: the old table is append-only.
        InvalidArgumentError: the new table is partitioned, and the old one is clustered.
    """
    txn.replaces_properties(None)
    metadata = still_protected(next(a for a in target.changes if isinstance(a, Metadata)), snapshot.metadata)
    asked = next(action for action in target.changes if isinstance(action, Protocol))
    protocol = settled(snapshot.protocol, metadata, features_of(asked), snapshot.metadata, keeps_files=False)
    check_not_partitioned(features_of(protocol), metadata.partition_columns)
    txn.read_whole_table()
    remove_files(txn, to_adds(snapshot.files))
    txn.stage([metadata] if protocol == snapshot.protocol else [protocol, metadata])
    if target.clustering_columns or DOMAIN in snapshot.domains:
        # A table whose protocol has the feature keeps the domain, even without clustering columns.
        txn.stage([clustering_domain(target.clustering_columns, target.schema)])
    txn.describe("CREATE OR REPLACE TABLE", _parameters(metadata, target), {})


def _parameters(metadata: Metadata, target: Target) -> dict[str, str]:
    clustering = [dotted(path) for path in target.clustering_columns]
    return {
        "isManaged": "false",
        "description": metadata.description or "",
        "partitionBy": msgspec.json.encode(metadata.partition_columns).decode(),
        "clusterBy": msgspec.json.encode(clustering).decode(),
        "properties": msgspec.json.encode(metadata.configuration or {}).decode(),
    }
