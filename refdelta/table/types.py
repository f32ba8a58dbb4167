"""The types of a table's columns, and the schema as the log writes it (PROTOCOL.md, "Schema Serialization Format").

Types are values: equal when they mean the same, hashable, and free of Arrow. Column names keep the case in which they
were written and are found in any case, as in Spark.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from refdelta.core.log.json_text import check_depth
from refdelta.errors import (
    ColumnNotFoundError,
    InvalidArgumentError,
    InvalidLogError,
    unknown_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PHYSICAL_NAME = "delta.columnMapping.physicalName"
FIELD_ID = "delta.columnMapping.id"

# Deeper than any table, shallow enough for Python's stack.
MOST_LEVELS = 100


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters; ``name`` is the log's name for it."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """``precision`` digits (1 to 38), ``scale`` of them after the decimal point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of ``element``; ``contains_null`` says whether an element may be null."""

    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map; keys are never null, values where ``value_contains_null`` says so."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field of a struct; ``metadata`` is the log's free JSON beside it.

    ``zone`` is no part of the table: the zone in which the handle reads partition values without an offset.
    """

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    zone: str | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.nullable else " not null")


@dataclass(frozen=True, slots=True)
class StructType:
    """A struct, or a table's schema. Iterating gives its fields."""

    fields: tuple[StructField, ...] = ()
    # The fields by name in lower case, made when one is looked for.
    _by_name: dict[str, list[StructField]] | None = field(default=None, init=False, repr=False, compare=False)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __str__(self) -> str:
        return "struct<" + ",".join(str(item) for item in self.fields) + ">"

    @property
    def names(self) -> list[str]:
        """The fields' names, in order."""
        return [item.name for item in self.fields]

    def find(self, name: str) -> StructField | None:
        """The field of this name in any case, or None."""
        by_name = self._by_name
        if by_name is None:
            by_name = {}
            for item in self.fields:
                by_name.setdefault(item.name.lower(), []).append(item)
            object.__setattr__(self, "_by_name", by_name)
        found = by_name.get(name.lower())
        if found is None:
            return None
        return found[0] if len(found) == 1 else next((item for item in found if item.name == name), found[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return StructType, (self.fields,)

    def field(self, name: str, where: str = "the table") -> StructField:
        """The field of this name in any case.

        Raises:
            ColumnNotFoundError: there is none.
        """
        found = self.find(name)
        if found is None:
            raise ColumnNotFoundError(name, self.names, where)
        return found


@dataclass(frozen=True, slots=True)
class UnknownType:
    """A type that this engine does not know. Columns of it are not read, and tables with it are not written.

    Attributes:
        name: its name, for messages.
        json: the type as the schema has it.
    """

    name: str
    json: str

    def __str__(self) -> str:
        return self.name


DataType = PrimitiveType | DecimalType | ArrayType | MapType | StructType | UnknownType

STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
INTEGER = PrimitiveType("integer")
SHORT = PrimitiveType("short")
BYTE = PrimitiveType("byte")
DOUBLE = PrimitiveType("double")
FLOAT = PrimitiveType("float")
BOOLEAN = PrimitiveType("boolean")
BINARY = PrimitiveType("binary")
DATE = PrimitiveType("date")
TIMESTAMP = PrimitiveType("timestamp")
TIMESTAMP_NTZ = PrimitiveType("timestamp_ntz")
VOID = PrimitiveType("void")
VARIANT = PrimitiveType("variant")

# Of tables of other writers (protocol_rfcs/interval-types.md of delta-io/delta): this engine only reads them.
INTERVAL_YEAR_MONTH = PrimitiveType("interval year to month")
INTERVAL_DAY_TIME = PrimitiveType("interval day to second")

INTEGRAL: dict[DataType, int] = {BYTE: 8, SHORT: 16, INTEGER: 32, LONG: 64}
"""The integer types and their widths in bits."""

FRACTIONAL: frozenset[DataType] = frozenset({FLOAT, DOUBLE})

_PRIMITIVES = {
    item.name: item
    for item in (
        STRING,
        LONG,
        INTEGER,
        SHORT,
        BYTE,
        DOUBLE,
        FLOAT,
        BOOLEAN,
        BINARY,
        DATE,
        TIMESTAMP,
        TIMESTAMP_NTZ,
        VOID,
        VARIANT,
    )
}
# The type of NULL, and of a decimal without parameters, in old versions of Spark.
_NESTED = frozenset({"struct", "array", "map"})
_ALIASES: dict[str, DataType] = {"null": VOID, "decimal": DecimalType(10, 0)}
_SQL_NAMES = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte", "real": "float"}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\)")
_INTERVAL = re.compile(r"interval (\w+)(?: to (\w+))?", re.ASCII)
_INTERVAL_UNITS = {
    INTERVAL_YEAR_MONTH: ("year", "month"),
    INTERVAL_DAY_TIME: ("day", "hour", "minute", "second"),
}


def is_nested(data_type: DataType) -> bool:
    """Whether the type is a struct, an array or a map."""
    return isinstance(data_type, StructType | ArrayType | MapType)


def is_numeric(data_type: DataType) -> bool:
    """Whether the type is an integer, a float or a decimal."""
    return data_type in FRACTIONAL or is_exact(data_type)


def is_exact(data_type: DataType) -> bool:
    """Whether the type is an integer or a decimal."""
    return data_type in INTEGRAL or isinstance(data_type, DecimalType)


def is_plain(data_type: DataType) -> bool:
    """Whether values of the type are equal in one form only: floats have two zeros and many NaNs, and what is nested
    may hold floats.
    """
    return is_exact(data_type) or data_type in (STRING, BINARY, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ)


# --- JSON --------------------------------------------------------------------------------------------------------


def parse_schema(text: str, *, file: str | None = None, line: int | None = None) -> StructType:
    """Read ``metaData.schemaString`` (PROTOCOL.md, "Schema Serialization Format").

    Args:
        text: the JSON.
        file: the log file that it came from, for errors.
        line: its line there.

    A type that this engine does not know is an :class:`UnknownType`.

    Raises:
        InvalidLogError: it is not a schema.
    """
    try:
        parsed = json.loads(text)
        if "\\u" in text:
            json.dumps(parsed, ensure_ascii=False).encode()  # fails for half of a surrogate pair, which is no character
    except UnicodeEncodeError:
        raise InvalidLogError("the table's schema has half of a character in it", file=file, line=line) from None
    except (ValueError, RecursionError) as error:
        raise InvalidLogError(f"the table's schema is not JSON: {error}", file=file, line=line) from None
    try:
        schema = _type_from_json(parsed, "", 0)
    except _BadSchemaError as error:
        raise InvalidLogError(f"the table's schema is not valid: {error}", file=file, line=line) from None
    if not isinstance(schema, StructType):
        raise InvalidLogError(f"the table's schema is not a struct but {schema}", file=file, line=line)
    return schema


def schema_json(schema: StructType) -> str:
    """The schema as ``metaData.schemaString`` holds it, in Spark's order of keys and without spaces."""
    return json.dumps(_type_to_json(schema), separators=(",", ":"), ensure_ascii=False)


class _BadSchemaError(Exception):
    """An invalid schema, with its path; it becomes an ``InvalidLogError`` in this module."""


def _type_from_json(value: Any, path: str, depth: int) -> DataType:
    if depth > MOST_LEVELS:
        raise _BadSchemaError(f"it nests more than {MOST_LEVELS} levels deep")
    if isinstance(value, str):
        return _primitive(value, path)
    if not isinstance(value, dict):
        raise _BadSchemaError(f"{path or 'the schema'} has no type but {value!r}")
    match value.get("type"):
        case "struct":
            fields = value.get("fields")
            if not isinstance(fields, list):
                raise _BadSchemaError(f"{path or 'the schema'} is a struct without a list of fields")
            return StructType(tuple(_field_from_json(item, path, depth) for item in fields))
        case "array":
            element = _type_from_json(value.get("elementType"), f"{path}.element", depth + 1)
            return ArrayType(element, _flag(value, "containsNull", path))
        case "map":
            key = _type_from_json(value.get("keyType"), f"{path}.key", depth + 1)
            return MapType(
                key,
                _type_from_json(value.get("valueType"), f"{path}.value", depth + 1),
                _flag(value, "valueContainsNull", path),
            )
        case str(name) if len(value) == 1:
            return _primitive(name, path)  # as PROTOCOL.md's own example has the elements of an array of variants
        case str(name) if name:
            return UnknownType(name, json.dumps(value, separators=(",", ":"), ensure_ascii=False))
        case other:
            raise _BadSchemaError(f"{path or 'the schema'} has the unknown type {other!r}")


def _field_from_json(value: Any, path: str, depth: int) -> StructField:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _BadSchemaError(f"{path or 'the schema'} has a field without a name")
    name: str = value["name"]
    here = f"{path}.{name}" if path else name
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _BadSchemaError(f"{here} has metadata that is no object")
    if metadata:
        try:
            check_depth(metadata)
        except ValueError as error:
            raise _BadSchemaError(f"the metadata of {here}: {error}") from None
    return StructField(
        name, _type_from_json(value.get("type"), here, depth + 1), _flag(value, "nullable", here), metadata or {}
    )


def _flag(value: Mapping[str, Any], key: str, path: str) -> bool:
    flag = value.get(key, True)
    if not isinstance(flag, bool):
        raise _BadSchemaError(f"{path}: {key} is not a boolean but {flag!r}")
    return flag


def _primitive(name: str, path: str) -> DataType:
    known = _PRIMITIVES.get(name) or _ALIASES.get(name)
    if known is not None:
        return known
    parameters = _DECIMAL.fullmatch(name)
    if parameters:
        precision, scale = int(parameters[1]), int(parameters[2])
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise _BadSchemaError(f"{path} has the impossible type {name}")
        return DecimalType(precision, scale)
    if not name or not path:
        raise _BadSchemaError(f"{path or 'the schema'} has the unknown type {name!r}")
    return _interval(name) or UnknownType(name, json.dumps(name, ensure_ascii=False))


def _interval(name: str) -> DataType | None:
    """The type of an interval, in any of its spellings; None for another name."""
    found = _INTERVAL.fullmatch(name)
    for kind, units in _INTERVAL_UNITS.items():
        if found and found[1] in units and (found[2] is None or found[2] in units[units.index(found[1]) + 1 :]):
            return kind
    return None


def is_written(name: str) -> bool:
    """Whether this engine writes tables with a type, by its name in the schema, which may be that of a nested type."""
    return name in _PRIMITIVES or name in _ALIASES or name in _NESTED or _DECIMAL.fullmatch(name) is not None


def unknown_types(data_type: DataType, path: str) -> Iterator[tuple[str, UnknownType]]:
    """The parts of a column whose types this engine does not know, by their paths; ``path`` is the column's."""
    match data_type:
        case UnknownType():
            yield path, data_type
        case StructType():
            for item in data_type:
                yield from unknown_types(item.type, f"{path}.{item.name}")
        case ArrayType():
            yield from unknown_types(data_type.element, f"{path}.element")
        case MapType():
            yield from unknown_types(data_type.key, f"{path}.key")
            yield from unknown_types(data_type.value, f"{path}.value")


def known_parts(data_type: DataType) -> DataType:
    """The type without the fields of structs whose types this engine does not know."""
    if not isinstance(data_type, StructType) or next(unknown_types(data_type, ""), None) is None:
        return data_type
    fields = (replace(item, type=known_parts(item.type)) for item in data_type)
    return StructType(tuple(item for item in fields if next(unknown_types(item.type, ""), None) is None))


def type_named(name: str) -> DataType:
    """A primitive type by its name in the log, or by its name in SQL.

    Raises:
        InvalidArgumentError: there is no such type.
    """
    folded = " ".join(name.lower().split()) if isinstance(name, str) else ""
    try:
        found = _primitive(_SQL_NAMES.get(folded, folded), "it")
    except _BadSchemaError:
        found = None
    if found is None or not is_written(str(found)):
        known = [*_PRIMITIVES, "decimal(p,s)", *_SQL_NAMES]
        raise InvalidArgumentError(unknown_name("primitive type", name, known))
    return found


def _type_to_json(data_type: DataType) -> Any:
    match data_type:
        case StructType():
            fields = [
                {"name": f.name, "type": _type_to_json(f.type), "nullable": f.nullable, "metadata": dict(f.metadata)}
                for f in data_type
            ]
            return {"type": "struct", "fields": fields}
        case ArrayType():
            element = _type_to_json(data_type.element)
            return {"type": "array", "elementType": element, "containsNull": data_type.contains_null}
        case MapType():
            return {
                "type": "map",
                "keyType": _type_to_json(data_type.key),
                "valueType": _type_to_json(data_type.value),
                "valueContainsNull": data_type.value_contains_null,
            }
        case UnknownType():
            return json.loads(data_type.json)
        case _:
            return str(data_type)


# --- names -------------------------------------------------------------------------------------------------------


def physical_name(item: StructField) -> str:
    """The name under which files, statistics and partition values hold the column (PROTOCOL.md, "Column Mapping")."""
    return str(item.metadata.get(PHYSICAL_NAME, item.name))


def field_id(item: StructField) -> int | None:
    """The column's Parquet field id (PROTOCOL.md, "Column Mapping"), or None where columns are not mapped."""
    number = item.metadata.get(FIELD_ID)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def every_field(data_type: DataType) -> Iterator[StructField]:
    """All fields of structs in a type, outer ones before those within them."""
    match data_type:
        case StructType():
            for item in data_type:
                yield item
                yield from every_field(item.type)
        case ArrayType():
            yield from every_field(data_type.element)
        case MapType():
            yield from every_field(data_type.key)
            yield from every_field(data_type.value)


def leaves(schema: StructType, *, physical: bool = False) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Every leaf column with its path of names: structs are descended into, arrays and maps are leaves.

    Args:
        schema: the table's schema.
        physical: whether the paths are of physical names.
    """
    for item in schema:
        name = physical_name(item) if physical else item.name
        if isinstance(item.type, StructType):
            for path, leaf in leaves(item.type, physical=physical):
                yield (name, *path), leaf
        else:
            yield (name,), item


def has_identity_columns(schema: StructType) -> bool:
    """Whether a table generates values that no two transactions may both take (PROTOCOL.md, "Identity Columns")."""
    return any(name.startswith("delta.identity.") for column in schema for name in column.metadata)
