"""Results as deltalake gives them, objects of arro3, or of pyarrow where arro3 is not installed; and rows to write."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.arrow.schema import with_parts
from refdelta.schema import struct_of
from refdelta.table.types import StructType

if TYPE_CHECKING:
    from collections.abc import Mapping


HAS_VIEWS = int(pa.__version__.partition(".")[0]) >= 25
"""True if streams have views, which pyarrow 25 and later can hand to other libraries."""


def given(kind: str, value: Any) -> Any:
    """A value of pyarrow as arro3's class of this name, such as ``Table``; the value itself without arro3."""
    try:
        cls = getattr(import_module("arro3.core"), kind)
    except ModuleNotFoundError:
        return value
    return cls.from_stream(value) if kind == "RecordBatchReader" else cls.from_arrow(value)


def stream(reader: pa.RecordBatchReader, kinds: Mapping[str, pa.DataType] | None = None) -> Any:
    """A stream of rows whose strings and binaries are views, as in deltalake's streams, if pyarrow :data:`HAS_VIEWS`.

    Args:
        reader: the rows.
        kinds: for the change data feed, other types of columns, by name; digits of a time that the type lacks are cut
            off. Then strings inside of lists and structs are no views.
    """
    schema, known = reader.schema, kinds or {}
    fields = [
        item if known and pa.types.is_nested(item.type) else item.with_type(known.get(item.name) or _view(item.type))
        for item in schema
    ]
    if (wanted := pa.schema(fields, schema.metadata)) == schema:
        return given("RecordBatchReader", reader)
    cast = (batch.cast(wanted, safe=False) for batch in reader)
    return given("RecordBatchReader", pa.RecordBatchReader.from_batches(wanted, cast))


def writable(data: Any) -> Any:
    """Rows to write, with timestamps in microseconds; digits beyond are cut off, as deltalake does.

    Args:
        data: an object with ``__arrow_c_stream__``, or anything else, which is returned unchanged.
    """
    if not hasattr(data, "__arrow_c_stream__"):
        return data
    reader = pa.RecordBatchReader.from_stream(data)
    schema = reader.schema
    wanted = pa.schema([item.with_type(_micro(item.type)) for item in schema], schema.metadata)
    if wanted == schema:
        return data if hasattr(data, "__len__") else reader
    cast = (batch.cast(wanted, safe=False) for batch in reader)
    return pa.RecordBatchReader.from_batches(wanted, cast)


def columns_of(rows: Any) -> StructType:
    """The columns of rows to write, as refdelta's types; none if they say it only when they are read."""
    schema = getattr(rows, "schema", None)
    if not isinstance(schema, pa.Schema) and hasattr(rows, "__arrow_c_stream__") and hasattr(rows, "__len__"):
        schema = pa.RecordBatchReader.from_stream(rows).schema
    return struct_of(schema) if isinstance(schema, pa.Schema) else StructType(())


def _view(kind: pa.DataType) -> pa.DataType:
    if not HAS_VIEWS:
        return kind
    if pa.types.is_string(kind):
        return pa.string_view()
    if pa.types.is_binary(kind):
        return pa.binary_view()
    return with_parts(kind, _view)


def _micro(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return with_parts(kind, _micro)
