"""Column mapping: the physical names and ids of a table's columns (PROTOCOL.md, "Column Mapping").

A mapped table's files, statistics and partition values hold its columns under names that never change, and files their
numbers too, so that columns can be renamed and dropped in the schema alone. Both are assigned here, and nowhere else:
every metaData action that this engine makes passes :func:`completed`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from refdelta.core.log.actions import Metadata
from refdelta.core.log.assigned import LAST_COLUMN_ID, assigned
from refdelta.errors import InvalidArgumentError
from refdelta.table.evolution import as_nullable
from refdelta.table.field_names import check_distinct, check_field_names
from refdelta.table.properties import get
from refdelta.table.types import (
    FIELD_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    every_field,
    field_id,
    parse_schema,
    physical_name,
    schema_json,
)

MODE: Final = "delta.columnMapping.mode"
MAX_ID: Final = "delta.columnMapping.maxColumnId"
NESTED_IDS: Final = "delta.columnMapping.nested.ids"
# Where delta-spark, too, repeats them for its writer of Parquet; old tables have nothing else.
_PARQUET_ID, _PARQUET_NESTED_IDS = "parquet.field.id", "parquet.field.nested.ids"
_MARKS: Final = frozenset((PHYSICAL_NAME, FIELD_ID, NESTED_IDS, _PARQUET_ID, _PARQUET_NESTED_IDS))
# With these, what is in arrays and maps has ids as well.
_NEEDS_NESTED_IDS: Final = ("delta.enableIcebergCompatV2", "delta.enableIcebergCompatV3")


def mode_of(metadata: Metadata) -> str:
    """``none``, ``name`` or ``id``: by what the files of a table hold its columns.

    Raises:
        InvalidLogError: the property has another value.
    """
    return str(get(metadata.configuration or {}, MODE))


def nested_ids(item: StructField) -> Mapping[str, Any]:
    """The ids of what is in a column's arrays and maps, by paths such as ``<physical name>.element``."""
    for key in (NESTED_IDS, _PARQUET_NESTED_IDS):
        found = item.metadata.get(key)
        if isinstance(found, dict):
            return found
    return {}


def without_mapping(schema: StructType) -> StructType:
    """The schema without physical names and ids: another table's mean nothing here."""
    if all(_MARKS.isdisjoint(item.metadata) for item in every_field(schema)):
        return schema
    return each_field(schema, lambda item: _without(item, _MARKS))


def schema_of(metadata: Metadata) -> StructType:
    """The schema of a table; where its columns are not mapped, without what is left of a mapping that it had.

    Raises:
        InvalidLogError: it is none, or two of its columns have one place in files.
    """
    schema = parse_schema(metadata.schema_string)
    mapped = mode_of(metadata) != "none"
    check_distinct(schema, mapped=mapped)
    return schema if mapped else without_mapping(schema)


def completed(metadata: Metadata, before: Metadata | None = None, *, replacing: bool = False) -> Metadata:
    """The metadata that a table is to have, with what its column mapping needs.

    Implements PROTOCOL.md, "Writer Requirements for Column Mapping": columns without a physical name and an id get
    them, and the greatest id that was ever given stays noted. Columns that a table has when it is mapped for the first
    time keep the names under which its files hold them.

    Args:
        metadata: the metadata to come.
        before: the table's own; None for a table to be created.
        replacing: whether the table is created anew in the place of ``before``, so that no file of it stays.

    Raises:
        InvalidArgumentError: a change of the mode that the files of the table do not allow.
        InvalidLogError: the table's schema or properties are not valid.
    """
    mode = mode_of(metadata)
    was = "none" if before is None or replacing else mode_of(before)
    if mode == "none" == was:
        return metadata
    if before is not None and not replacing and mode != was and (was, mode) != ("none", "name"):
        raise InvalidArgumentError(
            f"cannot change {MODE} from {was!r} to {mode!r}: only a table without column mapping can get it, by name"
        )
    configuration = dict(metadata.configuration or {})
    known = configuration if before is None else {**(before.configuration or {})}
    schema = parse_schema(metadata.schema_string)
    old = StructType() if before is None or replacing else parse_schema(before.schema_string)
    most = max(get(configuration, MAX_ID), get(known, MAX_ID), greatest_id(schema), greatest_id(old))
    naming = _Naming(most, old, upgrade=was == "none" and before is not None and not replacing)
    schema = naming.struct(schema, ())
    if any(get(configuration, name) for name in _NEEDS_NESTED_IDS):
        schema = each_field(schema, naming.with_nested_ids)
    check_distinct(schema, mapped=True)
    configuration[MAX_ID] = str(naming.most)
    return msgspec.structs.replace(metadata, schema_string=schema_json(schema), configuration=configuration)


def unmapped(metadata: Metadata) -> Metadata:
    """The metadata of a table whose columns are not mapped any more, as its files are when they are written anew.

    Raises:
        InvalidArgumentError: a column has a name that a file cannot hold; it is named.
    """
    schema = without_mapping(parse_schema(metadata.schema_string))
    check_field_names(schema)
    configuration = {key: value for key, value in (metadata.configuration or {}).items() if key != MAX_ID}
    return msgspec.structs.replace(metadata, schema_string=schema_json(schema), configuration=configuration)


def holds_other_names(metadata: Metadata) -> bool:
    """Whether files hold a column under another name than its own."""
    if mode_of(metadata) == "none":
        return False
    return any(physical_name(item) != item.name for item in every_field(parse_schema(metadata.schema_string)))


def restored(then: Metadata, now: Metadata) -> Metadata:
    """The metadata of an earlier version as that of the next one.

    The files of that version come back with it, which hold the columns as they were mapped then, or were not. While
    they are mapped on both sides, no id is given again.

    Args:
        then: the metadata of the version to go back to.
        now: the table's own.

    Raises:
        InvalidLogError: two columns of the earlier version have one place in files.
    """
    schema_of(then)
    if "none" in (mode_of(now), mode_of(then)):
        return then
    configuration = dict(then.configuration or {})
    configuration[MAX_ID] = str(max(get(now.configuration or {}, MAX_ID), get(configuration, MAX_ID)))
    return msgspec.structs.replace(then, configuration=configuration)


def greatest_id(schema: StructType) -> int:
    """The greatest id in a schema, at any depth; 0 where there is none."""
    numbers = [0]
    for item in every_field(schema):
        numbers += [field_id(item) or 0, *(n for n in nested_ids(item).values() if isinstance(n, int))]
    return max(numbers)


@dataclass
class _Naming:
    """Gives columns names and ids.

    Attributes:
        most: the greatest id so far.
        old: the table's schema before.
        upgrade: whether the columns of ``old`` are mapped for the first time.
    """

    most: int
    old: StructType
    upgrade: bool

    def struct(self, struct: StructType, path: tuple[str, ...]) -> StructType:
        return StructType(tuple(self._named(item, (*path, item.name)) for item in struct))

    def _named(self, item: StructField, path: tuple[str, ...]) -> StructField:
        own = dict(item.metadata)
        twin = None if PHYSICAL_NAME in own and FIELD_ID in own else _at(self.old, path)
        if twin is not None and self.upgrade:
            own.setdefault(PHYSICAL_NAME, twin.name)
        elif twin is not None and _same_type(twin.type, item.type):
            # A schema that is overwritten: the column stays the one that it is.
            own.update({key: twin.metadata[key] for key in (PHYSICAL_NAME, FIELD_ID) if key in twin.metadata})
        if FIELD_ID not in own:
            self.most = assigned(self.most + 1, "column id", LAST_COLUMN_ID)
            own[FIELD_ID] = self.most
        own.setdefault(PHYSICAL_NAME, f"col-{uuid.uuid4()}")
        return replace(item, type=self._type(item.type, path), metadata=own)

    def _type(self, data_type: DataType, path: tuple[str, ...]) -> DataType:
        match data_type:
            case StructType():
                return self.struct(data_type, path)
            case ArrayType():
                return replace(data_type, element=self._type(data_type.element, (*path, "element")))
            case MapType():
                key = self._type(data_type.key, (*path, "key"))
                return replace(data_type, key=key, value=self._type(data_type.value, (*path, "value")))
        return data_type

    def with_nested_ids(self, item: StructField) -> StructField:
        """The column with an id for each element, key and value in it that is not within a field of a struct."""
        ids = dict(nested_ids(item))
        for path in _nested_paths(item.type, physical_name(item)):
            if path not in ids:
                self.most = assigned(self.most + 1, "column id", LAST_COLUMN_ID)
                ids[path] = self.most
        return replace(item, metadata={**item.metadata, NESTED_IDS: ids}) if ids else item


def _nested_paths(data_type: DataType, path: str) -> Iterator[str]:
    match data_type:
        case ArrayType():
            yield f"{path}.element"
            yield from _nested_paths(data_type.element, f"{path}.element")
        case MapType():
            for name, inner in (("key", data_type.key), ("value", data_type.value)):
                yield f"{path}.{name}"
                yield from _nested_paths(inner, f"{path}.{name}")


def each_field(schema: StructType, change: Callable[[StructField], StructField]) -> StructType:
    """The schema with every field changed, inner ones first."""
    changed: Any = _each_in(schema, change)
    return StructType(changed.fields)


def _each_in(data_type: DataType, change: Callable[[StructField], StructField]) -> DataType:
    match data_type:
        case StructType():
            return StructType(tuple(change(replace(item, type=_each_in(item.type, change))) for item in data_type))
        case ArrayType():
            return replace(data_type, element=_each_in(data_type.element, change))
        case MapType():
            return replace(data_type, key=_each_in(data_type.key, change), value=_each_in(data_type.value, change))
    return data_type


def _without(item: StructField, keys: frozenset[str]) -> StructField:
    if keys.isdisjoint(item.metadata):
        return item
    return replace(item, metadata={key: value for key, value in item.metadata.items() if key not in keys})


def _at(schema: StructType, path: tuple[str, ...]) -> StructField | None:
    """The field at a path of logical names, ``element``, ``key`` and ``value`` among them."""
    here: DataType = schema
    found: StructField | None = None
    for name in path:
        match here:
            case StructType():
                found = here.find(name)
                if found is None:
                    return None
                here = found.type
            case ArrayType() if name == "element":
                here = here.element
            case MapType() if name in ("key", "value"):
                here = here.key if name == "key" else here.value
            case _:
                return None
    return found


def _same_type(one: DataType, other: DataType) -> bool:
    """Whether two types are one but for what may be null and for metadata."""
    return str(as_nullable(one)) == str(as_nullable(other))
