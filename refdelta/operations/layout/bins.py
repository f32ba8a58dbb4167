"""The plan of a compaction: bins of files of one partition that are rewritten together (bin-packing).

As in delta-spark, a file is a candidate if it is smaller than a minimum, or if a deletion vector hides more than one
row in twenty, and the files of a partition are put into bins up to the target size. The files keep the order in which
they were written, other than in delta-spark: rows of the same time stay together, so that statistics stay selective.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import few_chunks, is_among, one_array, scalar_of, take
from refdelta.arrow.partition import partition_table
from refdelta.engine.log.state import keys_of
from refdelta.engine.scan.file_stats import num_deleted, num_records
from refdelta.engine.scan.filters import row_filter
from refdelta.errors import InvalidArgumentError
from refdelta.table.column_names import dotted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.filters import RowFilter
    from refdelta.operations.layout import Aim

# A file with a greater share of deleted rows is rewritten alone, as in delta-spark.
MAX_DELETED_RATIO = 0.05
# Tags of a file that a compaction wrote, by delta-spark's names: the target size, and the time at which the newest of
# its rows was inserted, in microseconds since 1970.
TARGET_TAG = "OPTIMIZE_TARGET_SIZE"
INSERTION_TAG = "INSERTION_TIME"

# Tags of a file that clustering wrote, by delta-spark's names: the id of its run, and the columns of the clustering.
CUBE_TAG = "ZCUBE_ID"
CUBE_COLUMNS_TAG = "ZCUBE_ZORDER_BY"
PROVIDER = "liquid"
"""``clusteringProvider`` of a file that clustering by the table's clustering columns wrote."""
# In target sizes: the size from which a run of clustered files is not rewritten again, and the maximum size of a run;
# same as delta-spark.
_FULL_CUBE, _MOST_CUBE = 100, 150

_POSITION = "position\n"


@dataclass(frozen=True)
class Bin:
    """Files that are rewritten together.

    Attributes:
        members: their positions in the plan's list of files, in the order in which their rows are written.
        size: the approximate size of their live rows, in bytes.
        inserted: the time at which the newest of their rows was inserted, in microseconds since 1970.
        partition: a number of the partition; bins of the same partition have the same one.
    """

    members: NDArray[np.int64]
    size: int
    inserted: int
    partition: int


@dataclass(frozen=True)
class BinFiles:
    """A bin with its own files, so that the task that rewrites it does not need the whole list, which may be long.

    Attributes:
        files: their rows of the snapshot's file list, in the order in which their rows are written.
        inserted: as in :class:`Bin`.
    """

    files: pa.Table
    inserted: int


@dataclass(frozen=True)
class BinPlan:
    """The plan of a rewrite.

    Attributes:
        files: the files in the partitions of the filter, as rows of the snapshot's file list.
        bins: the bins, in the order of the partitions.
    """

    files: pa.Table
    bins: list[Bin]

    def files_of(self, each: Bin) -> BinFiles:
        """One of the bins with its files."""
        return BinFiles(take(self.files, pa.array(each.members)), each.inserted)

    def unchanged(self, bins: Iterable[Bin], snapshot: Snapshot) -> list[Bin]:
        """The bins of the plan of which all files are the same in a newer version."""
        bins = list(bins)
        if not bins:
            return []
        same = _flags(is_among(keys_of(self.files), keys_of(snapshot.files)))
        return [each for each in bins if same[each.members].all()]


def partition_filter(filters: object, snapshot: Snapshot) -> RowFilter | None:
    """The filter of a compaction's partitions.

    Args:
        filters: SQL, deltalake's list of conditions, a ``pyarrow.compute.Expression``, or None.
        snapshot: the table.

    Raises:
        InvalidArgumentError: it uses columns that are not partition columns; the message names them.
        PredicateError: it cannot be parsed or bound.
    """
    if isinstance(filters, (list, tuple)) and not filters:
        return None
    flt = row_filter(filters, snapshot.schema)
    others = sorted(flt.columns - set(snapshot.partition_columns)) if flt else []
    if others:
        columns = ", ".join(snapshot.partition_columns) or "none"
        raise InvalidArgumentError(
            f"a compaction can be limited to partitions only, but the filter uses {', '.join(others)}; "
            f"the partition columns are: {columns}"
        )
    return flt


def plan_bins(
    snapshot: Snapshot,
    aim: Aim,
    *,
    filters: RowFilter | None,
    target: int,
    min_size: int,
    fresh: pa.Array | None = None,
    least: int = 0,
) -> BinPlan:
    """Plan a rewrite, except for clustering.

    On a clustered table, clustered files are not merged with others, which would undo the clustering: they do not count
    as small, and are rewritten one by one.

    Args:
        snapshot: the table.
        aim: ``compact`` chooses small files and files with many deleted rows; files of an earlier compaction to the
            same target are chosen only together with new files. ``purge`` chooses all files with deletion vectors.
            ``sort`` chooses all files, with one bin for each partition. ``upgrade`` chooses all files.
        filters: from :func:`partition_filter`.
        target: the maximum size of a bin of several files, in bytes.
        min_size: the size in bytes from which a file is not small.
        fresh: without ``filters``, a mask of the snapshot's new files: partitions without a new file are skipped. None
            for all files.
        least: partitions with fewer candidates are skipped.
    """
    files = snapshot.files
    if filters is not None:
        files = files.filter(filters.prune(files, snapshot.schema, snapshot.partition_columns).keep)
    facts = _Facts.of(files, target)
    clustered = _clustered(snapshot, files)
    wanted = {
        "compact": ((facts.sizes < min_size) & ~clustered) | facts.purge,
        "purge": facts.vectors,
        "sort": np.ones(files.num_rows, bool),
        "upgrade": np.ones(files.num_rows, bool),
    }[aim]
    touched = np.ones(files.num_rows, bool) if fresh is None else _flags(fresh)
    files = few_chunks(files)  # each bin looks at all chunks
    bins = []
    for number, positions in enumerate(_partitions(snapshot, files)):
        chosen = positions[wanted[positions]]
        if len(chosen) < least or not touched[positions].any():
            continue
        chosen = chosen[np.argsort(facts.inserted[chosen], kind="stable")]
        apart, loose = chosen[clustered[chosen]], chosen[~clustered[chosen]]
        packed = [loose] if aim == "sort" else _packed(loose, facts.live_sizes, target)
        seen = facts.seen(positions[~clustered[positions]])
        for members in (*packed, *apart[:, None]):
            if len(members) and (aim != "compact" or facts.worthwhile(members, seen)):
                size, inserted = int(facts.live_sizes[members].sum()), int(facts.inserted[members].max())
                bins.append(Bin(members, size, inserted, number))
    return BinPlan(files, bins)


def _clustered(snapshot: Snapshot, files: pa.Table) -> NDArray[np.bool_]:
    """A mask of the files that clustering wrote; all False if the table has no clustering columns."""
    if not snapshot.clustering_columns:
        return np.zeros(files.num_rows, bool)
    return _flags(pc.is_valid(files.column("clusteringProvider")))


def cube_columns(columns: Iterable[Sequence[str]]) -> str:
    """The value of the tag with the columns of a clustering."""
    return msgspec.json.encode([dotted(path) for path in columns]).decode()


def plan_clusters(snapshot: Snapshot, target: int, *, full: bool) -> BinPlan:
    """Plan a clustering: the files that are not clustered yet, and small runs of earlier clusterings.

    Files of another ``clusteringProvider`` are never chosen (PROTOCOL.md, "Writer Requirements for Clustered Table").

    Args:
        snapshot: the table.
        target: the approximate size of a file, in bytes.
        full: also choose files that were clustered by other columns.
    """
    files = snapshot.files
    if not files.num_rows:
        return BinPlan(files, [])
    facts = _Facts.of(files, target)
    cubes = pa.table({"cube": _tag(files, CUBE_TAG), "size": facts.sizes})
    totals = pa.TableGroupBy(cubes, "cube", use_threads=False).aggregate([("size", "sum")]).drop_null()
    large = totals.filter(pc.greater_equal(totals["size_sum"], _FULL_CUBE * target))["cube"]
    others = pc.fill_null(pc.not_equal(_tag(files, CUBE_COLUMNS_TAG), cube_columns(snapshot.clustering_columns)), False)
    foreign = pc.fill_null(pc.not_equal(files.column("clusteringProvider"), PROVIDER), False)
    done = pc.and_(is_among(cubes["cube"], large), pc.invert(others))
    chosen = np.flatnonzero(~_flags(done) & ~_flags(foreign) & (full | ~_flags(others)))
    # Files that are not clustered come first, then the files of each run.
    names = one_array(pc.fill_null(cubes["cube"], "").dictionary_encode())
    ranks = np.argsort(np.argsort(names.dictionary.to_numpy(zero_copy_only=False)))[_numbers(names.indices)]
    chosen = chosen[np.lexsort((facts.inserted[chosen], ranks[chosen]))]
    files, cube, bins = few_chunks(files), _numbers(names.indices), []
    cubeless = _flags(cubes["cube"].is_null())
    others = _flags(others)
    for members in _packed(chosen, facts.live_sizes, _MOST_CUBE * target):
        of_one_run = len(np.unique(cube[members])) == 1 and not cubeless[members].any() and not others[members].any()
        if not len(members) or of_one_run:
            continue  # all are of one run already
        size, inserted = int(facts.live_sizes[members].sum()), int(facts.inserted[members].max())
        bins.append(Bin(members, size, inserted, 0))
    return BinPlan(files, bins)


def _tag(files: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.map_lookup(files.column("tags"), query_key=name, occurrence="first")


@dataclass(frozen=True)
class _Facts:
    """Facts about each file, as arrays in the order of the list.

    Attributes:
        sizes: its size in bytes.
        live_sizes: the approximate size of its live rows, in bytes.
        vectors: whether it has a deletion vector.
        purge: whether its deletion vector hides so many rows that it is rewritten alone.
        done: whether a compaction to this target wrote it.
        written: the time at which it was written, in milliseconds since 1970.
        inserted: the time at which the newest of its rows was inserted, in microseconds since 1970.
    """

    sizes: NDArray[np.int64]
    live_sizes: NDArray[np.int64]
    vectors: NDArray[np.bool_]
    purge: NDArray[np.bool_]
    done: NDArray[np.bool_]
    written: NDArray[np.int64]
    inserted: NDArray[np.int64]

    @classmethod
    def of(cls, files: pa.Table, target: int) -> _Facts:
        sizes = _numbers(files.column("size"))
        deleted = _numbers(num_deleted(files))
        vectors = _flags(pc.is_valid(files.column("deletionVector")))
        records = num_records(files)
        rows = _numbers(pc.coalesce(records, scalar_of(0, pa.int64())))
        share = np.divide(deleted, rows, out=np.zeros(len(rows)), where=rows > 0)
        done = pc.equal(_tag(files, TARGET_TAG), str(target))
        written = _numbers(files.column("modificationTime"))
        # Another engine may have written something else into this tag.
        tagged = one_array(_tag(files, INSERTION_TAG))
        tagged = pc.if_else(pc.match_substring_regex(tagged, "^[0-9]{1,18}$"), tagged, None).cast(pa.int64())
        return cls(
            sizes,
            # The log may state any size; as a float, the greatest ones are beyond 64 bits.
            np.minimum(sizes * (1 - np.minimum(share, 1)), 2.0**62).astype(np.int64),
            vectors,
            (share > MAX_DELETED_RATIO) | (vectors & ~_flags(pc.is_valid(records))),
            _flags(pc.fill_null(done, False)),
            written,
            _numbers(pc.coalesce(tagged, pa.array(written * 1000))),
        )

    def seen(self, partition: NDArray[np.int64]) -> int:
        """The time of the newest compaction of a partition to this target, in milliseconds since 1970; -1 if none."""
        made = partition[self.done[partition]]
        return int(self.written[made].max(initial=-1))

    def worthwhile(self, members: NDArray[np.int64], seen: int) -> bool:
        """True if rewriting these files makes fewer of them, or removes deleted rows.

        A second compaction must have nothing to do: the output of an earlier one would only be written again, and a
        file that the earlier one left did not fit into a bin. Two files that it left may remain from an interrupted
        one, so these are merged.

        Args:
            members: the positions of the files.
            seen: the result of :meth:`seen` for their partition.
        """
        if self.purge[members].any():
            return True
        others = members[~self.done[members]]
        return len(members) > 1 and (len(others) > 1 or bool((self.written[others] > seen).any()))


def _partitions(snapshot: Snapshot, files: pa.Table) -> Iterator[NDArray[np.int64]]:
    """The positions of the files of each partition.

    Typed values are compared, since the log can have the same timestamp in several spellings.
    """
    if not snapshot.partition_columns:
        yield np.arange(files.num_rows)
        return
    typed = partition_table(files, snapshot.schema, snapshot.partition_columns)
    numbered = typed.append_column(_POSITION, pa.array(np.arange(files.num_rows)))
    grouped = pa.TableGroupBy(numbered, typed.column_names, use_threads=False).aggregate([(_POSITION, "list")])
    for positions in one_array(grouped.column(f"{_POSITION}_list")):
        yield positions.values.to_numpy()


def _packed(members: NDArray[np.int64], sizes: NDArray[np.int64], target: int) -> Sequence[NDArray[np.int64]]:
    """Cut a sequence of files into parts up to the target size."""
    cuts, total = [], 0
    for index, size in enumerate(sizes[members].tolist()):
        if total and total + size > target:
            cuts.append(index)
            total = 0
        total += size
    return [members[start:end] for start, end in itertools.pairwise([0, *cuts, len(members)])]


def _numbers(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    return np.asarray(one_array(column).to_numpy(zero_copy_only=False), np.int64)


def _flags(column: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    return np.asarray(one_array(column).to_numpy(zero_copy_only=False), bool)
