"""The driver of the commit loop: carries out its effects on a store, and translates the store's errors."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import TYPE_CHECKING, Any, Self

from refdelta.core.commit import effects
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.committer import carry_out
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import CommitOutcome, CommitTally, PreparedCommit
from refdelta.engine.log.file_committer import FileCommitter
from refdelta.engine.log.managed_committer import ManagedCommitter
from refdelta.engine.log.managed_log import managed_by
from refdelta.engine.parquet.dv import load_deletion_vectors, remove_vectors, write_vectors
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    ConcurrentModificationError,
    DataFileError,
    InvalidArgumentError,
    InvalidLogError,
    StoreError,
)
from refdelta.transaction.events import watching
from refdelta.transaction.parties import described
from refdelta_storage import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from refdelta.core.conflicts.state import AddedRows
    from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
    from refdelta.core.rows.relocation import RelocationById
    from refdelta.engine.log.identity import CommitIdentity
    from refdelta.transaction.options import CommitProperties

    MatchRows = Callable[[Sequence[AddedRows]], Iterable[bool]]
    LocateRows = Callable[[Sequence[Remove], Sequence[Add]], Mapping[str, RelocationById]]
    ConfirmRows = Callable[[Sequence[AddedRows], bool], bool]

CERTAIN_FAILURES = (CommitFailedError, StoreError, DataFileError, InvalidLogError, InvalidArgumentError)
"""The errors of a commit after which it is certain that nothing became visible. After any other error (an unknown
outcome, an interrupt) the files that were written stay, since the log may name them.
"""


class RetryPolicy(Limits, frozen=True, kw_only=True):
    """The limits of a commit's retries, and the delays between them: full jitter, ``uniform(0, min(max_delay,
    base_delay * 2**n))``.

    After a lost race on a remote store, the delay depends on the age of the winner instead, if it records it: a
    transaction that began ``younger`` versions later lets so many versions pass, except for ``rivals`` of them. So the
    oldest transactions win, and the delays of the others do not leave the table idle.

    Attributes:
        base_delay: the upper bound of the first delay, in seconds.
        max_delay: the upper bound of all delays, in seconds.
        max_delay_nearby: the upper bound of the delays after a lost race on a local store, in seconds. A commit takes
            milliseconds there, so during a long delay other writers would win again.
        eager_losses: the number of lost races, from the first on, that are followed by the next attempt without delay;
            under light contention a delay only costs time.
        rivals: the number of transactions that try for the same version of a remote table. Fewer would leave it idle
            between two versions, more only make requests.
    """

    base_delay: float = 0.01
    max_delay: float = 1.0
    max_delay_nearby: float = 0.1
    eager_losses: int = 2
    rivals: int = 8

    @classmethod
    def of(cls, properties: CommitProperties) -> Self:
        """The policy by the properties of a commit."""
        retries = properties.max_commit_retries
        asked: dict[str, Any] = {
            "max_attempts": None if retries is None else retries + 1,
            "max_seconds": properties.max_commit_seconds,
            "budget": properties.row_budget,
        }
        return cls(**{name: value for name, value in asked.items() if value is not None})

    def delay(
        self,
        pause: effects.Pause,
        uniform: Callable[[float, float], float],
        *,
        nearby: bool = False,
        put_seconds: float = 0.0,
    ) -> float:
        """The delay of a pause, in seconds.

        Args:
            pause: the effect, with the number of attempts so far.
            uniform: a random number between two.
            nearby: whether the store is local.
            put_seconds: the duration of the last put, which is about the time between two versions of a remote table
                with many writers.
        """
        lost = pause.reason == "lost"
        count = pause.count - (self.eager_losses if lost else 0)
        if count <= 0:
            return 0.0
        if lost and not nearby and pause.younger is not None:
            return uniform(0.0, min(self.max_delay, put_seconds * max(0, pause.younger - self.rivals)))
        longest = min(self.max_delay, self.max_delay_nearby) if nearby and lost else self.max_delay
        return full_jitter(count, self.base_delay, longest, uniform)


def full_jitter(count: int, first: float, longest: float, uniform: Callable[[float, float], float]) -> float:
    """A random part of a delay, in seconds, that doubles from ``first`` up to ``longest``; ``count`` is from 1."""
    # The exponent is capped because floats overflow.
    return uniform(0.0, min(longest, first * 2.0 ** min(count - 1, 60)))


_POLICY = RetryPolicy()


def commit(
    store: Store,
    prepared: PreparedCommit,
    *,
    policy: RetryPolicy | None = None,
    seen_at: float | None = None,
    base: CommitIdentity | None = None,
    match_rows: MatchRows | None = None,
    locate_rows: LocateRows | None = None,
    confirm_rows: ConfirmRows | None = None,
    inline_vectors: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    uniform: Callable[[float, float], float] = random.uniform,
) -> CommitOutcome:
    """Commit a transaction to the log in this store.

    Args:
        store: the table's store.
        prepared: the transaction.
        policy: the limits and delays of retries.
        seen_at: the time at which a listing last showed ``prepared.read_version`` to be the newest version (for a new
            table: the log to be empty), in seconds of ``clock``. A time more than a minute ago, or None, costs one more
            request.
        base: the identity of ``prepared.read_version``. Another commit in its place means that the table was replaced.
            None: it is not compared.
        match_rows: for each set of added rows, up to the first match, whether the transaction would have read one of
            them. Without it, every set matches.
        locate_rows: finds the rows of files that winners rearranged, by their ids; see
            :func:`refdelta.transaction.row_lookup.trace_rows`. Without it, they are not found.
        confirm_rows: whether the transaction would have read each of some rows, which it read before another writer
            moved them. Without it, this is not known.
        inline_vectors: whether small deletion vectors are stored in the log.
        clock: monotonic seconds.
        sleep: waits for some seconds.
        uniform: a random number between two.

    Raises:
        As :func:`refdelta.core.commit.loop.commit_loop`. Errors of the store are raised as ``StoreError``.
    """
    if not store.capabilities.put_if_absent:
        raise StoreError(f"cannot commit: {store.uri} is read-only, or cannot create an object only if it is absent")
    kind = FileCommitter if managed_by(store) is None else ManagedCommitter
    committer = kind(store, prepared.read_version, seen_at=seen_at, base=base, clock=clock)
    of_rows = (match_rows, locate_rows, confirm_rows)
    shell = Shell(store, committer, policy or _POLICY, clock, sleep, uniform, *of_rows, inline_vectors)
    tally = CommitTally()
    try:
        with watching(store.uri, prepared, tally) as watch:
            outcome = watch.ended = run_loop(commit_loop(prepared, shell.policy, tally), watch.timed(shell.perform))
    except CERTAIN_FAILURES as error:
        remove_vectors(store, shell.vectors)
        if isinstance(error, ConcurrentModificationError):
            error.describe(described(error.conflict, prepared, committer.held(error.conflict.version)))
        raise
    except CommitOutcomeUnknownError as error:
        raise CommitOutcomeUnknownError(error.why, error.version, error.txn_id, store.uri) from error.__cause__
    remove_vectors(store, shell.vectors, keep=outcome.vectors)
    return dataclasses.replace(outcome, log=committer.log_after(prepared.read_version, outcome.version))


def run_loop(loop: effects.Steps[CommitOutcome], perform: Callable[[effects.Effect], effects.Reply]) -> CommitOutcome:
    """Carry out each effect of a commit loop, up to its outcome or its error."""
    try:
        effect = next(loop)
        while True:
            effect = loop.send(perform(effect))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


class Shell:
    """Carries out the effects of a commit: those on the log by the committer, those on rows by the engine.

    Attributes:
        put_seconds: the duration of the last put.
        vectors: the deletion vectors that this commit wrote, in all attempts.
    """

    def __init__(
        self,
        store: Store,
        committer: FileCommitter,
        policy: RetryPolicy,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        uniform: Callable[[float, float], float],
        match_rows: MatchRows | None,
        locate_rows: LocateRows | None,
        confirm_rows: ConfirmRows | None,
        inline_vectors: bool,
    ) -> None:
        self.store, self.committer, self.policy = store, committer, policy
        self.clock, self.sleep, self.uniform, self.started = clock, sleep, uniform, clock()
        self.match_rows, self.locate_rows, self.confirm_rows = match_rows, locate_rows, confirm_rows
        self.inline_vectors = inline_vectors
        self.put_seconds = 0.0
        self.vectors: list[DeletionVectorDescriptor] = []

    def perform(self, effect: effects.Effect) -> effects.Reply:
        """Carry out one effect."""
        if isinstance(effect, effects.Pause):
            nearby = self.committer.nearby
            delay = self.policy.delay(effect, self.uniform, nearby=nearby, put_seconds=self.put_seconds)
            if delay > 0:
                self.sleep(delay)
                self.committer.waited()
            return effects.Elapsed(self.clock() - self.started)
        began = self.clock()
        try:
            with store_errors("commit"):
                return carry_out(effect, self.committer) or self._of_rows(effect)
        except (StoreError, DataFileError, InvalidLogError) as error:
            return effects.Failed(error)
        finally:
            if isinstance(effect, effects.TryCommit):
                self.put_seconds = self.clock() - began

    def _of_rows(self, effect: effects.Effect) -> effects.Reply:
        match effect:
            case effects.ReadVectors(descriptors):
                return effects.Vectors(tuple(load_deletion_vectors(self.store, descriptors)))
            case effects.WriteVectors(bitmaps):
                written = write_vectors(self.store, bitmaps, inline=self.inline_vectors)
                self.vectors += written
                return effects.Descriptors(tuple(written))
            case effects.MatchRows(rows):
                started = self.clock()
                matches = tuple(self.match_rows(rows)) if self.match_rows else (True,) * len(rows)
                return effects.Matches(matches, self.clock() - started)
            case effects.LocateRows(inputs, outputs):
                return effects.Relocations(self.locate_rows(inputs, outputs) if self.locate_rows else {})
            case effects.ConfirmRows(rows, trusted):
                confirmed = self.confirm_rows(rows, trusted) if self.confirm_rows else trusted
                return effects.Yes() if confirmed else effects.No()
        raise TypeError(f"{effect!r} is no effect")
