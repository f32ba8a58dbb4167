"""The number of rows of each file, from its statistics."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from refdelta.engine.state import STATS_PARSED

_SCHEMA = pa.schema([("numRecords", pa.int64())])


def num_records(files: pa.Table) -> pa.Array:
    """How many physical rows each file of a list has, deleted ones included; null where its statistics do not say.

    Implements PROTOCOL.md, "Per-file Statistics", ``numRecords``.
    """
    counts = _from_json(files.column("stats"))
    if STATS_PARSED in files.column_names:
        parsed = files.column(STATS_PARSED)
        if parsed.type.get_field_index("numRecords") >= 0:
            counts = pc.coalesce(counts, pc.struct_field(parsed, "numRecords").cast(pa.int64()))
    counts = counts.combine_chunks() if isinstance(counts, pa.ChunkedArray) else counts
    return pc.if_else(pc.greater_equal(counts, 0), counts, pa.scalar(None, pa.int64()))


def _from_json(stats: pa.ChunkedArray) -> pa.Array:
    unknown = pa.nulls(len(stats), pa.int64())
    if stats.null_count == len(stats):
        return unknown
    # One line for each file, so that line and file agree; a line break within a document is only white space.
    lines = pc.replace_substring_regex(pc.coalesce(stats, "{}"), "[\\r\\n]", " ")
    lines = pc.if_else(pc.match_substring_regex(lines, r"^\s*\{.*\}\s*$"), lines, "{}")
    text = pa.concat_arrays([pc.binary_join(pa.ListArray.from_arrays([0, len(c)], c), "\n") for c in _chunks(lines)])
    options = pyarrow.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
    try:
        table = pyarrow.json.read_json(io.BytesIO("\n".join(text.to_pylist()).encode()), parse_options=options)
    except pa.ArrowInvalid:
        return unknown  # a document is not what it should be; the footers know the numbers too
    return table.column("numRecords") if table.num_rows == len(stats) else unknown


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
