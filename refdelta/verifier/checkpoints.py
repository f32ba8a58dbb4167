"""Checkpoints against the state that the commits give (PROTOCOL.md, "Checkpoints")."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refdelta.core.log.actions import (
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Sidecar,
)
from refdelta.core.log.paths import SIDECARS, same_path, sidecar_key
from refdelta.engine.log.state import unique_ids
from refdelta.engine.parquet.files import log_errors, open_parquet
from refdelta.errors import DeltaError, InvalidLogError
from refdelta.pruning.stats import load_stats, lookup, statistic
from refdelta.table import partition_values
from refdelta.table.types import (
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
from refdelta.verifier.log_files import PARSED, CheckpointRows
from refdelta.verifier.state import State, StateComparison
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from refdelta.core.log.actions import Add, AnyAction
    from refdelta.verifier.log_files import Checkpoint, FileActions, LogFiles
    from refdelta.verifier.report import Report
    from refdelta_storage.base import Store


@dataclass
class DecodedCheckpoint:
    """The content of a checkpoint without its adds and removes.

    Attributes:
        actions: all other actions.
        inside: the number of file actions in the checkpoint itself.
        outside: the number of file actions in its sidecars.
        marked: the paths of removes with statistics or tags.
    """

    actions: list[AnyAction] = field(default_factory=list)
    inside: int = 0
    outside: int = 0
    marked: list[str] = field(default_factory=list)


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

    def read(self, files: FileActions) -> DecodedCheckpoint | None:
        """Read all actions and check their form. Returns None if the checkpoint cannot be read.

        Args:
            files: takes the file actions.
        """
        content = DecodedCheckpoint()
        try:
            parts = PartFiles(files, len(self.checkpoint.keys))
            for number, key in enumerate(self.checkpoint.keys):
                parts.number = number
                content.inside += self._take(CheckpointRows(self.store, key, parts).read(), content)
            self._parts(parts)
            self._sidecars(content, files)
        except InvalidLogError as error:
            self.find("check-1", f"the checkpoint cannot be read: {error.reason}")
            return None
        self._form(content)
        return content

    def compare(self, state: State) -> None:
        """Read the checkpoint, and compare it with the state of its version."""
        comparison = StateComparison(state, lambda message: self.find("check-1", message))
        content = self.read(comparison)
        if content is None:
            return
        own = State()
        own.step(self.checkpoint.version, content.actions)
        comparison.end(own, self.checkpoint.mtime_ms)
        listed = (one.path for one in content.actions if isinstance(one, Sidecar))
        keys = [*self.checkpoint.keys, *(f"{SIDECARS}/{path.rpartition('/')[2]}" for path in listed)]
        parsed = ParsedCheck(self.store, state, lambda message, key: self.find("check-14", message, key))
        parsed.run(key for key in keys if key.endswith(".parquet"))

    def _parts(self, parts: PartFiles) -> None:
        if parts.stray is not None:
            message = f"{parts.stray!r} is in another part than files with the same hash"
            where = self.checkpoint.keys[0]
            # No reader depends on it.
            self.report.find("check-18", message, version=self.checkpoint.version, file=where, severity="warning")

    @staticmethod
    def _take(rows: CheckpointRows, content: DecodedCheckpoint) -> int:
        content.actions += rows.actions
        content.marked += rows.marked
        return rows.count

    def _sidecars(self, content: DecodedCheckpoint, files: FileActions) -> None:
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
            rows = CheckpointRows(self.store, key, files).read()
            if rows.actions:
                self.find("check-13", "the sidecar holds actions other than add and remove", key)
            content.outside += self._take(rows, content) + len(rows.actions)

    # --- form --------------------------------------------------------------------------------------------------------

    def _form(self, content: DecodedCheckpoint) -> None:
        counts = Counter[type](type(action) for action in content.actions)
        for path in content.marked:
            self.find("check-9", f"the remove of {path!r} has statistics or tags")
        for action in content.actions:
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
        structs = names.intersection(PARSED)
        if not structs and not self.state.is_on("delta.checkpoint.writeStatsAsStruct"):
            return
        for batch in parquet.iter_batches(4096, columns=[f"add.{name}" for name in ("path", *structs)]):
            try:
                rows = batch.column("add").drop_null().to_pylist(maps_as_pydicts="lossy")
            except (ValueError, OverflowError):
                continue  # dates outside of the range of Python
            rows = [row for row in rows if row.get("path") is not None]
            live = self.state.files.live({same_path(row["path"]) for row in rows})
            for row in rows:
                adds = live[same_path(row["path"])]
                if len(adds) == 1:
                    self._row(row, adds[0], names, key)

    def _row(self, row: dict[str, Any], add: Add, names: set[str], key: str) -> None:
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


class PartFiles:
    """Passes the file actions of a checkpoint on, and looks for a file in another part than those with the same hash.

    Spark distributes rows over the parts by a hash. The specification requires this hash of the path, or of path and
    deletion vector: all files with the same remainder of it are in one part (PROTOCOL.md, "Multi-part checkpoint").

    Args:
        files: takes the actions.
        parts: the number of parts.

    Attributes:
        number: the number of the part that is read, from 0.
    """

    def __init__(self, files: FileActions, parts: int):
        self.files, self.parts, self.number = files, parts, 0
        # By path, and by path and vector: the part of each remainder, and the first file that is in another one.
        self._part_of: tuple[dict[int, int], dict[int, int]] = {}, {}
        self._strays: list[str | None] = [None, None]

    def take_adds(self, files: pa.Table) -> None:
        """Take adds."""
        self._look(files)
        self.files.take_adds(files)

    def take_removes(self, files: pa.Table) -> None:
        """Take removes."""
        self._look(files)
        self.files.take_removes(files)

    @property
    def stray(self) -> str | None:
        """A file that is in another part than the files with the same hash, by either hash; None if there is none."""
        return self._strays[0] if all(self._strays) else None

    def _look(self, files: pa.Table) -> None:
        if self.parts == 1 or all(self._strays):
            return
        for path, vector in zip(files["path"].to_pylist(), unique_ids(files).to_pylist(), strict=True):
            of_path = spark_hash(path)
            of_both = of_path if vector is None else spark_hash(vector, of_path)
            for way, (seen, found) in enumerate(zip(self._part_of, (of_path, of_both), strict=True)):
                if seen.setdefault(found % self.parts, self.number) != self.number:
                    self._strays[way] = self._strays[way] or path
