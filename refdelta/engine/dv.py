"""Deletion vectors, fetched and applied (PROTOCOL.md, "Deletion Vectors")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from refdelta.errors import DataFileNotFoundError, StoreError
from refdelta.protocol.deletion_vector import AbsoluteUri, InlineBytes, framed_range, locate, parse_bitmap, unframe
from refdelta.protocol.paths import data_key
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from refdelta.protocol.actions import DeletionVectorDescriptor
    from refdelta_storage.base import Store


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


def live_rows(batch: pa.RecordBatch, start: int, deleted: BitMap64) -> pa.RecordBatch:
    """The rows of a batch that are not deleted; ``start`` is the number of its first row in the file."""
    stop = start + batch.num_rows
    gone = deleted.range_cardinality(start, stop)
    if gone == 0:
        return batch
    if gone == batch.num_rows:
        return batch.slice(0, 0)
    kept = BitMap64()
    kept.add_range(start, stop)
    kept -= deleted
    rows = kept.to_array()
    indices = pa.Array.from_buffers(pa.uint64(), len(rows), [None, pa.py_buffer(rows)])
    return batch.take(pc.subtract(indices, pa.scalar(start, pa.uint64())))
