"""The files of which a transaction knows rows, and the changes that one winner made to them.

:class:`KnownFiles` changes from winner to winner. :class:`TouchedFiles` compares one winner with them; it is made for
one check. :class:`Facts` has the facts about the winner that are not in its log file.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap64

from refdelta.core.log import claims
from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
from refdelta.core.log.footprint import Footprint
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import FileKey
from refdelta.core.log.statistics import parse_stats
from refdelta.core.rows import file_state
from refdelta.core.rows.file_state import FileChange, FileState, Gone, Renewed, Revised, RowEffect, bits, vector_id
from refdelta.core.rows.rebase import CompactionRebase
from refdelta.core.rows.relocation import Relocation, agrees, recorded_relocations, sizes
from refdelta.core.rows.sets import ALL, NONE, Rows, any_of, union


@dataclass(slots=True, kw_only=True)
class Facts:
    """Facts about one winner that are not in its log file.

    The rules name the facts that they lack (``NeedVectors``, ``NeedRows``, ``NeedPlaces``). The caller adds them here,
    or notes that they are not available, and checks again.

    Attributes:
        vectors: deletion vectors by their ids.
        missing: the ids of deletion vectors that do not exist any more, and that no other one can replace.
        relocations: the new places of rows that the winner moved, by normalized path: from its record, or by row ids.
        own_relocations: the places of rows in groups of the transaction, by row ids, by the number of the group.
        sought: the :class:`~refdelta.core.conflicts.state.Unlocated` whose rows were searched, by their ``group``.
        matches: whether a file has a row that the transaction would have read, by the file's key.
        refusal: the reason why no rows of files may be read; None if they may.
        confirmed: whether the rows that were read satisfy the reads at their new places, too, which is asked where the
            winner's claims are not enough; None if it was not asked.
        reasons: the reasons why conflicts were decided by files, for all winners so far; in order, as keys.
    """

    vectors: dict[str, BitMap64] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    relocations: dict[str, Relocation] = field(default_factory=dict)
    own_relocations: dict[int, Mapping[str, Relocation]] = field(default_factory=dict)
    sought: set[int | None] = field(default_factory=set)
    matches: dict[FileKey, bool] = field(default_factory=dict)
    refusal: str | None = None
    confirmed: bool | None = None
    reasons: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, winner: Footprint, reasons: dict[str, None] | None = None) -> Facts:
        """The facts that a winner records itself."""
        return cls(relocations=recorded_relocations(winner), reasons={} if reasons is None else reasons)


@dataclass(slots=True, kw_only=True)
class KnownFiles:
    """The files that a transaction knows, by normalized path (:func:`~refdelta.core.log.paths.same_path`).

    Attributes:
        states: the current state of files of which it read or deletes rows.
        pinned: files that it removes or adds again as a whole, with the ids of their deletion vectors. A change of them
            by a winner is a conflict.
        groups: the remaining groups that it rearranges, by number.
        inputs: the inputs of these, with the number of their group.
        statistics: the ``stats`` of files that were read.
        everything: whether it read every file except ``unseen``.
        unseen: files of appends that it skipped: they are live, but it did not read them.
        vectors: whether deletion vectors may be written.
        row_level: whether conflicts are decided by rows, not by files.
        drops_sorts: whether a group whose rows were sorted is dropped if a change of its inputs cannot be followed;
            otherwise that is a conflict.
    """

    states: dict[str, FileState]
    pinned: Mapping[str, str | None]
    groups: dict[int, CompactionRebase]
    statistics: Mapping[str, str] = field(default_factory=dict)
    everything: bool
    vectors: bool
    row_level: bool
    drops_sorts: bool = False
    inputs: dict[str, int] = field(init=False)
    unseen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.inputs = {path: number for number, group in self.groups.items() for path in group.inputs}

    def copy(self) -> KnownFiles:
        """A copy that can :meth:`advance` while this one stays."""
        copied = dataclasses.replace(self, states=dict(self.states), groups=dict(self.groups), unseen=set(self.unseen))
        copied.inputs = dict(self.inputs)
        return copied

    def are_left_alone(self, winner: Footprint) -> bool:
        """Whether the winner changed none of the known files."""
        for known in (self.states, self.pinned, self.inputs):
            if known and not known.keys().isdisjoint(winner.paths):
                return False
        return True

    def vector_of(self, path: str) -> str | None:
        """The id of the deletion vector that a known file has."""
        if path in self.states:
            return vector_id(self.states[path].vector)
        if path in self.pinned:
            return self.pinned[path]
        return vector_id(self.groups[self.inputs[path]].inputs[path].entry.deletion_vector)

    def records(self, path: str) -> int | None:
        """The number of rows of a known file; None if it is not known."""
        state = self.states.get(path)
        if state is not None and state.records is not None:
            return state.records
        found = parse_stats(self.statistics.get(path))
        return None if found is None else claims.row_count(found.num_records)

    def vectors_in(self, winner: Footprint) -> Iterator[DeletionVectorDescriptor]:
        """The deletion vectors of known files that a winner changed."""
        for path in (self.states.keys() | self.inputs.keys()) & winner.added.keys():
            vector = winner.added[path].deletion_vector
            if vector is not None:
                yield vector

    # --- after a winner ---

    def advance(self, touched: TouchedFiles) -> bool:
        """Advance past a winner that does not conflict. Returns whether the commit must be encoded again."""
        relocations = touched.relocations
        if not touched.changes and not (self.everything and relocations):
            return False
        groups = touched.groups
        changed = self._advance_states(touched)
        for number, group in groups.items():
            after = group.after(touched.changes, touched.winner, touched.vectors)
            changed = True
            for path in group.inputs.keys() - (after.inputs.keys() if after else ()):
                del self.inputs[path]
            if after is None:
                del self.groups[number]
            else:
                self.groups[number] = after
        return changed

    def _advance_states(self, touched: TouchedFiles) -> bool:
        outcomes = touched.outcomes
        now: dict[str, FileState] = {}
        for outcome in outcomes.values():
            for path, state in outcome.now.items():
                now[path] = file_state.joined(now[path], state) if path in now else state
        if self.everything and touched.relocations:
            self._advance_everything(touched.winner, touched.relocations, now)
        changed = False
        for path in outcomes:
            changed |= any_of(self.states.pop(path).gone)
        self.states.update(now)
        return changed

    def _advance_everything(
        self, winner: Footprint, relocations: Mapping[str, Relocation], now: dict[str, FileState]
    ) -> None:
        """Add the rows of compacted files that come from files which the transaction read, if it read every row."""
        moved = self.unseen & relocations.keys()
        mixed = {output for path in moved for output in relocations[path].outputs} | now.keys()
        seen = dict.fromkeys(mixed, NONE)
        for path, relocation in relocations.items():
            if mixed and path not in moved and path not in self.states:
                for output, rows in relocation.follow(ALL, NONE)[0].items():
                    if output in mixed:
                        seen[output] = seen[output] | rows
        self.unseen -= moved
        for output, rows in seen.items():
            if output in now:
                now[output] = dataclasses.replace(now[output], read=union(now[output].read, rows))
            elif len(rows):
                now[output] = FileState(winner.added[output].deletion_vector, rows)
            else:
                self.unseen.add(output)


class TouchedFiles:
    """The changes that one winner made to the files of which a transaction knows rows.

    Args:
        known: the files; they are not changed.
        winner: the commit.
        facts: further facts about it.

    Attributes:
        are_left_alone: whether the winner changed none of the files.
    """

    def __init__(self, known: KnownFiles, winner: Footprint, facts: Facts) -> None:
        self.known, self.winner, self.facts = known, winner, facts
        self.are_left_alone = known.are_left_alone(winner)
        if self.are_left_alone:
            # Set here, so that nothing is computed for such a winner: nearly all are of this kind.
            self.changes, self.vectors, self.unknown, self.groups, self.outcomes = {}, facts.vectors, (), {}, {}
            self.unconfirmed, self.moved = {}, {}
            if not (known.everything and facts.relocations):
                self.relocations = facts.relocations

    # --- rows that it moved ---

    @functools.cached_property
    def relocations(self) -> Mapping[str, Relocation]:
        """The new places of the rows that the winner moved, by normalized path of the input, where
        its claims are believed.
        """
        found, known = self.facts.relocations, self.known
        if not found:
            return found
        recorded = {path: relocation for path, relocation in found.items() if relocation.copied is not None}
        by_id = {path: relocation for path, relocation in found.items() if relocation.copied is None}
        if not agrees(recorded, self.winner, known.records):
            recorded = {}
        return {**self._believed(recorded), **self._believed(by_id)}

    def _believed(self, found: Mapping[str, Relocation]) -> Mapping[str, Relocation]:
        confirmed = self.facts.confirmed
        if confirmed is None:
            confirmed = all(map(self._trusts, found.values())) or self._can_confirm(found)
        return found if confirmed else {}

    def _trusts(self, relocation: Relocation) -> bool:
        """Whether the writer is believed about the order of rows."""
        trusted = claims.keeps_row_ids if relocation.copied is None else claims.keeps_order
        return trusted(self.winner.engine, self.winner.operation)

    def _can_confirm(self, found: Mapping[str, Relocation]) -> bool:
        """Whether the reads at the new places can show that known rows are there: for exact rows that are all changed
        or all left. Of other rows, the wrong ones would be changed if two of them were confused.
        """
        known = self.known
        return self._are_exact(found) and all(
            (not any_of(one.gone) or one.gone == one.read)
            and (found[path].copied is None or known.records(path) is not None)
            for path, one in known.states.items()
            if path in found
        )

    def _are_exact(self, found: Mapping[str, Relocation]) -> bool:
        """Whether the known rows of these files are those that satisfied the reads."""
        known = self.known
        return not known.everything and all(
            isinstance(known.states[path].read, BitMap64) for path in found.keys() & known.states.keys()
        )

    @functools.cached_property
    def is_trusted(self) -> bool:
        """Whether the new places stand unless the rows there contradict the reads."""
        return all(map(self._trusts, self.relocations.values()))

    @functools.cached_property
    def unconfirmed(self) -> Mapping[str, BitMap64]:
        """The new places of rows that were read, by normalized path of the file, if their reads must be asked again."""
        if self.facts.confirmed is not None or (self.is_trusted and not self._are_exact(self.relocations)):
            return {}
        return self.moved

    @functools.cached_property
    def moved(self) -> Mapping[str, BitMap64]:
        """The places of known rows in files to which the winner moved them, by normalized path."""
        found: dict[str, BitMap64] = {}
        for path, change in self.changes.items():
            if path in self.outcomes and isinstance(change, Relocation):
                for output, state in self.outcomes[path].now.items():
                    if isinstance(state.read, BitMap64):
                        found[output] = found.get(output, NONE) | state.read
        return found

    # --- the changes ---

    @functools.cached_property
    def _logged(self) -> Mapping[str, FileChange]:
        """The changes of known files according to the log; other files cost nothing."""
        known, winner = self.known, self.winner
        found: dict[str, FileChange] = {}
        for files in (known.states, known.pinned, known.inputs):
            if files:
                for path in (files.keys() & winner.removed.keys()) | (files.keys() & winner.added.keys()):
                    vector = known.vector_of(path)
                    change = file_state.file_change(winner, path, vector, self.relocations)
                    if change is not None:
                        found[path] = change
        return found

    @functools.cached_property
    def _decided(self) -> tuple[Mapping[str, FileChange], Mapping[str, BitMap64], frozenset[str]]:
        """The changes, the deletion vectors that show them, and the files whose vectors do not exist any more: these
        count as removed.
        """
        logged, facts = self._logged, self.facts
        if not facts.missing:
            return logged, facts.vectors, frozenset()
        changes, vectors, unknown = dict(logged), dict(facts.vectors), set[str]()
        for path, change in logged.items():
            if path in self.known.states and isinstance(change, Revised) and self.winner.only_hides(change.add):
                # The vector that was read is not needed: no row that it hides was read.
                before = vector_id(self.known.states[path].vector)
                if before is not None and before in facts.missing:
                    vectors[before] = NONE
            needed = {one.unique_id for one in self._vectors_of(path, change) if one is not None}
            if not facts.missing.isdisjoint(needed - vectors.keys()):
                changes[path] = Gone()
                unknown.add(path)
        return changes, vectors, frozenset(unknown)

    @functools.cached_property
    def changes(self) -> Mapping[str, FileChange]:
        """The changes of files, by normalized path."""
        return self._decided[0]

    @functools.cached_property
    def vectors(self) -> Mapping[str, BitMap64]:
        """The deletion vectors that show them, by their ids."""
        return self._decided[1]

    @functools.cached_property
    def unknown(self) -> Collection[str]:
        """The files that count as removed because deletion vectors do not exist any more, by path."""
        return self._decided[2]

    @functools.cached_property
    def groups(self) -> dict[int, CompactionRebase]:
        """The groups with changed inputs, by number, with the places of rows that were located by their ids."""
        numbers = {number for path in self._logged if (number := self.known.inputs.get(path)) is not None}
        groups = {number: self.known.groups[number] for number in sorted(numbers)}
        for number, found in self.facts.own_relocations.items():
            groups[number] = dataclasses.replace(groups[number], relocations=found)
        return groups

    @functools.cached_property
    def outcomes(self) -> dict[str, RowEffect]:
        """The effect on the rows of known files, for which all :meth:`vectors_needed` must be given."""
        outputs = sizes(self.relocations) if any(isinstance(one, Relocation) for one in self.changes.values()) else {}
        return {
            path: file_state.outcome(
                path,
                self.known.states[path],
                self._followed(path, change),
                self.winner,
                self.vectors,
                outputs,
            )
            for path, change in self.changes.items()
            if path in self.known.states
        }

    def _followed(self, path: str, change: FileChange) -> FileChange:
        """The change, or ``Gone`` if it cannot be followed."""
        if path in self.known.pinned or not self.known.row_level:
            # Rows can move while files decide over conflicts, too; but not those of files that are replaced.
            followed = (Renewed,) if path in self.known.pinned else (Renewed, Relocation)
            return change if isinstance(change, followed) else Gone()
        return change

    # --- their meaning ---

    def lost(self) -> Iterator[tuple[str, Rows]]:
        """The files with rows that were read and removed, by their paths in the log, and these rows."""
        for path, outcome in self.outcomes.items():
            if any_of(outcome.lost):
                yield self._written(path), outcome.lost
        if self.known.everything:
            states, unseen, relocations = self.known.states, self.known.unseen, self.relocations
            for path, remove in self.winner.removed.items():
                if path not in states and path not in unseen and path not in relocations:
                    yield remove.path, ALL

    def disputed(self) -> Iterator[str]:
        """The changed files that the transaction replaces as a whole, by their paths in the log."""
        for path, change in self.changes.items():
            if path in self.known.pinned and not isinstance(change, Renewed):
                yield self._written(path)
        for group in self.groups.values():
            if (group.scattered and not self.known.drops_sorts) or not self.known.vectors:
                yield from (group.inputs[path].entry.path for path in group.touched(self.changes))

    def back(self, path: str, add: Add) -> BitMap64 | None:
        """The rows of a file that another deletion vector made visible again. None if the vectors do not exist any
        more: it may be any row.
        """
        before = self.winner.removed[path].deletion_vector
        gone = not self.facts.missing.isdisjoint(map(vector_id, (before, add.deletion_vector)))
        if path in self.unknown or gone:
            return None
        if path in self.known.states:
            return self.outcomes[path].back
        return bits(before, self.vectors) - bits(add.deletion_vector, self.vectors)

    def unlocated(self) -> list[Remove]:
        """The rearranged files whose rows matter and have unknown places."""
        known, winner = self.known, self.winner
        if not winner.rearranges or (self.are_left_alone and not known.everything):
            return []
        gone = winner.removed.keys() - winner.added.keys() - self.relocations.keys()
        wanted = gone if known.everything else gone & known.states.keys()
        return [winner.removed[path] for path in sorted(wanted - known.pinned.keys())]

    def scattered(self) -> dict[int, CompactionRebase]:
        """The groups with deleted rows whose places are unknown, by number."""
        if not self.known.vectors or not self.known.groups:
            return {}
        return {
            number: group
            for number, group in self.groups.items()
            if group.scattered and group.traceable(self.changes, self.winner)
        }

    def vectors_needed(self, added: Sequence[Add]) -> tuple[DeletionVectorDescriptor, ...]:
        """The deletion vectors that must be read to know the effect on rows.

        Args:
            added: the adds of the winner whose rows matter.
        """
        there: Collection[str] = self.facts.vectors.keys() | self.facts.missing
        needed = {one.unique_id: one for one in self._vectors(added) if one is not None}
        return tuple(one for name, one in needed.items() if name not in there)

    def _vectors(self, added: Sequence[Add]) -> Iterator[DeletionVectorDescriptor | None]:
        for path, change in self.changes.items():
            yield from self._vectors_of(path, change)
        for add in added:
            path = same_path(add.path)
            if path in self.winner.removed and path not in self.known.states:
                yield from (add.deletion_vector, self.winner.removed[path].deletion_vector)

    def _vectors_of(self, path: str, change: FileChange) -> Iterator[DeletionVectorDescriptor | None]:
        if path in self.known.states:
            state = self.known.states[path]
            yield from file_state.vectors_needed(state, self._followed(path, change), self.winner)
            if isinstance(change, Relocation) and not self._trusts(change):
                yield from (self.winner.added[output].deletion_vector for output in change.outputs)
        if self.known.vectors and path in self.known.inputs:
            yield from self.groups[self.known.inputs[path]].vectors_needed({path: change})

    def _written(self, path: str) -> str:
        winner = self.winner
        return winner.removed[path].path if path in winner.removed else winner.added[path].path
