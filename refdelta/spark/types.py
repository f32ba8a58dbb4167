"""Conversion of schemas between Delta and Spark, which write them as the same JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from refdelta.arrow.field_metadata import described_arrow
from refdelta.errors import InvalidLogError, UnsupportedFeatureError, UnsupportedTypeError
from refdelta.table.char_varchar import NOTE, padding_of
from refdelta.table.column_mapping import each_field
from refdelta.table.evolution import as_nullable
from refdelta.table.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
    physical_name,
    schema_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


def spark_schema(fields: Iterable[StructField]) -> Any:
    """Spark's ``StructType`` of these columns. Of their metadata it has the lengths of ``char(n)`` alone: Spark pads
    strings that it compares with such a column.
    """
    from pyspark.sql.types import StructType as SparkStruct

    bare = StructType(tuple(_padded(item, _field(item, item.name, logical=True)) for item in fields))
    return SparkStruct.fromJson(json.loads(schema_json(bare)))


def _padded(item: StructField, bare: StructField) -> StructField:
    return dataclasses.replace(bare, metadata={NOTE: item.metadata[NOTE]}) if padding_of(item) else bare


def arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow schema in which Spark takes batches of a ``StructType``."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def delta_schema(schema: Any) -> StructType:
    """The Delta schema of a Spark ``StructType``, with all fields nullable and without metadata.

    Raises:
        UnsupportedTypeError: Delta has no such type.
    """
    return StructType(tuple(_field(item, item.name, logical=True) for item in _parsed(schema)))


def declared_schema(schema: Any) -> pa.Schema:
    """The Arrow schema of a Spark ``StructType``, with all fields nullable, and their metadata as text without the keys
    that Spark gives. Raises ``UnsupportedTypeError``.
    """
    found = as_nullable(each_field(_parsed(schema), _without_marks_of_spark))
    return described_arrow(found, every=True)


def _without_marks_of_spark(item: StructField) -> StructField:
    kept = {key: value for key, value in item.metadata.items() if not key.startswith(("__", "spark."))}
    return dataclasses.replace(item, metadata=kept)


def _parsed(schema: Any) -> StructType:
    try:
        return parse_schema(schema.json())
    except UnsupportedFeatureError as error:
        raise UnsupportedTypeError(
            f"the DataFrame has {', '.join(error.features)}, which no Delta table can have"
        ) from None
    except InvalidLogError as error:
        raise UnsupportedTypeError(f"the DataFrame has a schema that no Delta table can have: {error}") from None


def physical(item: StructField) -> StructField:
    """The column under its physical name in data files, nested ones too (PROTOCOL.md, "Column Mapping")."""
    return _field(item, physical_name(item), logical=False)


def has_void(data_type: DataType) -> bool:
    """True if a type is ``void`` or contains it: Parquet has no such column."""
    match data_type:
        case StructType():
            return any(has_void(item.type) for item in data_type)
        case ArrayType():
            return has_void(data_type.element)
        case MapType():
            return has_void(data_type.key) or has_void(data_type.value)
    return data_type == VOID


def _field(item: StructField, name: str, *, logical: bool) -> StructField:
    # A file of another engine may have nulls in a column that is not nullable, and a read does not check it.
    return dataclasses.replace(item, name=name, type=_type(item.type, logical=logical), nullable=True, metadata={})


def _type(data_type: DataType, *, logical: bool) -> DataType:
    match data_type:
        case StructType():
            fields = (
                _field(item, item.name if logical else physical_name(item), logical=logical) for item in data_type
            )
            return StructType(tuple(fields))
        case ArrayType():
            return dataclasses.replace(data_type, element=_type(data_type.element, logical=logical), contains_null=True)
        case MapType():
            return dataclasses.replace(
                data_type,
                key=_type(data_type.key, logical=logical),
                value=_type(data_type.value, logical=logical),
                value_contains_null=True,
            )
    return data_type
