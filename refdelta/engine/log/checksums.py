"""Version checksum files, compared with the log (PROTOCOL.md, "Version Checksum File").

Other engines refuse a table whose checksum is wrong. The log is the truth: a reader that finds a contradiction logs a
warning and goes on, and no checkpoint is written of such a version, since a checkpoint replaces the log once older
commits are removed. The content is computed by :meth:`refdelta.engine.log.snapshot.Snapshot.checksum`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from refdelta.core.log.checksum import decode_checksum
from refdelta.core.log.paths import checksum_key
from refdelta.errors import DeltaError
from refdelta.table.features import features_of
from refdelta_storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from refdelta.core.log.actions import Metadata, Protocol
    from refdelta.core.log.checksum import VersionChecksum
    from refdelta_storage.base import Store

_T = TypeVar("_T")


def contradictions(store: Store, version: int, computed: Callable[[], VersionChecksum]) -> list[str]:
    """The differences between a version's checksum file and its log.

    Args:
        store: the table's folder.
        version: the version.
        computed: returns the checksum by the log; called only if there is a checksum file.

    Returns:
        Strings such as ``numFiles is 3 by the checksum, 2 by the log``. Empty if there is no checksum file,
        or if the file cannot be read or the checksum cannot be computed.
    """
    key = checksum_key(version)
    try:
        stored = decode_checksum(store.get(key), key)
        return list(_differences(stored, computed()))
    except (StorageError, DeltaError):
        return []


def _differences(stored: VersionChecksum, ours: VersionChecksum) -> Iterator[str]:
    """Optional fields are compared only if both sides have them."""
    pairs: list[tuple[str, Any, Any]] = [
        ("tableSizeBytes", stored.table_size_bytes, ours.table_size_bytes),
        ("numFiles", stored.num_files, ours.num_files),
        ("inCommitTimestampOpt", stored.in_commit_timestamp, ours.in_commit_timestamp),
        ("numDeletedRecordsOpt", stored.num_deleted_records, ours.num_deleted_records),
        ("numDeletionVectorsOpt", stored.num_deletion_vectors, ours.num_deletion_vectors),
    ]
    counts, own_counts = stored.deleted_record_counts, ours.deleted_record_counts
    sizes, own_sizes = stored.file_size_histogram, ours.file_size_histogram
    bins_differ = sizes is None or own_sizes is None or sizes.sorted_bin_boundaries != own_sizes.sorted_bin_boundaries
    yield from (
        f"{name} is {there} by the checksum, {here} by the log"
        for name, there, here in pairs
        if there is not None and here is not None and there != here
    )
    same = {
        "setTransactions": _agree(
            stored.set_transactions, ours.set_transactions, lambda txn: (txn.app_id, txn.version)
        ),
        "domainMetadata": _agree(
            stored.domain_metadata, ours.domain_metadata, lambda domain: (domain.domain, domain.configuration)
        ),
        "protocol": _protocol_content(stored.protocol) == _protocol_content(ours.protocol),
        "metadata": _metadata_content(stored.metadata) == _metadata_content(ours.metadata),
        "deletedRecordCountsHistogramOpt": counts is None or own_counts is None or counts == own_counts,
        "fileSizeHistogram": bins_differ or sizes == own_sizes,
    }
    yield from (f"{name} in the checksum differs from the log" for name, equal in same.items() if not equal)


def _agree(theirs: Sequence[_T] | None, ours: Sequence[_T] | None, key: Callable[[_T], Any]) -> bool:
    return theirs is None or ours is None or (len(theirs) == len(ours) and set(map(key, theirs)) == set(map(key, ours)))


def _protocol_content(protocol: Protocol) -> Any:
    return protocol.min_reader_version, protocol.min_writer_version, features_of(protocol)


def _metadata_content(metadata: Metadata) -> Any:
    """The fields that matter, normalized: engines omit empty fields, and encode the same schema in several ways."""
    try:
        schema: Any = json.loads(metadata.schema_string)
    except (ValueError, RecursionError):
        schema = metadata.schema_string
    texts = (metadata.id, metadata.name, metadata.description, metadata.created_time)
    return texts, metadata.partition_columns, metadata.configuration or {}, schema
