"""Files as columns: the live files of a state, found by path, with every path that an earlier version had."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from refdelta.arrow.arrays import one_array, take
from refdelta.engine.log.state import FILE_SCHEMA, adds_table, key_of, keys_of, to_adds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from refdelta.core.log.actions import Add

# So many added files are kept as actions before they become columns: an action is three times as large.
_RECENT = 8192
# Rows of files that are not live any more are left out when they are so many, and the larger part of all.
_DEAD = 65_536


class FileIndex:
    """The live files of a state.

    Each file is a row, numbered in the order of the newest actions: of a table, or one of the actions added since the
    table was last extended. Keys are those of :func:`refdelta.engine.log.state.key_of`.

    Attributes:
        rows: the row of each live file, by its key, in ascending order.
        paths: every path of every version so far, to the number of the schema with which its file was first added.
        size: the sum of the sizes of the live files, in bytes.
        vectors: the number of live files with a deletion vector.
        deleted: the number of rows that these vectors delete.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.paths: dict[str, int] = {}
        self.size = self.vectors = self.deleted = 0
        # A table in pieces, the first row of each, and the actions that follow its last row.
        self._pieces: list[pa.RecordBatch] = []
        self._starts: list[int] = [0]
        self._recent: list[Add] = []
        # For each row: whether it is live, its size, and the number of rows that its vector deletes; -1 without one.
        self._live, self._sizes, self._deleted = bytearray(), array("q"), array("q")
        # The keys of the live files with a deletion vector, by path.
        self._with_vector: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, key: str) -> bool:
        return key in self.rows

    # --- changes -----------------------------------------------------------------------------------------------------

    def add(self, add: Add, schema: int) -> None:
        """Add a file, in the place of the one with its key. ``schema`` is the number of the schema in force."""
        if len(self._recent) >= _RECENT:
            self._compact()
        key, vector = key_of(add), add.deletion_vector
        self.remove(key)
        self.rows[key] = len(self._live)
        self._recent.append(add)
        path = key.partition("\0")[0]
        self.note(path, schema)
        self._count(add.size, -1 if vector is None else vector.cardinality, 1)
        self._live.append(1)
        self._sizes.append(add.size)
        self._deleted.append(-1 if vector is None else vector.cardinality)
        if vector is not None:
            self._with_vector[path] = (*self._with_vector.get(path, ()), key)

    def extend(self, files: pa.Table, schema: int) -> None:
        """Add files of ``FILE_SCHEMA``, as :meth:`add` adds each."""
        keys = keys_of(files).to_pylist()
        has_vectors = files["deletionVector"].null_count < files.num_rows
        if has_vectors or len(set(keys)) < len(keys) or not self.rows.keys().isdisjoint(keys):
            for add in to_adds(files):
                self.add(add, schema)
            return
        self._to_columns()
        for batch in files.to_batches():
            self._append(batch)
        first = len(self._live)
        self.rows.update(zip(keys, range(first, first + len(keys)), strict=True))
        if self.paths:
            for key in keys:
                self.paths.setdefault(key, schema)
        else:
            self.paths = dict.fromkeys(keys, schema)
        sizes = np.asarray(one_array(files["size"]), np.int64)
        self.size += int(sizes.sum())
        self._live += b"\1" * len(keys)
        self._sizes.frombytes(sizes.tobytes())
        self._deleted.frombytes(np.full(len(keys), -1, np.int64).tobytes())

    def remove(self, key: str) -> None:
        """Remove the file with a key, if it is live."""
        row = self.rows.pop(key, None)
        if row is None:
            return
        self._live[row] = 0
        self._count(self._sizes[row], self._deleted[row], -1)
        path, separator, _ = key.partition("\0")
        if separator:
            left = tuple(other for other in self._with_vector[path] if other != key)
            if left:
                self._with_vector[path] = left
            else:
                del self._with_vector[path]

    def note(self, path: str, schema: int) -> None:
        """Record a path that a version has."""
        self.paths.setdefault(path, schema)

    def _count(self, size: int, deleted: int, sign: int) -> None:
        self.size += sign * size
        if deleted >= 0:
            self.vectors += sign
            self.deleted += sign * deleted

    def _append(self, batch: pa.RecordBatch) -> None:
        self._pieces.append(batch)
        self._starts.append(self._starts[-1] + batch.num_rows)

    def _to_columns(self) -> None:
        """Make rows of the table of the actions; no row gets another number."""
        if self._recent:
            for batch in adds_table(self._recent).to_batches():
                self._append(batch)
            self._recent = []

    def _compact(self) -> None:
        """Make rows of the table of the actions, and leave dead rows out if they are many."""
        self._to_columns()
        dead = len(self._live) - len(self.rows)
        if dead < max(_DEAD, len(self.rows)):
            return
        live = self._numbers()
        pieces = [batch for batch in self.batches() if batch.num_rows]
        self._sizes = array("q", self._of(self._sizes)[live].tobytes())
        self._deleted = array("q", self._of(self._deleted)[live].tobytes())
        self._live = bytearray(b"\1" * len(live))
        self._pieces, self._starts = [], [0]
        for batch in pieces:
            self._append(batch)
        self.rows = dict(zip(self.rows, range(len(live)), strict=True))

    # --- reads -------------------------------------------------------------------------------------------------------

    def live(self, paths: Iterable[str]) -> dict[str, list[Add]]:
        """The live files with each of these paths, in the form of ``same_path``."""
        keys = {path: [key for key in (path, *self._with_vector.get(path, ())) if key in self.rows] for path in paths}
        wanted = [key for found in keys.values() for key in found]
        adds = dict(zip(wanted, self.actions([self.rows[key] for key in wanted]), strict=True))
        return {path: [adds[key] for key in found] for path, found in keys.items()}

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Some live files as a table of ``FILE_SCHEMA``, in the order of the given rows."""
        self._to_columns()
        return self._table(rows)

    def actions(self, rows: Sequence[int]) -> list[Add]:
        """The files of some rows as actions, in the order of the given rows."""
        first = self._starts[-1]
        stored = [row for row in rows if row < first]
        found = iter(to_adds(self._table(np.array(stored, np.int64))) if stored else ())
        return [next(found) if row < first else self._recent[row - first] for row in rows]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All live files, in their order, as batches of ``FILE_SCHEMA``."""
        self._to_columns()
        live = self.mask()
        for batch, (start, end) in zip(self._pieces, pairwise(self._starts), strict=True):
            part = live[start:end]
            yield batch if part.all() else batch.filter(pa.array(part))

    def named(self) -> Iterator[tuple[int, str, int]]:
        """Row, path as the log writes it, and size of each live file, in their order."""
        rows = iter(self._numbers())
        for batch in self.batches():
            for path, size in zip(batch["path"].to_pylist(), batch["size"].to_pylist(), strict=True):
                yield int(next(rows)), path, size

    def vector_ids(self) -> set[str]:
        """The ids of the deletion vectors of the live files."""
        return {key.partition("\0")[2] for keys in self._with_vector.values() for key in keys}

    def live_paths(self) -> Iterable[str]:
        """The paths of all live files, in the form of ``same_path``."""
        return (key.partition("\0")[0] for key in self.rows)

    def sizes(self) -> NDArray[np.int64]:
        """The sizes of the live files, in bytes."""
        return self._of(self._sizes)[self._numbers()]

    def deleted_counts(self) -> NDArray[np.int64]:
        """The number of rows that the deletion vector of each live file deletes; 0 without one."""
        return np.maximum(self._of(self._deleted)[self._numbers()], 0)

    def mask(self) -> NDArray[np.bool_]:
        """For each row, True if it is live."""
        return np.array(self._live, np.uint8).astype(bool)

    def _numbers(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.mask())

    @staticmethod
    def _of(values: array[int]) -> NDArray[np.int64]:
        return np.array(values, np.int64)

    def _table(self, rows: NDArray[np.int64]) -> pa.Table:
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        ends = np.searchsorted(ascending, self._starts)
        parts = [
            batch.take(pa.array(ascending[low:high] - start))
            for batch, start, (low, high) in zip(self._pieces, self._starts, pairwise(ends), strict=False)
            if low < high
        ]
        table = pa.Table.from_batches(parts, FILE_SCHEMA)
        if (order == np.arange(len(order))).all():
            return table
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return take(table, pa.array(back))
