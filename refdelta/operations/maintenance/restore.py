"""RESTORE: the state of an earlier version as a new version.

Only the log is written: files that were removed since are added again, and files that were added since are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from refdelta.arrow.arrays import exact_sum
from refdelta.engine.log.references import referenced_keys
from refdelta.engine.log.removed_files import removed_by_vacuum
from refdelta.engine.log.state import to_adds, without_shared
from refdelta.engine.log.statistics import whole_adds
from refdelta.errors import DataFileNotFoundError, InvalidArgumentError
from refdelta.operations.shared.change import check_appended_nothing, stage_table, still_protected
from refdelta.operations.shared.clustering import check_not_partitioned
from refdelta.operations.shared.identity import marks_of, with_marks
from refdelta.operations.shared.rewrite import remove_files
from refdelta.operations.shared.row_ids import as_last_known
from refdelta.table.clustering import DOMAIN, clustering_domain
from refdelta.table.column_mapping import restored
from refdelta.table.features import features_of
from refdelta.table.protocol_choice import settled
from refdelta.transaction.deleted_files import missing_keys, unreferenced_since

if TYPE_CHECKING:
    from collections.abc import Mapping

    from refdelta.core.log.actions import Metadata
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction
    from refdelta_storage import Store


_NAMED = 5  # the number of missing files that an error names


def restore(
    txn: Transaction, snapshot: Snapshot, then: Snapshot, *, parameters: Mapping[str, Any], ignore_missing_files: bool
) -> None:
    """Stage the rows, schema, partition and clustering columns and properties of an earlier version.

    Each file gets the deletion vector that it had. The protocol keeps all of its features, since the versions in
    between need them. Application transactions stay, since their writes have happened.

    Args:
        txn: the transaction. All rows of the table count as read.
        snapshot: the snapshot that it reads.
        then: the version to restore.
        parameters: ``version`` or ``timestamp``, as the caller gave it.
        ignore_missing_files: leave out files that are gone, instead of raising.

    Raises:
        InvalidLogError: a property of ``then`` is not valid.
        InvalidArgumentError: ``then`` is newer than the transaction's snapshot; it is partitioned, and the table is
            clustered now; it has other columns than rows that the transaction has appended.
        DataFileNotFoundError: files of that version are gone; VACUUM removes them.
        ConcurrentDeleteReadException: a VACUUM is in progress, and may remove them.
        ConstraintViolationError: the table is append-only, and rows would be removed.
        UnsupportedFeatureError: the table would need a feature that this engine cannot write.
    """
    if then.version > snapshot.version:
        raise InvalidArgumentError(
            f"cannot restore version {then.version}: the transaction reads version {snapshot.version}, which is older"
        )
    txn.replaces_properties(None)
    _ = then.properties
    requested = features_of(then.protocol) - features_of(snapshot.protocol)
    metadata = still_protected(restored(then.metadata, snapshot.metadata), snapshot.metadata)
    # The marks of identity columns stay, so that no number is given twice.
    metadata = with_marks(metadata, marks_of(snapshot.schema))
    protocol = settled(snapshot.protocol, metadata, requested)
    check_not_partitioned(features_of(protocol), then.partition_columns)
    if not _same_columns(metadata, snapshot.metadata):
        check_appended_nothing(txn, f"restore version {then.version}, which had other columns")
    txn.read_whole_table()
    back = without_shared(then.files, snapshot.files)
    if back.num_rows:
        # This is recorded before the files are looked up, so that a VACUUM that begins afterwards is a conflict.
        txn.rest_on_files(unreferenced_since(snapshot, back))
    back = _still_there(snapshot.store, back, then.version, ignore_missing_files)
    gone = to_adds(without_shared(snapshot.files, then.files))
    remove_files(txn, gone)
    again = as_last_known(snapshot, whole_adds(back))
    txn.stage(msgspec.structs.replace(add, data_change=True) for add in again)
    stage_table(txn, snapshot, protocol, metadata)
    txn.read_domains([DOMAIN])
    clustering = then.domains.get(DOMAIN) or clustering_domain((), then.schema)
    if clustering != snapshot.domains.get(DOMAIN, clustering_domain((), then.schema)):
        txn.stage([clustering])
    removed_size, restored_size = sum(add.size for add in gone), exact_sum(back.column("size"))
    figures = {
        "tableSizeAfterRestore": snapshot.size_bytes - removed_size + restored_size,
        "numOfFilesAfterRestore": snapshot.num_files - len(gone) + back.num_rows,
        "numRemovedFiles": len(gone),
        "numRestoredFiles": back.num_rows,
        "removedFilesSize": removed_size,
        "restoredFilesSize": restored_size,
    }
    txn.describe("RESTORE", parameters, figures, _metrics(figures))


def _same_columns(one: Metadata, other: Metadata) -> bool:
    return (one.schema_string, one.partition_columns) == (other.schema_string, other.partition_columns)


def _metrics(figures: dict[str, int]) -> dict[str, int]:
    """The metrics by the names of Spark's result, and two of them also by deltalake's names."""
    return {
        "table_size_after_restore": figures["tableSizeAfterRestore"],
        "num_of_files_after_restore": figures["numOfFilesAfterRestore"],
        "num_removed_files": figures["numRemovedFiles"],
        "num_restored_files": figures["numRestoredFiles"],
        "removed_files_size": figures["removedFilesSize"],
        "restored_files_size": figures["restoredFilesSize"],
        "numRemovedFile": figures["numRemovedFiles"],
        "numRestoredFile": figures["numRestoredFiles"],
    }


def _still_there(store: Store, files: pa.Table, version: int, ignore_missing_files: bool) -> pa.Table:
    """The files that can be read: the data file and the file of its deletion vector exist."""
    missing = missing_keys(store, referenced_keys(files, store.uri).unique().to_pylist())
    if not missing:
        return files
    if not ignore_missing_files:
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        reason = removed_by_vacuum(store, version) or "probably removed by VACUUM"
        raise DataFileNotFoundError(
            f"version {version} cannot be restored: {len(missing)} of its files are gone, {named}: {reason}; "
            "ignore_missing_files=True restores the rest",
            file=missing[0],
        )
    needs = ([*referenced_keys(files.slice(row, 1), store.uri).to_pylist()] for row in range(files.num_rows))
    gone = set(missing)
    return files.filter(pa.array([gone.isdisjoint(keys) for keys in needs], pa.bool_()))
