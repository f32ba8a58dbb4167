"""Writing version checksums: what a version adds up to, for readers to check themselves by.

PROTOCOL.md, "Version Checksum File". Other engines refuse a table whose checksum is wrong, so a field is either exact
or left out. The list of all files is left out, which each version of a small table would repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.checksum import SIZE_BINS, FileSizeHistogram, VersionChecksum, encode_checksum
from refdelta.core.log.paths import checksum_key
from refdelta.core.table.features import features_of
from refdelta.engine.parquet.files import store_errors
from refdelta_storage.base import Created

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store

# Beyond so many application ids or domains the list is left out, as in delta-spark: every version repeats it.
_LISTED = 100


def write_checksum(store: Store, snapshot: Snapshot, *, txn_id: str | None = None) -> bool:
    """Write the ``.crc`` file of a version that is committed; one that is there stays as it is.

    Args:
        store: the table's folder.
        snapshot: the version.
        txn_id: ``commitInfo.txnId`` of its commit; None to take it from the snapshot's, where that was read.

    Returns:
        Whether it was written now.

    Raises:
        StoreError: the store refused or failed. The commit stands nevertheless; a checksum is an aid.
    """
    return put_checksum(store, snapshot.version, encoded_checksum(snapshot, txn_id=txn_id))


def encoded_checksum(snapshot: Snapshot, *, txn_id: str | None = None) -> bytes:
    """The content of the ``.crc`` file of a version; see :func:`write_checksum`."""
    return encode_checksum(version_checksum(snapshot, txn_id=txn_id))


def put_checksum(store: Store, version: int, data: bytes) -> bool:
    """Write the ``.crc`` file of a version, with this content; see :func:`write_checksum`."""
    key = checksum_key(version)
    with store_errors(f"write {key}"):
        # What a power cut leaves of it is read as none; to wait for the disk would cost as much as the commit.
        return isinstance(store.hasty().put_if_absent(key, data), Created)


def version_checksum(snapshot: Snapshot, *, txn_id: str | None = None) -> VersionChecksum:
    """What a version adds up to."""
    properties = snapshot.properties
    if txn_id is None and snapshot.commit_info is not None:
        found = snapshot.commit_info.fields.get("txnId")
        txn_id = found if isinstance(found, str) else None
    # Where application ids expire, two readers may rightly disagree on which there are.
    listed = properties.set_transaction_retention_ms is None and len(snapshot.txns) <= _LISTED
    totals, hidden, vectors, bins = snapshot.live.totals, None, None, None
    if "deletionVectors" in features_of(snapshot.protocol):
        hidden, vectors, bins = totals.hidden, totals.vectors, totals.bins
    counts, sums = map(list, totals.sizes)
    return VersionChecksum(
        table_size_bytes=totals.size,
        num_files=totals.files,
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        txn_id=txn_id,
        in_commit_timestamp=snapshot.timestamp_ms if properties.enable_in_commit_timestamps else None,
        set_transactions=tuple(snapshot.txns.values()) if listed else None,
        domain_metadata=tuple(snapshot.domains.values()) if len(snapshot.domains) <= _LISTED else None,
        num_deleted_records=hidden,
        num_deletion_vectors=vectors,
        deleted_record_counts=bins,
        file_size_histogram=FileSizeHistogram(
            sorted_bin_boundaries=list(SIZE_BINS), file_counts=counts, total_bytes=sums
        ),
    )
