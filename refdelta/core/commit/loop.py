"""The commit loop: a generator of effects that opens nothing, waits for nothing and knows no clock.

The shell (``refdelta/transaction/driver.py``, or a model checker) carries out each effect and sends back its reply::

    TryCommit(N+1) -- Committed ---------------------------------------> committed at N+1
                   -- Exists, Unknown: ReadCommits(N+1)
                            it has our transaction id -----------------> committed at N+1
                            another's, and N exists: we lost ----------> Pause, NewestVersion,
                                                                         ReadCommits(N+2 .. newest), RULES for each,
                                                                         TryCommit(newest+1)
                            nothing there: a delayed put may yet land -> after a pause the same bytes at N+1 again

A put with an unknown outcome is settled before the next version is tried, so at most one version can ever hold this
transaction: a delayed put cannot replace the commit of another writer. Therefore every result of the loop is certain,
except :class:`~refdelta.core.errors.CommitOutcomeUnknownError`, which says how to find out.

**A put at N+1 counts only where N exists.** ``TryCommit`` alone cannot tell a version that is still to come from one
that log cleanup removed long ago, or from the log of a table that was deleted and created anew. So each put stands
between two ``VersionExists(N)``, and so does the winner that took its place:

* the one before it fails the commit of a stale handle with nothing written;
* the one after it is for a process that was suspended in between for so long that cleanup deleted N. If the next
  version is missing although newer ones exist, the commit belongs to no table: it is withdrawn, and the commit failed.
  If that cannot be decided, the outcome is unknown. So it is if the put was in doubt before, since its first request
  may have made the version that cleanup removed.
* The one after a winner was read is for the same case: where N is gone, the file of the winner may have been created
  by a late request after our commit was cleaned up.

That some version N exists does not suffice: a table that was removed and made anew has one, too. It has to be the
commit that was read; the shell compares the object, or its content, and replies ``Replaced`` if it is another one. A
commit that was put into such a table is withdrawn, unless another version follows it already.

The shell may answer ``VersionExists`` from a recent request: cleanup deletes only files that are hours old
(PROTOCOL.md, "Metadata Cleanup"). So it costs a request only if the handle is old or the put was slow. On a local disk
the shell checks every time, since a folder may be removed at any moment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

from pyroaring import BitMap64

from refdelta.core.commit import effects
from refdelta.core.commit.body import CommitBody, as_version
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.group import in_order, may_share
from refdelta.core.commit.member import Member
from refdelta.core.commit.transaction import CommitOutcome, CommitTally, PreparedCommit
from refdelta.core.commit.vectors import CHUNK_BYTES, R, ask
from refdelta.core.errors import (
    CommitFailedError,
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    DataFileNotFoundError,
    InvalidLogError,
)
from refdelta.core.log.footprint import Footprint, fold_commit, fold_together, txn_ids, whole_number
from refdelta.core.log.lean import FileLine, file_lines

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
    member = Member(prepared, limits, tally)
    yield from group_loop([member], limits)
    if isinstance(member.outcome, CommitOutcome):
        return member.outcome
    raise member.outcome or AssertionError("a loop with one transaction ends with its outcome")


def group_loop(members: Sequence[Member], limits: Limits | None = None) -> effects.Steps[None]:
    """Commit transactions of one table together: a generator like :func:`commit_loop`, up to the next version that has
    some of them.

    Each is checked against the winners, and against the members of the version before it. The failure of one does not
    affect the others. Those that may not share a version with the first ones, or would conflict with them, are left for
    the next call; it then checks them against that version.

    Args:
        members: the transactions, the first ones preferred. Those with an ``outcome`` are passed over.
        limits: the limits of this version; None for the defaults.

    Returns:
        None, as ``StopIteration.value``: the ends are the ``outcome`` of each, which is an error where
        :func:`commit_loop` would raise it. At least one has ended.
    """
    return Loop([one for one in members if one.outcome is None], limits or Limits()).run()


class Loop:
    """One run. The loop of a leader (:mod:`refdelta.core.commit.leading`) goes the same steps with another end.

    Attributes:
        members: the transactions that have not ended.
        limits: the limits.
        base: the version before the next put. All versions up to it were checked and do not conflict.
        attempts: the number of versions that were tried.
        puts: the number of puts.
        waited: seconds since the first effect, at the last pause.
        in_doubt: whether a put at base+1 may have been carried out, or may be later.
    """

    def __init__(self, members: list[Member], limits: Limits) -> None:
        self.members, self.limits = members, limits
        self.base = max(member.base for member in members)
        self.name_of = members[0].prepared.name_of
        self.attempts, self.puts, self.waited, self.in_doubt = 0, 0, 0.0, False
        # Winners after the next one that the committer has sent along.
        self.sent_along: tuple[bytes, ...] = ()
        # The mean size of the winners that were read last, in bytes.
        self.winner_bytes = 1
        self.body = CommitBody()
        for member in members:
            member.stale = True  # of an earlier loop, which left it out

    def run(self) -> effects.Steps[None]:
        """Run it, up to the next version that has some of the members. An error ends those that it is of."""
        try:
            yield from self._run()
        except CommitOutcomeUnknownError as error:
            for member in self._attempted():
                own = CommitOutcomeUnknownError(error.why, error.version, member.prepared.txn_id)
                own.__cause__ = error.__cause__
                self._end(member, own)
        except Exception as error:  # noqa: BLE001 - it is certain that nothing was committed
            for member in self._attempted():
                self._end(member, error)

    def _attempted(self) -> list[Member]:
        """The members that the last put was to commit; before any put, all of them."""
        names = {member.prepared.txn_id for member in self.body.members}
        return [one for one in self.members if one.prepared.txn_id in names] or list(self.members)

    def _run(self) -> effects.Steps[None]:
        if (yield from self._align()):
            return
        while self.members:
            winner = yield from self._attempt()
            if winner is None or not self.members:
                return
            # The pause comes before reading the log. With the pause after it, the put would go to a version that others
            # have taken meanwhile, and a transaction that lost often, and so waits long, would always lose.
            used_up = self.attempts >= self.limits.max_attempts
            read = min(member.prepared.read_version for member in self.members)
            younger = None if winner.read_version is None else max(0, read - winner.read_version)
            over = used_up or (yield from self._out_of_time(effects.Pause(self.attempts, "lost", younger)))
            if (yield from self._catch_up(self.base)):
                return
            for member in [one for one in self.members if one.state.empty]:
                self._end(member, dataclasses.replace(self._outcome(member, None, recovered=False), version=None))
            if over and self.members:
                raise self._exhausted("More attempts" if used_up else "More time")

    def _align(self) -> effects.Steps[bool]:
        """Bring the members that read earlier versions up to ``base``. Returns True as :meth:`_catch_up`."""
        first = min(member.base for member in self.members)
        return first < self.base and (yield from self._catch_up(first, self.base))

    def _attempt(self) -> effects.Steps[Footprint | None]:
        """Try the next version. Returns the winner, which was stepped over, or None if the version is ours."""
        yield from self._encode()
        self._count(attempts=1)
        winner = yield from self._settle(self.base + 1)
        if winner is not None:
            self.in_doubt = False
            for member in list(self.members):
                yield from self._step_over(member, winner)
            self.base += 1
        return winner

    def _encode(self) -> effects.Steps[None]:
        if not any(member.stale for member in self.members):
            return
        self.body.members = yield from self._sharing()
        try:
            yield from self._encode_body()
        except Exception:
            if len(self.body.members) == 1:
                raise
            # One of them cannot be encoded. It finds that out alone, in a later version.
            self.body.members = self.members[:1]
            yield from self._encode_body()
        for member in self.members:
            member.stale = False

    def _encode_body(self) -> effects.Steps[None]:
        first = self.body.members[0]
        if first.brings_timestamps and self.base >= 0:
            # Its timestamp must exceed the times of versions without in-commit timestamps.
            before = yield from self._insist(effects.CommitTime(self.base), effects.Time)
            first.at_time(before.ms)
        vectors = self.body.unwritten()
        if vectors:
            found = yield from self._insist(effects.WriteVectors(tuple(vectors.values())), effects.Descriptors)
            self.body.written(vectors, found.descriptors)
        self.body.encode(self.base + 1, round(self.waited * 1000))

    def _sharing(self) -> effects.Steps[list[Member]]:
        """The members of the next version, each after those before it. A transaction that would conflict with these is
        left out: the conflict is certain only once the version is there.
        """
        if len(self.members) == 1:
            return list(self.members)
        chosen: list[Member] = []
        for member in self.members:
            if may_share(member, chosen):
                chosen.append(member)
        found: list[Member] = []
        before: list[tuple[Footprint, Mapping[str, BitMap64]]] = []
        for member in in_order(chosen):
            after = yield from self._after(member, before)
            if after is not None:
                found.append(after)
                before.append(as_version(after, self.base + 1))
        return found

    def _after(
        self, member: Member, before: Sequence[tuple[Footprint, Mapping[str, BitMap64]]]
    ) -> effects.Steps[Member | None]:
        """A copy of a member after others, which have these vectors; None if that fails."""
        after = member.copy()
        try:
            for commit, vectors in before:
                yield from after.step_over(self._insist, commit, vectors=vectors)
        except Exception:  # noqa: BLE001 - its own, and certain only once the others are a version
            return None
        return after

    def _count(self, *, attempts: int = 0, puts: int = 0, size: int = 0) -> None:
        self.attempts += attempts
        self.puts += puts
        for member in self.members:
            member.tally.attempts += attempts
            member.tally.puts += puts
            member.tally.bytes += size

    def _committed(self, names: Sequence[str], *, recovered: bool) -> None:
        """End the transactions with these ids, which are those of the version after ``base``, in its order."""
        for member in list(self.members):
            if (name := member.prepared.txn_id) in names:
                number = names.index(name) if len(names) > 1 else None
                self._end(member, self._outcome(member, number, recovered=recovered))

    def _end(self, member: Member, outcome: CommitOutcome | Exception) -> None:
        member.outcome = outcome
        self.members.remove(member)
        for other in self.members:
            other.stale = True  # the next version has other members

    def _outcome(self, member: Member, number: int | None, *, recovered: bool) -> CommitOutcome:
        return CommitOutcome(
            version=self.base + 1,
            member=number,
            attempts=self.attempts,
            rebased_over=tuple(member.rebased_over),
            recovered=recovered,
            puts=self.puts,
            vectors=self.body.descriptors,
            groups=member.state.groups,
            unused=member.state.unused,
            fallbacks=tuple(member.reasons),
        )

    # --- one version ---

    def _settle(self, version: int) -> effects.Steps[Footprint | None]:
        """Put at this version until its owner is certain. Returns the winner, or None if it has transactions of ours,
        which have ended then.
        """
        for repeat in range(1, self.limits.max_repeats + 1):
            yield from self._confirm_base()
            self._count(puts=1, size=len(self.body.data))
            sent: tuple[bytes, ...] = ()
            while isinstance(reply := (yield effects.TryCommit(version, self.body.data)), effects.Deferred):
                yield from self._confirm_base()
            match reply:
                case effects.Committed():
                    yield from self._confirm_created(version)
                    self._committed([member.prepared.txn_id for member in self.body.members], recovered=self.in_doubt)
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
                    yield from self._confirm_winner(version)
                    return winner
                yield from self._confirm_created(version)
                self._committed(winner.txn_ids, recovered=True)
                return None
            # No commit, or no answer. The next version must not be tried before this one is settled.
            if repeat < self.limits.max_repeats and (yield from self._out_of_time(effects.Pause(repeat, "undecided"))):
                break
        raise self._outcome_unknown(version, "the store gave no certain answer")

    def _is_ours(self, commit: Footprint) -> bool:
        return any(member.is_in(commit) for member in self.members)

    def _footprint(self, version: int, data: bytes, lines: Sequence[FileLine] = ()) -> Footprint:
        return fold_commit(version, data, self.name_of(version), lines)

    # --- after a loss ---

    def _step_over(self, member: Member, winner: Footprint, following: Sequence[bytes] = ()) -> effects.Steps[None]:
        """Step over the next winner with one member. If that fails, so does the member, and no other one."""
        try:
            for part in winner.parts:
                yield from member.step_over(self._insist, part, following)
            member.passed(1, [winner.in_commit_timestamp], winner.row_marks)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was committed
            self._end(member, error)

    def _pass_by(self, members: Sequence[Member], winners: Sequence[Sequence[FileLine]]) -> list[Member]:
        """Step over several winners at once with these members, if the winners have only files, none of which concerns
        the transaction. One check of all their files is faster than one for each winner. Returns the other members.
        """
        found = fold_together(members[0].base + len(winners), winners)
        if found is None or len(found[1]) != len(winners):
            return list(members)
        together, infos = found
        names = txn_ids(infos)
        if any(member.prepared.txn_id in names for member in members):
            return list(members)
        left = []
        for member in members:
            if member.state.is_apart(together):
                stamps = (whole_number(info.in_commit_timestamp) for info in infos)
                member.passed(len(winners), stamps, together.row_marks)
            else:
                left.append(member)
        return left

    def _catch_up(self, first: int, last: int | None = None) -> effects.Steps[bool]:
        """Step over all winners after version ``first``, up to ``last`` or the newest one. Returns True if one of them
        has members of ours, which have ended; ``base`` is then the version before it.
        """
        self.base = first
        sent, self.sent_along = self.sent_along, ()
        if sent and (yield from self._step_over_all(sent)):
            return True
        newest = last
        if newest is None:
            newest = (yield from self._insist(effects.NewestVersion(self.base), effects.Newest)).version
        while self.base < newest and self.members:
            count = max(1, min(newest - self.base, _CHUNK, CHUNK_BYTES // self.winner_bytes))
            found = yield from self._insist(effects.ReadCommits(self.base + 1, self.base + count), effects.Commits)
            there = found.data.index(None) if None in found.data else len(found.data)
            winners = cast("tuple[bytes, ...]", found.data[:there])
            if (yield from self._step_over_all(winners)):
                return True
            for member in self.members:
                member.vectors.ahead.clear()
            if len(winners) < len(found.data) and self.members:
                # Cleanup may have deleted it; it begins with the oldest.
                yield from self._confirm_base()
                raise InvalidLogError(
                    f"version {self.base + 1} is missing, though version {newest} exists",
                    file=self.name_of(self.base + 1),
                )
        return False

    def _step_over_all(self, winners: Sequence[bytes]) -> effects.Steps[bool]:
        """Step over consecutive winners. Returns True, with ``base`` before it, if one of them is ours."""
        self.winner_bytes = max(1, sum(map(len, winners)) // max(1, len(winners)))
        count = max(1, _TOGETHER_BYTES // self.winner_bytes)
        for start in range(0, len(winners), count):
            some = winners[start : start + count]
            lines = list(map(file_lines, some))
            here = [member for member in self.members if member.base == self.base]
            left = self._pass_by(here, lines) if here else []
            if left or len(here) < len(self.members):
                for number, data in enumerate(some):
                    winner = self._footprint(self.base + 1, data, lines[number])
                    if self._is_ours(winner):
                        self._committed(winner.txn_ids, recovered=True)
                        return True
                    for member in [one for one in self.members if one.base == self.base]:
                        yield from self._step_over(member, winner, winners[start + number + 1 :])
                    self.base += 1
                    if not self.members:
                        return False
            else:
                self.base += len(some)
            lines.clear()  # so that the next ones reuse its memory
        return False

    def _exhausted(self, remedy: str) -> CommitRetriesExhaustedError:
        return CommitRetriesExhaustedError(
            f"other writers won each of the {self.attempts} versions that this commit tried, the last one at or "
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
        return CommitOutcomeUnknownError(why, version, self.members[0].prepared.txn_id)

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

    def _confirm_winner(self, version: int) -> effects.Steps[None]:
        """Another commit at the version of a put says that this was not carried out only if the version before it is
        still there. Otherwise it may have been, though the reply was Exists, since stores send a request again; log
        cleanup has removed it, and a late put of another writer has created the file anew.
        """
        if self.base < 0:
            return
        answer = yield from self._insist(effects.VersionExists(self.base), effects.Answer)
        if isinstance(answer, effects.No):  # a table that was removed took the commit with it
            raise self._outcome_unknown(version, f"version {self.base} is no longer in the log")

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
            ours = None
            if newest > version and following.data[0] is None:
                # Cleanup begins with the oldest version. If this one is there though the next one was not, it is none.
                ours = (yield from self._insist(effects.ReadCommits(version, version), effects.Commits)).data[0]
            if ours is None or not self._is_ours(self._footprint(version, ours)):
                raise self._outcome_unknown(version, f"it was written, but version {self.base} is no longer in the log")
            yield from self._insist(effects.Withdraw(version), effects.Yes)
            if doubted:
                # An earlier put may have been the real one, which was cleaned up.
                raise self._outcome_unknown(
                    version,
                    f"its put was repeated, and meanwhile the log went on to version {newest} and was cleaned up",
                )
            raise CommitFailedError(
                f"while this commit waited, the log went on to version {newest} and was cleaned up; the file for "
                f"version {version} was withdrawn. Nothing was committed; open the table again and repeat the operation"
            )
        self.in_doubt = doubted
