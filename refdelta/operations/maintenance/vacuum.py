"""VACUUM: remove the files that no retained version needs.

The deletion is not part of a commit. It is enclosed by two commits, VACUUM START and VACUUM END, as in Spark: they have
no actions. They conflict with transactions that add files which the VACUUM may delete
(:mod:`refdelta.core.log.vacuums`).
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from refdelta import arguments
from refdelta.arrow.arrays import is_among, take
from refdelta.core.log.actions import Cdc
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import commit_key, data_key
from refdelta.core.log.vacuums import FULL, LONGEST_MS, STARTS, VACUUM_END, VACUUM_START
from refdelta.engine.log.listing import file_time
from refdelta.engine.log.managed_log import check_maintenance
from refdelta.engine.log.references import REMOVAL_SCHEMA, referenced_keys, removals
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.store_clock import SAME_MS, earlier, store_time
from refdelta.engine.parquet.files import store_errors
from refdelta.engine.work.executor import ThreadExecutor, checked
from refdelta.errors import ConcurrentModificationError, DeltaError, InternalError, InvalidArgumentError, StoreError
from refdelta.operations.shared.change import in_json
from refdelta.pruning.partition_folders import partition_prefix
from refdelta.table.features import check_writable
from refdelta.table.properties import get
from refdelta.table.types import physical_name
from refdelta.transaction.commit_info import now_ms
from refdelta.transaction.deleted_files import vacuums_in_progress
from refdelta.transaction.options import CommitProperties
from refdelta.transaction.options import checked as checked_properties
from refdelta.transaction.results import CommitResult, VacuumResult
from refdelta.transaction.transaction import Transaction
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.work.executor import Executor
    from refdelta_storage import ObjectInfo, Store


log = logging.getLogger("refdelta")

Progress = Callable[[int, int], None]
"""Called with the number of files removed so far, and the number of all files to remove."""

_MS_PER_HOUR = 3_600_000
# Longer than any table is old; more would not fit into the numbers of logs and of Arrow.
_MOST_HOURS = 2_000_000_000
# The number of keys in one request, if a store deletes in bulk.
_KEYS_AT_ONCE = 1000
_WORKERS = 8
# VACUUM END reports a fact, so it is repeated after a conflict, up to so many attempts.
_END_ATTEMPTS = 5
# Deletions end before others take the VACUUM for interrupted, by clocks that differ.
_LONGEST_MS = LONGEST_MS - 60 * SAME_MS


@dataclass(frozen=True, kw_only=True)
class VacuumRequest:
    """A request for VACUUM; see :meth:`refdelta.DeltaTable.vacuum` for the attributes."""

    retention_hours: float | None = None
    enforce_retention_duration: bool = True
    full: bool = False
    keep_versions: Sequence[int] | None = None

    def retention_ms(self, snapshot: Snapshot) -> int:
        """The retention in milliseconds. Raises ``InvalidArgumentError`` if it is not valid, or below the table's."""
        least = snapshot.properties.deleted_file_retention_ms
        hours = self.retention_hours
        if hours is None:
            return least
        if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours < math.inf:
            raise InvalidArgumentError(f"retention_hours must be a number of hours that is not negative, not {hours!r}")
        asked = round(min(hours, _MOST_HOURS) * _MS_PER_HOUR)
        if self.enforce_retention_duration and asked < least:
            raise InvalidArgumentError(
                f"retention_hours={hours} is below the {least / _MS_PER_HOUR:g} hours of the table's "
                "delta.deletedFileRetentionDuration: readers of older versions and concurrent writers may need files "
                "that would be removed; if there are none, pass enforce_retention_duration=False"
            )
        return asked

    def versions(self) -> list[int]:
        """The versions to keep. Raises ``InvalidArgumentError`` for something else than a list of whole numbers."""
        return arguments.wholes("keep_versions", self.keep_versions) or []


def vacuum(
    snapshot: Snapshot,
    request: VacuumRequest,
    *,
    dry_run: bool,
    commit_properties: CommitProperties | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> tuple[VacuumResult, Snapshot]:
    """Remove the files that no retained version needs, or only list them.

    Args:
        snapshot: the table.
        request: the retention and the kinds of files to remove.
        dry_run: only list the files.
        commit_properties: notes in the two commits.
        progress: see :data:`Progress`.
        executor: removes the files; None for threads of this process.

    Returns:
        The files that were removed, or would be, and the newest snapshot.

    Raises:
        InvalidArgumentError: the retention is not valid, or below the table's.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write, so it cannot know which files
            are needed (PROTOCOL.md, "VACUUM Protocol Check").
        VersionNotFoundError: a version to keep cannot be read.
        StoreError: the store refused or failed; files that are not removed yet stay.
    """
    check_writable(snapshot.protocol, snapshot.metadata)
    check_maintenance(snapshot.store, "vacuum")
    executor = checked(executor) or ThreadExecutor(_WORKERS)
    retention_ms, versions = request.retention_ms(snapshot), request.versions()
    began_ms = now_ms()
    objects = list_objects(snapshot.store)

    def look(snapshot: Snapshot, now_ms: int) -> VacuumCandidates:
        expired_ms = now_ms - retention_ms
        return find_candidates(snapshot, objects, expired_ms=expired_ms, full=request.full, keep_versions=versions)

    candidates = look(snapshot, began_ms)
    log.debug(
        "%s: VACUUM at version %d finds %d files of %d bytes that no version of the last %d ms needs; dry run: %s",
        *(snapshot.store.uri, snapshot.version, candidates.objects.num_rows, candidates.size_bytes, retention_ms),
        dry_run,
    )
    if dry_run:
        return _result(candidates, dry_run=True, version=None), snapshot
    run = _Run(snapshot.store, request, retention_ms, checked_properties(commit_properties), executor)
    if not candidates.objects.num_rows:
        interrupted = run.finished(snapshot, began_ms)
        if interrupted:
            interrupted = run.finished(snapshot, store_time(snapshot.store, began_ms))
        if not interrupted:
            return _result(candidates, dry_run=False, version=None), snapshot
        end, snapshot = run.end(snapshot, "COMPLETED", interrupted, 0)
        return _result(candidates, dry_run=False, version=end.version), snapshot
    started, snapshot = run.start(snapshot, candidates)
    # Another commit, such as a RESTORE, may need files again. Later ones find VACUUM START in the log.
    again = bool(started.rebased_over)
    store_ms = _store_time(snapshot, run.started, began_ms)
    if store_ms < began_ms:
        again, began_ms = True, store_ms
    if again:
        candidates = look(snapshot, began_ms)
    end, snapshot = run.delete(snapshot, candidates, began_ms, progress)
    return _result(candidates, dry_run=False, version=end.version), snapshot


def _store_time(snapshot: Snapshot, started: int, began_ms: int) -> int:
    """The time of VACUUM START by the clock of the store, if this machine's is ahead of it, else ``began_ms``."""
    if snapshot.is_managed:
        return store_time(snapshot.store, began_ms)  # the commit has the time of this machine
    return earlier(began_ms, file_time(snapshot.store, commit_key(started)))


def _result(candidates: VacuumCandidates, *, dry_run: bool, version: int | None) -> VacuumResult:
    return VacuumResult(
        candidates.objects.column("key").to_pylist(),
        dry_run=dry_run,
        size_bytes=candidates.size_bytes,
        untracked=candidates.untracked,
        version=version,
    )


@dataclass
class _Run:
    """The two commits of a VACUUM, and the deletion between them.

    Attributes:
        started: the version of VACUUM START.
    """

    store: Store
    request: VacuumRequest
    retention_ms: int
    properties: CommitProperties
    executor: Executor
    started: int = -1

    def finished(self, snapshot: Snapshot, began_ms: int) -> list[int]:
        """The versions of the STARTs of others that no END follows, and all of whose files go by this VACUUM, or are
        gone: they were interrupted, or have nothing left to delete.
        """
        if self.request.versions():
            return []
        expired_ms, full = began_ms - self.retention_ms, self.request.full
        found = vacuums_in_progress(snapshot, now_ms=began_ms)
        return [one.version for one in found if one.before_ms <= expired_ms and (full or one.removed_only)]

    def start(self, snapshot: Snapshot, candidates: VacuumCandidates) -> tuple[CommitResult, Snapshot]:
        """Commit VACUUM START. Returns its result and the snapshot after it."""
        request = self.request
        parameters: dict[str, Any] = {"retentionCheckEnabled": request.enforce_retention_duration, FULL: request.full}
        if request.retention_hours is not None:
            parameters["specifiedRetentionMillis"] = self.retention_ms
        parameters["defaultRetentionMillis"] = snapshot.properties.deleted_file_retention_ms
        metrics = {"numFilesToDelete": candidates.objects.num_rows, "sizeOfDataToDelete": candidates.size_bytes}
        # The application's version is recorded by VACUUM END. If that is not allowed, no file may be deleted.
        Transaction(self.store, snapshot, commit_properties=self.properties, age=None)
        noted = CommitProperties(self.properties.custom_metadata, self.properties.user_metadata)
        done, after = self._note(snapshot, VACUUM_START, parameters, metrics, noted)
        if done.version is None:
            raise InternalError("VACUUM START was not committed")
        self.started = done.version
        return done, after

    def delete(
        self, snapshot: Snapshot, candidates: VacuumCandidates, began_ms: int, progress: Progress | None
    ) -> tuple[CommitResult, Snapshot]:
        """Delete files and commit VACUUM END, also after a failure. Returns its result and the snapshot after it."""
        try:
            finished = [version for version in self.finished(snapshot, began_ms) if version != self.started]
            count = self._delete(candidates, progress)
        except BaseException:
            with suppress(DeltaError):
                self.end(snapshot, "FAILED", [self.started])
            raise
        return self.end(snapshot, "COMPLETED", [self.started, *finished], count)

    def _delete(self, candidates: VacuumCandidates, progress: Progress | None) -> int:
        keys = iter(candidates.objects.column("key").to_pylist())
        total, done = candidates.objects.num_rows, 0
        portions = iter(lambda: list(itertools.islice(keys, _KEYS_AT_ONCE)), [])
        delete = functools.partial(_delete, self.store, now_ms() + _LONGEST_MS)
        try:
            for count in self.executor.map(delete, portions):
                done += count
                log.info("VACUUM has removed %d of %d files", done, total)
                if progress:
                    progress(done, total)
        except StoreError as error:
            raise StoreError(f"cannot remove files, at least {done} of {total} are removed: {error}") from error
        return done

    def end(
        self, snapshot: Snapshot, status: str, starts: Sequence[int], deleted: int | None = None
    ) -> tuple[CommitResult, Snapshot]:
        """Commit VACUUM END for these STARTs. Returns its result and the snapshot after it."""
        parameters = {"status": status, STARTS: in_json(starts)}
        metrics = {} if deleted is None else {"numDeletedFiles": deleted, "numVacuumedDirectories": 0}
        for _ in range(_END_ATTEMPTS - 1):
            try:
                return self._note(snapshot, VACUUM_END, parameters, metrics, self.properties)
            except ConcurrentModificationError:
                snapshot = snapshot.advance()
        return self._note(snapshot, VACUUM_END, parameters, metrics, self.properties)

    def _note(
        self,
        snapshot: Snapshot,
        operation: str,
        parameters: dict[str, Any],
        metrics: dict[str, int],
        properties: CommitProperties,
    ) -> tuple[CommitResult, Snapshot]:
        # To list and delete files may have taken long, so the age of the snapshot is not known.
        txn = Transaction(self.store, snapshot, commit_properties=properties, age=None)
        txn.describe(operation, parameters, metrics, always=True)
        return txn.commit(), txn.result_snapshot or snapshot.advance()


def _delete(store: Store, until_ms: int, keys: list[str]) -> int:
    if now_ms() > until_ms:
        hours = LONGEST_MS // 3_600_000
        raise StoreError(f"VACUUM stops {hours} hours after its start, as others rely on; run it again for the rest")
    try:
        store.delete(keys)
    except StorageError as error:
        raise StoreError(str(error)) from error
    return len(keys)


OBJECT_SCHEMA = pa.schema(
    [("key", pa.string()), ("size", pa.int64()), ("mtime", pa.int64()), ("temporary", pa.bool_())]
)
"""Objects of the store: key, size in bytes, modification time in milliseconds since 1970, and whether it is the
temporary file of a write.
"""

_ROWS = 65_536

# Names that begin like this belong to other programs, as in Spark: at any depth, with all that is below.
_HIDDEN = r"(^|/)[._]"
# So does this folder if the table is read by Iceberg, too (UniForm); Hudi's is called `.hoodie`.
_ICEBERG = r"(^|/)metadata/"
# Exceptions: Delta's own folders.
_OWN_FOLDERS = ("_change_data/", "_delta_index/")
# Names that only engines give: such files are leftovers if no version needs them, even if the log does not name them.
_OWN = r"^_change_data/|(^|/)deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin$"
# A table within the folder of this one, whose files are not touched.
_OTHER_TABLE = r"^(?P<root>.+?)/_delta_log/"


@dataclass(frozen=True)
class VacuumCandidates:
    """The files that VACUUM may remove.

    Attributes:
        objects: a table of :data:`OBJECT_SCHEMA`, in the order of the keys.
        untracked: the number of further objects that ``full`` would add.
    """

    objects: pa.Table
    untracked: int

    @property
    def size_bytes(self) -> int:
        """The size of the objects, in bytes."""
        return pc.sum(self.objects.column("size")).as_py() or 0


def list_objects(store: Store) -> pa.Table:
    """All objects of the table's folder, with the log, and temporary files of writes, in :data:`OBJECT_SCHEMA`."""
    with store_errors("list the table's folder"):
        return pa.concat_tables([_table(store.list(), temporary=False), _table(store.leftovers(), temporary=True)])


def find_candidates(
    snapshot: Snapshot, objects: pa.Table, *, expired_ms: int, full: bool, keep_versions: Sequence[int] = ()
) -> VacuumCandidates:
    """The objects that no retained version needs.

    Args:
        snapshot: the newest version; an older one lacks files that a RESTORE has added again.
        objects: the result of :func:`list_objects`.
        expired_ms: the beginning of the retention, in milliseconds since 1970. Files that were written or removed later
            stay.
        full: also choose files that the log does not name.
        keep_versions: versions whose files stay.

    Raises:
        VersionNotFoundError: a version to keep cannot be read.
        UnsafePathError: a version that is retained needs a file outside of the table's folder.
        InvalidLogError: the log breaks the protocol.
        StoreError: the store refused or failed.
    """
    store = snapshot.store
    # The removals of commits older than the retention have expired; they only show which files the log names.
    gone = pa.concat_tables(
        [
            snapshot.tombstones().select(REMOVAL_SCHEMA.names),
            removals(store, None if not full else expired_ms),
        ]
    )
    expired = pc.less_equal(pc.fill_null(gone.column("deletionTimestamp"), 0), expired_ms)
    needed = [referenced_keys(files, store.uri) for files in (snapshot.files, gone.filter(pc.invert(expired)))]
    needed += [keys for version in sorted(set(keep_versions)) for keys in _keys_of_version(store, version)]

    key = objects.column("key")
    old = pc.less_equal(objects.column("mtime"), expired_ms)
    others = pc.and_not(_is_hidden(key, snapshot), objects.column("temporary"))
    kept = pc.or_(pc.or_(others, _is_of_another_table(key)), is_among(key, _chunked(needed)))
    candidates = objects.filter(pc.and_not(old, kept))
    candidates = take(candidates, pc.sort_indices(candidates.column("key")))
    if full:
        return VacuumCandidates(candidates, 0)
    key = candidates.column("key")
    named = is_among(key, referenced_keys(gone.filter(expired), store.uri, resolvable=True))
    own = pc.or_(candidates.column("temporary"), pc.match_substring_regex(key, _OWN))
    tracked = candidates.filter(pc.or_(named, own))
    return VacuumCandidates(tracked, candidates.num_rows - tracked.num_rows)


def _keys_of_version(store: Store, version: int) -> Iterator[pa.ChunkedArray]:
    """The keys that a version needs: its live files, and the change files of its commit."""
    yield referenced_keys(load_snapshot(store, version).files, store.uri)
    key = commit_key(version)
    try:
        actions = decode_commit(store.get(key), key)
    except ObjectNotFoundError:
        return  # the version is in a checkpoint only, and its changes can no longer be read
    except StorageError as error:
        raise StoreError(f"cannot read {key}: {error}") from error
    changes = [data_key(action.path, store.uri, file=key) for action in actions if isinstance(action, Cdc)]
    yield pa.chunked_array([changes], pa.string())


def _is_hidden(keys: pa.ChunkedArray, snapshot: Snapshot) -> pa.ChunkedArray:
    # The folder of a partition is not hidden if its column's name begins with "_" or ".".
    partitions = [f"{_folder_name(name)}=" for name in _column_names(snapshot)]
    shown = [re.escape(name[1:]) for name in (*_OWN_FOLDERS, *partitions) if name[0] in "_."]
    bare = pc.replace_substring_regex(keys, rf"(^|/)[._]({'|'.join(shown)})", r"\1-\2")
    formats = get(snapshot.metadata.configuration or {}, "delta.universalFormat.enabledFormats").lower().split(",")
    iceberg = "iceberg" in map(str.strip, formats)
    return pc.match_substring_regex(bare, f"{_HIDDEN}|{_ICEBERG}" if iceberg else _HIDDEN)


def _is_of_another_table(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    roots = pc.struct_field(pc.extract_regex(keys, _OTHER_TABLE), "root").unique().drop_null().to_pylist()
    if not roots:
        return pa.chunked_array([pa.repeat(False, len(keys))])
    return pc.match_substring_regex(keys, f"^(?:{'|'.join(re.escape(root) for root in roots)})/")


def _column_names(snapshot: Snapshot) -> Iterator[str]:
    """The partition columns, by their names in the schema and in the files."""
    for name in snapshot.partition_columns:
        yield name
        yield physical_name(snapshot.schema.field(name))


def _folder_name(column: str) -> str:
    return partition_prefix([column], {}).rpartition("=")[0]


def _table(infos: Iterator[ObjectInfo], *, temporary: bool) -> pa.Table:
    batches = []
    while some := list(itertools.islice(infos, _ROWS)):
        columns = ([i.key for i in some], [i.size for i in some], [i.mtime_ms for i in some], [temporary] * len(some))
        arrays = [pa.array(values, field.type) for values, field in zip(columns, OBJECT_SCHEMA, strict=True)]
        batches.append(pa.record_batch(arrays, schema=OBJECT_SCHEMA))
    return pa.Table.from_batches(batches, OBJECT_SCHEMA)


def _chunked(parts: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string())
