"""The commit loop: a generator of effects that opens nothing, waits for nothing and knows no clock.

The shell (``refdelta/driver.py``, or a model checker) carries out each effect and sends back its reply::

    PutIfAbsent(N+1) -- Created ---------------------------------------> committed at N+1
                     -- Exists, Unknown: ReadCommits(N+1)
                            it has our transaction id -----------------> committed at N+1
                            another's: we lost to a winner ------------> Pause, NewestVersion,
                                                                         ReadCommits(N+2 .. newest), RULES for each,
                                                                         PutIfAbsent(newest+1)
                            nothing there: a delayed put may yet land -> after a pause the same bytes at N+1 again

A put whose outcome is open is settled before the next version is tried, so at most one version can ever hold this
transaction: what another writer's file occupies, a delayed put of ours can no longer fill. That is also why every way
out of the loop is certain about the outcome, except :class:`~refdelta.errors.CommitOutcomeUnknownError`, which says
how to find out. That a put at N+1 counts only where N exists: :mod:`refdelta.concurrency.asking`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from pyroaring import BitMap64

from refdelta.concurrency.asking import ask
from refdelta.concurrency.conflict import Clear, Conflict, NeedPlaces, NeedRows, NeedVectors, check
from refdelta.concurrency.draft import Draft
from refdelta.concurrency.effects import (
    Commits,
    CommitTime,
    Created,
    Descriptors,
    Effect,
    Exists,
    Failed,
    LookAtRows,
    Matches,
    Newest,
    NewestVersion,
    Pause,
    PutIfAbsent,
    ReadCommits,
    ReadVectors,
    Reply,
    Time,
    TraceRows,
    Traces,
    Unknown,
    Vectors,
    WriteVectors,
)
from refdelta.concurrency.prepared import CommitOutcome, Limits, PreparedCommit
from refdelta.concurrency.standing import Standing, Untold
from refdelta.concurrency.succession import VectorReads
from refdelta.concurrency.summary import CommitSummary, summarize, summarize_together, whole_number
from refdelta.errors import (
    CommitRetriesExhaustedError,
    InvalidArgumentError,
    InvalidLogError,
)
from refdelta.protocol.actions import Add, CommitInfo, DeletionVectorDescriptor, DomainMetadata
from refdelta.protocol.lean import FileLine, file_lines
from refdelta.protocol.paths import commit_key
from refdelta.protocol.replay import validate_commit
from refdelta.protocol.row_tracking import DOMAIN as ROW_TRACKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence


_CHUNK = 256
"""How many winners are held in memory at a time, at most."""

_CHUNK_BYTES = 4 * 2**20
"""How many bytes of winners are held in memory at a time, where they are as long as those before them."""

_TOGETHER_BYTES = 64 * 2**10
"""How many bytes of winners are looked at together."""

_VECTOR_BYTES = 32 * 2**20
"""How many bytes of deletion vectors are read before their turn."""


def commit_loop(prepared: PreparedCommit, limits: Limits | None = None) -> Generator[Effect, Reply, CommitOutcome]:
    """Commit a transaction, as a generator that yields each :data:`Effect` and is sent its :data:`Reply`.

    Returns:
        What was committed, by ``StopIteration.value``.

    Raises:
        ConcurrentModificationError: a winner conflicts; nothing was committed.
        CommitRetriesExhaustedError: the limits are used up; nothing was committed.
        CommitFailedError: the handle is too old; nothing was committed.
        InvalidLogError: a winner's file is broken or missing; nothing was committed.
        CommitOutcomeUnknownError: nobody can tell.
        InvalidLogError: what is staged breaks the rules of a commit; nothing was written.
        InvalidArgumentError: what is staged sets the mark of row ids, which commits work out by themselves; it has a
            file to which no row ids can be given.
        Exception: the error of a :class:`Failed` reply, where it is certain that nothing was committed.
    """
    return _Loop(prepared, limits or Limits(), prepared.read_version).run()


@dataclass(slots=True)
class _Loop(VectorReads):
    """One run. All versions up to ``base`` were seen and do not conflict."""

    standing: Standing = field(init=False)
    draft: Draft = field(init=False)
    attempts: int = 0
    puts: int = 0
    rebased_over: list[int] = field(default_factory=list)
    # Deletion vectors of the winners at hand, by their ids, which were read before their turn; and up to which winner.
    ahead: dict[str, BitMap64] = field(default_factory=dict)
    ahead_to: int = -1
    # How many bytes a winner has, by those that were seen last.
    winner_bytes: int = 1

    def __post_init__(self) -> None:
        prepared = self.prepared
        if any(isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING for action in prepared.actions):
            raise InvalidArgumentError(f"the metadata domain {ROW_TRACKING} is not to be set: commits work it out")
        validate_commit(prepared.actions, version=0 if self.base < 0 else None)
        operation = {"operation": prepared.commit_info.get("operation")}
        actions = [CommitInfo(fields=operation), *prepared.actions]
        self.standing = Standing(
            prepared.read_set, actions, prepared.level, prepared.table, prepared.work, self.limits.budget
        )
        self.draft = Draft(prepared, self.standing)

    def run(self) -> Generator[Effect, Reply, CommitOutcome]:
        while True:
            yield from self._encode()
            self.attempts += 1
            winner = yield from self._settle(self.base + 1)
            if winner is None:
                return self._committed(recovered=self.in_doubt)
            self.in_doubt = False
            yield from self._step_over(winner)
            # The pause comes before the look at the log, not behind it: a put after a pause goes to a version that
            # others have taken meanwhile, and who has lost often, and waits long, would lose for ever.
            used_up = self.attempts >= self.limits.max_attempts
            over = used_up or (yield from self._out_of_time(Pause(self.attempts, "lost")))
            if (yield from self._catch_up()):
                return self._committed(recovered=True)
            if self.standing.empty:
                return dataclasses.replace(self._committed(recovered=False), version=None)
            if over:
                raise self._exhausted("More attempts" if used_up else "More time")

    def _encode(self) -> Generator[Effect, Reply, None]:
        if self.draft.brings_timestamps and self.base >= 0:
            # Versions without in-commit timestamps have other times, which its own must exceed.
            before = yield from self._insist(CommitTime(self.base), Time)
            self.draft.behind([before.ms], ())
        vectors = self.draft.unwritten()
        if vectors:
            found = yield from self._insist(WriteVectors(tuple(vectors.values())), Descriptors)
            self.draft.written(vectors, found.descriptors)
        self.draft.encode(self.base + 1, round(self.waited * 1000))

    def _committed(self, *, recovered: bool) -> CommitOutcome:
        return CommitOutcome(
            version=self.base + 1,
            attempts=self.attempts,
            rebased_over=tuple(self.rebased_over),
            recovered=recovered,
            puts=self.puts,
            vectors=self.draft.descriptors,
            groups=self.standing.groups,
            unused=self.standing.unused,
            fallbacks=tuple(self.standing.lookout.reasons),
        )

    # --- one version ---

    def _settle(self, version: int) -> Generator[Effect, Reply, CommitSummary | None]:
        """Put at this version until it is certain whose it is. Returns the winner, or None where it is ours."""
        for repeat in range(1, self.limits.max_repeats + 1):
            yield from self._confirm_base()
            self.puts += 1
            reply = yield PutIfAbsent(version, self.draft.data)
            match reply:
                case Created():
                    yield from self._confirm_created(version)
                    return None
                case Failed(error) if not self.in_doubt:
                    raise error
                case Failed():
                    pass
                case Unknown() | Exists():
                    # A store says Exists of our own file, too, where it resent a request by itself: nothing is
                    # certain before the file is read.
                    self.in_doubt = True
                case _:
                    raise TypeError(f"{reply!r} is no reply to a put")
            found = yield from ask(ReadCommits(version, version), Commits)
            if isinstance(found, Commits) and (data := found.data[0]) is not None:
                winner = self._summary(version, data)
                self.winner_bytes = len(data)
                if not self._is_ours(winner):
                    return winner
                yield from self._confirm_created(version)
                return None
            # Nothing there, or the store does not say. The next version is not for us before this one is settled.
            if repeat < self.limits.max_repeats and (yield from self._out_of_time(Pause(repeat, "undecided"))):
                break
        raise self._outcome_unknown(version, "the store gave no certain answer")

    def _is_ours(self, commit: CommitSummary) -> bool:
        return commit.txn_id == self.prepared.txn_id

    @staticmethod
    def _summary(version: int, data: bytes, lines: Sequence[FileLine] = ()) -> CommitSummary:
        return summarize(version, data, commit_key(version), lines)

    # --- after a loss ---

    def _step_over(self, winner: CommitSummary, following: Sequence[bytes] = ()) -> Generator[Effect, Reply, None]:
        standing = self.standing
        while True:
            match check(standing, winner):
                case Conflict() as verdict:
                    raise verdict.error()
                case NeedVectors(descriptors):
                    behind = enumerate(following, winner.version + 1)
                    found = yield from self._read_vectors(descriptors, behind)
                    gone = {one.unique_id for one in descriptors} - found.keys()
                    if gone:
                        found |= yield from self._read_successors(winner, gone)
                    there = [one for one in descriptors if one.unique_id in found]
                    standing.files.learn(there, [found[one.unique_id] for one in there])
                    standing.files.forgo(gone - found.keys(), winner)
                case NeedRows(files):
                    yield from self._look_at_rows(files)
                case NeedPlaces(untold):
                    yield from self._trace_rows(winner, untold)
                case Clear():
                    break
        if standing.advance(winner):
            self.draft.stale = True
        self._go_behind(1, [winner.in_commit_timestamp], winner.row_marks)

    def _go_behind(self, count: int, timestamps: Iterable[int | None], row_marks: Iterable[DomainMetadata]) -> None:
        """Of so many winners, which do not conflict."""
        self.draft.behind(timestamps, row_marks)
        self.rebased_over.extend(range(self.base + 1, self.base + 1 + count))
        self.base += count

    def _pass_by(self, winners: Sequence[Sequence[FileLine]]) -> bool:
        """Step over winners at once, if that is possible: they have nothing but files, none of which concerns the
        transaction. Of all their files together that is seen quicker than of each winner's.
        """
        found = summarize_together(self.base + len(winners), winners)
        if found is None:
            return False
        together, infos = found
        if len(infos) != len(winners) or not self.standing.is_apart(together):
            return False
        if self.prepared.txn_id in [info.txn_id for info in infos]:
            return False
        self.standing.advance(together)
        stamps = (whole_number(info.in_commit_timestamp) for info in infos)
        self._go_behind(len(winners), stamps, together.row_marks)
        return True

    def _read_vectors(
        self, needed: Sequence[DeletionVectorDescriptor], following: Iterable[tuple[int, bytes]]
    ) -> Generator[Effect, Reply, dict[str, BitMap64]]:
        """Read deletion vectors, and with them those that the following winners gave to the same files: one round trip
        for a chunk of winners, not one for each. Returns them by id, without those whose files do not exist.
        """
        # A vector that another one stands for is never read itself, even if it exists: the two would contradict.
        known = self.ahead.keys() | self.replaced.keys()
        missing = {one.unique_id: one for one in needed if one.unique_id not in known}
        wanted = missing | self._vectors_of(following) if missing else {}
        if len(wanted) > len(missing):
            found = yield from ask(ReadVectors(tuple(wanted.values())), Vectors)
            if isinstance(found, Vectors):
                self.ahead.update(zip(wanted, found.bitmaps, strict=True))
                missing = {}
            # Else one that is not needed yet may be to blame.
        if missing:
            self.ahead.update((yield from self._read_existing(missing)))
        there = ((one.unique_id, self.replaced.get(one.unique_id, self.ahead.get(one.unique_id))) for one in needed)
        return {name: rows for name, rows in there if rows is not None}

    def _vectors_of(self, following: Iterable[tuple[int, bytes]]) -> dict[str, DeletionVectorDescriptor]:
        """The vectors that winners gave to files of which rows are known, by their ids, up to so many bytes."""
        found: dict[str, DeletionVectorDescriptor] = {}
        size = 0
        # A winner that cannot be read is the error when it is its turn.
        with contextlib.suppress(InvalidLogError):
            for version, data in following:
                if version <= self.ahead_to:
                    continue
                self.ahead_to = version
                for vector in self.standing.files.vectors_in(self._summary(version, data)):
                    size += vector.size_in_bytes
                    if size > _VECTOR_BYTES:
                        return found
                    found[vector.unique_id] = vector
        return found

    def _look_at_rows(self, files: tuple[Add, ...]) -> Generator[Effect, Reply, None]:
        lookout = self.standing.lookout
        match (yield from ask(LookAtRows(files), Matches)):
            case Matches(found, seconds):
                lookout.answer(files, found, seconds)
            case Failed(error):
                lookout.fail(files, str(error))

    def _trace_rows(self, winner: CommitSummary, untold: Untold) -> Generator[Effect, Reply, None]:
        match (yield from ask(TraceRows(untold.inputs, untold.outputs), Traces)):
            case Traces(moves):
                self.standing.learn(untold, winner, moves)
            case Failed(error):
                why = f"rows that were rearranged {untold.who(winner)} cannot be looked for: {error}"
                self.standing.lookout.reasons[why] = None

    def _catch_up(self) -> Generator[Effect, Reply, bool]:
        """Step over all winners after ``base``. Returns True, with ``base`` before it, if one of them is ours."""
        newest = (yield from self._insist(NewestVersion(self.base), Newest)).version
        while self.base < newest:
            count = max(1, min(newest - self.base, _CHUNK, _CHUNK_BYTES // self.winner_bytes))
            found = yield from self._insist(ReadCommits(self.base + 1, self.base + count), Commits)
            there = found.data.index(None) if None in found.data else len(found.data)
            winners = cast("tuple[bytes, ...]", found.data[:there])
            if (yield from self._step_over_all(winners)):
                return True
            self.ahead.clear()
            if len(winners) < len(found.data):
                # Cleanup may have come past; it begins with the oldest.
                yield from self._confirm_base()
                raise InvalidLogError(
                    f"version {self.base + 1} is missing, though version {newest} exists",
                    file=commit_key(self.base + 1),
                )
        return False

    def _step_over_all(self, winners: Sequence[bytes]) -> Generator[Effect, Reply, bool]:
        """Step over winners in a row, likewise."""
        self.winner_bytes = max(1, sum(map(len, winners)) // max(1, len(winners)))
        count = max(1, _TOGETHER_BYTES // self.winner_bytes)
        for start in range(0, len(winners), count):
            some = winners[start : start + count]
            lines = list(map(file_lines, some))
            if self._pass_by(lines):
                lines.clear()  # so that the next ones come to the same place in memory
                continue
            for number, data in enumerate(some):
                winner = self._summary(self.base + 1, data, lines[number])
                if self._is_ours(winner):
                    return True
                yield from self._step_over(winner, winners[start + number + 1 :])
        return False

    def _exhausted(self, remedy: str) -> CommitRetriesExhaustedError:
        return CommitRetriesExhaustedError(
            f"other writers won each of the {self.attempts} versions that this commit tried, the last one at or "
            f"before {self.base}; nothing was committed. {remedy} may help, or fewer writers at once"
        )
