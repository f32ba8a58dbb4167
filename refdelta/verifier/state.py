"""The state of a table at a version, by the plain definition of reconciliation, and the comparison of two states."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from refdelta.core.log.actions import Add, Remove
from refdelta.core.log.paths import same_path
from refdelta.core.log.replay import FileKey, Replay, file_key
from refdelta.core.pruning.stats import load_stats
from refdelta.core.table.features import features_of
from refdelta.core.table.properties import get
from refdelta.errors import InvalidLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from refdelta.core.log.actions import AnyAction, Metadata, Protocol


@dataclass
class FileTotals:
    """Totals over the live files: their number and bytes, their deletion vectors and the rows deleted by these."""

    files: int = 0
    size: int = 0
    vectors: int = 0
    deleted: int = 0

    def take(self, add: Add, sign: int) -> None:
        """Add a file to the totals (sign 1), or subtract it (sign -1)."""
        self.files += sign
        self.size += sign * add.size
        if add.deletion_vector is not None:
            self.vectors += sign
            self.deleted += sign * add.deletion_vector.cardinality


class State(Replay):
    """A table's state at a version.

    Attributes:
        version: the version; -1 before the first.
        sums: totals over the live files.
        live_at: path to the keys of the live files with that path; more than one only where the log is invalid.
        paths: every path of every version so far, to the index in ``schemas`` of the schema with which its file was
            written.
        schemas: the schemas of the table, in order. A file keeps the schema of the version that first added it.
        timestamp: the in-commit timestamp of the version; None if it has none, or if it is not known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.version = -1
        self.sums = FileTotals()
        self.live_at: dict[str, set[FileKey]] = defaultdict(set)
        self.paths: dict[str, int] = {}
        self.schemas: list[str] = []
        self.timestamp: int | None = None

    def step(self, version: int, actions: Iterable[AnyAction]) -> None:
        """Apply the commit of a version, or a checkpoint from which the state begins."""
        actions = list(actions)
        keys = {file_key(action) for action in actions if isinstance(action, (Add, Remove))}
        for key in keys:
            self._count(key, -1)
        self.apply(actions)
        for key in keys:
            self._count(key, 1)
        schema = self.metadata.schema_string if self.metadata is not None else ""
        if not self.schemas or schema != self.schemas[-1]:
            self.schemas.append(schema)
        for path, _ in keys:
            self.paths.setdefault(path, len(self.schemas) - 1)
        self.version = version

    def _count(self, key: FileKey, sign: int) -> None:
        add = self.files.get(key)
        if add is None:
            return
        self.sums.take(add, sign)
        if sign > 0:
            self.live_at[key[0]].add(key)
            return
        self.live_at[key[0]].discard(key)
        if not self.live_at[key[0]]:
            del self.live_at[key[0]]

    def live(self, path: str) -> list[Add]:
        """The live files with a path as the log writes it."""
        return [self.files[key] for key in self.live_at.get(same_path(path), ())]

    def schemas_of_files(self) -> list[str]:
        """The schemas under which the live files were written."""
        return [self.schemas[place] for place in sorted({self.paths[path] for path in self.live_at})]

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


def compare_states(own: State, right: State, written_ms: int | None, find: Callable[[str], None]) -> None:
    """Report the differences of two states of one version.

    Args:
        own: the state to check, of a checkpoint or of a compacted file.
        right: the state that the commits give.
        written_ms: when the first was written, in milliseconds since 1970: tombstones and transactions that had
            expired by then may be missing. None if nothing may be missing.
        find: takes the message of a finding.
    """
    if (
        own.protocol is not None
        and right.protocol is not None
        and protocol_facts(own.protocol) != protocol_facts(right.protocol)
    ):
        find(f"its protocol is {own.protocol}; the commits give {right.protocol}")
    if own.metadata is not None and right.metadata is not None:
        for name in metadata_differences(own.metadata, right.metadata):
            find(f"{name} of its metaData differs from the commits")
    _files(own, right, find)
    _tombstones(own, right, written_ms, find)
    retention = right.property("delta.setTransactionRetentionDuration")
    _named("txn", own.txns, right.txns, find, may_lack=written_ms is not None and retention is not None)
    _named("domain", own.domains, right.domains, find, may_lack=False)


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


def _files(own: State, right: State, find: Callable[[str], None]) -> None:
    for key in right.files.keys() - own.files.keys():
        find(f"the live file {right.files[key].path!r} is missing")
    for key, add in own.files.items():
        other = right.files.get(key)
        if other is None:
            find(f"the file {add.path!r} is live here, and not live by the commits")
            continue
        names = add_differences(add, other) if add is not other else []
        if names:
            find(f"{', '.join(names)} of the file {add.path!r} differ from the commits")


def _tombstones(own: State, right: State, written_ms: int | None, find: Callable[[str], None]) -> None:
    for key, remove in own.tombstones.items():
        if key not in right.tombstones:
            find(f"the tombstone of {remove.path!r} is not in the commits")
    retention = right.property("delta.deletedFileRetentionDuration")
    kept_from = None if written_ms is None or not isinstance(retention, int) else written_ms - retention
    for key in right.tombstones.keys() - own.tombstones.keys():
        remove = right.tombstones[key]
        if kept_from is None or (remove.deletion_timestamp or 0) > kept_from:
            find(f"the tombstone of {remove.path!r} has not expired, and is missing")


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
