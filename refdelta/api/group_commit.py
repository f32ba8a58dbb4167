"""``GroupCommit``: the transactions of many threads and tasks, several in one version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Self, Unpack

from refdelta import arguments
from refdelta.api.handle import Handle
from refdelta.errors import InvalidArgumentError
from refdelta.operations.write.target import WriteRequest
from refdelta.transaction.group import CommitGroup
from refdelta.transaction.options import check_options, without_attempts

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from types import TracebackType

    from refdelta.api.table_transaction import TableTransaction
    from refdelta.api.transaction import WriteTransaction
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import CommitOptions, StatementOptions
    from refdelta.transaction.results import CommitResult


class _GroupHandle(Handle):
    """A handle whose transactions commit in a group, and which moves with the group."""

    def __init__(self, handle: Handle, group: CommitGroup) -> None:
        super().__init__(handle.store, attempts=handle.attempts, timezone=handle.timezone)
        self.group = group

    @property
    def snapshot(self) -> Snapshot:  # type: ignore[override]
        """The newest version that the group knows."""
        return self.group.snapshot

    def newest_for_writing(self) -> Snapshot:
        """See :meth:`CommitGroup.newest`."""
        return self.group.newest()

    def adopt(self, snapshot: Snapshot, *, alone: bool = False) -> None:  # noqa: ARG002 - of Handle
        """Let the group move to the version of a transaction that it did not commit."""
        self.group.adopt(snapshot)

    def recent(self) -> tuple[Snapshot, float] | None:
        """The newest version that the group knows: if there is a newer one, the commit finds out."""
        return self.group.snapshot, 0.0

    def begin_at(
        self, snapshot: Snapshot | None, age: float | None, **options: Unpack[CommitOptions]
    ) -> TableTransaction:
        """See :meth:`Handle.begin_at`."""
        txn = super().begin_at(snapshot, age, **options)
        txn.group = self.group
        return txn


class GroupCommit:
    """A group of transactions that commit together; made by :meth:`refdelta.DeltaTable.group_commit`.

    Each call is a transaction with its own outcome, which comes when its version is durable. Calls may come from any
    number of threads and tasks. A call that conflicts fails alone.

    Example::

        with table.group_commit() as group:
            futures = [group.submit(lambda txn: txn.append(rows)) for _ in range(3)]
            versions = {future.result().version for future in futures}
    """

    def __init__(self, handle: Handle, *, max_wait_ms: float, max_transactions: int) -> None:
        wait = arguments.seconds("max_wait_ms", max_wait_ms)
        most = arguments.whole("max_transactions", max_transactions)
        if wait is None or most is None or most < 1:
            raise InvalidArgumentError(
                f"max_transactions is {max_transactions!r}, and max_wait_ms {max_wait_ms!r}; a group needs a time, and "
                "a whole number of 1 or more"
            )
        self._of = handle
        self._group = CommitGroup(
            handle.newest_for_writing(), max_wait=wait / 1000, max_transactions=most, on_version=handle.adopt
        )
        self._handle = _GroupHandle(handle, self._group)
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="refdelta-group")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the group: calls that began end first, and no other one begins. Again, it does nothing.

        Example::

            group = table.group_commit()
            try:
                group.append(rows)
            finally:
                group.close()
        """
        self._pool.shutdown(wait=True)
        self._group.close()

    def append(self, data: Any, **options: Unpack[StatementOptions]) -> CommitResult:
        """Append rows.

        Args:
            data: the rows, as :func:`refdelta.write_deltalake` takes them.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the commit; ``member`` is its place in the version, None if it has the version for itself.

        Raises:
            SchemaMismatchError: the rows do not fit the table.
            InvalidArgumentError: the group has ended.

        Example::

            with table.group_commit() as group:
                result = group.append(rows)
        """
        check_options(options)
        own, request = without_attempts(options), WriteRequest(mode="append")
        self._handle.check_readable_again(data, options)

        def write(snapshot: Snapshot, age: float) -> CommitResult:
            with self._handle.begin_at(snapshot, age, **own) as txn:
                txn.write(data, request, always=True)
                return txn.commit()

        again = hasattr(data, "__len__")
        with self._group.call("append"):
            return self._handle.repeated(lambda: self._handle.over_newest(write, again=again), options)

    def transact(
        self, fn: Callable[[WriteTransaction], object], *, attempts: int = 10, **options: Unpack[CommitOptions]
    ) -> CommitResult:
        """Run a transaction, and repeat it after each conflict; see :meth:`refdelta.DeltaTable.transact`.

        A change of metadata or of the protocol, values of identity columns, OPTIMIZE, and statements that must be seen
        by name (VACUUM, RESTORE) have a version for themselves.

        Args:
            fn: stages statements on the transaction that it is called with.
            attempts: the maximum number of attempts, at least 1.
            options: how to commit.

        Raises:
            ConcurrentModificationError: the conflict of the last attempt, also with an earlier transaction of the same
                version.

        Example::

            with table.group_commit() as group:
                result = group.transact(lambda txn: txn.delete("id = 3"))
        """
        with self._group.call("transact"):
            return self._handle.transact(fn, attempts, options)

    def submit(
        self, fn: Callable[[WriteTransaction], object], *, attempts: int = 10, **options: Unpack[CommitOptions]
    ) -> Future[CommitResult]:
        """Run a transaction in a thread of the group; arguments as for :meth:`transact`.

        Example::

            with table.group_commit() as group:
                future = group.submit(lambda txn: txn.append(rows))
                result = future.result()
        """
        return self._submitted(self.transact, fn, attempts=attempts, **options)

    async def append_async(self, data: Any, **options: Unpack[StatementOptions]) -> CommitResult:
        """Append rows; ``await`` it. Arguments, result and errors as for :meth:`append`.

        Example::

            async def main():
                with table.group_commit() as group:
                    return await group.append_async(rows)
        """
        import asyncio

        return await asyncio.wrap_future(self._submitted(self.append, data, **options))

    async def transact_async(
        self, fn: Callable[[WriteTransaction], object], *, attempts: int = 10, **options: Unpack[CommitOptions]
    ) -> CommitResult:
        """Run a transaction; ``await`` it. Arguments, result and errors as for :meth:`transact`.

        Example::

            async def main():
                with table.group_commit() as group:
                    return await group.transact_async(lambda txn: txn.delete("id = 3"))
        """
        import asyncio

        return await asyncio.wrap_future(self._submitted(self.transact, fn, attempts=attempts, **options))

    def _submitted(self, call: Callable[..., CommitResult], *args: Any, **options: Any) -> Future[CommitResult]:
        try:
            return self._pool.submit(copy_context().run, call, *args, **options)
        except RuntimeError:  # the pool was shut down
            raise InvalidArgumentError("the group has ended; group_commit() begins another one") from None
