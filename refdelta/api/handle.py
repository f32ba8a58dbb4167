"""The state of a handle on a table: its store, the snapshot that it sees, and transactions over the newest one."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Self, Unpack

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

    from refdelta.api.table_transaction import TableTransaction
    from refdelta.api.transaction import WriteTransaction
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import CommitOptions, StatementOptions
    from refdelta.transaction.results import CommitResult
    from refdelta.transaction.time_travel import Version
    from refdelta_storage import Store

_MOMENT = 2.0
"""The age in seconds up to which an append takes the newest version that the handle saw for the newest one."""


class Handle:
    """The state of a :class:`refdelta.DeltaTable`: store and snapshot; it begins the transactions of all statements.

    Args:
        store: the table's store.
        attempts: how often each statement may run after conflicts; None for once.
        timezone: the zone of times without one, as :class:`refdelta.DeltaTable` takes it.

    Attributes:
        snapshot: the version that the handle reads, once it is known.
        pinned: true if the handle was opened at one version, and is read-only.
    """

    snapshot: Snapshot

    def __init__(self, store: Store, *, attempts: int | None = None, timezone: str | None = None):
        self.store = store
        self.attempts = attempts
        self.timezone = timezone
        self.pinned = False
        # The version that was last seen to be the newest, and when (monotonic seconds); None if others are known.
        self._seen: tuple[Snapshot, float] | None = None

    def open(self, version: Version | None) -> Self:
        """Load a version or a time, and be read-only; None for the newest version, with which the handle can write."""
        if version is None:
            from refdelta.engine.log.snapshot import load_snapshot

            began = time.monotonic()
            self.snapshot = load_snapshot(self.store).in_zone(self.timezone)
            self._seen = self.snapshot, began
        else:
            self.pin(version)
        return self

    def pin(self, version: Version) -> None:
        """Load a version or a time, and be read-only. If that fails, the handle does not change."""
        from refdelta.transaction.time_travel import snapshot_at

        self.snapshot, self.pinned, self._seen = snapshot_at(self.store, version, self.timezone), True, None

    def newest_for_writing(self) -> Snapshot:
        """Move the handle to the newest version, as each statement does first.

        Raises:
            ReadOnlyTableError: the handle is pinned to a version.
        """
        if self.pinned:
            raise ReadOnlyTableError(
                f"this handle is pinned to version {self.snapshot.version} and read-only; "
                f"open DeltaTable({self.store.uri!r}) to write"
            )
        return self.advance()

    def advance(self) -> Snapshot:
        """Move the handle to the newest version, by reading the commits since."""
        began = time.monotonic()
        self.snapshot = self.snapshot.advance()
        self._seen = self.snapshot, began
        return self.snapshot

    def adopt(self, snapshot: Snapshot, *, alone: bool = False) -> None:
        """Move the handle to the snapshot after its own commit, unless it is pinned.

        Args:
            snapshot: the snapshot after the commit.
            alone: whether the commit's first attempt succeeded, so that no other writer is known.
        """
        if not self.pinned:
            self.snapshot = snapshot
            self._seen = (snapshot, time.monotonic()) if alone else None

    def recent(self) -> tuple[Snapshot, float] | None:
        """The snapshot that was the newest one less than two seconds ago, and its age in seconds.

        It comes from a listing of the log, or from the handle's own commit. None if other writers are known, if a
        checkpoint is due, since only a listing shows whether there is one already, and on a local store, where a
        listing is cheap.
        """
        if self._seen is None or self.pinned or not self.store.capabilities.remote:
            return None
        snapshot, since = self._seen
        age = time.monotonic() - since
        return (snapshot, age) if age < _MOMENT and not snapshot.due_for_checkpoint else None

    # --- transactions ---

    def begin(self, **options: Unpack[CommitOptions]) -> TableTransaction:
        """Begin a transaction on the newest version. Arguments and errors as for :meth:`refdelta.DeltaTable.begin`."""
        if "attempts" in options:
            raise TypeError(
                "unexpected keyword argument 'attempts': it goes with a statement; transact() repeats a transaction"
            )
        return self.begin_at(self.newest_for_writing(), 0.0, **options)

    def begin_at(
        self, snapshot: Snapshot | None, age: float | None, **options: Unpack[CommitOptions]
    ) -> TableTransaction:
        """Begin a transaction on a snapshot that is loaded already; after its commit the handle moves to its version.

        Args:
            snapshot: a snapshot of this table; None if there is no table yet.
            age: seconds since it was seen to be the newest one; None if that is not known.
            options: as for :meth:`begin`.
        """
        from refdelta.api.table_transaction import TableTransaction

        return TableTransaction(self.store, snapshot, age=age, on_commit=self.adopt, timezone=self.timezone, **options)

    def run(
        self, statement: Callable[[TableTransaction], object], options: StatementOptions, *, at_once: bool = True
    ) -> CommitResult:
        """Run a statement in a transaction of its own, and commit it; after a conflict again, as ``attempts`` says.

        Args:
            statement: stages the statement on the newest version.
            options: how to commit.
            at_once: whether the commit follows the statement at once, so that one that would fail may fail before it
                writes files; see :meth:`~refdelta.transaction.transaction.Transaction.lose_early`.
        """
        from refdelta.transaction.options import without_attempts

        own = without_attempts(options)

        def attempt() -> CommitResult:
            with self.begin(**own) as txn:
                txn.commits_at_once = at_once
                statement(txn)
                return txn.commit()

        return self.repeated(attempt, options)

    def transact(self, fn: Callable[[WriteTransaction], object], attempts: int, options: CommitOptions) -> CommitResult:
        """Run a transaction; arguments, result and errors as for :meth:`refdelta.DeltaTable.transact`."""
        if not callable(fn):
            raise InvalidArgumentError(f"fn must be a function of a transaction, not of type {type(fn).__name__}")
        if attempts is None:  # the default of statements, which have few reasons to run again
            raise InvalidArgumentError("attempts is None; it must be a whole number, 1 or more")
        from refdelta.api.transaction import WriteTransaction

        given: StatementOptions = {**options, "attempts": attempts}
        return self.run(lambda txn: fn(WriteTransaction(txn)), given, at_once=False)

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

        found = repeat(counted, attempts=self.most_attempts(options))
        return found if calls == 1 else dataclasses.replace(found, statement_attempts=calls)

    def most_attempts(self, options: StatementOptions) -> int:
        """How often a statement with these options may run."""
        given = options.get("attempts")
        given = self.attempts if given is None else given
        return 1 if given is None else given

    def check_readable_again(self, data: Any, options: StatementOptions) -> None:
        """Refuse rows that can be read only once, if the statement may run more often.

        Args:
            data: the rows.
            options: the options of the statement, of which ``attempts`` counts.

        Raises:
            InvalidArgumentError: ``data`` is a stream, or may be one.
        """
        attempts = self.most_attempts(options)
        if attempts == 1 or hasattr(data, "__len__"):
            return
        if not isinstance(getattr(data, "_handle", None), Handle):  # a DeltaTable
            raise InvalidArgumentError(
                f"attempts is {attempts}, and rows of type {type(data).__name__} can perhaps be read only once: give "
                "them as a table in memory, or leave attempts out"
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


def handle_of(table: Any) -> Handle:
    """The handle that a :class:`refdelta.DeltaTable` holds."""
    handle: Handle = table._handle  # noqa: SLF001 - it is ours
    return handle
