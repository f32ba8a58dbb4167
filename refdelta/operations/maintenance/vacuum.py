"""VACUUM: remove the files that no retained version needs.

Deleting is not part of a commit. Two entries of the history stand around it, VACUUM START and VACUUM END, as Spark
writes them: commits without actions, which conflict with nothing.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.core.table.features import check_writable
from refdelta.engine.scan.executor import ThreadExecutor, checked
from refdelta.errors import ConcurrentModificationError, DeltaError, InvalidArgumentError, StoreError
from refdelta.operations.maintenance.garbage import Garbage, find_garbage, list_objects
from refdelta.transaction.options import CommitProperties
from refdelta.transaction.options import checked as checked_properties
from refdelta.transaction.results import CommitResult, VacuumResult
from refdelta.transaction.transaction import Transaction
from refdelta_storage.errors import StorageError

if TYPE_CHECKING:
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.executor import Executor
    from refdelta_storage import Store

log = logging.getLogger("refdelta")

Progress = Callable[[int, int], None]
"""Called with how many files are removed by now, and how many there are to remove."""

_MS_PER_HOUR = 3_600_000
# So many keys make one request, where a store deletes in bulk.
_KEYS_AT_ONCE = 1000
_WORKERS = 8
# END reports what has happened already: where others change the table in the same moment, it is told again.
_END_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class Vacuum:
    """What is asked for.

    Attributes:
        retention_hours: for how long a file stays after it was removed; None for the table's
            ``delta.deletedFileRetentionDuration``.
        enforce_retention_duration: whether a retention below the table's is refused.
        full: whether files go that no entry of the log names, too.
        keep_versions: versions whose files stay, however old.
    """

    retention_hours: float | None = None
    enforce_retention_duration: bool = True
    full: bool = False
    keep_versions: Sequence[int] | None = None

    def retention_ms(self, snapshot: Snapshot) -> int:
        """The retention in milliseconds. Raises ``InvalidArgumentError``."""
        least = snapshot.properties.deleted_file_retention_ms
        hours = self.retention_hours
        if hours is None:
            return least
        if isinstance(hours, bool) or not isinstance(hours, int | float) or not math.isfinite(hours) or hours < 0:
            raise InvalidArgumentError(f"retention_hours is a number of hours that is not negative, not {hours!r}")
        asked = round(hours * _MS_PER_HOUR)
        if self.enforce_retention_duration and asked < least:
            raise InvalidArgumentError(
                f"retention_hours={hours} is below the {least / _MS_PER_HOUR:g} hours of the table's "
                "delta.deletedFileRetentionDuration: readers of older versions and writers in flight may still need "
                "files that would go; where there are none, enforce_retention_duration=False allows it"
            )
        return asked

    def versions(self) -> list[int]:
        """The versions to keep. Raises ``InvalidArgumentError``."""
        return arguments.wholes("keep_versions", self.keep_versions) or []


def vacuum(
    snapshot: Snapshot,
    request: Vacuum,
    *,
    dry_run: bool,
    commit_properties: CommitProperties | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> tuple[VacuumResult, Snapshot]:
    """Remove what no retained version needs, or tell what that would be.

    Args:
        snapshot: the table.
        request: what to remove.
        dry_run: whether to tell only.
        commit_properties: what to note in the entries of the history.
        progress: see :data:`Progress`.
        executor: who removes the files; None for threads of this process.

    Returns:
        What was removed, and the newest snapshot.

    Raises:
        InvalidArgumentError: a retention that is too short, or no retention at all.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write (PROTOCOL.md, "VACUUM Protocol
            Check": whoever does not know all of them does not know which files are needed).
        VersionNotFoundError: a version to keep cannot be read.
        StoreError: the store refused or failed; what was not removed yet stays.
    """
    check_writable(snapshot.protocol, snapshot.metadata)
    executor = checked(executor) or ThreadExecutor(_WORKERS)
    retention_ms, versions = request.retention_ms(snapshot), request.versions()
    expired_ms = time.time_ns() // 1_000_000 - retention_ms
    objects = list_objects(snapshot.store)

    def look(snapshot: Snapshot) -> Garbage:
        return find_garbage(snapshot, objects, expired_ms=expired_ms, full=request.full, keep_versions=versions)

    garbage = look(snapshot)
    if dry_run or not garbage.objects.num_rows:
        return _result(garbage, dry_run=dry_run, version=None), snapshot
    run = _Run(snapshot.store, checked_properties(commit_properties), executor)
    snapshot, others_committed = run.start(snapshot, garbage, request, retention_ms)
    if others_committed:
        # As a RESTORE, which brings files back. What is committed from now on finds VACUUM START in the history.
        garbage = look(snapshot)
    end, snapshot = run.delete(snapshot, garbage, progress)
    return _result(garbage, dry_run=False, version=end.version), snapshot


def _result(garbage: Garbage, *, dry_run: bool, version: int | None) -> VacuumResult:
    return VacuumResult(
        garbage.objects.column("key").to_pylist(),
        dry_run=dry_run,
        size_bytes=garbage.size_bytes,
        untracked=garbage.untracked,
        version=version,
    )


@dataclass(frozen=True)
class _Run:
    """The two entries of the history, and the deleting between them."""

    store: Store
    properties: CommitProperties
    executor: Executor

    def start(self, snapshot: Snapshot, garbage: Garbage, request: Vacuum, retention_ms: int) -> tuple[Snapshot, bool]:
        """Commit VACUUM START; the snapshot behind it, and whether others committed meanwhile."""
        parameters: dict[str, Any] = {"retentionCheckEnabled": request.enforce_retention_duration}
        if request.retention_hours is not None:
            parameters["specifiedRetentionMillis"] = retention_ms
        parameters["defaultRetentionMillis"] = snapshot.properties.deleted_file_retention_ms
        metrics = {"numFilesToDelete": garbage.objects.num_rows, "sizeOfDataToDelete": garbage.size_bytes}
        # The application's version is recorded once, at the end. Where it cannot be, no file may be deleted.
        Transaction(self.store, snapshot, commit_properties=self.properties, age=None)
        noted = CommitProperties(self.properties.custom_metadata, self.properties.user_metadata)
        done, after = self._note(snapshot, "VACUUM START", parameters, metrics, noted)
        return after, bool(done.rebased_over)

    def delete(self, snapshot: Snapshot, garbage: Garbage, progress: Progress | None) -> tuple[CommitResult, Snapshot]:
        """Delete, and commit VACUUM END, whether or not it went well; that commit, and the snapshot behind it."""
        try:
            count = self._delete(garbage, progress)
        except BaseException:
            with suppress(DeltaError):
                self._end(snapshot, {"status": "FAILED"}, {})
            raise
        metrics = {"numDeletedFiles": count, "numVacuumedDirectories": 0}
        return self._end(snapshot, {"status": "COMPLETED"}, metrics)

    def _delete(self, garbage: Garbage, progress: Progress | None) -> int:
        keys = iter(garbage.objects.column("key").to_pylist())
        total, done = garbage.objects.num_rows, 0
        portions = iter(lambda: list(itertools.islice(keys, _KEYS_AT_ONCE)), [])
        try:
            for count in self.executor.map(functools.partial(_delete, self.store), portions):
                done += count
                log.info("VACUUM has removed %d of %d files", done, total)
                if progress:
                    progress(done, total)
        except StoreError as error:
            raise StoreError(f"cannot remove files, at least {done} of {total} are removed: {error}") from error
        return done

    def _end(
        self, snapshot: Snapshot, parameters: dict[str, Any], metrics: dict[str, int]
    ) -> tuple[CommitResult, Snapshot]:
        for _ in range(_END_ATTEMPTS - 1):
            try:
                return self._note(snapshot, "VACUUM END", parameters, metrics, self.properties)
            except ConcurrentModificationError:
                snapshot = snapshot.advance()
        return self._note(snapshot, "VACUUM END", parameters, metrics, self.properties)

    def _note(
        self,
        snapshot: Snapshot,
        operation: str,
        parameters: dict[str, Any],
        metrics: dict[str, int],
        properties: CommitProperties,
    ) -> tuple[CommitResult, Snapshot]:
        # Listing and deleting may have taken long.
        txn = Transaction(self.store, snapshot, commit_properties=properties, age=None)
        txn.describe(operation, parameters, metrics, always=True)
        return txn.commit(), txn.result_snapshot or snapshot.advance()


def _delete(store: Store, keys: list[str]) -> int:
    try:
        store.delete(keys)
    except StorageError as error:
        raise StoreError(str(error)) from error
    return len(keys)
