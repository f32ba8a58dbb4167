"""What the commit loop asks of the world, and what the world may answer: the alphabet of
:mod:`refdelta.core.commit.loop`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from pyroaring import BitMap64

from refdelta.core.conflicts.state import AddedRows
from refdelta.core.log.actions import Add, DeletionVectorDescriptor, Remove
from refdelta.core.rows.relocation import RelocationById

# --- effects ------------------------------------------------------------------------------------------------------


class VersionExists(msgspec.Struct, frozen=True):
    """Does this version exist? For -1: is the log empty? Reply: :class:`Yes`, :class:`No` or :class:`Failed`."""

    version: int


class TryCommit(msgspec.Struct, frozen=True):
    """Make these bytes this version, if nothing is it yet. Reply: :class:`Committed`, :class:`Exists`,
    :class:`Unknown`, or :class:`Failed` where it is certain that nothing was committed.
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
    """Wait, the longer the higher ``count`` is, and at random. Reply: :class:`Elapsed`.

    Attributes:
        count: how often this has been the reason in a row, from 1.
        reason: another writer won, or the store leaves an outcome open.
    """

    count: int
    reason: Literal["lost", "undecided"]


class CommitTime(msgspec.Struct, frozen=True):
    """When was this version committed, as readers see it: where versions have no in-commit timestamps, that is made of
    the modification times of their files (PROTOCOL.md, "Commit Provenance Information"). Reply: :class:`Time` or
    :class:`Failed`.
    """

    version: int


class Withdraw(msgspec.Struct, frozen=True):
    """Take back the commit of this version, which is ours and belongs to no table. Reply: :class:`Yes` or
    :class:`Failed`.
    """

    version: int


class ReadVectors(msgspec.Struct, frozen=True):
    """Read deletion vectors. Reply: :class:`Vectors` or :class:`Failed`."""

    descriptors: tuple[DeletionVectorDescriptor, ...]


class WriteVectors(msgspec.Struct, frozen=True):
    """Write deletion vectors, which a commit is about to name. Reply: :class:`Descriptors` or :class:`Failed`."""

    bitmaps: tuple[BitMap64, ...]


class MatchRows(msgspec.Struct, frozen=True):
    """Is one of these rows, which a winner brought, one that the transaction would have read? Reply:
    :class:`Matches` or :class:`Failed`.
    """

    rows: tuple[AddedRows, ...]


class LocateRows(msgspec.Struct, frozen=True):
    """Where are the rows of these files, by their ids? Reply: :class:`Relocations` or :class:`Failed`.

    Attributes:
        inputs: files that a winner rearranged, as its log has them.
        outputs: the files in which their rows are now.
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
    | LocateRows
    | Pause
)


# --- replies ------------------------------------------------------------------------------------------------------


class Committed(msgspec.Struct, frozen=True):
    """These bytes are that version."""


class Exists(msgspec.Struct, frozen=True):
    """The version was there already. It may be ours, of a request whose reply was lost.

    Attributes:
        winners: the commits from this version on, as far as the reply brought them along.
    """

    winners: tuple[bytes, ...] = ()


class Unknown(msgspec.Struct, frozen=True):
    """The bytes may be that version, may come to be it, or not."""

    cause: BaseException | None = None


class Answer(msgspec.Struct, frozen=True):
    """Yes or no."""


class Yes(Answer, frozen=True):
    """It is so; it is done."""


class No(Answer, frozen=True):
    """It is not so."""


class Commits(msgspec.Struct, frozen=True):
    """The commits that were asked for, in order; None for one that does not exist."""

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
    """The vectors that were asked for, in order: the positions that each of them hides."""

    bitmaps: tuple[BitMap64, ...]


class Descriptors(msgspec.Struct, frozen=True):
    """Where the vectors were written, in order."""

    descriptors: tuple[DeletionVectorDescriptor, ...]


class Matches(msgspec.Struct, frozen=True):
    """Whether a row matches, for each file that was asked about, up to the first one that has such a row; and the
    seconds that it took to find out.
    """

    found: tuple[bool, ...]
    seconds: float


class Relocations(msgspec.Struct, frozen=True):
    """Where the rows of files are, by path as :func:`~refdelta.core.log.paths.same_path` has it; without those files a
    live row of which was not found.
    """

    moves: Mapping[str, RelocationById]


class Failed(msgspec.Struct, frozen=True):
    """The store refused or failed, and nothing was changed by this effect. The error is what the user is to see."""

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
