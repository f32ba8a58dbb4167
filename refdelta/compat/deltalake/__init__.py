"""The names of deltalake 1.6 on refdelta: ``import refdelta.compat.deltalake as deltalake``.

Arguments and results are translated, and no logic of tables is here. docs/guide/other-libraries.md lists the
differences.
"""

from __future__ import annotations

from refdelta._version import __version__ as _own_version
from refdelta.compat.deltalake import exceptions, table, transaction
from refdelta.compat.deltalake.builders import TableFeatures
from refdelta.compat.deltalake.commit import CommitProperties, PostCommitHookProperties, Transaction, no_effect
from refdelta.compat.deltalake.query import QueryBuilder
from refdelta.compat.deltalake.schema import DataType, Field, Schema, VariantType
from refdelta.compat.deltalake.table import DeltaTable, Metadata
from refdelta.compat.deltalake.writer import (
    BloomFilterProperties,
    ColumnProperties,
    WriterProperties,
    convert_to_deltalake,
    write_deltalake,
)
from refdelta.errors import DeltaError

__version__ = "1.6.6"
"""The version of deltalake whose interface this is: libraries such as Polars look for the abilities of a version."""


def rust_core_version() -> str:
    """The version of refdelta, which has no Rust core."""
    return _own_version


def enable_nanosecond_timestamps() -> None:
    """Refuse: refdelta stores microseconds. Raises ``DeltaError``."""
    raise DeltaError("refdelta stores timestamps in microseconds; nanoseconds are not supported")


_NANOSECOND_TIMESTAMPS = False


def _nanosecond_timestamps_enabled() -> bool:
    return _NANOSECOND_TIMESTAMPS


def _disable_nanosecond_timestamps() -> None:
    """Do nothing: nanoseconds are never enabled."""


def init_tracing(endpoint: str | None = None) -> None:
    """Warn that refdelta sends no traces, to this endpoint or another."""
    no_effect(f"init_tracing(endpoint={endpoint!r})", "it sends no traces")


__all__ = [
    "BloomFilterProperties",
    "ColumnProperties",
    "CommitProperties",
    "DataType",
    "DeltaTable",
    "Field",
    "Metadata",
    "PostCommitHookProperties",
    "QueryBuilder",
    "Schema",
    "TableFeatures",
    "Transaction",
    "VariantType",
    "WriterProperties",
    "__version__",
    "convert_to_deltalake",
    "enable_nanosecond_timestamps",
    "exceptions",
    "init_tracing",
    "rust_core_version",
    "table",
    "transaction",
    "write_deltalake",
]
