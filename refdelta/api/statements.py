"""The statements of :class:`refdelta.DeltaTable`: begin a transaction, run one statement, commit; and VACUUM,
checkpoints and the cleanup of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

from refdelta import arguments
from refdelta.api.handle import Handle
from refdelta.errors import InvalidArgumentError

# What a method needs beyond that, it imports: who reads one table shall not wait for the verbs.
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from refdelta.api.alter import TableAlterer
    from refdelta.api.merge_builder import TableMerger
    from refdelta.api.optimizer import TableOptimizer
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.executor import Executor
    from refdelta.operations.maintenance.vacuum import Progress
    from refdelta.operations.merge.clauses import Clause
    from refdelta.transaction.options import CommitOptions, CommitProperties
    from refdelta.transaction.results import CommitResult, VacuumResult
    from refdelta.transaction.time_travel import Version


class Statements(Handle):
    """A table that is changed."""

    def create_write_transaction(
        self,
        actions: Iterable[Any],
        mode: str,
        schema: Any,
        partition_by: Sequence[str] | str | None = None,
        *,
        partition_overwrite: str | None = None,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Commit data files that are in the table's folder already, without writing any: one commit.

        The files are not opened. What they say of themselves is held to the table's schema and partition columns, and
        believed beyond that. They stay where the commit fails, and can be committed again.

        Args:
            actions: an :class:`refdelta.AddAction` for each file, or deltalake's.
            mode: ``append``, or ``overwrite`` for files that replace all others.
            schema: that of the files: a :class:`~refdelta.schema.Schema`, or anything with ``__arrow_c_schema__``.
            partition_by: the table's partition columns; None not to have them compared.
            partition_overwrite: as :func:`refdelta.write_deltalake` takes it.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Raises:
            SchemaMismatchError: the files have other columns or types than the table.
            InvalidArgumentError: a file that cannot be one of the table: a path that leaves it, other partition
                columns, statistics that are none.
            UnsupportedFeatureError: a table whose files name their columns otherwise (column mapping).
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.
        """
        from refdelta.operations.write.prepared_files import PreparedFiles
        from refdelta.operations.write.request import WriteRequest

        if mode not in ("append", "overwrite"):
            raise InvalidArgumentError(f"mode is one of 'append', 'overwrite', not {mode!r}: the table exists")
        request = WriteRequest(mode, partition_by, partition_overwrite=partition_overwrite)
        files = PreparedFiles(actions, schema)

        def write(snapshot: Snapshot, age: float) -> CommitResult:
            with self.begin_at(snapshot, age, **options) as txn:
                txn.write(files, request, always=True)
                return txn.commit()

        return self.over_newest(write, again=mode == "append")

    def delete(
        self,
        predicate: str | None = None,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Delete the rows for which ``predicate`` is true, or all rows, in one commit.

        Rows for which the predicate is null stay, as in SQL. Files that hold other rows too are written anew.

        Args:
            predicate: SQL in Spark's dialect; None deletes every row.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            What was committed; its version is None where no row matched. Metrics: ``num_added_files``,
            ``num_removed_files``, ``num_deleted_rows``, ``num_copied_rows``.

        Raises:
            PredicateError: the predicate cannot be parsed or bound.
            ConstraintViolationError: the table is append-only.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.
        """
        with self.begin(**options) as txn:
            txn.delete(predicate)
            return txn.commit()

    def update(
        self,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Set columns of the rows for which ``predicate`` is true, or of all rows, in one commit.

        All expressions see the old values. A row whose partition column changes moves to its new partition.

        Args:
            updates: SQL expressions in Spark's dialect by column; a name with dots is a field of a struct.
            new_values: Python values by column; give one of the two.
            predicate: SQL; rows for which it is null stay as they are. None updates every row.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            What was committed; its version is None where no row matched. Metrics: ``num_added_files``,
            ``num_removed_files``, ``num_updated_rows``, ``num_copied_rows``.

        Raises:
            PredicateError: SQL that cannot be parsed or bound, or a value that its column cannot hold.
            ConstraintViolationError: a null where the table has none, or a table that is append-only.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.
        """
        with self.begin(**options) as txn:
            txn.update(updates, new_values, predicate)
            return txn.commit()

    def merge(
        self,
        source: Any,
        predicate: str,
        source_alias: str | None = "s",
        target_alias: str | None = "t",
        merge_schema: bool = False,
        **options: Unpack[CommitOptions],
    ) -> TableMerger[CommitResult]:
        """Begin to put together a MERGE; its ``execute()`` runs it on the newest version, in one commit.

        Args:
            source: rows, as :func:`refdelta.write_deltalake` takes them. All of them are held in memory, of the table
                only pieces; a Spark DataFrame need not be, with a :class:`refdelta.spark.SparkExecutor`.
            predicate: ON: which rows of the source match which of the table; SQL in Spark's dialect.
            source_alias: the name of the source in all expressions.
            target_alias: the name of the table in all expressions.
            merge_schema: whether the table takes on the columns that only the source has and that a clause sets.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            The MERGE, to which clauses are added. Metrics of its result: ``num_source_rows``,
            ``num_target_rows_inserted``, ``num_target_rows_updated``, ``num_target_rows_deleted``,
            ``num_target_rows_copied``, ``num_output_rows``, ``num_target_files_added``, ``num_target_files_removed``.
        """
        from refdelta.api.merge_builder import TableMerger
        from refdelta.transaction.options import check_options

        check_options(options)

        def run(clauses: tuple[Clause, ...]) -> CommitResult:
            with self.begin(**options) as txn:
                txn.run_merge(clauses, source, predicate, source_alias, target_alias, merge_schema)
                return txn.commit()

        return TableMerger(run)

    @property
    def alter(self) -> TableAlterer:
        """Changes of the table's properties and columns."""
        from refdelta.api.alter import TableAlterer

        return TableAlterer(self.begin)

    @property
    def optimize(self) -> TableOptimizer:
        """Fewer and better files for the same rows: ``optimize.compact()``, ``optimize.z_order(columns)``."""
        from refdelta.api.optimizer import TableOptimizer

        return TableOptimizer(self.begin)

    def reorg_purge(
        self,
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Rewrite all files that have deletion vectors, so that deleted rows are in no live file any more (REORG TABLE
        APPLY (PURGE)). ``vacuum`` then removes the old files.

        Args:
            partition_filters: which partitions: SQL over partition columns, or deltalake's list of conditions.
            target_size: up to how many bytes files are put together; None for ``delta.targetFileSize``, or else
                128 MiB.
            max_concurrent_tasks: how many files are written at once.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            What was committed, with the metrics of :meth:`refdelta.api.optimizer.TableOptimizer.compact`; its version
            is None where no file had a vector.

        Raises:
            InvalidArgumentError: a filter over columns that are no partition columns, or sizes that are not positive.
            ConcurrentModificationError: another writer's commit conflicts, as for ``optimize.compact``.
        """
        return self.optimize.purge(
            partition_filters,
            target_size,
            max_concurrent_tasks,
            **options,
        )

    def reorg_upgrade_uniform(
        self,
        iceberg_compat_version: int = 2,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Give the table ``icebergCompatV2``, and rewrite its files for it (REORG TABLE APPLY (UPGRADE UNIFORM)).

        Implements PROTOCOL.md, "Iceberg Compatibility V2": columns are mapped, what is in arrays and maps has ids,
        files hold the partition columns, and there are no deletion vectors. One commit does it all; it conflicts with
        everybody who adds or removes files meanwhile. Metadata of Iceberg is not written: engines that do, do it from
        such a table.

        Args:
            iceberg_compat_version: 2.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            What was committed; its version is None where the table was such a one already.

        Raises:
            InvalidArgumentError: a table that Iceberg cannot have, such as for a column's type.
            ConcurrentModificationError: another writer's commit came first.
        """
        options["isolation"] = "Serializable"
        with self.begin(**options) as txn:
            txn.reorg_upgrade_uniform(iceberg_compat_version)
            return txn.commit()

    def restore(
        self,
        target: Version,
        *,
        ignore_missing_files: bool = False,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Make the table what it was: rows, schema, partition columns and properties of an earlier version, in a new
        version. Only the log is written.

        The protocol never loses a feature, and versions that applications have recorded stay. A version that is older
        than the retention can be restored while its files are there; no VACUUM may run then.

        Args:
            target: a version, or a time as a datetime or an ISO 8601 string (UTC where it names no zone) for the last
                version that was committed by then.
            ignore_missing_files: whether to restore what is left where files of that version are gone.
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            What was committed; its version is None where the table is so already. Metrics:
            ``table_size_after_restore`` (bytes), ``num_of_files_after_restore``, ``num_removed_files``,
            ``num_restored_files``, ``removed_files_size``, ``restored_files_size``; ``numRemovedFile`` and
            ``numRestoredFile`` as deltalake names two of them.

        Raises:
            VersionNotFoundError: the table has no such version, or no longer.
            DataFileNotFoundError: files of that version are gone; it names them.
            ConstraintViolationError: the table is append-only, and rows would go.
            UnsupportedFeatureError: the table would need a feature that this engine cannot write.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.
        """
        with self.begin(**options) as txn:
            txn.restore(target, ignore_missing_files=ignore_missing_files)
            return txn.commit()

    # --- files and the log ---

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
