"""Checkpoints of every kind, read into columns (PROTOCOL.md, "Checkpoints").

Only the columns that a snapshot needs are read: the tombstones stay where they are until someone asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.engine.files import log_bytes, log_errors, open_parquet
from refdelta.engine.state import FILE_SCHEMA, STATS_PARSED, TOMBSTONE_SCHEMA, adds_table, concat_files, removes_table
from refdelta.errors import InvalidLogError
from refdelta.protocol.actions import (
    Add,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from refdelta.protocol.codec import decode_commit, without_unset
from refdelta.protocol.paths import sidecar_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refdelta.protocol.actions import AnyAction
    from refdelta.protocol.segment import CheckpointFiles
    from refdelta_storage.base import Store

# The actions of a checkpoint that are few, and read as values.
_SINGLE: dict[str, Any] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "sidecar": Sidecar,
    "checkpointMetadata": CheckpointMetadata,
}


@dataclass(frozen=True)
class CheckpointContent:
    """What a checkpoint holds: the file actions as columns, the rest as values."""

    files: pa.Table
    actions: list[AnyAction] = field(default_factory=list)


def read_checkpoint(store: Store, checkpoint: CheckpointFiles) -> CheckpointContent:
    """Read a checkpoint without its tombstones.

    Args:
        store: the table's folder.
        checkpoint: the files of one complete checkpoint.

    Returns:
        The live files, of ``FILE_SCHEMA``, with a column ``stats_parsed`` where the checkpoint has statistics only as
        a struct; and the other actions.

    Raises:
        InvalidLogError: a file cannot be read or breaks the protocol; the error names it.
    """
    actions, tables = [], []
    for file in checkpoint.files:
        others, files = _read_main(store, file.key)
        actions += others
        tables.append(files)
    tables += [_read_columns(store, key, "add", FILE_SCHEMA) for key in _sidecars(store, actions)]
    return CheckpointContent(concat_files(tables), [action for action in actions if not isinstance(action, Sidecar)])


def read_tombstones(store: Store, checkpoint: CheckpointFiles) -> pa.Table:
    """The ``remove`` actions of a checkpoint, of ``TOMBSTONE_SCHEMA``. Raises ``InvalidLogError``."""
    tables: list[Any] = []
    sidecars: list[AnyAction] = []
    for file in checkpoint.files:
        if file.key.endswith(".json"):
            actions = decode_commit(log_bytes(store, file.key), file.key)
            tables.append(removes_table([action for action in actions if isinstance(action, Remove)]))
            sidecars += actions
        else:
            tables.append(_read_columns(store, file.key, "remove", TOMBSTONE_SCHEMA))
            with log_errors(file.key):
                sidecars += _read_single(open_parquet(store, file.key), file.key, ["sidecar"])
    tables += [_read_columns(store, key, "remove", TOMBSTONE_SCHEMA) for key in _sidecars(store, sidecars)]
    return concat_files(tables)


def _read_main(store: Store, key: str) -> tuple[list[AnyAction], pa.Table]:
    if key.endswith(".json"):
        actions = decode_commit(log_bytes(store, key), key)
        adds = [action for action in actions if isinstance(action, Add)]
        return [action for action in actions if not isinstance(action, (Add, Remove))], adds_table(adds)
    with log_errors(key):
        parquet = open_parquet(store, key)
        return _read_single(parquet, key, list(_SINGLE)), _columns(parquet, key, "add", FILE_SCHEMA)


def _sidecars(store: Store, actions: Iterable[AnyAction]) -> list[str]:
    return [sidecar_key(action.path, store.uri) for action in actions if isinstance(action, Sidecar)]


def _read_columns(store: Store, key: str, action: str, schema: pa.Schema) -> pa.Table:
    with log_errors(key):
        return _columns(open_parquet(store, key), key, action, schema)


def _columns(parquet: Any, key: str, action: str, schema: pa.Schema) -> pa.Table:
    """The rows of one Parquet file that hold ``action``, its fields as the columns of ``schema``."""
    if action not in parquet.schema_arrow.names:
        return schema.empty_table()
    fields = _struct_fields(parquet, action, key)
    if "path" not in fields:
        raise InvalidLogError(f"its column {action!r} has no field 'path'", file=key)
    table = _flat(parquet, action, [name for name in schema.names if name in fields], schema)
    # Statistics as a struct stand in where those as JSON were not written (delta.checkpoint.writeStatsAsJson=false).
    if action == "add" and STATS_PARSED in fields and table["stats"].null_count == table.num_rows > 0:
        parsed = _flat(parquet, action, ["path", STATS_PARSED], pa.schema([fields[STATS_PARSED]]))
        table = table.append_column(STATS_PARSED, parsed.column(STATS_PARSED))
    return table


def _struct_fields(parquet: Any, action: str, key: str) -> dict[str, pa.Field]:
    column = parquet.schema_arrow.field(action).type
    if not pa.types.is_struct(column):
        raise InvalidLogError(f"its column {action!r} is {column}, not a struct", file=key)
    return {column.field(i).name: column.field(i) for i in range(column.num_fields)}


def _flat(parquet: Any, action: str, names: list[str], schema: pa.Schema) -> pa.Table:
    batches = []
    for batch in parquet.iter_batches(columns=[f"{action}.{name}" for name in names]):
        struct = batch.column(0)
        struct = struct.filter(pc.is_valid(pc.struct_field(struct, "path")))
        if len(struct):
            batches.append(pa.record_batch([_column(struct, field) for field in schema], schema=schema))
    return pa.Table.from_batches(batches, schema)


def _column(struct: pa.StructArray, field: pa.Field) -> pa.Array:
    if struct.type.get_field_index(field.name) < 0:
        return pa.nulls(len(struct), field.type)
    return pc.struct_field(struct, field.name).cast(field.type)


def _read_single(parquet: Any, key: str, names: list[str]) -> list[AnyAction]:
    """The few actions of a checkpoint file, as values."""
    present = [name for name in names if name in parquet.schema_arrow.names]
    actions: list[AnyAction] = []
    if not present:
        return actions
    for batch in parquet.iter_batches(columns=present):
        for name in present:
            column = batch.column(batch.schema.get_field_index(name))
            if column.null_count < len(column):
                rows = column.filter(_is_set(column, name)).to_pylist(maps_as_pydicts="strict")
                actions += [_convert(row, name, key) for row in rows]
    return actions


# The field of each action that is never null where the action is there. Some writers leave a struct of nulls instead of
# a null.
_REQUIRED = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "sidecar": "path",
    "checkpointMetadata": "version",
}


def _is_set(column: pa.StructArray, name: str) -> pa.Array:
    if not pa.types.is_struct(column.type) or column.type.get_field_index(_REQUIRED[name]) < 0:
        raise ValueError(f"its column {name!r} is {column.type}")
    return pc.and_(pc.is_valid(column), pc.is_valid(pc.struct_field(column, _REQUIRED[name])))


def _convert(row: dict[str, Any], name: str, key: str) -> AnyAction:
    present = {field: value for field, value in row.items() if value is not None}
    if name == "metaData":
        present = without_unset(present)
    try:
        action: AnyAction = msgspec.convert(present, _SINGLE[name])
    except msgspec.ValidationError as error:
        raise InvalidLogError(f"{name}: {error}", file=key) from error
    return action
