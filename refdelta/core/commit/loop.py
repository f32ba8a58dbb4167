"""The commit loop: a generator of effects that opens nothing, waits for nothing and knows no clock.

The shell (``refdelta/transaction/driver.py``, or a model checker) carries out each effect and sends back its reply::

    TryCommit(N+1) -- Committed ---------------------------------------> committed at N+1
                   -- Exists, Unknown: ReadCommits(N+1)
                            it has our transaction id -----------------> committed at N+1
                            another's: we lost to a winner ------------> Pause, NewestVersion,
                                                                         ReadCommits(N+2 .. newest), RULES for each,
                                                                         TryCommit(newest+1)
                            nothing there: a delayed put may yet land -> after a pause the same bytes at N+1 again

A put with an unknown outcome is settled before the next version is tried, so at most one version can ever hold this
transaction: a delayed put cannot replace the commit of another writer. Therefore every result of the loop is certain,
except :class:`~refdelta.core.errors.CommitOutcomeUnknownError`, which says how to find out.

**A put at N+1 counts only where N exists.** ``TryCommit`` alone cannot tell a version that is still to come from one
that log cleanup removed long ago, or from the log of a table that was deleted and created anew. So each put stands
between two ``VersionExists(N)``:

* the one before it fails the commit of a stale handle with nothing written;
* the one after it is for a process that was suspended in between for so long that cleanup deleted N. If the next
  version is missing although newer ones exist, the commit belongs to no table: it is withdrawn, and the commit failed.
  If that cannot be decided, the outcome is unknown.

That some version N exists does not suffice: a table that was removed and made anew has one, too. It has to be the
commit that was read; the shell compares the object, or its content, and replies ``Replaced`` if it is another one. A
commit that was put into such a table is withdrawn, unless another version follows it already.

The shell may answer ``VersionExists`` from a recent request: cleanup deletes only files that are hours old
(PROTOCOL.md, "Metadata Cleanup"). So it costs a request only if the handle is old or the put was slow. On a local disk
the shell checks every time, since a folder may be removed at any moment.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from refdelta.core.commit import effects
from refdelta.core.commit.body import CommitBody
from refdelta.core.commit.budget import Limits, RowCheckBudget
from refdelta.core.commit.transaction import CommitOutcome, CommitTally, PreparedCommit
from refdelta.core.commit.vectors import CHUNK_BYTES, R, VectorReads, ask
from refdelta.core.conflicts.rules import (
    RULES,
    Clear,
    Conflict,
    NeedConfirmation,
    NeedPlaces,
    NeedRows,
    NeedVectors,
    check,
)
from refdelta.core.conflicts.state import AddedRows, TransactionState, Unlocated
from refdelta.core.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    DataFileNotFoundError,
    InvalidArgumentError,
    InvalidLogError,
)
from refdelta.core.log.actions import CommitInfo, DeletionVectorDescriptor, DomainMetadata
from refdelta.core.log.assigned import DOMAIN as ROW_TRACKING
from refdelta.core.log.footprint import Footprint, fold_commit, fold_together, whole_number
from refdelta.core.log.lean import FileLine, file_lines
from refdelta.core.log.replay import file_key, validate_commit
from refdelta.core.rows.touched import Facts

_CHUNK = 256
"""The most winners that are held in memory at a time."""

_TOGETHER_BYTES = 64 * 2**10
"""The number of bytes of winners that are checked together."""


def commit_loop(
    prepared: PreparedCommit, limits: Limits | None = None, tally: CommitTally | None = None
) -> effects.Steps[CommitOutcome]:
    """Commit a transaction: a generator that yields effects and is sent replies (:mod:`refdelta.core.commit.effects`).

    Args:
        prepared: the transaction.
        limits: its limits; None for the defaults.
        tally: counts that the loop fills while it runs.

    Returns:
        The outcome, as ``StopIteration.value``.

    Raises:
        ConcurrentModificationError: a winner conflicts; nothing was committed.
        CommitRetriesExhaustedError: the limits are used up; nothing was committed.
        CommitFailedError: the handle is too old; nothing was committed.
        InvalidLogError: a winner's file is broken or missing; nothing was committed.
        CommitOutcomeUnknownError: it may have been committed or not.
        InvalidLogError: the staged actions break the protocol; nothing was written.
        InvalidArgumentError: the staged actions set the domain of row tracking, which commits compute; or a file
            without ``numRecords`` in a table with row tracking.
        Exception: the error of a ``Failed`` reply, if it is certain that nothing was committed.
    """
    return _Loop(prepared, limits or Limits(), prepared.read_version, tally or CommitTally()).run()


class _Loop:
    """One run.

    Attributes:
        prepared: the transaction.
        limits: the limits.
        base: the version before the next put. All versions up to it were checked and do not conflict.
        tally: the counts.
        waited: seconds since the first effect, at the last pause.
        in_doubt: whether a put at base+1 may have been carried out, or may be later.
    """

    def __init__(self, prepared: PreparedCommit, limits: Limits, base: int, tally: CommitTally) -> None:
        self.prepared, self.limits, self.base, self.tally = prepared, limits, base, tally
        self.waited, self.in_doubt = 0.0, False
        # The reasons why conflicts were decided by files and not by rows, in order.
        self.reasons: dict[str, None] = {}
        self.rebased_over: list[int] = []
        # Winners after the next one that the committer has sent along.
        self.sent_along: tuple[bytes, ...] = ()
        # The mean size of the winners that were read last, in bytes.
        self.winner_bytes = 1
        if any(isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING for action in prepared.actions):
            raise InvalidArgumentError(f"the metadata domain {ROW_TRACKING} is not to be set: commits work it out")
        validate_commit(prepared.actions, version=0 if self.base < 0 else None)
        operation = {"operation": prepared.commit_info.get("operation")}
        actions = [CommitInfo(fields=operation), *prepared.actions]
        self.state = TransactionState(
            prepared.read_set, actions, prepared.level, prepared.table, prepared.changes, prepared.rests_on
        )
        self.body = CommitBody(prepared, self.state)
        self.vectors = VectorReads(prepared.name_of)
        self.budget = RowCheckBudget(self.limits.budget)

    def run(self) -> effects.Steps[CommitOutcome]:
        while True:
            yield from self._encode()
            self.tally.attempts += 1
            winner = yield from self._settle(self.base + 1)
            if winner is None:
                return self._committed(recovered=self.in_doubt)
            self.in_doubt = False
            yield from self._step_over(winner)
            # The pause comes before reading the log. With the pause after it, the put would go to a version that others
            # have taken meanwhile, and a transaction that lost often, and so waits long, would always lose.
            used_up = self.tally.attempts >= self.limits.max_attempts
            younger = None if (read := winner.read_version) is None else max(0, self.prepared.read_version - read)
            over = used_up or (yield from self._out_of_time(effects.Pause(self.tally.attempts, "lost", younger)))
            if (yield from self._catch_up()):
                return self._committed(recovered=True)
            if self.state.empty:
                return dataclasses.replace(self._committed(recovered=False), version=None)
            if over:
                raise self._exhausted("More attempts" if used_up else "More time")

    def _encode(self) -> effects.Steps[None]:
        if self.body.brings_timestamps and self.base >= 0:
            # Its timestamp must exceed the times of versions without in-commit timestamps.
            before = yield from self._insist(effects.CommitTime(self.base), effects.Time)
            self.body.after([before.ms], ())
        vectors = self.body.unwritten()
        if vectors:
            found = yield from self._insist(effects.WriteVectors(tuple(vectors.values())), effects.Descriptors)
            self.body.written(vectors, found.descriptors)
        self.body.encode(self.base + 1, round(self.waited * 1000))

    def _committed(self, *, recovered: bool) -> CommitOutcome:
        return CommitOutcome(
            version=self.base + 1,
            attempts=self.tally.attempts,
            rebased_over=tuple(self.rebased_over),
            recovered=recovered,
            puts=self.tally.puts,
            vectors=self.body.descriptors,
            groups=self.state.groups,
            unused=self.state.unused,
            fallbacks=tuple(self.reasons),
        )

    # --- one version ---

    def _settle(self, version: int) -> effects.Steps[Footprint | None]:
        """Put at this version until its owner is certain. Returns the winner, or None if it is ours."""
        for repeat in range(1, self.limits.max_repeats + 1):
            yield from self._confirm_base()
            self.tally.puts += 1
            self.tally.bytes += len(self.body.data)
            sent: tuple[bytes, ...] = ()
            reply = yield effects.TryCommit(version, self.body.data)
            match reply:
                case effects.Committed():
                    yield from self._confirm_created(version)
                    return None
                case effects.Failed(error) if not self.in_doubt:
                    raise error
                case effects.Failed():
                    pass
                case effects.Unknown() | effects.Exists():
                    # A store that resent a request by itself replies Exists to our own commit, too: only reading it
                    # is certain.
                    self.in_doubt = True
                    sent = reply.winners if isinstance(reply, effects.Exists) else ()
                case _:
                    raise TypeError(f"{reply!r} is no reply to a put")
            read_back = effects.ReadCommits(version, version)
            found = effects.Commits(sent) if sent else (yield from ask(read_back, effects.Commits))
            if isinstance(found, effects.Commits) and (data := found.data[0]) is not None:
                winner = self._footprint(version, data)
                self.winner_bytes, self.sent_along = len(data), sent[1:]
                if not self._is_ours(winner):
                    return winner
                yield from self._confirm_created(version)
                return None
            # No commit, or no answer. The next version must not be tried before this one is settled.
            if repeat < self.limits.max_repeats and (yield from self._out_of_time(effects.Pause(repeat, "undecided"))):
                break
        raise self._outcome_unknown(version, "the store gave no certain answer")

    def _is_ours(self, commit: Footprint) -> bool:
        return commit.txn_id == self.prepared.txn_id

    def _footprint(self, version: int, data: bytes, lines: Sequence[FileLine] = ()) -> Footprint:
        return fold_commit(version, data, self.prepared.name_of(version), lines)

    # --- after a loss ---

    def _step_over(self, winner: Footprint, following: Sequence[bytes] = ()) -> effects.Steps[None]:
        facts = Facts.of(winner, self.reasons)
        while not isinstance(verdict := check(self.state, winner, facts), Clear):
            match verdict:
                case Conflict(rule):
                    self.tally.winners += 1
                    self.tally.rules += RULES.index(rule) + 1
                    raise verdict.error()
                case NeedVectors(descriptors):
                    later = self._vectors_of(following, winner.version)
                    yield from self.vectors.find(self._insist, descriptors, winner, later, facts)
                case NeedRows(rows):
                    yield from self._match_rows(rows, facts)
                case NeedPlaces(unlocated):
                    yield from self._locate_rows(unlocated, winner, facts)
                case NeedConfirmation(rows, trusted):
                    facts.confirmed = yield from self._confirm_rows(rows, trusted=trusted)
        if verdict.passed is not None:
            self.tally.rules += len(RULES)
            if self.state.advance(verdict.passed):
                self.body.stale = True
        self._passed(1, [winner.in_commit_timestamp], winner.row_marks)

    def _passed(self, count: int, timestamps: Iterable[int | None], row_marks: Iterable[DomainMetadata]) -> None:
        """Advance by this number of winners, which do not conflict."""
        self.body.after(timestamps, row_marks)
        self.tally.winners += count
        self.rebased_over.extend(range(self.base + 1, self.base + 1 + count))
        self.base += count

    def _pass_by(self, winners: Sequence[Sequence[FileLine]]) -> bool:
        """Step over several winners at once, if they have only files, none of which concerns the transaction. One check
        of all their files is faster than one for each winner.
        """
        found = fold_together(self.base + len(winners), winners)
        if found is None:
            return False
        together, infos = found
        if len(infos) != len(winners) or not self.state.is_apart(together):
            return False
        if self.prepared.txn_id in [info.txn_id for info in infos]:
            return False
        stamps = (whole_number(info.in_commit_timestamp) for info in infos)
        self._passed(len(winners), stamps, together.row_marks)
        return True

    def _vectors_of(self, following: Sequence[bytes], winner: int) -> Iterator[DeletionVectorDescriptor]:
        """The vectors of the next winners for known files, of each winner once."""
        # A winner that cannot be read raises its error when it is checked.
        with contextlib.suppress(InvalidLogError):
            for version, data in enumerate(following, winner + 1):
                if version > self.vectors.ahead_to:
                    self.vectors.ahead_to = version
                    yield from self.state.files.vectors_in(self._footprint(version, data))

    def _match_rows(self, rows: tuple[AddedRows, ...], facts: Facts) -> effects.Steps[None]:
        files = [one.add for one in rows]
        facts.refusal = self.budget.refusal(files)
        if facts.refusal is not None:
            return
        match (yield from ask(effects.MatchRows(rows), effects.Matches)):
            case effects.Matches(found, seconds):
                self.tally.rows += sum(one.count for one in rows)
                self.budget.spend(files, seconds)
                # The files after one with a matching row were not read.
                facts.matches.update((file_key(add), at < len(found) and found[at]) for at, add in enumerate(files))
            case effects.Failed(error):
                self.reasons[f"the rows of winners' new files cannot be looked at: {error}"] = None
                facts.matches.update((file_key(add), True) for add in files)

    def _confirm_rows(self, rows: tuple[AddedRows, ...], *, trusted: bool) -> effects.Steps[bool]:
        """Whether rows that a winner moved satisfy the reads at their new places; if that cannot be decided, whether
        the winner is trusted.
        """
        # The budget may not make a conflict of what must commit.
        over = None if trusted else self.budget.refusal([one.add for one in rows])
        refusal = self.state.read.undecidable or over
        if refusal is None:
            reply = yield from ask(effects.ConfirmRows(rows, trusted), effects.Answer)
            if not isinstance(reply, effects.Failed):
                return isinstance(reply, effects.Yes)
            refusal = f"rows that another writer moved cannot be looked at: {reply.error}"
        if not trusted:
            self.reasons[refusal] = None
        return trusted

    def _locate_rows(self, wanted: Unlocated, winner: Footprint, facts: Facts) -> effects.Steps[None]:
        facts.sought.add(wanted.group)
        why = self.budget.too_many_to_locate(wanted.outputs, limited=not self.state.follows_sorts)
        if why is not None:
            self.reasons[why] = None
            return
        match (yield from ask(effects.LocateRows(wanted.inputs, wanted.outputs), effects.Relocations)):
            case effects.Relocations(found) if len(found) < len(wanted.inputs):
                why = f"the ids of rows that were rearranged {wanted.by(winner)} are in none of the new files"
                self.reasons[why] = None
            case effects.Relocations(found):
                if wanted.group is None:
                    facts.relocations.update(found)
                else:
                    facts.own_relocations[wanted.group] = found
            case effects.Failed(error):
                why = f"rows that were rearranged {wanted.by(winner)} cannot be looked for: {error}"
                self.reasons[why] = None

    def _catch_up(self) -> effects.Steps[bool]:
        """Step over all winners after ``base``. Returns True, with ``base`` before it, if one of them is ours."""
        sent, self.sent_along = self.sent_along, ()
        if sent and (yield from self._step_over_all(sent)):
            return True
        newest = (yield from self._insist(effects.NewestVersion(self.base), effects.Newest)).version
        while self.base < newest:
            count = max(1, min(newest - self.base, _CHUNK, CHUNK_BYTES // self.winner_bytes))
            found = yield from self._insist(effects.ReadCommits(self.base + 1, self.base + count), effects.Commits)
            there = found.data.index(None) if None in found.data else len(found.data)
            winners = cast("tuple[bytes, ...]", found.data[:there])
            if (yield from self._step_over_all(winners)):
                return True
            self.vectors.ahead.clear()
            if len(winners) < len(found.data):
                # Cleanup may have deleted it; it begins with the oldest.
                yield from self._confirm_base()
                raise InvalidLogError(
                    f"version {self.base + 1} is missing, though version {newest} exists",
                    file=self.prepared.name_of(self.base + 1),
                )
        return False

    def _step_over_all(self, winners: Sequence[bytes]) -> effects.Steps[bool]:
        """Step over consecutive winners. Returns True, with ``base`` before it, if one of them is ours."""
        self.winner_bytes = max(1, sum(map(len, winners)) // max(1, len(winners)))
        count = max(1, _TOGETHER_BYTES // self.winner_bytes)
        for start in range(0, len(winners), count):
            some = winners[start : start + count]
            lines = list(map(file_lines, some))
            if self._pass_by(lines):
                lines.clear()  # so that the next ones reuse its memory
                continue
            for number, data in enumerate(some):
                winner = self._footprint(self.base + 1, data, lines[number])
                if self._is_ours(winner):
                    return True
                yield from self._step_over(winner, winners[start + number + 1 :])
        return False

    def _exhausted(self, remedy: str) -> CommitRetriesExhaustedError:
        return CommitRetriesExhaustedError(
            f"other writers won each of the {self.tally.attempts} versions that this commit tried, the last one at or "
            f"before {self.base}; nothing was committed. {remedy} may help, or fewer writers at once"
        )

    # --- becoming certain ---

    def _insist(self, effect: effects.Effect, kind: type[R]) -> effects.Steps[R]:
        """Repeat an effect if the store fails; finally raise its error, or an unknown outcome if a put is in doubt."""
        repeat = 0
        while True:
            reply = yield from ask(effect, kind)
            if not isinstance(reply, effects.Failed):
                return reply
            repeat += 1
            # A missing file stays missing; all other errors may be temporary.
            passing = not isinstance(reply.error, DataFileNotFoundError) and repeat < self.limits.max_repeats
            if passing and not (yield from self._out_of_time(effects.Pause(repeat, "undecided"))):
                continue
            if self.in_doubt:
                raise self._outcome_unknown(self.base + 1, f"the store failed: {reply.error}") from reply.error
            raise reply.error

    def _out_of_time(self, pause: effects.Pause) -> effects.Steps[bool]:
        elapsed = yield from ask(pause, effects.Elapsed)
        if isinstance(elapsed, effects.Elapsed):
            self.waited = elapsed.seconds
        return self.waited > self.limits.max_seconds

    def _outcome_unknown(self, version: int, why: str) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(why, version, self.prepared.txn_id)

    # --- a put at N+1 counts only where N exists ---

    def _confirm_base(self) -> effects.Steps[None]:
        if self.base < 0 and self.in_doubt:
            # Our own put may have made the log non-empty.
            return
        answer = yield from self._insist(effects.VersionExists(self.base), effects.Answer)
        if not isinstance(answer, (effects.No, effects.Replaced)):
            return
        if self.in_doubt:
            if isinstance(answer, effects.Replaced):
                yield from self._withdraw_from_another_table(self.base + 1)
            raise self._outcome_unknown(self.base + 1, f"version {self.base} is no longer in the log")
        if self.base < 0:
            first = yield from self._insist(effects.ReadCommits(0, 0), effects.Commits)
            if first.data[0] is not None:
                # The put will lose to it, and the rules raise an error with all details.
                return
            raise CommitFailedError(
                "there is a table at this place already, whose first versions were cleaned up; nothing was committed"
            )
        raise CommitFailedError(
            f"version {self.base}, on which this commit builds, is no longer in the log: it was cleaned up, or the "
            "table was removed or replaced. Nothing was committed; open the table again and repeat the operation"
        )

    def _withdraw_from_another_table(self, version: int) -> effects.Steps[bool]:
        """Withdraw our commit from a table that was made anew; returns whether it was there and is gone.

        Where another commit follows it, that table consists of both.
        """
        found = yield from self._insist(effects.ReadCommits(version, version + 1), effects.Commits)
        ours, following = found.data
        if ours is None or following is not None or not self._is_ours(self._footprint(version, ours)):
            return False
        yield from self._insist(effects.Withdraw(version), effects.Yes)
        return True

    def _confirm_created(self, version: int) -> effects.Steps[None]:
        if self.base < 0:
            return
        doubted, self.in_doubt = self.in_doubt, True
        answer = yield from self._insist(effects.VersionExists(self.base), effects.Answer)
        if isinstance(answer, effects.Replaced):
            if (yield from self._withdraw_from_another_table(version)):
                raise CommitFailedError(
                    f"the table was removed, and perhaps made anew, while this commit waited: version {self.base}, on "
                    f"which it builds, is gone or another commit. The file for version {version} was withdrawn, and "
                    "nothing was committed; open the table again and repeat the operation"
                )
            raise self._outcome_unknown(version, f"it was written, but version {self.base} is another commit by now")
        if isinstance(answer, effects.No):
            newest = (yield from self._insist(effects.NewestVersion(version), effects.Newest)).version
            following = yield from self._insist(effects.ReadCommits(version + 1, version + 1), effects.Commits)
            if newest == version or following.data[0] is not None:
                raise self._outcome_unknown(version, f"it was written, but version {self.base} is no longer in the log")
            yield from self._insist(effects.Withdraw(version), effects.Yes)
            raise CommitFailedError(
                f"while this commit waited, the log went on to version {newest} and was cleaned up; the file for "
                f"version {version} was withdrawn. Nothing was committed; open the table again and repeat the operation"
            )
        self.in_doubt = doubted
