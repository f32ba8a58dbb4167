"""Files of which a transaction knows rows, and what a winner did to them.

What is read and what is deleted are kept apart (a MERGE may match a row and leave it alone), and both are carried on:
into a larger deletion vector, and through a compaction to the places where its record says that the rows are now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyroaring import BitMap64

from refdelta.concurrency.edits import Edit, num_records
from refdelta.concurrency.places import Move
from refdelta.concurrency.read_set import ReadFile
from refdelta.concurrency.rows import NONE, All, Rows, any_of, common, union
from refdelta.concurrency.summary import CommitSummary
from refdelta.protocol.actions import Add, DeletionVectorDescriptor
from refdelta.protocol.replay import file_key

Vectors: TypeAlias = Mapping[str, BitMap64]
"""The deletion vectors that were read, by their ids."""


def vector_id(vector: DeletionVectorDescriptor | None) -> str | None:
    """By what a logical file is told from another over the same data file."""
    return None if vector is None else vector.unique_id


def bits(vector: DeletionVectorDescriptor | None, vectors: Vectors) -> BitMap64:
    """What a deletion vector hides."""
    return NONE if vector is None else vectors[vector.unique_id]


@dataclass(frozen=True, slots=True)
class Held:
    """A file of which a transaction knows rows, as it stands behind the winners that were checked.

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
    def of(cls, file: ReadFile | None, edit: Edit | None) -> Held:
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
    """It is no longer there, or nobody can say where its rows are."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """It was added again as it was, with other words about it."""

    add: Add


@dataclass(frozen=True, slots=True)
class Revised:
    """It has another deletion vector."""

    add: Add


Touch: TypeAlias = Gone | Renewed | Revised | Move


def touch(winner: CommitSummary, path: str, vector: str | None) -> Touch | None:
    """What a winner did to a file; None where it left it alone.

    Args:
        winner: the commit.
        path: the file's path, as :func:`~refdelta.protocol.paths.same_path` has it.
        vector: the id of the deletion vector with which the file is live.
    """
    added = winner.added.get(path)
    if path not in winner.removed:
        # With another vector it would have two entries, which no log may have.
        return None if added is None else Renewed(added) if file_key(added)[1] == vector else Gone()
    if added is not None:
        return Revised(added)
    return winner.moves.get(path) or Gone()


# --- what that means for the rows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a winner did to the rows of a file that is held.

    Attributes:
        lost: rows that the transaction read and that are gone.
        back: rows that were hidden, and are live again.
        now: the files that hold what remains of the rows it knows, by path.
    """

    lost: Rows
    back: BitMap64
    now: Mapping[str, Held]


def vectors_needed(held: Held, touch: Touch, winner: CommitSummary) -> Iterator[DeletionVectorDescriptor | None]:
    """The deletion vectors without which :func:`outcome` cannot say."""
    match touch:
        case Revised(add):
            yield add.deletion_vector
            if held.hidden is None:
                yield held.vector
        case Move(vector):
            if (isinstance(held.read, BitMap64) or isinstance(held.gone, BitMap64)) and not _is_known(held, vector):
                yield vector
            if any_of(held.gone):
                for output in touch.outputs:
                    yield winner.added[output].deletion_vector


def _is_known(held: Held, vector: DeletionVectorDescriptor | None) -> bool:
    """Whether it is the file's own vector, and what that hides is known."""
    return held.hidden is not None and vector_id(vector) == vector_id(held.vector)


def outcome(path: str, held: Held, touch: Touch, winner: CommitSummary, vectors: Vectors) -> Outcome:
    """What a winner did to the rows of a file that is held."""
    match touch:
        case Renewed():
            add = winner.with_statistics(touch.add)
            return Outcome(NONE, NONE, {path: replace(held, entry=held.entry and add)})
        case Revised():
            add = winner.with_statistics(touch.add)
            before = bits(held.vector, vectors) if held.hidden is None else held.hidden
            after = bits(add.deletion_vector, vectors)
            now = replace(held, vector=add.deletion_vector, entry=held.entry and add, hidden=after)
            return Outcome(_lost(held.read, before, after), before - after, {path: now})
        case Move():
            return _moved(held, touch, winner, vectors)
        case Gone():
            return Outcome(held.read, NONE, {})


def _lost(read: Rows, before: BitMap64, after: BitMap64) -> Rows:
    """Of rows that were read, those that were live and are not any more."""
    if not isinstance(read, All) and read.isdisjoint(after):
        return NONE
    return common(read, after - before)


def _moved(held: Held, move: Move, winner: CommitSummary, vectors: Vectors) -> Outcome:
    exact = isinstance(held.read, BitMap64) or isinstance(held.gone, BitMap64)
    if held.hidden is not None and _is_known(held, move.vector):
        hidden = held.hidden
    else:
        hidden = bits(move.vector, vectors) if exact else NONE  # of a traced move there is no vector
    read, lost = move.follow(held.read, hidden)
    gone, _ = move.follow(held.gone, hidden)
    now = {}
    for output, rows in read.items():
        add, deleted = winner.added[output], gone.get(output, NONE)
        hidden_there = bits(add.deletion_vector, vectors) if len(deleted) else NONE
        # All rows of a file are those that were live when it was read; the compaction may have copied more.
        deleted = deleted - hidden_there
        if len(deleted):
            entry, records = winner.with_statistics(add), _rows_in(output, winner)
            now[output] = Held(add.deletion_vector, rows, deleted, entry, records, hidden_there)
        else:
            now[output] = Held(add.deletion_vector, rows)
    return Outcome(held.read if lost else NONE, NONE, now)


def _rows_in(output: str, winner: CommitSummary) -> int:
    """How many rows a file has that a compaction wrote."""
    return max(move.extent(output) for move in winner.moves.values())


def joined(one: Held, other: Held) -> Held:
    """What is known of one file from two sides: two inputs of a compaction whose rows are in the same output."""
    known = one if one.entry is not None else other
    return replace(known, read=union(one.read, other.read), gone=union(one.gone, other.gone))
