"""What keeps a table's folder small: files that go, and the files that stand for many of the log. A part of
:class:`refdelta.DeltaTable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from refdelta import arguments
from refdelta.api.handle import Handle
from refdelta.errors import InvalidArgumentError

# What a method needs beyond that, it imports: who reads one table shall not wait for the verbs.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from refdelta.engine.scan.executor import Executor
    from refdelta.operations.maintenance.vacuum import Progress
    from refdelta.transaction.options import CommitProperties
    from refdelta.transaction.results import VacuumResult


class Upkeep(Handle):
    """A table that is kept in order."""

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *,
        full: bool = False,
        keep_versions: Sequence[int] | None = None,
        commit_properties: CommitProperties | None = None,
        progress: Progress | None = None,
        executor: Executor | None = None,
    ) -> VacuumResult:
        """Remove the files that no retained version needs, or tell which these are.

        A version is retained while it was the newest at some time within the retention; what it needs stays: data
        files, and the files of their deletion vectors. Older versions can no longer be read afterwards. Never removed
        are files that were written within the retention, as those of writers in flight (by the store's clock), the log,
        what lies outside of the table's folder or in another table within it, and names that begin with ``_`` or
        ``.``, at any depth, where they are not Delta's own.

        By default those files go that the log names as removed, and leftovers that nobody but an engine can have
        written: files of deletion vectors, ``_change_data``, temporary files of writers that were killed.
        ``full=True`` takes whatever else is in the table's folder: data files that a killed writer has never
        committed, and files that strangers put there, which no log can tell apart. (deltalake's default removes the
        first kind only, and Spark's VACUUM is the full one, its VACUUM LITE this one.)

        Args:
            retention_hours: the retention in hours; None for the table's ``delta.deletedFileRetentionDuration``, a
                week unless it is set.
            dry_run: whether to tell only; then nothing is written to the history either.
            enforce_retention_duration: whether a retention below the table's is refused. Without it, the caller knows
                that nobody reads older versions or writes to the table.
            full: whether files that no entry of the log names are removed too.
            keep_versions: versions that can be read afterwards, however old.
            commit_properties: what to note in the two entries of the history, VACUUM START and VACUUM END. They are
                made only where there is something to remove.
            progress: called with how many files are removed by now, and how many there are to remove.
            executor: who removes them; see :meth:`begin`. Which ones, is found out here.

        Returns:
            The files that were removed, or would be: a list of keys relative to the table's folder.

        Raises:
            InvalidArgumentError: a retention below the table's, or none at all.
            VersionNotFoundError: a version to keep cannot be read.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write (PROTOCOL.md, "VACUUM
                Protocol Check").
            StoreError: the store refused or failed; what was not removed yet stays.
        """
        from refdelta.operations.maintenance.vacuum import Vacuum, vacuum

        request = Vacuum(
            retention_hours=retention_hours,
            enforce_retention_duration=arguments.flag("enforce_retention_duration", enforce_retention_duration),
            full=arguments.flag("full", full),
            keep_versions=keep_versions,
        )
        result, snapshot = vacuum(
            self.newest_for_writing(),
            request,
            dry_run=arguments.flag("dry_run", dry_run),
            commit_properties=commit_properties,
            progress=progress,
            executor=executor,
        )
        self._follow(snapshot)
        return result

    # --- keeping the log short ---

    def create_checkpoint(self, *, top_level: Literal["parquet", "json"] = "parquet") -> None:
        """Write a checkpoint of this version, and point ``_last_checkpoint`` at it (PROTOCOL.md, "Checkpoints").

        Args:
            top_level: the form of its file. ``json`` is for tables with ``delta.checkpointPolicy`` = ``v2`` alone.

        Raises:
            InvalidArgumentError: JSON, and the table's checkpoints are classic; or a version before those whose
                checkpoints the table protects.
            InvalidLogError: the version's checksum contradicts the log, so that one of them is damaged.
            UnsupportedFeatureError: the version needs a feature that this engine cannot write.
        """
        from refdelta.engine.log.checkpoint_write import write_checkpoint
        from refdelta.engine.log.checksum_check import refuse_contradictions

        if top_level not in ("parquet", "json"):
            raise InvalidArgumentError(f"top_level is one of 'parquet', 'json', not {top_level!r}")
        self._snapshot.check_writable()
        protected = self._snapshot.advance().properties.require_checkpoint_protection_before_version
        if self.version() < protected:
            raise InvalidArgumentError(
                f"version {self.version()} can have no further checkpoint: the table protects the checkpoints before "
                f"version {protected} (delta.requireCheckpointProtectionBeforeVersion)"
            )
        refuse_contradictions(self._snapshot)
        write_checkpoint(self._store, self._snapshot, top_level=top_level)

    def compact_logs(self, starting_version: int | None = None, ending_version: int | None = None) -> None:
        """Put the commits of some versions together in one more file, which readers take instead of them (PROTOCOL.md,
        "Log Compaction Files"). The commits stay. Cheaper than a checkpoint where the table has many files.

        Args:
            starting_version: the first one; None for the one behind the newest checkpoint.
            ending_version: the last one; None for the newest.

        Raises:
            VersionNotFoundError: there is no commit of one of them, or not any more.
            InvalidArgumentError: versions in no order, or commits too large to be held at once.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        """
        from refdelta.engine.log.log_compaction import compact_log

        self.newest_for_writing().check_writable()
        start = arguments.whole("starting_version", starting_version)
        compact_log(self._store, self._snapshot, start, arguments.whole("ending_version", ending_version))

    def cleanup_metadata(self) -> int:
        """Remove log files older than ``delta.logRetentionDuration`` that no retained version needs.

        Returns how many.

        Raises:
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        """
        from refdelta.engine.log.cleanup import cleanup_log
        from refdelta.transaction.commit_info import now_ms

        self.newest_for_writing().check_writable()
        return len(cleanup_log(self._store, self._snapshot, now_ms=now_ms()))
