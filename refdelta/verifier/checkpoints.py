"""Checkpoints against the state that the commits give (PROTOCOL.md, "Checkpoints")."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refdelta.core.expressions import partition_values
from refdelta.core.log.actions import (
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
)
from refdelta.core.log.codec import ACTIONS, decode_action
from refdelta.core.log.paths import SIDECARS, same_path, sidecar_key
from refdelta.core.pruning.stats import load_stats, lookup, statistic
from refdelta.core.table.types import (
    BOOLEAN,
    DATE,
    INTEGRAL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructType,
    is_nested,
    leaves,
    parse_schema,
    physical_name,
)
from refdelta.engine.parquet.files import log_errors, open_parquet, store_errors
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.verifier.state import State, compare_states
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from refdelta.core.log.actions import AnyAction
    from refdelta.verifier.log_files import Checkpoint, LogFiles
    from refdelta.verifier.report import Report
    from refdelta_storage.base import Store


# Structs that repeat fields of the actions, which have them as text.
_PARSED = ("stats_parsed", "partitionValues_parsed")


@dataclass
class DecodedCheckpoint:
    """The content of a checkpoint.

    Attributes:
        actions: all actions, including those in sidecars.
        inside: the number of file actions in the checkpoint itself.
        outside: the number of file actions in its sidecars.
        columns: the fields of each column of its files.
    """

    actions: list[AnyAction] = field(default_factory=list)
    inside: int = 0
    outside: int = 0
    columns: dict[str, set[str]] = field(default_factory=dict)


class CheckpointCheck:
    """The check of a checkpoint: its form, and its content against a state.

    Args:
        store: the table's folder.
        checkpoint: the checkpoint.
        log: the files of the log.
        report: takes the findings.
    """

    def __init__(self, store: Store, checkpoint: Checkpoint, log: LogFiles, report: Report):
        self.store, self.checkpoint, self.log, self.report = store, checkpoint, log, report

    def find(self, clause: str, message: str, file: str | None = None) -> None:
        """Add a finding of this checkpoint."""
        where = file or self.checkpoint.keys[0]
        self.report.find(clause, message, version=self.checkpoint.version, file=where)

    def read(self) -> DecodedCheckpoint | None:
        """Read all actions and check their form. Returns None if the checkpoint cannot be read."""
        content = DecodedCheckpoint()
        try:
            begins = []
            for key in self.checkpoint.keys:
                begins.append(len(content.actions))
                self._take(key, content, content.actions)
            self._parts(content.actions, begins)
            self._sidecars(content)
        except InvalidLogError as error:
            self.find("check-1", f"the checkpoint cannot be read: {error.reason}")
            return None
        self._form(content)
        return content

    def compare(self, content: DecodedCheckpoint, state: State) -> None:
        """Compare the checkpoint with the state of its version."""
        own = State()
        own.step(self.checkpoint.version, content.actions)
        compare_states(own, state, self.checkpoint.mtime_ms, lambda message: self.find("check-1", message))
        listed = (one.path for one in content.actions if isinstance(one, Sidecar))
        keys = [*self.checkpoint.keys, *(f"{SIDECARS}/{path.rpartition('/')[2]}" for path in listed)]
        parsed = ParsedCheck(self.store, state, lambda message, key: self.find("check-14", message, key))
        parsed.run(key for key in keys if key.endswith(".parquet"))

    def _parts(self, actions: list[AnyAction], begins: list[int]) -> None:
        ends = [*begins[1:], len(actions)]
        stray = scattered([actions[begin:end] for begin, end in zip(begins, ends, strict=True)])
        if stray is not None:
            message = f"{stray!r} is in another part than files with the same hash"
            where = self.checkpoint.keys[0]
            # No reader depends on it.
            self.report.find("check-18", message, version=self.checkpoint.version, file=where, severity="warning")

    def _take(self, key: str, content: DecodedCheckpoint, into: list[AnyAction]) -> None:
        into += self._json(key) if key.endswith(".json") else self._parquet(key, content)

    def _json(self, key: str) -> Iterator[AnyAction]:
        with store_errors(f"read {key}"):
            data = self.store.get(key)
        for number, line in enumerate(data.split(b"\n"), start=1):
            action = decode_action(line, key, number) if line.strip() else None
            if action is not None:
                yield action

    def _parquet(self, key: str, content: DecodedCheckpoint) -> Iterator[AnyAction]:
        try:
            with log_errors(key):
                parquet = open_parquet(self.store, key)
                schema = parquet.schema_arrow
                for name in schema.names:
                    kind = schema.field(name).type
                    inner = {kind.field(i).name for i in range(kind.num_fields)}
                    content.columns.setdefault(name, set()).update(inner)
                wanted = list(_columns(schema))
                for batch in parquet.iter_batches(4096, columns=wanted):
                    for row in batch.to_pylist(maps_as_pydicts="lossy"):
                        yield from _actions(row, key)
        except ObjectNotFoundError as error:
            raise InvalidLogError("the file does not exist any more", file=key) from error

    def _sidecars(self, content: DecodedCheckpoint) -> None:
        content.inside = sum(isinstance(action, (Add, Remove)) for action in content.actions)
        for action in [one for one in content.actions if isinstance(one, Sidecar)]:
            try:
                key = sidecar_key(action.path, self.store.uri)
            except InvalidLogError as error:
                self.find("check-13", str(error))
                continue
            size = self.log.sidecars.get(key.rpartition("/")[2])
            if size is None:
                self.find("check-16", "a checkpoint names this sidecar, and it does not exist", key)
                continue
            if size != action.size_in_bytes:
                self.find(
                    "check-13", f"the sidecar has {size} bytes, and the checkpoint says {action.size_in_bytes}", key
                )
            files: list[AnyAction] = []
            self._take(key, content, files)
            if not all(isinstance(one, (Add, Remove)) for one in files):
                self.find("check-13", "the sidecar holds actions other than add and remove", key)
            content.outside += len(files)
            content.actions += files

    # --- form --------------------------------------------------------------------------------------------------------

    def _form(self, content: DecodedCheckpoint) -> None:
        counts = Counter[type](type(action) for action in content.actions)
        for action in content.actions:
            if isinstance(action, Remove) and (action.stats is not None or action.tags):
                self.find("check-9", f"the remove of {action.path!r} has statistics or tags")
            if isinstance(action, DomainMetadata) and action.removed:
                self.find("check-1", f"the checkpoint has the removed domain {action.domain!r}")
            if isinstance(action, CheckpointMetadata) and action.version != self.checkpoint.version:
                self.find("check-12", f"its checkpointMetadata has the version {action.version}")
        for kind, name in ((Protocol, "protocol"), (Metadata, "metaData")):
            if counts[kind] != 1:
                self.find("check-1", f"the checkpoint has {counts[kind]} {name} actions, not one")
        if counts[CommitInfo] or counts[Cdc]:
            self.find("check-8", "the checkpoint has a commitInfo or a cdc action")
        self._spec(counts, content)
        self._features(content)

    def _spec(self, counts: Counter[type], content: DecodedCheckpoint) -> None:
        protocol = next((one for one in content.actions if isinstance(one, Protocol)), None)
        allowed = protocol is not None and "v2Checkpoint" in (protocol.writer_features or ())
        second = counts[CheckpointMetadata] or counts[Sidecar] or self.checkpoint.kind == "uuid"
        if second and counts[CheckpointMetadata] != 1:
            self.find(
                "check-12", f"the checkpoint has {counts[CheckpointMetadata]} checkpointMetadata actions, not one"
            )
        if second and not allowed:
            self.find("check-11", "the checkpoint has the V2 form, and the table does not support v2Checkpoint")
        if self.checkpoint.kind == "multipart" and (second or allowed):
            self.find("check-11", "the checkpoint has several parts, and the table supports v2Checkpoint")
        if content.inside and content.outside:
            where = f"the checkpoint has {content.inside} file actions itself, and {content.outside} in its sidecars"
            self.find("check-13", where)

    def _features(self, content: DecodedCheckpoint) -> None:
        for protocol in content.actions:
            if not isinstance(protocol, Protocol):
                continue
            for name, listed, needs in (
                ("readerFeatures", protocol.reader_features, protocol.min_reader_version >= 3),
                ("writerFeatures", protocol.writer_features, protocol.min_writer_version >= 7),
            ):
                if needs != (listed is not None):
                    self.find("check-10", f"{name} {'is missing' if needs else 'must be absent'}: {protocol}")


def _columns(schema: Any) -> Iterator[str]:
    """The columns to read: the actions, without the parsed structs."""
    for name in schema.names:
        if name not in ACTIONS and name != "commitInfo":
            continue
        kind = schema.field(name).type
        names = [kind.field(i).name for i in range(kind.num_fields)]
        if any(parsed in names for parsed in _PARSED):
            yield from (f"{name}.{inner}" for inner in names if inner not in _PARSED)
        else:
            yield name


def _actions(row: dict[str, Any], key: str) -> Iterator[AnyAction]:
    for name, body in row.items():
        if body is None:
            continue
        known = _without_nulls(body)
        if not known or (name != "commitInfo" and _EMPTY.get(name, "path") not in known):
            continue  # some writers store a struct of nulls for an absent action
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


# --- parsed statistics and partition values --------------------------------------------------------------------------


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = 1000


class ParsedCheck:
    """The check of ``stats_parsed`` and ``partitionValues_parsed`` of a checkpoint against the log.

    Args:
        store: the table's folder.
        state: the state of its version.
        find: takes the message of a finding, and the key of the file.
    """

    def __init__(self, store: Store, state: State, find: Callable[[str, str], None]):
        self.store, self.state, self.find = store, state, find
        try:
            schema = parse_schema(state.metadata.schema_string) if state.metadata else StructType()
        except DeltaError:
            schema = StructType()
        names = state.metadata.partition_columns if state.metadata else []
        self.partitions = [item for item in map(schema.find, names) if item is not None]
        partitioned = {physical_name(item) for item in self.partitions}
        self.leaves = [
            (path, item.type)
            for path, item in leaves(schema, physical=True)
            if path[0] not in partitioned and not is_nested(item.type)
        ]

    def run(self, keys: Iterable[str]) -> None:
        """Check each Parquet file of the checkpoint that lists files."""
        for key in keys:
            try:
                with log_errors(key):
                    self._file(key)
            except (DeltaError, ObjectNotFoundError):
                continue  # a finding of the checkpoint itself

    def _file(self, key: str) -> None:
        parquet = open_parquet(self.store, key)
        if "add" not in parquet.schema_arrow.names:
            return
        kind = parquet.schema_arrow.field("add").type
        names = {kind.field(i).name for i in range(kind.num_fields)}
        wanted = [name for name in ("path", "stats_parsed", "partitionValues_parsed") if name in names]
        for batch in parquet.iter_batches(4096, columns=[f"add.{name}" for name in wanted]):
            try:
                rows = batch.column("add").drop_null().to_pylist(maps_as_pydicts="lossy")
            except (ValueError, OverflowError):
                continue  # dates outside of the range of Python
            for row in rows:
                if row.get("path") is not None:
                    self._row(row, names, key)

    def _row(self, row: dict[str, Any], names: set[str], key: str) -> None:
        live = self.state.live_at.get(same_path(row["path"]), set())
        if len(live) != 1:
            return
        add = self.state.files[next(iter(live))]
        if row.get("stats_parsed") is not None and add.stats:
            self._stats(row["stats_parsed"], add, key)
        elif "stats_parsed" not in names and add.stats and self.state.is_on("delta.checkpoint.writeStatsAsStruct"):
            self.find(f"{add.path!r} has statistics, and the checkpoint has no stats_parsed", key)
        self._partitions(row.get("partitionValues_parsed"), add, key)

    def _stats(self, parsed: dict[str, Any], add: Add, key: str) -> None:
        stats = load_stats(add.stats)
        if not isinstance(stats, dict):
            return
        pairs: list[tuple[list[str], DataType]] = [(["numRecords"], _LONG)]
        pairs += [(["nullCount", *path], _LONG) for path, _ in self.leaves]
        pairs += [([part, *path], kind) for part in ("minValues", "maxValues") for path, kind in self.leaves]
        for path, kind in pairs:
            said, text = _internal(lookup(parsed, path)), lookup(stats, path)
            right = None if text is None else statistic(text, kind)
            if said is not None and right is not None and not _same(said, right, kind):
                self.find(f"{'.'.join(path)} of {add.path!r} is {said!r} in stats_parsed, and {right!r} in stats", key)

    def _partitions(self, parsed: dict[str, Any] | None, add: Add, key: str) -> None:
        for item in self.partitions if parsed is not None else ():
            name = physical_name(item)
            try:
                right = partition_values.parse(add.partition_values.get(name), item.type, column=item.name)
            except DeltaError:
                continue  # a finding of the commit
            said = _internal((parsed or {}).get(name))
            if (said is None) != (right is None) or (said is not None and not _same(said, right, item.type)):
                self.find(
                    f"{name} of {add.path!r} is {said!r} in partitionValues_parsed, and {right!r} in the log", key
                )


_LONG = next(kind for kind, bits in INTEGRAL.items() if bits == 64)


def _internal(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    return value


def _same(said: Any, right: Any, kind: DataType) -> bool:
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return bool(abs(said - right) < _MILLISECOND)
    if kind in INTEGRAL or kind in (STRING, DATE, BOOLEAN) or isinstance(kind, DecimalType):
        return bool(said == right)
    return True


# --- checkpoints in several parts ------------------------------------------------------------------------------------


SEED = 42  # Spark's; also the hash of null
_MASK = 0xFFFFFFFF


def spark_hash(text: str | None, seed: int = SEED) -> int:
    """Spark's ``hash`` of a string: Murmur3 of 32 bits, as a signed number. The bytes after the last whole word of four
    are mixed in one by one.
    """
    if text is None:
        return _signed(seed & _MASK)
    data, found = text.encode(), seed & _MASK
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        found = _step(found, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        found = _step(found, (byte if byte < 128 else byte - 256) & _MASK)
    found ^= len(data)
    found = (found ^ (found >> 16)) * 0x85EBCA6B & _MASK
    found = (found ^ (found >> 13)) * 0xC2B2AE35 & _MASK
    return _signed(found ^ (found >> 16))


def _step(found: int, word: int) -> int:
    word = _turned(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_turned(found ^ word, 13) * 5 + 0xE6546B64) & _MASK


def _turned(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & _MASK


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def scattered(parts: Sequence[Iterable[AnyAction]]) -> str | None:
    """A file that is in another part than the files with the same hash; None if there is none.

    Spark distributes rows over the parts by a hash. The specification requires this hash of the path, or of path and
    deletion vector: all files with the same remainder of it are in one part (PROTOCOL.md, "Multi-part checkpoint").

    Args:
        parts: the actions of each part.
    """
    if len(parts) == 1:
        return None
    by_path: dict[int, int] = {}
    by_both: dict[int, int] = {}
    strays: list[str | None] = [None, None]
    for number, actions in enumerate(parts):
        for action in actions:
            if not isinstance(action, (Add, Remove)):
                continue
            path = spark_hash(action.path)
            vector = action.deletion_vector.unique_id if action.deletion_vector is not None else None
            both = spark_hash(vector, path) if vector is not None else path
            for way, (seen, found) in enumerate(((by_path, path), (by_both, both))):
                if seen.setdefault(found % len(parts), number) != number:
                    strays[way] = strays[way] or action.path
        if all(strays):
            return strays[0]
    return None
