"""One file of which a transaction knows rows, and the change that a winner made to it.

What is read and what is deleted are kept apart (a MERGE may match a row and leave it alone), and both are carried on:
into a larger deletion vector, and through a compaction to the places where its record says that the rows are now.
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
    """What a deletion vector hides."""
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
        entry: what the log says of it; known where rows are deleted.
        records: how many rows it has, hidden ones included; known where some of its rows are deleted, and not all.
        hidden: what ``vector`` hides, where that is known.
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
        """The deletion vector that the file is to have; None where no row of it is left."""
        if isinstance(self.gone, All) or self.hidden is None:
            return None
        rows = self.hidden | self.gone
        return None if len(rows) == self.records else rows


# --- what a winner did to a file ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gone:
    """It was removed, or its rows were moved to where they cannot be traced."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """It was added again with the same rows, and other statistics, tags or row ids."""

    add: Add


@dataclass(frozen=True, slots=True)
class Revised:
    """It has another deletion vector."""

    add: Add


FileChange: TypeAlias = Gone | Renewed | Revised | Relocation


def file_change(
    winner: Footprint, path: str, vector: str | None, relocations: Mapping[str, Relocation]
) -> FileChange | None:
    """What a winner did to a file; None where it left it alone.

    Args:
        winner: the commit.
        path: the file's path, as :func:`~refdelta.core.log.paths.same_path` has it.
        vector: the id of the deletion vector with which the file is live.
        relocations: where the rows of files are that the winner moved, by path.
    """
    added = winner.added.get(path)
    if path not in winner.removed:
        # With another vector it would have two entries, which no log may have.
        return None if added is None else Renewed(added) if file_key(added)[1] == vector else Gone()
    if added is not None:
        return Revised(added)
    return relocations.get(path) or Gone()


# --- what that means for the rows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a winner did to the rows of a file that a transaction knows.

    Attributes:
        lost: rows that the transaction read and that are gone.
        back: rows that were hidden, and are live again.
        now: the files that hold what remains of the rows it knows, by path.
    """

    lost: Rows
    back: BitMap64
    now: Mapping[str, FileState]


def vectors_needed(
    state: FileState, change: FileChange, winner: Footprint
) -> Iterator[DeletionVectorDescriptor | None]:
    """The deletion vectors without which :func:`outcome` cannot say."""
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
    """Whether it is the file's own vector, and what that hides is known."""
    return state.hidden is not None and vector_id(vector) == vector_id(state.vector)


def outcome(
    path: str,
    state: FileState,
    change: FileChange,
    winner: Footprint,
    vectors: Vectors,
    relocations: Mapping[str, Relocation],
) -> Outcome:
    """What a winner did to the rows of a file that a transaction knows.

    Args:
        path: the file's path, as :func:`~refdelta.core.log.paths.same_path` has it.
        state: how it stands.
        change: what the winner did to it.
        winner: the commit.
        vectors: those that are :func:`vectors_needed`, by their ids.
        relocations: where the rows of all files are that the winner moved, by path.
    """
    match change:
        case Renewed():
            add = winner.with_statistics(change.add)
            return Outcome(NONE, NONE, {path: replace(state, entry=state.entry and add)})
        case Revised():
            add = winner.with_statistics(change.add)
            before = bits(state.vector, vectors) if state.hidden is None else state.hidden
            after = bits(add.deletion_vector, vectors)
            now = replace(state, vector=add.deletion_vector, entry=state.entry and add, hidden=after)
            return Outcome(_lost(state.read, before, after), before - after, {path: now})
        case Relocation():
            return _moved(state, change, winner, vectors, relocations)
        case Gone():
            return Outcome(state.read, NONE, {})


def _lost(read: Rows, before: BitMap64, after: BitMap64) -> Rows:
    """Of rows that were read, those that were live and are not any more."""
    if not isinstance(read, All) and read.isdisjoint(after):
        return NONE
    return common(read, after - before)


def _moved(
    state: FileState,
    relocation: Relocation,
    winner: Footprint,
    vectors: Vectors,
    relocations: Mapping[str, Relocation],
) -> Outcome:
    exact = isinstance(state.read, BitMap64) or isinstance(state.gone, BitMap64)
    if state.hidden is not None and _is_known(state, relocation.vector):
        hidden = state.hidden
    else:
        # Of rows that were found by their ids there is no vector.
        hidden = bits(relocation.vector, vectors) if exact else NONE
    read, lost = relocation.follow(state.read, hidden)
    gone, _ = relocation.follow(state.gone, hidden)
    now = {}
    for output, rows in read.items():
        add, deleted = winner.added[output], gone.get(output, NONE)
        hidden_there = bits(add.deletion_vector, vectors) if len(deleted) else NONE
        # All rows of a file are those that were live when it was read; the compaction may have copied more.
        deleted = deleted - hidden_there
        if len(deleted):
            entry = winner.with_statistics(add)
            records = max(one.extent(output) for one in relocations.values())
            now[output] = FileState(add.deletion_vector, rows, deleted, entry, records, hidden_there)
        else:
            now[output] = FileState(add.deletion_vector, rows)
    return Outcome(state.read if lost else NONE, NONE, now)


def joined(one: FileState, other: FileState) -> FileState:
    """What is known of one file from two sides: two inputs of a compaction whose rows are in the same output."""
    known = one if one.entry is not None else other
    return replace(known, read=union(one.read, other.read), gone=union(one.gone, other.gone))
