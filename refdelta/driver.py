"""The shell around the commit loop: turns its effects into calls of a store, and the store's errors into ours."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, assert_never

import refdelta_storage as storage
from refdelta.concurrency import effects
from refdelta.concurrency.commit import commit_loop
from refdelta.concurrency.prepared import CommitOutcome, Limits, PreparedCommit
from refdelta.engine.dv import load_deletion_vectors, remove_vectors, write_vectors
from refdelta.engine.executor import ThreadExecutor
from refdelta.engine.files import store_errors
from refdelta.engine.listing import newest_version
from refdelta.engine.timestamps import commit_time
from refdelta.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    DataFileError,
    InvalidArgumentError,
    InvalidLogError,
    StoreError,
)
from refdelta.protocol.paths import VERSIONED, commit_key, parse_log_name
from refdelta_storage import ObjectNotFoundError, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from refdelta.concurrency.places import Traced
    from refdelta.protocol.actions import Add, DeletionVectorDescriptor, Remove
    from refdelta.protocol.segment import LogFile
    from refdelta.results import CommitProperties

    Look = Callable[[Sequence[Add]], Iterable[bool]]
    Trace = Callable[[Sequence[Remove], Sequence[Add]], Mapping[str, Traced]]

CERTAIN_FAILURES = (CommitFailedError, StoreError, DataFileError, InvalidLogError, InvalidArgumentError)
"""What a commit raises where it is certain that nothing became visible. Any other way out (an unknown outcome, an
interrupt) leaves the files that were written, since the log may name them.
"""

_TRUSTED_SECONDS = 60.0
"""How long a version that was seen on a remote store is taken to be still there. Log cleanup removes nothing that is
younger than hours.
"""

_HELD_BYTES = 32 * 2**20
"""How many bytes of commit files are held for the snapshot behind the commit, so that it need not read them again."""


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
    look: Look | None = None,
    trace: Trace | None = None,
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
        look: whether a live row of each of these files, which winners added, answers to what the transaction read.
            Without it, any may.
        trace: where the rows of files are that winners rearranged, by their ids, as
            :func:`refdelta.tracing.trace_rows` tells. Without it, they are not found.
        inline_vectors: whether small deletion vectors stand in the log.
        clock: monotonic seconds.
        sleep: waits for seconds.
        uniform: a random number between two.

    Raises:
        As :func:`refdelta.concurrency.commit.commit_loop`; what the store raises comes as ``StoreError``.
    """
    if not store.capabilities.put_if_absent:
        raise StoreError(f"cannot commit: {store.uri} is read-only, or cannot create an object only where none exists")
    shell = _Shell(store, policy or _POLICY, clock, sleep, uniform, base, look, trace, inline_vectors, seen_at)
    if seen_at is not None:
        shell.seen[prepared.read_version] = seen_at
    loop = commit_loop(prepared, shell.policy)
    try:
        effect = next(loop)
        while True:
            effect = loop.send(shell.perform(effect))
    except StopIteration as done:
        outcome: CommitOutcome = done.value
        remove_vectors(store, shell.vectors, keep=outcome.vectors)
        return dataclasses.replace(outcome, log=shell.log_behind(prepared.read_version, outcome.version))
    except CERTAIN_FAILURES:
        remove_vectors(store, shell.vectors)
        raise
    except CommitOutcomeUnknownError as error:
        raise CommitOutcomeUnknownError(error.why, error.version, error.txn_id, store.uri) from error.__cause__


@dataclass(slots=True)
class _Shell:
    store: Store
    policy: RetryPolicy
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    uniform: Callable[[float, float], float]
    base: LogFile | None = None
    look: Look | None = None
    trace: Trace | None = None
    inline_vectors: bool = False
    # When the version that was read was the newest.
    fresh_at: float | None = None
    # A commit file that was read before its turn; None where there was none.
    ahead: dict[int, bytes | None] = field(default_factory=dict)
    # The version that another writer seems to have taken just now.
    lost: int | None = None
    started: float = field(init=False)
    # When each version was last known to exist.
    seen: dict[int, float] = field(default_factory=dict)
    # Those that this commit wrote, over all attempts.
    vectors: list[DeletionVectorDescriptor] = field(default_factory=list)
    # The commit files that were seen or made, while they are not too many to hold.
    log: dict[int, bytes] = field(default_factory=dict)
    log_bytes: int = 0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def log_behind(self, read: int, committed: int | None) -> tuple[bytes, ...] | None:
        """The commit files behind the version that was read, up to our own; None where they are not all held."""
        versions = range(read + 1, read if committed is None else committed + 1)
        return tuple(self.log[v] for v in versions) if versions and self.log.keys() >= {*versions} else None

    def _hold(self, version: int, data: bytes) -> None:
        if self.log_bytes + len(data) <= _HELD_BYTES and version not in self.log:
            self.log[version] = data
            self.log_bytes += len(data)

    def perform(self, effect: effects.Effect) -> effects.Reply:
        if isinstance(effect, effects.Pause):
            nearby = not self.store.capabilities.remote
            delay = self.policy.delay(effect, self.uniform, nearby=nearby)
            if delay > 0:
                self.sleep(delay)
                # Where nothing was before the pause, there may be something now.
                self.ahead = {version: data for version, data in self.ahead.items() if data is not None}
            return effects.Elapsed(self.clock() - self.started)
        try:
            with store_errors("commit"):
                return self._request(effect)
        except (StoreError, DataFileError, InvalidLogError) as error:
            return effects.Failed(error)

    def _request(self, effect: effects.Request) -> effects.Reply:
        match effect:
            case effects.Confirm(version):
                return effects.Yes() if self._confirm(version) else effects.No()
            case effects.PutIfAbsent(version, data):
                return self._put(version, data)
            case effects.ReadCommits(first, last):
                found = self._read(first, last)
                for version, content in enumerate(found, first):
                    if content is not None:
                        self.seen[version] = self.clock()
                        self._hold(version, content)
                return effects.Commits(found)
            case effects.NewestVersion(after):
                return effects.Newest(self._newest(after))
            case effects.CommitTime(version):
                return effects.Time(commit_time(self.store, version))
            case effects.Withdraw(version):
                self.store.delete([commit_key(version)])
                return effects.Yes()
            case effects.ReadVectors(descriptors):
                return effects.Vectors(tuple(load_deletion_vectors(self.store, descriptors)))
            case effects.WriteVectors(bitmaps):
                written = write_vectors(self.store, bitmaps, inline=self.inline_vectors)
                self.vectors += written
                return effects.Descriptors(tuple(written))
            case effects.LookAtRows(files):
                started = self.clock()
                matches = tuple(self.look(files)) if self.look else (True,) * len(files)
                return effects.Matches(matches, self.clock() - started)
            case effects.TraceRows(inputs, outputs):
                return effects.Traces(self.trace(inputs, outputs) if self.trace else {})
            case _:
                assert_never(effect)

    def _confirm(self, version: int) -> bool:
        # On this machine a look costs next to nothing, and tells of a folder that was removed a moment ago. (Of a
        # version that is known by its checkpoint alone, or that is none, there is no file to look at.)
        trusting = self.store.capabilities.remote or self.base is None
        last_seen = self.seen.get(version)
        if trusting and last_seen is not None and self.clock() - last_seen < _TRUSTED_SECONDS:
            return True
        exists = next(list_versions(self.store, -1), None) is None if version < 0 else self._is_there(version)
        if exists:
            self.seen[version] = self.clock()
        return exists

    def _is_there(self, version: int) -> bool:
        try:
            found = self.store.head(commit_key(version))
        except ObjectNotFoundError:
            return False
        if self.base is None or self.base.version != version or self.store.capabilities.remote:
            return True  # object stores round the time of an answer to HEAD, and not that of a listing
        # Of our own commit no listing may have told the time yet.
        return found.size == self.base.size and self.base.mtime_ms in (None, found.mtime_ms)

    def _put(self, version: int, data: bytes) -> effects.Created | effects.Exists | effects.Unknown:
        outcome = self.store.put_if_absent(commit_key(version), data)
        match outcome:
            case storage.Created():
                self._hold(version, data)
                return effects.Created()
            case storage.Exists():
                self.lost = version
                return effects.Exists()
            case storage.Unknown(cause):
                return effects.Unknown(cause)
            case _:
                assert_never(outcome)

    def _newest(self, after: int) -> int:
        # Who was up to date a moment ago is mostly one behind. To ask for the next version is then quicker than a
        # listing, and as certain: no cleanup goes past what is seconds old.
        if self._is_fresh:
            if after + 1 not in self.ahead:
                self.ahead[after + 1] = read_commit(self.store, after + 1)
            if self.ahead[after + 1] is None:
                del self.ahead[after + 1]
                return after
        return newest_version(self.store, after)

    @property
    def _is_fresh(self) -> bool:
        return self.fresh_at is not None and self.clock() - self.fresh_at < _TRUSTED_SECONDS

    def _read(self, first: int, last: int) -> tuple[bytes | None, ...]:
        known = self.ahead.pop(first, None)
        if known is not None:
            return (known, *(self._read(first + 1, last) if first < last else ()))
        if first == last:
            return (self._read_lost(first) if first == self.lost else read_commit(self.store, first),)
        versions = range(first, last + 1)
        with contextlib.suppress(ObjectNotFoundError):
            return tuple(self.store.get_many(map(commit_key, versions)))
        # Rare: a gap, or cleanup. Each by itself, to see what is there.
        return tuple(self._each(versions))

    def _read_lost(self, version: int) -> bytes | None:
        """The winner's file, and beside it the one that is asked for next: over a network one round trip, not two."""
        self.lost = None
        if not (self.store.capabilities.remote and self._is_fresh):
            return read_commit(self.store, version)
        both = self._each(range(version, version + 2))
        found = next(both)
        with contextlib.suppress(storage.StorageError):  # it is asked for again
            self.ahead[version + 1] = next(both)
        return found

    def _each(self, versions: range) -> Iterator[bytes | None]:
        return ThreadExecutor.for_store(self.store).map(functools.partial(read_commit, self.store), versions)


def read_commit(store: Store, version: int) -> bytes | None:
    """The commit file of a version, or None where there is none. Raises ``StorageError``."""
    try:
        return store.get(commit_key(version))
    except ObjectNotFoundError:
        return None


def list_versions(store: Store, after: int) -> Iterator[int]:
    """The versions after this one that have a commit file, ascending. Raises ``StorageError``."""
    for info in store.list(VERSIONED, after=commit_key(after) if after >= 0 else None):
        name = parse_log_name(info.key)
        if name is not None and name.kind == "commit":
            yield name.version
