"""Write the version checksum file of a commit (PROTOCOL.md, "Version Checksum File")."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from refdelta.core.log.checksum import decode_checksum
from refdelta.core.log.paths import checksum_key
from refdelta.engine.log.identity import Placement
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import InvalidLogError
from refdelta_storage.base import Committed, Exists
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.core.log.actions import CommitInfo
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store


def put_checksum(store: Store, snapshot: Snapshot, data: bytes) -> bool:
    """Write the ``.crc`` file of a version that was committed just now. An existing file is replaced only if it is of
    another commit, which is none of this table.

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
    placement = Placement(store, snapshot.identity, snapshot.version)
    return put_for(placement, key, data, partial(_is_of_another, snapshot.commit_info))


def put_for(placement: Placement, key: str, data: bytes, is_of_another: Callable[[bytes], bool]) -> bool:
    """Put a file beside a version; ``is_of_another`` tells of one that is there whether another commit has left it. See
    :func:`put_checksum`.
    """
    placement.writes(key, data)
    with store_errors(f"write {key}"):
        # A file that a power cut has damaged is read as a missing one; a sync to disk would cost as much as the commit.
        put = placement.store.hasty().put_if_absent
        outcome = put(key, data)
        if isinstance(outcome, Exists) and _removes(placement, key, is_of_another):
            outcome = put(key, data)
        if not isinstance(outcome, Committed):
            return False
        stands = False
        try:
            stands = placement.stands()
        finally:
            if not stands:
                placement.remove()
        return stands


def _removes(placement: Placement, key: str, is_of_another: Callable[[bytes], bool]) -> bool:
    """Remove a file that another commit has left, if the version of this one is in the log."""
    try:
        found, content = placement.store.head(key), placement.store.get(key)
    except ObjectNotFoundError:
        return True
    if not is_of_another(content) or not placement.stands():
        return False
    placement.store.delete_unchanged([found])
    return True


def _is_of_another(info: CommitInfo | None, content: bytes) -> bool:
    """Whether a checksum names another transaction."""
    own = None if info is None else info.fields.get("txnId")
    try:
        theirs = decode_checksum(content, "").txn_id
    except InvalidLogError:
        return False
    return None not in (own, theirs) and own != theirs
