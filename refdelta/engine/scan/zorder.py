"""Sorting rows along a Z-curve or a Hilbert curve, so that rows with similar values in several columns share files.

The position of a row on a Z-curve is made of the ranks of its values: their bits are interleaved, the highest first. A
Hilbert curve continues to an adjacent square where a Z-curve jumps. Ranks are relative to a sample, so that the highest
bit of a column halves the rows for any distribution of values. Null is before all values, NaN after them; strings and
binary values are ordered by their bytes. Rows at the same position are in the order of the columns.

Memory is bounded: rows that do not fit are split by ranges of the curve into temporary files, each of which is sorted
by itself.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import concat, few_chunks, one_array, take
from refdelta.engine.parquet.dictionaries import joined, plain, text_size
from refdelta.engine.work.executor import at_least
from refdelta.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Places = NDArray[np.uint64]

Column = tuple[str, ...]
"""A column's path: its name, followed by the names of fields of structs."""

Read = Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]]
"""Returns rows, with the given top-level columns or all. May be called again, for the same rows."""

# The most bytes of Arrow's memory that are sorted at once; the sorted copy takes as many again.
SORT_BYTES = 256 * 1024 * 1024
# Rows of the sample by which values are ranked.
SAMPLE_ROWS = 128 * 1024
# The most temporary files that are open at once. A piece that is still too large is split again.
_FILES = 256
# Strings are ranked by so many characters, so that the sample stays small.
_PREFIX = 64
_BITS = 64
_BATCH_ROWS = 64 * 1024


def z_ordered(
    read: Read,
    columns: Sequence[Column],
    *,
    hilbert: bool = False,
    memory: int | None = None,
    disk: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows in the order of a curve through some columns.

    Args:
        read: returns the rows; called again, for these columns alone, if they do not fit into memory. Other string
            columns may be dictionaries.
        columns: one or more, of types with an order.
        hilbert: whether the curve is a Hilbert curve; otherwise it is a Z-curve.
        memory: the most bytes that are sorted at once; None for :data:`SORT_BYTES`.
        disk: the most bytes of temporary files; None for no limit.

    Raises:
        InvalidArgumentError: the temporary files would need more than ``disk``.
    """
    yield from _Sort(tuple(columns), hilbert, SORT_BYTES if memory is None else memory, _Disk(disk)).run(read)


class Curve:
    """A curve through columns whose values are distributed as in a sample.

    Args:
        sample: a random sample of up to :data:`SAMPLE_ROWS` rows.
        columns: the columns, most important first.
        hilbert: whether it is a Hilbert curve; otherwise it is a Z-curve.
    """

    def __init__(self, sample: pa.Table, columns: Sequence[Column], *, hilbert: bool = False):
        self._columns, self._hilbert = columns, hilbert
        # 64 of the interleaved bits distinguish more rows than there are. A rank has at most 32 bits, since the sample
        # has fewer rows.
        self._bits = min(_BITS // 2, -(-_BITS // len(columns)))
        self._ranks = [_Ranks(_keys(sample, column), self._bits) for column in columns]

    def places(self, rows: pa.Table) -> Places:
        """The position of each row on the curve."""
        ranks = [known.of(_keys(rows, column)) for known, column in zip(self._ranks, self._columns, strict=True)]
        if self._hilbert:
            ranks = hilbert_ranks(ranks, self._bits)
        places: Places = np.zeros(rows.num_rows, np.uint64)
        pairs = itertools.product(range(self._bits), range(len(ranks)))
        for position, (bit, column) in enumerate(itertools.islice(pairs, _BITS)):
            one = (ranks[column] >> np.uint64(self._bits - 1 - bit)) & np.uint64(1)
            places |= one << np.uint64(_BITS - 1 - position)
        return places

    def order(self, rows: pa.Table) -> pa.Array:
        """The indices that sort rows along the curve, and rows at the same position by the columns."""
        keys = {str(i): _leaf(rows, column) for i, column in enumerate(self._columns)}
        table = pa.table({"place": pa.array(self.places(rows)), **keys})
        return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])


def hilbert_ranks(ranks: Sequence[Places], bits: int) -> list[Places]:
    """The numbers to interleave for a position on a Hilbert curve, instead of the ranks of the columns.

    From the coarsest square to the finest, each square is rotated or mirrored according to its position in the next
    coarser one, and a Gray code orders the squares in it, so that neighbours on the curve are adjacent.

    Args:
        ranks: the ranks of each column.
        bits: the number of bits of each rank.
    """
    turned = np.array(ranks)
    for bit in range(bits - 1, 0, -1):
        one, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for column in range(len(turned)):
            upper = (turned[column] & one) != 0
            swap = np.where(upper, np.uint64(0), (turned[0] ^ turned[column]) & below)
            turned[column] ^= swap
            turned[0] ^= np.where(upper, below, swap)
    for column in range(1, len(turned)):
        turned[column] ^= turned[column - 1]
    flips: Places = np.zeros(turned.shape[1], np.uint64)
    for bit in range(bits - 1, 0, -1):
        flips ^= np.where((turned[-1] & np.uint64(1 << bit)) != 0, np.uint64((1 << bit) - 1), np.uint64(0))
    return list(turned ^ flips)


class _Ranks:
    """Ranks of values in a sample, scaled to ``2**bits``: equal values have the middle of their ranks."""

    def __init__(self, sample: pa.Array, bits: int):
        values = sample.drop_null()
        self._nulls = len(sample) - len(values)
        self._sorted = values.take(pc.sort_indices(values))
        changes = pc.not_equal(self._sorted.slice(1), self._sorted.slice(0, max(0, len(values) - 1)))
        # For each sorted value, the number of values that are not above it; each NaN counts as a distinct value.
        ends = np.append(np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1, len(values))
        self._upto = ends[np.searchsorted(ends, np.arange(len(values)), side="right")]
        self._scale = 2.0**bits / max(1, len(sample))
        self._highest = np.uint64(2**bits - 1)

    def of(self, column: pa.Array) -> Places:
        rank = np.full(len(column), self._nulls / 2)
        values = column.drop_null()
        if len(values) and len(self._sorted):
            valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
            below = self._below(values)
            nearest = np.minimum(below, len(self._sorted) - 1)
            equal = pc.equal(self._sorted.take(pa.array(nearest)), values).to_numpy(zero_copy_only=False)
            rank[valid] = self._nulls + (below + np.where(equal, self._upto[nearest], below)) / 2
        return np.minimum(rank * self._scale, float(self._highest)).astype(np.uint64)

    def _below(self, values: pa.Array) -> NDArray[np.int64]:
        # The sort is stable, so that a value comes before equal values of the sample.
        order = pc.sort_indices(concat([values, self._sorted])).to_numpy().astype(np.int64)
        from_sample = order >= len(values)
        ranks = np.cumsum(from_sample)
        below = np.empty(len(values), np.int64)
        below[order[~from_sample]] = ranks[~from_sample]
        return below


@dataclass(slots=True)
class _Disk:
    """The limit of the temporary files and their size, in bytes."""

    limit: int | None
    used: int = 0

    def take(self, size: int) -> None:
        self.used += size
        if self.limit is not None and self.used > self.limit:
            raise InvalidArgumentError(
                f"sorting needs more than {self.limit} bytes of temporary files; raise max_temp_directory_size, or "
                "max_spill_size to sort more in memory"
            )


@dataclass(eq=False, slots=True)
class _Piece:
    """The rows of one range of the curve, in a temporary file."""

    path: Path
    rows: int = 0
    size: int = 0
    writer: Any = None

    def write(self, rows: pa.Table, open_files: ExitStack) -> None:
        if self.writer is None:
            self.writer = open_files.enter_context(pa.ipc.new_file(str(self.path), rows.schema))
        self.writer.write_table(rows, max_chunksize=_BATCH_ROWS)
        self.rows += rows.num_rows
        self.size += rows.nbytes

    def read(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self.path)) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                yield batch if columns is None else batch.select(list(columns))


@dataclass(frozen=True)
class _Sort:
    columns: tuple[Column, ...]
    hilbert: bool
    memory: int
    disk: _Disk = field(repr=False)

    def run(self, read: Read, curve: Curve | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order; ``curve`` is given for a piece of a larger sort."""
        source, held, size = read(None), [], 0
        for batch in source:
            held.append(batch)
            size += text_size(batch)
            if size > self.memory:
                break
        else:
            if held:
                yield from self._in_memory(held, curve)
            return
        width = size / sum(batch.num_rows for batch in held)
        sample, total = self._sample(read)
        curve = curve or Curve(sample, self.columns, hilbert=self.hilbert)
        cuts = self._cuts(curve.places(sample), total * width)
        with tempfile.TemporaryDirectory(prefix="refdelta-z-order-") as folder:
            pieces = self._split(itertools.chain(held, source), curve, cuts, Path(folder))
            held.clear()
            for piece in pieces:
                # Rows at the same position cannot be split, and need no sorting.
                yield from piece.read(None) if piece.rows == total else self.run(piece.read, curve)
                piece.path.unlink()
                self.disk.used -= piece.size

    def _in_memory(self, held: list[pa.RecordBatch], curve: Curve | None) -> Iterator[pa.RecordBatch]:
        rows = joined(held)
        held.clear()  # so that they are gone once they are copied
        if curve is None:
            sampler = _Sampler()
            sampler.add(rows.select(self._names))
            curve = Curve(sampler.rows(), self.columns, hilbert=self.hilbert)
        order = curve.order(rows)
        rows = few_chunks(rows)
        for start in range(0, rows.num_rows, _BATCH_ROWS):
            yield from take(rows, order.slice(start, _BATCH_ROWS)).to_batches()

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(column[0] for column in self.columns))

    def _sample(self, read: Read) -> tuple[pa.Table, int]:
        sampler = _Sampler()
        for batch in read(self._names):
            sampler.add(pa.Table.from_batches([batch]))
        return sampler.rows(), sampler.seen

    def _cuts(self, sample: Places, size: float) -> Places:
        """The positions at which the curve is cut, so that each piece of ``size`` bytes in total fits into memory."""
        # Pieces of half the memory, since sizes are estimated from a sample; at least four, so that pieces get smaller.
        count = min(_FILES, max(4, int(-(-size // max(1, self.memory // 2)))))
        along = np.sort(sample)
        cuts, times = np.unique(along[np.arange(1, count) * len(along) // count], return_counts=True)
        # A position with more rows than a piece should have is a piece of its own.
        crowded = cuts[(times > 1) & (cuts < np.iinfo(np.uint64).max)]
        return np.union1d(cuts, crowded + np.uint64(1))

    def _split(self, batches: Iterator[pa.RecordBatch], curve: Curve, cuts: Places, folder: Path) -> list[_Piece]:
        pieces = [_Piece(folder / f"{number}.arrow") for number in range(len(cuts) + 1)]
        with ExitStack() as open_files:
            for rows in _chunks(batches, self.memory // 4):
                ranges = np.searchsorted(cuts, curve.places(rows), side="right")
                order = np.argsort(ranges, kind="stable")
                ends = np.cumsum(np.bincount(ranges, minlength=len(pieces)))
                grouped = take(rows, pa.array(order))
                for piece, start, end in zip(pieces, [0, *ends], ends, strict=False):
                    if start < end:
                        piece.write(grouped.slice(start, end - start), open_files)
                self.disk.take(grouped.nbytes)
        return [piece for piece in pieces if piece.rows]


class _Sampler:
    """A uniform random sample of a stream of rows."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._held: list[pa.Table] = []
        self._draws: list[NDArray[np.float64]] = []
        self._count = 0
        self.seen = 0

    def add(self, rows: pa.Table) -> None:
        self.seen += rows.num_rows
        self._held.append(rows)
        self._draws.append(self._random.random(rows.num_rows))
        self._count += rows.num_rows
        if self._count > 2 * SAMPLE_ROWS:
            self._keep()

    def rows(self) -> pa.Table:
        self._keep()
        return self._held[0]

    def _keep(self) -> None:
        """Keep the rows with the lowest draws."""
        rows, draws = pa.concat_tables(self._held), np.concatenate(self._draws)
        if len(draws) > SAMPLE_ROWS:
            kept = np.argpartition(draws, SAMPLE_ROWS)[:SAMPLE_ROWS]
            rows, draws = take(rows, pa.array(kept)), draws[kept]
        self._held, self._draws, self._count = [rows], [draws], len(draws)


def _chunks(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The same rows in tables of about ``size`` bytes, so that each write to a temporary file is large enough.

    Dictionaries are decoded, since a file in Arrow's format can have only one for each column.
    """
    return map(pa.Table.from_batches, at_least(map(plain, batches), lambda batch: batch.nbytes, size))


def _leaf(rows: pa.Table, column: Column) -> pa.Array:
    values = one_array(rows.column(column[0]))
    return pc.struct_field(values, list(column[1:])) if len(column) > 1 else values


def _keys(rows: pa.Table, column: Column) -> pa.Array:
    """The values by which a column is ranked."""
    values = _leaf(rows, column)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, _PREFIX)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pc.binary_slice(values, 0, _PREFIX)
    return values
