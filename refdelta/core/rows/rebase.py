"""The rebase of a compaction over its winners (concurrency.md, "Validation", number 9).

A compaction reads no data, so only changes of its inputs matter. If an input lost rows to a deletion vector, the output
gets a vector for them. If an input was removed or compacted by a winner, or rows of it came back, its group is dropped
and the other groups commit. The group of a sort is a whole partition; if row ids locate its rows, the rows of removed
inputs are hidden in its outputs instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
from pyroaring import BitMap64

from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
from refdelta.core.log.footprint import Footprint
from refdelta.core.log.paths import same_path
from refdelta.core.log.statistics import num_records
from refdelta.core.rows.deletes import tombstone, with_vector
from refdelta.core.rows.file_state import FileChange, Gone, Renewed, Revised, Vectors, bits
from refdelta.core.rows.relocation import Group, Output, Relocation, relocations
from refdelta.core.rows.sets import ALL, NONE, Rows, any_of

FileChanges: TypeAlias = Mapping[str, FileChange]


@dataclass(frozen=True, slots=True)
class Current:
    """The current state of an input: its add action and its hidden rows."""

    entry: Add
    hidden: BitMap64


@dataclass(frozen=True, slots=True)
class CompactionRebase:
    """One group, after the winners that were checked. Paths are normalized.

    Attributes:
        group: the staged group.
        inputs: the current state of the remaining inputs, by path.
        relocations: the places of the rows of each input, by path; empty if the order of rows changed and they were not
            located by their ids.
        hidden: rows of its outputs that winners deleted, by path.
    """

    group: Group
    inputs: Mapping[str, Current]
    relocations: Mapping[str, Relocation]
    hidden: Mapping[str, BitMap64]

    @classmethod
    def of(cls, group: Group) -> CompactionRebase:
        """A group before any winner.

        Raises:
            ValueError: its places contradict each other.
        """
        inputs = {same_path(one.add.path): Current(one.add, one.base) for one in group.inputs}
        placed = {} if group.permuted else relocations((output.add.path, output.places) for output in group.outputs)
        return cls(group, inputs, placed, {})

    @property
    def scattered(self) -> bool:
        """Whether the places of its rows are unknown: they were sorted, and not located by their ids yet."""
        return self.group.permuted and not self.relocations

    def survives(self, change: FileChange, winner: Footprint) -> bool:
        """Whether it can still be committed after this change of an input, if its rows are located by their ids. The
        rows that the winner kept of a removed file are in files of the winner.
        """
        removed = isinstance(change, Gone) and not winner.rearranges
        return isinstance(change, Revised) or (removed and self.group.permuted)

    def traceable(self, changes: FileChanges, winner: Footprint) -> bool:
        """Whether locating its rows by their ids can save the group."""
        touched = self.touched(changes)
        left = self.inputs.keys() - {path for path, change in touched.items() if isinstance(change, Gone)}
        return bool(left) and all(self.survives(change, winner) for change in touched.values())

    def touched(self, changes: FileChanges) -> dict[str, FileChange]:
        """The changes of inputs by a winner, except of their statistics, tags and row ids."""
        found = ((path, changes[path]) for path in self.inputs if path in changes)
        return {path: change for path, change in found if not isinstance(change, Renewed)}

    def vectors_needed(self, changes: FileChanges) -> Iterator[DeletionVectorDescriptor | None]:
        """The deletion vectors that :meth:`after` needs."""
        if not self.scattered:
            for change in self.touched(changes).values():
                if isinstance(change, Revised):
                    yield change.add.deletion_vector

    def after(self, changes: FileChanges, winner: Footprint, vectors: Vectors) -> CompactionRebase | None:
        """The group after a winner that does not conflict with it; None if it is dropped."""
        if self.scattered and self.touched(changes):
            return None
        inputs, hidden = dict(self.inputs), dict(self.hidden)
        bases = {same_path(one.add.path): one.base for one in self.group.inputs}
        for path in [path for path in inputs if path in changes]:
            change, known = changes[path], inputs[path]
            if isinstance(change, Renewed):
                inputs[path] = replace(known, entry=winner.with_statistics(change.add))
                continue
            if not self.survives(change, winner):
                return None
            gone: Rows = ALL
            if isinstance(change, Revised):
                after = bits(change.add.deletion_vector, vectors)
                if len(known.hidden - after):
                    return None
                inputs[path] = Current(winner.with_statistics(change.add), after)
                gone = after - known.hidden
            else:
                del inputs[path]
            if any_of(gone):
                found, lost = self.relocations[path].follow(gone, bases[path]) if path in self.relocations else ({}, 1)
                if lost:
                    return None
                for output, rows in found.items():
                    hidden[output] = hidden.get(output, NONE) | rows
        return replace(self, inputs=inputs, hidden=hidden) if inputs else None

    # --- what it writes ---

    def wanted(self) -> dict[str, BitMap64]:
        """The deletion vectors that its outputs need, by path. An output without a live row needs none."""
        return {path: rows for path, rows in self.hidden.items() if path not in self.empty}

    @property
    def empty(self) -> frozenset[str]:
        """The outputs without a live row, by path: they are not committed."""
        sizes = {same_path(output.add.path): _rows_in(output) for output in self.group.outputs}
        return frozenset(path for path, rows in self.hidden.items() if len(rows) == sizes[path])

    @property
    def left(self) -> Group:
        """The remaining part of the staged group: the inputs that it removes, and the outputs that it adds."""
        inputs = tuple(one for one in self.group.inputs if same_path(one.add.path) in self.inputs)
        outputs = tuple(one for one in self.group.outputs if same_path(one.add.path) not in self.empty)
        return Group(inputs, outputs, self.group.permuted)

    @property
    def unused(self) -> list[Add]:
        """The files that are not committed."""
        empty = self.empty
        return [output.add for output in self.group.outputs if same_path(output.add.path) in empty]

    def actions(self, vectors: Mapping[str, DeletionVectorDescriptor], now_ms: int) -> Iterator[Add | Remove]:
        """The actions of the group; ``vectors`` are the :meth:`wanted` ones, by path."""
        for known in self.inputs.values():
            yield tombstone(known.entry, now_ms=now_ms, data_change=False)
        empty = self.empty
        for output in self.group.outputs:
            path = same_path(output.add.path)
            if path in empty:
                continue
            if path in vectors:
                yield with_vector(output.add, vectors[path], records=_rows_in(output), data_change=False)
            else:
                yield msgspec.structs.replace(output.add, data_change=False)


def _rows_in(output: Output) -> int:
    return sum(place.rows for place in output.places) or num_records(output.add) or 0
