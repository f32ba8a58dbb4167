"""A handle on a table: its store, the snapshot that it sees, and transactions over the newest one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Unpack

from refdelta.engine.log.snapshot import Snapshot
from refdelta.errors import (
    ConstraintViolationError,
    ReadOnlyTableError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from refdelta.transaction.driver import CERTAIN_FAILURES

# What a method needs beyond that, it imports: who reads one table shall not wait for the verbs.
if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.api.transaction import WriteTransaction
    from refdelta.transaction.options import CommitOptions
    from refdelta.transaction.results import CommitResult
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

    def begin(self, **options: Unpack[CommitOptions]) -> WriteTransaction:
        """Begin a transaction by hand, on the newest version. Nothing is visible before its ``commit()``.

        Args:
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`: ``isolation``, ``app_id``
                and ``app_version``, ``commit_properties``, ``executor``.

        Raises:
            ReadOnlyTableError: the handle is pinned to a version.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
            InvalidArgumentError: the table records some of several versions of applications, and not all.

        Example::

            with table.begin(isolation="Serializable") as txn:
                txn.delete("id = 3")
                result = txn.commit()
        """
        return self.begin_at(self.newest_for_writing(), 0.0, **options)

    def begin_at(
        self, snapshot: Snapshot | None, age: float | None, **options: Unpack[CommitOptions]
    ) -> WriteTransaction:
        """Begin a transaction on a snapshot that is at hand; the handle follows its commit.

        Args:
            snapshot: of this table.
            age: seconds since it was seen to be the newest one; None where that is not known.
            options: as for :meth:`begin`.
        """
        from refdelta.api.transaction import WriteTransaction

        return WriteTransaction(self._store, snapshot, age=age, on_commit=self._follow, **options)

    def over_newest(self, write: Callable[[Snapshot, float], CommitResult], *, again: bool) -> CommitResult:
        """Write over the newest version of the table.

        A handle that knew the newest version a moment ago need not look whether it still is the newest: the put of the
        commit shows it, which over a network saves a round trip. An append depends on nothing that another writer could
        have changed meanwhile but the table's schema and protocol, and a change of these conflicts; then, as after any
        other error, the append is repeated over the newest version.

        Args:
            write: writes over a snapshot whose age in seconds is given.
            again: whether it is an append that can be repeated.
        """
        recent = self.recent() if again else None
        if recent is None:
            return write(self.newest_for_writing(), 0.0)
        try:
            return write(*recent)
        except (*CERTAIN_FAILURES, SchemaMismatchError, ConstraintViolationError, UnsupportedFeatureError):
            # Nothing was committed.
            before, _ = recent
            newest = self.newest_for_writing()
            if newest.version == before.version and newest.metadata is before.metadata:
                raise
        return write(newest, 0.0)

    def _follow(self, snapshot: Snapshot, *, alone: bool = False) -> None:
        if not self._pinned:
            self.adopt(snapshot, alone=alone)
