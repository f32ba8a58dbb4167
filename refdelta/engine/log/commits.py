"""Commit files of the log: read, and decoded to actions, or to columns where a commit adds many files.

One Python object for each of many adds takes three times as long as columns. So long contents go through Arrow's JSON
parser if all lines after the first few have one ``add`` each, with the same partition columns, and without tags and
deletion vectors. Every other content, and every content that may be invalid, is decoded by
:mod:`refdelta.core.log.codec`, which is the definition and whose errors name the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from refdelta.arrow.arrays import array_of, check_values, concat
from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.codec import decode_commit, decode_line
from refdelta.engine.log.state import FILE_SCHEMA
from refdelta.engine.work.executor import ThreadExecutor, at_most
from refdelta.errors import InvalidLogError, StoreError
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.core.log.actions import AnyAction
    from refdelta.core.log.segment import LogFile
    from refdelta_storage.base import Store

LONGEST_COMMIT = 2**31
"""The limit of a commit in bytes. Files of the log are read whole, and no engine writes one that is nearly as long."""

# Contents of fewer bytes together are decoded to actions without a try at columns.
_MANY_BYTES = 2**19
_BEGIN = b'{"add":'
_BLOCK = 2**22  # bytes that are parsed at once; no line is longer
_REQUIRED = ("path", "partitionValues", "size", "modificationTime", "dataChange")
_NEVER = ("tags", "deletionVector")
# Arrow's parser has a column for each partition column, whether a line has a value for it or not.
_MOST_PARTITION_COLUMNS = 100


def read_commits(store: Store, files: Sequence[LogFile]) -> list[list[AnyAction]]:
    """The actions of each commit or compacted commit, in order.

    Raises:
        ObjectNotFoundError: a file is gone; log cleanup may run at the same time.
        InvalidLogError: a file breaks the protocol.
        StoreError: the store refused or failed.
    """
    return [decode_commit(data, file.key) for file, data in zip(files, commit_contents(store, files), strict=True)]


def commit_contents(store: Store, files: Sequence[LogFile]) -> list[bytes]:
    """The content of each file, in order. Errors as for :func:`read_commits`."""
    for file in files:
        if file.size > LONGEST_COMMIT:
            raise InvalidLogError(f"it has {file.size:,} bytes; at most {LONGEST_COMMIT:,} are read", file=file.key)
    try:
        found = list(store.get_many([file.key for file in files]))
    except ObjectNotFoundError:
        raise
    except StorageError as error:
        raise StoreError(f"cannot read the log: {error}") from error
    for file, data in zip(files, found, strict=True):
        if file.tag is not None and len(data) != file.size:
            raise ObjectNotFoundError(f"{file.key!r} in {store.uri} was replaced since it was listed")
    return found


def decode_commits(keys: Sequence[str], contents: Sequence[bytes]) -> tuple[list[list[AnyAction]], pa.Table | None]:
    """The actions of commits; the added files as a table instead, where they are many and all are plain.

    Args:
        keys: the commits' keys, for errors.
        contents: their contents, oldest first.

    Returns:
        The actions of each commit, and None; or the actions of each other than adds, and the adds of all commits in
        their order, of ``FILE_SCHEMA``.

    Raises:
        InvalidLogError: a commit breaks the protocol.
    """
    if sum(map(len, contents)) >= _MANY_BYTES:
        columns = decode_to_columns(keys, contents)
        if columns is not None:
            return columns
    return [decode_commit(data, key) for key, data in zip(keys, contents, strict=True)], None


def decode_to_columns(keys: Sequence[str], contents: Sequence[bytes]) -> tuple[list[list[AnyAction]], pa.Table] | None:
    """Commits that only add plain files, as :func:`decode_commits` returns them; None where the codec has to decode.

    Raises:
        InvalidLogError: an action before the adds breaks the protocol.
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
        # Arrow's parser releases the interpreter's lock.
        parts = ThreadExecutor().map(_adds, list(at_most(lines, len, _BLOCK)))
        batches = [rows for part in parts for rows in part]
    except (InvalidLogError, ValueError, NotImplementedError):  # pyarrow's errors are subclasses of the last two
        return None
    return others, pa.Table.from_batches(batches, FILE_SCHEMA)


def _adds(parts: Sequence[memoryview]) -> list[pa.RecordBatch]:
    lines = b"".join(parts)
    first = decode_line(lines[: lines.find(b"\n")], "")
    columns = list(first.partition_values) if isinstance(first, Add) else []
    if len(columns) > _MOST_PARTITION_COLUMNS:
        raise ValueError("more partition columns than are worth a column each")
    table = _parsed(lines, columns)
    if not _one_a_line(lines, table.num_rows):
        raise ValueError("lines that are not one object each")
    return [_batch(batch.column(0), lines, table.num_rows) for batch in table.to_batches()]


def _one_a_line(lines: bytes, count: int) -> bool:
    """Whether there are ``count`` lines with an object each. Arrow's parser also accepts two objects on one line, and
    one object on two lines.
    """
    text = np.frombuffer(lines, dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    return len(ends) == count and bool((text[ends - 1] == ord("}")).all() and (text[ends[:-1] + 1] == ord("{")).all())


def _parsed(lines: bytes, partition_columns: list[str]) -> pa.Table:
    import pyarrow.json as pj  # only long logs need it

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
    """The adds as rows of ``FILE_SCHEMA``. Raises ``ValueError`` where the codec has to decode them."""
    columns = dict(zip(FILE_SCHEMA.names, adds.flatten(), strict=True))
    if adds.null_count or any(columns[name].null_count for name in _REQUIRED):
        raise ValueError("a line without an add, or an add without a required field")
    values = columns["partitionValues"]
    names = [field.name for field in values.type]
    parts = dict(zip(names, values.flatten(), strict=True))
    check_values(pa.record_batch([columns["path"], columns["stats"], *parts.values()], ["", *"," * (len(parts) + 1)]))
    for name, part in parts.items():
        # Null may be null in the log, or a missing key. Quotes inside a JSON string are escaped, so the count is exact.
        if part.null_count and lines.count(msgspec.json.encode(name) + b":") != count:
            raise ValueError("a partition column without a value")
    columns["partitionValues"] = _maps(parts, len(adds))
    for name in _NEVER:
        columns[name] = pa.nulls(len(adds), FILE_SCHEMA.field(name).type)
    return pa.record_batch(list(columns.values()), schema=FILE_SCHEMA)


def _maps(parts: dict[str, pa.Array], count: int) -> pa.MapArray:
    """Columns of ``count`` rows as one map column; each map has all columns as keys."""
    wide = len(parts)
    starts = np.arange(count + 1, dtype=np.int32) * np.int32(wide)
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(starts)])
    items = concat(parts.values(), pa.string())
    if wide > 1:
        order = np.arange(wide * count, dtype=np.int64).reshape(wide, count).ravel(order="F")
        items = items.take(pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)]))
    return pa.MapArray.from_arrays(offsets, array_of(list(parts) * count, pa.string()), items)
