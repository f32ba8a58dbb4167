"""Delta types and Arrow types. Every Delta type has one Arrow type; some further Arrow types map to a Delta type
without loss. Other Arrow types are refused by name, and never changed silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from refdelta.arrow import variant
from refdelta.errors import SchemaMismatchError, UnsupportedTypeError
from refdelta.table.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_TO_ARROW: dict[DataType, pa.DataType] = {
    STRING: pa.string(),
    LONG: pa.int64(),
    INTEGER: pa.int32(),
    SHORT: pa.int16(),
    BYTE: pa.int8(),
    DOUBLE: pa.float64(),
    FLOAT: pa.float32(),
    BOOLEAN: pa.bool_(),
    BINARY: pa.binary(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_NTZ: pa.timestamp("us"),
    VOID: pa.null(),
    VARIANT: variant.VARIANT,
    # Of values of expressions alone: see refdelta.expressions.interval_types.
    **{PrimitiveType(f"interval {name}"): pa.int64() for name in ("day", "day to second", "year to month")},
}


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which the engine holds a Delta type.

    Raises:
        UnsupportedTypeError: the engine has no such type (maps with keys of type void).
    """
    match data_type:
        case DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
        case StructType():
            return pa.struct([arrow_field(item) for item in data_type])
        case ArrayType():
            return pa.list_(_field("element", data_type.element, data_type.contains_null))
        case MapType() if data_type.key == VOID:
            raise UnsupportedTypeError("maps without keys are not supported")  # they are never null, and of type void
        case MapType():
            value = _field("value", data_type.value, data_type.value_contains_null)
            return pa.map_(pa.field("key", arrow_type(data_type.key), nullable=False), value)
    found = _TO_ARROW.get(data_type)
    if found is None:
        raise UnsupportedTypeError(f"columns of type {data_type} are not supported")
    return found


def _field(name: str, data_type: DataType, nullable: bool) -> pa.Field:
    # Arrow has no null type that is not nullable.
    return pa.field(name, arrow_type(data_type), nullable or data_type == VOID)


def arrow_field(item: StructField) -> pa.Field:
    """The Arrow field of a column, without metadata."""
    try:
        return _field(item.name, item.type, item.nullable)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"column {item.name}: {error}") from None


def to_arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema of a table, its columns in order, by their logical names.

    Raises:
        UnsupportedTypeError: the engine lacks the type of a column.
    """
    global _TO  # noqa: PLW0603 - replaced as a whole
    for known, made in _TO:
        if known is schema:
            return made
    made = pa.schema([arrow_field(item) for item in schema])
    _TO = ((schema, made), *_TO[: _KEPT - 1])
    return made


# The schemas that were converted last. A statement converts those of its table and of its data several times, and the
# next one converts the same again.
_KEPT = 4
_TO: tuple[tuple[StructType, pa.Schema], ...] = ()
_FROM: tuple[tuple[pa.Schema, StructType], ...] = ()


def from_arrow(schema: pa.Schema) -> StructType:
    """The Delta schema that holds data of an Arrow schema without loss.

    UUIDs become strings, ``arrow.bool8`` booleans, other extension types their storage types, unsigned integers the
    next wider signed ones (``uint64`` becomes ``decimal(20,0)``), dictionaries their values, ``large_*``, views and
    fixed-size types the plain ones, seconds and milliseconds become microseconds. Nanoseconds become microseconds too:
    a value that would lose digits is refused when it is written.

    Raises:
        UnsupportedTypeError: a column has a type that cannot be mapped without loss; the column's path is named.
        SchemaMismatchError: two columns have the same name, up to its case.
    """
    global _FROM  # noqa: PLW0603 - replaced as a whole
    for known, made in _FROM:
        if known is schema or known.equals(schema):
            return made
    made = _struct(list(schema), "")
    _FROM = ((schema, made), *_FROM[: _KEPT - 1])
    return made


def _struct(fields: list[pa.Field], path: str) -> StructType:
    seen: dict[str, str] = {}
    for item in fields:
        name = item.name
        twin = seen.get(name.lower())
        seen[name.lower()] = name
        if twin is not None:
            raise SchemaMismatchError(
                f"columns {path + twin!r} and {path + item.name!r} have the same name: "
                "names are compared without regard to case"
            )
    return StructType(tuple(StructField(f.name, delta_type(f.type, path + f.name), f.nullable) for f in fields))


def delta_type(data_type: pa.DataType, path: str) -> DataType:
    """The Delta type for an Arrow type; ``path`` is the column's, for errors. See :func:`from_arrow`."""
    if pt.is_dictionary(data_type) or pt.is_run_end_encoded(data_type):
        return delta_type(data_type.value_type, path)
    if variant.is_variant(data_type):
        return VARIANT
    if is_uuid(data_type):
        return STRING
    if is_bool8(data_type):
        return BOOLEAN
    if isinstance(data_type, pa.BaseExtensionType):
        return delta_type(data_type.storage_type, path)
    if pt.is_struct(data_type):
        if not data_type.num_fields:
            raise UnsupportedTypeError(f"column {path}: a struct without fields cannot be stored in Parquet")
        return _struct(list(data_type.fields), f"{path}.")
    if pt.is_map(data_type):
        value = data_type.item_field
        return MapType(
            delta_type(data_type.key_type, f"{path}.key"), delta_type(value.type, f"{path}.value"), value.nullable
        )
    if _is_list(data_type):
        element = data_type.value_field
        return ArrayType(delta_type(element.type, f"{path}.element"), element.nullable)
    if pt.is_decimal(data_type):
        return _decimal(data_type, path)
    if pt.is_timestamp(data_type):
        return TIMESTAMP_NTZ if data_type.tz is None else TIMESTAMP
    for accepts, mapped in _FROM_ARROW:
        if accepts(data_type):
            return mapped
    raise UnsupportedTypeError(f"column {path}: Delta has no type for Arrow's {data_type}; {_advice(data_type)}")


def is_uuid(data_type: pa.DataType) -> bool:
    """True for Arrow's canonical extension type ``arrow.uuid``."""
    return getattr(data_type, "extension_name", None) == "arrow.uuid"


def is_bool8(data_type: pa.DataType) -> bool:
    """True for Arrow's canonical extension type ``arrow.bool8``, booleans of a byte each."""
    return getattr(data_type, "extension_name", None) == "arrow.bool8"


def with_parts(data_type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A list, struct or map with changed types of its parts; any other type is returned unchanged."""
    if pt.is_list(data_type):
        return pa.list_(_changed(data_type.value_field, change))
    if pt.is_large_list(data_type):
        return pa.large_list(_changed(data_type.value_field, change))
    if pt.is_fixed_size_list(data_type):
        return pa.list_(_changed(data_type.value_field, change), data_type.list_size)
    if pt.is_struct(data_type):
        return pa.struct([_changed(field, change) for field in data_type.fields])
    if pt.is_map(data_type):
        return pa.map_(_changed(data_type.key_field, change), _changed(data_type.item_field, change))
    return data_type


def _changed(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    return field.with_type(change(field.type))


def large_schema(schema: pa.Schema) -> pa.Schema:
    """A schema whose strings, binaries and lists have offsets of 64 bits, at every depth."""
    return pa.schema([_changed(field, _large) for field in schema], schema.metadata)


def _large(data_type: pa.DataType) -> pa.DataType:
    if pt.is_string(data_type):
        return pa.large_string()
    if pt.is_binary(data_type):
        return pa.large_binary()
    if pt.is_list(data_type):
        return pa.large_list(_changed(data_type.value_field, _large))
    return with_parts(data_type, _large)


def _is_list(data_type: pa.DataType) -> bool:
    return any(
        is_kind(data_type)
        for is_kind in (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
    )


_FROM_ARROW: list[tuple[Callable[[pa.DataType], bool], DataType]] = [
    (pt.is_int8, BYTE),
    (pt.is_int16, SHORT),
    (pt.is_uint8, SHORT),
    (pt.is_int32, INTEGER),
    (pt.is_uint16, INTEGER),
    (pt.is_int64, LONG),
    (pt.is_uint32, LONG),
    (pt.is_uint64, DecimalType(20, 0)),
    (pt.is_float16, FLOAT),
    (pt.is_float32, FLOAT),
    (pt.is_float64, DOUBLE),
    (pt.is_boolean, BOOLEAN),
    (pt.is_string, STRING),
    (pt.is_large_string, STRING),
    (pt.is_string_view, STRING),
    (pt.is_binary, BINARY),
    (pt.is_large_binary, BINARY),
    (pt.is_binary_view, BINARY),
    (pt.is_fixed_size_binary, BINARY),
    (pt.is_date, DATE),
    (pt.is_null, VOID),
]


def _decimal(data_type: pa.DataType, path: str) -> DecimalType:
    precision, scale = data_type.precision, data_type.scale
    if precision > 38 or not 0 <= scale <= precision:
        raise UnsupportedTypeError(
            f"column {path}: Delta's decimals have at most 38 digits and a scale between 0 and the precision, "
            f"not {data_type}"
        )
    return DecimalType(precision, scale)


def _advice(data_type: pa.DataType) -> str:
    if pt.is_time(data_type) or pt.is_duration(data_type):
        return "cast it to an integer, and keep the unit in the column's name"
    return "cast it to a type that Delta has"
