"""deltalake's ``write_deltalake``, ``convert_to_deltalake`` and the properties of Parquet files."""

from __future__ import annotations

from refdelta.compat.deltalake.writer.properties import BloomFilterProperties, ColumnProperties, WriterProperties
from refdelta.compat.deltalake.writer.writer import convert_to_deltalake, write_deltalake

__all__ = [
    "BloomFilterProperties",
    "ColumnProperties",
    "WriterProperties",
    "convert_to_deltalake",
    "write_deltalake",
]
