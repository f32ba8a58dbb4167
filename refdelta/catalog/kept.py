"""Tables as a catalog object has read them last, for its next transaction or snapshot.

The catalog says at which version a table is, so a kept snapshot never hides a newer one: it is moved to that version,
or is that version. It counts only for the same table of the same database. Nothing of a table that is large is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refdelta.errors import DeltaError
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from refdelta.catalog.base import Seen
    from refdelta.engine.log.managed_log import ManagedStore
    from refdelta.engine.log.snapshot import Snapshot

MOST_TABLES = 64
MOST_FILES = 100_000
"""The most files of a table whose snapshot is kept: about 50 MiB of memory."""


@dataclass(frozen=True, slots=True)
class _Kept:
    seen: Seen
    log: ManagedStore
    snapshot: Snapshot


class KeptSnapshots:
    """The last snapshots of tables, by their ids. Thread-safe."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, seen: Seen) -> tuple[ManagedStore, Snapshot] | None:
        """The log of a table and its snapshot at a version; None if they are not known, or cannot be reached from what
        is known.

        Args:
            seen: the table and the version, as the catalog has named them.
        """
        with self._lock:
            kept = self._tables.get(seen.entry.table_id)
        if kept is None or kept.seen.entry != seen.entry or kept.log.session != seen.session:
            return None
        snapshot = kept.snapshot
        # Where a checkpoint is due, another writer may have written it.
        if snapshot.version < seen.version or snapshot.due_for_checkpoint:
            try:
                snapshot = snapshot.advance()
            except (DeltaError, StorageError):  # raised again where the table is opened anew
                return None
            if kept.log.session != seen.session:
                return None
        return (kept.log, snapshot) if snapshot.version == seen.version else None

    def keep(self, seen: Seen, log: ManagedStore, snapshot: Snapshot) -> None:
        """Remember a snapshot of a table, unless a newer one is known, or it has too many files.

        Args:
            seen: the table, as the catalog has named it.
            log: its log.
            snapshot: the snapshot.
        """
        if snapshot.num_files > MOST_FILES:
            return
        table_id = seen.entry.table_id
        with self._lock:
            known = self._tables.get(table_id)
            if known is not None and known.log is log and known.snapshot.version > snapshot.version:
                return
            self._tables[table_id] = _Kept(seen, log, snapshot)
            self._tables.move_to_end(table_id)
            while len(self._tables) > MOST_TABLES:
                self._tables.popitem(last=False)
