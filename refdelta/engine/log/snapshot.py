"""A version of a table as a value: protocol, metadata, application ids, domains, and the list of live files."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import structs

from refdelta.arrow.arrays import empty_table
from refdelta.arrow.schema import to_arrow
from refdelta.core.log.actions import Add, AnyAction, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn
from refdelta.core.log.assigned import RowIds
from refdelta.core.log.checkpoint_schedule import EVERY, LISTED_ITSELF, is_due
from refdelta.core.log.checksum import SIZE_BINS, FileSizeHistogram, VersionChecksum
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import checksum_key, commit_key
from refdelta.core.log.replay import Replay
from refdelta.core.log.segment import NO_LOG, LogSegment
from refdelta.core.log.timestamps import in_commit_timestamp
from refdelta.core.log.vacuums import is_vacuum
from refdelta.engine.log.checksums import contradictions
from refdelta.engine.log.commits import commit_contents, decode_commits, read_commits
from refdelta.engine.log.identity import CommitIdentity
from refdelta.engine.log.listing import (
    file_time,
    find_segment,
    is_unchanged,
    newer_commits,
    ratified_commits,
    still_newest,
    timestamp_of_commit,
)
from refdelta.engine.log.managed_log import FEATURE, check_place
from refdelta.engine.log.state import FILE_SCHEMA, TOMBSTONE_SCHEMA, LiveFiles, reconcile_tombstones, without_shared
from refdelta.engine.work.executor import at_most
from refdelta.errors import InvalidLogError, TableNotFoundError, VersionNotFoundError
from refdelta.table.clustering import ColumnPath, clustering_columns
from refdelta.table.column_mapping import mode_of, schema_of, without_mapping
from refdelta.table.evolution import check_type_changes
from refdelta.table.features import check_readable, check_writable, features_of
from refdelta.table.in_commit_timestamp import enablement
from refdelta.table.properties import TableProperties, get, invalid_properties, without_properties
from refdelta.table.row_tracking import hidden_columns, is_enabled, named_columns
from refdelta.table.types import StructType
from refdelta_storage.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from refdelta.core.log.actions import Sidecar
    from refdelta.core.log.segment import CheckpointFiles, LogFile
    from refdelta_storage.base import Store

log = logging.getLogger("refdelta")

# Commits are read in chunks of so many bytes, each of which becomes columns: actions take three times as much memory.
_READ_BYTES = 2**23
# So many added files, or a quarter of the live files if that is more, are compared with these at once.
_MANY_FILES = 2**15
# A checksum with more application ids, or domains, leaves them out, as in delta-spark: every version repeats the list.
_LISTED = 100


@dataclass(frozen=True, slots=True)
class Layout:
    """The sidecars of a checkpoint that list the first rows of a list of live files, in their order.

    Attributes:
        key: the key of the checkpoint's file.
        lineage: the :attr:`~refdelta.engine.log.state.LiveFiles.lineage` of the list.
        sidecars: the sidecars, each with the number of its rows.
    """

    key: str
    lineage: object
    sidecars: tuple[tuple[Sidecar, int], ...]


class NewestCheckpoint:
    """The newest checkpoint that a handle knows, also of a version whose listing is long past.

    Checkpoints are written in the background, after the commit of their version. The successive snapshots of a handle
    share one, so that the next of them begins at the new checkpoint without another listing.

    Attributes:
        files: the checkpoint; None if it is that of the snapshot's own listing.
        layout: its sidecars, if they are known to list the first rows of the snapshot's files.
        asked: the last version for which a checkpoint was due and somebody took care of it.
        without_vacuum: a version and a time in milliseconds since 1970: none of the commits up to this version is of a
            VACUUM in progress that may delete files which became unreferenced at this time or later.
    """

    __slots__ = ("asked", "files", "layout", "without_vacuum")

    def __init__(self, layout: Layout | None = None) -> None:
        self.files: CheckpointFiles | None = None
        self.layout = layout
        self.asked = -1
        self.without_vacuum = (-1, 0)


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
        tracks: whether the columns of row ids and row commit versions are part of the schema; see :meth:`tracked`.
        no_removes_since: a version after which no commit up to this one has a ``remove``.
        newest_checkpoint: the newest checkpoint that the handle of this snapshot knows.
        timezone: the zone of partition values that are timestamps without an offset; None for UTC.
        named: whether the caller has named this version, or a time. Its rows never change, so that what is made of them
            does not depend on the table as it is.
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
    no_removes_since: int | None = field(default=None, repr=False)
    newest_checkpoint: NewestCheckpoint = field(default_factory=NewestCheckpoint, repr=False)
    timezone: str | None = None
    named: bool = False

    @property
    def files(self) -> pa.Table:
        """The live files, of ``FILE_SCHEMA``, and a column ``stats_parsed`` where a checkpoint has statistics only as
        a struct.
        """
        return self.live.table

    @cached_property
    def schema(self) -> StructType:
        """The table's schema, with logical names.

        Raises:
            InvalidLogError: the schema is malformed, or two columns have one place in files.
            UnsupportedFeatureError: the schema has a type that this engine does not know, or a change of type that no
                reader supports.
        """
        schema = schema_of(self.metadata)
        check_type_changes(schema)
        if self.column_mapping_mode == "none":
            schema = without_mapping(schema)
        schema = self._zoned(schema)
        if not self.tracks:
            return schema
        return StructType((*schema.fields, *hidden_columns(self.metadata.configuration or {})))

    def tracked(self) -> Snapshot:
        """The same version for statements that move or change rows: with row tracking, rows are read and written with
        two more columns at the end, their id and their commit version.

        Implements PROTOCOL.md, "Row Tracking".
        """
        if self.tracks or not is_enabled(self.protocol, self.metadata):
            return self
        return replace(self, tracks=True)

    @cached_property
    def stored_schema(self) -> StructType:
        """The table's schema as new files have it: with the marks of the column mapping, and without the columns of row
        tracking. Errors are those of :attr:`schema`.
        """
        return self._zoned(schema_of(self.metadata))

    def _zoned(self, schema: StructType) -> StructType:
        """The schema whose partition columns name the zone of their values; see :attr:`StructField.zone`."""
        if self.timezone is None or not self.metadata.partition_columns:
            return schema
        names = {name.lower() for name in self.metadata.partition_columns}
        fields = (replace(one, zone=self.timezone) if one.name.lower() in names else one for one in schema)
        return StructType(tuple(fields))

    def in_zone(self, timezone: str | None) -> Snapshot:
        """The same version for a handle with this zone, see :attr:`timezone`; so are the versions after it."""
        return self if timezone == self.timezone else replace(self, timezone=timezone)

    @cached_property
    def partition_columns(self) -> list[str]:
        """The logical names of the partition columns, in their order and as the schema spells them.

        Raises:
            InvalidLogError: the schema lacks one of them, or one is there twice.
        """
        names = []
        for name in self.metadata.partition_columns:
            field = self.schema.find(name)
            if field is None:
                raise InvalidLogError(f"the partition column {name!r} is not in the schema of version {self.version}")
            if field.name in names:
                raise InvalidLogError(f"the partition column {name!r} is there twice in version {self.version}")
            names.append(field.name)
        return names

    @cached_property
    def clustering_columns(self) -> tuple[ColumnPath, ...]:
        """The clustering columns, by logical names and in their order.

        Raises:
            InvalidLogError: the domain that lists them is malformed, or lists a column that the schema lacks.
        """
        return clustering_columns(self.domains, self.schema) if self.domains else ()

    @cached_property
    def properties(self) -> TableProperties:
        """The table's properties, typed.

        Raises:
            InvalidLogError: a property has an invalid value.
        """
        return TableProperties.parse(self.metadata.configuration or {}, features_of(self.protocol))

    @property
    def column_mapping_mode(self) -> str:
        """How columns are found in files: by physical name (``none``, ``name``) or by field id (``id``).

        This is the only property that a read uses, so that an invalid value of another one does not break reads.
        """
        mode = mode_of(self.metadata)
        # PROTOCOL.md, "Column Mapping": the property alone does not count.
        return mode if "columnMapping" in features_of(self.protocol) else "none"

    def with_files(self, files: pa.Table) -> Snapshot:
        """The same version with another list of files, such as a part of them or files of the caller."""
        return replace(self, live=LiveFiles(files))

    def without_files(self) -> Snapshot:
        """The same version with an empty list of files, for callers with files of their own."""
        return self.with_files(self.files.slice(0, 0))

    @property
    def num_files(self) -> int:
        """The number of live files."""
        return self.live.totals.files

    @property
    def size_bytes(self) -> int:
        """The sum of the live files' sizes, in bytes."""
        return self.live.totals.size

    @cached_property
    def timestamp_ms(self) -> int:
        """The time of the commit in milliseconds since 1970 (UTC): the in-commit timestamp if the table has them, else
        the modification time of the file.

        Implements PROTOCOL.md, "In-Commit Timestamps".

        Raises:
            InvalidLogError: the table has in-commit timestamps, and the version's commit has none.
        """
        since = enablement(self.protocol, self.metadata)
        if since is not None and self.version >= since.version:
            if self.commit_info is not None:
                return in_commit_timestamp([self.commit_info], commit_key(self.version))
            return timestamp_of_commit(self.store, self.version)
        segment = self.segment
        files = [segment.last_commit] if segment.last_commit else [*segment.commits[-1:]]
        files = files or (list(segment.checkpoint.files[-1:]) if segment.checkpoint else [])
        known = files[-1].mtime_ms
        return file_time(self.store, files[-1].key) if known is None else known

    def checksum(self) -> VersionChecksum:
        """The content of the version's checksum file (PROTOCOL.md, "Version Checksum File Schema").

        Each field is exact or left out. The list of all files is left out, since each version would repeat it.
        """
        properties, totals = self.properties, self.live.totals
        txn_id = None if self.commit_info is None else self.commit_info.fields.get("txnId")
        # Where application ids expire, two readers may have different lists, and both are right.
        listed = properties.set_transaction_retention_ms is None and len(self.txns) <= _LISTED
        has_vectors = "deletionVectors" in features_of(self.protocol)
        counts, sums = map(list, totals.sizes)
        return VersionChecksum(
            table_size_bytes=totals.size,
            num_files=totals.files,
            metadata=self.metadata,
            protocol=self.protocol,
            txn_id=txn_id if isinstance(txn_id, str) else None,
            in_commit_timestamp=self.timestamp_ms if properties.enable_in_commit_timestamps else None,
            set_transactions=tuple(self.txns.values()) if listed else None,
            domain_metadata=tuple(self.domains.values()) if len(self.domains) <= _LISTED else None,
            num_deleted_records=totals.hidden if has_vectors else None,
            num_deletion_vectors=totals.vectors if has_vectors else None,
            deleted_record_counts=totals.bins if has_vectors else None,
            file_size_histogram=FileSizeHistogram(
                sorted_bin_boundaries=list(SIZE_BINS), file_counts=counts, total_bytes=sums
            ),
        )

    def contradictions(self) -> list[str]:
        """The differences between the version's checksum file and the log; empty without a readable checksum.

        Returns:
            Strings such as ``numFiles is 3 by the checksum, 2 by the log``.
        """
        return contradictions(self.store, self.version, self.checksum)

    def check_checksum(self) -> None:
        """Compare the version with its checksum file, if there is one.

        Raises:
            InvalidLogError: they contradict each other.
        """
        found = self.contradictions()
        if found:
            raise InvalidLogError(
                f"it contradicts the log of version {self.version}: {'; '.join(found)}", file=checksum_key(self.version)
            )

    def tombstones(self) -> pa.Table:
        """The removed files that the log still has, of ``TOMBSTONE_SCHEMA``. Each call reads the log again, but for
        commits that are known to remove nothing, and for a log of nothing else.

        Raises:
            InvalidLogError: the log was damaged after the snapshot was loaded.
            VersionNotFoundError: the version was cleaned up after the snapshot was loaded.
        """
        if self.no_removes_since == -1:  # no commit at all has removed a file
            return empty_table(TOMBSTONE_SCHEMA)
        base = self.segment.checkpoint
        quiet = self.no_removes_since is not None and self.no_removes_since <= (-1 if base is None else base.version)
        try:
            if not quiet:
                return _tombstones(self.store, self.segment)
            removed = _tombstones(self.store, structs.replace(self.segment, commits=()))
            # A file that was added again has no tombstone.
            return without_shared(removed, self.files) if removed.num_rows else removed
        except ObjectNotFoundError:
            pass  # cleanup deleted a file; the version can be built from the others
        try:
            return _tombstones(self.store, find_segment(self.store, self.version, hinted=False))
        except ObjectNotFoundError as error:
            raise InvalidLogError(f"a log file of version {self.version} is gone: {error}") from error

    @property
    def is_managed(self) -> bool:
        """True if a catalog decides about the commits of the table (PROTOCOL.md, "Catalog-managed tables")."""
        return FEATURE in (self.protocol.writer_features or ())

    def advance(self) -> Snapshot:
        """The snapshot of the newest version; this one, if it is the newest. Only newer commits are read.

        Raises:
            InvalidLogError: the new commits break the protocol.
            UnsupportedFeatureError: the table was upgraded to a feature that this engine cannot read.
        """
        if self.named:
            return replace(self, named=False).advance()
        # Where a checkpoint is due, another writer may have written it.
        newer, due = None, self.due_for_checkpoint
        if not due:
            newer = ratified_commits(self.store, self.segment)
            if newer is None and not self.store.capabilities.remote and not self.is_managed:
                segment = still_newest(self.store, self.segment)
                if segment is not None and self._is_there():
                    return self._known_by(segment)
        newer = newer or newer_commits(self.store, self.segment, hinted=due)
        if newer is None:  # the log was cleaned up, or the table was replaced
            return load_snapshot(self.store).in_zone(self.timezone)
        commits, segment = newer
        # Over a network it would cost a single writer one more request for each commit.
        if (commits or not self.store.capabilities.remote) and not self._is_there():
            return load_snapshot(self.store)
        if not commits:
            return self._known_by(segment)
        try:
            replayed = _replay(self.store, self.live, commits)
            later = _of_one_table(self._followed_by(segment, replayed))
        except ObjectNotFoundError:
            return load_snapshot(self.store).in_zone(self.timezone)
        log.debug("%s: read versions %d to %d", self.store.uri, self.version + 1, later.version)
        self._note_vacuums(later, replayed.last)
        return later

    @property
    def identity(self) -> CommitIdentity | None:
        """The commit of this version; None if it was cleaned up."""
        last = self.segment.last_commit
        return None if last is None else CommitIdentity(last, self.commit_info)

    def _is_there(self) -> bool:
        """Whether the log still has the commit of this version, if it is an own one, which no listing has shown yet: a
        folder that was restored from a copy may have another one of the same size.
        """
        last = self.segment.last_commit
        if last is None or last.mtime_ms is not None or self.commit_info is None or self.is_managed:
            return True
        try:
            return CommitIdentity(last, self.commit_info).is_content(self.store)
        except ObjectNotFoundError:
            return False

    def _followed_by(self, segment: LogSegment, replayed: _Replayed) -> Snapshot:
        newest = self.newest_checkpoint.files
        segment = segment if newest is None else segment.from_checkpoint(newest)
        quiet = segment.version if replayed.removes else self.no_removes_since
        base = [*_small_actions(self), *replayed.others]
        later = _fold(self.store, segment, base, replayed.live, replayed.last, quiet, self.newest_checkpoint)
        later = later.in_zone(self.timezone)
        if later.metadata is self.metadata and later.protocol is self.protocol:
            known = vars(self)
            vars(later).update((name, known[name]) for name in _OF_METADATA if name in known)
        return later

    def _note_vacuums(self, later: Snapshot, commits: Sequence[Sequence[AnyAction]]) -> None:
        """Note that a later version is without VACUUM, too, where this one is, and no commit between them is of one.

        A writer that commits again and again need not look at the log then.

        Args:
            later: the later version.
            commits: the actions of the commits between them; some may be missing, and nothing is noted then.
        """
        known = later.newest_checkpoint
        version, since_ms = known.without_vacuum
        infos = (one.fields for actions in commits for one in actions if isinstance(one, CommitInfo))
        if (version, len(commits)) == (self.version, later.version - self.version) and not any(map(is_vacuum, infos)):
            known.without_vacuum = later.version, since_ms

    def _known_by(self, segment: LogSegment) -> Snapshot:
        """The same version with the segment of a later listing, and all cached properties."""
        if segment is self.segment:
            return self
        same = object.__new__(Snapshot)
        vars(same).update(vars(self), segment=segment)
        return same

    def check_writable(self) -> None:
        """Refuse a table that this engine would write wrongly.

        Raises:
            UnsupportedFeatureError: the table needs a feature, or a version of the protocol, that this engine lacks.
            InvalidLogError: the protocol or the metadata is not valid.
        """
        _ = self._checked

    @cached_property
    def _checked(self) -> None:
        check_writable(self.protocol, self.metadata)

    def check_usable(self) -> None:
        """Refuse a version that reads or statements of this engine would refuse, whatever their files.

        Raises:
            DeltaError: the reason that they would give.
        """
        _ = self._usable, self.clustering_columns, self.timestamp_ms, RowIds.of(self.domains)

    @cached_property
    def _usable(self) -> None:
        self.check_writable()
        to_arrow(self.tracked().schema)
        named_columns(self.metadata, self.metadata.configuration)
        _ = self.schema, self.stored_schema, self.partition_columns, self.properties

    def without_content(self) -> Snapshot:
        """The same version without its files, its application ids and the files of its log: little to remember, and
        enough for :func:`next_snapshot`.
        """
        same = object.__new__(Snapshot)
        last = self.segment.last_commit
        segment = LogSegment(self.version, None, (), None, last, None)
        vars(same).update(vars(self), live=LiveFiles(empty_table(FILE_SCHEMA)), txns={}, segment=segment)
        return same

    def with_valid_properties(self) -> Snapshot:
        """The same version without the properties whose values do not fit, which another engine has written; for
        statements that replace them.
        """
        configuration = self.metadata.configuration or {}
        invalid = invalid_properties(configuration)
        if not invalid:
            return self
        left = without_properties(configuration, invalid)
        return replace(self, metadata=structs.replace(self.metadata, configuration=left))

    @property
    def due_for_checkpoint(self) -> bool:
        """Whether a checkpoint is due at this version, by the checkpoints that this handle knows. A listing shows
        whether another writer has written one by now.
        """
        return self.newest_checkpoint.asked < self.version and self.is_due()

    def is_due(self, version: int | None = None) -> bool:
        """Whether the writer of a version, None for this one, has to see to a checkpoint.

        The version may be an earlier one than this, if other writers have committed since.
        """
        interval, keeps = self._schedule
        at = self.version if version is None else version
        if at % (interval or EVERY):
            return False  # most versions; nothing is added up for them
        known = self.newest_checkpoint.files
        segment = self.segment if known is None else self.segment.from_checkpoint(known)
        files = min(self.num_files, LISTED_ITSELF) if keeps else self.num_files
        return is_due(segment, files, interval=interval, remote=self.store.capabilities.remote, version=at)

    @cached_property
    def _schedule(self) -> tuple[int | None, bool]:
        """``delta.checkpointInterval``, and whether checkpoints keep the sidecars of earlier ones. Reads depend on no
        other property, and not on valid values of these.
        """
        configuration = self.with_valid_properties().metadata.configuration or {}
        keeps = "v2Checkpoint" in features_of(self.protocol) and get(configuration, "delta.checkpointPolicy") == "v2"
        return get(configuration, "delta.checkpointInterval"), keeps


_OF_METADATA = ("schema", "stored_schema", "partition_columns", "properties", "_checked", "_usable", "_schedule")
"""The cached properties that depend on protocol and metadata alone."""


def follow(store: Store, before: Snapshot | None, log: Sequence[bytes], *, new: Collection[str] = ()) -> Snapshot:
    """The snapshot after some commits, whose contents are given. Nothing is read.

    Args:
        store: the table's folder.
        before: the snapshot of the version before them; None if they begin with version 0.
        log: the contents of their files, oldest first, at least one.
        new: paths that no earlier version can have; see :meth:`refdelta.engine.log.state.LiveFiles.after`.

    Raises:
        InvalidLogError: a commit breaks the protocol.
        UnsupportedFeatureError: the table was upgraded to a feature that this engine cannot read.
    """
    segment = (before.segment if before else NO_LOG).with_our_commits(map(len, log))
    actions = [decode_commit(data, commit_key(v)) for v, data in enumerate(log, segment.version - len(log) + 1)]
    if before is not None:
        replayed = _Replayed(before.live.after(actions, new), [], actions, _removes(actions))
        later = before._followed_by(segment, replayed)  # noqa: SLF001 - of this module
        before._note_vacuums(later, actions)  # noqa: SLF001 - of this module
        return later
    quiet = segment.version if _removes(actions) else -1
    return _fold(store, segment, [], LiveFiles(empty_table(FILE_SCHEMA)).after(actions), actions, quiet)


def next_snapshot(store: Store, before: Snapshot | None, actions: Sequence[AnyAction], size: int) -> Snapshot:
    """The snapshot after a commit that is not a version yet, without its files; see :meth:`Snapshot.without_content`.

    Args:
        store: the table's folder.
        before: the snapshot of the version before it; None if it creates the table.
        actions: the commit.
        size: its size in bytes.

    Raises:
        InvalidLogError: the commit breaks the protocol.
        UnsupportedFeatureError: it upgrades the table to a feature that this engine cannot read.
    """
    segment = (before.segment if before else NO_LOG).with_our_commits([size])
    if before is None:
        return _fold(store, segment, [], LiveFiles(empty_table(FILE_SCHEMA)), [[*actions]], None).without_content()
    replayed = _Replayed(before.live, [], [[*actions]], removes=False)
    return before._followed_by(segment, replayed).without_content()  # noqa: SLF001 - of this module


def _removes(commits: Iterable[Iterable[AnyAction]]) -> bool:
    return any(isinstance(action, Remove) for actions in commits for action in actions)


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
            snapshot = _compared(_of_one_table(_load(store, segment)))
        except ObjectNotFoundError as error:
            # Cleanup deleted a file between listing and reading; the other files must suffice.
            gone += 1
            if gone == 3:
                raise InvalidLogError(f"log files disappear while they are read: {error}") from error
            segment = find_segment(store, version, hinted=False, unreadable=bad)
        except _UnusableCheckpointError as error:
            bad.update(file.key for file in error.checkpoint.files)
            try:
                segment = find_segment(store, version, hinted=False, unreadable=bad)
            except (InvalidLogError, VersionNotFoundError, TableNotFoundError) as gap:
                # No older checkpoint is complete, so the damaged one is the reason.
                raise error.reason from gap
        else:
            base = segment.checkpoint
            log.debug(
                "%s: opened version %d, from the checkpoint of version %s and %d commit files",
                store.uri,
                snapshot.version,
                None if base is None else base.version,
                len(segment.commits),
            )
            return snapshot


def _of_one_table(snapshot: Snapshot) -> Snapshot:
    """The same snapshot. Raises ``ObjectNotFoundError`` if the table was replaced while the log was read, so that files
    of two tables may be mixed. Over a network it would cost each reader one more request, and is not done.
    """
    listed, store = snapshot.segment.listed, snapshot.store
    if listed is not None and not store.capabilities.remote and not is_unchanged(store, listed):
        raise ObjectNotFoundError(f"{listed.key!r} in {store.uri} was replaced while the log was read")
    return snapshot


def _compared(snapshot: Snapshot) -> Snapshot:
    """The same snapshot; a contradiction to its checksum file is logged as a warning. Not done over a network, where it
    would cost each reader one more request.
    """
    if snapshot.segment.checksum is not None and not snapshot.store.capabilities.remote:
        found = snapshot.contradictions()
        if found:
            log.warning(
                "%s: the checksum of version %d contradicts the log, which is followed: %s",
                snapshot.store.uri,
                snapshot.version,
                "; ".join(found),
            )
    return snapshot


class _UnusableCheckpointError(Exception):
    """Internal: the checkpoint cannot be read; an older one may be usable."""

    def __init__(self, checkpoint: CheckpointFiles, reason: InvalidLogError):
        self.checkpoint, self.reason = checkpoint, reason
        super().__init__(str(reason))


def _load(store: Store, segment: LogSegment) -> Snapshot:
    base, files = [], empty_table(FILE_SCHEMA)
    sidecars: tuple[tuple[Sidecar, int], ...] = ()
    if segment.checkpoint is not None:
        from refdelta.engine.log.checkpoint import read_checkpoint

        try:
            content = read_checkpoint(store, segment.checkpoint)
        except InvalidLogError as error:
            raise _UnusableCheckpointError(segment.checkpoint, error) from error
        base, files, sidecars = content.actions, content.files, content.sidecars
    live, newest = LiveFiles(files), NewestCheckpoint()
    if sidecars and segment.checkpoint is not None:
        newest.layout = Layout(segment.checkpoint.files[0].key, live.lineage, sidecars)
    replayed = _replay(store, live, segment.commits)
    oldest = -1 if segment.checkpoint is None else segment.checkpoint.version
    quiet = segment.version if replayed.removes else oldest
    return _fold(store, segment, [*base, *replayed.others], replayed.live, replayed.last, quiet, newest)


@dataclass(frozen=True)
class _Replayed:
    """The changes by some commits.

    Attributes:
        live: the live files after them.
        others: the actions of the earlier commits, without files and commitInfo.
        last: the actions of each of the last commits.
        removes: whether one of them has a ``remove``.
    """

    live: LiveFiles
    others: list[AnyAction]
    last: list[list[AnyAction]]
    removes: bool


def _replay(store: Store, live: LiveFiles, commits: Sequence[LogFile]) -> _Replayed:
    """Read commits, some at a time, so that the actions of few of them are in memory."""
    others: list[AnyAction] = []
    adds: list[pa.Table] = []
    last: list[list[AnyAction]] = []
    removes = False
    for some in at_most(commits, lambda file: file.size, _READ_BYTES):
        live = live.after(last)
        others += [one for commit in last for one in commit if not isinstance(one, (Add, Remove, CommitInfo))]
        last = []  # frees the memory before the next chunk is read
        last, table = decode_commits([file.key for file in some], commit_contents(store, some))
        removes = removes or _removes(last)
        adds += [] if table is None else [table]
        if table is None or sum(map(len, adds)) > max(_MANY_FILES, len(live.table) // 4):
            live, adds = live.after_adds(adds), []
    return _Replayed(live.after_adds(adds).after(last), others, last, removes)


def _tombstones(store: Store, segment: LogSegment) -> pa.Table:
    base = empty_table(TOMBSTONE_SCHEMA)
    if segment.checkpoint is not None:
        from refdelta.engine.log.checkpoint import read_tombstones

        base = read_tombstones(store, segment.checkpoint)
    return reconcile_tombstones(base, read_commits(store, segment.commits))


def _fold(
    store: Store,
    segment: LogSegment,
    base: Iterable[AnyAction],
    live: LiveFiles,
    commits: list[list[AnyAction]],
    no_removes_since: int | None,
    newest_checkpoint: NewestCheckpoint | None = None,
) -> Snapshot:
    """The snapshot after some commits, given its live files. Of the other actions, the newest of each kind wins."""
    replay = Replay()
    for actions in [base, *commits]:
        replay.apply(action for action in actions if not isinstance(action, (Add, Remove)))
    protocol, metadata = replay.protocol, replay.metadata
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise InvalidLogError(f"the log of version {segment.version} has no {missing} action", file="_delta_log")
    check_readable(protocol)
    check_place(store, protocol, metadata)
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
        no_removes_since=no_removes_since,
        newest_checkpoint=newest_checkpoint or NewestCheckpoint(),
    )
