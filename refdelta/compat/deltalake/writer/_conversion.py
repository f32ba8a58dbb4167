"""Arrow schemas as a table stores them, by a function that libraries import although its module is private."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from refdelta.arrow.schema import with_parts
from refdelta.compat.deltalake.arrow import given

_SIGNED = {pa.uint8(): pa.int8(), pa.uint16(): pa.int16(), pa.uint32(): pa.int32(), pa.uint64(): pa.int64()}


def _convert_arro3_schema_to_delta(schema: Any, existing_schema: Any = None) -> Any:
    """The schema with signed integers, and with timestamps in microseconds, of which those with a zone are in UTC.

    Args:
        schema: an Arrow schema of any library.
        existing_schema: of the table; its types are those of columns that hold only nulls.
    """
    known = {} if existing_schema is None else {item.name: item.type for item in pa.schema(existing_schema)}
    source = pa.schema(schema)
    fields = [item.with_type(_stored(item.type, known.get(item.name))) for item in source]
    return given("Schema", pa.schema(fields, source.metadata))


def _stored(kind: pa.DataType, known: pa.DataType | None = None) -> pa.DataType:
    if pa.types.is_null(kind):
        return kind if known is None else known
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    return _SIGNED.get(kind) or with_parts(kind, _stored)
