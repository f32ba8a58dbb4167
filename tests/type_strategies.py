"""Strategies for Delta's types."""

from __future__ import annotations

from hypothesis import strategies as st

from refdelta.table.types import DecimalType

PRIMITIVE_NAMES = [
    "string",
    "long",
    "integer",
    "short",
    "byte",
    "float",
    "double",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "void",
]
"""The types that have a name alone, without variant, which Arrow has no type for."""

DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))
