"""The growth of a table's schema: by columns of the data that is written to it, and from a type to a wider one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from refdelta.core.log.actions import Metadata
from refdelta.core.log.json_text import SCHEMA, read_json
from refdelta.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    INTEGRAL,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    every_field,
    parse_schema,
    physical_name,
    type_named,
)

TYPE_CHANGES = "delta.typeChanges"
# Where the preview of type widening noted the version of a change; the accepted feature does not.
_VERSION = "tableVersion"

# Parquet stores these as the same type, so a column may change from one to another without rewriting its files.
SMALL_INTEGERS = (BYTE, SHORT, INTEGER)

Changes = Literal["silent", "recorded", "refused"]


def as_nullable(data_type: DataType) -> DataType:
    """The same type with every field, element and value nullable: what a column that is added later must be."""
    match data_type:
        case StructType():
            return StructType(tuple(replace(f, type=as_nullable(f.type), nullable=True) for f in data_type))
        case ArrayType():
            return ArrayType(as_nullable(data_type.element), True)
        case MapType():
            return MapType(as_nullable(data_type.key), as_nullable(data_type.value), True)
        case _:
            return data_type


def keeps_columns(before: Metadata, after: Metadata) -> bool:
    """Whether all columns that a table had are there still, of the same types, under the names that its files and its
    metadata domains know; new ones do not matter. A change of partition columns keeps none.

    Raises:
        InvalidLogError: one of the two has a schema that cannot be read.
    """
    if before.schema_string == after.schema_string and before.partition_columns == after.partition_columns:
        return True
    old, new = parse_schema(before.schema_string), parse_schema(after.schema_string)
    there = {physical_name(item): item.type for item in new}
    same = all(there.get(physical_name(item)) == item.type for item in old)
    return same and before.partition_columns == after.partition_columns


def widens(narrow: DataType, wide: DataType) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide``, so that it may be stored there unchanged.

    Integers into wider integers, float into double, integers and decimals into decimals with room for them.
    """
    if narrow in (wide, VOID):
        return True
    if narrow in INTEGRAL and wide in INTEGRAL:
        return INTEGRAL[narrow] <= INTEGRAL[wide]
    if narrow == FLOAT and wide == DOUBLE:
        return True
    if isinstance(wide, DecimalType):
        room = wide.precision - wide.scale
        if isinstance(narrow, DecimalType):
            return narrow.scale <= wide.scale and narrow.precision - narrow.scale <= room
        return narrow in INTEGRAL and _DIGITS[INTEGRAL[narrow]] <= room
    return False


def may_fit(source: DataType, target: DataType) -> bool:
    """True if some values of one type can be stored in a column of another one without loss; each value is checked.

    It is decided for each value by :func:`refdelta.expressions.exact_cast.fitted_value`. Nested types, variants
    and strings with collations fit only what they are.
    """
    if widens(source, target):
        return True
    if source == STRING:
        return target in _OF_TEXT or target in INTEGRAL or isinstance(target, DecimalType)
    if target == STRING:
        return source in _AS_TEXT or source in INTEGRAL or isinstance(source, DecimalType)
    if BOOLEAN in (source, target):
        return source in INTEGRAL or target in INTEGRAL
    if source in _TIMES or target in _TIMES:
        # A time of the wall clock and a moment are different things: its zone is unknown.
        return DATE in (source, target) and source in _TIMES and target in _TIMES
    return _is_number(source) and _is_number(target)


_TIMES: frozenset[DataType] = frozenset({DATE, TIMESTAMP, TIMESTAMP_NTZ})
_OF_TEXT: frozenset[DataType] = _TIMES | {BOOLEAN, BINARY, FLOAT, DOUBLE}
# Without floats: the digits of their text differ between engines.
_AS_TEXT: frozenset[DataType] = _TIMES | {BOOLEAN, BINARY}


def _is_number(data_type: DataType) -> bool:
    return data_type in INTEGRAL or data_type in (FLOAT, DOUBLE) or isinstance(data_type, DecimalType)


_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
# The decimals into which integers may change; Parquet holds the three narrow ones alike.
_AS_DECIMAL: dict[DataType, tuple[int, int]] = {BYTE: (10, 0), SHORT: (10, 0), INTEGER: (10, 0), LONG: (20, 0)}
_OTHER_WIDENINGS = frozenset(
    {(FLOAT, DOUBLE), (BYTE, DOUBLE), (SHORT, DOUBLE), (INTEGER, DOUBLE), (DATE, TIMESTAMP_NTZ)}
)


def can_widen(old: DataType, new: DataType) -> bool:
    """Whether a column may change from one primitive type to another (PROTOCOL.md, "Type Widening")."""
    if old in INTEGRAL and new in INTEGRAL:
        return INTEGRAL[old] < INTEGRAL[new]
    if isinstance(new, DecimalType):
        digits, scale = _AS_DECIMAL.get(old, (0, 0))
        if isinstance(old, DecimalType):
            digits, scale = old.precision, old.scale
        more, deeper = new.precision - digits, new.scale - scale
        return bool(digits) and old != new and more >= deeper >= 0
    return (old, new) in _OTHER_WIDENINGS


def widens_in_iceberg(old: DataType, new: DataType) -> bool:
    """Whether Iceberg knows the change as well: those of integers, floats and the precision of decimals."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and can_widen(old, new)
    return (old, new) == (FLOAT, DOUBLE) or (new in INTEGRAL and can_widen(old, new))


def type_changes(schema: StructType) -> Iterator[tuple[StructField, DataType, DataType]]:
    """The changes of type that a schema notes, each with the field that notes it.

    Raises:
        UnsupportedFeatureError: a change that is none, or of types that this engine does not know.
    """
    for item in every_field(schema):
        noted = item.metadata.get(TYPE_CHANGES, [])
        try:
            for change in noted:
                yield item, type_named(change["fromType"]), type_named(change["toType"])
        except (TypeError, KeyError, InvalidArgumentError):
            raise UnsupportedFeatureError([f"the change of type {noted!r} of column {item.name}"], "read") from None


def check_type_changes(schema: StructType) -> None:
    """Refuse changes of type that no reader can follow (PROTOCOL.md, "Reader Requirements for Type Widening").

    Raises:
        UnsupportedFeatureError: one that is no widening; it is named.
    """
    for item, old, new in type_changes(schema):
        if old != new and not can_widen(old, new):
            raise UnsupportedFeatureError([f"the change of column {item.name} from {old} to {new}"], "read")


def with_type_changes(old: StructType, new: StructType, version: int | None = None) -> StructType:
    """A schema with the changes of type since another one noted in the metadata of its fields.

    Implements PROTOCOL.md, "Type Change Metadata". Fields are paired by their names.

    Args:
        old: the schema before.
        new: the schema with other types.
        version: the version that each change notes, as tables with the preview have it; None for no version.
    """
    fields = []
    for item in new:
        twin = old.find(item.name)
        if twin is not None:
            inner = _noted_within(twin.type, item.type, version)
            item = _with_changes(twin, replace(item, type=inner), version)  # noqa: PLW2901
        fields.append(item)
    return StructType(tuple(fields))


def _noted_within(old: DataType, new: DataType, version: int | None) -> DataType:
    match old, new:
        case StructType(), StructType():
            return with_type_changes(old, new, version)
        case ArrayType(), ArrayType():
            return replace(new, element=_noted_within(old.element, new.element, version))
        case MapType(), MapType():
            key = _noted_within(old.key, new.key, version)
            return replace(new, key=key, value=_noted_within(old.value, new.value, version))
    return new


def without_zone(table: DataType, data: DataType) -> str:
    """The ways out for local times where the table has points in time, for the end of a message; else empty."""
    if (table, data) != (TIMESTAMP, TIMESTAMP_NTZ):
        return ""
    return (
        '; times without a zone need timezone=, for example timezone="Europe/Berlin" or timezone="UTC", or a column of '
        "type timestamp_ntz"
    )


def without_type(table: DataType, growth: str = "") -> str:
    """The ways out for a column of the table that is void, for the end of a message; else empty.

    Args:
        table: the type of the column.
        growth: the argument with which the statement would give the column a type; empty if there is none.
    """
    if table != VOID:
        return ""
    merging = f"{growth} gives it the type of the data, " if growth else ""
    return f"; it had only nulls so far, and has no type: {merging}alter.change_type() gives it one"


def merge_schemas(
    old: StructType,
    new: StructType,
    *,
    changes: Changes = "silent",
    version: int | None = None,
    casts: bool = False,
) -> StructType:
    r"""The table's schema after a write with ``schema_mode="merge"``.

    Columns and nested fields that only ``new`` has are added after those of ``old``, nullable. A column of both keeps
    the nullability, the metadata and the spelling of ``old``. It keeps its type too, with exceptions, as in
    delta-spark: of byte, short and integer the wider one stays, and void gives way to any type. Where changes are
    recorded, a column grows with the data to any wider type but from integers to doubles and decimals, which have
    other digits. Narrower data fit into a column; other data are refused, unless each value is to be cast.

    Args:
        old: the table's schema.
        new: the data's.
        changes: the handling of a byte or short column that must grow: its type changes ``silent``\ly, as in a table
            without type widening, or is ``recorded`` in the field's metadata (PROTOCOL.md, "Type Change Metadata"),
            or is ``refused``.
        version: what each change that is recorded notes as its version; see :func:`with_type_changes`.
        casts: whether a column keeps its type, too, if some values of the data's type fit there (:func:`may_fit`).

    Raises:
        SchemaMismatchError: a column of both has types that do not fit; all such columns are named.
    """
    problems: list[str] = []
    merged = _Merge(changes, casts, problems).structs(old, new, "")
    if changes == "recorded":
        merged = with_type_changes(old, merged, version)
    if problems:
        raise SchemaMismatchError("the data's schema cannot be merged into the table's: " + "; ".join(problems))
    return merged


@dataclass(frozen=True)
class _Merge:
    """One merge of two schemas; see :func:`merge_schemas`. Columns that cannot be merged are noted in ``problems``."""

    changes: Changes
    casts: bool
    problems: list[str]

    def structs(self, old: StructType, new: StructType, path: str) -> StructType:
        fields = []
        for item in old:
            twin = new.find(item.name)
            if twin is not None:
                item = replace(item, type=self.types(item.type, twin.type, path + item.name))  # noqa: PLW2901
            fields.append(item)
        added = [replace(f, type=as_nullable(f.type), nullable=True) for f in new if old.find(f.name) is None]
        return StructType((*fields, *added))

    def types(self, old: DataType, new: DataType, path: str) -> DataType:
        match old, new:
            case StructType(), StructType():
                return self.structs(old, new, f"{path}.")
            case ArrayType(), ArrayType():
                return replace(old, element=self.types(old.element, new.element, f"{path}.element"))
            case MapType(), MapType():
                key = self.types(old.key, new.key, f"{path}.key")
                return replace(old, key=key, value=self.types(old.value, new.value, f"{path}.value"))
        if old == VOID:
            return as_nullable(new)
        if widens(new, old):
            return old
        if self.changes != "refused" and old in SMALL_INTEGERS and new in SMALL_INTEGERS:
            return new
        if self.changes == "recorded" and can_widen(old, new) and (new in INTEGRAL or old not in INTEGRAL):
            return new
        if not (self.casts and may_fit(new, old)):
            self.problems.append(f"column {path} is {old} in the table and {new} in the data{without_zone(old, new)}")
        return old


def _with_changes(old: StructField, new: StructField, version: int | None) -> StructField:
    noted = {} if version is None else {_VERSION: version}
    changes = [{**noted, **change} for change in _type_changes(old.type, new.type, ())]
    if not changes:
        return new
    return replace(new, metadata={**new.metadata, TYPE_CHANGES: [*new.metadata.get(TYPE_CHANGES, ()), *changes]})


def _type_changes(old: DataType, new: DataType, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The changes that belong to one field: within arrays and maps, not within the fields of structs."""
    match old, new:
        case ArrayType(), ArrayType():
            yield from _type_changes(old.element, new.element, (*path, "element"))
        case MapType(), MapType():
            yield from _type_changes(old.key, new.key, (*path, "key"))
            yield from _type_changes(old.value, new.value, (*path, "value"))
        case _:
            if can_widen(old, new):
                where = {"fieldPath": ".".join(path)} if path else {}
                yield {"fromType": str(old), "toType": str(new), **where}


# --- the versions that changes note -----------------------------------------------------------------------------


def moved_changes(schema_string: str, was: int, version: int) -> str:
    """A schema whose changes that noted one version note another one: that of the attempt to commit it."""
    if _VERSION not in schema_string:
        return schema_string
    schema = read_json(schema_string, SCHEMA)
    found = [change for change in _noted(schema) if change.get(_VERSION) == was]
    for change in found:
        change[_VERSION] = version
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False) if found else schema_string


def notes_version(schema_string: str, version: int) -> bool:
    """Whether a change of type in a schema notes this version."""
    if _VERSION not in schema_string:
        return False
    return any(change.get(_VERSION) == version for change in _noted(read_json(schema_string, SCHEMA)))


def _noted(schema: Any) -> Iterator[dict[str, Any]]:
    """The changes of type that a schema notes, as they stand in its JSON."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            metadata = part.get("metadata")
            changes = metadata.get(TYPE_CHANGES) if isinstance(metadata, dict) else None
            yield from (one for one in (changes if isinstance(changes, list) else ()) if isinstance(one, dict))
            todo.extend(part.get(name) for name in ("type", "elementType", "keyType", "valueType", "fields"))
        elif isinstance(part, list):
            todo.extend(part)
