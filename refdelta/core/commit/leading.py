"""The loop of a leader: the commit loop with transactions of other writers, which lie beside the log as intents.

It differs from :func:`~refdelta.core.commit.loop.group_loop` in this:

* Before each put, intents that may not be taken any more are left out
  (:func:`~refdelta.core.commit.intents.left_out`).
* The version names the intents that conflict, with the reasons, and the earlier tries of those that it names.
* It ends when another leader wins a version: its members are done, and the others are better listed anew.
* A leader may have no transaction of its own, as one that goes on after its own is committed. Then it has a member that
  changes nothing and is part of no version: it knows the clock and the free row ids after all versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from refdelta.core.commit import effects
from refdelta.core.commit.budget import Limits
from refdelta.core.commit.group import may_share
from refdelta.core.commit.intent_file import LEAD_MS, REFUSED, WITHDRAWN, hash_of, names_in
from refdelta.core.commit.intents import Candidate, Head, Named, committed_before, left_out, replaced
from refdelta.core.commit.loop import Loop
from refdelta.core.commit.member import Member
from refdelta.core.errors import ConcurrentModificationError
from refdelta.core.log.footprint import Footprint


class Listed(msgspec.Struct, frozen=True):
    """An intent as a leader found it.

    Attributes:
        head: the part that the rules need.
        member: its transaction.
        age_ms: how long ago it was put, by the clock of the store, in milliseconds; None for the leader's own.
        files_ms: the age of its data files when it was put.
    """

    head: Head
    member: Member
    age_ms: int | None = None
    files_ms: int = 0


class Chain:
    """The commit files that a writer has read: what each names, and its hash."""

    def __init__(self) -> None:
        self.named: dict[int, Named] = {}
        self.hashes: dict[int, str] = {}
        self.writers: dict[int, tuple[str, ...]] = {}
        self.lead_ms: int | None = None
        """The working time of the last leader, in milliseconds."""
        self.led: set[int] = set()
        self.names: set[str] = set()
        """The transactions that any of the versions names."""

    def note(self, version: int, data: bytes) -> None:
        """Remember a commit file."""
        if version in self.named:
            return
        named, lead_ms, self.writers[version] = names_in(data)
        self.named[version] = named
        self.names.update(named.members, named.refused, named.withdrawn)
        self.hashes[version] = hash_of(data)
        if lead_ms is not None:
            self.lead_ms = lead_ms
            self.led.add(version)

    def between(self, base: int, version: int) -> tuple[Named | None, ...]:
        """The names in the versions after ``base`` and before ``version``; None for one that was not read."""
        return tuple(self.named.get(one) for one in range(base + 1, version))


def check_loop(members: Sequence[Member], last: int) -> effects.Steps[None]:
    """Check transactions against all versions up to ``last``, without committing them. The ``outcome`` of each that
    conflicts is the error.
    """
    yield from _CheckLoop(members, last).run()


def lead_loop(
    own: Listed | Member, others: Sequence[Listed], chain: Chain, limits: Limits, lead_ms: Callable[[], int]
) -> effects.Steps[None]:
    """Commit the leader's own transaction, together with the intents that stand.

    Args:
        own: the leader's own transaction; of a leader that has none, a member that changes nothing, whose operation is
            one that shares versions. It may be used again for the next version.
        others: the intents.
        chain: the commit files that were read so far; filled further.
        limits: the limits.
        lead_ms: the leader's working time so far, in milliseconds.

    Returns:
        None, as ``StopIteration.value``: the ends are the ``outcome`` of each member. Where the leader's own has none,
        another leader was faster, or its own may not be committed any more: the log has its fate.

    Raises:
        As :func:`~refdelta.core.commit.loop.commit_loop`, but for conflicts. That of a member that changes nothing is
            its ``outcome``: the metadata has changed, and such a leader has to stop.
    """
    return _LeadLoop(own, others, chain, limits, lead_ms).run()


class _CheckLoop(Loop):
    def __init__(self, members: Sequence[Member], last: int) -> None:
        super().__init__(list(members), members[0].limits)
        self.last = last

    def run(self) -> effects.Steps[None]:
        yield from self._catch_up(min(member.base for member in self.members), self.last)


class _LeadLoop(Loop):
    def __init__(
        self, own: Listed | Member, others: Sequence[Listed], chain: Chain, limits: Limits, lead_ms: Callable[[], int]
    ) -> None:
        # Whether its own member is in no version.
        self.beside = isinstance(own, Member)
        self.own = own if isinstance(own, Member) else own.member
        listed = others if isinstance(own, Member) else (own, *others)
        self.chain, self.lead_ms = chain, lead_ms
        self.listed = {one.head.id: one for one in listed}
        gone = replaced(one.head for one in self.listed.values())
        members = [one.member for name, one in self.listed.items() if name not in gone]
        super().__init__([*members, self.own] if self.beside else members, limits)
        self.led = False

    def run(self) -> effects.Steps[None]:
        if (yield from self._align()) or (yield from self._catch_up(self.base)) or self.led:
            return
        while self.members:
            self._leave_out()
            if self.own not in self.members or (self.beside and len(self.members) == 1):
                return
            for member in self.members:
                member.stale = True  # the names in the version change with it
            self.body.notes = self._notes()
            if (yield from self._attempt()) is None:
                return
            if (yield from self._catch_up(self.base)) or self.led:
                return
            if self.attempts >= self.limits.max_attempts:
                raise self._exhausted("More attempts")

    # --- the rules ---

    def _leave_out(self) -> None:
        """Set the intents aside that may not be members of the next version."""
        for member in [one for one in self.members if one is not self.own or not self.beside]:
            one = self.listed[member.prepared.txn_id]
            apart = member is not self.own and not may_share(member, [self.own])
            if apart or left_out(self._candidate(one)) is not None or self._earlier(one):
                self.members.remove(member)

    def _candidate(self, one: Listed) -> Candidate:
        base = one.head.base
        return Candidate(
            head=one.head,
            version=self.base + 1,
            base_hash=self.chain.hashes.get(base),
            chain=self.chain.between(base, self.base + 1),
            age_ms=one.age_ms,
            files_ms=one.files_ms,
        )

    def _earlier(self, one: Listed) -> str | None:
        return committed_before(one.head, self.chain.between(one.head.base, self.base + 1))

    def _notes(self) -> dict[str, Any]:
        """The names that the next version has beside its members."""
        version = self.base + 1
        conflicts = {
            name: error
            for name, one in self.listed.items()
            if isinstance(error := one.member.outcome, ConcurrentModificationError)
            # Another checker may decide otherwise where files decided for lack of a read.
            and not one.member.reasons
            and one.head.id in self.listed
            and left_out(self._candidate(one)) is None
        }
        refused: Mapping[str, Any] = {
            name: {"rule": type(error).__name__, "version": error.conflict.version} for name, error in conflicts.items()
        }
        heads = [one.head for name, one in self.listed.items() if one.member in self.members or name in refused]
        late = [one.head.id for one in self.listed.values() if self._earlier(one)]
        committed = {name for one in self.chain.named.values() for name in one.members}
        withdrawn = (replaced(heads) | frozenset(late)) - committed
        notes: dict[str, Any] = {LEAD_MS: self.lead_ms()}
        if refused:
            notes[REFUSED] = refused
        if withdrawn and version > 0:
            notes[WITHDRAWN] = sorted(withdrawn)
        return notes

    # --- the log ---

    def _sharing(self) -> effects.Steps[list[Member]]:
        """The members of the next version: the leader's own among them, if it has one."""
        own = self.own
        self.members.remove(own)
        if not self.beside:
            self.members.insert(0, own)  # the oldest first, after the leader's own
            return (yield from super()._sharing())
        try:
            return (yield from super()._sharing())
        finally:
            self.members.append(own)

    def _encode_body(self) -> effects.Steps[None]:
        for member in self.body.members:
            # Only the leader's own have passed all versions since those that it read with the snapshot.
            member.row_ids, member.clock = self.own.row_ids, self.own.clock
        yield from super()._encode_body()

    def _step_over_all(self, winners: Sequence[bytes]) -> effects.Steps[bool]:
        for version, data in enumerate(winners, self.base + 1):
            self._note(version, data)
        return (yield from super()._step_over_all(winners))

    def _step_over(self, member: Member, winner: Footprint, following: Sequence[bytes] = ()) -> effects.Steps[None]:
        if winner.source is not None:
            self._note(winner.version, winner.source.data)
        yield from super()._step_over(member, winner, following)

    def _note(self, version: int, data: bytes) -> None:
        known = version in self.chain.named
        self.chain.note(version, data)
        # A version with members, by another leader: it lists what we have listed, and more.
        self.led = self.led or (not known and version in self.chain.led and len(self.chain.named[version].members) > 1)
