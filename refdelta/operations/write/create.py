"""CREATE TABLE and REPLACE TABLE: a version with metadata, and without rows or with those of files that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from refdelta.core.log.actions import Metadata, Protocol
from refdelta.engine.log.state import to_adds
from refdelta.operations.shared.change import still_protected
from refdelta.operations.shared.clustering import check_not_partitioned
from refdelta.operations.shared.rewrite import remove_files
from refdelta.operations.write.append import FileWriter, stage_files
from refdelta.table.clustering import DOMAIN, clustering_domain
from refdelta.table.column_names import dotted
from refdelta.table.features import features_of
from refdelta.table.protocol_choice import settled

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.append import Rows
    from refdelta.operations.write.target import Target
    from refdelta.transaction.transaction import Transaction


def create(txn: Transaction, target: Target, *, rows: Rows | None = None, or_replace: bool = False) -> None:
    """Stage version 0.

    Args:
        txn: the transaction.
        target: the new table.
        rows: its rows; None for none.
        or_replace: whether the statement is CREATE OR REPLACE, for the history.

    Raises:
        DeltaError: as :meth:`~refdelta.operations.write.append.Rows.write` of ``rows``.
    """
    metadata = next(action for action in target.changes if isinstance(action, Metadata))
    txn.stage(target.changes)
    operation = "CREATE OR REPLACE TABLE" if or_replace else "CREATE TABLE"
    txn.describe(operation, _parameters(metadata, target), _stage_rows(txn, target, rows))


def replace(txn: Transaction, snapshot: Snapshot, target: Target, *, rows: Rows | None = None) -> None:
    """Stage the replacement of a table, in the same history. The protocol keeps all of its features.

    Args:
        txn: the transaction.
        snapshot: the table that is replaced; all of it counts as read.
        target: the new table.
        rows: its rows; None for none.

    Raises:
        As :func:`create`.
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
    live = to_adds(snapshot.files)
    remove_files(txn, live if rows is None else rows.replaced(live))
    txn.stage([metadata] if protocol == snapshot.protocol else [protocol, metadata])
    if target.clustering_columns or DOMAIN in snapshot.domains:
        # A table whose protocol has the feature keeps the domain, even without clustering columns.
        txn.stage([clustering_domain(target.clustering_columns, target.schema)])
    txn.describe("CREATE OR REPLACE TABLE", _parameters(metadata, target), _stage_rows(txn, target, rows))


def _stage_rows(txn: Transaction, target: Target, rows: Rows | None) -> dict[str, int]:
    """Stage the rows of the new table. Returns the metrics of commitInfo."""
    if rows is None:
        return {}
    written = rows.write(FileWriter(txn.store, target))
    stage_files(txn, written)
    return {"numFiles": len(written.adds), "numOutputRows": written.rows, "numOutputBytes": written.size}


def _parameters(metadata: Metadata, target: Target) -> dict[str, str]:
    clustering = [dotted(path) for path in target.clustering_columns]
    return {
        "isManaged": "false",
        "description": metadata.description or "",
        "partitionBy": msgspec.json.encode(metadata.partition_columns).decode(),
        "clusterBy": msgspec.json.encode(clustering).decode(),
        "properties": msgspec.json.encode(metadata.configuration or {}).decode(),
    }
