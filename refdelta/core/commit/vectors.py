"""Reads of the deletion vectors of winners: ahead of time to save round trips, and replacements for missing ones.

VACUUM may have deleted a vector that a later commit replaced, but a transaction that checks the winners one by one
needs each. Vectors only grow by statements that delete (:mod:`refdelta.core.log.claims`). So a later vector of the same
file hides all rows of the missing one, and can replace it in the check: a row in neither does not conflict, and a row
that the later one hides is removed in any case. If growth is not certain, the missing vector cannot be replaced, and
the file counts as removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from pyroaring import BitMap64

from refdelta.core.commit import effects
from refdelta.core.errors import DataFileNotFoundError, InvalidLogError
from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.log.footprint import Footprint, fold_commit
from refdelta.core.rows.file_state import vector_id
from refdelta.core.rows.touched import Facts

R = TypeVar("R", bound=effects.Reply)

CHUNK_BYTES = 4 * 2**20
"""The approximate number of bytes of commits in memory at a time."""

_VECTOR_BYTES = 32 * 2**20
"""The number of bytes of deletion vectors that are read ahead."""


class Insist(Protocol):
    """Repeats an effect if the store fails, and finally raises its error."""

    def __call__(self, effect: effects.Effect, kind: type[R], /) -> effects.Steps[R]:
        """The reply, of its kind."""


def ask(effect: effects.Effect, kind: type[R]) -> effects.Steps[R | effects.Failed]:
    """Yield an effect and check the type of the reply, which a faulty caller may mix up."""
    reply = yield effect
    if isinstance(reply, (kind, effects.Failed)):
        return reply
    raise TypeError(f"{reply!r} is no reply to {effect!r}")


class Succession(msgspec.Struct):
    """The deletion vectors that winners gave to one file, one after the other.

    Attributes:
        path: the normalized path of the file (:func:`~refdelta.core.log.paths.same_path`).
        vectors: these vectors, the oldest first. Each hides more rows than the one before it.
        only_hides: whether the oldest one hides more rows than the vector before it, which is not in the list.
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
        """Whether the last vector can replace those before it."""
        return self.only_hides and len(self.vectors) > 1

    @property
    def is_open(self) -> bool:
        """Whether later winners matter. An inline vector is never missing; and two files may have the same one, so that
        none may replace it.
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


class VectorReads(msgspec.Struct):
    """The deletion vectors that one transaction reads of its winners.

    Attributes:
        name_of: gives the name of the commit file of a version, for errors.
        ahead: the vectors of the next winners that were read ahead, by their ids.
        ahead_to: the version of the last of these winners.
        replaced: the rows of the replacement for each replaced vector, by the id of the replaced one.
        gone: the error for each vector whose file does not exist, by its id.
    """

    name_of: Callable[[int], str]
    ahead: dict[str, BitMap64] = {}
    ahead_to: int = -1
    replaced: dict[str, BitMap64] = {}
    gone: dict[str, DataFileNotFoundError] = {}

    def find(
        self,
        insist: Insist,
        needed: Sequence[DeletionVectorDescriptor],
        winner: Footprint,
        following: Iterable[DeletionVectorDescriptor],
        facts: Facts,
    ) -> effects.Steps[None]:
        """Add deletion vectors to the facts, or the ids of those that do not exist any more and cannot be replaced.

        Args:
            insist: see :class:`Insist`. It belongs to the loop, which has this object; were it kept here, the two and
                the table's snapshot would be in memory until Python looks for cycles.
            needed: the vectors.
            winner: the commit that is being checked.
            following: the vectors of the next winners for known files; the first of them are read at the same time.
            facts: the facts about the winner.
        """
        found = yield from self._read(insist, needed, following)
        gone = {one.unique_id for one in needed} - found.keys()
        if gone:
            found |= yield from self._read_successors(insist, winner, gone)
        facts.vectors.update(found)
        facts.missing.update(gone - found.keys())

    def _read(
        self,
        insist: Insist,
        needed: Sequence[DeletionVectorDescriptor],
        following: Iterable[DeletionVectorDescriptor],
    ) -> effects.Steps[dict[str, BitMap64]]:
        """Read deletion vectors together with those of the following winners: one round trip for a chunk of winners,
        not one for each. Returns them by id, without those whose files do not exist.
        """
        # A replaced vector is never read itself, even if it exists: it would contradict its replacement.
        known = self.ahead.keys() | self.replaced.keys()
        missing = {one.unique_id: one for one in needed if one.unique_id not in known}
        wanted = missing | _up_to(_VECTOR_BYTES, following) if missing else {}
        if len(wanted) > len(missing):
            found = yield from ask(effects.ReadVectors(tuple(wanted.values())), effects.Vectors)
            if isinstance(found, effects.Vectors):
                self.ahead.update(zip(wanted, found.bitmaps, strict=True))
                missing = {}
            # Otherwise the error may come from a vector that is not needed yet.
        if missing:
            self.ahead.update((yield from self._read_existing(insist, missing)))
        there = ((one.unique_id, self.replaced.get(one.unique_id, self.ahead.get(one.unique_id))) for one in needed)
        return {name: rows for name, rows in there if rows is not None}

    def _read_existing(
        self, insist: Insist, wanted: Mapping[str, DeletionVectorDescriptor]
    ) -> effects.Steps[dict[str, BitMap64]]:
        """Read deletion vectors, by id. Those whose files do not exist are left out, and noted in ``gone``."""
        if not wanted:
            return {}
        try:
            read = yield from insist(effects.ReadVectors(tuple(wanted.values())), effects.Vectors)
        except DataFileNotFoundError as error:
            files: dict[str, dict[str, DeletionVectorDescriptor]] = {}
            for name, one in wanted.items():
                files.setdefault(one.path_or_inline_dv, {})[name] = one
            found: dict[str, BitMap64] = {}
            if len(files) == 1:
                self.gone.update(dict.fromkeys(wanted, error))
            else:
                for some in files.values():
                    found |= yield from self._read_existing(insist, some)
            return found
        return dict(zip(wanted, read.bitmaps, strict=True))

    def _read_successors(
        self, insist: Insist, winner: Footprint, names: Collection[str]
    ) -> effects.Steps[dict[str, BitMap64]]:
        """Read the replacements of vectors whose files do not exist.

        Args:
            insist: see :class:`Insist`.
            winner: the winner that is being checked.
            names: the ids of the missing vectors.

        Returns:
            The rows of the replacements, by the id of the missing vector; without those that cannot be replaced.

        Raises:
            DataFileNotFoundError: the newest vector of a file does not exist: the table is damaged.
        """
        damaged: set[str] = set()
        while True:
            files = successions(winner, names)
            yield from self._follow(insist, winner.version, files)
            newer = {one.last.unique_id: one.last for one in files if one.is_replaceable}
            found = yield from self._read_existing(insist, newer)
            missing = {one.last.unique_id for one in files if one.is_live} & self.gone.keys()
            if not missing:
                break
            if missing <= damaged:
                raise self.gone[min(missing)]
            # It may have been replaced and removed since the log was read, so the log is read once more.
            damaged |= missing
        for one in files:
            if one.is_replaceable and one.last.unique_id in found:
                rows = found[one.last.unique_id]
                self.replaced.update((vector.unique_id, rows) for vector in one.vectors[:-1])
        return {name: self.replaced[name] for name in names if name in self.replaced}

    def _follow(self, insist: Insist, version: int, files: Sequence[Succession]) -> effects.Steps[None]:
        """Follow files from after this version to the newest one."""
        newest = (yield from insist(effects.NewestVersion(version), effects.Newest)).version
        count = 1
        while version < newest and any(one.is_open for one in files):
            last = min(newest, version + count)
            read = yield from insist(effects.ReadCommits(version + 1, last), effects.Commits)
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
    """The first vectors that have at most this size together, by their ids."""
    found: dict[str, DeletionVectorDescriptor] = {}
    size = 0
    for vector in vectors:
        size += vector.size_in_bytes
        if size > most:
            break
        found[vector.unique_id] = vector
    return found
