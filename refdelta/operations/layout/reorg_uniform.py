"""REORG TABLE APPLY (UPGRADE UNIFORM): make a table readable as Iceberg's.

Every file is rewritten, since old files lack ids or partition columns, or have deletion vectors. The commit conflicts
with every concurrent commit that adds or removes a file; a compaction does not.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import msgspec

from refdelta.core.rows.deletes import tombstone
from refdelta.engine.log.managed_log import check_maintenance
from refdelta.engine.parquet.write import TARGET_FILE_SIZE
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import InvalidArgumentError
from refdelta.operations.layout.bins import plan_bins
from refdelta.operations.layout.compaction import Rewriter
from refdelta.operations.shared.change import stage_table
from refdelta.table.column_mapping import MODE, completed, mode_of
from refdelta.table.iceberg_compat import PROPERTIES, version_of
from refdelta.table.properties import get
from refdelta.table.protocol_choice import settled
from refdelta.transaction.commit_info import now_ms

if TYPE_CHECKING:
    from refdelta.core.log.actions import Add, Metadata
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.layout import Aim
    from refdelta.transaction.transaction import Transaction

NAME: Final = "reorg_upgrade_uniform"
_VECTORS = "delta.enableDeletionVectors"


def upgrade_uniform(txn: Transaction, snapshot: Snapshot, version: int) -> None:
    """Stage ``icebergCompatV2`` (PROTOCOL.md, "Iceberg Compatibility V2") and the rewrite of the table's files.

    Nothing is staged if the table has it already and no file has a deletion vector.

    Args:
        txn: the transaction. All rows of the table count as read.
        snapshot: the snapshot that it reads.
        version: the version of the compatibility: 2.

    Raises:
        InvalidArgumentError: another version, or Iceberg cannot represent the table, for example the type of a column.
        UnsupportedFeatureError: the table would need a feature that this engine cannot write.
    """
    check_maintenance(snapshot.store, "reorganize")
    if version != 2:
        raise InvalidArgumentError(f"iceberg_compat_version is {version!r}; only 2 is supported")
    metadata = completed(_compatible(snapshot.metadata), snapshot.metadata)
    protocol = settled(snapshot.protocol, metadata, before=snapshot.metadata, keeps_files=False)
    txn.read_whole_table()
    after = dataclasses.replace(snapshot, metadata=metadata, protocol=protocol)
    # If the files were written for it already, only those with deletion vectors are rewritten.
    was = version_of(snapshot.metadata.configuration) == version
    removed, added = files_anew(txn, snapshot, after, "purge" if was else "upgrade")
    stage_table(txn, snapshot, protocol, metadata)
    figures = rewrite_figures(removed, added)
    metrics = {"numFilesAdded": len(added), "numFilesRemoved": len(removed)}
    txn.describe("REORG", {"predicate": "[]", "applyPurge": "false", "icebergCompatVersion": "2"}, figures, metrics)


def files_anew(txn: Transaction, before: Snapshot, after: Snapshot, aim: Aim) -> tuple[list[Add], list[Add]]:
    """Rewrite files for new metadata of the table, and stage the replacement.

    Args:
        txn: the transaction.
        before: the table by which files are read.
        after: the table with its new metadata, by which files are written. If it tracks rows, they keep their ids.
        aim: the files to rewrite: ``upgrade`` for all, ``purge`` for those with deletion vectors.

    Returns:
        The entries of the removed files, and of the added files.
    """
    target = after.properties.target_file_size or TARGET_FILE_SIZE
    plan = plan_bins(before, aim, filters=None, target=target, min_size=0)
    executor = txn.executor or ThreadExecutor(min(4, max(1, len(plan.bins))))
    tracked = after.tracked()
    reads = dataclasses.replace(before, tracks=tracked.tracks)
    rewriter = Rewriter(tracked.without_files(), target, None, (), reads=reads.without_files())
    groups = list(
        executor.map(
            rewriter.rewrite,
            map(plan.files_of, plan.bins),
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
    """The ``operationMetrics`` of :func:`files_anew`."""
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
