"""The state of a table at a version, by the plain definition of reconciliation, and the comparison of two states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from refdelta.arrow.arrays import pieces, take
from refdelta.arrow.text_maps import TextMaps, differing
from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import Replay
from refdelta.engine.log.state import key_of, keys_of, to_adds
from refdelta.errors import InvalidLogError
from refdelta.pruning.stats import load_stats
from refdelta.table.features import features_of
from refdelta.table.properties import get
from refdelta.verifier.file_index import FileIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from refdelta.core.log.actions import AnyAction, Metadata, Protocol


class State:
    """A table's state at a version.

    Attributes:
        version: the version; -1 before the first.
        protocol: the newest protocol; None before the first.
        metadata: the newest metaData; None before the first.
        txns: application id to its newest ``txn``.
        domains: domain to its newest ``domainMetadata``, without removed domains.
        files: the live files.
        tombstones: the path and the deletion time of each removed file that was not added again, by its key.
        schemas: the schemas of the table, in order. A file keeps the schema of the version that first added it.
        timestamp: the in-commit timestamp of the version; None if it has none, or if it is not known.
    """

    def __init__(self) -> None:
        self.version = -1
        self.files = FileIndex()
        self.tombstones: dict[str, tuple[str, int]] = {}
        self.schemas: list[str] = []
        self.timestamp: int | None = None
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self._others = Replay()
        self.txns, self.domains = self._others.txns, self._others.domains

    def step(self, version: int, actions: Iterable[AnyAction]) -> None:
        """Apply the commit of a version, or the actions of a checkpoint whose files were taken before."""
        actions = list(actions)
        self._others.apply(action for action in actions if not isinstance(action, (Add, Remove)))
        self.protocol, self.metadata = self._others.protocol, self._others.metadata
        schema = self.metadata.schema_string if self.metadata is not None else ""
        if not self.schemas or schema != self.schemas[-1]:
            self.schemas.append(schema)
        number = len(self.schemas) - 1
        for action in actions:
            if isinstance(action, Add):
                self.files.add(action, number)
                self.tombstones.pop(key_of(action), None)
            elif isinstance(action, Remove):
                key = key_of(action)
                self.files.remove(key)
                self.files.note(same_path(action.path), number)
                self.tombstones.pop(key, None)
                self.tombstones[key] = action.path, action.deletion_timestamp or 0
        self.version = version

    def take_adds(self, files: pa.Table) -> None:
        """Take live files of the checkpoint from which the state begins, of ``FILE_SCHEMA``."""
        self.files.extend(files, 0)
        if self.tombstones:
            for key in keys_of(files).to_pylist():
                self.tombstones.pop(key, None)

    def take_removes(self, files: pa.Table) -> None:
        """Take tombstones of the checkpoint from which the state begins, of ``TOMBSTONE_SCHEMA``."""
        for key, removed in tombstones_of(files).items():
            self.files.remove(key)
            self.files.note(key.partition("\0")[0], 0)
            self.tombstones[key] = removed

    def schemas_of_files(self) -> list[str]:
        """The schemas under which the live files were written."""
        return [self.schemas[place] for place in sorted({self.files.paths[path] for path in self.files.live_paths()})]

    def supports(self, feature: str) -> bool:
        """True if the protocol supports a feature."""
        return self.protocol is not None and feature in features_of(self.protocol)

    def property(self, name: str) -> object:
        """A typed property of the table; its default before the first metaData, or if its text is invalid."""
        configuration = (self.metadata.configuration if self.metadata is not None else None) or {}
        try:
            return get(configuration, name)
        except InvalidLogError:
            return get({}, name)

    def is_on(self, name: str) -> bool:
        """True if a property is true."""
        return self.property(name) is True


def rows_of(add: Add) -> int | None:
    """The number of live rows of a file by the log; None if the log does not have it."""
    count = physical_rows(add)
    if count is None or add.deletion_vector is None:
        return count
    return count - add.deletion_vector.cardinality


def physical_rows(add: Add) -> int | None:
    """``numRecords`` of a file; None if its statistics do not have it."""
    stats = load_stats(add.stats)
    count = stats.get("numRecords") if isinstance(stats, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) else None


_FILE_FIELDS = (
    "size",
    "modification_time",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
)
_FILE_COLUMNS = [field.encode_name for field in msgspec.structs.fields(Add) if field.name in _FILE_FIELDS]


class StateComparison:
    """The comparison of a checkpoint, or of a compacted file, with the state that the commits give.

    Its files are taken as columns, some at a time, and not kept.

    Args:
        right: the state that the commits give.
        find: takes the message of a finding.
    """

    def __init__(self, right: State, find: Callable[[str], None]):
        self.right, self.find = right, find
        self._seen = ~right.files.mask()
        # By key: the path of each file that is not live by the commits, and a finding about each that differs.
        self._strange: dict[str, str] = {}
        self._wrong: dict[str, str] = {}
        self._tombstones: dict[str, str] = {}

    def take_adds(self, files: pa.Table) -> None:
        """Take live files, of ``FILE_SCHEMA``. Of a file that occurs twice, the last one counts."""
        keys: list[str] = keys_of(files).to_pylist()
        last = dict(zip(keys, range(len(keys)), strict=True))
        if len(last) < len(keys):
            keys, files = list(last), take(files, pa.array(last.values(), pa.int64()))
        for key in self._tombstones.keys() & keys if self._tombstones else ():
            del self._tombstones[key]
        found = list(map(self.right.files.rows.get, keys))
        if None in found:
            known = np.array([row is not None for row in found])
            strange = zip(keys, files["path"].to_pylist(), found, strict=True)
            self._strange.update((key, path) for key, path, row in strange if row is None)
            keys = [key for key, row in zip(keys, found, strict=True) if row is not None]
            files = files.filter(pa.array(known))
        rows = np.array([row for row in found if row is not None], np.int64)
        self._seen[rows] = True
        others = self.right.files.take(rows)
        for key in self._wrong.keys() & keys if self._wrong else ():
            del self._wrong[key]
        suspects = np.flatnonzero(_perhaps_different(files, others))
        for start in range(0, len(suspects), _AT_ONCE):
            some = suspects[start : start + _AT_ONCE]
            numbers = pa.array(some)
            pairs = zip(some, to_adds(take(files, numbers)), to_adds(take(others, numbers)), strict=True)
            for at, add, other in pairs:
                names = add_differences(add, other)
                if names:
                    self._wrong[keys[at]] = f"{', '.join(names)} of the file {add.path!r} differ from the commits"

    def take_removes(self, files: pa.Table) -> None:
        """Take tombstones, of ``TOMBSTONE_SCHEMA``."""
        for key, (path, _) in tombstones_of(files).items():
            row = self.right.files.rows.get(key)
            if row is not None:
                self._seen[row] = False
            self._strange.pop(key, None)
            self._wrong.pop(key, None)
            self._tombstones[key] = path

    def end(self, own: State, written_ms: int | None) -> None:
        """Report the differences.

        Args:
            own: the state of the other actions.
            written_ms: when the file was written, in milliseconds since 1970: tombstones and transactions that had
                expired by then may be missing. None if nothing may be missing.
        """
        right, find = self.right, self.find
        if (
            own.protocol is not None
            and right.protocol is not None
            and protocol_facts(own.protocol) != protocol_facts(right.protocol)
        ):
            find(f"its protocol is {own.protocol}; the commits give {right.protocol}")
        if own.metadata is not None and right.metadata is not None:
            for name in metadata_differences(own.metadata, right.metadata):
                find(f"{name} of its metaData differs from the commits")
        self._files()
        self._removed(written_ms)
        retention = right.property("delta.setTransactionRetentionDuration")
        _named("txn", own.txns, right.txns, find, may_lack=written_ms is not None and retention is not None)
        _named("domain", own.domains, right.domains, find, may_lack=False)

    def _files(self) -> None:
        missing = np.flatnonzero(~self._seen)
        for start in range(0, len(missing), _AT_ONCE):
            for path in self.right.files.take(missing[start : start + _AT_ONCE])["path"].to_pylist():
                self.find(f"the live file {path!r} is missing")
        for path in self._strange.values():
            self.find(f"the file {path!r} is live here, and not live by the commits")
        for message in self._wrong.values():
            self.find(message)

    def _removed(self, written_ms: int | None) -> None:
        tombstones = self.right.tombstones
        for key, path in self._tombstones.items():
            if key not in tombstones:
                self.find(f"the tombstone of {path!r} is not in the commits")
        retention = self.right.property("delta.deletedFileRetentionDuration")
        kept_from = None if written_ms is None or not isinstance(retention, int) else written_ms - retention
        for key in tombstones.keys() - self._tombstones.keys():
            path, deleted_ms = tombstones[key]
            if kept_from is None or deleted_ms > kept_from:
                self.find(f"the tombstone of {path!r} has not expired, and is missing")


_AT_ONCE = 4096  # rows that become actions at once


def tombstones_of(removes: pa.Table) -> dict[str, tuple[str, int]]:
    """The path and the deletion time of each remove, by its key."""
    times = pc.fill_null(removes["deletionTimestamp"], 0).to_pylist()
    facts = zip(removes["path"].to_pylist(), times, strict=True)
    return dict(zip(keys_of(removes).to_pylist(), facts, strict=True))


def _perhaps_different(own: pa.Table, right: pa.Table) -> NDArray[np.bool_]:
    """For each row, True if :func:`add_differences` may find a difference of the two adds of one logical file."""
    found = np.zeros(own.num_rows, bool)
    for name in _FILE_COLUMNS:
        found |= differing(own[name], right[name])
    found |= differing(own["stats"], right["stats"]) & np.asarray(own["stats"].is_valid())
    for name in ("partitionValues", "tags"):
        both = pieces(pa.table([own[name], right[name]], ["own", "right"]))
        found |= np.concatenate([TextMaps.of(part["own"]).differing(TextMaps.of(part["right"])) for part in both])
    vectors = own["deletionVector"], right["deletionVector"]
    if any(column.null_count < len(column) for column in vectors):
        for name in ("sizeInBytes", "cardinality"):
            found |= differing(*(pc.struct_field(column, [name]) for column in vectors))
    return found


def protocol_facts(protocol: Protocol) -> tuple[Any, ...]:
    """A protocol as a value that does not depend on the order of its lists."""
    reader, writer = protocol.reader_features, protocol.writer_features
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        None if reader is None else frozenset(reader),
        None if writer is None else frozenset(writer),
    )


def metadata_differences(one: Metadata, other: Metadata) -> list[str]:
    """The fields in which two metaData actions differ; absent and empty are equal."""
    found = []
    for item in msgspec.structs.fields(one):
        if item.name in ("extra", "format"):
            continue
        if (getattr(one, item.name) or None) != (getattr(other, item.name) or None):
            found.append(item.encode_name)
    return found


def add_differences(one: Add, other: Add) -> list[str]:
    """The fields, except dataChange, in which two adds of one logical file differ."""
    found = [name for name in _FILE_FIELDS if getattr(one, name) != getattr(other, name)]
    if values(one.partition_values) != values(other.partition_values):
        found.append("partitionValues")
    if (one.tags or None) != (other.tags or None):
        found.append("tags")
    if one.deletion_vector != other.deletion_vector and _vector(one) != _vector(other):
        found.append("deletionVector")
    if one.stats and one.stats != other.stats and load_stats(one.stats) != load_stats(other.stats):
        found.append("stats")
    return found


def _vector(add: Add) -> Any:
    vector = add.deletion_vector
    return None if vector is None else (vector.unique_id, vector.size_in_bytes, vector.cardinality)


def values(partition_values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Partition values, with the empty string as null (PROTOCOL.md, "Partition Value Serialization")."""
    return {name: value or None for name, value in partition_values.items()}


def _named(
    what: str, own: Mapping[str, Any], right: Mapping[str, Any], find: Callable[[str], None], *, may_lack: bool
) -> None:
    for name in own.keys() | right.keys():
        if name not in right:
            find(f"the {what} {name!r} is not in the commits")
        elif name not in own:
            if not may_lack:
                find(f"the {what} {name!r} is missing")
        elif _plain(own[name]) != _plain(right[name]):
            find(f"the {what} {name!r} differs from the commits")


def _plain(action: Any) -> Any:
    return msgspec.structs.replace(action, extra=None)
