"""Logs of many files, written directly: what an engine has to read, whoever wrote it.

The table has a column of days that it is partitioned by, and files with statistics of three columns, about 550 bytes
of JSON a file, as delta-spark writes them. The data files do not exist; nobody looks at them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILES_OF_A_COMMIT = 1_000
_TIME = 1_760_000_000_000
_FIELDS = [("id", "long"), ("name", "string"), ("value", "double"), ("day", "date")]
_STRUCT = {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _FIELDS]}
SCHEMA_STRING = json.dumps(_STRUCT)
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA = {
    "id": "5f2b3c1e-0000-4000-8000-000000000000",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": SCHEMA_STRING,
    "partitionColumns": ["day"],
    "configuration": {},
    "createdTime": _TIME,
}
_STRINGS = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    [
        *[("path", pa.string()), ("partitionValues", _STRINGS), ("size", pa.int64()), ("modificationTime", pa.int64())],
        *[("dataChange", pa.bool_()), ("stats", pa.string()), ("tags", _STRINGS)],
    ]
)
_NAMES = pa.list_(pa.string())
_FORMAT = pa.struct([("provider", pa.string()), ("options", _STRINGS)])
_METADATA = pa.struct(
    [
        *[("id", pa.string()), ("name", pa.string()), ("description", pa.string()), ("format", _FORMAT)],
        *[("schemaString", pa.string()), ("partitionColumns", _NAMES), ("configuration", _STRINGS)],
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_REMOVE = pa.struct(
    [("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()), ("size", pa.int64())]
)


def columns_of(first: int, files: int) -> dict[str, pa.Array]:
    """What differs between files: path, day, size in bytes and statistics."""
    numbers = pa.array(range(first, first + files))
    texts = numbers.cast(pa.string())
    wide = pc.utf8_lpad(texts, 12, "0")
    day = pc.binary_join_element_wise(
        "2025-", pc.utf8_lpad(_modulo(numbers, 12), 2, "0"), "-", pc.utf8_lpad(_modulo(numbers, 28), 2, "0"), ""
    )
    path = pc.binary_join_element_wise("day=", day, "/part-00000-", _names(first, files), ".c000.snappy.parquet", "")
    low = pc.multiply(numbers, 1000)
    least, most = low.cast(pa.string()), pc.add(low, 999).cast(pa.string())
    stats = pc.binary_join_element_wise(
        *['{"numRecords":1000,"minValues":{"id":', least, ',"name":"customer-', wide, '","value":', least],
        *['.25},"maxValues":{"id":', most, ',"name":"customer-', wide, '~","value":', most],
        *['.75},"nullCount":{"id":0,"name":3,"value":17}}', ""],
    )
    return {"path": path, "day": day, "size": pc.add(numbers, 1_000_000), "stats": stats}


def _names(first: int, files: int) -> pa.Array:
    """Random texts of 36 hexadecimal digits, as long as a UUID is."""
    digits = np.random.default_rng(first).bytes(18 * files).hex().encode()
    offsets = np.arange(0, 36 * (files + 1), 36, dtype=np.int32)
    return pa.StringArray.from_buffers(files, pa.py_buffer(offsets), pa.py_buffer(digits))


def _modulo(numbers: pa.Array, by: int) -> pa.Array:
    return pc.add(pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by)), 1).cast(pa.string())


def json_lines(first: int, files: int) -> bytes:
    """The add lines of files."""
    made = columns_of(first, files)
    quoted = pc.replace_substring(made["stats"], '"', '\\"')
    lines = pc.binary_join_element_wise(
        *['{"add":{"path":"', made["path"], '","partitionValues":{"day":"', made["day"], '"},"size":'],
        *[made["size"].cast(pa.string()), f',"modificationTime":{_TIME},"dataChange":true,"stats":"', quoted, '"}}\n'],
        "",
    )
    return "".join(lines.to_pylist()).encode()


def write_commit(log: Path, version: int, first: int, files: int) -> None:
    """A commit that adds files."""
    info = {"timestamp": _TIME + version, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    head = [{"commitInfo": info}]
    head += [{"protocol": PROTOCOL}, {"metaData": METADATA}] if version == 0 else []
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in head).encode()
    (log / f"{version:020}.json").write_bytes(text + json_lines(first, files))


def json_log(table: Path, files: int) -> Path:
    """A log without a checkpoint, a thousand files to a commit. Returns the table."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    for version, first in enumerate(range(0, files, FILES_OF_A_COMMIT)):
        write_commit(log, version, first, min(FILES_OF_A_COMMIT, files - first))
    return table


def checkpointed(table: Path, files: int) -> Path:
    """A log of a classic checkpoint at version 10 and one commit of one file behind it; one in ten files has a
    tombstone. Returns the table.
    """
    log = table / "_delta_log"
    log.mkdir(parents=True)
    path = log / f"{10:020}.checkpoint.parquet"
    kinds = {"txn": _TXN, "add": _ADD, "remove": _REMOVE, "metaData": _METADATA, "protocol": _PROTOCOL}
    schema = pa.schema(list(kinds.items()))
    with pq.ParquetWriter(path, schema, compression="snappy", store_schema=False) as writer:

        def write(name: str, rows: pa.Array) -> None:
            columns = [rows if key == name else pa.nulls(len(rows), kind) for key, kind in kinds.items()]
            writer.write_batch(pa.record_batch(columns, schema=schema))

        write("protocol", pa.array([PROTOCOL], _PROTOCOL))
        write(
            "metaData",
            pa.array([{**METADATA, "format": {"provider": "parquet", "options": []}, "configuration": []}], _METADATA),
        )
        for first in range(0, files, 100_000):
            write("add", _adds(first, min(100_000, files - first)))
        gone = [{"path": f"day=2024-01-01/part-{n:012}.parquet", "size": 1_000} for n in range(files // 10)]
        write("remove", pa.array([{**one, "deletionTimestamp": _TIME, "dataChange": True} for one in gone], _REMOVE))
    hint = {"version": 10, "size": files + files // 10 + 2}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    write_commit(log, 10, files, 1)
    write_commit(log, 11, files + 1, 1)
    return table


def _adds(first: int, files: int) -> pa.StructArray:
    made = columns_of(first, files)
    offsets = pa.array(range(files + 1), pa.int32())
    days = pa.MapArray.from_arrays(offsets, pa.array(["day"] * files), made["day"])
    times, changes = pa.array([_TIME] * files), pa.array([False] * files)
    fields = [made["path"], days, made["size"], times, changes, made["stats"], pa.nulls(files, _STRINGS)]
    return pa.StructArray.from_arrays(fields, fields=list(_ADD))


def append_commits(table: Path, version: int, first: int, commits: int) -> None:
    """Commits of one file each, the first of which is ``version``."""
    for number in range(commits):
        write_commit(table / "_delta_log", version + number, first + number, 1)


def remove_commits(table: Path, after: int) -> None:
    """Take back the commits after a version."""
    for path in _commits(table):
        if int(path.name[:20]) > after:
            path.unlink()


def json_files(table: Path) -> list[str]:
    return sorted(os.fspath(path) for path in _commits(table))


def _commits(table: Path) -> Iterator[Path]:
    return (table / "_delta_log").glob("*.json")
