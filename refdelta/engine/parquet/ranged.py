"""Parquet over a network: few requests, each of which brings what is wanted next.

A small object comes whole. Of a larger one the footer comes first; then, row group after row group, the columns that
are wanted: what lies together in one request, and the requests side by side. While a row group is decoded, the next one
is on its way. Small row groups count as one. What is held is never the file, but a row group, or two small ones.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.engine.parquet.limits import BoundedParquetFile, chunk_start, wanted_leaves
from refdelta.engine.scan.chunking import GAP_BYTES, REQUEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from refdelta_storage.base import Store

    Range = tuple[int, int]  # the first byte, and how many

# Objects of up to that many bytes come whole: what one request more takes, at 30 to 60 ms, would fetch that much.
WHOLE_BYTES = 4 * 2**20
# What is fetched of a larger one at first. Footers of some hundred columns and row groups fit, and Arrow asks for it.
FOOTER_BYTES = 64 * 2**10
# Row groups are fetched together up to that many bytes, and one of more bytes is not fetched before its turn.
PORTION_BYTES = 16 * 2**20
_MAGIC = b"PAR1"


def open_ranged(store: Store, key: str, size: int | None, *, footer_only: bool, **options: Any) -> BoundedParquetFile:
    """Open a Parquet file of a remote store.

    Args:
        store: the store.
        key: the file.
        size: its size in bytes as the log has it, or None. It is no more than a hint: one that is wrong costs requests.
        footer_only: whether nothing else will be read of it.
        options: for ``ParquetFile``.

    Raises:
        ObjectNotFoundError: it is not there; what else store and pyarrow raise.
    """
    store = store.steady()  # a checkpoint may be replaced by another writer's
    if size is None:
        size = store.head(key).size
    whole = size <= WHOLE_BYTES and not footer_only
    size, tail = _tail(store, key, size, size if whole else FOOTER_BYTES)
    if not tail.endswith(_MAGIC):
        size, tail = _tail(store, key, store.head(key).size, FOOTER_BYTES)
    # Its length stands before the magic number.
    longer = min(int.from_bytes(tail[-8:-4], "little") + 8, size) - len(tail)
    if longer > 0:
        tail = store.get_range(key, size - len(tail) - longer, longer) + tail
    if len(tail) == size:
        return BoundedParquetFile(pa.BufferReader(tail), lambda start, length: tail[start : start + length], **options)
    return RangedParquetFile(_Window(store, key, size, tail), **options)


def _tail(store: Store, key: str, size: int, wanted: int) -> tuple[int, bytes]:
    """The size of an object, and its last bytes: where it ends before ``size``, they are fewer, and tell."""
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
        """As that of ``ParquetFile``."""
        window, pending = self._window, None
        portions = _portions(self._chunks(row_groups, columns))
        following = next(portions, None)
        with ThreadPoolExecutor(1, thread_name_prefix="refdelta-ahead") as ahead:
            while following is not None:
                portion, following = following, next(portions, None)
                window.pieces = {}
                window.pieces = window.fetch(portion.ranges) if pending is None else pending.result()
                soon = following is not None and following.size <= PORTION_BYTES
                pending = ahead.submit(window.fetch, following.ranges) if following and soon else None
                yield from super().iter_batches(batch_size, row_groups=portion.groups, columns=columns, **options)
        window.pieces = {}

    def _chunks(self, groups: Iterable[int] | None, columns: Sequence[str] | None) -> Iterator[tuple[int, list[Range]]]:
        """Row groups, all if None, each with the bytes of some columns."""
        footer = self.footer
        leaves = wanted_leaves(footer, columns)
        for number in range(footer.num_row_groups) if groups is None else groups:
            group = footer.row_group(number)
            yield number, [(chunk_start(chunk), chunk.total_compressed_size) for chunk in map(group.column, leaves)]


@dataclass
class _Portion:
    """Row groups that are fetched together."""

    groups: list[int]
    ranges: list[Range]
    size: int


def _portions(chunks: Iterable[tuple[int, list[Range]]]) -> Iterator[_Portion]:
    portion: _Portion | None = None
    for group, ranges in chunks:
        size = sum(length for _, length in ranges)
        if portion is not None and portion.size + size <= PORTION_BYTES:
            portion.groups.append(group)
            portion.ranges += ranges
            portion.size += size
            continue
        if portion is not None:
            yield portion
        portion = _Portion([group], ranges, size)
    if portion is not None:
        yield portion


def join_ranges(ranges: Iterable[Range], size: int) -> list[Range]:
    """Ranges of an object as few ranges: those with little between them become one, up to :data:`REQUEST_BYTES`.

    Args:
        ranges: in any order; they may overlap, and they may be nonsense, as footers may.
        size: of the object, in bytes. What lies outside is left out, so that no more than the object is asked for.
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
    """What pyarrow reads from: an object of which the end and some ranges are there. The rest is fetched when asked
    for.
    """

    closed = False

    def __init__(self, store: Store, key: str, size: int, tail: bytes):
        self.size = size
        self.pieces: dict[int, bytes] = {}
        self._store, self._key = store, key
        self._tail, self._tail_start = memoryview(tail), size - len(tail)
        self._position = 0

    def fetch(self, ranges: Iterable[Range]) -> dict[int, bytes]:
        """The bytes of ranges, by where they start; what the end of the object has is not fetched again."""
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
            # Each part goes as it is joined.
            pieces[start] = found.pop() if count == 1 else b"".join([found.pop() for _ in range(count)])
        return pieces

    def read(self, length: int = -1) -> memoryview | bytes:
        """Up to ``length`` bytes, all that are left if it is negative."""
        left = max(0, self.size - self._position)
        length = left if length is None or length < 0 else min(length, left)
        start = self._position
        held = self._held(start, length)
        data = held if held is not None and len(held) == length else self._store.get_range(self._key, start, length)
        self._position += len(data)
        return data

    def bytes_at(self, start: int, length: int) -> memoryview | bytes:
        """So many bytes from a position on, or as many as there are, or as many as are held."""
        held = self._held(start, length)
        return held or self._store.get_range(self._key, start, min(length, max(0, self.size - start)))

    def _held(self, start: int, length: int) -> memoryview | None:
        """As many of these bytes as are held, None where their first is not."""
        if start >= self._tail_start:
            return self._tail[start - self._tail_start :][:length]
        pieces = self.pieces  # another thread may put others in its place
        starts = sorted(pieces)
        index = bisect_right(starts, start) - 1
        if index < 0:
            return None
        at = start - starts[index]
        piece = pieces[starts[index]]
        return memoryview(piece)[at : at + length] if at < len(piece) else None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, as any stream does."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Where the next read starts."""
        return self._position

    def close(self) -> None:
        """Forget what is held."""
        self.pieces, self._tail = {}, memoryview(b"")
        self.closed = True
