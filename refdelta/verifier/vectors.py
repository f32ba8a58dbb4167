"""Deletion vectors, byte by byte (PROTOCOL.md, "Deletion Vector Format")."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from refdelta.core.log.paths import data_key
from refdelta.core.rows.deletion_vector import (
    FILE_VERSION,
    PORTABLE_MAGIC,
    AbsoluteUri,
    InlineBytes,
    framed_range,
    locate,
    parse_bitmap,
    unframe,
)
from refdelta.engine.parquet.files import store_errors
from refdelta.errors import DataFileError, InvalidLogError, StoreError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from refdelta.core.log.actions import DeletionVectorDescriptor
    from refdelta_storage.base import Store


def read_vector(
    store: Store, descriptor: DeletionVectorDescriptor, find: Callable[[str, str], None]
) -> BitMap64 | None:
    """The rows that a vector deletes; None where it cannot be read, which is a finding then."""
    try:
        place = locate(descriptor)
        if isinstance(place, InlineBytes):
            body, name = place.data, "the inline deletion vector"
        else:
            name = data_key(place.uri, store.uri) if isinstance(place, AbsoluteUri) else place.key
            body = _framed(store, name, descriptor, find)
        if body[:4] != struct.pack("<i", PORTABLE_MAGIC):
            find("dv-3", f"{name} is not in the portable form")
        return parse_bitmap(body, file=name, cardinality=descriptor.cardinality)
    except (DataFileError, InvalidLogError) as error:
        find("dv-2", f"{error.file or 'the descriptor'}: {error.reason}")
        return None


def _framed(store: Store, key: str, descriptor: DeletionVectorDescriptor, find: Callable[[str, str], None]) -> bytes:
    try:
        with store_errors(f"read {key}"):
            version = store.get_range(key, 0, 1)
            framed = store.get_range(key, *framed_range(descriptor))
    except StoreError as error:
        if isinstance(error.__cause__, ObjectNotFoundError):
            raise DataFileError("the log names this deletion vector, but it does not exist", file=key) from error
        raise
    if version != bytes([FILE_VERSION]):
        find("dv-3", f"{key} does not begin with the version {FILE_VERSION} but with {version.hex()}")
    return unframe(framed, descriptor.size_in_bytes, key)
