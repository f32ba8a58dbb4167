"""Holding a version's checksum against what its log says (PROTOCOL.md, "Version Checksum File").

The log is what counts: a reader is told of a contradiction and goes on. A checkpoint, which stands for the log once
older commits are gone, is not written over one.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from refdelta.core.log.checksum import VersionChecksum, decode_checksum
from refdelta.core.log.paths import checksum_key
from refdelta.core.table.features import features_of
from refdelta.engine.log.checksum_write import version_checksum
from refdelta.errors import DeltaError, InvalidLogError
from refdelta_storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from refdelta.core.log.actions import Metadata, Protocol
    from refdelta.engine.log.snapshot import Snapshot

_T = TypeVar("_T")

log = logging.getLogger("refdelta")


def contradictions(snapshot: Snapshot) -> list[str]:
    """What the version's checksum says other than its log does; nothing where there is none, or none that can be read.

    Returns:
        Texts such as ``numFiles is 3 by the checksum, 2 by the log``.
    """
    key = checksum_key(snapshot.version)
    try:
        stored = decode_checksum(snapshot.store.get(key), key)
        return list(_differences(stored, version_checksum(snapshot)))
    except (StorageError, DeltaError):
        return []  # of a version that cannot be added up there is nothing to say, either


def warn_of_contradictions(snapshot: Snapshot) -> None:
    """Log a warning where the checksum contradicts the version that was just read."""
    found = contradictions(snapshot)
    if found:
        log.warning(
            "%s: the checksum of version %d contradicts the log, which is followed: %s",
            snapshot.store.uri,
            snapshot.version,
            "; ".join(found),
        )


def refuse_contradictions(snapshot: Snapshot) -> None:
    """Raise ``InvalidLogError`` where the checksum contradicts the version."""
    found = contradictions(snapshot)
    if found:
        raise InvalidLogError(
            f"it contradicts the log of version {snapshot.version}: {'; '.join(found)}",
            file=checksum_key(snapshot.version),
        )


def _differences(stored: VersionChecksum, ours: VersionChecksum) -> Iterator[str]:
    """Of the fields that may be left out, only those that both have are compared."""
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
        "protocol": _needs(stored.protocol) == _needs(ours.protocol),
        "metadata": _says(stored.metadata) == _says(ours.metadata),
        "deletedRecordCountsHistogramOpt": counts is None or own_counts is None or counts == own_counts,
        "fileSizeHistogram": bins_differ or sizes == own_sizes,
    }
    yield from (f"{name} is another by the checksum" for name, equal in same.items() if not equal)


def _agree(theirs: Sequence[_T] | None, ours: Sequence[_T] | None, key: Callable[[_T], Any]) -> bool:
    return theirs is None or ours is None or (len(theirs) == len(ours) and set(map(key, theirs)) == set(map(key, ours)))


def _needs(protocol: Protocol) -> Any:
    return protocol.min_reader_version, protocol.min_writer_version, features_of(protocol)


def _says(metadata: Metadata) -> Any:
    """What counts: engines leave out what is empty, and write the same schema in several ways."""
    try:
        schema: Any = json.loads(metadata.schema_string)
    except (ValueError, RecursionError):
        schema = metadata.schema_string
    texts = (metadata.id, metadata.name, metadata.description, metadata.created_time)
    return texts, metadata.partition_columns, metadata.configuration or {}, schema
