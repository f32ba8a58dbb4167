"""One file of which a transaction knows rows, and the change that a winner made to it.

The rows that were read and the rows that are deleted are separate sets (a MERGE may match a row without changing it).
Both follow the winners: into larger deletion vectors, and through compactions to the recorded places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyroaring import BitMap64

from refdelta.core.log.actions import Add, DeletionVectorDescriptor
from refdelta.core.log.footprint import Footprint
from refdelta.core.log.replay import file_key
from refdelta.core.log.statistics import num_records
from refdelta.core.rows.deletes import RowDelete
from refdelta.core.rows.relocation import Relocation
from refdelta.core.rows.sets import ALL, NONE, All, Rows, any_of, common, union

Vectors: TypeAlias = Mapping[str, BitMap64]
"""The deletion vectors that were read, by their ids."""


def vector_id(vector: DeletionVectorDescriptor | None) -> str | None:
    """The id of a deletion vector. With the path it identifies the logical file."""
    return None if vector is None else vector.unique_id


def bits(vector: DeletionVectorDescriptor | None, vectors: Vectors) -> BitMap64:
    """The rows that a deletion vector hides."""
    return NONE if vector is None else vectors[vector.unique_id]


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file of which rows were read.

    Attributes:
        vector: its deletion vector.
        rows: the rows that were read; all where that is not known more exactly.
    """

    vector: DeletionVectorDescriptor | None = None
    rows: Rows = ALL


@dataclass(frozen=True, slots=True)
class FileState:
    """A file of which a transaction knows rows, after the winners that were checked.

    Attributes:
        vector: its deletion vector.
        read: the rows that were read; those that are deleted are among them.
        gone: the rows that the transaction deletes.
        entry: its add action; given if rows are deleted.
        records: its number of rows, hidden ones included; given if some of its rows are deleted, but not all, or if
            rows of it were moved there.
        hidden: the rows that ``vector`` hides, if they are known.
    """

    vector: DeletionVectorDescriptor | None
    read: Rows
    gone: Rows = NONE
    entry: Add | None = None
    records: int | None = None
    hidden: BitMap64 | None = None

    @classmethod
    def of(cls, file: ReadFile | None, edit: RowDelete | None) -> FileState:
        """A file as the transaction read it."""
        if edit is None:
            return cls(None, NONE) if file is None else cls(file.vector, file.rows)
        read = edit.rows if file is None else union(file.rows, edit.rows)
        hidden = None if isinstance(edit.rows, All) else edit.base
        return cls(edit.add.deletion_vector, read, edit.rows, edit.add, num_records(edit.add), hidden)

    @property
    def hides(self) -> BitMap64 | None:
        """The deletion vector after the deletes; None if no row is left."""
        if isinstance(self.gone, All) or self.hidden is None:
            return None
        rows = self.hidden | self.gone
        return None if len(rows) == self.records else rows


# --- the change of a file by a winner -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gone:
    """The file was removed, or its rows were moved to where they cannot be traced."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The file was added again with the same rows and other statistics, tags or row ids."""

    add: Add


@dataclass(frozen=True, slots=True)
class Revised:
    """The file has another deletion vector."""

    add: Add


FileChange: TypeAlias = Gone | Renewed | Revised | Relocation


def file_change(
    winner: Footprint, path: str, vector: str | None, relocations: Mapping[str, Relocation]
) -> FileChange | None:
    """The change of a file by a winner; None if there is none.

    Args:
        winner: the commit.
        path: the normalized path of the file (:func:`~refdelta.core.log.paths.same_path`).
        vector: the id of the deletion vector of the live file.
        relocations: the new places of the rows that the winner moved, by normalized path.
    """
    added = winner.added.get(path)
    if path not in winner.removed:
        # With another vector it would have two entries, which no log may have.
        return None if added is None else Renewed(added) if file_key(added)[1] == vector else Gone()
    if added is not None:
        return Revised(added)
    return relocations.get(path) or Gone()


# --- the effect on its rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowEffect:
    """The effect of a winner on the known rows of a file.

    Attributes:
        lost: rows that the transaction read and that were removed.
        back: rows that were hidden and are live again.
        now: the files with the remaining known rows, by normalized path.
    """

    lost: Rows
    back: BitMap64
    now: Mapping[str, FileState]


def vectors_needed(
    state: FileState, change: FileChange, winner: Footprint
) -> Iterator[DeletionVectorDescriptor | None]:
    """The deletion vectors that :func:`outcome` needs."""
    match change:
        case Revised(add):
            yield add.deletion_vector
            if state.hidden is None:
                yield state.vector
        case Relocation(vector):
            exact = isinstance(state.read, BitMap64) or isinstance(state.gone, BitMap64)
            if exact and not _is_known(state, vector):
                yield vector
            if any_of(state.gone):
                for output in change.outputs:
                    yield winner.added[output].deletion_vector


def _is_known(state: FileState, vector: DeletionVectorDescriptor | None) -> bool:
    """Whether it is the vector of the file, and its rows are known."""
    return state.hidden is not None and vector_id(vector) == vector_id(state.vector)


def outcome(
    path: str,
    state: FileState,
    change: FileChange,
    winner: Footprint,
    vectors: Vectors,
    sizes: Mapping[str, int],
) -> RowEffect:
    """The effect of a winner on the known rows of a file.

    Args:
        path: the normalized path of the file.
        state: its state before the winner.
        change: its change by the winner.
        winner: the commit.
        vectors: the :func:`vectors_needed`, by their ids.
        sizes: the number of rows of the files to which the winner moved rows, by normalized path.
    """
    match change:
        case Renewed():
            add = winner.with_statistics(change.add)
            return RowEffect(NONE, NONE, {path: replace(state, entry=state.entry and add)})
        case Revised():
            add = winner.with_statistics(change.add)
            before = bits(state.vector, vectors) if state.hidden is None else state.hidden
            after = bits(add.deletion_vector, vectors)
            now = replace(state, vector=add.deletion_vector, entry=state.entry and add, hidden=after)
            return RowEffect(_lost(state.read, before, after), before - after, {path: now})
        case Relocation():
            return _moved(state, change, winner, vectors, sizes)
        case Gone():
            return RowEffect(state.read, NONE, {})


def _lost(read: Rows, before: BitMap64, after: BitMap64) -> Rows:
    """The rows that were read, were live before, and are hidden after."""
    if not isinstance(read, All) and read.isdisjoint(after):
        return NONE
    return common(read, after - before)


def _moved(
    state: FileState,
    relocation: Relocation,
    winner: Footprint,
    vectors: Vectors,
    sizes: Mapping[str, int],
) -> RowEffect:
    exact = isinstance(state.read, BitMap64) or isinstance(state.gone, BitMap64)
    if state.hidden is not None and _is_known(state, relocation.vector):
        hidden = state.hidden
    else:
        # Rows that were found by their ids need no vector.
        hidden = bits(relocation.vector, vectors) if exact else NONE
        if state.hidden is not None and len(hidden - state.hidden):
            return RowEffect(state.read, NONE, {})  # the recorded vector is none that this file had
    read, lost = relocation.follow(state.read, hidden)
    gone, _ = relocation.follow(state.gone, hidden)
    now = {}
    for output, rows in read.items():
        add, deleted = winner.added[output], gone.get(output, NONE)
        is_read = add.deletion_vector is not None and add.deletion_vector.unique_id in vectors
        hidden_there = bits(add.deletion_vector, vectors) if is_read or len(deleted) else NONE
        if isinstance(state.read, BitMap64) and not rows.isdisjoint(hidden_there):
            return RowEffect(state.read, NONE, {})
        # All rows of a file are those that were live when it was read; the compaction may have copied more.
        deleted = deleted - hidden_there
        if len(deleted):
            entry = winner.with_statistics(add)
            now[output] = FileState(add.deletion_vector, rows, deleted, entry, sizes[output], hidden_there)
        else:
            now[output] = FileState(add.deletion_vector, rows, records=sizes[output])
    return RowEffect(state.read if lost else NONE, NONE, now)


def joined(one: FileState, other: FileState) -> FileState:
    """The combined state of an output with known rows of two inputs of a compaction."""
    known = one if one.entry is not None else other
    return replace(known, read=union(one.read, other.read), gone=union(one.gone, other.gone))
