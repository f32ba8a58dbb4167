"""A handle on a table: its store, the snapshot that it sees, and transactions over the newest one."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Unpack

from refdelta.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    ReadOnlyTableError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)

# Methods import the rest, the engine with Arrow first of all, when they are called: a program starts faster.
if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.api.transaction import WriteTransaction
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import CommitOptions, StatementOptions
    from refdelta.transaction.results import CommitResult
    from refdelta.transaction.time_travel import Version
    from refdelta_storage import Store

_MOMENT = 2.0
"""The age in seconds up to which an append takes the newest version that the handle saw for the newest one."""


class Handle:
    """The state of a :class:`refdelta.DeltaTable`: store and snapshot; it begins the transactions of all statements."""

    _store: Store
    _snapshot: Snapshot
    _pinned: bool
    _attempts: int | None = None
    _timezone: str | None = None
    # The version that was last seen to be the newest, and when (monotonic seconds); None if other writers are known.
    _seen: tuple[Snapshot, float] | None = None

    @property
    def table_uri(self) -> str:
        """The URI of the table's folder, without credentials."""
        return self._store.uri

    @property
    def store(self) -> Store:
        """The table's store."""
        return self._store

    @property
    def pinned(self) -> bool:
        """True if the handle was opened at one version, and is read-only."""
        return self._pinned

    def version(self) -> int:
        """The version that this handle reads."""
        return self._snapshot.version

    def load_as_version(self, version: Version) -> None:
        """Move the handle to a version or a time, and make it read-only. If that fails, the handle does not change.

        Args:
            version: a version or a time, as the constructor takes it. Errors are those of the constructor.

        Example::

            table.load_as_version(0)
            table.count()
        """
        from refdelta.transaction.time_travel import snapshot_at

        self._snapshot, self._pinned, self._seen = snapshot_at(self._store, version, self._timezone), True, None

    def update_incremental(self) -> None:
        """Move the handle to the newest version, by reading the commits since; a read-only handle becomes writable.

        Raises:
            TableNotFoundError: the table is gone.
            InvalidLogError: the log breaks the protocol; the handle does not change.
            UnsupportedFeatureError: the table now needs a feature that this engine cannot read.

        Example::

            write_deltalake(table.table_uri, rows, mode="append")
            table.update_incremental()
            table.count()
        """
        self._advance()
        self._pinned = False

    def newest_for_writing(self) -> Snapshot:
        """Move the handle to the newest version, as each statement does first.

        Raises:
            ReadOnlyTableError: the handle is pinned to a version.
        """
        if self._pinned:
            raise ReadOnlyTableError(
                f"this handle is pinned to version {self.version()} and read-only; "
                f"open DeltaTable({self.table_uri!r}) to write"
            )
        return self._advance()

    def _advance(self) -> Snapshot:
        began = time.monotonic()
        self._snapshot = self._snapshot.advance()
        self._seen = self._snapshot, began
        return self._snapshot

    def adopt(self, snapshot: Snapshot, *, alone: bool = False) -> None:
        """Move the handle to the snapshot after its own commit.

        Args:
            snapshot: the snapshot after the commit.
            alone: whether the commit's first attempt succeeded, so that no other writer is known.
        """
        self._snapshot = snapshot
        self._seen = (snapshot, time.monotonic()) if alone else None

    def recent(self) -> tuple[Snapshot, float] | None:
        """The snapshot that was the newest one less than two seconds ago, and its age in seconds.

        It comes from a listing of the log, or from the handle's own commit. None if other writers are known, if a
        checkpoint is due, since only a listing shows whether there is one already, and on a local store, where a
        listing is cheap.
        """
        if self._seen is None or self._pinned or not self._store.capabilities.remote:
            return None
        snapshot, since = self._seen
        age = time.monotonic() - since
        return (snapshot, age) if age < _MOMENT and not snapshot.due_for_checkpoint else None

    # --- transactions ---

    def begin(self, **options: Unpack[CommitOptions]) -> WriteTransaction:
        """Begin a transaction on the newest version. Nothing is visible before its ``commit()``.

        Args:
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`: ``isolation``, ``app_id``
                and ``app_version``, ``commit_properties``, ``executor``.

        Raises:
            ReadOnlyTableError: the handle is pinned to a version.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
            InvalidArgumentError: the table records some, but not all, of several application versions.

        Example::

            with table.begin(isolation="Serializable") as txn:
                txn.delete("id = 3")
                result = txn.commit()
        """
        if "attempts" in options:
            raise InvalidArgumentError("attempts goes with a statement; transact() repeats a transaction")
        return self.begin_at(self.newest_for_writing(), 0.0, **options)

    def run(self, statement: Callable[[WriteTransaction], object], options: StatementOptions) -> CommitResult:
        """Run a statement in a transaction of its own, and commit it; after a conflict again, as ``attempts`` says.

        Args:
            statement: stages the statement on the newest version.
            options: how to commit.
        """
        from refdelta.transaction.options import without_attempts

        own = without_attempts(options)

        def attempt() -> CommitResult:
            with self.begin(**own) as txn:
                statement(txn)
                return txn.commit()

        return self.repeated(attempt, options)

    def repeated(self, attempt: Callable[[], CommitResult], options: StatementOptions) -> CommitResult:
        """The result of the attempt that had no conflict.

        Args:
            attempt: begins a transaction on the newest version, and commits it.
            options: of the statement: ``attempts`` is the maximum number of calls.
        """
        from refdelta.transaction.repeat import repeat

        calls = 0

        def counted() -> CommitResult:
            nonlocal calls
            calls += 1
            return attempt()

        found = repeat(counted, attempts=self._most_attempts(options))
        return found if calls == 1 else dataclasses.replace(found, statement_attempts=calls)

    def _most_attempts(self, options: StatementOptions) -> int:
        given = options.get("attempts")
        given = self._attempts if given is None else given
        return 1 if given is None else given

    def check_readable_again(self, data: Any, options: StatementOptions) -> None:
        """Refuse rows that can be read only once, if the statement may run more often.

        Args:
            data: the rows.
            options: the options of the statement, of which ``attempts`` counts.

        Raises:
            InvalidArgumentError: ``data`` is a stream, or may be one.
        """
        if self._most_attempts(options) != 1 and not hasattr(data, "__len__") and not isinstance(data, Handle):
            raise InvalidArgumentError(
                f"attempts is {self._most_attempts(options)}, and rows of type {type(data).__name__} can perhaps be "
                "read only once: give them as a table in memory, or leave attempts out"
            )

    def begin_at(
        self, snapshot: Snapshot | None, age: float | None, **options: Unpack[CommitOptions]
    ) -> WriteTransaction:
        """Begin a transaction on a snapshot that is loaded already; after its commit the handle moves to its version.

        Args:
            snapshot: a snapshot of this table.
            age: seconds since it was seen to be the newest one; None if that is not known.
            options: as for :meth:`begin`.
        """
        from refdelta.api.transaction import WriteTransaction

        return WriteTransaction(
            self._store, snapshot, age=age, on_commit=self._follow, timezone=self._timezone, **options
        )

    def over_newest(self, write: Callable[[Snapshot, float], CommitResult], *, again: bool) -> CommitResult:
        """Write over the newest version of the table.

        If the handle saw the newest version a moment ago, an append does not list the log again: the put of the commit
        shows whether there is a newer version, and that saves a round trip over a network. An append depends only on
        the table's schema and protocol, and a concurrent change of these conflicts. Then, as after any other error
        before the commit, the append is repeated over the newest version.

        Args:
            write: writes over a snapshot; its second argument is the snapshot's age in seconds.
            again: whether ``write`` is an append that can be repeated.
        """
        recent = self.recent() if again else None
        if recent is None:
            return write(self.newest_for_writing(), 0.0)
        from refdelta.transaction.driver import CERTAIN_FAILURES  # a process that only reads does not need it

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
