"""Statistics and partition values as typed structs, for checkpoints that hold them so.

PROTOCOL.md, "Checkpoint Schema": ``stats_parsed`` and ``partitionValues_parsed`` mirror what ``stats`` and
``partitionValues`` say as strings, with the types of the table's columns.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from refdelta.engine.column_stats import stats_leaves
from refdelta.engine.partition import parse_partition_column
from refdelta.engine.schema import arrow_type
from refdelta.engine.state import STATS_PARSED
from refdelta.protocol.partition_values import parse_date, parse_timestamp
from refdelta.protocol.properties import TableProperties
from refdelta.protocol.types import StructType, physical_name

# Files whose statistics are parsed at once: some megabytes of JSON.
_BLOCK = 8 * 1024


def partition_values_parsed(
    files: pa.Table, schema: StructType, partition_columns: Sequence[str]
) -> pa.ChunkedArray | None:
    """The partition values of files as structs of the partition columns' types; None for an unpartitioned table.

    Raises:
        InvalidLogError: a value that is not of its column's type.
    """
    if not partition_columns:
        return None
    columns = {}
    for name in partition_columns:
        field = schema.field(name)
        strings = pc.map_lookup(files.column("partitionValues"), physical_name(field), "last")
        values = parse_partition_column(_flat(strings), field.type, column=name)
        columns[physical_name(field)] = values
    kind = pa.struct([pa.field(name, values.type) for name, values in columns.items()])
    return pa.chunked_array([pa.StructArray.from_arrays(list(columns.values()), fields=list(kind))], kind)


def stats_parsed(
    files: pa.Table, schema: StructType, partition_columns: Sequence[str], properties: TableProperties
) -> pa.ChunkedArray:
    """The statistics of files as structs; null for a file that has none.

    A file's JSON is what counts; where there is none, its struct in ``files`` does, if that has such a column. A value
    that is not of its column's type is null, as in every reader: statistics are an aid.
    """
    kind = stats_type(schema, partition_columns, properties)
    texts = _flat(files.column("stats"))
    blocks = [_parse(texts.slice(start, _BLOCK), kind) for start in range(0, len(texts), _BLOCK)]
    parsed = pa.chunked_array(blocks, kind)
    if STATS_PARSED not in files.column_names:
        return parsed
    return pc.if_else(parsed.is_valid(), parsed, files.column(STATS_PARSED).cast(kind))


def stats_type(schema: StructType, partition_columns: Iterable[str], properties: TableProperties) -> pa.DataType:
    """The type of ``stats_parsed`` for a table: of the columns for which it keeps statistics, by physical names."""
    bounds: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for leaf in stats_leaves(schema, partition_columns, properties):
        path, struct = [], schema
        for name in leaf.path:
            field = struct.field(name)
            path.append(physical_name(field))
            struct = field.type if isinstance(field.type, StructType) else struct
        _put(nulls, path, pa.int64())
        if leaf.bounded:
            _put(bounds, path, arrow_type(leaf.type))
    fields = [("numRecords", pa.int64())]
    if bounds:
        fields += [("minValues", _struct_type(bounds)), ("maxValues", _struct_type(bounds))]
    if nulls:
        fields.append(("nullCount", _struct_type(nulls)))
    return pa.struct([*fields, ("tightBounds", pa.bool_())])


def _put(tree: dict[str, Any], path: list[str], kind: pa.DataType) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = kind


def _struct_type(tree: dict[str, Any]) -> pa.DataType:
    return pa.struct([(k, _struct_type(v) if isinstance(v, dict) else v) for k, v in tree.items()])


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def _parse(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse JSON texts. Where one of many is odd, the halves are parsed apart, down to the odd one by hand."""
    there = pc.and_kleene(texts.is_valid(), pc.not_equal(pc.utf8_trim_whitespace(texts), ""))
    parsed = _parse_all(pc.if_else(there, texts, "{}"), kind)
    if parsed is not None:
        return pc.if_else(pc.fill_null(there, False), parsed, pa.scalar(None, kind))
    if len(texts) == 1:
        return pa.array([_by_hand(texts[0].as_py(), kind)], kind)
    half = len(texts) // 2
    return pa.concat_arrays([_parse(texts.slice(0, half), kind), _parse(texts.slice(half), kind)])


def _parse_all(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    # A line break in JSON can only be white space between its parts, but would end the line here.
    lines = pc.replace_substring_regex(texts, "[\r\n]", " ").to_pylist()
    data = "\n".join(lines).encode()
    options = pa.json.ParseOptions(
        explicit_schema=pa.schema(list(_json_type(kind))), unexpected_field_behavior="ignore"
    )
    try:
        table = pa.json.read_json(
            io.BytesIO(data), pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1), options
        )
        if table.num_rows != len(texts):
            return None
        table = table.select([field.name for field in kind]).combine_chunks()
        structs = pa.StructArray.from_arrays([_flat(column) for column in table.columns], fields=list(table.schema))
        return structs.cast(kind)
    except pa.ArrowException:
        return None


def _json_type(kind: pa.DataType) -> pa.DataType:
    """The type in which pyarrow reads JSON for ``kind``: dates are numbers to it, so they come as text."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _json_type(field.type)) for field in kind])
    return pa.string() if pa.types.is_date(kind) else kind


def _by_hand(text: str, kind: pa.DataType) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None
    return _fitted(value, kind) if isinstance(value, dict) else None


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """The value as pyarrow takes it for the type, or None where it is not of that type."""
    if pa.types.is_struct(kind):
        return {f.name: _fitted(value.get(f.name), f.type) for f in kind} if isinstance(value, dict) else None
    if value is None:
        return None
    try:
        if pa.types.is_date(kind):
            value = parse_date(str(value))
        elif pa.types.is_timestamp(kind):
            value = parse_timestamp(str(value), zone=kind.tz is not None)
        elif pa.types.is_floating(kind):
            value = float(value)
        elif pa.types.is_decimal(kind):
            value = Decimal(value)
        pa.array([value], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, InvalidOperation):
        return None
    return value
