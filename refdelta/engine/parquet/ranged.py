"""Parquet over a network, in few requests.

A small object is fetched whole. Of a larger one the footer is fetched first, then the wanted columns of one chunk of
row groups after the other; a chunk is one row group, or several small ones. Columns that are close to each other are
one request, and the requests of a chunk run in parallel. While a chunk is decoded, the next one is fetched if it is
small. At most two chunks are held, never the file.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.engine.parquet.limits import BoundedParquetFile, chunk_start, wanted_leaves
from refdelta.engine.work.executor import GAP_BYTES, REQUEST_BYTES, at_most, submitted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from refdelta_storage.base import Store

    Range = tuple[int, int]  # the first byte, and how many

# Objects of up to so many bytes are fetched whole: one more request takes 30 to 60 ms, as long as fetching so much.
WHOLE_BYTES = 4 * 2**20
# The first read of a larger one, from its end. Footers of some hundred columns and row groups fit.
FOOTER_BYTES = 64 * 2**10
# The most bytes of a chunk of several row groups. A larger row group is not fetched ahead.
CHUNK_BYTES = 16 * 2**20
_MAGIC = b"PAR1"


def open_ranged(store: Store, key: str, size: int | None, *, footer_only: bool, **options: Any) -> BoundedParquetFile:
    """Open a Parquet file of a remote store.

    Args:
        store: the store.
        key: the file.
        size: its size in bytes by the log, or None. It is a hint: a wrong one costs requests.
        footer_only: whether nothing but the footer will be read.
        options: for ``ParquetFile``.

    Raises:
        ObjectNotFoundError: the file does not exist; any other error of the store or of pyarrow.
    """
    store = store.steady()  # another writer may replace a checkpoint meanwhile
    if size is None:
        size = store.head(key).size
    whole = size <= WHOLE_BYTES and not footer_only
    size, tail = _tail(store, key, size, size if whole else FOOTER_BYTES)
    if not tail.endswith(_MAGIC):
        size, tail = _tail(store, key, store.head(key).size, FOOTER_BYTES)
    # The length of the footer is written before the magic number.
    longer = min(int.from_bytes(tail[-8:-4], "little") + 8, size) - len(tail)
    if longer > 0:
        tail = store.get_range(key, size - len(tail) - longer, longer) + tail
    if len(tail) == size:
        return BoundedParquetFile(pa.BufferReader(tail), lambda start, length: tail[start : start + length], **options)
    return RangedParquetFile(_Window(store, key, size, tail), **options)


def _tail(store: Store, key: str, size: int, wanted: int) -> tuple[int, bytes]:
    """The size of an object and its last bytes, of which there are fewer if the object is shorter than ``size``."""
    start = max(0, size - wanted)
    data = store.get_range(key, start, max(0, size) - start)
    return start + len(data), data


class RangedParquetFile(BoundedParquetFile):
    """A ``ParquetFile`` that fetches a row group before it is decoded."""

    far = True

    def __init__(self, window: _Window, **options: Any):
        self._window = window
        super().__init__(pa.PythonFile(window, mode="r"), window.bytes_at, **options)

    def iter_batches(
        self,
        batch_size: int = 64 * 1024,
        row_groups: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Same as ``ParquetFile.iter_batches``."""
        window, pending = self._window, None
        chunks = _chunks(self._row_groups(row_groups, columns))
        following = next(chunks, None)
        with ThreadPoolExecutor(1, thread_name_prefix="refdelta-ahead") as ahead:
            while following is not None:
                chunk, following = following, next(chunks, None)
                window.pieces = {}
                window.pieces = window.fetch(chunk.ranges) if pending is None else pending.result()
                soon = following is not None and following.size <= CHUNK_BYTES
                pending = submitted(ahead, window.fetch, following.ranges) if following and soon else None
                yield from super().iter_batches(batch_size, row_groups=chunk.groups, columns=columns, **options)
        window.pieces = {}

    def _row_groups(
        self, groups: Iterable[int] | None, columns: Sequence[str] | None
    ) -> Iterator[tuple[int, list[Range]]]:
        """Row groups, all if None, each with the ranges of some columns."""
        footer = self.footer
        leaves = wanted_leaves(footer, columns)
        for number in range(footer.num_row_groups) if groups is None else groups:
            group = footer.row_group(number)
            yield number, [(chunk_start(chunk), chunk.total_compressed_size) for chunk in map(group.column, leaves)]


@dataclass
class _FetchChunk:
    """Row groups that are fetched together, ``ranges`` of ``size`` bytes together."""

    groups: list[int]
    ranges: list[Range]
    size: int


def _chunks(row_groups: Iterable[tuple[int, list[Range]]]) -> Iterator[_FetchChunk]:
    sized = ((group, ranges, sum(length for _, length in ranges)) for group, ranges in row_groups)
    for some in at_most(sized, lambda item: item[2], CHUNK_BYTES):
        ranges = [range_ for _, ranges, _ in some for range_ in ranges]
        yield _FetchChunk([group for group, _, _ in some], ranges, sum(size for _, _, size in some))


def join_ranges(ranges: Iterable[Range], size: int) -> list[Range]:
    """Ranges of an object, joined where the gap between them is small, up to :data:`REQUEST_BYTES`.

    Args:
        ranges: in any order; they may overlap, and a damaged footer may make them invalid.
        size: of the object, in bytes. Bytes beyond it are left out.
    """
    joined: list[Range] = []
    for start, length in sorted(ranges):
        first, end = max(0, start), min(size, start + length)
        if first >= end:
            continue
        if joined:
            before, held = joined[-1]
            covered = before + held
            if first < covered or (first - covered <= GAP_BYTES and end - before <= REQUEST_BYTES):
                joined[-1] = (before, max(covered, end) - before)
                continue
        joined.append((first, end - first))
    return joined


class _Window:
    """The input of pyarrow: an object of which the end and some ranges are held. Other bytes are fetched when they are
    read.
    """

    closed = False

    def __init__(self, store: Store, key: str, size: int, tail: bytes):
        self.size = size
        self.pieces: dict[int, bytes] = {}
        self._store, self._key = store, key
        self._tail, self._tail_start = memoryview(tail), size - len(tail)
        self._position = 0

    def fetch(self, ranges: Iterable[Range]) -> dict[int, bytes]:
        """The bytes of ranges, by their positions. The held end of the object is not fetched again."""
        missing = [range_ for range_ in join_ranges(ranges, self.size) if range_[0] < self._tail_start]
        parts = [
            (start + at, min(REQUEST_BYTES, length - at))
            for start, length in missing
            for at in range(0, length, REQUEST_BYTES)
        ]
        found = self._store.get_ranges(self._key, parts) if parts else []
        found.reverse()
        pieces = {}
        for start, length in missing:
            count = -(-length // REQUEST_BYTES)
            # Parts are freed as they are joined.
            pieces[start] = found.pop() if count == 1 else b"".join([found.pop() for _ in range(count)])
        return pieces

    def read(self, length: int = -1) -> memoryview | bytes:
        """Up to ``length`` bytes; all remaining ones if it is negative."""
        left = max(0, self.size - self._position)
        length = left if length is None or length < 0 else min(length, left)
        start = self._position
        held = self._held(start, length)
        data = held if held is not None and len(held) == length else self._store.get_range(self._key, start, length)
        self._position += len(data)
        return data

    def bytes_at(self, start: int, length: int) -> memoryview | bytes:
        """Bytes from a position on: ``length``, or fewer at the end of the object or of the held bytes."""
        held = self._held(start, length)
        return held or self._store.get_range(self._key, start, min(length, max(0, self.size - start)))

    def _held(self, start: int, length: int) -> memoryview | None:
        """As many of these bytes as are held; None if the first is not."""
        if start >= self._tail_start:
            return self._tail[start - self._tail_start :][:length]
        pieces = self.pieces  # another thread may replace them
        starts = sorted(pieces)
        index = bisect_right(starts, start) - 1
        if index < 0:
            return None
        at = start - starts[index]
        piece = pieces[starts[index]]
        return memoryview(piece)[at : at + length] if at < len(piece) else None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, as in any stream."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def close(self) -> None:
        """Free the held bytes."""
        self.pieces, self._tail = {}, memoryview(b"")
        self.closed = True
