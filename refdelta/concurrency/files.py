"""The files that a transaction knows, on their way through its winners."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap64

from refdelta.concurrency import held as holding
from refdelta.concurrency.groups import Regrouping
from refdelta.concurrency.held import Gone, Held, Outcome, Renewed, Revised, Touch, vector_id
from refdelta.concurrency.places import Move
from refdelta.concurrency.rows import ALL, NONE, Rows, any_of, union
from refdelta.concurrency.summary import CommitSummary
from refdelta.protocol.actions import Add, DeletionVectorDescriptor, Remove
from refdelta.protocol.paths import same_path


@dataclass(slots=True)
class _Facing:
    """What is known of the winner that is being checked."""

    winner: CommitSummary | None = None
    touches: Mapping[str, Touch] = field(default_factory=dict)
    vectors: dict[str, BitMap64] = field(default_factory=dict)
    # The ids of vectors that do not exist any more, and the files about which nothing can be said without them.
    missing: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    outcomes: dict[str, Outcome] | None = None
    settled: bool = False

    def has_asked_for(self, name: str) -> bool:
        """Whether the vector with this id was read, or could not be."""
        return name in self.vectors or name in self.missing


@dataclass(slots=True, kw_only=True)
class Files:
    """The files that a transaction knows, by path as :func:`~refdelta.protocol.paths.same_path` has it.

    Attributes:
        held: files of which it read or deletes rows, as they stand.
        pinned: files that it removes or adds again as a whole, each with its deletion vector's id. Nothing that happens
            to them can be followed.
        groups: those that are left of the groups that it rearranges, by number.
        inputs: the inputs of these, each with the number of its group.
        everything: whether it read every file but ``unseen``.
        unseen: files of appends that it skipped: they are live, and it did not read them.
        vectors: whether deletion vectors may be written.
        row_level: whether rows decide over conflicts, not files.
        drops_sorts: whether a group whose rows changed their order is dropped, like any other, where it cannot follow
            what a winner did to its inputs; else that is a conflict.
    """

    held: dict[str, Held]
    pinned: Mapping[str, str | None]
    groups: dict[int, Regrouping]
    everything: bool
    vectors: bool
    row_level: bool
    drops_sorts: bool = False
    inputs: dict[str, int] = field(init=False)
    unseen: set[str] = field(default_factory=set)
    _facing: _Facing = field(default_factory=_Facing)
    _left_alone: CommitSummary | None = None

    def __post_init__(self) -> None:
        self.inputs = {path: number for number, group in self.groups.items() for path in group.inputs}

    # --- what a winner did to them ---

    def touches(self, winner: CommitSummary) -> Mapping[str, Touch]:
        """What the winner did to files that are known; the others cost nothing."""
        if self._facing.winner is not winner:
            self._facing = _Facing(winner, {} if self.left_alone(winner) else dict(self._touched(winner)))
        return self._facing.touches

    def left_alone(self, winner: CommitSummary) -> bool:
        """Whether the winner did nothing to files that are known."""
        if self._left_alone is not winner:
            paths = frozenset(winner.paths)
            for known in (self.held, self.pinned, self.inputs):
                if known and not known.keys().isdisjoint(paths):
                    return False
            self._left_alone = winner
        return True

    def _touched(self, winner: CommitSummary) -> Iterator[tuple[str, Touch]]:
        for known in (self.held, self.pinned, self.inputs):
            if known:
                for path in (known.keys() & winner.removed.keys()) | (known.keys() & winner.added.keys()):
                    touch = holding.touch(winner, path, self._vector_of(path))
                    if touch is not None:
                        yield path, touch

    def _vector_of(self, path: str) -> str | None:
        if path in self.held:
            return vector_id(self.held[path].vector)
        if path in self.pinned:
            return self.pinned[path]
        return vector_id(self.groups[self.inputs[path]].inputs[path].entry.deletion_vector)

    def _touched_groups(self, touches: Mapping[str, Touch]) -> dict[int, Regrouping]:
        return {number: self.groups[number] for path in touches if (number := self.inputs.get(path)) is not None}

    def outcomes(self, winner: CommitSummary) -> dict[str, Outcome]:
        """What the winner did to the rows of the files that are held; :meth:`vectors_needed` have been learned."""
        touches = self.touches(winner)
        if self._facing.outcomes is None:
            self._facing.outcomes = {
                path: holding.outcome(path, self.held[path], self._as_held(path, touch), winner, self._facing.vectors)
                for path, touch in touches.items()
                if path in self.held
            }
        return self._facing.outcomes

    def _as_held(self, path: str, touch: Touch) -> Touch:
        """A touch as far as it can be followed."""
        if path in self.pinned or not self.row_level:
            # Rows can move while files decide over conflicts, too; but not those of files that are replaced.
            followed = (Renewed,) if path in self.pinned else (Renewed, Move)
            return touch if isinstance(touch, followed) else Gone()
        return touch

    def lost(self, winner: CommitSummary) -> Iterator[tuple[str, Rows]]:
        """The files of which rows were read that are gone, as the log writes their paths, and these rows."""
        for path, outcome in self.outcomes(winner).items():
            if any_of(outcome.lost):
                yield _written(path, winner), outcome.lost
        if self.everything:
            for path, remove in winner.removed.items():
                if path not in self.held and path not in self.unseen and path not in winner.moves:
                    yield remove.path, ALL

    def disputed(self, winner: CommitSummary) -> Iterator[str]:
        """The files that are replaced as a whole and that the winner has changed, as the log writes their paths."""
        touches = self.touches(winner)
        for path, touch in touches.items():
            if path in self.pinned and not isinstance(touch, Renewed):
                yield _written(path, winner)
        for group in self._touched_groups(touches).values():
            if (group.scattered and not self.drops_sorts) or not self.vectors:
                yield from (group.inputs[path].entry.path for path in group.touched(touches))

    def back(self, path: str, add: Add, winner: CommitSummary) -> BitMap64 | None:
        """The rows that a file did not show and shows again, added again by the winner with another deletion vector.
        None where the vectors that say so do not exist any more: it may be any row.
        """
        facing, before = self._facing, winner.removed[path].deletion_vector
        if path in facing.unknown or not facing.missing.isdisjoint(map(vector_id, (before, add.deletion_vector))):
            return None
        if path in self.held:
            return self.outcomes(winner)[path].back
        return holding.bits(before, facing.vectors) - holding.bits(add.deletion_vector, facing.vectors)

    def untold(self, winner: CommitSummary) -> list[Remove]:
        """The files that a winner has rearranged, without saying where their rows are, and of which that matters."""
        if not winner.rearranges or (self.left_alone(winner) and not self.everything):
            return []
        gone = winner.removed.keys() - winner.added.keys() - winner.moves.keys()
        known = gone if self.everything else gone & self.held.keys()
        return [winner.removed[path] for path in sorted(known - self.pinned.keys())]

    def scattered(self, winner: CommitSummary) -> dict[int, Regrouping]:
        """The groups of which a winner deleted rows that nobody knows the places of, by number."""
        if not self.vectors or not self.groups:
            return {}
        touches = self.touches(winner)
        return {
            number: group
            for number, group in self._touched_groups(touches).items()
            if group.scattered and group.traceable(touches, winner)
        }

    def place(self, number: int, moves: Mapping[str, Move]) -> None:
        """Take note of where the rows of a group's inputs are."""
        self.groups[number] = dataclasses.replace(self.groups[number], moves=moves)

    # --- deletion vectors ---

    def vectors_needed(self, winner: CommitSummary, added: Sequence[Add]) -> tuple[DeletionVectorDescriptor, ...]:
        """The deletion vectors that must be read before it can be said what the winner did to rows.

        Args:
            winner: the commit.
            added: those of its adds that matter for what rows they have.
        """
        vectors = {one.unique_id: one for one in self._vectors(winner, added) if one is not None}
        needed = tuple(one for name, one in vectors.items() if not self._facing.has_asked_for(name))
        self._facing.settled = not needed
        return needed

    def settled(self, winner: CommitSummary) -> bool:
        """Whether it was asked before, and no vector is needed any more."""
        return self._facing.winner is winner and self._facing.settled

    def _vectors(self, winner: CommitSummary, added: Sequence[Add]) -> Iterator[DeletionVectorDescriptor | None]:
        for path, touch in self.touches(winner).items():
            yield from self._vectors_of(path, touch, winner)
        for add in added:
            path = same_path(add.path)
            if path in winner.removed and path not in self.held:
                yield from (add.deletion_vector, winner.removed[path].deletion_vector)

    def _vectors_of(self, path: str, touch: Touch, winner: CommitSummary) -> Iterator[DeletionVectorDescriptor | None]:
        if path in self.held:
            yield from holding.vectors_needed(self.held[path], self._as_held(path, touch), winner)
        if self.vectors and path in self.inputs:
            yield from self.groups[self.inputs[path]].vectors_needed({path: touch})

    def vectors_in(self, winner: CommitSummary) -> Iterator[DeletionVectorDescriptor]:
        """The deletion vectors that a winner, which is still to be checked, gave to files of which rows are known."""
        for path in (self.held.keys() | self.inputs.keys()) & winner.added.keys():
            vector = winner.added[path].deletion_vector
            if vector is not None:
                yield vector

    def learn(self, needed: Sequence[DeletionVectorDescriptor], read: Sequence[BitMap64]) -> None:
        """Take note of deletion vectors that were read for the winner that is being checked."""
        self._facing.vectors.update((one.unique_id, rows) for one, rows in zip(needed, read, strict=True))

    def forgo(self, names: Collection[str], winner: CommitSummary) -> None:
        """Take note that deletion vectors, by their ids, do not exist any more, and that no other vector can stand for
        them. The files that need them count as removed by the winner that is being checked.
        """
        if not names:
            return
        facing = self._facing
        facing.missing.update(names)
        facing.settled, facing.outcomes = False, None
        touches = dict(facing.touches)
        for path, touch in facing.touches.items():
            if path in self.held and isinstance(touch, Revised) and winner.only_hides(touch.add):
                # Of the vector as it was read, it suffices that no row was read that it hides.
                before = vector_id(self.held[path].vector)
                if before is not None and before in names:
                    facing.vectors[before] = NONE
            needed = {one.unique_id for one in self._vectors_of(path, touch, winner) if one is not None}
            if not facing.missing.isdisjoint(needed - facing.vectors.keys()):
                touches[path] = Gone()
                facing.unknown.add(path)
        facing.touches = touches

    def unknown(self, winner: CommitSummary) -> Collection[str]:
        """The files about which nothing can be said, as deletion vectors do not exist any more, by path."""
        return self._facing.unknown if self._facing.winner is winner else ()

    # --- going on ---

    def pass_by(self) -> None:
        """Go behind a winner that left them alone."""
        self._left_alone = None

    def advance(self, winner: CommitSummary) -> bool:
        """Go behind a winner that does not conflict. Returns whether what is to be written changed."""
        touches = self.touches(winner)
        if not touches and not (self.everything and winner.moves):
            self._facing.winner = None
            return False
        changed = self._advance_held(winner)
        for number, group in self._touched_groups(touches).items():
            behind = group.behind(touches, winner, self._facing.vectors)
            changed = True
            for path in group.inputs.keys() - (behind.inputs.keys() if behind else ()):
                del self.inputs[path]
            if behind is None:
                del self.groups[number]
            else:
                self.groups[number] = behind
        self._facing, self._left_alone = _Facing(), None
        return changed

    def _advance_held(self, winner: CommitSummary) -> bool:
        outcomes = self.outcomes(winner)
        now: dict[str, Held] = {}
        for outcome in outcomes.values():
            for path, held in outcome.now.items():
                now[path] = holding.joined(now[path], held) if path in now else held
        if self.everything and winner.moves:
            self._advance_everything(winner, now)
        changed = False
        for path in outcomes:
            changed |= any_of(self.held.pop(path).gone)
        self.held.update(now)
        return changed

    def _advance_everything(self, winner: CommitSummary, now: dict[str, Held]) -> None:
        """Of a compacted file, who read every row knows those that come from files which it saw."""
        moved = self.unseen & winner.moves.keys()
        mixed = {output for path in moved for output in winner.moves[path].outputs} | now.keys()
        seen = dict.fromkeys(mixed, NONE)
        for path, move in winner.moves.items():
            if mixed and path not in moved and path not in self.held:
                for output, rows in move.follow(ALL, NONE)[0].items():
                    if output in mixed:
                        seen[output] = seen[output] | rows
        self.unseen -= moved
        for output, rows in seen.items():
            if output in now:
                now[output] = dataclasses.replace(now[output], read=union(now[output].read, rows))
            elif len(rows):
                now[output] = Held(winner.added[output].deletion_vector, rows)
            else:
                self.unseen.add(output)


def _written(path: str, winner: CommitSummary) -> str:
    return winner.removed[path].path if path in winner.removed else winner.added[path].path
