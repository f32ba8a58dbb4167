"""REORG TABLE APPLY (UPGRADE UNIFORM): a table that can be read as Iceberg's from one version on.

Every file is written anew, since the old ones lack ids, partition columns, or have deletion vectors. It is no
compaction that others' writes could be brought into: it passes over nobody who added or removed a file.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import msgspec

from refdelta.core.rows.deletes import tombstone
from refdelta.core.table.column_mapping import MODE, completed, mode_of
from refdelta.core.table.iceberg_compat import PROPERTIES, version_of
from refdelta.core.table.properties import get
from refdelta.core.table.protocol_choice import settled
from refdelta.engine.parquet.write import TARGET_FILE_SIZE
from refdelta.engine.scan.executor import ThreadExecutor
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.change import stage_table
from refdelta.operations.layout.bins import plan_bins
from refdelta.operations.layout.compaction import Rewriter
from refdelta.transaction.commit_info import now_ms

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add, Metadata
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.layout.bins import Aim
    from refdelta.transaction.transaction import Transaction

NAME: Final = "reorg_upgrade_uniform"
_VECTORS = "delta.enableDeletionVectors"


def upgrade_uniform(txn: Transaction, snapshot: Snapshot, version: int) -> None:
    """Stage that a table has ``icebergCompatV2`` (PROTOCOL.md, "Iceberg Compatibility V2"), and its files what that
    asks for. Where it has it already, and no file a deletion vector, nothing is staged.

    Args:
        txn: the transaction. All rows of the table count as read.
        snapshot: what it sees.
        version: of the compatibility: 2.

    Raises:
        InvalidArgumentError: another version, or a table that Iceberg cannot have, such as for a type.
        UnsupportedFeatureError: the table would need a feature that this engine cannot write.
    """
    if version != 2:
        raise InvalidArgumentError(f"there is no compatibility {version!r} to upgrade to: it is 2")
    metadata = completed(_compatible(snapshot.metadata), snapshot.metadata)
    protocol = settled(snapshot.protocol, metadata, before=snapshot.metadata, keeps_files=False)
    txn.read_whole_table()
    after = dataclasses.replace(snapshot, metadata=metadata, protocol=protocol)
    # Of files that were written for it, those with vectors alone have to go.
    was = version_of(snapshot.metadata.configuration) == version
    removed, added = files_anew(txn, snapshot, after, "purge" if was else "upgrade")
    stage_table(txn, snapshot, protocol, metadata)
    figures = rewrite_figures(removed, added)
    told = {"numFilesAdded": len(added), "numFilesRemoved": len(removed)}
    txn.describe("REORG", {"predicate": "[]", "applyPurge": "false", "icebergCompatVersion": "2"}, figures, told)


def files_anew(txn: Transaction, before: Snapshot, after: Snapshot, aim: Aim) -> tuple[list[Add], list[Add]]:
    """Write files anew, under the schema that a snapshot has by now, and stage that they take the old ones' place.

    Args:
        txn: the transaction.
        before: the table, as its files are read.
        after: the same with the metadata that it gets, as they are written. Rows keep their ids where it tracks them.
        aim: which of the files: all for ``upgrade``, those with deletion vectors for ``purge``.

    Returns:
        The entries of those that went, and of those that came.
    """
    target = after.properties.target_file_size or TARGET_FILE_SIZE
    bins = plan_bins(before, aim, filters=None, target=target, min_size=0).bins
    executor = txn.executor or ThreadExecutor(min(4, max(1, len(bins))))
    tracked = after.tracked()
    reads = dataclasses.replace(before, tracks=tracked.tracks)
    rewriter = Rewriter(tracked.without_files(), target, None, (), reads=reads.without_files())
    groups = list(
        executor.map(
            rewriter.rewrite,
            bins,
            done=lambda group: txn.own_files(output.add for output in group.outputs),
            writes=txn.store,
        )
    )
    removed = [each.add for group in groups for each in group.inputs]
    added = [output.add for group in groups for output in group.outputs]
    txn.read_files(removed)
    txn.stage(tombstone(add, now_ms=now_ms(), data_change=False) for add in removed)
    txn.stage(added)
    return removed, added


def rewrite_figures(removed: list[Add], added: list[Add]) -> dict[str, int]:
    """What :func:`files_anew` did, as ``operationMetrics`` have it."""
    return {
        "numAddedFiles": len(added),
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(add.size for add in added),
        "numRemovedBytes": sum(add.size for add in removed),
    }


def _compatible(metadata: Metadata) -> Metadata:
    configuration = dict(metadata.configuration or {})
    if get(configuration, PROPERTIES[1]):
        configuration[PROPERTIES[1]] = "false"
    if get(configuration, _VECTORS):
        configuration[_VECTORS] = "false"
    if mode_of(metadata) == "none":
        configuration[MODE] = "name"
    return msgspec.structs.replace(metadata, configuration={**configuration, PROPERTIES[2]: "true"})
