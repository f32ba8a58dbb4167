"""Write the version checksum file of a commit (PROTOCOL.md, "Version Checksum File")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refdelta.core.log.paths import checksum_key
from refdelta.engine.log.identity import CommitIdentity, Placement
from refdelta.engine.log.managed_log import managed_by
from refdelta.engine.parquet.files import store_errors
from refdelta_storage.base import Created

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store


def put_checksum(store: Store, snapshot: Snapshot, data: bytes) -> bool:
    """Write the ``.crc`` file of a version that was committed just now. An existing file is never overwritten.

    The version is looked for afterwards only; before it was when it was committed. One that a catalog has not published
    is not looked for.

    Args:
        store: the table's folder.
        snapshot: the version.
        data: the content; see :func:`refdelta.core.log.checksum.encode_checksum`.

    Returns:
        Whether the file was written by this call.

    Raises:
        StoreError: the store refused or failed. The commit stands nevertheless.
    """
    version = snapshot.version
    key, managed = checksum_key(version), managed_by(store)
    identity = CommitIdentity.of(snapshot) if managed is None or managed.published >= version else None
    placement = Placement(store, identity, version)
    placement.writes(key, data)
    with store_errors(f"write {key}"):
        # A file that a power cut has damaged is read as a missing one; a sync to disk would cost as much as the commit.
        created = isinstance(store.hasty().put_if_absent(key, data), Created)
        if created and not placement.stands():
            placement.remove()
            return False
        return created
