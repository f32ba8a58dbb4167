"""What the commit loop asks of the world, and what the world may answer: the alphabet of
:mod:`refdelta.concurrency.commit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyroaring import BitMap64

from refdelta.protocol.actions import Add, DeletionVectorDescriptor

# --- effects ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Confirm:
    """Does this version exist? For -1: is the log empty? Reply: :class:`Yes`, :class:`No` or :class:`Failed`."""

    version: int


@dataclass(frozen=True, slots=True)
class PutIfAbsent:
    """Create the commit file of this version. Reply: :class:`Created`, :class:`Exists`, :class:`Unknown`, or
    :class:`Failed` where nothing was created.
    """

    version: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ReadCommits:
    """Read the commit files of ``first`` to ``last``, both included. Reply: :class:`Commits` or :class:`Failed`."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class NewestVersion:
    """The newest version after this one, or this one. Reply: :class:`Newest` or :class:`Failed`."""

    after: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, the longer the higher ``count`` is, and at random. Reply: :class:`Elapsed`.

    Attributes:
        count: how often this has been the reason in a row, from 1.
        reason: another writer won, or the store leaves an outcome open.
    """

    count: int
    reason: Literal["lost", "undecided"]


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Delete the commit file of this version, which is ours and belongs to no table. Reply: :class:`Yes` or
    :class:`Failed`.
    """

    version: int


@dataclass(frozen=True, slots=True)
class ReadVectors:
    """Read deletion vectors. Reply: :class:`Vectors` or :class:`Failed`."""

    descriptors: tuple[DeletionVectorDescriptor, ...]


@dataclass(frozen=True, slots=True)
class WriteVectors:
    """Write deletion vectors, which a commit is about to name. Reply: :class:`Descriptors` or :class:`Failed`."""

    bitmaps: tuple[BitMap64, ...]


@dataclass(frozen=True, slots=True)
class LookAtRows:
    """Does a live row of these files answer to what the transaction read? Reply: :class:`Matches` or :class:`Failed`.

    Attributes:
        files: a winner's new files. One that is asked about some of its rows only has an inline deletion vector that
            hides the others.
    """

    files: tuple[Add, ...]


Request = Confirm | PutIfAbsent | ReadCommits | NewestVersion | Withdraw | ReadVectors | WriteVectors | LookAtRows
"""What the store is asked for."""

Effect = Request | Pause


# --- replies ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    """The file is there, and it is ours."""


@dataclass(frozen=True, slots=True)
class Exists:
    """A file was there already. It may be ours, of a request whose reply was lost."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The file may be there, may come to be there, or not."""

    cause: BaseException | None = None


class Answer:
    """Yes or no."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Yes(Answer):
    """It is so; it is done."""


@dataclass(frozen=True, slots=True)
class No(Answer):
    """It is not so."""


@dataclass(frozen=True, slots=True)
class Commits:
    """The files that were asked for, in order; None for one that does not exist."""

    data: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class Newest:
    """A version."""

    version: int


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Seconds since the first effect."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors that were asked for, in order: the positions that each of them hides."""

    bitmaps: tuple[BitMap64, ...]


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Where the vectors were written, in order."""

    descriptors: tuple[DeletionVectorDescriptor, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    """Whether a row matches, for each file that was asked about; and the seconds that it took to find out."""

    found: tuple[bool, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The store refused or failed, and nothing was changed by this effect. The error is what the user is to see."""

    error: Exception


Reply = Created | Exists | Unknown | Answer | Commits | Newest | Elapsed | Vectors | Descriptors | Matches | Failed
