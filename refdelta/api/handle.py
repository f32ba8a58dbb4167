"""A handle on a table: its store, the snapshot that it sees, and transactions over the newest one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from refdelta.engine.log.snapshot import Snapshot
from refdelta.errors import ReadOnlyTableError

# What a method needs beyond that, it imports: who reads one table shall not wait for the verbs.
if TYPE_CHECKING:
    from refdelta.api.transaction import WriteTransaction
    from refdelta.engine.scan.executor import Executor
    from refdelta.transaction.results import CommitProperties
    from refdelta.transaction.time_travel import Version
    from refdelta_storage import Store

_MOMENT = 2.0
"""For how many seconds a handle that appends takes what was the newest version for the newest one."""


class Handle:
    """What :class:`refdelta.DeltaTable` is, whatever is done with the table."""

    _store: Store
    _snapshot: Snapshot
    _pinned: bool
    # What was seen to be the newest version, and when; None where others are known to write.
    _seen: tuple[Snapshot, float] | None = None

    @property
    def table_uri(self) -> str:
        """Where the table is, without credentials."""
        return self._store.uri

    @property
    def store(self) -> Store:
        """The table's store."""
        return self._store

    @property
    def pinned(self) -> bool:
        """Whether the handle was made for one version, and is read-only."""
        return self._pinned

    def version(self) -> int:
        """The version that this handle sees."""
        return self._snapshot.version

    def load_as_version(self, version: Version) -> None:
        """Move the handle to a version or a time, and make it read-only. Where that fails, it stays where it is.

        Args:
            version: as the constructor takes it. Errors are those of the constructor, too.
        """
        from refdelta.transaction.time_travel import snapshot_at

        self._snapshot, self._pinned, self._seen = snapshot_at(self._store, version), True, None

    def update_incremental(self) -> None:
        """Move the handle to the newest version, reading only what was committed since; a pinned handle is freed.

        Raises:
            TableNotFoundError: the table is gone.
            InvalidLogError: the log breaks the protocol; the handle stays where it is.
            UnsupportedFeatureError: the table needs a feature by now that this engine cannot read.
        """
        self._advance()
        self._pinned = False

    def newest_for_writing(self) -> Snapshot:
        """Move the handle to the newest version, as every verb does first.

        Raises ``ReadOnlyTableError`` for a pinned one.
        """
        if self._pinned:
            raise ReadOnlyTableError(
                f"this handle is pinned to version {self.version()} and read-only; "
                f"DeltaTable({self.table_uri!r}) can write"
            )
        return self._advance()

    def _advance(self) -> Snapshot:
        began = time.monotonic()
        self._snapshot = self._snapshot.advance()
        self._seen = self._snapshot, began
        return self._snapshot

    def adopt(self, snapshot: Snapshot, *, alone: bool = False) -> None:
        """Move the handle to the snapshot that its own commit left behind; ``alone``: nobody else had come first."""
        self._snapshot = snapshot
        self._seen = (snapshot, time.monotonic()) if alone else None

    def recent(self) -> tuple[Snapshot, float] | None:
        """The snapshot that was the newest one a moment ago, by a look at the log or as it is of the handle's own
        commit, and its age in seconds. None where others write too, where a checkpoint is due, which only a look at the
        log shows, and on a store of this machine, where a look costs nothing.
        """
        if self._seen is None or self._pinned or not self._store.capabilities.remote:
            return None
        snapshot, since = self._seen
        age = time.monotonic() - since
        return (snapshot, age) if age < _MOMENT and not snapshot.due_for_checkpoint else None

    # --- transactions ---

    def begin(
        self,
        *,
        isolation: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> WriteTransaction:
        """Begin a transaction by hand, on the newest version. Nothing is visible before its ``commit()``.

        Args:
            isolation: ``WriteSerializable`` or ``Serializable``, at least as strict as the table's own level; None for
                that.
            app_id: with ``app_version``, makes it idempotent: it writes nothing if the table records this version of
                the application, or a later one.
            app_version: see ``app_id``.
            commit_properties: how to commit, and what to note in the commit.
            executor: who reads and writes the files of statements: threads of this process where it is None, the
                workers of a Spark cluster by :class:`refdelta.spark.SparkExecutor`. What is committed, and whether it
                may be, is decided here in any case.

        Raises:
            ReadOnlyTableError: the handle is pinned to a version.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
            InvalidArgumentError: the table records some of several versions of applications, and not all.
        """
        from refdelta.api.transaction import WriteTransaction
        from refdelta.transaction.staging import Staging

        snapshot = self.newest_for_writing()
        staging = Staging(
            self._store,
            snapshot,
            commit_properties=commit_properties,
            app_id=app_id,
            app_version=app_version,
            isolation=isolation,
            executor=executor,
        )
        return WriteTransaction(staging, snapshot, self._follow)

    def _follow(self, snapshot: Snapshot, *, alone: bool = False) -> None:
        if not self._pinned:
            self.adopt(snapshot, alone=alone)
