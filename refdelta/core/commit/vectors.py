"""The deletion vectors of winners: read before their turn where that saves a round trip, and followed where VACUUM
removed their files before a transaction reached their winner.

No reader of the table needs a vector that a later commit replaced, but a transaction that passes the winners one by one
asks for each. Vectors only grow, except by RESTORE. So a later vector of the same file hides all rows that the missing
one hid, and the comparison with the later one decides for both: a row that is in neither is in no one's way, and a row
that the later one hides is gone in any case. Where growth is not certain, no other vector can stand for the missing
one, and the file counts as removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pyroaring import BitMap64

from refdelta.core.commit.effects import (
    Commits,
    Effect,
    Failed,
    Newest,
    NewestVersion,
    ReadCommits,
    ReadVectors,
    Reply,
    Vectors,
)
from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.log.footprint import Footprint, fold_commit
from refdelta.core.rows.file_state import vector_id
from refdelta.core.rows.touched import Facts
from refdelta.errors import DataFileNotFoundError, InvalidLogError

R = TypeVar("R", bound=Reply)

CHUNK_BYTES = 4 * 2**20
"""How many bytes of commits are held in memory at a time, where they are as long as those before them."""

_VECTOR_BYTES = 32 * 2**20
"""How many bytes of deletion vectors are read before their turn."""


class Insist(Protocol):
    """Asks again where the store fails, and raises its error in the end."""

    def __call__(self, effect: Effect, kind: type[R], /) -> Generator[Effect, Reply, R]:
        """The reply, of its kind."""


def ask(effect: Effect, kind: type[R]) -> Generator[Effect, Reply, R | Failed]:
    """Yield an effect and see that the reply is of its kind: a shell that mixes them up must not pass for an answer."""
    reply = yield effect
    if isinstance(reply, (kind, Failed)):
        return reply
    raise TypeError(f"{reply!r} is no reply to {effect!r}")


@dataclass(slots=True)
class Succession:
    """The deletion vectors that winners gave to one file, one after the other.

    Attributes:
        path: the file's path, as :func:`~refdelta.core.log.paths.same_path` has it.
        vectors: these vectors, the oldest first. Each hides what the one before it hides, and more.
        only_hides: the same of the oldest one and the vector before it, which is not among them.
        is_live: whether the file is live with the last one, in the newest version that was followed.
    """

    path: str
    vectors: list[DeletionVectorDescriptor]
    only_hides: bool
    is_live: bool = True

    @property
    def last(self) -> DeletionVectorDescriptor:
        """The newest vector."""
        return self.vectors[-1]

    @property
    def is_replaceable(self) -> bool:
        """Whether the last vector can stand for those before it."""
        return self.only_hides and len(self.vectors) > 1

    @property
    def is_open(self) -> bool:
        """Whether later winners matter. An inline vector never goes missing; and two files may have the same one, so
        that nothing may stand for it.
        """
        return self.is_live and self.last.storage_type != "i"

    def follow(self, later: Footprint) -> None:
        """Follow the file through the next winner."""
        add, remove = later.added.get(self.path), later.removed.get(self.path)
        name = self.last.unique_id
        if not self.is_open or (add is None and remove is None):
            return
        if add is not None and vector_id(add.deletion_vector) == name:
            return  # only its statistics or tags were changed
        vector = add.deletion_vector if add is not None and later.only_hides(add) else None
        if vector is not None and remove is not None and vector_id(remove.deletion_vector) == name:
            self.vectors.append(vector)
        else:
            self.is_live = False


def successions(winner: Footprint, names: Collection[str]) -> list[Succession]:
    """The files to which this winner gave vectors with these ids."""
    return [
        Succession(path, [add.deletion_vector], winner.only_hides(add))
        for path, add in winner.added.items()
        if add.deletion_vector is not None and add.deletion_vector.unique_id in names
    ]


@dataclass(slots=True)
class VectorReads:
    """The deletion vectors that one transaction reads of its winners.

    Attributes:
        insist: see :class:`Insist`.
        name_of: what the log calls the commit of a version, for errors.
        ahead: those of the winners at hand that were read before their turn, by their ids.
        ahead_to: up to which winner.
        replaced: vectors for which a later one stands, by id: what the later one hides.
        gone: vectors whose files do not exist, by id: the error that says so.
    """

    insist: Insist
    name_of: Callable[[int], str]
    ahead: dict[str, BitMap64] = field(default_factory=dict)
    ahead_to: int = -1
    replaced: dict[str, BitMap64] = field(default_factory=dict)
    gone: dict[str, DataFileNotFoundError] = field(default_factory=dict)

    def find(
        self,
        needed: Sequence[DeletionVectorDescriptor],
        winner: Footprint,
        following: Iterable[DeletionVectorDescriptor],
        facts: Facts,
    ) -> Generator[Effect, Reply, None]:
        """Add to the facts what deletion vectors hide, or that they do not exist any more and none can stand for them.

        Args:
            needed: the vectors.
            winner: the commit that is being checked.
            following: those that the next winners gave to files that matter; read along, as far as that is not much.
            facts: about the winner.
        """
        found = yield from self._read(needed, following)
        gone = {one.unique_id for one in needed} - found.keys()
        if gone:
            found |= yield from self._read_successors(winner, gone)
        facts.vectors.update(found)
        facts.missing.update(gone - found.keys())

    def _read(
        self, needed: Sequence[DeletionVectorDescriptor], following: Iterable[DeletionVectorDescriptor]
    ) -> Generator[Effect, Reply, dict[str, BitMap64]]:
        """Read deletion vectors, and with them those that the following winners gave to the same files: one round trip
        for a chunk of winners, not one for each. Returns them by id, without those whose files do not exist.
        """
        # A vector that another one stands for is never read itself, even if it exists: the two would contradict.
        known = self.ahead.keys() | self.replaced.keys()
        missing = {one.unique_id: one for one in needed if one.unique_id not in known}
        wanted = missing | _up_to(_VECTOR_BYTES, following) if missing else {}
        if len(wanted) > len(missing):
            found = yield from ask(ReadVectors(tuple(wanted.values())), Vectors)
            if isinstance(found, Vectors):
                self.ahead.update(zip(wanted, found.bitmaps, strict=True))
                missing = {}
            # Else one that is not needed yet may be to blame.
        if missing:
            self.ahead.update((yield from self._read_existing(missing)))
        there = ((one.unique_id, self.replaced.get(one.unique_id, self.ahead.get(one.unique_id))) for one in needed)
        return {name: rows for name, rows in there if rows is not None}

    def _read_existing(
        self, wanted: Mapping[str, DeletionVectorDescriptor]
    ) -> Generator[Effect, Reply, dict[str, BitMap64]]:
        """Read deletion vectors, by id. Those whose files do not exist are left out, and noted in ``gone``."""
        if not wanted:
            return {}
        try:
            read = yield from self.insist(ReadVectors(tuple(wanted.values())), Vectors)
        except DataFileNotFoundError as error:
            files: dict[str, dict[str, DeletionVectorDescriptor]] = {}
            for name, one in wanted.items():
                files.setdefault(one.path_or_inline_dv, {})[name] = one
            found: dict[str, BitMap64] = {}
            if len(files) == 1:
                self.gone.update(dict.fromkeys(wanted, error))
            else:
                for some in files.values():
                    found |= yield from self._read_existing(some)
            return found
        return dict(zip(wanted, read.bitmaps, strict=True))

    def _read_successors(
        self, winner: Footprint, names: Collection[str]
    ) -> Generator[Effect, Reply, dict[str, BitMap64]]:
        """Read the vectors that can stand for vectors whose files do not exist.

        Args:
            winner: the winner that is being checked.
            names: the ids of the vectors that it takes to check it.

        Returns:
            What hides the rows, by the id of the vector that is gone; without those for which none can stand.

        Raises:
            DataFileNotFoundError: the newest vector of a file does not exist: the table is damaged.
        """
        damaged: set[str] = set()
        while True:
            files = successions(winner, names)
            yield from self._follow(winner.version, files)
            newer = {one.last.unique_id: one.last for one in files if one.is_replaceable}
            found = yield from self._read_existing(newer)
            missing = {one.last.unique_id for one in files if one.is_live} & self.gone.keys()
            if not missing:
                break
            if missing <= damaged:
                raise self.gone[min(missing)]
            # It may have been replaced, and removed, since the log was read: the log is read once more.
            damaged |= missing
        for one in files:
            if one.is_replaceable and one.last.unique_id in found:
                rows = found[one.last.unique_id]
                self.replaced.update((vector.unique_id, rows) for vector in one.vectors[:-1])
        return {name: self.replaced[name] for name in names if name in self.replaced}

    def _follow(self, version: int, files: Sequence[Succession]) -> Generator[Effect, Reply, None]:
        """Follow files from after this version to the newest one."""
        newest = (yield from self.insist(NewestVersion(version), Newest)).version
        count = 1
        while version < newest and any(one.is_open for one in files):
            last = min(newest, version + count)
            read = yield from self.insist(ReadCommits(version + 1, last), Commits)
            for number, data in enumerate(read.data, version + 1):
                if data is None:
                    message = f"version {number} is missing, though version {newest} exists"
                    raise InvalidLogError(message, file=self.name_of(number))
                later = fold_commit(number, data, self.name_of(number))
                for one in files:
                    one.follow(later)
                count = max(1, min(2 * count, CHUNK_BYTES // max(1, len(data))))
            version = last


def _up_to(most: int, vectors: Iterable[DeletionVectorDescriptor]) -> dict[str, DeletionVectorDescriptor]:
    """As many vectors as have this size together, by their ids."""
    found: dict[str, DeletionVectorDescriptor] = {}
    size = 0
    for vector in vectors:
        size += vector.size_in_bytes
        if size > most:
            break
        found[vector.unique_id] = vector
    return found
