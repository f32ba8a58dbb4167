"""The statements of :class:`refdelta.DeltaTable`: each begins a transaction, runs one statement and commits. VACUUM,
checkpoints and the cleanup of the log are here, too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, Unpack

from refdelta import arguments
from refdelta.api.awaiting import awaitable
from refdelta.api.reading import Reading
from refdelta.errors import InvalidArgumentError

# Methods import the rest when they are called: a program that only reads a table starts faster.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from refdelta.api.alter import TableAlterer
    from refdelta.api.group_commit import GroupCommit
    from refdelta.api.merge_builder import TableMerger
    from refdelta.api.optimizer import TableOptimizer
    from refdelta.api.transaction import WriteTransaction
    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.work.executor import Executor
    from refdelta.operations.maintenance.vacuum import Progress
    from refdelta.transaction.options import CommitOptions, CommitProperties, StatementOptions
    from refdelta.transaction.results import CommitResult, VacuumResult
    from refdelta.transaction.time_travel import Version


_FORMER = {
    "check_readable_again": "pass attempts to the statement",
    "repeated": "use transact",
    "run": "use transact, or attempts of the statement",
}
"""Methods of ``DeltaTable`` in earlier versions, which are internal now, and what replaces them."""


class Statements(Reading):
    """The methods of a table that change it."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _FORMER:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warnings.warn(
                f"DeltaTable.{name} is deprecated, and goes in 0.4: {_FORMER[name]}", DeprecationWarning, stacklevel=2
            )
            if name == "run":
                from refdelta.api.transaction import WriteTransaction

                run = self._handle.run
                return lambda statement, options: run(
                    lambda txn: statement(WriteTransaction(txn)), options, at_once=False
                )
            return getattr(self._handle, name)

    def begin(self, **options: Unpack[CommitOptions]) -> WriteTransaction:
        """Begin a transaction on the newest version. Nothing is visible before its ``commit()``.

        Args:
            options: how to commit; see :class:`~refdelta.transaction.options.CommitOptions`: ``isolation``, ``app_id``
                and ``app_version``, ``commit_properties``, ``executor``.

        Raises:
            ReadOnlyTableError: the handle is pinned to a version.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
            InvalidArgumentError: the table records some, but not all, of several application versions.

        Example::

            with table.begin(isolation="Serializable") as txn:
                txn.delete("id = 3")
                result = txn.commit()
        """
        from refdelta.api.transaction import WriteTransaction

        return WriteTransaction(self._handle.begin(**options))

    def create_write_transaction(
        self,
        actions: Iterable[Any],
        mode: arguments.ReplaceMode,
        schema: Any,
        partition_by: Sequence[str] | str | None = None,
        *,
        schema_mode: arguments.SchemaMode | None = None,
        partition_overwrite: arguments.PartitionOverwrite | None = None,
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Commit data files that are in the table's folder already, in one commit. No file is written.

        The files are not opened: their schema and partition values are compared with the table's, and everything else
        in ``actions`` is taken as given. If the commit fails, the files stay, and can be committed again.

        Args:
            actions: an :class:`refdelta.AddAction` for each file, or deltalake's. With mode ``append``, also a
                :class:`refdelta.RemoveAction` for each live file that leaves the table, such as the inputs of a
                compaction by another program.
            mode: ``append``, or ``overwrite`` to replace all other files.
            schema: the schema of the files: a :class:`~refdelta.schema.Schema`, or anything with
                ``__arrow_c_schema__``.
            partition_by: the table's partition columns, which are compared; None skips the comparison.
            schema_mode: as for :func:`refdelta.write_deltalake`: ``overwrite`` makes ``schema`` that of the table.
            partition_overwrite: as for :func:`refdelta.write_deltalake`.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Raises:
            SchemaMismatchError: the files have other columns or types than the table.
            InvalidArgumentError: a file cannot belong to the table: its path is outside of the folder, it has other
                partition columns, or its statistics are not valid JSON; a file to remove is not live.
            UnsupportedFeatureError: the table has column mapping, so its files have other column names; a file is
                removed without a change of data, and the table tracks rows.
            ConstraintViolationError: a file is removed with its rows, and the table is append-only.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.

        Example::

            write_deltalake(uri, rows)
            file = Path(uri, "more.parquet")
            pq.write_table(rows, file)
            action = AddAction(file.name, file.stat().st_size, {}, int(file.stat().st_mtime * 1000))
            DeltaTable(uri).create_write_transaction([action], "append", rows.schema)
        """
        from refdelta.operations.write.prepared_files import PreparedFiles
        from refdelta.operations.write.target import WriteRequest
        from refdelta.transaction.options import without_attempts

        if mode not in ("append", "overwrite"):
            raise InvalidArgumentError(f"mode is one of 'append', 'overwrite', not {mode!r}; the table exists already")
        request = WriteRequest(mode, partition_by, schema_mode=schema_mode, partition_overwrite=partition_overwrite)
        files = PreparedFiles(actions, schema)
        if files.removes and mode == "overwrite":
            raise InvalidArgumentError('mode="overwrite" removes all other files itself; leave out the RemoveActions')

        own = without_attempts(options)

        def write(snapshot: Snapshot, age: float) -> CommitResult:
            with self._handle.begin_at(snapshot, age, **own) as txn:
                txn.write(files, request, always=True)
                files.remove(txn)
                return txn.commit()

        again = mode == "append" and not files.removes
        return self._handle.repeated(lambda: self._handle.over_newest(write, again=again), options)

    def transact(
        self,
        fn: Callable[[WriteTransaction], object],
        *,
        attempts: int = 10,
        **options: Unpack[CommitOptions],
    ) -> CommitResult:
        """Run a transaction, and repeat it after each conflict with another writer.

        Each attempt begins on the newest version, calls ``fn`` and commits. Before the next attempt there is a random
        pause, whose limit doubles from 10 ms to one second. Only conflicts are repeated; any other error is raised at
        once. An attempt that fails leaves nothing.

        Args:
            fn: stages statements on the :class:`~refdelta.api.transaction.WriteTransaction` that it is called with, and
                does not commit it. It may be called several times. So it should depend only on what it reads by this
                transaction, and must not use up its data: a stream of rows can be read only once.
            attempts: the maximum number of attempts, at least 1.
            options: how to commit, as for :meth:`~refdelta.DeltaTable.begin`; see
                :class:`~refdelta.transaction.options.CommitOptions`.

        Returns:
            The result of the commit; ``version`` is None if ``fn`` staged nothing.

        Raises:
            ConcurrentModificationError: the conflict of the last attempt.
            InvalidArgumentError: ``fn`` cannot be called, it ended the transaction itself, or ``attempts`` is less than
                1.
            CommitOutcomeUnknownError: it is not known whether the commit happened; the message says how to find out.

        Example::

            result = table.transact(lambda txn: txn.update({"amount": "amount + 1"}, predicate="id = 2"))
            result.version
        """
        return self._handle.transact(fn, attempts, options)

    transact_async = awaitable(transact)

    def group_commit(self, *, max_wait_ms: float = 5, max_transactions: int = 256) -> GroupCommit:
        """Let the transactions of many threads and tasks share versions, for the block of a ``with`` statement.

        A version costs a request of its own, which a remote store answers in some hundredths of a second, whatever is
        in it. In a group, the transactions that are ready while one version is written form the next one, each checked
        against the others as if it were a version of its own, and each with its own outcome. A single writer waits for
        no other.

        Args:
            max_wait_ms: the longest time in milliseconds that a version waits for transactions which are being
                prepared at the same time.
            max_transactions: the most transactions of a version, and the most threads of
                :meth:`~refdelta.api.group_commit.GroupCommit.submit`.

        Raises:
            ReadOnlyTableError: the handle is pinned to a version.
            InvalidArgumentError: an argument has a wrong type or value.

        Example::

            with table.group_commit() as group:
                result = group.append(rows)
                print(result.version, result.member)
        """
        from refdelta.api.group_commit import GroupCommit

        return GroupCommit(self._handle, max_wait_ms=max_wait_ms, max_transactions=max_transactions)

    def delete(
        self,
        predicate: str | None = None,
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Delete the rows for which ``predicate`` is true, or all rows, in one commit.

        Rows for which the predicate is null stay, as in SQL. On a table with deletion vectors the rows are hidden;
        without, files that also hold other rows are rewritten.

        Args:
            predicate: SQL in Spark's dialect; None deletes every row.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the commit; ``version`` is None if no row matched. Metrics: ``num_added_files``,
            ``num_removed_files``, ``num_deleted_rows``, ``num_copied_rows``.

        Raises:
            PredicateError: the predicate cannot be parsed or bound.
            ConstraintViolationError: the table is append-only.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.

        Example::

            result = table.delete("amount > 100 OR name = 'Ada'")
            result["num_deleted_rows"]
        """
        from refdelta.operations.dml.delete import delete

        return self._handle.run(lambda txn: txn.run("delete", delete, predicate), options)

    delete_async = awaitable(delete)

    def update(
        self,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Set columns of the rows for which ``predicate`` is true, or of all rows, in one commit.

        All expressions see the old values. A row whose partition column changes moves to its new partition.

        Args:
            updates: by column, an SQL expression in Spark's dialect; a name with dots is a field of a struct.
            new_values: by column, a Python value; give either ``updates`` or ``new_values``. A time without a zone is
                of the handle's ``timezone``, or else UTC.
            predicate: SQL; rows for which it is null do not change. None updates every row.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the commit; ``version`` is None if no row matched. Metrics: ``num_added_files``,
            ``num_removed_files``, ``num_updated_rows``, ``num_copied_rows``.

        Raises:
            PredicateError: SQL cannot be parsed or bound, or a column cannot hold its new value.
            ConstraintViolationError: a null in a column without nulls, or the table is append-only.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.

        Example::

            table.update({"amount": "amount * 1.1"}, predicate="day = DATE '2026-01-02'")
            table.update(new_values={"name": "O'Hara"}, predicate="id = 3")
        """
        return self._handle.run(lambda txn: txn.update(updates, new_values, predicate), options)

    update_async = awaitable(update)

    def merge(
        self,
        source: Any,
        predicate: str,
        source_alias: str | None = "s",
        target_alias: str | None = "t",
        merge_schema: bool = False,
        *,
        timezone: str | None = None,
        **options: Unpack[StatementOptions],
    ) -> TableMerger[CommitResult]:
        """Begin a MERGE: add clauses to the result, then call ``execute()``, which runs it on the newest version, in
        one commit.

        Args:
            source: rows, as :func:`refdelta.write_deltalake` takes them. All rows of the source are held in memory, but
                only pieces of the table. A Spark DataFrame with a :class:`refdelta.spark.SparkExecutor` is not
                collected.
            predicate: the ON condition, which pairs rows of the source with rows of the table; SQL in Spark's dialect.
            source_alias: the name of the source in all expressions.
            target_alias: the name of the table in all expressions.
            merge_schema: add columns to the table that only the source has and that a clause sets.
            timezone: the zone of the source's times that have none, as :func:`refdelta.write_deltalake` takes it. They
                become points in time, except in columns that the table has, by the same name, without a zone. It does
                not apply to a Spark DataFrame, whose session has a zone.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The builder of the MERGE. Metrics of its result: ``num_source_rows``, ``num_target_rows_inserted``,
            ``num_target_rows_updated``, ``num_target_rows_deleted``, ``num_target_rows_copied``, ``num_output_rows``,
            ``num_target_files_added``, ``num_target_files_removed``.

        Example::

            merge = table.merge(rows, "s.id = t.id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        """
        from refdelta.api.merge_builder import TableMerger
        from refdelta.operations.merge.plan import MergeRequest
        from refdelta.transaction.options import check_options

        check_options(options)
        handle = self._handle
        handle.check_readable_again(source, options)
        return TableMerger(
            MergeRequest.of(predicate, source_alias, target_alias, merge_schema, timezone),
            lambda request: handle.run(lambda txn: txn.merge(source, request), options),
        )

    @property
    def alter(self) -> TableAlterer:
        """ALTER TABLE: changes of properties, columns, constraints and features.

        Example::

            table.alter.add_columns(pa.field("town", pa.string()))
        """
        from refdelta.api.alter import TableAlterer

        return TableAlterer(self._handle)

    @property
    def optimize(self) -> TableOptimizer:
        """OPTIMIZE: rewrite files without changing rows.

        Example::

            table.optimize.compact()
        """
        from refdelta.api.optimizer import TableOptimizer

        return TableOptimizer(self._handle)

    def reorg_purge(
        self,
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Rewrite all files that have deletion vectors, so that no live file holds deleted rows (REORG TABLE APPLY
        (PURGE)). ``vacuum`` then removes the old files.

        Args:
            partition_filters: the partitions: SQL over partition columns, or deltalake's list of conditions.
            target_size: the size of a new file, in bytes; None for ``delta.targetFileSize``, or 128 MiB if that is not
                set.
            max_concurrent_tasks: the number of files written at once.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the commit, with the metrics of :meth:`refdelta.api.optimizer.TableOptimizer.compact`;
            ``version`` is None if no file had a deletion vector.

        Raises:
            InvalidArgumentError: a filter uses a column that is not a partition column, or a size is not positive.
            ConcurrentModificationError: another writer's commit conflicts, as for ``optimize.compact``.

        Example::

            table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})
            table.delete("id = 1")
            table.reorg_purge()
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
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Enable ``icebergCompatV2``, and rewrite the table's files for it (REORG TABLE APPLY (UPGRADE UNIFORM)).

        Implements PROTOCOL.md, "Iceberg Compatibility V2": columns are mapped, the elements of arrays and maps have
        ids, files hold the partition columns, and there are no deletion vectors. It is one commit, which conflicts with
        every concurrent commit that adds or removes files. No Iceberg metadata is written; other engines write it from
        such a table.

        Args:
            iceberg_compat_version: 2.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`. ``isolation`` is always
                ``Serializable``.

        Returns:
            The result of the commit; ``version`` is None if the table was upgraded already.

        Raises:
            InvalidArgumentError: Iceberg cannot represent the table, for example the type of a column.
            ConcurrentModificationError: another writer's commit conflicts.

        Example::

            table.reorg_upgrade_uniform()
            table.metadata().configuration["delta.enableIcebergCompatV2"]
        """
        options["isolation"] = "Serializable"
        return self._handle.run(lambda txn: txn.upgrade_uniform(iceberg_compat_version), options)

    def restore(
        self,
        target: Version,
        *,
        ignore_missing_files: bool = False,
        **options: Unpack[StatementOptions],
    ) -> CommitResult:
        """Restore the rows, schema, partition columns and properties of an earlier version, as a new version. Only the
        log is written.

        The protocol keeps all of its features, and the recorded versions of applications stay. A version older than the
        retention can be restored as long as its files exist; do not run VACUUM at the same time.

        Args:
            target: a version, or a time as a datetime or an ISO 8601 string (UTC if it names no zone), which stands for
                the last version committed at or before it.
            ignore_missing_files: restore the remaining files if some files of that version are gone.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the commit; ``version`` is None if the table is in that state already. Metrics:
            ``table_size_after_restore`` (bytes), ``num_of_files_after_restore``, ``num_removed_files``,
            ``num_restored_files``, ``removed_files_size``, ``restored_files_size``; ``numRemovedFile`` and
            ``numRestoredFile`` are deltalake's names of two of them.

        Raises:
            VersionNotFoundError: the table has no such version, or no longer.
            DataFileNotFoundError: files of that version are gone; the message names them.
            ConstraintViolationError: the table is append-only, and rows would be removed.
            UnsupportedFeatureError: the table would need a feature that this engine cannot write.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.

        Example::

            table.delete()
            table.restore(0)
        """
        return self._handle.run(lambda txn: txn.restore(target, ignore_missing_files=ignore_missing_files), options)

    def repair(self, dry_run: bool = False, **options: Unpack[StatementOptions]) -> CommitResult:
        """Remove the entries of data files that do not exist any more, so that the other rows can be read again.

        Spark calls it ``FSCK REPAIR TABLE``. The rows of these files are lost already: look for the files first, for
        example in older versions that the store keeps. Files are asked for one by one. A file whose deletion vector is
        gone stays.

        Args:
            dry_run: only look for the files.
            options: how to commit; see :class:`~refdelta.transaction.options.StatementOptions`.

        Returns:
            The result of the commit; ``version`` is None if no file is gone, or after a dry run. Metrics: ``dry_run``,
            and ``files_removed``, a list of paths relative to the table's folder.

        Raises:
            ConstraintViolationError: the table is append-only, and files are gone.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.

        Example::

            write_deltalake(table, rows, mode="append")
            Path(table.file_uris()[0]).unlink()
            table.repair()["files_removed"]
        """
        from refdelta.operations.maintenance.repair import missing_names, repair
        from refdelta.transaction.options import without_attempts
        from refdelta.transaction.results import CommitResult

        only_look = arguments.flag("dry_run", dry_run)
        if only_look:
            with self._handle.begin(**without_attempts(options)) as txn:
                metrics = {"dry_run": True, "files_removed": missing_names(txn.existing)}
                return CommitResult(version=None, metrics=metrics)
        return self._handle.run(lambda txn: txn.run("repair", repair), options)

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
        """Remove the files that no retained version needs; by default, only list them.

        A version is retained if it was the newest one at some time within the retention. Its data files and the files
        of their deletion vectors stay; older versions become unreadable. Never removed are: files written within the
        retention by the store's clock, since a writer may be about to commit them; the log; files outside of the
        table's folder, or of another table within it; and names that begin with ``_`` or ``.`` at any depth, except
        Delta's own.

        By default, VACUUM removes the files that the log names as removed, and leftovers that only an engine writes:
        files of deletion vectors, ``_change_data``, and temporary files of killed writers. ``full=True`` also removes
        all other files of the table's folder: data files that a killed writer never committed, and files of other
        programs, which cannot be distinguished from these. (deltalake removes only the first kind by default. Spark's
        VACUUM is the full one, and its VACUUM LITE is the default here.) The background work of this process on the
        table is done before.

        Args:
            retention_hours: the retention in hours; None for the table's ``delta.deletedFileRetentionDuration``, which
                is one week by default.
            dry_run: only list the files; nothing is removed, and nothing is written to the log.
            enforce_retention_duration: refuse a retention shorter than the table's. Pass False only if no program reads
                older versions or writes to the table.
            full: also remove files that the log does not name.
            keep_versions: further versions that stay readable.
            commit_properties: notes in the two commits VACUUM START and VACUUM END, which are made only if there are
                files to remove.
            progress: called with the number of files removed so far, and the number of all files to remove.
            executor: removes the files; see :meth:`begin`. This process selects them.

        Returns:
            The files that were removed, or would be removed: a list of keys relative to the table's folder.

        Raises:
            InvalidArgumentError: the retention is shorter than the table's, or is not a number.
            VersionNotFoundError: a version of ``keep_versions`` cannot be read.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write (PROTOCOL.md, "VACUUM
                Protocol Check").
            StoreError: the store refused or failed; files that are not removed yet stay.

        Example::

            table.vacuum()  # lists the files
            table.vacuum(retention_hours=720, dry_run=False)
        """
        from refdelta.operations.maintenance.vacuum import VacuumRequest, vacuum
        from refdelta.transaction import background

        request = VacuumRequest(
            retention_hours=retention_hours,
            enforce_retention_duration=arguments.flag("enforce_retention_duration", enforce_retention_duration),
            full=arguments.flag("full", full),
            keep_versions=keep_versions,
        )
        background.settle(self._handle.store.uri)  # its unfinished files would count as leftovers
        result, snapshot = vacuum(
            self._handle.newest_for_writing(),
            request,
            dry_run=arguments.flag("dry_run", dry_run),
            commit_properties=commit_properties,
            progress=progress,
            executor=executor,
        )
        self._handle.adopt(snapshot)
        return result

    def generate(self, mode: Literal["symlink_format_manifest"] = "symlink_format_manifest") -> list[str]:
        """Write lists of the files of this version for engines that read Parquet and no Delta log, such as Presto.

        Spark calls it ``GENERATE symlink_format_manifest``. The lists are in the folder ``_symlink_format_manifest``,
        one a partition. They do not change with later commits: call it again after them.

        Args:
            mode: the kind of lists; there is one.

        Returns:
            The paths of the lists, relative to the table's folder.

        Raises:
            UnsupportedFeatureError: files have deletion vectors, or the table has column mapping: the readers would see
                deleted rows, or other columns.

        Example::

            table.generate()
        """
        from refdelta.operations.maintenance.symlink_manifest import write_manifests

        if mode != "symlink_format_manifest":
            raise InvalidArgumentError(f"mode is 'symlink_format_manifest', not {mode!r}")
        return write_manifests(self._handle.snapshot)

    # --- maintenance of the log ---

    def create_checkpoint(self, *, top_level: Literal["parquet", "json"] = "parquet") -> None:
        """Write a checkpoint of this version, and point ``_last_checkpoint`` at it (PROTOCOL.md, "Checkpoints").

        Args:
            top_level: the format of its file; ``json`` needs ``delta.checkpointPolicy`` = ``v2``.

        Raises:
            InvalidArgumentError: JSON for a table with classic checkpoints; or the table protects the checkpoints of
                versions as early as this one.
            InvalidLogError: the version's checksum contradicts the log, so one of them is damaged.
            UnsupportedFeatureError: the version needs a feature that this engine cannot write.

        Example::

            table.create_checkpoint()
        """
        from refdelta.engine.log.checkpoint_write import write_checkpoint
        from refdelta.transaction import background

        if top_level not in ("parquet", "json"):
            raise InvalidArgumentError(f"top_level is one of 'parquet', 'json', not {top_level!r}")
        self._handle.snapshot.check_writable()
        protected = self._handle.snapshot.advance().properties.require_checkpoint_protection_before_version
        if self.version() < protected:
            raise InvalidArgumentError(
                f"version {self.version()} can have no further checkpoint: the table protects the checkpoints before "
                f"version {protected} (delta.requireCheckpointProtectionBeforeVersion)"
            )
        self._handle.snapshot.check_checksum()
        background.settle(self._handle.store.uri)  # the checkpoints of earlier commits come first
        write_checkpoint(self._handle.store, self._handle.snapshot, top_level=top_level)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait for the background work of this process on this table: the checkpoints, checksums, log compaction files,
        cleanups and publications that follow its commits, by this handle and by others.

        Args:
            timeout: the most seconds to wait; None for any time.

        Returns:
            True if all of it is done, False if the time was over.

        Raises:
            InvalidArgumentError: the timeout is no number, or negative.

        Example::

            write_deltalake(table, rows, mode="append")
            table.settle()
        """
        from refdelta.transaction import background

        return background.settle(self._handle.store.uri, arguments.seconds("timeout", timeout))

    def compact_logs(self, starting_version: int | None = None, ending_version: int | None = None) -> None:
        """Write a log compaction file: the actions of a range of commits in one file, which readers read instead of
        these commits (PROTOCOL.md, "Log Compaction Files").

        The commits stay. For a table with many files it is cheaper than a checkpoint.

        Args:
            starting_version: the first version; None for the first one after the newest checkpoint.
            ending_version: the last version; None for the newest.

        Raises:
            VersionNotFoundError: the log lacks the commit of one of these versions.
            InvalidArgumentError: the range ends before it begins, or its commits are too large to be held in memory.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.

        Example::

            table.delete("id = 1")
            table.compact_logs(0, table.version())
        """
        from refdelta.engine.log.log_compaction import compact_log

        self._handle.newest_for_writing().check_writable()
        start = arguments.whole("starting_version", starting_version)
        compact_log(self._handle.store, self._handle.snapshot, start, arguments.whole("ending_version", ending_version))

    def cleanup_metadata(self) -> int:
        """Remove log files older than ``delta.logRetentionDuration``, by the store's clock, that no retained version
        needs.

        Returns:
            The number of files that were removed.

        Raises:
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.

        Example::

            table.cleanup_metadata()
        """
        from refdelta.engine.log.cleanup import cleanup_log
        from refdelta.engine.log.store_clock import store_time
        from refdelta.transaction import background

        background.settle(self._handle.store.uri)
        self._handle.newest_for_writing().check_writable()
        return len(cleanup_log(self._handle.store, self._handle.snapshot, now_ms=store_time(self._handle.store)))
