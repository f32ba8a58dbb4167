"""A VACUUM that has begun and not ended when a transaction that brings files back takes its snapshot.

A VACUUM that begins later is a winner, and the rules see it. One that began before is in the snapshot already: its
``VACUUM START`` says which files it may delete, and as long as no ``VACUUM END`` follows it may still do so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from refdelta.core.conflicts.rules import RULES
from refdelta.core.log.footprint import VACUUM_END, VACUUM_START, retention_ms
from refdelta.errors import ConflictDetails
from refdelta.operations.maintenance.history import history
from refdelta.transaction.commit_info import now_ms

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot

LONGEST_MS: Final = 24 * 3_600_000
"""A VACUUM that began longer ago than this, in milliseconds, was interrupted: it deletes nothing any more."""

_ADVICE: Final = (
    "Repeat the operation when that VACUUM has ended; if it was interrupted, run VACUUM once more, which ends it."
)


def check_no_vacuum_in_progress(snapshot: Snapshot, since_ms: int) -> None:
    """Refuse to bring back files that a VACUUM may be deleting.

    Args:
        snapshot: the snapshot of the transaction.
        since_ms: the earliest time at which one of the files may have become unreferenced, in milliseconds since 1970.

    Raises:
        ConcurrentDeleteReadException: a VACUUM is in progress, and may delete one of the files.
    """
    if snapshot.timestamp_ms <= since_ms:
        return  # no VACUUM of the log can reach the files
    oldest = now_ms() - LONGEST_MS
    for entry in history(snapshot):
        operation = entry.get("operation")
        if operation == VACUUM_END or entry["timestamp"] < oldest:
            return
        if operation == VACUUM_START and since_ms < entry["timestamp"] - (retention_ms(entry) or 0):
            rule = next(rule for rule in RULES if rule.id == "files-deleted")
            raise rule.error(rule.sentence, ConflictDetails(rule.id, entry["version"], VACUUM_START, (), _ADVICE))
