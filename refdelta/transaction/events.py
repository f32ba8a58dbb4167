"""Events of commits, for observers: the effort of a commit, the time of its parts, and its outcome.

Without an observer nothing is measured.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from msgspec import structs

from refdelta.core.commit.effects import Pause
from refdelta.errors import (
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConcurrentModificationError,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from refdelta.core.commit.effects import Effect, Reply
    from refdelta.core.commit.transaction import CommitOutcome, CommitTally, PreparedCommit

log = logging.getLogger("refdelta")

Outcome: TypeAlias = Literal["committed", "unchanged", "conflict", "retries_exhausted", "unknown", "failed"]


@dataclass(frozen=True, slots=True)
class EffectTime:
    """The calls of one effect of a commit.

    Attributes:
        count: the number of calls.
        seconds: the time of all calls.
    """

    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEvent:
    """One commit, from the first look at the log to the outcome. A transaction that was put as an intent
    is reported by its own process, also if another process led.

    Attributes:
        table: the URI of the table, without credentials.
        operation: the operation's name in Spark's history; None without one.
        txn_id: the id of the transaction, as ``commitInfo.txnId`` has it.
        isolation: the level at which it was checked.
        read_version: the version that it read; None if it creates the table.
        version: the version that it became; None if nothing was committed, or if that is not known.
        member: its place among the members of that version, counted from 0; None if it has the version for itself.
        outcome: ``committed``; ``unchanged``: nothing was left to commit; ``conflict``; ``retries_exhausted``;
            ``unknown``: it may have been committed; ``failed``: another error, and nothing was committed.
        error: the class of the error; None without one.
        rule: the rule that found the conflict; None without one.
        winner: the version of the winner that it conflicts with; None without one.
        winner_member: the place of the winner among the members of its version, likewise.
        started: the time of its begin, in seconds since 1970 (UTC).
        seconds: its duration, pauses included.
        attempts: the number of versions that were tried; at least 1 for a version that another process has put.
        puts: the number of puts, or of requests that were to make it a version; that of an intent counts.
        bytes: the number of bytes of these puts.
        winners: the number of other writers' commits that were checked, by this process or by its leader.
        rules: the number of rules that were asked of them.
        rows: the number of rows of their new files that were compared with the reads.
        effects: the time in each effect, by its name in :mod:`refdelta.core.commit.effects`: ``TryCommit``,
            ``ReadCommits``, ``MatchRows``, ``Pause``, ...
    """

    table: str
    operation: str | None
    txn_id: str
    isolation: str
    read_version: int | None
    version: int | None = None
    member: int | None = None
    outcome: Outcome = "failed"
    error: str | None = None
    rule: str | None = None
    winner: int | None = None
    winner_member: int | None = None
    started: float = 0.0
    seconds: float = 0.0
    attempts: int = 0
    puts: int = 0
    bytes: int = 0
    winners: int = 0
    rules: int = 0
    rows: int = 0
    effects: Mapping[str, EffectTime] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def seconds_waited(self) -> float:
        """The time in pauses between attempts, in seconds."""
        return self.effects.get(Pause.__name__, EffectTime()).seconds


Observer: TypeAlias = "Callable[[CommitEvent], None]"

_observers: tuple[Observer, ...] = ()


class Observation:
    """An observer at work. It ends with :meth:`close`, or with its ``with`` block."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def close(self) -> None:
        """End the observation; again, it does nothing."""
        global _observers  # noqa: PLW0603 - replaced, never changed, so that commits of other threads go on with theirs
        _observers = tuple(one for one in _observers if one is not self._observer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def observe_commits(observer: Observer) -> Observation:
    """Call a function after each commit of this process, successful or not.

    It is called in the thread of the commit, before the statement returns. An error that it raises is logged, and
    changes nothing. For OpenTelemetry see :func:`refdelta.instrument`.

    Args:
        observer: takes a :class:`CommitEvent`.

    Returns:
        The observation, which ends with ``close()`` or as a context manager.

    Raises:
        InvalidArgumentError: the observer is not callable.

    Example::

        from refdelta import observe_commits

        events = []
        with observe_commits(events.append):
            table.delete("id = 3")
        print(events[0].outcome, events[0].attempts)
    """
    global _observers  # noqa: PLW0603 - see Observation.close
    if not callable(observer):
        raise InvalidArgumentError(f"observer must be a function of one event, not {observer!r:.80}")

    def own(event: CommitEvent) -> None:  # so that the same function twice is two observers
        observer(event)

    _observers = (*_observers, own)
    return Observation(own)


class Watch:
    """The measurements of one commit.

    Attributes:
        ended: its outcome, once there is one.
    """

    ended: CommitOutcome | None = None

    def timed(self, perform: Callable[[Effect], Reply]) -> Callable[[Effect], Reply]:
        """The function that carries out effects, unchanged: there is no observer."""
        return perform

    def timing(self, effect: type) -> AbstractContextManager[None]:
        """Measure a block that does the same as an effect of this class; not at all, since there is no observer."""
        del effect
        return nullcontext()


class _Timing(Watch):
    def __init__(self) -> None:
        self.effects: dict[str, EffectTime] = {}

    def timed(self, perform: Callable[[Effect], Reply]) -> Callable[[Effect], Reply]:
        def measured(effect: Effect) -> Reply:
            with self.timing(type(effect)):
                return perform(effect)

        return measured

    @contextmanager
    def timing(self, effect: type) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            took, known = time.perf_counter() - begun, self.effects.get(effect.__name__, EffectTime())
            self.effects[effect.__name__] = EffectTime(known.count + 1, known.seconds + took)


@contextmanager
def watching(table: str, prepared: PreparedCommit, tally: CommitTally) -> Iterator[Watch]:
    """Measure the block, and report it to the observers, if there are any, and to the log, if it takes DEBUG records.

    Args:
        table: the URI of the table.
        prepared: the transaction that the block commits.
        tally: the counts of its loop.
    """
    observers = _observers
    logged = log.isEnabledFor(logging.DEBUG)
    if not observers and not logged:
        yield Watch()  # one of its own: it holds the outcome
        return
    watch, failure, started, begun = _Timing(), None, time.time(), time.perf_counter()
    try:
        yield watch
    except BaseException as error:
        failure = error
        raise
    finally:
        conflict = failure.conflict if isinstance(failure, ConcurrentModificationError) else None
        event = CommitEvent(
            table=table,
            operation=prepared.commit_info.get("operation"),
            txn_id=prepared.txn_id,
            isolation=prepared.level.value,
            read_version=None if prepared.read_version < 0 else prepared.read_version,
            version=watch.ended.version if watch.ended else None,
            member=watch.ended.member if watch.ended else None,
            outcome=_outcome(failure, watch.ended),
            error=None if failure is None else type(failure).__name__,
            rule=conflict.rule if conflict else None,
            winner=conflict.version if conflict else None,
            winner_member=conflict.member if conflict else None,
            started=started,
            seconds=time.perf_counter() - begun,
            **structs.asdict(tally),
            effects=MappingProxyType(watch.effects),
        )
        if logged:
            _log(event)
        for observer in observers:
            _tell(observer, event)


def _outcome(failure: BaseException | None, ended: CommitOutcome | None) -> Outcome:
    match failure:
        case None:
            return "unchanged" if ended is None or ended.version is None else "committed"
        case ConcurrentModificationError():
            return "conflict"
        case CommitRetriesExhaustedError():
            return "retries_exhausted"
        case CommitOutcomeUnknownError():
            return "unknown"
        case Exception():
            return "failed"
    return "unknown"  # an interrupt may have come at any moment


def _log(event: CommitEvent) -> None:
    log.debug(
        "%s: %s of version %s: %s, version %s, after %d attempts and %.3f s; %d commits of others were checked by "
        "%d rules and %d rows of theirs compared; error %s, rule %s, winner %s",
        *(event.table, event.operation, event.read_version, event.outcome, event.version, event.attempts),
        *(event.seconds, event.winners, event.rules, event.rows, event.error, event.rule, event.winner),
    )


def _tell(observer: Observer, event: CommitEvent) -> None:
    try:
        observer(event)
    except Exception as error:  # noqa: BLE001 - an observer must not change the outcome of a commit
        log.warning("an observer of commits failed: %s: %s", type(error).__name__, error)
