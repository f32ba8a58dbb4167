"""CREATE TABLE: a version that holds the protocol and the metadata, and no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from refdelta.protocol.actions import Metadata

if TYPE_CHECKING:
    from refdelta.ops.target import Target
    from refdelta.results import CommitResult
    from refdelta.staging import Staging


def create(txn: Staging, target: Target) -> CommitResult:
    """Commit version 0. Raises ``ProtocolChangedException`` if another writer created the table meanwhile."""
    metadata = next(action for action in target.changes if isinstance(action, Metadata))
    txn.stage(target.changes)
    parameters = {
        "isManaged": "false",
        "description": metadata.description or "",
        "partitionBy": msgspec.json.encode(metadata.partition_columns).decode(),
        "properties": msgspec.json.encode(metadata.configuration or {}).decode(),
    }
    txn.describe("CREATE TABLE", parameters, {})
    return txn.commit()
