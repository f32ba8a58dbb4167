"""Tables as a catalog object has read them last, for its next transaction or snapshot.

The catalog says at which version a table is, so a kept snapshot never hides a newer one: it is moved to that version,
or is that version. It counts only for the same table of the same database.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refdelta.errors import DeltaError
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from refdelta.engine.log.managed_log import ManagedStore
    from refdelta.engine.log.snapshot import Snapshot

MOST_TABLES = 64
MOST_FILES = 100_000
"""The most files of all kept snapshots together: about 55 MB of memory."""


@dataclass(frozen=True, slots=True)
class _Kept:
    log: ManagedStore
    snapshot: Snapshot

    def is_newer(self, log: ManagedStore, snapshot: Snapshot) -> bool:
        """Whether this is a later version of the same history."""
        return self.log.session == log.session and self.snapshot.version > snapshot.version


class KeptSnapshots:
    """The last snapshots of tables. Thread-safe."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, table: Hashable, version: int, session: str | None) -> tuple[ManagedStore, Snapshot] | None:
        """The log of a table and its snapshot at a version; None if they are not known, or cannot be reached from what
        is known.

        Args:
            table: the table, with all that its catalog says of it but its versions.
            version: the version.
            session: the identity of the database and of the table's history in it, by which the catalog has answered.
        """
        with self._lock:
            kept = self._tables.get(table)
        if kept is None or kept.log.session != session:
            return None
        snapshot = kept.snapshot
        # Where a checkpoint is due, another writer may have written it.
        if snapshot.version < version or snapshot.due_for_checkpoint:
            try:
                snapshot = snapshot.advance()
            except (DeltaError, StorageError):  # raised again where the table is opened anew
                return None
            if kept.log.session != session:
                return None
        return (kept.log, snapshot) if snapshot.version == version else None

    def keep(self, table: Hashable, log: ManagedStore, snapshot: Snapshot) -> None:
        """Remember a snapshot of a table, unless a newer one is known. Those that were used longest ago are forgotten.

        Args:
            table: the table, as for :meth:`at`.
            log: its log.
            snapshot: the snapshot.
        """
        with self._lock:
            known = self._tables.get(table)
            if known is None or not known.is_newer(log, snapshot):
                self._tables[table] = _Kept(log, snapshot)
            self._tables.move_to_end(table)
            while len(self._tables) > MOST_TABLES or self._files > MOST_FILES:
                self._tables.popitem(last=False)

    @property
    def _files(self) -> int:
        return sum(one.snapshot.num_files for one in self._tables.values())
