"""Collations: strings of which two that differ may be equal (protocol_rfcs/collated-string-type.md).

The log says so in the metadata of the field that is closest; the type stays ``string``, and files hold what was
written. Here strings are compared by their bytes, so nothing but IS NULL is asked of a column with a collation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from refdelta.table.types import STRING, DataType, PrimitiveType, StructField

# As the proposal has it, and as Spark writes it.
_PROPOSED: Final = "collations"
_SPARK: Final = "__COLLATIONS"
_BINARY: Final = "UTF8_BINARY"
_PREFIX: Final = "string collate "


def compared_as(item: StructField) -> DataType:
    """The type of a column in comparisons: its own type, or with a collation a type that is not string and has the name
    of the collation.
    """
    name = _collation(item) if item.type == STRING else None
    return item.type if name is None else PrimitiveType(_PREFIX + name)


def has_collation(data_type: DataType) -> bool:
    """Whether a type is one of :func:`compared_as` for a column with a collation."""
    return isinstance(data_type, PrimitiveType) and data_type.name.startswith(_PREFIX)


def _collation(item: StructField) -> str | None:
    proposed, spark = item.metadata.get(_PROPOSED), item.metadata.get(_SPARK)
    names = [proposed.get("collation")] if isinstance(proposed, Mapping) else []
    # A string has one collation, whatever path Spark gives for it.
    names += spark.values() if isinstance(spark, Mapping) else []
    return next((str(name) for name in names if name is not None and _BINARY not in str(name).split(".")), None)
