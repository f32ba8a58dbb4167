"""A version of a table as a value: protocol, metadata, application ids, domains, and the list of live files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from refdelta.core.log.actions import Add, AnyAction, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import commit_key
from refdelta.core.log.replay import Replay
from refdelta.core.log.segment import NO_LOG
from refdelta.core.table.clustering import ColumnPath, clustering_columns
from refdelta.core.table.column_mapping import mode_of, without_mapping
from refdelta.core.table.evolution import check_type_changes
from refdelta.core.table.features import check_readable, check_writable, features_of
from refdelta.core.table.properties import TableProperties, get
from refdelta.core.table.row_tracking import hidden_columns, is_enabled
from refdelta.core.table.types import StructType, parse_schema
from refdelta.engine.arrow.arrays import empty_table
from refdelta.engine.log.listing import commit_contents, find_segment, newer_commits, read_commits, still_newest
from refdelta.engine.log.live import LiveFiles
from refdelta.engine.log.state import FILE_SCHEMA, TOMBSTONE_SCHEMA, reconcile_tombstones
from refdelta.engine.log.timestamps import commit_timestamp
from refdelta.engine.scan.portions import at_most
from refdelta.errors import InvalidLogError, TableNotFoundError, VersionNotFoundError
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from refdelta.core.log.segment import CheckpointFiles, LogFile, LogSegment
    from refdelta_storage.base import Store

# So many bytes of commits are read before they become columns: as actions they take three times as much.
_READ_BYTES = 2**23
# And from so many on, it pays to have adds as columns at once.
_MANY_BYTES = 2**19
# So many files are compared with those before them at once, or a quarter of these: the fewer, the less memory.
_MANY_FILES = 2**15


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One version of a table (PROTOCOL.md, "Action Reconciliation").

    Attributes:
        store: the table's folder.
        version: the version.
        protocol: the protocol in force.
        metadata: the metadata in force.
        live: the live files.
        txns: the newest ``txn`` of each application id.
        domains: the domains that are not removed.
        segment: the files of the log that make this version.
        commit_info: the commitInfo of this version, where its commit was read.
        tracks: whether the columns in which rows keep their ids are among those of the schema; see :meth:`tracked`.
    """

    store: Store
    version: int
    protocol: Protocol
    metadata: Metadata
    live: LiveFiles
    txns: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]
    segment: LogSegment
    commit_info: CommitInfo | None = field(default=None, repr=False)
    tracks: bool = False

    @property
    def files(self) -> pa.Table:
        """The live files, of ``FILE_SCHEMA``; with one more column ``stats_parsed`` where a checkpoint has statistics
        only as a struct.
        """
        return self.live.table

    @cached_property
    def schema(self) -> StructType:
        """The table's schema, with logical names.

        Raises:
            InvalidLogError: it is none.
            UnsupportedFeatureError: a type that this engine does not know, or that one was changed to which no reader
                can follow.
        """
        schema = parse_schema(self.metadata.schema_string)
        check_type_changes(schema)
        if self.column_mapping_mode == "none":
            schema = without_mapping(schema)
        if not self.tracks:
            return schema
        return StructType((*schema.fields, *hidden_columns(self.metadata.configuration or {})))

    def tracked(self) -> Snapshot:
        """For who moves or changes rows: the same, but where rows keep their ids, these come as two more columns behind
        the others, and are written likewise.

        Implements PROTOCOL.md, "Row Tracking".
        """
        if self.tracks or not is_enabled(self.protocol, self.metadata):
            return self
        return replace(self, tracks=True)

    @cached_property
    def partition_columns(self) -> list[str]:
        """The logical names of the partition columns, in their order and as the schema spells them.

        Raises:
            InvalidLogError: one of them is not in the schema.
        """
        names = []
        for name in self.metadata.partition_columns:
            field = self.schema.find(name)
            if field is None:
                raise InvalidLogError(f"the partition column {name!r} is not in the schema of version {self.version}")
            names.append(field.name)
        return names

    @cached_property
    def clustering_columns(self) -> tuple[ColumnPath, ...]:
        """The clustering columns, by logical names and in their order.

        Raises:
            InvalidLogError: the domain that names them is malformed, or names one that is not in the schema.
        """
        return clustering_columns(self.domains, self.schema)

    @cached_property
    def properties(self) -> TableProperties:
        """The table's properties, typed."""
        return TableProperties.parse(self.metadata.configuration or {}, features_of(self.protocol))

    @property
    def column_mapping_mode(self) -> str:
        """How files hold the columns: by physical name (``none``, ``name``) or by field id (``id``).

        All that a read asks of the properties: it does not fail for what another one says.
        """
        mode = mode_of(self.metadata)
        # PROTOCOL.md, "Column Mapping": the property alone does not count.
        return mode if "columnMapping" in features_of(self.protocol) else "none"

    def with_files(self, files: pa.Table) -> Snapshot:
        """The same version with another list of files, for who looks at some of them, or has files of its own."""
        return replace(self, live=LiveFiles(files))

    def without_files(self) -> Snapshot:
        """The same version with an empty list of files, for who has files of its own: the list may be long."""
        return self.with_files(self.files.schema.empty_table())

    @property
    def num_files(self) -> int:
        """How many files are live."""
        return self.live.totals.files

    @property
    def size_bytes(self) -> int:
        """The sum of the live files' sizes, in bytes."""
        return self.live.totals.size

    @cached_property
    def timestamp_ms(self) -> int:
        """When the version was committed, in milliseconds since 1970 (UTC): by its commitInfo where the table keeps
        in-commit timestamps, else by the file.

        Implements PROTOCOL.md, "In-Commit Timestamps".
        """
        return commit_timestamp(self)

    def tombstones(self) -> pa.Table:
        """The files that are no longer live and that the log still remembers, of ``TOMBSTONE_SCHEMA``; read from the
        log anew.

        Raises:
            InvalidLogError: the log broke since the snapshot was loaded.
            VersionNotFoundError: the version was cleaned up since.
        """
        try:
            return _tombstones(self.store, self.segment)
        except ObjectNotFoundError:
            pass  # cleanup took a file; what it left makes the same version
        try:
            return _tombstones(self.store, find_segment(self.store, self.version, hinted=False))
        except ObjectNotFoundError as error:
            raise InvalidLogError(f"a log file of version {self.version} is gone: {error}") from error

    def advance(self) -> Snapshot:
        """The newest version's snapshot; this one, if it is the newest. Only the commits since are read.

        Raises:
            InvalidLogError: the new commits break the protocol.
            UnsupportedFeatureError: the table was upgraded to something that this engine cannot read.
        """
        if not self.store.capabilities.remote and not self.due_for_checkpoint:
            segment = still_newest(self.store, self.segment)
            if segment is not None:
                return self._known_by(segment)
        newer = newer_commits(self.store, self.segment)
        if newer is None:  # not contiguous with ours: the log was cleaned up meanwhile
            return load_snapshot(self.store)
        commits, segment = newer
        if not commits:
            return self._known_by(segment)
        try:
            actions = read_commits(self.store, commits)
        except ObjectNotFoundError:
            return load_snapshot(self.store)
        return self._followed_by(segment, actions)

    def _followed_by(self, segment: LogSegment, commits: list[list[AnyAction]], new: Collection[str] = ()) -> Snapshot:
        after = _fold(self.store, segment, _small_actions(self), self.live.behind(commits, new), commits)
        if after.metadata is self.metadata and after.protocol is self.protocol:
            self._hand_on(after)
        return after

    def _known_by(self, segment: LogSegment) -> Snapshot:
        """The same version, known by a segment that a later look at the log gave."""
        if segment is self.segment:
            return self
        same = object.__new__(Snapshot)
        vars(same).update(vars(self), segment=segment)  # with all that was worked out of it
        return same

    def _hand_on(self, other: Snapshot) -> None:
        """Give what was worked out of protocol and metadata to a snapshot that has the same."""
        known = vars(self)
        vars(other).update((name, known[name]) for name in _OF_METADATA if name in known)

    def check_writable(self) -> None:
        """Refuse a table that this engine would write wrongly.

        Raises:
            UnsupportedFeatureError: naming the features, or the version, that it cannot honour.
            InvalidLogError: the protocol or the metadata is not valid.
        """
        _ = self._checked

    @cached_property
    def _checked(self) -> None:
        check_writable(self.protocol, self.metadata)

    @property
    def due_for_checkpoint(self) -> bool:
        """Whether one may stand at this version by now, which only a listing tells."""
        interval: int = get(self.metadata.configuration or {}, "delta.checkpointInterval")
        return self.version > 0 and self.version % interval == 0


_OF_METADATA = ("schema", "partition_columns", "properties", "_checked")
"""What a snapshot works out of its protocol and metadata once."""


def follow(store: Store, before: Snapshot | None, log: Sequence[bytes], *, new: Collection[str] = ()) -> Snapshot:
    """The snapshot behind some commits that are at hand. Nothing is read.

    Args:
        store: the table's folder.
        before: the snapshot that they follow; None where they begin with the first version of a table.
        log: the content of their files, oldest first, at least one.
        new: paths in them that surely no earlier version has; see :meth:`refdelta.engine.log.live.LiveFiles.behind`.

    Raises:
        InvalidLogError: one of them breaks the protocol.
        UnsupportedFeatureError: the table was upgraded to something that this engine cannot read.
    """
    segment = (before.segment if before else NO_LOG).with_our_commits(map(len, log))
    actions = [decode_commit(data, commit_key(v)) for v, data in enumerate(log, segment.version - len(log) + 1)]
    if before is not None:
        return before._followed_by(segment, actions, new)  # noqa: SLF001 - of this module
    return _fold(store, segment, [], LiveFiles(empty_table(FILE_SCHEMA)).behind(actions), actions)


def _small_actions(snapshot: Snapshot) -> list[AnyAction]:
    return [snapshot.protocol, snapshot.metadata, *snapshot.txns.values(), *snapshot.domains.values()]


def load_snapshot(store: Store, version: int | None = None) -> Snapshot:
    """Read a version of a table.

    Args:
        store: the table's folder.
        version: the version, or None for the newest.

    Returns:
        The snapshot.

    Raises:
        TableNotFoundError: the folder has no log.
        VersionNotFoundError: the version does not exist, or can no longer be rebuilt.
        InvalidLogError: the log breaks the protocol.
        UnsupportedFeatureError: the table needs a reader feature that this engine lacks.
    """
    segment = find_segment(store, version)
    bad: set[str] = set()
    gone = 0
    while True:
        try:
            return _against_checksum(_load(store, segment))
        except ObjectNotFoundError as error:
            # Cleanup deleted a file between our listing and our reading; what it left must do.
            gone += 1
            if gone == 3:
                raise InvalidLogError(f"log files disappear while they are read: {error}") from error
            segment = find_segment(store, version, hinted=False, unreadable=bad)
        except _UnusableCheckpointError as error:
            bad.update(file.key for file in error.checkpoint.files)
            try:
                segment = find_segment(store, version, hinted=False, unreadable=bad)
            except (InvalidLogError, VersionNotFoundError, TableNotFoundError) as gap:
                # Nothing older is complete, so the broken checkpoint is what is wrong with this table.
                raise error.reason from gap


def _against_checksum(snapshot: Snapshot) -> Snapshot:
    """The same snapshot, held against its checksum. Over a network that would be a request more for each reader."""
    if snapshot.segment.checksum is not None and not snapshot.store.capabilities.remote:
        from refdelta.engine.log.checksum_check import warn_of_contradictions

        warn_of_contradictions(snapshot)
    return snapshot


class _UnusableCheckpointError(Exception):
    """Our own signal: the checkpoint cannot be read, and an older one may do."""

    def __init__(self, checkpoint: CheckpointFiles, reason: InvalidLogError):
        self.checkpoint, self.reason = checkpoint, reason
        super().__init__(str(reason))


def _load(store: Store, segment: LogSegment) -> Snapshot:
    base, files = [], empty_table(FILE_SCHEMA)
    if segment.checkpoint is not None:
        from refdelta.engine.log.checkpoint import read_checkpoint

        try:
            content = read_checkpoint(store, segment.checkpoint)
        except InvalidLogError as error:
            raise _UnusableCheckpointError(segment.checkpoint, error) from error
        base, files = content.actions, content.files
    adds: list[pa.Table] = []
    live, last = LiveFiles(files), list[list[AnyAction]]()
    for some in at_most(segment.commits, lambda file: file.size, _READ_BYTES):
        live = live.behind(last)
        base += [action for commit in last for action in commit if not isinstance(action, (Add, Remove))]
        last = []  # their memory first
        last, table = _decoded(some, commit_contents(store, some))
        adds += [] if table is None else [table]
        if table is None or sum(map(len, adds)) > max(_MANY_FILES, len(live.table) // 4):
            live, adds = live.behind_adds(adds), []
    return _fold(store, segment, base, live.behind_adds(adds).behind(last), last)


def _decoded(files: Sequence[LogFile], contents: Sequence[bytes]) -> tuple[list[list[AnyAction]], pa.Table | None]:
    """The actions of commits; where all files are added and they are many, without these, which are a table then."""
    keys = [file.key for file in files]
    if sum(map(len, contents)) >= _MANY_BYTES:
        from refdelta.engine.log.plain_adds import decode_plain

        plain = decode_plain(keys, contents)
        if plain is not None:
            return plain
    return [decode_commit(data, key) for key, data in zip(keys, contents, strict=True)], None


def _tombstones(store: Store, segment: LogSegment) -> pa.Table:
    base = empty_table(TOMBSTONE_SCHEMA)
    if segment.checkpoint is not None:
        from refdelta.engine.log.checkpoint import read_tombstones

        base = read_tombstones(store, segment.checkpoint)
    return reconcile_tombstones(base, read_commits(store, segment.commits))


def _fold(
    store: Store, segment: LogSegment, base: Iterable[AnyAction], live: LiveFiles, commits: list[list[AnyAction]]
) -> Snapshot:
    """The snapshot after some commits, which leave these live files: the newest of each small action wins."""
    replay = Replay()
    for actions in [base, *commits]:
        replay.apply(action for action in actions if not isinstance(action, (Add, Remove)))
    protocol, metadata = replay.protocol, replay.metadata
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise InvalidLogError(f"the log of version {segment.version} has no {missing} action", file="_delta_log")
    check_readable(protocol)
    return Snapshot(
        store=store,
        version=segment.version,
        protocol=protocol,
        metadata=metadata,
        live=live,
        txns=replay.txns,
        domains=replay.domains,
        segment=segment,
        commit_info=replay.commit_info,
    )
