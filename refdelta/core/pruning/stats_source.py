"""The place of a column's statistics in those of a file, and their use (PROTOCOL.md, "Per-file Statistics")."""

from __future__ import annotations

import msgspec

from refdelta.core.table.char_varchar import char_length
from refdelta.core.table.evolution import TYPE_CHANGES
from refdelta.core.table.types import (
    BINARY,
    DOUBLE,
    VARIANT,
    VOID,
    DataType,
    StructField,
    StructType,
    is_nested,
    physical_name,
)


class StatsSource(msgspec.Struct, frozen=True):
    """The statistics of one column.

    Attributes:
        physical: the path under which they stand.
        type: the column's.
        bounded: whether its minimum and maximum bound its values.
        nested: whether a parent of the column may be null: not every writer counts a field's nulls there.
        char: the length of a ``char(n)`` column, whose values are compared as if they were padded; else None.
    """

    physical: tuple[str, ...]
    type: DataType
    bounded: bool
    nested: bool
    char: int | None

    @classmethod
    def of(cls, schema: StructType, path: tuple[str, ...]) -> StatsSource:
        """That of a column, by its logical path as the schema spells it."""
        fields: list[StructField] = []
        here: DataType = schema
        for name in path:
            item = here.field(name) if isinstance(here, StructType) else None
            if item is None:
                break
            fields.append(item)
            here = item.type
        # A float's shortest text is not that of the double that equals it, so old bounds of a widened column are off.
        changed = here == DOUBLE and fields[-1].metadata.get(TYPE_CHANGES)
        bounded = not (is_nested(here) or here in (BINARY, VARIANT, VOID) or changed)
        nested = any(field.nullable for field in fields[:-1])
        return cls(tuple(map(physical_name, fields)), here, bounded, nested, char_length(schema, path))
