"""The driver of the commit loop: carries out its effects on a store, and translates the store's errors."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import msgspec

from refdelta.core.commit import effects
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.committer import carry_out
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import CommitOutcome, CommitTally, PreparedCommit
from refdelta.engine.log.file_committer import FileCommitter
from refdelta.engine.log.managed_committer import ManagedCommitter
from refdelta.engine.log.managed_log import managed_by
from refdelta.engine.parquet.dv import KeptVectors, load_deletion_vectors, remove_vectors, write_vectors
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    ConcurrentModificationError,
    DataFileError,
    InvalidArgumentError,
    InvalidLogError,
    StoreError,
    TableAlreadyExistsError,
)
from refdelta.transaction.events import Watch, watching
from refdelta.transaction.parties import described
from refdelta_storage import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from refdelta.core.conflicts.state import AddedRows
    from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
    from refdelta.core.rows.relocation import RelocationById
    from refdelta.engine.log.identity import CommitIdentity
    from refdelta.transaction.options import CommitProperties

    MatchRows: TypeAlias = Callable[[Sequence[AddedRows]], Iterable[bool]]
    LocateRows: TypeAlias = Callable[[Sequence[Remove], Sequence[Add]], Mapping[str, RelocationById]]
    ConfirmRows: TypeAlias = Callable[[Sequence[AddedRows], bool], bool]

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

CERTAIN_FAILURES = (
    CommitFailedError,
    StoreError,
    DataFileError,
    InvalidLogError,
    InvalidArgumentError,
    TableAlreadyExistsError,
)
"""The errors of a commit after which it is certain that nothing became visible. After any other error (an unknown
outcome, an interrupt) the files that were written stay, since the log may name them.
"""


class HandedOnError(CommitFailedError):
    """The transaction is committed by other means; nothing was committed yet."""


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


POLICY = RetryPolicy()
"""The limits and delays of a commit that has none of its own."""


class RowChecks(msgspec.Struct, frozen=True):
    """Looks at rows for the conflict checks of one transaction.

    Attributes:
        match: for each set of added rows, up to the first match, whether the transaction would have read one of them.
            By default, every set matches.
        locate: finds the rows of files that winners rearranged, by their ids; see
            :func:`refdelta.transaction.row_lookup.trace_rows`. By default, they are not found.
        confirm: whether the transaction would have read each of some rows, which it read before another writer moved
            them; its second argument, whether they are trusted, if that is not known. That is the default.
    """

    match: MatchRows = lambda rows: (True,) * len(rows)
    locate: LocateRows = lambda _, __: {}
    confirm: ConfirmRows = lambda _, trusted: trusted


NO_CHECKS = RowChecks()
"""Those of a transaction whose rows cannot be looked at."""


def commit(
    store: Store,
    prepared: PreparedCommit,
    *,
    policy: RetryPolicy | None = None,
    seen_at: float | None = None,
    base: CommitIdentity | None = None,
    checks: RowChecks = NO_CHECKS,
    inline_vectors: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    uniform: Callable[[float, float], float] = random.uniform,
    lost: Callable[[FileCommitter, int], None] | None = None,
    watched: tuple[Watch, CommitTally] | None = None,
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
        checks: looks at the rows of winners.
        inline_vectors: whether small deletion vectors are stored in the log.
        clock: monotonic seconds.
        sleep: waits for some seconds.
        uniform: a random number between two.
        lost: called after each version that another writer won, with the log and the number of such versions; None for
            no call. It may raise :class:`HandedOnError`.
        watched: measures the commit, and counts, where the caller reports it to the observers; None to report it here.

    Raises:
        HandedOnError: ``lost`` has raised it; nothing was committed.
        As :func:`refdelta.core.commit.loop.commit_loop`. Errors of the store are raised as ``StoreError``.
    """
    committer = committer_of(store, prepared.read_version, seen_at=seen_at, base=base, clock=clock)
    shell = Shell(store, committer, {prepared.txn_id: checks}, policy or POLICY, inline_vectors, clock, sleep, uniform)

    def perform(effect: effects.Effect) -> effects.Reply:
        if lost is not None and isinstance(effect, effects.Pause) and effect.reason == "lost":
            lost(committer, effect.count)
        return shell.perform(effect)

    def run(watch: Watch, tally: CommitTally) -> CommitOutcome:
        try:
            outcome = run_loop(commit_loop(prepared, shell.policy, tally), watch.timed(perform))
        except Exception as error:
            shell.failed(error, prepared)
            raise
        return shell.ended(outcome, prepared)

    if watched is not None:
        return run(*watched)
    tally = CommitTally()
    with watching(store.uri, prepared, tally) as watch:
        ended = watch.ended = run(watch, tally)
    return ended


def committer_of(store: Store, read_version: int, **options: Any) -> FileCommitter:
    """The committer of the log in a store; arguments as for :class:`FileCommitter`.

    Raises:
        StoreError: the store cannot commit.
    """
    if not store.capabilities.put_if_absent:
        raise StoreError(f"cannot commit: {store.uri} is read-only, or cannot create an object only if it is absent")
    kind = FileCommitter if managed_by(store) is None else ManagedCommitter
    return kind(store, read_version, **options)


def run_loop(loop: effects.Steps[T], perform: Callable[[effects.Effect], effects.Reply]) -> T:
    """Carry out each effect of a commit loop, up to its result or its error."""
    try:
        effect = next(loop)
        while True:
            effect = loop.send(perform(effect))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


class Shell:
    """Carries out the effects of a commit: those on the log by the committer, those on rows by the engine.

    Args:
        store: the table's store.
        committer: its log.
        checks: looks at rows, by the id of each transaction.
        policy: the limits and delays of retries.
        inline_vectors: whether small deletion vectors are stored in the log.
        clock: monotonic seconds.
        sleep: waits for some seconds.
        uniform: a random number between two.
        known: the deletion vectors that are kept from one commit to the next; None for none.

    Attributes:
        put_seconds: the duration of the last put.
        vectors: the deletion vectors that this commit wrote, in all attempts.
    """

    def __init__(
        self,
        store: Store,
        committer: FileCommitter,
        checks: Mapping[str, RowChecks],
        policy: RetryPolicy = POLICY,
        inline_vectors: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
        known: KeptVectors | None = None,
    ) -> None:
        self.store, self.committer, self.policy, self.known = store, committer, policy, known
        self.clock, self.sleep, self.uniform, self.started = clock, sleep, uniform, clock()
        self.checks, self.inline_vectors = checks, inline_vectors
        self.put_seconds = 0.0
        self.vectors: list[DeletionVectorDescriptor] = []

    def failed(self, error: BaseException, prepared: PreparedCommit | None) -> None:
        """Clean up after a commit that failed, and describe its error.

        Args:
            error: its error.
            prepared: the transaction, if the error is of this table; None for that of another one.

        Raises:
            CommitOutcomeUnknownError: the same with the table, if it was one.
        """
        if isinstance(error, CERTAIN_FAILURES):
            remove_vectors(self.store, self.vectors)
        if prepared is not None and (said := self.described(error, prepared)) is not error:
            raise said from error.__cause__

    def described(self, error: E, prepared: PreparedCommit) -> E | CommitOutcomeUnknownError:
        """The error of a transaction for its user: that of a conflict with both transactions; for that of an unknown
        outcome another one, with the table.
        """
        if isinstance(error, ConcurrentModificationError):
            error.describe(described(error.conflict, prepared, self.held(error.conflict.version), self.store.uri))
        if isinstance(error, CommitOutcomeUnknownError):
            return CommitOutcomeUnknownError(error.why, error.version, error.txn_id, self.store.uri)
        return error

    def held(self, version: int) -> bytes | None:
        """The commit file of a version that was read, if it is still held."""
        return self.committer.held(version)

    def ended(self, outcome: CommitOutcome, prepared: PreparedCommit) -> CommitOutcome:
        """Clean up after a commit. Returns its outcome with the commits that are held."""
        remove_vectors(self.store, self.vectors, keep=outcome.vectors)
        log = self.committer.log_after(prepared.read_version, outcome.version)
        return dataclasses.replace(outcome, log=log)

    def perform(self, effect: effects.Effect) -> effects.Reply:
        """Carry out an effect, and return its reply."""
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
                load = load_deletion_vectors if self.known is None else self.known.load
                return effects.Vectors(tuple(load(self.store, descriptors)))
            case effects.WriteVectors(bitmaps):
                written = write_vectors(self.store, bitmaps, inline=self.inline_vectors)
                self.vectors += written
                if self.known is not None:
                    for descriptor, rows in zip(written, bitmaps, strict=True):
                        self.known.keep(descriptor, rows)
                return effects.Descriptors(tuple(written))
            case effects.MatchRows(rows, name):
                started, match = self.clock(), self.checks[name].match
                found = tuple(match(rows))
                return effects.Matches(found, self.clock() - started)
            case effects.LocateRows(inputs, outputs):
                locate = next(iter(self.checks.values())).locate  # of any of them, since it asks for ids
                return effects.Relocations(locate(inputs, outputs))
            case effects.ConfirmRows(rows, trusted, name):
                return effects.Yes() if self.checks[name].confirm(rows, trusted) else effects.No()
        raise TypeError(f"{effect!r} is no effect")
