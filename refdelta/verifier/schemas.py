"""A table's schema, flattened: every column at any depth with its path of names, and changes between two schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refdelta.core.table.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    is_nested,
    physical_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NESTED_IDS = "delta.columnMapping.nested.ids"


@dataclass(frozen=True)
class Part:
    """A field of the schema, or what an array or a map of it holds.

    Attributes:
        name: the dotted path of names that people know; ``element``, ``key`` and ``value`` within arrays and maps.
        path: the same of physical names.
        type: its type.
        field: the nearest field, which has the metadata.
        within: the path from that field to here: empty for the field itself.
        parents: the fields that it lies in, from the outermost inwards.
    """

    name: str
    path: tuple[str, ...]
    type: DataType
    field: StructField
    within: tuple[str, ...] = ()
    parents: tuple[StructField, ...] = ()

    @property
    def leaf(self) -> bool:
        """Whether it is of a type without parts."""
        return not is_nested(self.type)


def parts(schema: StructType) -> Iterator[Part]:
    """All fields at any depth, and what is in arrays and maps."""
    yield from _of_struct(schema, "", (), ())


def _of_struct(
    struct: StructType, name: str, path: tuple[str, ...], parents: tuple[StructField, ...]
) -> Iterator[Part]:
    for item in struct:
        own = Part(f"{name}{item.name}", (*path, physical_name(item)), item.type, item, (), parents)
        yield own
        yield from _inside(own, (*parents, item))


def _inside(part: Part, parents: tuple[StructField, ...]) -> Iterator[Part]:
    match part.type:
        case StructType():
            yield from _of_struct(part.type, f"{part.name}.", part.path, parents)
        case ArrayType(element):
            yield from _step(part, "element", element, parents)
        case MapType(key, value):
            yield from _step(part, "key", key, parents)
            yield from _step(part, "value", value, parents)


def _step(part: Part, name: str, kind: DataType, parents: tuple[StructField, ...]) -> Iterator[Part]:
    inner = Part(f"{part.name}.{name}", (*part.path, name), kind, part.field, (*part.within, name), parents)
    yield inner
    yield from _inside(inner, parents)


def fields(schema: StructType) -> Iterator[Part]:
    """The fields alone, at any depth."""
    return (part for part in parts(schema) if not part.within)


def nested_ids(part: Part) -> dict[str, Any]:
    """The ids of what is in the arrays and maps of a field, by its own spelling of their paths."""
    found = part.field.metadata.get(NESTED_IDS)
    return dict(found) if isinstance(found, dict) else {}
