"""Skipped blind appends, and the serial orders that they rule out (concurrency.md, "Blind appends under
WriteSerializable are not free").

At WriteSerializable a transaction T does not conflict with a blind append I that adds rows T would have read; it takes
its place before I instead. A transaction that read what T writes, and did not see T, must come before T, and so before
I. That is impossible for a transaction that read I, or that must follow one which did; nor may it move one that asked
to be Serializable.

The serial order in mind is that of the log, in which some transactions were moved in front of a blind append, and no
blind append was moved. T may be moved in front of the first append that it skipped, together with all winners after
that append which must precede T. These are found backwards from T, by what each read and wrote. As soon as an append
is among them, T has no place: with I itself there is a cycle, and another one must stay where it is, so that what was
shown for earlier transactions holds. Where nothing must move but T, this is the contract's sound rule: T's writes
touch nothing that a transaction after I read.

The reads of a winner are in its ``commitInfo.readPredicates``; without them, and where they are of another engine
(:mod:`refdelta.core.log.claims`), it counts as having read everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from refdelta.core.conflicts.isolation import IsolationLevel
from refdelta.core.conflicts.reads import EVERY_ROW, PREDICATE_TEXT, AnyOf, ReadTable, RowPredicate
from refdelta.core.errors import DeltaError
from refdelta.core.log import claims
from refdelta.core.log.footprint import Footprint

_FILES_KEPT = 200_000
"""The number of files of winners that are kept to find an order. Above it, any predecessor of T is a conflict."""


@dataclass(slots=True)
class Effects:
    """The reads and writes of one transaction that matter for the order of transactions.

    Attributes:
        commit: its writes.
        reads: the rows that it read.
        domains: the metadata domains that it read; None for all of them.
        app_ids: the application ids that it read; None for all of them.
    """

    commit: Footprint
    reads: AnyOf
    domains: frozenset[str] | None = frozenset()
    app_ids: frozenset[str] | None = frozenset()

    @classmethod
    def of_winner(cls, winner: Footprint, table: ReadTable | None) -> Effects:
        """The effects of a commit in the log."""
        if winner.blind:
            return cls(winner, AnyOf(()))
        if winner.read_domains is None or not claims.states_reads(winner.engine):
            return cls(winner, AnyOf(_recorded(winner, table)), None, None)
        # Setting a domain or the version of an application counts as reading the old value.
        domains, app_ids = winner.read_domains | winner.domains, winner.app_ids
        return cls(winner, AnyOf(_recorded(winner, table)), domains, app_ids)

    @property
    def keeps_its_place(self) -> bool:
        """Whether its level may be Serializable, so that it may not be moved in front of an append."""
        return self.commit.level != IsolationLevel.WRITE_SERIALIZABLE.value

    def touched_by(self, other: Effects) -> bool:
        """Whether the other one wrote values that this one read: added or removed such rows."""
        commit, reads = other.commit, self.reads
        if _shared(self.domains, commit.domains) or _shared(self.app_ids, commit.app_ids):
            return True
        if any(reads.may_match(add, commit.with_statistics) for add in commit.new_rows):
            return True
        # Removed rows had been read by the transaction that removed them.
        return not reads.is_disjoint(other.reads) and any(map(reads.may_match, commit.removed_rows))

    def precedes(self, later: Effects) -> bool:
        """Whether this one must come before a later one of the log."""
        seen = later.commit.read_version
        saw_it = seen is None or seen >= self.commit.version or not claims.states_version(later.commit.engine)
        return self.touched_by(later) or (saw_it and later.touched_by(self))


def _shared(read: frozenset[str] | None, written: frozenset[str]) -> bool:
    return bool(written) and (read is None or not read.isdisjoint(written))


def _recorded(winner: Footprint, table: ReadTable | None) -> tuple[RowPredicate, ...]:
    texts = winner.read_predicates if claims.states_reads(winner.engine) else None
    if texts is None or table is None or table.parse is None or sum(map(len, texts)) > PREDICATE_TEXT:
        return (EVERY_ROW,)
    try:
        return tuple(map(table.parse, dict.fromkeys(texts)))
    except DeltaError:
        # A predicate of a newer version.
        return (EVERY_ROW,)


@dataclass(slots=True)
class Precedence:
    """The winners after the first blind append that a transaction skipped.

    Attributes:
        staged: the transaction.
        table: the table, for the winners' predicates.
        since: the winners from that append on, in the order of the log.
        files: how many files they have together.
        first: that append.
    """

    staged: Effects
    table: ReadTable | None
    since: list[Effects] = field(default_factory=list)
    files: int = 0
    first: Footprint | None = None

    def copy(self) -> Precedence:
        """A copy that can pass over further winners while this one stays."""
        return replace(self, staged=replace(self.staged), since=list(self.since))

    def append_in_the_way(self, winner: Footprint) -> Footprint | None:
        """The blind append that the transaction skipped, or one after it, which would have to come before it if it
        committed over this winner too; None if there is none.
        """
        if self.first is None or winner.blind or not winner.writes_values:
            return None
        late = Effects.of_winner(winner, self.table)
        if not late.touched_by(self.staged):
            return None
        if self.files > _FILES_KEPT or late.keeps_its_place:
            return self.first
        before = [late]
        for effects in self._changing():
            if any(effects.precedes(other) for other in before):
                if effects.commit.blind:
                    return effects.commit
                if effects.keeps_its_place:
                    return self.first
                before.append(effects)
        return None

    def _changing(self) -> Iterator[Effects]:
        """The winners with writes, from the newest to the oldest: the successors of each come before it."""
        return (effects for effects in reversed(self.since) if effects.commit.writes_values)

    def pass_over(self, winner: Footprint, *, skipped: bool) -> None:
        """Advance past a winner that does not conflict. ``skipped``: a blind append with rows that were not read."""
        if self.first is None:
            if not skipped:
                return
            self.first = winner
        self.files += len(winner.adds) + len(winner.removes)
        if self.files <= _FILES_KEPT:
            self.since.append(Effects.of_winner(winner, self.table))
