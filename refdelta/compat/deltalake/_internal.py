"""The names that libraries import from deltalake's core in Rust."""

from __future__ import annotations

from refdelta.compat.deltalake import (
    __version__,
    enable_nanosecond_timestamps,
    init_tracing,
    rust_core_version,
)
from refdelta.compat.deltalake.builders import TableFeatures
from refdelta.compat.deltalake.commit import RemoveAction, Transaction
from refdelta.compat.deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from refdelta.compat.deltalake.fs import DeltaStorageHandler as DeltaFileSystemHandler
from refdelta.compat.deltalake.raw_table import RawDeltaTable
from refdelta.compat.deltalake.schema import ArrayType, Field, MapType, PrimitiveType, Schema, StructType, VariantType

_NANOSECOND_TIMESTAMPS = False

__all__ = [
    "ArrayType",
    "CommitFailedError",
    "DeltaError",
    "DeltaFileSystemHandler",
    "DeltaProtocolError",
    "Field",
    "MapType",
    "PrimitiveType",
    "RawDeltaTable",
    "RemoveAction",
    "Schema",
    "SchemaMismatchError",
    "StructType",
    "TableFeatures",
    "TableNotFoundError",
    "Transaction",
    "VariantType",
    "__version__",
    "init_tracing",
    "rust_core_version",
]


def _set_cast_nanos_timestamps_to_micros(cast: bool) -> None:
    """Do nothing if nanoseconds are to be cast to microseconds. Raises ``DeltaError`` if not."""
    if not cast:
        enable_nanosecond_timestamps()
