"""FSCK REPAIR TABLE: remove the entries of data files that do not exist any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from refdelta.core.log.paths import data_key
from refdelta.engine.log.state import to_adds
from refdelta.operations.shared.rewrite import remove_files
from refdelta.transaction.deleted_files import missing_keys

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.transaction import Transaction


def repair(txn: Transaction, snapshot: Snapshot) -> list[str]:
    """Stage the removal of all live files whose data file is gone. Their rows are lost already.

    A file whose deletion vector is gone stays: its rows exist, and it is not known which of them are deleted.

    Args:
        txn: the transaction.
        snapshot: the snapshot that it reads. The store is asked once for each of its files.

    Returns:
        The keys of the files.

    Raises:
        ConstraintViolationError: the table is append-only, and files are gone.
        StoreError: the store refused or failed.
    """
    gone = missing_files(snapshot)
    adds = to_adds(gone)
    remove_files(txn, adds)
    keys = _keys(snapshot, gone)
    figures = {"numRemovedFiles": len(adds), "numRemovedBytes": sum(add.size for add in adds)}
    txn.describe("FSCK", {"dryRun": "false"}, figures, {"dry_run": False, "files_removed": keys})
    return keys


def missing_files(snapshot: Snapshot) -> pa.Table:
    """The rows of a snapshot's file list whose data file is gone. Raises ``StoreError`` as :func:`repair`."""
    keys = _keys(snapshot, snapshot.files)
    gone = {*missing_keys(snapshot.store, keys)}
    return snapshot.files.filter(pa.array([key in gone for key in keys], pa.bool_()))


def missing_names(snapshot: Snapshot) -> list[str]:
    """The keys of :func:`missing_files`."""
    return _keys(snapshot, missing_files(snapshot))


def _keys(snapshot: Snapshot, files: pa.Table) -> list[str]:
    return [data_key(path, snapshot.store.uri) for path in files.column("path").to_pylist()]
