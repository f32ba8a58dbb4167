"""What follows a commit: the version checksum, a checkpoint or a compaction file now and then, the cleanup of the log.

None of it is part of the commit: a hook that fails leaves the version as committed as it was. Over a network nobody
waits for the checksum: it is one more round trip, and no reader needs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refdelta.engine.log.checksum_write import encoded_checksum, put_checksum, write_checksum
from refdelta.transaction import background
from refdelta.transaction.commit_info import now_ms

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage import Store

log = logging.getLogger("refdelta")


def after_commit(snapshot: Snapshot, *, committed: int) -> None:
    """Run the hooks of the version ``committed``; ``snapshot`` is that version, or a later one if others went on
    meanwhile.

    A later snapshot says nothing exact about an earlier version, so then no checksum is written: whoever wrote the
    later version writes theirs. A checkpoint is due where a multiple of ``delta.checkpointInterval`` has been
    passed (as delta-spark has it), a compaction file at the other multiples of ``refdelta.logCompactionInterval``.
    """
    if snapshot.version == committed:
        _write_checksum(snapshot)
    snapshot.check_writable()  # it may be of others, who have changed the protocol
    interval = snapshot.properties.checkpoint_interval
    if committed > 0 and committed % interval == 0:
        past_ms = _surely_past(snapshot)
        from refdelta.engine.log.checkpoint_write import write_checkpoint
        from refdelta.engine.log.cleanup import cleanup_log

        write_checkpoint(snapshot.store, snapshot, now_ms=past_ms)
        cleanup_log(snapshot.store, snapshot, now_ms=past_ms)
        return
    every = snapshot.properties.log_compaction_interval
    if every is not None and committed > 0 and committed % every == 0:
        from refdelta.engine.log.log_compaction import compact_log

        compact_log(snapshot.store, snapshot, committed - every + 1, committed)


def _write_checksum(snapshot: Snapshot) -> None:
    store, version = snapshot.store, snapshot.version
    if not store.capabilities.remote:
        write_checksum(store, snapshot)
        return
    data = encoded_checksum(snapshot)
    background.later(store.uri, lambda: _put_behind(store, version, data))


def _put_behind(store: Store, version: int, data: bytes) -> None:
    try:
        put_checksum(store, version, data)
    except Exception as error:  # noqa: BLE001 - there is nobody to raise it to
        failed(version, error)


def failed(version: int, error: Exception) -> None:
    """Say that the commit stands, whatever befell the housekeeping behind it."""
    log.warning("version %d is committed, but what follows a commit failed: %s", version, error)


def _surely_past(snapshot: Snapshot) -> int:
    """The time from which retention counts, in milliseconds since 1970: that of the newest commit that a listing has
    shown, or our own where that is earlier.

    A clock of ours that is ahead by weeks is not to take what others still build on.
    """
    listed = snapshot.segment.listed
    now = now_ms()
    return now if listed is None or listed.mtime_ms is None else min(now, listed.mtime_ms)
