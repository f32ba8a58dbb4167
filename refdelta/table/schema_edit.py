"""Changes at one place of a schema: a path of names, in which ``element``, ``key`` and ``value`` lead into arrays and
maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from refdelta.errors import ColumnNotFoundError, InternalError
from refdelta.table.types import ArrayType, DataType, MapType, StructField, StructType

Path = tuple[str, ...]

_PARTS = {ArrayType: ("element",), MapType: ("key", "value")}


def find_path(schema: StructType, path: Sequence[str]) -> tuple[Path, DataType]:
    """Find a column or a part of one by its path, in any case of letters.

    Returns:
        The path in the spelling of the schema, and the type there.

    Raises:
        ColumnNotFoundError: there is no such column or part.
    """
    found: list[str] = []
    here: DataType = schema
    for name in path:
        known = here.names if isinstance(here, StructType) else list(_PARTS.get(type(here), ()))
        if isinstance(here, StructType):
            item = here.find(name)
            spelled = None if item is None else item.name
        else:
            spelled = name.lower() if name.lower() in known else None
        if spelled is None:
            raise ColumnNotFoundError(name, known, where=".".join(found) or "the table")
        found.append(spelled)
        here = part_type(here, spelled)
    return tuple(found), here


def part_type(data_type: DataType, name: str) -> DataType:
    """The type of a field of a struct, or of what is in an array or a map."""
    match data_type:
        case StructType():
            return data_type.field(name).type
        case ArrayType():
            return data_type.element
        case MapType():
            return data_type.key if name == "key" else data_type.value
    raise InternalError(f"the type {data_type} is no struct, array or map, and has no part {name!r}")


def edited(schema: StructType, path: Path, change: Callable[[DataType, str], DataType]) -> StructType:
    """The schema with what holds the last name of a path changed.

    Args:
        schema: the schema.
        path: as :func:`find_path` returns it.
        change: given the struct, array or map that holds it, and the last name; returns what it is to be.
    """
    result = _edited(schema, path, change)
    if not isinstance(result, StructType):
        raise InternalError(f"the change of {'.'.join(path)} turned the schema into {result}")
    return result


def with_part(data_type: DataType, name: str, part: DataType) -> DataType:
    """A struct, array or map with another type at one place."""
    match data_type:
        case StructType():
            return with_field(data_type, name, lambda item: replace(item, type=part))
        case ArrayType():
            return replace(data_type, element=part)
        case MapType():
            return replace(data_type, key=part) if name == "key" else replace(data_type, value=part)
    raise InternalError(f"the type {data_type} is no struct, array or map, and has no part {name!r}")


def with_field(struct: StructType, name: str, change: Callable[[StructField], StructField]) -> StructType:
    """A struct with one field changed."""
    return StructType(tuple(change(item) if item.name == name else item for item in struct))


def _edited(data_type: DataType, path: Path, change: Callable[[DataType, str], DataType]) -> DataType:
    name, rest = path[0], path[1:]
    if not rest:
        return change(data_type, name)
    return with_part(data_type, name, _edited(part_type(data_type, name), rest, change))
