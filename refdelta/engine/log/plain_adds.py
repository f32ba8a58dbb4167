"""Commits that add many files, decoded straight to columns: by way of an object for each takes three times as long.

Only what Arrow's parser takes as :mod:`refdelta.core.log.codec` does: lines with one ``add`` each, behind whatever else
a commit has, all with the same partition columns, without tags and deletion vectors. Whatever is otherwise, or may be
wrong, is left to the codec, which says where it is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.codec import decode_commit, decode_line
from refdelta.engine.arrow.arrays import array_of, check_values
from refdelta.engine.log.state import FILE_SCHEMA
from refdelta.engine.scan.portions import at_most
from refdelta.errors import InvalidLogError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.core.log.actions import AnyAction

_BEGIN = b'{"add":'
_BLOCK = 2**22  # bytes that are parsed at once; no line is longer
_REQUIRED = ("path", "partitionValues", "size", "modificationTime", "dataChange")
_NEVER = ("tags", "deletionVector")


def decode_plain(keys: Sequence[str], contents: Sequence[bytes]) -> tuple[list[list[AnyAction]], pa.Table] | None:
    """The actions of commits, the files that they add as columns.

    Args:
        keys: the commits' keys, for messages.
        contents: their content, oldest first.

    Returns:
        The other actions of each commit, and the adds of all in their order, of ``FILE_SCHEMA``. None where the codec
        has to decode them.

    Raises:
        InvalidLogError: what stands before the adds is wrong.
    """
    others: list[list[AnyAction]] = []
    lines: list[memoryview] = []
    for key, data in zip(keys, contents, strict=True):
        at = data.find(_BEGIN)
        at = len(data) if at < 0 else at
        if at and data[at - 1 : at] != b"\n":
            return None
        before = decode_commit(data[:at], key) if at else []
        if any(isinstance(action, (Add, Remove)) for action in before):
            return None
        others.append(before)
        lines += [memoryview(data)[at:], memoryview(b"" if data.endswith(b"\n") else b"\n")]
    try:
        batches = [rows for some in at_most(lines, len, _BLOCK) for rows in _adds(b"".join(some))]
    except (InvalidLogError, ValueError, NotImplementedError):  # as which pyarrow's are told, too
        return None
    return others, pa.Table.from_batches(batches, FILE_SCHEMA)


def _adds(lines: bytes) -> list[pa.RecordBatch]:
    first = decode_line(lines[: lines.find(b"\n")], "")
    table = _parsed(lines, list(first.partition_values) if isinstance(first, Add) else [])
    if not _one_a_line(lines, table.num_rows):
        raise ValueError("lines that are not one object each")
    return [_batch(batch.column(0), lines, table.num_rows) for batch in table.to_batches()]


def _one_a_line(lines: bytes, count: int) -> bool:
    """Whether so many lines are an object each. Arrow's parser takes two on one line, or one on two, as well."""
    text = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    return len(ends) == count and bool((text[ends - 1] == ord("}")).all() and (text[ends[:-1] + 1] == ord("{")).all())


def _parsed(lines: bytes, partition_columns: list[str]) -> pa.Table:
    values = pa.struct([(name, pa.string()) for name in partition_columns])
    types = {field.name: pa.null() if field.name in _NEVER else field.type for field in FILE_SCHEMA}
    add = pa.struct(list({**types, "partitionValues": values}.items()))
    return pj.read_json(
        pa.BufferReader(lines),
        read_options=pj.ReadOptions(use_threads=False, block_size=_BLOCK),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([("add", add)]), unexpected_field_behavior="error", newlines_in_values=False
        ),
    )


def _batch(adds: pa.StructArray, lines: bytes, count: int) -> pa.RecordBatch:
    """The adds as rows of ``FILE_SCHEMA``. Raises ``ValueError`` where the codec has to tell what they are."""
    columns = dict(zip(FILE_SCHEMA.names, adds.flatten(), strict=True))
    if adds.null_count or any(columns[name].null_count for name in _REQUIRED):
        raise ValueError("a line without an add, or an add without what it must have")
    values = columns["partitionValues"]
    names = [field.name for field in values.type]
    parts = dict(zip(names, values.flatten(), strict=True))
    check_values(pa.record_batch([columns["path"], columns["stats"], *parts.values()], ["", *"," * (len(parts) + 1)]))
    for name, part in parts.items():
        # A null may be one in the log, or a value that it leaves out. In a text of JSON, quotes are never bare.
        if part.null_count and lines.count(msgspec.json.encode(name) + b":") != count:
            raise ValueError("a partition column without a value")
    columns["partitionValues"] = _maps(parts, len(adds))
    for name in _NEVER:
        columns[name] = pa.nulls(len(adds), FILE_SCHEMA.field(name).type)
    return pa.record_batch(list(columns.values()), schema=FILE_SCHEMA)


def _maps(parts: dict[str, pa.Array], count: int) -> pa.MapArray:
    """Columns as a map column, each map with all of them."""
    wide = len(parts)
    starts = np.arange(count + 1, dtype=np.int32) * np.int32(wide)
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(starts)])
    items = pa.concat_arrays(parts.values()) if parts else pa.nulls(0, pa.string())
    if wide > 1:
        order = np.arange(wide * count, dtype=np.int64).reshape(wide, count).ravel(order="F")
        items = items.take(pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)]))
    return pa.MapArray.from_arrays(offsets, array_of(list(parts) * count, pa.string()), items)
