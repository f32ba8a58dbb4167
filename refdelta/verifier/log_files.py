"""The files of a log by their names, commits read line by line, and checkpoints.

The verifier reads the log independently of the engine; only the decoding of one action is shared.

A checkpoint has a row for each of up to millions of files, so that they become columns without an object for each. A
part whose columns are not plainly those of the specification is decoded row by row by :mod:`refdelta.core.log.codec`,
which is the definition, and whose errors name the field.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import check_values
from refdelta.arrow.text_maps import TextMaps
from refdelta.core.log.actions import Add, Metadata, Remove
from refdelta.core.log.codec import ACTIONS, decode_action, decode_commit
from refdelta.core.log.paths import LOG, LogName, commit_key, parse_log_name
from refdelta.engine.log.state import DELETION_VECTOR_TYPE, FILE_SCHEMA, TOMBSTONE_SCHEMA, adds_table, removes_table
from refdelta.engine.parquet.files import log_errors, open_parquet, store_errors
from refdelta.errors import DeltaError, InvalidLogError, TableNotFoundError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Protocol as Interface

    from refdelta.core.log.actions import AnyAction
    from refdelta.verifier.report import Report
    from refdelta_storage.base import Store

    class FileActions(Interface):
        """Takes the file actions of a checkpoint, some at a time."""

        def take_adds(self, files: pa.Table) -> None:
            """Take adds, of ``FILE_SCHEMA``."""

        def take_removes(self, files: pa.Table) -> None:
            """Take removes, of ``TOMBSTONE_SCHEMA``."""


_SCHEMA = re.compile(rb'"schemaString"\s*:\s*"')


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint by its files: the parts in order, or the one file."""

    version: int
    kind: str
    keys: tuple[str, ...]
    mtime_ms: int


@dataclass
class LogFiles:
    """The files of a log.

    Attributes:
        commits: version to modification time, in milliseconds since 1970.
        checksums: the versions that have a checksum file.
        checkpoints: the complete ones, by version.
        compacted: the first version and the key of each compacted file, by its last version.
        sidecars: names within ``_sidecars``, with their sizes in bytes.
        hinted: True if there is a ``_last_checkpoint``.
    """

    commits: dict[int, int] = field(default_factory=dict)
    checksums: set[int] = field(default_factory=set)
    checkpoints: dict[int, list[Checkpoint]] = field(default_factory=lambda: defaultdict(list))
    compacted: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    sidecars: dict[str, int] = field(default_factory=dict)
    hinted: bool = False

    @property
    def newest(self) -> int:
        """The newest version of which there is a commit or a checkpoint."""
        return max((*self.commits, *self.checkpoints))


def list_log(store: Store) -> LogFiles:
    """The files of a table's log.

    Raises:
        TableNotFoundError: there is neither a commit nor a checkpoint.
    """
    found = LogFiles()
    parts: dict[tuple[int, int], dict[int, tuple[str, int]]] = defaultdict(dict)
    with store_errors("list the log"):
        for info in store.list(prefix=f"{LOG}/"):
            if info.key.startswith(f"{LOG}/_sidecars/"):
                found.sidecars[info.key.removeprefix(f"{LOG}/_sidecars/")] = info.size
                continue
            name = parse_log_name(info.key)
            if name is None:
                continue
            if name.kind == "multipart":
                parts[name.version, name.parts][name.part] = info.key, info.mtime_ms
            else:
                _take(found, name, info.key, info.mtime_ms)
    for (version, count), own in parts.items():
        if len(own) == count:
            keys = tuple(own[number][0] for number in sorted(own))
            latest = max(mtime for _, mtime in own.values())
            found.checkpoints[version].append(Checkpoint(version, "multipart", keys, latest))
    if not found.commits and not found.checkpoints:
        raise TableNotFoundError(f"there is no Delta table at {store.uri}: its folder {LOG} has no commit")
    return found


def _take(found: LogFiles, name: LogName, key: str, mtime_ms: int) -> None:
    match name.kind:
        case "commit":
            found.commits[name.version] = mtime_ms
        case "checksum":
            found.checksums.add(name.version)
        case "compacted":
            found.compacted[name.hi].append((name.version, key))
        case "last_checkpoint":
            found.hinted = True
        case _:
            found.checkpoints[name.version].append(Checkpoint(name.version, name.kind, (key,), mtime_ms))


@dataclass(frozen=True)
class ActionLine:
    """An action of a commit, with the number of its line."""

    number: int
    action: AnyAction


@dataclass(frozen=True)
class LoggedCommit:
    """A commit as its file holds it, without the lines that hold no action: these are findings already."""

    version: int
    key: str
    lines: tuple[ActionLine, ...]
    mtime_ms: int | None = None

    @property
    def actions(self) -> list[AnyAction]:
        """The actions, in their order."""
        return [line.action for line in self.lines]


def read_commit(store: Store, version: int, report: Report, *, key: str | None = None) -> LoggedCommit | None:
    """Read a commit, or a compacted file whose ``key`` is given.

    Returns:
        The commit; None if it was removed since the log was listed.
    """
    name = key or commit_key(version)
    try:
        with store_errors(f"read {name}"):
            data = store.get(name)
    except DeltaError as error:
        if isinstance(error.__cause__, ObjectNotFoundError):
            return None
        raise
    lines = _at_once(data, name)
    if lines is not None:
        return LoggedCommit(version, name, lines)
    found = []
    for number, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            action = decode_action(text, name, number)
        except DeltaError as error:
            report.find("log-3", _reason(error), version=version, file=name, line=number)
            continue
        if isinstance(action, Metadata) and not _SCHEMA.search(text):
            report.find("schema-1", "the metaData action has no schemaString", version=version, file=name, line=number)
        if action is not None:
            found.append(ActionLine(number, action))
    if not found and not data.strip():
        report.find("log-3", "the file has no action", version=version, file=name)
    return LoggedCommit(version, name, tuple(found))


def _at_once(data: bytes, name: str) -> tuple[ActionLine, ...] | None:
    """The actions of a commit that has one on each line and no fault; None if its lines have to be read one by one."""
    try:
        actions = decode_commit(data, name)
    except InvalidLogError:
        return None
    texts = data.removesuffix(b"\n").split(b"\n")
    if len(actions) != len(texts):
        return None  # blank lines, or unknown actions
    for action, text in zip(actions, texts, strict=True):
        if isinstance(action, Metadata) and not _SCHEMA.search(text):
            return None
    return tuple(starmap(ActionLine, enumerate(actions, start=1)))


def _reason(error: DeltaError) -> str:
    # The text of an error of the log begins with the place, which a finding has already.
    return str(getattr(error, "reason", None) or error)


# --- checkpoints -------------------------------------------------------------------------------------------------


PARSED = ("stats_parsed", "partitionValues_parsed")
"""Structs that repeat fields of the actions, which have them as text."""

_ROWS = 16_384  # read at once
_REQUIRED = {
    "add": ("path", "partitionValues", "size", "modificationTime", "dataChange"),
    "remove": ("path",),
}
_SCHEMAS = {"add": FILE_SCHEMA, "remove": pa.schema([*TOMBSTONE_SCHEMA, pa.field("stats", pa.string())])}
_TEXT_MAP = pa.map_(pa.string(), pa.string())
_OF_VECTOR = ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")


class CheckpointRows:
    """The rows of one file of a checkpoint.

    Args:
        store: the table's folder.
        key: the file.
        files: takes the adds and removes.

    Attributes:
        actions: the other actions.
        count: the number of adds and removes.
        marked: the paths of removes with statistics or tags, which a checkpoint must not have.
    """

    def __init__(self, store: Store, key: str, files: FileActions):
        self.store, self.key, self.files = store, key, files
        self.actions: list[AnyAction] = []
        self.count = 0
        self.marked: list[str] = []

    def read(self) -> CheckpointRows:
        """Read the file. Raises ``InvalidLogError``."""
        if self.key.endswith(".json"):
            self._take(list(self._json()))
        else:
            self._parquet()
        return self

    def _json(self) -> Iterator[AnyAction]:
        with store_errors(f"read {self.key}"):
            data = self.store.get(self.key)
        for number, line in enumerate(data.split(b"\n"), start=1):
            action = decode_action(line, self.key, number) if line.strip() else None
            if action is not None:
                yield action

    def _parquet(self) -> None:
        try:
            with log_errors(self.key):
                parquet = open_parquet(self.store, self.key)
                for batch in parquet.iter_batches(_ROWS, columns=list(_columns(parquet.schema_arrow))):
                    for name in batch.schema.names:
                        self._column(name, batch.column(name))
        except ObjectNotFoundError as error:
            raise InvalidLogError("the file does not exist any more", file=self.key) from error

    def _column(self, name: str, column: pa.Array) -> None:
        if column.null_count == len(column):
            return
        column = column.drop_null()
        files = _file_columns(name, column) if name in _SCHEMAS else None
        if files is None:
            rows = column.to_pylist(maps_as_pydicts="lossy")
            self._take([action for row in rows for action in _actions(name, row, self.key)])
        elif files.num_rows:
            self.count += files.num_rows
            if name == "add":
                self.files.take_adds(files)
            else:
                marked = np.asarray(files["stats"].is_valid()) | (TextMaps.of(files["tags"]).lengths > 0)
                self.marked += files["path"].filter(pa.array(marked)).to_pylist()
                self.files.take_removes(files.select(TOMBSTONE_SCHEMA.names))

    def _take(self, actions: Sequence[AnyAction]) -> None:
        adds = [action for action in actions if isinstance(action, Add)]
        removes = [action for action in actions if isinstance(action, Remove)]
        self.actions += [action for action in actions if not isinstance(action, (Add, Remove))]
        self.count += len(adds) + len(removes)
        self.marked += [one.path for one in removes if one.stats is not None or one.tags]
        if adds:
            self.files.take_adds(adds_table(adds))
        if removes:
            self.files.take_removes(removes_table(removes))


def _columns(schema: pa.Schema) -> Iterator[str]:
    """The columns to read: the actions, without the parsed structs."""
    for name in schema.names:
        if name not in ACTIONS and name != "commitInfo":
            continue
        kind = schema.field(name).type
        names = [kind.field(i).name for i in range(kind.num_fields)]
        if any(parsed in names for parsed in PARSED):
            yield from (f"{name}.{inner}" for inner in names if inner not in PARSED)
        else:
            yield name


# --- columns -----------------------------------------------------------------------------------------------------


def _file_columns(name: str, column: pa.Array) -> pa.Table | None:
    """The actions of a column of structs as a table of their fields; None if its rows have to be decoded one by one."""
    kind = column.type
    if not pa.types.is_struct(kind) or kind.get_field_index("path") < 0:
        return None
    path = pc.struct_field(column, "path")
    if path.null_count:  # some writers store a struct of nulls for an absent action
        column = column.filter(path.is_valid())
    columns = []
    for item in _SCHEMAS[name]:
        found = _field(column, item)
        if found is None or (found.null_count and item.name in _REQUIRED[name]):
            return None
        columns.append(found)
    rows = pa.record_batch(columns, schema=_SCHEMAS[name])
    try:
        check_values(rows)
    except pa.ArrowInvalid:
        return None
    return pa.Table.from_batches([rows])


def _field(column: pa.StructArray, field: pa.Field) -> pa.Array | None:
    """A field of all rows, of the type of the specification; None if its values are of another type."""
    at = column.type.get_field_index(field.name)
    if at < 0:
        return pa.nulls(len(column), field.type)
    found = pc.struct_field(column, [field.name])
    if found.type == field.type and not pa.types.is_nested(field.type):
        return found
    if field.type == _TEXT_MAP:
        return _text_map(found)
    if field.type == DELETION_VECTOR_TYPE:
        return _vector(found)
    try:
        same = pa.types.is_integer(found.type) and pa.types.is_integer(field.type)
        return found.cast(field.type) if same or pa.types.is_null(found.type) else None
    except pa.ArrowInvalid:
        return None


def _text_map(maps: pa.Array) -> pa.Array | None:
    kind = maps.type
    if not pa.types.is_map(kind) or (kind.key_type, kind.item_type) != (pa.string(), pa.string()):
        return None
    return None if TextMaps.of(maps).has_key_twice() else maps.cast(_TEXT_MAP)


def _vector(vectors: pa.Array) -> pa.Array | None:
    """Deletion vectors; a struct of nulls becomes null, as in the definition."""
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), DELETION_VECTOR_TYPE)
    if not pa.types.is_struct(vectors.type):
        return None
    parts = [part for item in DELETION_VECTOR_TYPE if (part := _field(vectors, item)) is not None]
    if len(parts) < DELETION_VECTOR_TYPE.num_fields:
        return None
    known = parts[0].is_valid()
    for item, part in zip(DELETION_VECTOR_TYPE, parts, strict=True):
        differs = pc.xor(part.is_valid(), known) if item.name in _OF_VECTOR else pc.greater(part.is_valid(), known)
        if pc.any(differs).as_py():
            return None
    return pa.StructArray.from_arrays(parts, fields=list(DELETION_VECTOR_TYPE), mask=pc.invert(known))


# --- rows --------------------------------------------------------------------------------------------------------


def _actions(name: str, body: dict[str, Any] | None, key: str) -> Iterator[AnyAction]:
    known = _without_nulls(body or {})
    if not known or (name != "commitInfo" and _EMPTY.get(name, "path") not in known):
        return  # some writers store a struct of nulls for an absent action
    action = decode_action({name: known}, key)
    if action is not None:
        yield action


# The field of each action without which its struct is empty.
_EMPTY = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "checkpointMetadata": "version",
}


def _without_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not null, also those in the vector and the format. Values of maps may be null."""
    found = {name: value for name, value in body.items() if value is not None}
    vector = found.get("deletionVector")
    if isinstance(vector, dict):
        found["deletionVector"] = {name: value for name, value in vector.items() if value is not None}
        if not found["deletionVector"]:
            del found["deletionVector"]
    if isinstance(found.get("format"), dict):
        found["format"] = {name: value for name, value in found["format"].items() if value is not None}
    return found
