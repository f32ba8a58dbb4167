"""The effects of the commit loop (:mod:`refdelta.core.commit.loop`), and the replies to them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Literal, TypeAlias, TypeVar

import msgspec
from pyroaring import BitMap64

from refdelta.core.conflicts.state import AddedRows
from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
from refdelta.core.rows.relocation import RelocationById

# --- effects ------------------------------------------------------------------------------------------------------


class VersionExists(msgspec.Struct, frozen=True):
    """Does this version exist, and is it the commit that the transaction has read? For -1: is the log empty? Reply:
    :class:`Yes`, :class:`No`, :class:`Replaced` or :class:`Failed`.
    """

    version: int


class TryCommit(msgspec.Struct, frozen=True):
    """Make these bytes this version, if it does not exist yet. Reply: :class:`Committed`, :class:`Exists`,
    :class:`Unknown`, or :class:`Failed` if it is certain that nothing was committed.
    """

    version: int
    data: bytes


class ReadCommits(msgspec.Struct, frozen=True):
    """Read the commits of ``first`` to ``last``, both included. Reply: :class:`Commits` or :class:`Failed`."""

    first: int
    last: int


class NewestVersion(msgspec.Struct, frozen=True):
    """The newest version after this one, or this one. Reply: :class:`Newest` or :class:`Failed`."""

    after: int


class Pause(msgspec.Struct, frozen=True):
    """Wait for a random time that grows with ``count``, or with ``younger`` where it is known. Reply: :class:`Elapsed`.

    Attributes:
        count: the number of consecutive pauses for this reason, from 1.
        reason: another writer won, or the store gave no certain answer.
        younger: the number of versions by which this transaction began after the winner, at least 0; None if unknown.
    """

    count: int
    reason: Literal["lost", "undecided"]
    younger: int | None = None


class CommitTime(msgspec.Struct, frozen=True):
    """The time of this version for readers. Without in-commit timestamps it follows from the modification times of
    commit files (PROTOCOL.md, "Commit Provenance Information"). Reply: :class:`Time` or :class:`Failed`.
    """

    version: int


class Withdraw(msgspec.Struct, frozen=True):
    """Delete the commit of this version, which is ours and belongs to no table. Reply: :class:`Yes` or
    :class:`Failed`.
    """

    version: int


class ReadVectors(msgspec.Struct, frozen=True):
    """Read deletion vectors. Reply: :class:`Vectors` or :class:`Failed`."""

    descriptors: tuple[DeletionVectorDescriptor, ...]


class WriteVectors(msgspec.Struct, frozen=True):
    """Write deletion vectors for a commit. Reply: :class:`Descriptors` or :class:`Failed`."""

    bitmaps: tuple[BitMap64, ...]


class MatchRows(msgspec.Struct, frozen=True):
    """Would the transaction have read one of these rows, which a winner added? Reply: :class:`Matches` or
    :class:`Failed`.

    Attributes:
        rows: the rows.
        txn_id: the id of the transaction, where the loop has several.
    """

    rows: tuple[AddedRows, ...]
    txn_id: str


class ConfirmRows(msgspec.Struct, frozen=True):
    """Would the transaction have read each of these rows, which it read before another writer moved them? Reply:
    :class:`Answer` or :class:`Failed`.

    Attributes:
        rows: the rows.
        trusted: whether the answer is yes if it cannot be decided; otherwise it is no.
        txn_id: the id of the transaction, where the loop has several.
    """

    rows: tuple[AddedRows, ...]
    trusted: bool
    txn_id: str


class LocateRows(msgspec.Struct, frozen=True):
    """Locate the rows of these files by their ids. Reply: :class:`Relocations` or :class:`Failed`.

    Attributes:
        inputs: files that were rearranged, by their remove actions.
        outputs: the files with their rows.
    """

    inputs: tuple[Remove, ...]
    outputs: tuple[Add, ...]


Effect = (
    VersionExists
    | TryCommit
    | ReadCommits
    | NewestVersion
    | CommitTime
    | Withdraw
    | ReadVectors
    | WriteVectors
    | MatchRows
    | ConfirmRows
    | LocateRows
    | Pause
)


# --- replies ------------------------------------------------------------------------------------------------------


class Committed(msgspec.Struct, frozen=True):
    """These bytes are that version."""


class Exists(msgspec.Struct, frozen=True):
    """The version exists already. It may be ours, from a request whose reply was lost.

    Attributes:
        winners: the first commits from this version on, if the reply has some.
    """

    winners: tuple[bytes, ...] = ()


class Unknown(msgspec.Struct, frozen=True):
    """The bytes may be that version, may become it later, or not."""

    cause: BaseException | None = None


class Answer(msgspec.Struct, frozen=True):
    """Yes or no."""


class Yes(Answer, frozen=True):
    """True, or done."""


class No(Answer, frozen=True):
    """False."""


class Replaced(Answer, frozen=True):
    """The table was removed, and perhaps made anew: the version is another commit than the one that was read, or is
    missing though log cleanup cannot have removed it.
    """


class Commits(msgspec.Struct, frozen=True):
    """The requested commits, in order; None for one that does not exist."""

    data: tuple[bytes | None, ...]


class Newest(msgspec.Struct, frozen=True):
    """A version."""

    version: int


class Time(msgspec.Struct, frozen=True):
    """Milliseconds since 1970, UTC."""

    ms: int


class Elapsed(msgspec.Struct, frozen=True):
    """Seconds since the first effect."""

    seconds: float


class Vectors(msgspec.Struct, frozen=True):
    """The requested vectors, in order: the positions that each of them hides."""

    bitmaps: tuple[BitMap64, ...]


class Descriptors(msgspec.Struct, frozen=True):
    """The descriptors of the written vectors, in order."""

    descriptors: tuple[DeletionVectorDescriptor, ...]


class Matches(msgspec.Struct, frozen=True):
    """For each requested file, up to the first one with a matching row, whether it has one; and the seconds spent."""

    found: tuple[bool, ...]
    seconds: float


class Relocations(msgspec.Struct, frozen=True):
    """The places of the rows of files, by normalized path; without files of which a live row was not found."""

    moves: Mapping[str, RelocationById]


class Failed(msgspec.Struct, frozen=True):
    """The store refused or failed, and this effect changed nothing. The error is the one for the user."""

    error: Exception


Reply = (
    Committed
    | Exists
    | Unknown
    | Answer
    | Commits
    | Newest
    | Time
    | Elapsed
    | Vectors
    | Descriptors
    | Matches
    | Relocations
    | Failed
)

R = TypeVar("R")
Steps: TypeAlias = Generator[Effect, Reply, R]
"""A part of the loop: yields effects, is sent their replies, and returns its result."""
