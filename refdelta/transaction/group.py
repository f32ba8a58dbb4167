"""Group commit in a process: the transactions of its threads share versions (:mod:`refdelta.core.commit.group`).

A thread that commits queues its transaction. If no other thread is at work, it leads: it commits the queued ones as one
version, again and again until its own has ended, and then passes the lead on. While it waits for the store the next
transactions queue up, so the put is the pause in which a group forms, and a single writer waits for no other.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refdelta.core.commit import effects
from refdelta.core.commit.leading import check_loop
from refdelta.core.commit.loop import group_loop
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome
from refdelta.engine.log.identity import CommitIdentity
from refdelta.engine.log.snapshot import follow
from refdelta.engine.parquet.dv import KeptVectors, remove_vectors
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import CommitFailedError, CommitOutcomeUnknownError, InvalidArgumentError
from refdelta.transaction.driver import RetryPolicy, RowChecks, Shell, committer_of, run_loop
from refdelta.transaction.events import watching
from refdelta.transaction.post_commit import after_commit, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from refdelta.core.commit.transaction import PreparedCommit
    from refdelta.core.log.actions import Add, Cdc
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.transaction.options import CommitProperties
    from refdelta_storage import Store

_KEPT = 64
"""The number of versions whose commits are kept for transactions that read an older one."""


@dataclass(slots=True)
class _Waiting:
    """A queued transaction.

    Attributes:
        member: the transaction.
        checks: looks at rows for it.
        properties: its notes.
        files: the files that it wrote.
        base: the version that it read; None if it is not compared.
        woken: set when it has ended, or is to lead.
        leads: whether its thread is to lead.
        in_flight: whether a loop has it.
    """

    member: Member
    checks: RowChecks
    properties: CommitProperties
    files: Sequence[Add | Cdc]
    base: CommitIdentity | None = None
    woken: threading.Event = field(default_factory=threading.Event)
    leads: bool = False
    in_flight: bool = False

    @property
    def ended(self) -> bool:
        return self.member.outcome is not None


class CommitGroup:
    """The transactions of one process on one table that commit together.

    Args:
        snapshot: the newest version that is known.
        max_wait: the longest time, in seconds, that a version waits for transactions that are being prepared.
        max_transactions: the most transactions of a version.
        on_version: called with the snapshot after each version.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        max_wait: float,
        max_transactions: int,
        on_version: Callable[[Snapshot], None] = lambda _: None,
    ) -> None:
        self.store: Store = snapshot.store
        self._snapshot, self._seen_at = snapshot, time.monotonic()
        self._max_wait, self._most, self._on_version = max_wait, max_transactions, on_version
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._queue: list[_Waiting] = []
        self._calls, self._leading, self._closed = 0, False, False
        self._look = threading.Lock()
        self._looked_at = time.monotonic()
        self._kept: dict[int, bytes] = {}
        # The last versions that the group has seen of this table.
        self._bases = {snapshot.version: snapshot.identity}
        self._vectors = KeptVectors()

    # --- calls ---

    @contextmanager
    def call(self, verb: str) -> Iterator[None]:
        """A call that may commit, from its begin on, so that a version can wait for it.

        Args:
            verb: the call, for messages.

        Raises:
            InvalidArgumentError: the group has ended, or this process is a fork of the one in which it began.
        """
        if os.getpid() != self._process:
            raise InvalidArgumentError(
                f"cannot {verb}: the group began in process {self._process}, of which this one is a fork; begin one in "
                "this process"
            )
        with self._changed:
            if self._closed:
                raise InvalidArgumentError(f"cannot {verb}: the group has ended; group_commit() begins another one")
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """End the group: no call begins any more, and those that began end first."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._calls)

    # --- the snapshot ---

    @property
    def snapshot(self) -> Snapshot:
        """The newest version that is known."""
        return self._snapshot

    def newest(self) -> Snapshot:
        """The newest version, by a look at the log that begins after this call. Calls at the same time share one."""
        asked = time.monotonic()
        with self._look:
            if self._looked_at < asked:
                began = time.monotonic()
                self._move_to(self._advanced(), began)
                self._looked_at = began
        return self._snapshot

    def _advanced(self) -> Snapshot:
        """The newest version, by a look at the log. If this no longer has the version before, nothing that the group
        knows of the log holds any more: the table was removed, restored from a copy, or cleaned up.
        """
        before = self._snapshot
        newest = before.advance()
        if newest.newest_checkpoint is not before.newest_checkpoint:  # it was read from the beginning
            identity = before.identity
            with store_errors("look at the log"):
                stands = identity is not None and identity.stands(self.store)
            if not stands:
                with self._changed:
                    self._kept.clear()
                    self._bases.clear()
                    self._snapshot = newest
        return newest

    def _followed(self, base: Snapshot, log: Sequence[bytes], new: set[str]) -> Snapshot:
        """The snapshot after commits whose contents are known, with the paths that no earlier version can have."""
        return follow(self.store, base, log, new=new)

    def adopt(self, snapshot: Snapshot) -> None:
        """Move to the version of a transaction that was committed by itself, if it is a newer one."""
        if snapshot.version > self._snapshot.version:
            self._move_to(snapshot, time.monotonic())

    def held(self, first: int, last: int) -> tuple[bytes, ...] | None:
        """The commits of these versions, if the group has read or written all of them lately."""
        found = [self._kept.get(version) for version in range(first, last + 1)]
        return None if None in found else tuple(one for one in found if one is not None)

    def _move_to(self, snapshot: Snapshot, seen_at: float) -> None:
        with self._changed:
            if snapshot.version >= self._snapshot.version:
                self._snapshot, self._seen_at = snapshot, seen_at
                self._bases[snapshot.version] = snapshot.identity
                for old in [number for number in self._bases if number <= snapshot.version - _KEPT]:
                    del self._bases[old]
        self._on_version(self._snapshot)

    # --- commits ---

    @staticmethod
    def takes(properties: CommitProperties) -> bool:
        """Whether a transaction with these properties can share a version here: it has no limits of its own for
        retries, and is not to share one with other processes, where its intent stands for it.
        """
        limits = properties.max_commit_retries, properties.max_commit_seconds
        return properties.group is None and limits == (None, None)

    def commit(
        self,
        prepared: PreparedCommit,
        checks: RowChecks,
        properties: CommitProperties,
        files: Sequence[Add | Cdc],
        base: CommitIdentity | None = None,
    ) -> CommitOutcome:
        """Commit a transaction with those of other threads.

        Args:
            prepared: the transaction.
            checks: looks at rows for it.
            properties: its notes.
            files: the files that it wrote.
            base: the version that it read; None if it is not compared.

        Raises:
            As :func:`refdelta.transaction.driver.commit`.
        """
        mine = _Waiting(Member(prepared, RetryPolicy.of(properties)), checks, properties, files, base)
        with watching(self.store.uri, prepared, mine.member.tally) as watch:
            with self._changed:
                self._queue.append(mine)
                self._changed.notify_all()
                mine.leads, self._leading = not self._leading, True
            try:
                if not mine.leads:
                    mine.woken.wait()
                while not mine.ended:
                    self._commit_version()
            finally:
                self._leave(mine)
            if not isinstance(outcome := mine.member.outcome, CommitOutcome):
                raise outcome or AssertionError("a transaction that is not queued any more has ended")
            watch.ended = outcome
        return outcome

    def _leave(self, mine: _Waiting) -> None:
        """The thread of a transaction goes on: another one leads, if this one did. It may have been interrupted; then
        its transaction is not committed any more, if no loop has it yet.
        """
        with self._changed:
            if not mine.in_flight:
                self._queue = [one for one in self._queue if one is not mine]
            if not mine.leads:
                return
            self._leading = bool(self._queue)
            if self._queue:
                self._queue[0].leads = True
                self._queue[0].woken.set()

    def _commit_version(self) -> None:
        """Commit those of the queued transactions that one version can have."""
        with self._changed:
            # Calls that have not queued their transaction yet are preparing it.
            self._changed.wait_for(lambda: len(self._queue) >= min(self._calls, self._most), timeout=self._max_wait)
            waiting = self._queue[: self._most]
            for one in waiting:
                one.in_flight = True
            base, seen_at = self._snapshot, self._seen_at
        began, shell = time.monotonic(), None
        try:
            committer = committer_of(self.store, base.version, seen_at=seen_at, base=base.identity)
            checks = {one.member.prepared.txn_id: one.checks for one in waiting}
            inline = base.properties.inline_deletion_vectors
            shell = _GroupShell(
                self.store, committer, checks, inline_vectors=inline, known=self._vectors, kept=self._kept
            )
            for one in waiting:
                if not self._has_read_this(one):
                    one.member.outcome = CommitFailedError(
                        f"version {one.member.base}, which this transaction has read, is no longer in the log: it was "
                        "cleaned up, or the table was removed or replaced. Nothing was committed; open the table again "
                        "and repeat the operation"
                    )
            members = [one.member for one in waiting if not one.ended]
            if behind := [one for one in members if one.base < base.version]:
                # Most began while the version before was being put: a put of it would be lost.
                run_loop(check_loop(behind, base.version), shell.perform)
            if left := [one for one in members if one.outcome is None]:
                run_loop(group_loop(left, shell.policy), shell.perform)
        except BaseException as error:
            # Such as an interrupt of this thread: the others get an answer, too.
            self._interrupted(waiting, error, None if shell is None else shell.tried)
            raise
        finally:
            ended = self._ended(waiting, shell)
            moved = None if shell is None else self._follow(ended, base, shell, began)
            for one in ended:
                one.woken.set()
        if moved is not None:
            self._run_hooks(moved, ended)

    def _has_read_this(self, one: _Waiting) -> bool:
        """Whether the version that a transaction has read is one of the log that the group follows."""
        if one.base is None:
            return True
        known = self._bases.get(one.base.file.version)
        if known is not None and (known.info is one.base.info is not None or known == one.base):
            return True
        with store_errors("look at the log"):
            return one.base.stands(self.store)

    def _interrupted(self, waiting: Iterable[_Waiting], error: BaseException, tried: int | None) -> None:
        """End the transactions of a loop that was broken off. Without a put, those of other threads stay queued."""
        why = "the thread that committed for several was interrupted"
        for one in waiting:
            if one.ended:
                continue
            if tried is not None:
                one.member.outcome = CommitOutcomeUnknownError(why, tried, one.member.prepared.txn_id)
            elif isinstance(error, Exception):
                one.member.outcome = error

    def _ended(self, waiting: Sequence[_Waiting], shell: _GroupShell | None) -> list[_Waiting]:
        """Clean up after a loop; returns the transactions that have ended."""
        ended = [one for one in waiting if one.ended]
        outcomes = [one.member.outcome for one in ended]
        if shell is not None and not any(isinstance(one, CommitOutcomeUnknownError) for one in outcomes):
            kept = [vector for one in outcomes if isinstance(one, CommitOutcome) for vector in one.vectors]
            remove_vectors(self.store, shell.vectors, keep=kept)
        for one in ended:
            error = one.member.outcome
            if shell is not None and isinstance(error, Exception):
                said = shell.described(error, one.member.prepared)
                said.__cause__ = error.__cause__
                one.member.outcome = said
        with self._changed:
            for one in waiting:
                one.in_flight = False
            self._queue = [one for one in self._queue if not one.ended]
        return ended

    def _follow(
        self, ended: Sequence[_Waiting], base: Snapshot, shell: _GroupShell, began: float
    ) -> tuple[Snapshot, int] | None:
        """Move to the version that was committed; returns it, with its number. None if there is none."""
        outcomes = [one.member.outcome for one in ended]
        versions = [one.version for one in outcomes if isinstance(one, CommitOutcome) and one.version is not None]
        version = max(versions, default=-1)
        if version <= base.version:
            return None
        for old in [number for number in self._kept if number <= version - _KEPT]:
            del self._kept[old]
        try:
            log = shell.committer.log_after(base.version, version)
            written = {file.path for one in ended for file in one.files}
            snapshot = self._advanced() if log is None else self._followed(base, log, written)
            self._move_to(snapshot, began)
        except Exception as error:  # noqa: BLE001 - the version is committed all the same
            failed(version, error)
            return None
        return snapshot, version

    def _run_hooks(self, moved: tuple[Snapshot, int], ended: Sequence[_Waiting]) -> None:
        """Run the hooks after a version, once for all of its transactions."""
        snapshot, version = moved
        properties = [one.properties for one in ended]
        try:
            after_commit(
                snapshot,
                committed=version,
                checkpoint=False if all(one.create_checkpoint is False for one in properties) else None,
                cleanup=next((one.cleanup_expired_logs for one in properties if one.cleanup_expired_logs), None),
            )
        except Exception as error:  # noqa: BLE001 - likewise
            failed(version, error)


class _GroupShell(Shell):
    """Carries out the effects of a group's loop, and keeps the last commits for transactions that read older versions.

    Attributes:
        tried: the version of the last put.
    """

    def __init__(self, *args: object, kept: dict[int, bytes], **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self.kept = kept
        self.tried: int | None = None

    def held(self, version: int) -> bytes | None:
        return self.kept.get(version)

    def perform(self, effect: effects.Effect) -> effects.Reply:
        if isinstance(effect, effects.ReadCommits):
            versions = range(effect.first, effect.last + 1)
            if all(version in self.kept for version in versions):
                return effects.Commits(tuple(self.kept[version] for version in versions))
        if isinstance(effect, effects.TryCommit):
            self.tried = effect.version
        reply = super().perform(effect)
        match effect, reply:
            case effects.TryCommit(version, data), effects.Committed():
                self.kept[version] = data
            case effects.ReadCommits(first), effects.Commits(found):
                self.kept.update((version, data) for version, data in enumerate(found, first) if data is not None)
        return reply
