"""One transaction in the commit loop: its state after the winners so far, and the check of the next one.

The loop may carry several transactions to one version. Each is a :class:`Member`, which is checked and rebased as if it
were alone, and has an outcome of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from pyroaring import BitMap64

from refdelta.core.commit import effects
from refdelta.core.commit.budget import Limits, RowCheckBudget
from refdelta.core.commit.transaction import CommitOutcome, CommitTally, PreparedCommit
from refdelta.core.commit.vectors import Insist, VectorReads, ask
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
from refdelta.core.errors import InvalidArgumentError, InvalidLogError
from refdelta.core.log.actions import CommitInfo, DeletionVectorDescriptor, DomainMetadata
from refdelta.core.log.assigned import DOMAIN as ROW_TRACKING
from refdelta.core.log.assigned import CommitClock, RowIds
from refdelta.core.log.footprint import Footprint, fold_commit
from refdelta.core.log.replay import file_key, validate_commit
from refdelta.core.rows.touched import Facts


class Member:
    """A transaction after the winners that were checked.

    Args:
        prepared: the transaction.
        limits: its limits; None for the defaults.
        tally: counts that the loop fills while it runs.

    Attributes:
        prepared: the transaction.
        base: the version up to which the winners were checked; the version that was read before the first.
        state: its state after them.
        clock: the clock for the in-commit timestamp, after them.
        row_ids: the free row ids, after them.
        stale: whether the commit must be encoded again.
        tally: the counts.
        rebased_over: the versions of the winners, ascending.
        reasons: the reasons why conflicts were decided by files and not by rows, in order, as keys.
        outcome: its end: the commit, or the error of one that failed; None before that.

    Raises:
        InvalidLogError: the staged actions break the protocol.
        InvalidArgumentError: the staged actions set the domain of row tracking, which commits compute.
    """

    def __init__(self, prepared: PreparedCommit, limits: Limits | None = None, tally: CommitTally | None = None):
        self.prepared, self.base = prepared, prepared.read_version
        self.limits, self.tally = limits or Limits(), tally or CommitTally()
        if any(isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING for action in prepared.actions):
            raise InvalidArgumentError(f"the metadata domain {ROW_TRACKING} is not to be set: commits work it out")
        validate_commit(prepared.actions, version=0 if prepared.read_version < 0 else None)
        actions = [CommitInfo(fields={"operation": prepared.commit_info.get("operation")}), *prepared.actions]
        self.state = TransactionState(
            prepared.read_set, actions, prepared.level, prepared.table, prepared.changes, prepared.rests_on
        )
        self.clock: CommitClock | None = prepared.clock
        self.row_ids: RowIds | None = prepared.row_ids
        self.stale = True
        self.rebased_over: list[int] = []
        self.reasons: dict[str, None] = {}
        self.outcome: CommitOutcome | Exception | None = None
        self.vectors = VectorReads(prepared.name_of)
        self._budget = RowCheckBudget(self.limits.budget)

    def copy(self) -> Self:
        """A copy whose state can be moved past further commits, and this one's stays. The limits are shared."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied.state, copied.reasons = self.state.copy(), dict(self.reasons)
        return copied

    @property
    def brings_timestamps(self) -> bool:
        """Whether it enables in-commit timestamps on a table that has versions without them."""
        return self.clock is not None and self.clock.since is None and not self.clock.creates

    def at_time(self, before_ms: int) -> None:
        """Let the in-commit timestamp exceed this time, in milliseconds since 1970."""
        self.clock = self.clock and self.clock.after(before_ms)

    def is_in(self, commit: Footprint) -> bool:
        """Whether this commit is of this transaction, alone or as a member."""
        return self.prepared.txn_id in commit.txn_ids

    # --- winners ---

    def step_over(
        self,
        insist: Insist,
        winner: Footprint,
        following: Sequence[bytes] = (),
        vectors: Mapping[str, BitMap64] | None = None,
    ) -> effects.Steps[None]:
        """Check a commit, and advance the state past it.

        Args:
            insist: repeats an effect if the store fails.
            winner: the commit, or one member of it.
            following: the next winners, whose deletion vectors may be read at the same time.
            vectors: deletion vectors of the commit that are known, by their ids.

        Raises:
            ConcurrentModificationError: it conflicts.
            Exception: the error of a ``Failed`` reply.
        """
        facts = Facts.of(winner, self.reasons)
        facts.vectors.update(vectors or {})
        while not isinstance(verdict := check(self.state, winner, facts), Clear):
            match verdict:
                case Conflict(rule):
                    self.tally.winners += 1
                    self.tally.rules += RULES.index(rule) + 1
                    raise verdict.error()
                case NeedVectors(descriptors):
                    later = self._vectors_of(following, winner.version)
                    yield from self.vectors.find(insist, descriptors, winner, later, facts)
                case NeedRows(rows):
                    yield from self._match_rows(rows, facts)
                case NeedPlaces(unlocated):
                    yield from self._locate_rows(unlocated, winner, facts)
                case NeedConfirmation(rows, trusted):
                    facts.confirmed = yield from self._confirm_rows(rows, trusted=trusted)
        if verdict.passed is not None:
            self.tally.rules += len(RULES)
            if self.state.advance(verdict.passed):
                self.stale = True

    def passed(self, count: int, timestamps: Iterable[int | None], row_marks: Iterable[DomainMetadata]) -> None:
        """Count the next winners, which do not conflict.

        Args:
            count: how many.
            timestamps: their in-commit timestamps, in milliseconds since 1970.
            row_marks: the metadata domains with the row ids that they assigned.

        Raises:
            InvalidLogError: a row mark without a row id.
        """
        self.stale = self.stale or self.prepared.metadata_at is not None
        if self.row_ids is not None:
            self.row_ids, self.stale = self.row_ids.after(row_marks), True
        if self.clock is not None:
            for winner_ms in timestamps:
                self.clock, self.stale = self.clock.after(winner_ms), True
        self.tally.winners += count
        self.rebased_over.extend(range(self.base + 1, self.base + 1 + count))
        self.base += count

    def _vectors_of(self, following: Sequence[bytes], winner: int) -> Iterator[DeletionVectorDescriptor]:
        """The vectors of the next winners for known files, of each winner once."""
        # A winner that cannot be read raises its error when it is checked.
        with contextlib.suppress(InvalidLogError):
            for version, data in enumerate(following, winner + 1):
                if version > self.vectors.ahead_to:
                    self.vectors.ahead_to = version
                    later = fold_commit(version, data, self.prepared.name_of(version))
                    yield from self.state.files.vectors_in(later)

    def _match_rows(self, rows: tuple[AddedRows, ...], facts: Facts) -> effects.Steps[None]:
        files = [one.add for one in rows]
        facts.refusal = self._budget.refusal(files)
        if facts.refusal is not None:
            return
        match (yield from ask(effects.MatchRows(rows, self.prepared.txn_id), effects.Matches)):
            case effects.Matches(found, seconds):
                self.tally.rows += sum(one.count for one in rows)
                self._budget.spend(files, seconds)
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
        over = None if trusted else self._budget.refusal([one.add for one in rows])
        refusal = self.state.read.undecidable or over
        if refusal is None:
            reply = yield from ask(effects.ConfirmRows(rows, trusted, self.prepared.txn_id), effects.Answer)
            if not isinstance(reply, effects.Failed):
                return isinstance(reply, effects.Yes)
            refusal = f"rows that another writer moved cannot be looked at: {reply.error}"
        if not trusted:
            self.reasons[refusal] = None
        return trusted

    def _locate_rows(self, wanted: Unlocated, winner: Footprint, facts: Facts) -> effects.Steps[None]:
        facts.sought.add(wanted.group)
        why = self._budget.too_many_to_locate(wanted.outputs, limited=not self.state.follows_sorts)
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
