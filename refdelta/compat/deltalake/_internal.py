"""The names that libraries import from deltalake's core in Rust."""

from __future__ import annotations

from refdelta.compat.deltalake.builders import TableFeatures
from refdelta.compat.deltalake.commit import Transaction
from refdelta.compat.deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from refdelta.compat.deltalake.schema import ArrayType, Field, MapType, PrimitiveType, Schema, StructType, VariantType

__all__ = [
    "ArrayType",
    "CommitFailedError",
    "DeltaError",
    "DeltaProtocolError",
    "Field",
    "MapType",
    "PrimitiveType",
    "Schema",
    "SchemaMismatchError",
    "StructType",
    "TableFeatures",
    "TableNotFoundError",
    "Transaction",
    "VariantType",
]
