"""The difference of two versions: rows, columns, properties and protocol.

Rows come from the change data feed, if it covers the versions, else from the files that only one of them has. Rows that
are on both sides, such as those that a compaction moved, cancel out: they are compared by hashes of 128 bits, so memory
holds 16 bytes for each row that may differ, and these in several passes if there are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import is_among
from refdelta.arrow.row_hashes import HASH, row_hashes
from refdelta.core.log.paths import same_path
from refdelta.engine.log.state import keys_of, to_adds
from refdelta.engine.parquet.dv import load_deletion_vectors
from refdelta.engine.scan.positions import read_rows
from refdelta.engine.scan.scan import RowStream, plan_scan
from refdelta.errors import InvalidArgumentError, InvalidLogError, SchemaMismatchError, VersionNotFoundError
from refdelta.operations.inspection.feed_range import FeedRange, changes
from refdelta.table.change_feed import CHANGE_TYPE, FEED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyroaring import BitMap64

    from refdelta.engine.log.snapshot import Snapshot

    Hashes = np.ndarray[Any, np.dtype[Any]]
    Rows = Callable[[], Iterator[pa.RecordBatch]]

_PASS = 2**22
"""The number of rows whose hashes are in memory at once, approximately."""

_GONE = pa.array(["delete", "update_preimage"])


@dataclass(frozen=True, eq=False, repr=False)
class VersionDiff(RowStream):
    """The difference of two versions, as an Arrow stream of the rows that only one of them has.

    The columns of the table are followed by ``_change_type``: ``delete`` for rows of the first version, ``insert`` for
    rows of the second. A changed row is one of each. Each read of the stream reads the files again.

    Attributes:
        before: the first version.
        after: the second version.
    """

    before: Snapshot
    after: Snapshot

    # --- the table ---

    @cached_property
    def columns(self) -> dict[str, tuple[str | None, str | None]]:
        """The columns that differ, by name: their types before and after, None where they are missing."""
        types = [{field.name: _type(field) for field in one.schema} for one in (self.before, self.after)]
        names = dict.fromkeys([*types[0], *types[1]])
        both = {name: (types[0].get(name), types[1].get(name)) for name in names}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    @cached_property
    def properties(self) -> dict[str, tuple[str | None, str | None]]:
        """The table properties that differ, by name: their values before and after."""
        values = [one.metadata.configuration or {} for one in (self.before, self.after)]
        both = {name: (values[0].get(name), values[1].get(name)) for name in sorted({*values[0], *values[1]})}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    @cached_property
    def features(self) -> dict[str, tuple[Any, Any]]:
        """The fields of the protocol that differ, by name: their values before and after."""
        names = ("min_reader_version", "min_writer_version", "reader_features", "writer_features")
        both = {name: (getattr(self.before.protocol, name), getattr(self.after.protocol, name)) for name in names}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    # --- rows ---

    @cached_property
    def by_feed(self) -> bool:
        """Whether the rows come from the change data feed."""
        return self._feed is not None

    @cached_property
    def _feed(self) -> Any:
        if self.after.version <= self.before.version or self._names is not None:
            return None
        try:
            return changes(self.after, FeedRange(self.before.version + 1, self.after.version))
        except (InvalidArgumentError, InvalidLogError, SchemaMismatchError, VersionNotFoundError):
            return None

    @cached_property
    def _names(self) -> list[str] | None:
        """The columns to compare; None for all of the second version, by whose schema both can be read."""
        if all(pair[0] is None for pair in self.columns.values()):
            return None
        return [field.name for field in self.after.schema if field.name not in self.columns]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        own = plan_scan(self.after.without_files(), self._names).schema
        return own.append(pa.field(CHANGE_TYPE.name, pa.string()))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches, each of one kind. Files are read twice, and once more for each pass.

        Raises:
            DataFileError: a file cannot be read, such as one that VACUUM removed.
        """
        sides = {"delete": self._side(gone=True), "insert": self._side(gone=False)}
        if len(self.schema) == 1:
            return  # the versions have no column in common
        held = [_Held(), _Held()]
        total = 0
        for one, rows in zip(held, sides.values(), strict=True):
            for batch in rows():
                total += batch.num_rows
                if total <= _PASS:
                    one.add(row_hashes(batch))
        passes = max(1, -(-total // _PASS))
        for number in range(passes):
            if passes > 1:
                held = [_Held.of(rows(), number, passes) for rows in sides.values()]
            counts = [one.counted() for one in held]
            for (name, rows), own, other in zip(sides.items(), counts, reversed(counts), strict=True):
                left = _surplus(own, other)
                if len(left[0]):
                    yield from self._named(name, _take(rows(), left))

    def _named(self, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kind = pa.repeat(pa.scalar(name), batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, kind], schema=self.schema)

    def _side(self, *, gone: bool) -> Rows:
        """The rows that may be on one side only."""
        if self._feed is not None:
            return lambda: self._of_feed(gone=gone)
        own, other = (self.before, self.after) if gone else (self.after, self.before)
        return lambda: self._of_files(own, other)

    def _of_feed(self, *, gone: bool) -> Iterator[pa.RecordBatch]:
        for batch in self._feed.to_batches():
            is_gone = pc.is_in(batch.column(CHANGE_TYPE.name), value_set=_GONE)
            some = batch.filter(is_gone if gone else pc.invert(is_gone))
            if some.num_rows:
                yield some.drop_columns([item.name for item in FEED_COLUMNS])

    def _of_files(self, own: Snapshot, other: Snapshot) -> Iterator[pa.RecordBatch]:
        """The rows of the files that one version has and the other has not; of a file with another deletion vector
        the rows that the other one hides.
        """
        keys, others = keys_of(own.files), keys_of(other.files)
        same = is_among(keys, others)
        files = own.files.filter(pc.invert(same))
        there = {same_path(path) for path in files.column("path").to_pylist()}
        mask = pa.array([same_path(path) in there for path in other.files.column("path").to_pylist()], pa.bool_())
        theirs = {same_path(add.path): add.deletion_vector for add in to_adds(other.files.filter(mask))}
        adds = to_adds(files)
        shared = [add for add in adds if same_path(add.path) in theirs]
        hidden = load_deletion_vectors(own.store, [add.deletion_vector for add in shared])
        hides = load_deletion_vectors(own.store, [theirs[same_path(add.path)] for add in shared])
        changed = {add.path: after - before for add, before, after in zip(shared, hidden, hides, strict=True)}
        rows: list[BitMap64 | None] = [changed.get(add.path) for add in adds]
        wanted = [some is None or len(some) > 0 for some in rows]
        read_by = self.after if self._names is None else own
        scan = plan_scan(read_by.with_files(files.filter(pa.array(wanted, pa.bool_()))), self._names)
        return read_rows(scan, [some for some, want in zip(rows, wanted, strict=True) if want])

    def summary(self) -> dict[str, Any]:
        """The difference without its rows, as plain values for JSON. Reads the rows, to count them."""
        counts = {"delete": 0, "insert": 0}
        for batch in self.to_batches():
            counts[batch.column(CHANGE_TYPE.name)[0].as_py()] += batch.num_rows
        return {
            "versions": [self.before.version, self.after.version],
            "by": "change feed" if self.by_feed else "files",
            "deleted": counts["delete"],
            "inserted": counts["insert"],
            "columns": {name: list(pair) for name, pair in self.columns.items()},
            "properties": {name: list(pair) for name, pair in self.properties.items()},
            "protocol": {name: list(pair) for name, pair in self.features.items()},
        }

    def __repr__(self) -> str:
        return f"<VersionDiff of {self.after.store.uri}: version {self.before.version} to {self.after.version}>"


def _type(field: Any) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


# --- multisets of hashes ---------------------------------------------------------------------------------------------


class _Held:
    """The hashes of the rows of one side that are in memory."""

    def __init__(self) -> None:
        self.parts: list[Hashes] = [np.zeros(0, HASH)]

    @classmethod
    def of(cls, batches: Iterator[pa.RecordBatch], number: int, passes: int) -> _Held:
        """The hashes of one of several passes."""
        held = cls()
        for batch in batches:
            hashes = row_hashes(batch)
            held.add(hashes[hashes["one"] % np.uint64(passes) == number])
        return held

    def add(self, hashes: Hashes) -> None:
        """Add the hashes of a batch."""
        self.parts.append(hashes)

    def counted(self) -> tuple[Hashes, Hashes]:
        """The distinct hashes, ascending, and how many rows each has."""
        return np.unique(np.concatenate(self.parts), return_counts=True)


def _surplus(own: tuple[Hashes, Hashes], other: tuple[Hashes, Hashes]) -> tuple[Hashes, Hashes]:
    """The hashes with more rows on one side than on the other, and how many more."""
    hashes, counts = own[0], own[1].copy()
    if len(other[0]):
        at = np.minimum(np.searchsorted(other[0], hashes), len(other[0]) - 1)
        counts -= np.where(other[0][at] == hashes, other[1][at], 0)
    return hashes[counts > 0], counts[counts > 0]


def _take(batches: Iterator[pa.RecordBatch], wanted: tuple[Hashes, Hashes]) -> Iterator[pa.RecordBatch]:
    """The first rows with these hashes, as many as are wanted of each."""
    keys, left = wanted[0], wanted[1].copy()
    for batch in batches:
        hashes = row_hashes(batch)
        at = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
        rows = np.flatnonzero(keys[at] == hashes)
        # The number of each row among those of the batch with the same hash.
        order = rows[np.argsort(at[rows], kind="stable")]
        which, starts, counts = np.unique(at[order], return_index=True, return_counts=True)
        nth = np.arange(len(order)) - np.repeat(starts, counts)
        kept = np.sort(order[nth < np.repeat(left[which], counts)])
        left[which] -= np.minimum(left[which], counts)
        if len(kept):
            yield batch.take(pa.array(kept))
