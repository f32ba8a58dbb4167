"""Deletion vectors, fetched, applied and written (PROTOCOL.md, "Deletion Vectors")."""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64

from refdelta.errors import DataFileNotFoundError, StoreError
from refdelta.protocol.actions import DeletionVectorDescriptor
from refdelta.protocol.deletion_vector import (
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
from refdelta.protocol.paths import data_key
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from refdelta_storage.base import Store

# Vectors up to this many bytes may stand in the log itself: no longer than the statistics beside them, so that commits
# and checkpoints do not grow by much, and a file less to write and to fetch. It is some hundred scattered rows.
INLINE_BYTES = 256
# A file of vectors is closed when it has this many bytes. It stays as long as one of its vectors is needed, and it is
# put together in memory; the protocol's own limit are offsets of 31 bits.
FILE_BYTES = 16 * 2**20


def load_deletion_vector(store: Store, descriptor: DeletionVectorDescriptor) -> BitMap64:
    """The row numbers, counted from 0 in the physical file, that are deleted.

    Args:
        store: the table's folder; a vector elsewhere is refused.
        descriptor: as the log has it.

    Raises:
        DataFileNotFoundError: the vector's file is gone.
        DataFileError: its bytes are not the vector that the log says.
        InvalidLogError: the descriptor is not valid; ``UnsafePathError`` where its path leaves the table.
    """
    place = locate(descriptor)
    if isinstance(place, InlineBytes):
        return parse_bitmap(place.data, file="an inline deletion vector", cardinality=descriptor.cardinality)
    key = data_key(place.uri, store.uri) if isinstance(place, AbsoluteUri) else place.key
    start, length = framed_range(descriptor)
    try:
        framed = store.get_range(key, start, length)
    except ObjectNotFoundError as error:
        raise DataFileNotFoundError("the log names this deletion vector, but it does not exist", file=key) from error
    except StorageError as error:
        raise StoreError(f"cannot read {key}: {error}") from error
    body = unframe(framed, descriptor.size_in_bytes, key)
    return parse_bitmap(body, file=key, cardinality=descriptor.cardinality)


def kept_rows(start: int, stop: int, deleted: BitMap64, wanted: BitMap64 | None = None) -> pa.Array | None:
    """The positions of a range of rows, from ``start`` to before ``stop``, that are not deleted, ascending; of those in
    ``wanted`` alone, if it is not None. None for all of the range.
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
    """Write deletion vectors, together into files at the table's root; small ones into their descriptors, if wanted.

    A file is visible whole or not at all. Implements PROTOCOL.md, "Deletion Vector Format" and "Deletion Vector File
    Storage Format".

    Args:
        store: the table's folder.
        bitmaps: the positions of deleted rows, counted from 0 in their data file; one for each vector.
        inline: whether vectors of up to :data:`INLINE_BYTES` bytes stand in the log. The VACUUM of delta-spark 4.4
            fails on a table that has one, so this is for tables that ask for it (``refdelta.inlineDeletionVectors``).

    Returns:
        Their descriptors, in the same order.

    Raises:
        StoreError: the store refused or failed; the files that were written are removed, as far as it lets us.
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
    """Remove the files of vectors that :func:`write_vectors` wrote and no commit names, as far as the store lets us.

    Args:
        store: the table's folder.
        descriptors: the vectors that are not needed.
        keep: vectors that are; a file which holds one of these too stays.
    """
    kept = {item.path_or_inline_dv for item in keep if item.storage_type == "u"}
    texts = {item.path_or_inline_dv for item in descriptors if item.storage_type == "u"}
    # Best effort: what stays behind is invisible, and vacuum takes it.
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
    """The vectors of one file after the other."""
    group: list[int] = []
    size = 0
    for index in large:
        if group and size + sizes[index] > FILE_BYTES:
            yield group
            group, size = [], 0
        group.append(index)
        size += sizes[index]
    if group:
        yield group


def _put(store: Store, text: str, data: bytes) -> None:
    key = relative_key(text)
    try:
        store.put(key, data)
    except StorageError as error:
        raise StoreError(f"cannot write {key}: {error}") from error
