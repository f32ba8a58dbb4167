"""Deletion vectors, fetched, applied and written (PROTOCOL.md, "Deletion Vectors")."""

from __future__ import annotations

import threading
import uuid
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from refdelta.arrow.arrays import as_numpy, mask_of
from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.log.paths import data_key
from refdelta.core.rows.deletion_vector import (
    FILE_VERSION,
    AbsoluteUri,
    InlineBytes,
    encode_inline,
    encode_relative,
    frame,
    framed_range,
    locate,
    parse_bitmap,
    relative_key,
    serialize_bitmap,
    unframe,
)
from refdelta.engine.parquet.budget import VECTOR_BYTES, Budget
from refdelta.engine.parquet.files import missing_file
from refdelta.engine.work.executor import GAP_BYTES, REQUEST_BYTES, ThreadExecutor, at_most
from refdelta.errors import DataFileError, StoreError
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from refdelta_storage.base import Store

# Vectors of up to so many bytes may be inline in the log: some hundred scattered rows. They are no longer than the
# statistics of a file, so that commits and checkpoints grow little, and save a file to write and to fetch.
INLINE_BYTES = 256
# The size of a file of vectors, in bytes. A file is kept as long as one of its vectors is in use, and it is built in
# memory; the limit of the protocol is 31 bits for offsets.
FILE_BYTES = 16 * 2**20
# The most bytes of fetched vectors that wait to be used.
HELD_BYTES = 64 * 2**20
# The most bytes of vectors, as they are stored, that are kept for transactions which share versions.
KEPT_BYTES = 32 * 2**20
_INLINE = "an inline deletion vector"

Range = tuple[int, int]  # the first byte, and how many


def load_deletion_vector(store: Store, descriptor: DeletionVectorDescriptor) -> BitMap64:
    """The positions of the deleted rows, counted from 0 in the physical file.

    Args:
        store: the table's folder; a vector outside of it is refused.
        descriptor: the descriptor in the log.

    Raises:
        DataFileNotFoundError: the vector's file is gone.
        DataFileError: its bytes do not match the descriptor.
        InvalidLogError: the descriptor is invalid; ``UnsafePathError`` if its path leaves the table.
    """
    return VectorLoader(store, [descriptor]).load(descriptor)


def load_deletion_vectors(store: Store, descriptors: Sequence[DeletionVectorDescriptor | None]) -> list[BitMap64]:
    """The vectors of several files, in their order, with the few requests of :class:`VectorLoader`, in parallel.

    None, for a file without vector, gives an empty one. Errors as for :func:`load_deletion_vector`, and
    :class:`~refdelta.errors.DataFileError` if they have more than ``VECTOR_BYTES`` bytes together.
    """
    budget = Budget("deletion vectors that are needed at once", VECTOR_BYTES)
    for one in descriptors:
        if one is not None:
            try:
                budget.take(one.size_in_bytes)
            except ValueError as error:
                file = _INLINE if one.storage_type == "i" else one.path_or_inline_dv
                raise DataFileError(str(error), file=file) from error
    vectors = VectorLoader(store, [one for one in descriptors if one is not None])

    def load(descriptor: DeletionVectorDescriptor | None) -> BitMap64:
        return BitMap64() if descriptor is None else vectors.load(descriptor)

    run = ThreadExecutor.for_store(store).map if vectors.requests > 1 else map
    return list(run(load, descriptors))


class KeptVectors:
    """The last deletion vectors of a table that a process wrote and read, for transactions that share versions: each of
    them compares its rows with those of the same versions, a request a vector otherwise. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[str, tuple[int, BitMap64]] = OrderedDict()
        self._bytes = 0

    def keep(self, descriptor: DeletionVectorDescriptor, rows: BitMap64) -> None:
        """Keep a vector, and as many of those before it as :data:`KEPT_BYTES` have room for."""
        with self._lock:
            if descriptor.unique_id not in self._found:
                self._found[descriptor.unique_id] = descriptor.size_in_bytes, rows.copy()
                self._bytes += descriptor.size_in_bytes
            while self._bytes > KEPT_BYTES:
                self._bytes -= self._found.popitem(last=False)[1][0]

    def load(self, store: Store, descriptors: Sequence[DeletionVectorDescriptor]) -> list[BitMap64]:
        """Same as :func:`load_deletion_vectors`, without reading those that are kept; the others are kept then."""
        with self._lock:
            kept = [self._found.get(one.unique_id) for one in descriptors]
        missing = [one for one, found in zip(descriptors, kept, strict=True) if found is None]
        loaded = load_deletion_vectors(store, missing) if missing else []
        for descriptor, rows in zip(missing, loaded, strict=True):
            self.keep(descriptor, rows)
        new = iter(loaded)
        return [next(new) if found is None else found[1].copy() for found in kept]


class VectorLoader:
    """Loads the deletion vectors of some files; adjacent vectors are fetched together.

    Fetched vectors are held until they are loaded, up to :data:`HELD_BYTES`; vectors that are dropped for that are
    fetched again. Thread-safe. A pickled loader has no descriptors, and fetches each vector alone.

    Args:
        store: the table's folder.
        descriptors: the vectors that will be loaded, each once.
    """

    def __init__(self, store: Store, descriptors: Iterable[DeletionVectorDescriptor]):
        self._store = store
        self._runs: dict[tuple[str, str, Range], _VectorRun] = {}
        self._held: OrderedDict[_VectorRun, None] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()
        files: dict[tuple[str, str], list[Range]] = {}
        for one in descriptors:
            if one.storage_type != "i":
                files.setdefault((one.storage_type, one.path_or_inline_dv), []).append(framed_range(one))
        self.requests = 0
        for file, ranges in files.items():
            runs = _runs(ranges)
            self.requests += len(runs)
            # Single vectors need no entry.
            self._runs |= {(*file, member): run for run in runs if run.left > 1 for member in run.members}

    def __reduce__(self) -> tuple[Any, ...]:
        return VectorLoader, (self._store, ())

    def load(self, descriptor: DeletionVectorDescriptor) -> BitMap64:
        """Same as :func:`load_deletion_vector`."""
        place = locate(descriptor)
        if isinstance(place, InlineBytes):
            return parse_bitmap(place.data, file=_INLINE, cardinality=descriptor.cardinality)
        key = data_key(place.uri, self._store.uri) if isinstance(place, AbsoluteUri) else place.key
        body = unframe(self._framed(key, descriptor), descriptor.size_in_bytes, key)
        return parse_bitmap(body, file=key, cardinality=descriptor.cardinality)

    def _framed(self, key: str, descriptor: DeletionVectorDescriptor) -> bytes:
        start, length = wanted = framed_range(descriptor)
        run = self._runs.get((descriptor.storage_type, descriptor.path_or_inline_dv, wanted))
        if run is None:
            return self._fetch(key, start, length)
        with run.lock:
            data = run.data
            if data is None:
                data = self._fetch(key, run.start, run.length)
            run.left -= 1
            self._keep(run, data if run.left > 0 else None)
        return data[start - run.start :][:length]

    def _keep(self, run: _VectorRun, data: bytes | None) -> None:
        """Hold the bytes of a run, or none; the least recently used runs are dropped if there are too many bytes."""
        with self._lock:
            self._drop(run)
            while data is not None and self._held and self._held_bytes + len(data) > HELD_BYTES:
                self._drop(next(iter(self._held)))
            if data is not None:
                run.data = data
                self._held[run] = None
                self._held_bytes += len(data)

    def _drop(self, run: _VectorRun) -> None:
        if run.data is not None:
            del self._held[run]
            self._held_bytes -= len(run.data)
            run.data = None

    def _fetch(self, key: str, start: int, length: int) -> bytes:
        try:
            return self._store.get_range(key, start, length)
        except ObjectNotFoundError as error:
            raise missing_file(key, vector=True) from error
        except StorageError as error:
            raise StoreError(f"cannot read {key}: {error}") from error


class _VectorRun:
    """Vectors of one file that are fetched by one request."""

    __slots__ = ("data", "left", "length", "lock", "members", "start")

    def __init__(self, start: int, length: int):
        self.start, self.length = start, length
        self.members: list[Range] = []
        self.left = 0  # vectors that were not loaded yet
        self.data: bytes | None = None
        self.lock = threading.Lock()


def _runs(ranges: list[Range]) -> list[_VectorRun]:
    runs: list[_VectorRun] = []
    for start, length in sorted(ranges):
        run, end = runs[-1] if runs else None, start + length
        if run is None or start - run.start - run.length > GAP_BYTES or end - run.start > REQUEST_BYTES:
            run = _VectorRun(start, length)
            runs.append(run)
        run.length = max(run.length, end - run.start)
        run.members.append((start, length))
        run.left += 1
    return runs


def kept_rows(start: int, stop: int, deleted: BitMap64, wanted: BitMap64 | None = None) -> pa.Array | None:
    """The positions of a range of rows that are not deleted, ascending; None for the whole range.

    Args:
        start: the first row of the range.
        stop: the row after the last one.
        deleted: the deleted rows.
        wanted: the only rows to keep; None for all.
    """
    count = stop - start
    gone = deleted.range_cardinality(start, stop)
    if not gone and (wanted is None or wanted.range_cardinality(start, stop) == count):
        return None
    kept = BitMap64()
    kept.add_range(start, stop)
    if wanted is not None:
        kept &= wanted
    if gone:
        kept -= deleted
    return to_positions(kept)


def live_mask(start: int, stop: int, deleted: BitMap64, wanted: BitMap64 | None = None) -> pa.BooleanArray | None:
    """A mask of the rows of a range that are not deleted; None for the whole range. Arguments as for
    :func:`kept_rows`.
    """
    if wanted is None:
        return live_rows(start, stop, deleted) if deleted and deleted.range_cardinality(start, stop) else None
    kept = kept_rows(start, stop, deleted, wanted)
    if kept is None:
        return None
    live = np.zeros(stop - start, dtype=bool)
    live[as_numpy(kept, np.uint64) - start] = True
    return mask_of(live)


def live_rows(start: int, stop: int, deleted: BitMap64) -> pa.BooleanArray:
    """A mask of the rows from ``start`` to before ``stop`` that are not deleted."""
    there = BitMap64()
    there.add_range(start, stop)
    live = np.ones(stop - start, dtype=bool)
    live[np.frombuffer((deleted & there).to_array(), np.uint64) - start] = False
    return mask_of(live)


def to_positions(rows: BitMap64) -> pa.Array:
    """The rows of a bitmap as an array of unsigned 64-bit numbers, ascending."""
    numbers = rows.to_array()
    return pa.Array.from_buffers(pa.uint64(), len(numbers), [None, pa.py_buffer(numbers)])


def to_bitmap(positions: pa.Array | pa.ChunkedArray) -> BitMap64:
    """The inverse of :func:`to_positions`, of 64-bit numbers in any order; none is null."""
    chunks = positions.chunks if isinstance(positions, pa.ChunkedArray) else [positions]
    rows = BitMap64()
    for chunk in chunks:
        numbers = array("Q")
        _, data = chunk.buffers()
        if len(chunk):
            numbers.frombytes(memoryview(data)[8 * chunk.offset : 8 * (chunk.offset + len(chunk))])
        rows |= BitMap64(numbers)
    return rows


def write_vectors(store: Store, bitmaps: Sequence[BitMap64], *, inline: bool = False) -> list[DeletionVectorDescriptor]:
    """Write deletion vectors to common files at the table's root, and small ones into their descriptors if wanted.

    A file becomes visible as a whole. Implements PROTOCOL.md, "Deletion Vector Format" and "Deletion Vector File
    Storage Format".

    Args:
        store: the table's folder.
        bitmaps: the positions of deleted rows, counted from 0 in their data file; one for each vector.
        inline: whether vectors of up to :data:`INLINE_BYTES` bytes are written to the log. VACUUM of delta-spark 4.4
            fails on a table with inline vectors, so this is an option of the table
            (``refdelta.inlineDeletionVectors``).

    Returns:
        Their descriptors, in the same order.

    Raises:
        StoreError: the store refused or failed; the written files are removed if possible.
    """
    bodies = [serialize_bitmap(bitmap) for bitmap in bitmaps]
    placed: dict[int, DeletionVectorDescriptor] = {}
    large: list[int] = []
    for index, body in enumerate(bodies):
        if not inline or len(body) > INLINE_BYTES:
            large.append(index)
        else:
            placed[index] = _descriptor("i", encode_inline(body), None, body, bitmaps[index])
    try:
        for group in _files([len(body) for body in bodies], large):
            identity = uuid.uuid4()
            parts, position = [bytes([FILE_VERSION])], 1
            for index in group:
                placed[index] = _descriptor("u", encode_relative(identity), position, bodies[index], bitmaps[index])
                parts.append(frame(bodies[index]))
                position += len(parts[-1])
            _put(store, encode_relative(identity), b"".join(parts))
    except BaseException:
        remove_vectors(store, placed.values())
        raise
    return [placed[index] for index in range(len(bitmaps))]


def remove_vectors(
    store: Store, descriptors: Iterable[DeletionVectorDescriptor], keep: Iterable[DeletionVectorDescriptor] = ()
) -> None:
    """Remove the files of vectors of :func:`write_vectors` that no commit names, if the store permits it.

    Args:
        store: the table's folder.
        descriptors: the vectors that are not needed.
        keep: vectors that are needed; a file with one of them is kept.
    """
    kept = {item.path_or_inline_dv for item in keep if item.storage_type == "u"}
    texts = {item.path_or_inline_dv for item in descriptors if item.storage_type == "u"}
    # Best effort: remaining files are invisible, and VACUUM removes them.
    with suppress(StorageError):
        if texts - kept:
            store.delete(sorted(relative_key(text) for text in texts - kept))


def _descriptor(
    storage_type: str, text: str, offset: int | None, body: bytes, bitmap: BitMap64
) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type=storage_type,
        path_or_inline_dv=text,
        offset=offset,
        size_in_bytes=len(body),
        cardinality=len(bitmap),
    )


def _files(sizes: Sequence[int], large: Iterable[int]) -> Iterator[list[int]]:
    """The indexes of the vectors of each file."""
    return at_most(large, sizes.__getitem__, FILE_BYTES)


def _put(store: Store, text: str, data: bytes) -> None:
    key = relative_key(text)
    try:
        store.put(key, data)
    except StorageError as error:
        raise StoreError(f"cannot write {key}: {error}") from error
