"""Tables made by hand: log lines and data files as another engine would leave them, in any store."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from refdelta_storage import MemoryStore

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
MAPPED = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
VECTORS = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
}


def field(name: str, kind: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def metadata(
    schema: dict[str, Any], partition_columns: tuple[str, ...] = (), configuration: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "6f3c2a1e-0000-4000-8000-000000000000",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": list(partition_columns),
            "configuration": configuration or {},
        }
    }


def add(path: str, *, rows: int | None = None, size: int = 1, **fields: Any) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    action = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    return {"add": action | stats | fields}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True} | fields}


def lines(*actions: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def write_commit(table: Path, version: int, *actions: dict[str, Any]) -> Path:
    """Write a commit into the log of a table on disk."""
    path = table / "_delta_log" / f"{version:020d}.json"
    path.write_bytes(lines(*actions))
    return path


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"store_schema": False} | options)
    return sink.getvalue()


class Handmade:
    """A table under construction; ``store`` has what was put so far."""

    def __init__(self, schema: dict[str, Any] | None = None, *partition_columns: str, **options: Any):
        self.store = options.pop("store", None) or MemoryStore()
        self.version = -1
        if schema is not None:
            protocol = options.pop("protocol", PROTOCOL)
            self.commit(protocol, metadata(schema, partition_columns, options.pop("configuration", None)))

    def commit(self, *actions: dict[str, Any]) -> int:
        self.version += 1
        self.put(f"_delta_log/{self.version:020d}.json", lines(*actions))
        return self.version

    def data(self, path: str, table: pa.Table, **fields: Any) -> dict[str, Any]:
        """Write a data file and give its ``add``."""
        content = parquet(table, **fields.pop("parquet", {}))
        self.put(path, content)
        return add(path, size=len(content), **{"rows": table.num_rows} | fields)

    def checkpoint(self, version: int, actions: list[dict[str, Any]], name: str | None = None) -> str:
        """Write a checkpoint of one Parquet file; every row holds one action."""
        key = name or f"_delta_log/{version:020d}.checkpoint.parquet"
        self.put(key, checkpoint_file(actions))
        return key

    def hint(self, version: int) -> None:
        self.put("_delta_log/_last_checkpoint", json.dumps({"version": version, "size": 1}).encode())

    def put(self, key: str, content: bytes) -> None:
        self.store.put(key, content)


_STRINGS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_FILE = [("path", pa.string()), ("partitionValues", _STRINGS), ("size", pa.int64()), ("dataChange", pa.bool_())]
CHECKPOINT_SCHEMA = pa.schema(
    [
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _STRINGS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _STRINGS),
                ]
            ),
        ),
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "domainMetadata",
            pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        ),
        (
            "add",
            pa.struct([*_FILE, ("modificationTime", pa.int64()), ("stats", pa.string()), ("deletionVector", _VECTOR)]),
        ),
        ("remove", pa.struct([*_FILE, ("deletionTimestamp", pa.int64()), ("deletionVector", _VECTOR)])),
        (
            "sidecar",
            pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]),
        ),
        ("checkpointMetadata", pa.struct([("version", pa.int64())])),
    ]
)


def checkpoint_file(actions: list[dict[str, Any]], schema: pa.Schema = CHECKPOINT_SCHEMA) -> bytes:
    used = [item for item in schema if any(item.name in action for action in actions)]
    rows = [{name: _as_arrow(value) for name, value in action.items()} for action in actions]
    return parquet(pa.Table.from_pylist(rows, schema=pa.schema(used)))


_MAPS = ("partitionValues", "configuration", "options")


def _as_arrow(value: Any) -> Any:
    """Maps as lists of pairs, which is how pyarrow takes them."""
    if not isinstance(value, dict):
        return value
    return {
        name: list(item.items()) if name in _MAPS and isinstance(item, dict) else _as_arrow(item)
        for name, item in value.items()
    }
