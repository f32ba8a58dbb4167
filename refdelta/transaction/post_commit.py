"""Post-commit hooks: the version checksum, checkpoints, log compaction files, and the cleanup of the log.

They are not part of the commit: if a hook fails, the version is committed all the same. No commit waits for a
checkpoint, a compaction file or a cleanup, which are written in the background. So is the checksum on a remote store,
since it takes one more round trip and no reader needs it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from refdelta.core.log.assigned import LAST
from refdelta.core.log.checksum import encode_checksum
from refdelta.engine.log.checksum_write import put_checksum
from refdelta.engine.log.listing import hinted_version, newest_checkpoint_at
from refdelta.engine.log.managed_log import managed_by
from refdelta.engine.log.store_clock import time_of_newest
from refdelta.errors import VersionNotFoundError
from refdelta.transaction import background

if TYPE_CHECKING:
    from refdelta.engine.log.managed_log import ManagedStore
    from refdelta.engine.log.snapshot import Snapshot

log = logging.getLogger("refdelta")

_PUBLISHES_EVERY = 5


def after_commit(
    snapshot: Snapshot, *, committed: int, checkpoint: bool | None = None, cleanup: bool | None = None
) -> None:
    """Run the hooks of a version, or start them.

    A checkpoint is written at each multiple of ``delta.checkpointInterval``, as in delta-spark; of a table without this
    property, when reading the commits after the last one would cost as much
    (:mod:`refdelta.core.log.checkpoint_schedule`). A log compaction file is written at the other multiples of
    ``refdelta.logCompactionInterval``. A checksum is written only if ``snapshot`` is the committed version: a later
    snapshot does not give the exact figures of an earlier version, and the writer of the later version writes its own.

    Args:
        snapshot: the committed version, or a later one if other writers committed meanwhile.
        committed: the version.
        checkpoint: False writes neither checkpoint nor log compaction file; None if they are due.
        cleanup: whether expired log files are removed; None removes them after a checkpoint.
    """
    if snapshot.version == committed and _is_worth_a_checksum(snapshot):
        _write_checksum(snapshot)
    snapshot.check_writable()  # another writer may have changed the protocol in a later version
    every = snapshot.properties.log_compaction_interval
    due = committed > 0 and checkpoint is not False
    whole = due and snapshot.is_due(committed)
    compacted = due and not whole and every is not None and committed % every == 0
    started = False
    if whole or compacted or cleanup:
        work = _Maintenance(snapshot, committed, whole, every if compacted else None, cleanup)
        # Where the costs decide, the next multiple of ten makes up for a checkpoint that is not written.
        by_cost = whole and snapshot.properties.checkpoint_interval is None and not cleanup
        started = background.run(snapshot.store.uri, background.MAINTENANCE, work.run, unless_busy=by_cost)
    if started and whole:
        snapshot.newest_checkpoint.asked = max(snapshot.newest_checkpoint.asked, snapshot.version)
    elif committed > 0 and not (started and compacted):
        _publish(snapshot, committed)


def _is_worth_a_checksum(snapshot: Snapshot) -> bool:
    """Over a network, a commit to a catalog needs no put of its own, and is not to need one for its checksum."""
    remote = snapshot.store.capabilities.remote
    return not remote or not snapshot.is_managed or snapshot.version % _PUBLISHES_EVERY == 0


class _Maintenance(msgspec.Struct, frozen=True):
    """The work on the log after a commit.

    Attributes:
        snapshot: the committed version, or a later one.
        committed: the version.
        whole: whether a checkpoint is due.
        compacted: the number of commits of which a log compaction file is due; None for no such file.
        cleanup: whether expired log files are removed; None removes them after a checkpoint.
    """

    snapshot: Snapshot
    committed: int
    whole: bool
    compacted: int | None
    cleanup: bool | None

    def run(self) -> None:
        """Do it. Errors are logged."""
        try:
            self._run()
        except VersionNotFoundError as error:
            log.info("nothing was written for version %d of %s: %s", self.committed, self.snapshot.store.uri, error)
        except Exception as error:  # noqa: BLE001 - no caller is left to raise it to
            failed(self.committed, error)

    def _run(self) -> None:
        snapshot, committed = self.snapshot, self.committed
        written = self.whole and _still_due(snapshot, committed)
        if written:
            from refdelta.engine.log.checkpoint_write import write_checkpoint

            write_checkpoint(snapshot.store, snapshot, replace=False)
        if written if self.cleanup is None else self.cleanup:
            from refdelta.engine.log.cleanup import cleanup_log

            cleanup_log(snapshot.store, snapshot, now_ms=time_of_newest(snapshot))
        if self.compacted:
            from refdelta.engine.log.log_compaction import compact_log

            compact_log(snapshot.store, snapshot, committed - self.compacted + 1, committed)


def _still_due(snapshot: Snapshot, committed: int) -> bool:
    """Whether no other writer has written a checkpoint that spares this one. If there is one, the next snapshots of the
    same handle begin there. Those of ``delta.checkpointInterval`` are always written.
    """
    if snapshot.properties.checkpoint_interval is not None:
        return True
    base, store = snapshot.segment.checkpoint, snapshot.store
    hint = hinted_version(store)
    if hint is None or hint <= (-1 if base is None else base.version):
        return True
    found = newest_checkpoint_at(store, hint, snapshot.version)
    if found is None:
        return True
    snapshot.newest_checkpoint.files = found
    return snapshot.is_due(committed)


def _publish(snapshot: Snapshot, committed: int) -> None:
    """Publish the commits of a catalog-managed table: in the background after each fifth version, so that of many
    writers one publishes; at once if many commits wait.
    """
    managed = managed_by(snapshot.store)
    if managed is None:
        return
    if managed.has_backlog():
        managed.publish()
    elif committed % _PUBLISHES_EVERY == 0:
        work = partial(_publish_in_background, managed, committed)
        background.run(snapshot.store.uri, background.PUBLICATION, work)


def _write_checksum(snapshot: Snapshot) -> None:
    checksum, store = snapshot.checksum(), snapshot.store
    if max(checksum.table_size_bytes, checksum.num_deleted_records or 0) > LAST:
        return  # no reader could read it
    data = encode_checksum(checksum)
    if not store.capabilities.remote:
        put_checksum(store, snapshot, data)
        return
    background.run(store.uri, background.CHECKSUM, partial(_put_in_background, snapshot, data))


def _put_in_background(snapshot: Snapshot, data: bytes) -> None:
    try:
        put_checksum(snapshot.store, snapshot, data)
    except Exception as error:  # noqa: BLE001 - no caller is left to raise it to
        failed(snapshot.version, error)


def _publish_in_background(managed: ManagedStore, version: int) -> None:
    try:
        managed.publish(yields=True)
    except Exception as error:  # noqa: BLE001 - no caller is left to raise it to; the next writer publishes
        failed(version, error)


def failed(version: int, error: Exception) -> None:
    """Log the failure of a hook; the version is committed all the same."""
    log.warning("version %d is committed, but a hook after the commit failed: %s", version, error)
