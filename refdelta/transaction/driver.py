"""The shell around the commit loop: turns its effects into calls of a store, and the store's errors into ours."""

from __future__ import annotations

import dataclasses
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from refdelta.core.commit import effects
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.committer import carry_out
from refdelta.core.commit.loop import commit_loop
from refdelta.core.commit.transaction import CommitOutcome, PreparedCommit
from refdelta.engine.log.file_committer import FileCommitter
from refdelta.engine.parquet.dv import load_deletion_vectors, remove_vectors, write_vectors
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    DataFileError,
    InvalidArgumentError,
    InvalidLogError,
    StoreError,
)
from refdelta_storage import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from refdelta.core.conflicts.state import AddedRows
    from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
    from refdelta.core.log.segment import LogFile
    from refdelta.core.rows.relocation import RelocationById
    from refdelta.transaction.options import CommitProperties

    MatchRows = Callable[[Sequence[AddedRows]], Iterable[bool]]
    LocateRows = Callable[[Sequence[Remove], Sequence[Add]], Mapping[str, RelocationById]]

CERTAIN_FAILURES = (CommitFailedError, StoreError, DataFileError, InvalidLogError, InvalidArgumentError)
"""What a commit raises where it is certain that nothing became visible. Any other way out (an unknown outcome, an
interrupt) leaves the files that were written, since the log may name them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(Limits):
    """When to give up, and how long to wait in between: full jitter, ``uniform(0, min(max_delay, base_delay * 2**n))``.

    Attributes:
        base_delay: seconds; the first wait is at most that long.
        max_delay: seconds; no wait is longer.
        max_delay_nearby: seconds; no wait after a lost race is longer where the store is of this machine. A commit
            takes milliseconds there: who waits for long finds that the others have gone on.
        eager_losses: after so many losses the next attempt follows at once: under light contention waiting only loses
            time.
    """

    base_delay: float = 0.01
    max_delay: float = 1.0
    max_delay_nearby: float = 0.1
    eager_losses: int = 2

    @classmethod
    def of(cls, properties: CommitProperties) -> Self:
        """The policy that the user of a commit asks for."""
        retries = properties.max_commit_retries
        asked: dict[str, Any] = {
            "max_attempts": None if retries is None else retries + 1,
            "max_seconds": properties.max_commit_seconds,
            "budget": properties.row_budget,
        }
        return cls(**{name: value for name, value in asked.items() if value is not None})

    def delay(self, pause: effects.Pause, uniform: Callable[[float, float], float], *, nearby: bool = False) -> float:
        """Seconds to wait."""
        lost = pause.reason == "lost"
        count = pause.count - (self.eager_losses if lost else 0)
        if count <= 0:
            return 0.0
        longest = min(self.max_delay, self.max_delay_nearby) if nearby and lost else self.max_delay
        # The exponent is capped because floats overflow.
        return uniform(0.0, min(longest, self.base_delay * 2.0 ** min(count - 1, 60)))


_POLICY = RetryPolicy()


def commit(
    store: Store,
    prepared: PreparedCommit,
    *,
    policy: RetryPolicy | None = None,
    seen_at: float | None = None,
    base: LogFile | None = None,
    match_rows: MatchRows | None = None,
    locate_rows: LocateRows | None = None,
    inline_vectors: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    uniform: Callable[[float, float], float] = random.uniform,
) -> CommitOutcome:
    """Commit a transaction to the log in this store.

    Args:
        store: the table's store.
        prepared: the transaction.
        policy: when to give up, and how to wait.
        seen_at: when ``prepared.read_version`` was last seen to be the newest by a listing of the log (for a new table:
            when the log was seen to be empty), in seconds of ``clock``. A handle that is a minute old, or None, costs
            one more request.
        base: the commit file of ``prepared.read_version``, as a listing had it. Where the store is of this machine,
            another one in its place means that the table was replaced. None: it is not compared.
        match_rows: for each of these, up to the first that has one, whether it has a row that the transaction would
            have read. Without it, any may.
        locate_rows: where the rows of files are that winners rearranged, by their ids, as
            :func:`refdelta.transaction.row_lookup.trace_rows` tells. Without it, they are not found.
        inline_vectors: whether small deletion vectors stand in the log.
        clock: monotonic seconds.
        sleep: waits for seconds.
        uniform: a random number between two.

    Raises:
        As :func:`refdelta.core.commit.loop.commit_loop`; what the store raises comes as ``StoreError``.
    """
    if not store.capabilities.put_if_absent:
        raise StoreError(f"cannot commit: {store.uri} is read-only, or cannot create an object only where none exists")
    committer = FileCommitter(store, prepared.read_version, seen_at=seen_at, base=base, clock=clock)
    shell = _Shell(store, committer, policy or _POLICY, clock, sleep, uniform, match_rows, locate_rows, inline_vectors)
    loop = commit_loop(prepared, shell.policy)
    try:
        effect = next(loop)
        while True:
            effect = loop.send(shell.perform(effect))
    except StopIteration as done:
        outcome: CommitOutcome = done.value
        remove_vectors(store, shell.vectors, keep=outcome.vectors)
        return dataclasses.replace(outcome, log=committer.log_behind(prepared.read_version, outcome.version))
    except CERTAIN_FAILURES:
        remove_vectors(store, shell.vectors)
        raise
    except CommitOutcomeUnknownError as error:
        raise CommitOutcomeUnknownError(error.why, error.version, error.txn_id, store.uri) from error.__cause__


@dataclass(slots=True)
class _Shell:
    """Carries out effects: those of the log by the committer, those of rows by the engine."""

    store: Store
    committer: FileCommitter
    policy: RetryPolicy
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    uniform: Callable[[float, float], float]
    match_rows: MatchRows | None
    locate_rows: LocateRows | None
    inline_vectors: bool
    started: float = field(init=False)
    # Those that this commit wrote, over all attempts.
    vectors: list[DeletionVectorDescriptor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def perform(self, effect: effects.Effect) -> effects.Reply:
        if isinstance(effect, effects.Pause):
            delay = self.policy.delay(effect, self.uniform, nearby=not self.store.capabilities.remote)
            if delay > 0:
                self.sleep(delay)
                self.committer.waited()
            return effects.Elapsed(self.clock() - self.started)
        try:
            with store_errors("commit"):
                return carry_out(effect, self.committer) or self._of_rows(effect)
        except (StoreError, DataFileError, InvalidLogError) as error:
            return effects.Failed(error)

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
        raise TypeError(f"{effect!r} is no effect")
