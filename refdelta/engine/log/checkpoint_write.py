"""Writing checkpoints: the whole state of a version (PROTOCOL.md, "Checkpoints").

With the policy ``classic`` a checkpoint is one Parquet file with a name that every reader knows; its content follows
the V2 specification if the protocol supports ``v2Checkpoint``, otherwise V1. With the policy ``v2`` the file has a
unique name, and if the table has many files, sidecars list them. The list of files stays columnar throughout.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from refdelta.arrow.arrays import array_of, nested_array, one_array, pieces
from refdelta.core.log.actions import Action, Add, CheckpointMetadata, Metadata, Remove, Sidecar
from refdelta.core.log.checkpoint_schedule import LISTED_ITSELF
from refdelta.core.log.codec import encode_commit
from refdelta.core.log.paths import SIDECARS, checkpoint_key, last_checkpoint_key, uuid_checkpoint_key
from refdelta.core.log.segment import (
    CheckpointFiles,
    LastCheckpoint,
    LogFile,
    encode_last_checkpoint,
    parse_last_checkpoint,
)
from refdelta.engine.log.checkpoint import ADDS_TAG, adds_of, listed_by, read_sidecars
from refdelta.engine.log.commits import read_commits
from refdelta.engine.log.identity import placed
from refdelta.engine.log.managed_log import publish_through
from refdelta.engine.log.snapshot import Layout
from refdelta.engine.log.state import (
    FILE_SCHEMA,
    STATS_PARSED,
    TOMBSTONE_SCHEMA,
    has_any,
    key_of,
    keys_of,
    without_shared,
)
from refdelta.engine.log.statistics import partition_values_parsed, stats_parsed
from refdelta.engine.log.store_clock import time_of_newest
from refdelta.engine.parquet.file_options import parquet_columns
from refdelta.engine.parquet.files import store_errors
from refdelta.engine.parquet.layout import CODECS, codec_of, pages_of
from refdelta.errors import InvalidArgumentError, InvalidLogError, StoreError
from refdelta.table.features import features_of
from refdelta_storage.errors import ObjectExistsError, ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from refdelta.engine.log.identity import Placement
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta_storage.base import Store

log = logging.getLogger("refdelta")

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
# The actions other than file actions, in the order in which they are written.
_TYPES = {
    "protocol": _PROTOCOL,
    "metaData": _METADATA,
    "txn": _TXN,
    "domainMetadata": _DOMAIN,
    "checkpointMetadata": _CHECKPOINT_METADATA,
    "sidecar": _SIDECAR,
}
# A tombstone in a checkpoint has neither statistics nor tags.
_REMOVE_FIELDS = [field for field in TOMBSTONE_SCHEMA if field.name != "tags"]
# Rows of a row group, which a reader holds at once.
_BLOCK = 64 * 1024
# The most files that a sidecar lists: readers read sidecars in parallel.
_LISTED = 100_000
# The tag of a sidecar with a digest of its columns.
_FORM_TAG = "refdelta.form"
# The key of the mark in the metadata of a file.
_MARK = b"refdelta.mark"
_DAY_MS = 24 * 60 * 60 * 1000

TopLevel = Literal["parquet", "json"]
"""The format of a checkpoint of the policy v2. In JSON, the list of files is always in sidecars."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A written checkpoint.

    Attributes:
        version: its version.
        key: the key of its file, which names the sidecars.
        actions: the number of actions, those in sidecars included.
        adds: the number of live files among them.
        size: its size in bytes, sidecars included.
    """

    version: int
    key: str
    actions: int
    adds: int
    size: int


def write_checkpoint(
    store: Store,
    snapshot: Snapshot,
    *,
    now_ms: int | None = None,
    top_level: TopLevel = "parquet",
    policy: str | None = None,
    replace: bool = True,
) -> CheckpointInfo | None:
    """Write the checkpoint of a committed version, then point ``_last_checkpoint`` to it.

    Implements PROTOCOL.md, "Checkpoint Schema", "V2 Spec", "Sidecar File Schema" and "Last Checkpoint File".
    Tombstones older than ``delta.deletedFileRetentionDuration`` and application ids older than
    ``delta.setTransactionRetentionDuration`` are left out. Statistics are written as JSON and as structs by
    ``delta.checkpoint.writeStatsAsJson`` and ``delta.checkpoint.writeStatsAsStruct``; those that the log has as structs
    only are kept in any case.

    Args:
        store: the table's folder.
        snapshot: the version.
        now_ms: the time at which retention ends, in milliseconds since 1970; None for the
            present, see :func:`refdelta.engine.log.store_clock.time_of_newest`.
        top_level: the format of a checkpoint of the policy v2.
        policy: ``classic`` for the name that every reader knows; None for ``delta.checkpointPolicy``.
        replace: whether a file of that name is replaced; otherwise it stays, and nothing else is written.

    Returns:
        The checkpoint; None if another writer has written one of that name, and it stays.

    Raises:
        VersionNotFoundError: the version is no longer in the log; no part of a checkpoint is left.
        InvalidArgumentError: JSON is requested, and the table's checkpoints are classic.
        StoreError: the store refused or failed; no part of a checkpoint is visible then.
        InvalidLogError: the tombstones cannot be read again.
    """
    now_ms = time_of_newest(snapshot) if now_ms is None else now_ms
    small = _small_actions(snapshot, now_ms)
    own_name = (policy or snapshot.properties.checkpoint_policy) == "v2" and "checkpointMetadata" in small
    if top_level != "parquet" and not own_name:
        raise InvalidArgumentError(
            "only a table with the property delta.checkpointPolicy = v2 can have a checkpoint in JSON"
        )
    publish_through(store, snapshot.version)
    name = uuid_checkpoint_key(snapshot.version, str(uuid.uuid4()), top_level) if own_name else None
    try:
        with placed(store, snapshot.identity, snapshot.version) as placement:
            info, listing = _write(placement, snapshot, small, now_ms, top_level, name, replace=replace)
    except StoreError as error:
        if not isinstance(error.__cause__, ObjectExistsError):
            raise
        return None
    log.debug(
        "%s: wrote the checkpoint %s of version %d: %d actions, %d files, %d bytes",
        *(store.uri, info.key, info.version, info.actions, info.adds, info.size),
    )
    file = LogFile(info.key, info.size, None, info.version, info.version)
    _remember(snapshot, CheckpointFiles(info.version, (file,), "uuid" if own_name else "classic"), listing)
    return info


def _write(
    placement: Placement,
    snapshot: Snapshot,
    small: dict[str, Sequence[Any]],
    now_ms: int,
    top_level: TopLevel,
    name: str | None,
    *,
    replace: bool,
) -> tuple[CheckpointInfo, list[tuple[Sidecar, int]]]:
    """Write the files of a checkpoint, under ``name`` or under the classic one; returns it with its sidecars."""
    own_name = name is not None
    removes, files = _removes(snapshot, now_ms), snapshot.files
    form = _TableFormat(CODECS[codec_of(snapshot.properties.compression_codec)][0], pages_of(snapshot.properties))
    listing: list[tuple[Sidecar, int]] = []
    if own_name and (top_level == "json" or files.num_rows + len(removes) > min(LISTED_ITSELF, _LISTED)):
        kept = _kept_sidecars(placement.store, snapshot)
        written = _write_sidecars(placement, _adds(snapshot, kept.rest), removes, form)
        small["sidecar"] = [sidecar for sidecar, _ in kept.sidecars] + written
        columns = {"add": _adds(snapshot, files.slice(0, 0)), "remove": removes.slice(0, 0)}
        if kept.in_order:
            listing = kept.sidecars + [(sidecar, count) for sidecar in written if (count := adds_of(sidecar))]
    else:
        columns = {"add": _adds(snapshot, files), "remove": removes}
    key = name or checkpoint_key(snapshot.version)
    if top_level == "json":
        size = _write_json(placement, key, small)
    else:
        size = _write_parquet(placement, key, small, columns, form, unique=own_name, replace=replace)
    placement.check()
    count = sum(map(len, small.values())) + files.num_rows + len(removes)
    in_sidecars = sum(sidecar.size_in_bytes for sidecar in small.get("sidecar", ()))
    info = CheckpointInfo(snapshot.version, key, count, files.num_rows, size + in_sidecars)
    _point_to(placement, info)
    return info, listing


def _remember(snapshot: Snapshot, checkpoint: CheckpointFiles, sidecars: Sequence[tuple[Sidecar, int]]) -> None:
    """Let the next snapshots of the same handle begin at the checkpoint."""
    known = snapshot.newest_checkpoint
    if known.files is None or known.files.version <= checkpoint.version:
        lineage = snapshot.live.lineage
        known.layout = Layout(checkpoint.files[0].key, lineage, tuple(sidecars)) if sidecars else None
        known.files = checkpoint


# --- the files ---------------------------------------------------------------------------------------------------


class _TableFormat(NamedTuple):
    """The format of Parquet files by the table's properties."""

    codec: str
    pages: Literal["1.0", "2.0"]


def _write_sidecars(
    placement: Placement, adds: pa.ChunkedArray, removes: pa.ChunkedArray, form: _TableFormat
) -> list[Sidecar]:
    """Write the file actions to sidecars, and return these."""
    files = {"add": adds, "remove": removes}
    sidecars = []
    for name, column in files.items():
        for start in range(0, len(column), _LISTED):
            part = {kind: other.slice(0, 0) for kind, other in files.items()} | {name: column.slice(start, _LISTED)}
            path = f"{uuid.uuid4()}.parquet"
            size = _write_parquet(placement, f"{SIDECARS}/{path}", {}, part, form, unique=True)
            tags: dict[str, str | None] | None = None
            if name == "add":
                tags = {ADDS_TAG: str(len(part[name])), _FORM_TAG: _form_of(column)}
            now = time.time_ns() // 1_000_000
            sidecars.append(Sidecar(path=path, size_in_bytes=size, modification_time=now, tags=tags))
    return sidecars


def _form_of(adds: pa.ChunkedArray) -> str:
    return f"{crc32(str(adds.type).encode()):08x}"


class _Kept(NamedTuple):
    """The sidecars that a checkpoint takes over from the one before it.

    Attributes:
        sidecars: the sidecars, each with the number of its files.
        rest: the files that they do not list.
        in_order: whether they list the first of the snapshot's files, in their order.
    """

    sidecars: list[tuple[Sidecar, int]]
    rest: pa.Table
    in_order: bool


def _kept_sidecars(store: Store, snapshot: Snapshot) -> _Kept:
    """The sidecars that list live files only, with their present entries, and have the columns of a new one.

    Only young ones are kept: a cleanup of the log that runs at the same time, and finds their old checkpoint expired,
    leaves them alone. So that they stay few, small ones at the end are merged: a sidecar has at least twice as many
    files as all after it, or is large.
    """
    files, known = snapshot.files, snapshot.newest_checkpoint
    layout, base = known.layout, known.files or snapshot.segment.checkpoint
    in_order = (
        layout is not None
        and base is not None
        and (layout.key, layout.lineage) == (base.files[0].key, snapshot.live.lineage)
        and base.version <= snapshot.version
    )
    sidecars = [*layout.sidecars] if layout is not None and in_order else _true_sidecars(store, snapshot)
    form = _form_of(_adds(snapshot, files.slice(0, 0)))
    oldest = time.time_ns() // 1_000_000 - max(snapshot.properties.log_retention_ms, _DAY_MS) // 2
    sound = [one.modification_time > oldest and (one.tags or {}).get(_FORM_TAG) == form for one, _ in sidecars]
    if in_order:
        del sidecars[[*sound, False].index(False) :]
    else:
        sidecars = [one for one, right in zip(sidecars, sound, strict=True) if right]
    rest = files.num_rows - sum(count for _, count in sidecars)
    while sidecars and sidecars[-1][1] < min(2 * rest, _LISTED // 2):
        rest += sidecars.pop()[1]
    if in_order or not sidecars:
        return _Kept(sidecars, files.slice(files.num_rows - rest), in_order=True)
    listed = pa.concat_tables(listed_by(store, [sidecar for sidecar, _ in sidecars]))
    return _Kept(sidecars, without_shared(files, listed), in_order=False)


def _true_sidecars(store: Store, snapshot: Snapshot) -> list[tuple[Sidecar, int]]:
    """The sidecars of the checkpoint before this one whose files none of the commits since refers to."""
    base = snapshot.segment.checkpoint
    if base is None or base.kind == "multipart":
        return []
    try:
        named = [(one, count) for one in read_sidecars(store, base) if (count := adds_of(one))]
        touched = {
            key_of(action)
            for commit in read_commits(store, snapshot.segment.commits)
            for action in commit
            if isinstance(action, (Add, Remove))
        }
        listed = listed_by(store, [sidecar for sidecar, _ in named])
    except (InvalidLogError, ObjectNotFoundError):
        return []  # all files are listed anew
    return [
        one
        for one, files in zip(named, listed, strict=True)
        if files.num_rows == one[1] and not has_any(keys_of(files), touched)
    ]


def _write_parquet(
    placement: Placement,
    key: str,
    small: Mapping[str, Sequence[Any]],
    files: Mapping[str, pa.ChunkedArray],
    form: _TableFormat,
    *,
    unique: bool,
    replace: bool = True,
) -> int:
    """Write actions, one a row. Returns the size of the file in bytes.

    Args:
        placement: where to write it.
        key: the file's key.
        small: the actions that are few.
        files: the file actions.
        form: the format.
        unique: whether no other file can have the key. Else the file gets a mark, by which it is recognized.
        replace: whether a file of this key is replaced. One that comes while this one is written stays in any case.

    Raises:
        StoreError: the store refused or failed; because of an ``ObjectExistsError`` if a file has the key, and stays.
    """
    store, mark = placement.store, uuid.uuid4().hex.encode()
    types = {name: _TYPES[name] for name in small} | {name: column.type for name, column in files.items()}
    schema = pa.schema([(name, types[name]) for name in _order(types)])
    placement.writes(key, None if unique else mark)
    replace = unique or (replace and _is_there(store, key))
    write = store.open_output if replace else store.create_output
    with store_errors(f"write {key}"), write(key) as sink:
        how = {
            "compression": form.codec,
            "data_page_version": form.pages,
            "store_schema": False,
            "write_statistics": _bounded(schema),
        }
        with pq.ParquetWriter(sink, schema, **how) as writer:
            if not unique:
                writer.add_key_value_metadata({_MARK: mark})
            for name, actions in small.items():
                if actions:
                    rows = [_as_row(action) for action in actions]
                    writer.write_batch(_rows(schema, name, nested_array(rows, types[name])))
            for name, column in files.items():
                for chunk in _blocks(column):
                    writer.write_batch(_rows(schema, name, chunk))
        size = sink.tell()
        placement.check()  # just before the file gets its name
    return size


def _bounded(schema: pa.Schema) -> list[str] | bool:
    """The columns with statistics in the footer of a checkpoint, as ``write_statistics`` of ``ParquetWriter``.

    Floats have none: pyarrow leaves NaN out of the bounds, and a reader that skips row groups by them, such as DuckDB,
    misses files with NaN in a partition column, and those whose own bounds in ``stats_parsed`` are NaN.
    """
    columns = [found for item in schema for found in parquet_columns(item.name, item.type)]
    kept = [path for path, kind in columns if not pt.is_floating(kind)]
    return kept if len(kept) < len(columns) else True


def _is_there(store: Store, key: str) -> bool:
    with store_errors(f"look at {key}"):
        try:
            store.head(key)
        except ObjectNotFoundError:
            return False
    return True


def _write_json(placement: Placement, key: str, small: Mapping[str, Sequence[Any]]) -> int:
    data = encode_commit([action for actions in small.values() for action in actions])
    placement.writes(key)
    with store_errors(f"write {key}"):
        placement.store.put(key, data)
    return len(data)


def _order(types: dict[str, Any]) -> list[str]:
    """The columns in the order of delta-spark."""
    known = ["txn", "add", "remove", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar"]
    return [name for name in known if name in types]


# --- the actions that are few ------------------------------------------------------------------------------------


def _small_actions(snapshot: Snapshot, now_ms: int) -> dict[str, Sequence[Any]]:
    retention = snapshot.properties.set_transaction_retention_ms
    txns = [
        txn
        for txn in snapshot.txns.values()
        if retention is None or txn.last_updated is None or txn.last_updated > now_ms - retention
    ]
    small: dict[str, Sequence[Any]] = {
        "protocol": [snapshot.protocol],
        "metaData": [snapshot.metadata],
        "txn": txns,
        "domainMetadata": list(snapshot.domains.values()),
    }
    if "v2Checkpoint" in features_of(snapshot.protocol):
        small |= {"checkpointMetadata": [CheckpointMetadata(version=snapshot.version)], "sidecar": []}
    return small


def _as_row(action: Action) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(action)
    if isinstance(row.get("tags"), dict):
        row["tags"] = list(row["tags"].items())
    if isinstance(action, Metadata):
        # Some readers expect these maps not to be null.
        row["format"] = {"provider": "parquet", "options": {}} | row.get("format", {})
        row.setdefault("configuration", {})
        row["format"]["options"] = list(row["format"]["options"].items())
        row["configuration"] = list(row["configuration"].items())
    return row


# --- the file actions --------------------------------------------------------------------------------------------


def _adds(snapshot: Snapshot, files: pa.Table) -> pa.ChunkedArray:
    properties = snapshot.properties
    columns = {name: files.column(name) for name in FILE_SCHEMA.names if name != "stats"}
    # A checkpoint describes the state, not a change.
    columns["dataChange"] = _all_false(files.num_rows)
    if properties.write_stats_as_json:
        columns["stats"] = files.column("stats")
    if properties.write_stats_as_struct:
        # The same for every handle: as without a zone.
        values = partition_values_parsed(files, snapshot.in_zone(None).schema, snapshot.partition_columns)
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
    # A tombstone without a time counts as expired, as in delta-spark.
    tombstones = tombstones.filter(
        pc.greater(tombstones.column("deletionTimestamp"), array_of([oldest], pa.int64())[0])
    )
    columns = {field.name: tombstones.column(field.name) for field in _REMOVE_FIELDS}
    columns["dataChange"] = _all_false(tombstones.num_rows)
    return _struct(columns)


def _all_false(count: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes(count // 8 + 1))])])


def _struct(columns: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """The columns as one column of structs, none of which is null."""
    table = pa.table(columns)
    kind = pa.struct(list(table.schema))
    chunks = [pa.StructArray.from_arrays(batch.columns, fields=list(kind)) for batch in table.to_batches()]
    return pa.chunked_array(chunks, kind)


def _blocks(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    if len(column):
        yield from (one_array(piece.column(0)) for piece in pieces(pa.table([column], [""]), _BLOCK))


def _rows(schema: pa.Schema, name: str, values: pa.Array) -> pa.RecordBatch:
    """Rows with values in one column only."""
    columns = [values if field.name == name else pa.nulls(len(values), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# --- the hint ----------------------------------------------------------------------------------------------------


def _point_to(placement: Placement, info: CheckpointInfo) -> None:
    store, key = placement.store, last_checkpoint_key()
    try:
        current = parse_last_checkpoint(store.get(key))
    except StorageError:
        current = None  # missing or unreadable
    # Another writer may have written a newer checkpoint meanwhile; the hint never goes back.
    if current is not None and current.version > info.version:
        return
    hint = LastCheckpoint(version=info.version, size=info.actions, size_in_bytes=info.size, num_of_add_files=info.adds)
    data = encode_last_checkpoint(hint)
    placement.writes(key, data)
    with store_errors(f"write {key}"):
        store.put(key, data)
