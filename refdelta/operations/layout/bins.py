"""Which files a compaction rewrites together: bins of files of one partition (bin-packing).

As delta-spark has it, a file is worth a thought where it is smaller than a minimum, or where a vector hides more than
one row in twenty, and the files of a partition are put into bins up to the target size. Unlike there the files stay in
the order in which they were written: rows that came together stay together, and with them what statistics can tell
apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.arrow.arrays import one_array
from refdelta.engine.expressions.partition import partition_table
from refdelta.engine.log.state import unique_ids
from refdelta.engine.scan.file_stats import num_records
from refdelta.engine.scan.filters import row_filter
from refdelta.errors import InvalidArgumentError
from refdelta.operations.alter.names import dotted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.filters import RowFilter

# A file that has more of its rows deleted than this is worth rewriting alone, as delta-spark has it.
MAX_DELETED_RATIO = 0.05
# Tags of a file that a compaction wrote, by the names that delta-spark knows: its target size, and when the newest of
# its rows came, in microseconds since 1970.
TARGET_TAG = "OPTIMIZE_TARGET_SIZE"
INSERTION_TAG = "INSERTION_TIME"

# Tags of a file that clustering wrote, likewise: which files were written with it, and by which columns.
CUBE_TAG = "ZCUBE_ID"
CUBE_COLUMNS_TAG = "ZCUBE_ZORDER_BY"
PROVIDER = "liquid"
"""``clusteringProvider`` of a file that clustering by the table's clustering columns wrote."""
# Files that were clustered together are left alone once they are so many times the target, and are put together up to
# so many times: as delta-spark has it.
_FULL_CUBE, _MOST_CUBE = 100, 150

_POSITION = "position\n"

Aim = Literal["compact", "purge", "sort", "cluster", "upgrade"]
"""Why files are rewritten: to be fewer, to be without vectors, to be in another order (one that is named, or that of
the table's clustering columns), or to be as the table now wants its files.
"""


@dataclass(frozen=True)
class Bin:
    """Files that are rewritten together.

    Attributes:
        files: their rows of the snapshot's file list, in the order in which their rows are written.
        size: about how many bytes their live rows take.
        inserted: when the newest of their rows came, in microseconds since 1970.
        partition: tells the bins of one partition from those of others.
    """

    files: pa.Table
    size: int
    inserted: int
    partition: int


@dataclass(frozen=True)
class Plan:
    """What a compaction rewrites.

    Attributes:
        bins: in the order of the partitions.
        considered: how many files the partition filter left.
    """

    bins: list[Bin]
    considered: int


def partition_filter(filters: object, snapshot: Snapshot) -> RowFilter | None:
    """The filter by which a compaction chooses partitions.

    Args:
        filters: SQL, deltalake's list form, a ``pyarrow.compute.Expression``, or None.
        snapshot: of the table.

    Raises:
        InvalidArgumentError: it looks at columns other than partition columns; they are named.
        PredicateError: it cannot be parsed or bound.
    """
    if isinstance(filters, (list, tuple)) and not filters:
        return None
    flt = row_filter(filters, snapshot.schema)
    others = sorted(flt.columns - set(snapshot.partition_columns)) if flt else []
    if others:
        columns = ", ".join(snapshot.partition_columns) or "none"
        raise InvalidArgumentError(
            f"a compaction can be limited to partitions only, but the filter looks at {', '.join(others)}; "
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
) -> Plan:
    """Choose what to rewrite.

    Args:
        snapshot: the table.
        aim: ``compact`` takes small files and those with many deleted rows, and leaves what an earlier compaction to
            the same target made of them alone until others come to it; ``purge`` takes all files with deletion
            vectors; ``sort`` takes all files, and puts each partition into one bin; ``upgrade`` takes all files. Of a
            clustered table, the files that were clustered stay apart from others, which would undo it: they are not
            small, and are rewritten one by one.
        filters: from :func:`partition_filter`.
        target: up to how many bytes a bin takes, unless a single file has more.
        min_size: files of so many bytes are small no more.
        fresh: without ``filters``, which of the snapshot's files are new: partitions without one are passed over. None
            for all.
        least: partitions where fewer files are worth a thought are passed over.
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
    files = files.combine_chunks()  # of many pieces, Arrow puts all together again for each bin
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
                bins.append(Bin(files.take(pa.array(members)), size, inserted, number))
    return Plan(bins, files.num_rows)


def _clustered(snapshot: Snapshot, files: pa.Table) -> NDArray[np.bool_]:
    """Which files a clustering has made, as long as the table has clustering columns."""
    if not snapshot.clustering_columns:
        return np.zeros(files.num_rows, bool)
    return _flags(pc.is_valid(files.column("clusteringProvider")))


def cube_columns(columns: Iterable[Sequence[str]]) -> str:
    """The tag that says by which columns files were clustered."""
    return msgspec.json.encode([dotted(path) for path in columns]).decode()


def plan_clusters(snapshot: Snapshot, target: int, *, full: bool) -> Plan:
    """Choose what to cluster: what is not yet, and what was in runs so small that it is better put together.

    Args:
        snapshot: the table.
        target: about how many bytes a file should have.
        full: whether to take files as well that were clustered by other columns.

    Files of another ``clusteringProvider`` are left alone in any case (PROTOCOL.md, "Writer Requirements for Clustered
    Table").
    """
    files = snapshot.files
    if not files.num_rows:
        return Plan([], 0)
    facts = _Facts.of(files, target)
    cubes = pa.table({"cube": _tag(files, CUBE_TAG), "size": facts.sizes})
    totals = pa.TableGroupBy(cubes, "cube", use_threads=False).aggregate([("size", "sum")]).drop_null()
    large = totals.filter(pc.greater_equal(totals["size_sum"], _FULL_CUBE * target))["cube"]
    others = pc.fill_null(pc.not_equal(_tag(files, CUBE_COLUMNS_TAG), cube_columns(snapshot.clustering_columns)), False)
    foreign = pc.fill_null(pc.not_equal(one_array(files.column("clusteringProvider")), PROVIDER), False)
    done = pc.and_(pc.is_in(cubes["cube"], value_set=one_array(large)), pc.invert(others))
    chosen = np.flatnonzero(~_flags(done) & ~_flags(foreign) & (full | ~_flags(others)))
    # What is not clustered comes first, then what was clustered together.
    names = one_array(pc.fill_null(cubes["cube"], "")).dictionary_encode()
    ranks = np.argsort(np.argsort(names.dictionary.to_numpy(zero_copy_only=False)))[_numbers(names.indices)]
    chosen = chosen[np.lexsort((facts.inserted[chosen], ranks[chosen]))]
    files, cube = files.combine_chunks(), one_array(cubes["cube"])
    bins = []
    for members in _packed(chosen, facts.live_sizes, _MOST_CUBE * target):
        rows = pa.array(members)
        together = cube.take(rows)
        if not len(members) or (together.null_count == 0 and len(together.unique()) == 1 and not _any(others, rows)):
            continue  # they are of one run as they are
        size, inserted = int(facts.live_sizes[members].sum()), int(facts.inserted[members].max())
        bins.append(Bin(files.take(rows), size, inserted, 0))
    return Plan(bins, files.num_rows)


def _any(flags: pa.Array, rows: pa.Array) -> bool:
    return bool(pc.any(flags.take(rows)).as_py())


def _tag(files: pa.Table, name: str) -> pa.Array:
    return pc.map_lookup(one_array(files.column("tags")), query_key=name, occurrence="first")


def live(bins: Iterable[Bin], snapshot: Snapshot) -> list[Bin]:
    """The bins all of whose files are in a newer version as they were when they were planned."""
    bins = list(bins)
    if not bins:
        return []
    now = _keys(snapshot.files)
    return [each for each in bins if pc.all(pc.is_in(_keys(each.files), value_set=now)).as_py()]


def _keys(files: pa.Table) -> pa.Array:
    vectors = pc.fill_null(one_array(unique_ids(files)), "")
    return pc.binary_join_element_wise(one_array(files.column("path")), vectors, "\0")


@dataclass(frozen=True)
class _Facts:
    """What is known of each file, by its position in the list.

    Attributes:
        sizes: in bytes.
        live_sizes: about how many bytes its live rows take.
        vectors: whether it has a deletion vector.
        purge: whether its vector hides so many rows that it is worth rewriting alone.
        done: whether it is what a compaction to this target made.
        written: when it was written, in milliseconds since 1970.
        inserted: when the newest of its rows came, in microseconds since 1970.
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
        deleted = _numbers(pc.fill_null(pc.struct_field(files.column("deletionVector"), "cardinality"), 0))
        vectors = _flags(pc.is_valid(files.column("deletionVector")))
        records = num_records(files)
        rows = _numbers(pc.fill_null(records, 0))
        share = np.divide(deleted, rows, out=np.zeros(len(rows)), where=rows > 0)
        tags = one_array(files.column("tags"))
        done = pc.equal(pc.map_lookup(tags, TARGET_TAG, "first"), str(target))
        written = _numbers(files.column("modificationTime"))
        # Other engines' tags are not to be trusted further than that.
        said = pc.map_lookup(tags, INSERTION_TAG, "first")
        said = pc.if_else(pc.match_substring_regex(said, "^[0-9]{1,18}$"), said, None).cast(pa.int64())
        return cls(
            sizes,
            (sizes * (1 - np.minimum(share, 1))).astype(np.int64),
            vectors,
            (share > MAX_DELETED_RATIO) | (vectors & ~_flags(pc.is_valid(records))),
            _flags(pc.fill_null(done, False)),
            written,
            _numbers(pc.coalesce(said, pa.array(written * 1000))),
        )

    def seen(self, partition: NDArray[np.int64]) -> int:
        """Until when compactions to this target may have seen a partition's files, in milliseconds since 1970."""
        made = partition[self.done[partition]]
        return int(self.written[made].max(initial=-1))

    def worthwhile(self, members: NDArray[np.int64], seen: int) -> bool:
        """Whether rewriting these files gives fewer of them, or frees rows that were deleted; ``seen`` is from
        :meth:`seen`.

        What a compaction made would only be made again, and a file that it left alone did not fit then: a second run
        is to find nothing to do. But two that were left alone may come of one that was broken off.
        """
        if self.purge[members].any():
            return True
        others = members[~self.done[members]]
        return len(members) > 1 and (len(others) > 1 or bool((self.written[others] > seen).any()))


def _partitions(snapshot: Snapshot, files: pa.Table) -> Iterator[NDArray[np.int64]]:
    """The positions of the files of each partition. Values are compared, not the log's strings: writers spell the same
    timestamp in several ways.
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
    """Cut a row of files where the next one would exceed the target."""
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
