"""Write the version checksum file of a commit (PROTOCOL.md, "Version Checksum File")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.paths import checksum_key
from refdelta.engine.log.identity import CommitIdentity, Placement
from refdelta.engine.parquet.files import store_errors
from refdelta_storage.base import Created

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store


def put_checksum(store: Store, snapshot: Snapshot, data: bytes) -> bool:
    """Write the ``.crc`` file of a version that was committed just now. An existing file is never overwritten.

    The version is looked for afterwards only; before it was when it was committed. If it is no longer there, or that is
    not known, since the store or the catalog fails, the file is removed again.

    Args:
        store: the table's folder.
        snapshot: the version.
        data: the content; see :func:`refdelta.core.log.checksum.encode_checksum`.

    Returns:
        Whether the file was written by this call.

    Raises:
        StoreError: the store refused or failed. The commit stands nevertheless.
    """
    key = checksum_key(snapshot.version)
    placement = Placement(store, CommitIdentity.of(snapshot), snapshot.version)
    return put_for(placement, key, data)


def put_for(placement: Placement, key: str, data: bytes) -> bool:
    """Put a file that does not exist yet beside a version. See :func:`put_checksum`."""
    placement.writes(key, data)
    with store_errors(f"write {key}"):
        # A file that a power cut has damaged is read as a missing one; a sync to disk would cost as much as the commit.
        if not isinstance(placement.store.hasty().put_if_absent(key, data), Created):
            return False
        stands = False
        try:
            stands = placement.stands()
        finally:
            if not stands:
                placement.remove()
        return stands
