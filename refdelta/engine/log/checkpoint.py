"""Reading checkpoints of every kind into columns (PROTOCOL.md, "Checkpoints").

Only the columns that a snapshot needs are read; tombstones are read when they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import array_of, check_values
from refdelta.core.log.actions import Add, CheckpointMetadata, DomainMetadata, Metadata, Protocol, Remove, Sidecar, Txn
from refdelta.core.log.codec import decode_commit, without_unset
from refdelta.core.log.paths import sidecar_key
from refdelta.engine.log.state import (
    DELETION_VECTOR_TYPE,
    FILE_SCHEMA,
    STATS_PARSED,
    TOMBSTONE_SCHEMA,
    adds_table,
    concat_files,
    removes_table,
)
from refdelta.engine.parquet.budget import checkpoint_budget
from refdelta.engine.parquet.files import log_bytes, log_errors, open_parquet
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import InvalidLogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from refdelta.core.log.actions import AnyAction
    from refdelta.core.log.segment import CheckpointFiles
    from refdelta.engine.parquet.budget import Budget
    from refdelta_storage.base import Store

_TRUE = pa.nulls(1).is_null()[0]
_BATCH_ROWS = 1_000  # files that are streamed at once
_ACTION_BYTES = 1_000  # an action as a value, on average

# The actions of a checkpoint that are few, and become values.
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
    """The content of a checkpoint.

    Attributes:
        files: its live files, as columns.
        actions: its other actions, as values.
        sidecars: the sidecars of this engine that list the first of the files, in their order, each with the number of
            its files.
    """

    files: pa.Table
    actions: list[AnyAction] = field(default_factory=list)
    sidecars: tuple[tuple[Sidecar, int], ...] = ()


def read_checkpoint(store: Store, checkpoint: CheckpointFiles) -> CheckpointContent:
    """Read a checkpoint without its tombstones.

    Args:
        store: the table's folder.
        checkpoint: the files of one complete checkpoint.

    Returns:
        The live files, of ``FILE_SCHEMA``, with a column ``stats_parsed`` if the checkpoint has statistics only as a
        struct; and the other actions.

    Raises:
        InvalidLogError: a file cannot be read or breaks the protocol; the error names it.
    """
    budget = checkpoint_budget()
    actions, tables = _read(store, _sized(checkpoint), "add", FILE_SCHEMA, list(_SINGLE), budget)
    listed = _read(store, _sidecars(store, actions, checkpoint), "add", FILE_SCHEMA, (), budget)[1]
    named = [action for action in actions if isinstance(action, Sidecar)]
    own = () if any(map(len, tables)) else _first_of_this_engine(named, listed)
    files = concat_files(tables + listed)
    return CheckpointContent(files, [action for action in actions if not isinstance(action, Sidecar)], own)


def _first_of_this_engine(sidecars: Sequence[Sidecar], listed: Sequence[pa.Table]) -> tuple[tuple[Sidecar, int], ...]:
    found = []
    for sidecar, files in zip(sidecars, listed, strict=True):
        if not files.num_rows:
            continue
        if adds_of(sidecar) != files.num_rows:
            break
        found.append((sidecar, files.num_rows))
    return tuple(found)


ADDS_TAG = "refdelta.numAddFiles"
"""The tag of a sidecar with the number of its actions, all of which are adds. Later checkpoints may keep such a one."""


def adds_of(sidecar: Sidecar) -> int | None:
    """The number of adds of a sidecar that has no other action; None if it is not known."""
    text = (sidecar.tags or {}).get(ADDS_TAG)
    return int(text) if text and text.isdecimal() and text.isascii() and len(text) < 19 else None


def read_tombstones(store: Store, checkpoint: CheckpointFiles) -> pa.Table:
    """The ``remove`` actions of a checkpoint, of ``TOMBSTONE_SCHEMA``. Raises ``InvalidLogError``."""
    budget = checkpoint_budget()
    actions, tables = _read(store, _sized(checkpoint), "remove", TOMBSTONE_SCHEMA, ["sidecar"], budget)
    sidecars = [action for action in actions if isinstance(action, Sidecar) and adds_of(action) is None]
    listed = _read(store, _sidecars(store, sidecars, checkpoint), "remove", TOMBSTONE_SCHEMA, (), budget)[1]
    return concat_files(tables + listed)


def iter_files(store: Store, checkpoint: CheckpointFiles) -> Iterator[pa.Table]:
    """Stream the live files of a checkpoint, in tables as :func:`read_checkpoint` returns them. Raises as it does.

    Only as many batches are read as the caller takes; memory is bounded by a batch, or by a file in JSON.
    """
    actions, _ = _read(store, _sized(checkpoint), "", TOMBSTONE_SCHEMA, ["sidecar"], checkpoint_budget())
    for key, size in (*_sized(checkpoint), *_sidecars(store, actions, checkpoint)):
        if key.endswith(".json"):
            yield _read_file(store, (key, size), "add", FILE_SCHEMA, (), checkpoint_budget())[1]
            continue
        with log_errors(key):
            parquet = open_parquet(store, key, size)
            fields = _struct_fields(parquet, "add", key) if "add" in parquet.schema_arrow.names else {}
            if not fields:
                continue
            schema = pa.schema([*FILE_SCHEMA, *(fields[name] for name in (STATS_PARSED,) if name in fields)])
            inner = [f"add.{name}" for name in schema.names if name in fields]
            groups = parquet.row_groups_with(["add.path"])
            for batch in parquet.iter_batches(_BATCH_ROWS, groups, inner, use_threads=False):
                for rows in _flat(batch.column("add"), schema, _REQUIRED_OF_ADDS):
                    yield pa.Table.from_batches([rows])


def sidecars_of(store: Store, checkpoint: CheckpointFiles) -> list[str]:
    """The keys of a checkpoint's sidecars. Raises ``InvalidLogError``."""
    return [key for key, _ in _sidecars(store, read_sidecars(store, checkpoint), checkpoint)]


def read_sidecars(store: Store, checkpoint: CheckpointFiles) -> list[Sidecar]:
    """The ``sidecar`` actions of a checkpoint. Raises ``InvalidLogError``."""
    actions, _ = _read(store, _sized(checkpoint), "", TOMBSTONE_SCHEMA, ["sidecar"], checkpoint_budget())
    return [action for action in actions if isinstance(action, Sidecar)]


def listed_by(store: Store, sidecars: Sequence[Sidecar]) -> list[pa.Table]:
    """Path and deletion vector of the files that sidecars list, a table for each. Raises ``InvalidLogError``."""
    schema = pa.schema([FILE_SCHEMA.field(name) for name in ("path", "deletionVector", "size")])
    return _read(store, _sidecars(store, sidecars), "add", schema, (), checkpoint_budget())[1]


# The key of a file, and its size in bytes by the log.
_Sized = tuple[str, int]
# The other actions of a file, and its files.
_Content = tuple[list["AnyAction"], pa.Table]


def _sized(checkpoint: CheckpointFiles) -> list[_Sized]:
    return [(file.key, file.size) for file in checkpoint.files]


def _sidecars(store: Store, actions: Iterable[AnyAction], checkpoint: CheckpointFiles | None = None) -> list[_Sized]:
    """The files of sidecars.

    Raises:
        InvalidLogError: a sidecar occurs twice: a checkpoint of some bytes could make much of one small file.
    """
    found: dict[str, int] = {}
    for action in actions:
        if isinstance(action, Sidecar):
            key = sidecar_key(action.path, store.uri)
            if key in found:
                file = key if checkpoint is None else checkpoint.files[0].key
                raise InvalidLogError(f"the checkpoint lists the sidecar {action.path!r:.200} twice", file=file)
            found[key] = action.size_in_bytes
    return list(found.items())


def _read(
    store: Store, files: Sequence[_Sized], action: str, schema: pa.Schema, singles: Sequence[str], budget: Budget
) -> tuple[list[AnyAction], list[pa.Table]]:
    """Read files of a checkpoint in parallel.

    Args:
        store: the table's folder.
        files: the files.
        action: the wanted file action: ``add`` or ``remove``.
        schema: its columns in the result.
        singles: the names of the other wanted actions.
        budget: of the memory that the whole checkpoint takes.

    Returns:
        The other actions of all files, and the file actions of each, in the order of the files.
    """
    executor = ThreadExecutor.for_store(store, pa.chunked_array([array_of([size for _, size in files], pa.int64())]))
    run = executor.map if len(files) > 1 else map
    contents = list(run(lambda file: _read_file(store, file, action, schema, singles, budget), files))
    return [one for others, _ in contents for one in others], [table for _, table in contents]


def _read_file(
    store: Store, file: _Sized, action: str, schema: pa.Schema, singles: Sequence[str], budget: Budget
) -> _Content:
    key, size = file
    if not key.endswith(".json"):
        with log_errors(key):
            return _content(open_parquet(store, key, size), key, action, schema, singles, budget)
    actions = decode_commit(log_bytes(store, key), key)
    others: list[AnyAction] = [one for one in actions if not isinstance(one, (Add, Remove))]
    if action == "add":
        return others, adds_table([one for one in actions if isinstance(one, Add)])
    return others, removes_table([one for one in actions if isinstance(one, Remove)])


def _content(
    parquet: Any, key: str, action: str, schema: pa.Schema, singles: Sequence[str], budget: Budget
) -> _Content:
    """The other actions of one Parquet file, and the rows with ``action``, its fields as the columns of ``schema``.

    Row groups with neither are skipped: most checkpoints have few tombstones. If row groups of files have no other
    actions, as most writers arrange it, they are read separately, unless that would cost another request.
    """
    fields = _struct_fields(parquet, action, key) if action in parquet.schema_arrow.names else {}
    inner = [f"{action}.{name}" for name in schema.names if name in fields]
    present = [name for name in singles if name in parquet.schema_arrow.names]
    others = parquet.row_groups_with([f"{name}.{_REQUIRED[name]}" for name in present])
    files = parquet.row_groups_with([f"{action}.path"]) if inner else []
    passes = [(others, present), (files, inner)]
    if parquet.far or not set(others).isdisjoint(files):
        passes = [(sorted({*others, *files}), [*present, *inner])]
    actions: list[AnyAction] = []
    batches = []
    room = budget.of_file(parquet.size)
    held = (parquet.iter_held_batches(columns, groups, room) for groups, columns in passes)
    for batch in chain.from_iterable(held):
        for name in (name for name in present if name in batch.schema.names):
            found = _values(batch.column(name), name, key)
            room.take(len(found) * _ACTION_BYTES)
            actions += found
        if inner and action in batch.schema.names:
            batches += _flat(batch.column(action), schema, _REQUIRED_OF_ADDS if action == "add" else ())
    table = pa.Table.from_batches(batches, schema)
    # Statistics as a struct are used if those as JSON were not written (delta.checkpoint.writeStatsAsJson=false).
    wanted = "stats" in schema.names and action == "add" and STATS_PARSED in fields
    if wanted and table["stats"].null_count == table.num_rows > 0:
        own = pa.schema([fields[STATS_PARSED]])
        again = parquet.iter_held_batches(["add.path", f"add.{STATS_PARSED}"], None, room)
        parsed = pa.Table.from_batches([rows for batch in again for rows in _flat(batch.column("add"), own)], own)
        table = table.append_column(own.field(0), parsed.column(0))
    return actions, table


def _struct_fields(parquet: Any, action: str, key: str) -> dict[str, pa.Field]:
    column = parquet.schema_arrow.field(action).type
    if not pa.types.is_struct(column):
        raise InvalidLogError(f"its column {action!r} is {column}, not a struct", file=key)
    fields = {column.field(i).name: column.field(i) for i in range(column.num_fields)}
    if "path" not in fields:
        raise InvalidLogError(f"its column {action!r} has no field 'path'", file=key)
    return fields


def _flat(struct: pa.StructArray, schema: pa.Schema, required: Sequence[str] = ()) -> list[pa.RecordBatch]:
    """The rows of a column in which its action is set, with the fields as columns; no batch if there are none."""
    struct = _valid(struct, pc.is_valid(pc.struct_field(struct, "path")))
    if not len(struct):
        return []
    rows = pa.record_batch([_column(struct, field) for field in schema], schema=schema)
    for name in required:
        if rows.column(name).null_count:
            raise ValueError(f"an add without {name}")
    check_values(rows)
    return [rows]


def _valid(struct: pa.StructArray, known: pa.BooleanArray) -> pa.StructArray:
    """The rows that are ``known``. In most files these are consecutive, so that nothing is copied."""
    count = known.true_count
    first = pc.index(known, _TRUE).as_py()
    if 2 * count > len(known) and known.slice(first, count).true_count == count:
        return struct.slice(first, count)
    return struct.filter(known)


def _column(struct: pa.StructArray, field: pa.Field) -> pa.Array:
    if struct.type.get_field_index(field.name) < 0:
        return pa.nulls(len(struct), field.type)
    column = pc.struct_field(struct, field.name).cast(field.type)
    return _whole(column) if field.type == DELETION_VECTOR_TYPE and column.null_count < len(column) else column


def _whole(vectors: pa.StructArray) -> pa.StructArray:
    """Deletion vectors, checked for required fields; a struct of nulls becomes null."""
    vectors = pc.if_else(pc.is_valid(pc.struct_field(vectors, "storageType")), vectors, None)
    for name in ("pathOrInlineDv", "sizeInBytes", "cardinality"):
        if pc.struct_field(vectors, name).null_count > vectors.null_count:
            raise ValueError(f"a deletion vector without {name}")
    return vectors


def _values(column: pa.StructArray, name: str, key: str) -> list[AnyAction]:
    """The actions of a column as values."""
    if column.null_count == len(column):
        return []
    rows = column.filter(_is_set(column, name)).to_pylist(maps_as_pydicts="strict")
    return [_convert(row, name, key) for row in rows]


# Some writers leave out other fields that the protocol requires; reads do without them.
_REQUIRED_OF_ADDS = ("size",)
# A required field of each action, which shows whether the action is set. Some writers write a struct of nulls for null.
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
