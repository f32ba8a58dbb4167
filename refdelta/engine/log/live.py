"""The live files of a version as a value that costs next to nothing to carry on over commits which only add files."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.checksum import DELETED_BINS, SIZE_BINS
from refdelta.engine.log.state import appended, has_any, key_of, keys_of, reconcile, with_newer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from refdelta.core.log.actions import AnyAction

# So many actions are kept beside the table at most: they are larger than rows.
_BESIDE = 4096
# And so many where the next ones have to be compared with each of them.
_COMPARED_BESIDE = 64


@dataclass(frozen=True, slots=True)
class Totals:
    """What a list of files adds up to.

    Attributes:
        files: how many there are.
        size: the sum of their sizes, in bytes.
        hidden: how many rows their deletion vectors hide.
        vectors: how many have a deletion vector.
        bins: how many fall into each of ``DELETED_BINS``, by their hidden rows.
        sizes: how many fall into each of ``SIZE_BINS``, and their bytes, by their sizes.
    """

    files: int
    size: int
    hidden: int
    vectors: int
    bins: tuple[int, ...]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]

    @classmethod
    def of(cls, files: pa.Table) -> Totals:
        """Those of a table of files."""
        size: int = pc.sum(files.column("size")).as_py() or 0
        vectors, sizes = files.column("deletionVector"), _by_size(files.column("size"))
        if vectors.null_count == files.num_rows:
            return cls(files.num_rows, size, 0, 0, (files.num_rows, *(0 for _ in DELETED_BINS[1:])), sizes)
        hidden = pc.struct_field(vectors, "cardinality")
        at_least = [pc.sum(pc.greater_equal(pc.coalesce(hidden, 0), start)).as_py() or 0 for start in DELETED_BINS]
        bins = tuple(here - above for here, above in itertools.pairwise((*at_least, 0)))
        return cls(files.num_rows, size, pc.sum(hidden).as_py() or 0, len(hidden) - hidden.null_count, bins, sizes)

    def plus(self, adds: Collection[Add]) -> Totals:
        """With some more files, none of which has a deletion vector."""
        count, size = len(adds), sum(add.size for add in adds)
        bins = (self.bins[0] + count, *self.bins[1:])
        counts, sums = map(list, self.sizes)
        for add in adds:
            at = max(0, bisect_right(SIZE_BINS, add.size) - 1)
            counts[at] += 1
            sums[at] += add.size
        sizes = tuple(counts), tuple(sums)
        return Totals(self.files + count, self.size + size, self.hidden, self.vectors, bins, sizes)


def _by_size(sizes: pa.ChunkedArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many sizes fall into each of ``SIZE_BINS``, and what those add up to."""
    counts, sums = np.zeros(len(SIZE_BINS), np.int64), np.zeros(len(SIZE_BINS), np.int64)
    for chunk in sizes.drop_null().chunks:
        if not len(chunk):
            continue
        # Arrow's own way would import pandas.
        values = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk)]
        places = np.maximum(0, np.searchsorted(SIZE_BINS, values, side="right") - 1)
        counts += np.bincount(places, minlength=len(SIZE_BINS))
        np.add.at(sums, places, values)
    return tuple(counts.tolist()), tuple(sums.tolist())


class LiveFiles:
    """A list of live files. Those that were added last stand beside the table until somebody asks for it.

    Args:
        table: files, as :func:`refdelta.engine.log.state.reconcile` has them.
        added: files behind them, in their order, of which none is in the table; without deletion vectors.
        totals: what all of them add up to, where that is known.
    """

    __slots__ = ("_keyed", "_parts", "_totals")

    def __init__(self, table: pa.Table, added: tuple[Add, ...] = (), totals: Totals | None = None) -> None:
        # One attribute: many threads may read one snapshot.
        self._parts, self._totals = (table, added), totals
        # A table and its files' keys: carried on, as most commits leave the table as it is.
        self._keyed: tuple[pa.Table, pa.ChunkedArray] | None = None

    @property
    def table(self) -> pa.Table:
        """All of them."""
        table, added = self._parts
        if added:
            table = appended(table, added)
            self._parts = table, ()
        return table

    @property
    def totals(self) -> Totals:
        """What they add up to; carried on over commits that only add files."""
        if self._totals is None:
            self._totals = Totals.of(self.table)
        return self._totals

    def behind(self, commits: Sequence[Sequence[AnyAction]], new: Collection[str] = ()) -> LiveFiles:
        """The list after some commits.

        Args:
            commits: the actions of each, oldest first.
            new: paths that surely were in no earlier version, as those that their writer has just made up: they are
                not compared.
        """
        table, added = self._parts
        files = [action for actions in commits for action in actions if isinstance(action, (Add, Remove))]
        if not files:
            return self
        adds = [file for file in files if isinstance(file, Add) and file.deletion_vector is None]
        compared = [add for add in adds if add.path not in new]
        most = _COMPARED_BESIDE if compared else _BESIDE
        only_adds = len(adds) == len(files) and len(added) + len(adds) <= most
        if not only_adds or (compared and self._has_any(table, added, compared)):
            return LiveFiles(reconcile(self.table, commits))
        totals = self._totals
        after = LiveFiles(table, (*added, *adds), totals and totals.plus(adds))
        after._keyed = self._keyed
        return after

    def behind_adds(self, adds: list[pa.Table]) -> LiveFiles:
        """The list after commits that only add these files, in the order of the commits."""
        return LiveFiles(with_newer(self.table, pa.concat_tables(adds))) if adds else self

    def _has_any(self, table: pa.Table, added: Sequence[Add], adds: Sequence[Add]) -> bool:
        """Whether one of ``adds`` is among the files, or there twice."""
        keys = set(map(key_of, adds))
        if len(keys) < len(adds) or not keys.isdisjoint(map(key_of, added)):
            return True
        keyed = self._keyed
        if keyed is None or keyed[0] is not table:
            keyed = self._keyed = table, keys_of(table)
        return has_any(keyed[1], keys)
