"""Writing checkpoints: the whole state of a version as one Parquet file (PROTOCOL.md, "Checkpoints").

The file has the name of a classic checkpoint, which every reader knows. Where the protocol supports ``v2Checkpoint``
its content follows the V2 specification, without sidecars; otherwise V1. The list of files stays columnar all the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from refdelta.engine.arrays import array_of, nested_array, one_array
from refdelta.engine.files import store_errors
from refdelta.engine.parsed_stats import partition_values_parsed, stats_parsed
from refdelta.engine.state import FILE_SCHEMA, STATS_PARSED, TOMBSTONE_SCHEMA
from refdelta.protocol.actions import Action, CheckpointMetadata, DomainMetadata, Metadata, Protocol, Txn
from refdelta.protocol.features import features_of
from refdelta.protocol.paths import checkpoint_key, last_checkpoint_key
from refdelta.protocol.segment import LastCheckpoint, encode_last_checkpoint, parse_last_checkpoint
from refdelta_storage.errors import StorageError

if TYPE_CHECKING:
    from refdelta.engine.snapshot import Snapshot
    from refdelta_storage.base import Store

_STRINGS = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.field("element", pa.string()))
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _STRINGS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _NAMES),
        ("configuration", _STRINGS),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _NAMES),
        ("writerFeatures", _NAMES),
    ]
)
_DOMAIN = pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())])
_CHECKPOINT_METADATA = pa.struct([("version", pa.int64()), ("tags", _STRINGS)])
_SIDECAR = pa.struct(
    [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64()), ("tags", _STRINGS)]
)
# A tombstone in a checkpoint has neither statistics nor tags.
_REMOVE_FIELDS = [field for field in TOMBSTONE_SCHEMA if field.name != "tags"]
# Rows of a row group: what a reader holds at once.
_BLOCK = 64 * 1024


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint that was written.

    Attributes:
        version: its version.
        key: its file in the store.
        actions: how many actions it has.
        adds: how many of these are live files.
        size: its size in bytes.
    """

    version: int
    key: str
    actions: int
    adds: int
    size: int


def write_checkpoint(store: Store, snapshot: Snapshot, *, now_ms: int | None = None) -> CheckpointInfo:
    """Write the checkpoint of a version that is committed, then point ``_last_checkpoint`` to it.

    Implements PROTOCOL.md, "Checkpoint Schema", "V2 Spec" and "Last Checkpoint File". Tombstones older than
    ``delta.deletedFileRetentionDuration`` and application ids older than ``delta.setTransactionRetentionDuration`` are
    left out. Statistics are written as JSON and as structs by ``delta.checkpoint.writeStatsAsJson`` and
    ``delta.checkpoint.writeStatsAsStruct``; those that the log has as structs only are kept in any case.

    Args:
        store: the table's folder.
        snapshot: the version.
        now_ms: the time from which retention counts, in milliseconds since 1970; None is now.

    Raises:
        StoreError: the store refused or failed; no part of a checkpoint is visible then.
        InvalidLogError: the tombstones cannot be read again.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    actions = _small_actions(snapshot, now_ms)
    adds = _adds(snapshot)
    removes = _removes(snapshot, now_ms)
    types = {name: kind for name, kind, _ in actions} | {"add": adds.type, "remove": removes.type}
    schema = pa.schema([(name, types[name]) for name in _order(types)])
    key = checkpoint_key(snapshot.version)
    with store_errors(f"write {key}"), store.open_output(key) as sink:
        with pq.ParquetWriter(sink, schema, compression="snappy", store_schema=False) as writer:
            for name, kind, rows in actions:
                if rows:
                    writer.write_batch(_rows(schema, name, nested_array(rows, kind)))
            for name, column in (("add", adds), ("remove", removes)):
                for chunk in _blocks(column):
                    writer.write_batch(_rows(schema, name, chunk))
        size = sink.tell()
    count = sum(len(rows) for _, _, rows in actions) + len(adds) + len(removes)
    info = CheckpointInfo(snapshot.version, key, count, len(adds), size)
    _point_to(store, info)
    return info


def _order(types: dict[str, Any]) -> list[str]:
    """The columns in the order that delta-spark gives them."""
    known = ["txn", "add", "remove", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar"]
    return [name for name in known if name in types]


# --- the actions that are few ------------------------------------------------------------------------------------


def _small_actions(snapshot: Snapshot, now_ms: int) -> list[tuple[str, pa.DataType, list[dict[str, Any]]]]:
    retention = snapshot.properties.set_transaction_retention_ms
    txns = [
        txn
        for txn in snapshot.txns.values()
        if retention is None or txn.last_updated is None or txn.last_updated > now_ms - retention
    ]
    small = [
        ("protocol", _PROTOCOL, _as_rows([snapshot.protocol])),
        ("metaData", _METADATA, _as_rows([snapshot.metadata])),
        ("txn", _TXN, _as_rows(txns)),
        ("domainMetadata", _DOMAIN, _as_rows(list(snapshot.domains.values()))),
    ]
    if "v2Checkpoint" in features_of(snapshot.protocol):
        small.append(
            ("checkpointMetadata", _CHECKPOINT_METADATA, _as_rows([CheckpointMetadata(version=snapshot.version)]))
        )
        small.append(("sidecar", _SIDECAR, []))
    return small


def _as_rows(
    actions: Sequence[Protocol | Metadata | Txn | DomainMetadata | CheckpointMetadata],
) -> list[dict[str, Any]]:
    return [_as_row(action) for action in actions]


def _as_row(action: Action) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(action)
    if isinstance(action, Metadata):
        # Null maps would surprise readers for whom these fields always have a value.
        row["format"] = {"provider": "parquet", "options": {}} | row.get("format", {})
        row.setdefault("configuration", {})
        row["format"]["options"] = list(row["format"]["options"].items())
        row["configuration"] = list(row["configuration"].items())
    return row


# --- the file actions --------------------------------------------------------------------------------------------


def _adds(snapshot: Snapshot) -> pa.ChunkedArray:
    files, properties = snapshot.files, snapshot.properties
    columns = {name: files.column(name) for name in FILE_SCHEMA.names if name != "stats"}
    # The change was told when it was committed; a checkpoint only describes the state.
    columns["dataChange"] = _all_false(files.num_rows)
    if properties.write_stats_as_json:
        columns["stats"] = files.column("stats")
    if properties.write_stats_as_struct:
        values = partition_values_parsed(files, snapshot.schema, snapshot.partition_columns)
        if values is not None:
            columns["partitionValues_parsed"] = values
    if properties.write_stats_as_struct or STATS_PARSED in files.column_names:
        clustering = snapshot.clustering_columns
        parsed = stats_parsed(files, snapshot.schema, snapshot.partition_columns, properties, clustering)
        if parsed is not None:
            columns[STATS_PARSED] = parsed
    return _struct(columns)


def _removes(snapshot: Snapshot, now_ms: int) -> pa.ChunkedArray:
    tombstones = snapshot.tombstones()
    oldest = now_ms - snapshot.properties.deleted_file_retention_ms
    # One without a time counts as expired, as delta-spark has it.
    tombstones = tombstones.filter(
        pc.greater(tombstones.column("deletionTimestamp"), array_of([oldest], pa.int64())[0])
    )
    columns = {field.name: tombstones.column(field.name) for field in _REMOVE_FIELDS}
    columns["dataChange"] = _all_false(tombstones.num_rows)
    return _struct(columns)


def _all_false(count: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes(count // 8 + 1))])])


def _struct(columns: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """The columns as one column of structs, of which none is null."""
    table = pa.table(columns)
    kind = pa.struct(list(table.schema))
    chunks = [pa.StructArray.from_arrays(batch.columns, fields=list(kind)) for batch in table.to_batches()]
    return pa.chunked_array(chunks, kind)


def _blocks(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    for start in range(0, len(column), _BLOCK):
        yield one_array(column.slice(start, _BLOCK))


def _rows(schema: pa.Schema, name: str, values: pa.Array) -> pa.RecordBatch:
    """Rows that have only this one action."""
    columns = [values if field.name == name else pa.nulls(len(values), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# --- the hint ----------------------------------------------------------------------------------------------------


def _point_to(store: Store, info: CheckpointInfo) -> None:
    key = last_checkpoint_key()
    try:
        current = parse_last_checkpoint(store.get(key))
    except StorageError:
        current = None  # there is none, or one that cannot be read and is as good as none
    # Another writer may have come further meanwhile: the hint never goes back.
    if current is not None and current.version > info.version:
        return
    hint = LastCheckpoint(version=info.version, size=info.actions, size_in_bytes=info.size, num_of_add_files=info.adds)
    with store_errors(f"write {key}"):
        store.put(key, encode_last_checkpoint(hint))
