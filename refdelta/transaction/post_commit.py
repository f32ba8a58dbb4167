"""Post-commit hooks: the version checksum, checkpoints, log compaction files, and the cleanup of the log.

They are not part of the commit: if a hook fails, the version is committed all the same. On a remote store the checksum
is written in the background, since it takes one more round trip and no reader needs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refdelta.core.log.checksum import encode_checksum
from refdelta.engine.log.checksums import put_checksum
from refdelta.engine.log.managed_log import managed_by
from refdelta.transaction import background
from refdelta.transaction.commit_info import now_ms

if TYPE_CHECKING:
    from refdelta.engine.log.managed_log import ManagedStore
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage import Store

log = logging.getLogger("refdelta")


def after_commit(
    snapshot: Snapshot, *, committed: int, checkpoint: bool | None = None, cleanup: bool | None = None
) -> None:
    """Run the hooks of a version.

    A checkpoint is written at each multiple of ``delta.checkpointInterval``, as in delta-spark, and a log compaction
    file at the other multiples of ``refdelta.logCompactionInterval``. A checksum is written only if ``snapshot`` is the
    committed version: a later snapshot does not give the exact figures of an earlier version, and the writer of the
    later version writes its own.

    Args:
        snapshot: the committed version, or a later one if other writers committed meanwhile.
        committed: the version.
        checkpoint: False writes neither checkpoint nor log compaction file; None if they are due.
        cleanup: whether expired log files are removed; None removes them after a checkpoint.
    """
    if snapshot.version == committed:
        _write_checksum(snapshot)
    snapshot.check_writable()  # another writer may have changed the protocol in a later version
    interval, every = snapshot.properties.checkpoint_interval, snapshot.properties.log_compaction_interval
    due = committed > 0 and checkpoint is not False
    whole = due and committed % interval == 0
    compacted = due and not whole and every is not None and committed % every == 0
    if committed > 0:
        _publish(snapshot, committed, first=whole or compacted)
    if whole:
        from refdelta.engine.log.checkpoint_write import write_checkpoint

        write_checkpoint(snapshot.store, snapshot, now_ms=_surely_past(snapshot))
    if whole if cleanup is None else cleanup:
        from refdelta.engine.log.cleanup import cleanup_log

        cleanup_log(snapshot.store, snapshot, now_ms=_surely_past(snapshot))
    if compacted and every is not None:
        from refdelta.engine.log.log_compaction import compact_log

        compact_log(snapshot.store, snapshot, committed - every + 1, committed)


def _publish(snapshot: Snapshot, committed: int, *, first: bool) -> None:
    """Publish the commits of a catalog-managed table: in the background, unless a checkpoint or a log compaction file
    comes next, which stand for published versions only.
    """
    managed = managed_by(snapshot.store)
    if managed is None:
        return
    if first:
        managed.publish()
    else:
        background.later(snapshot.store.uri, lambda: _publish_in_background(managed, committed))


def _write_checksum(snapshot: Snapshot) -> None:
    store, version = snapshot.store, snapshot.version
    data = encode_checksum(snapshot.checksum())
    if not store.capabilities.remote:
        put_checksum(store, version, data)
        return
    background.later(store.uri, lambda: _put_in_background(store, version, data))


def _put_in_background(store: Store, version: int, data: bytes) -> None:
    try:
        put_checksum(store, version, data)
    except Exception as error:  # noqa: BLE001 - no caller is left to raise it to
        failed(version, error)


def _publish_in_background(managed: ManagedStore, version: int) -> None:
    try:
        managed.publish()
    except Exception as error:  # noqa: BLE001 - no caller is left to raise it to; the next writer publishes
        failed(version, error)


def failed(version: int, error: Exception) -> None:
    """Log the failure of a hook; the version is committed all the same."""
    log.warning("version %d is committed, but a hook after the commit failed: %s", version, error)


def _surely_past(snapshot: Snapshot) -> int:
    """The time from which retention counts back, in milliseconds since 1970: the earlier one of this machine's clock
    and the time of the newest commit in a listing.

    A local clock that is weeks ahead must not remove log files that other writers still need.
    """
    listed = snapshot.segment.listed
    now = now_ms()
    return now if listed is None or listed.mtime_ms is None else min(now, listed.mtime_ms)
