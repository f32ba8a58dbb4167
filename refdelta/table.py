"""``DeltaTable``: the public face. Short: each method calls the module that knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from refdelta import arguments
from refdelta.engine.listing import has_log
from refdelta.engine.snapshot import Snapshot, load_snapshot
from refdelta.errors import (
    InvalidArgumentError,
    ProtocolChangedException,
    ReadOnlyTableError,
    TableAlreadyExistsError,
)
from refdelta.location import open_location, with_others

# What a method needs beyond that, it imports: who reads one table shall not wait for the verbs.
if TYPE_CHECKING:
    import datetime as dt
    import os
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

    from refdelta.alter import TableAlterer
    from refdelta.engine.executor import Executor
    from refdelta.engine.scan import Scan
    from refdelta.merger import TableMerger
    from refdelta.ops.declared import Identity
    from refdelta.ops.merge_clauses import Clause
    from refdelta.ops.vacuum import Progress
    from refdelta.optimizer import TableOptimizer
    from refdelta.protocol.actions import Metadata, Protocol
    from refdelta.results import CommitProperties, CommitResult, VacuumResult
    from refdelta.schema import Schema
    from refdelta.time_travel import Version
    from refdelta.transaction import WriteTransaction
    from refdelta_storage import Store

_MOMENT = 2.0
"""For how many seconds a handle that appends takes what was the newest version for the newest one."""


class DeltaTable:
    """A handle on a Delta table, at one version.

    Args:
        table_uri: where the table is: a path, ``file://``, ``memory://`` or a URI that fsspec knows.
        version: a version, or a time as a datetime or an ISO 8601 string (UTC where it names no zone) for the last
            version that was committed by then. A handle that is made so is read-only. None for the newest.
        storage_options: what the store needs, by the names of s3fs, adlfs or deltalake.
        outside: other folders from which files may be read where the log names them, with the same storage options: of
            a shallow clone, the table that was cloned. Nothing is written there. Without it, a log that names files
            outside of the table's folder is refused.

    Raises:
        TableNotFoundError: there is no table.
        VersionNotFoundError: the table has no such version, or no longer.
        InvalidLogError: the log breaks the protocol.
        UnsupportedFeatureError: the table needs a feature that this engine cannot read.
    """

    # What was seen to be the newest version, and when; None where others are known to write.
    _seen: tuple[Snapshot, float] | None = None

    def __init__(
        self,
        table_uri: str | os.PathLike[str],
        version: Version | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        outside: Sequence[str | os.PathLike[str]] = (),
    ):
        self._store = with_others(open_location(table_uri, storage_options), outside, storage_options)
        self._pinned = version is not None
        if version is None:
            began = time.monotonic()
            self._snapshot = load_snapshot(self._store)
            self._seen = self._snapshot, began
        else:
            self.load_as_version(version)

    # --- making and finding tables ---

    @classmethod
    def create(
        cls,
        table_uri: str | os.PathLike[str],
        schema: Any,
        mode: str = "error",
        partition_by: Sequence[str] | str | None = None,
        name: str | None = None,
        description: str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        cluster_by: Sequence[str] | str | None = None,
        generated: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        identity: Mapping[str, Identity] | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> DeltaTable:
        """Create a table without rows.

        Args:
            table_uri: where.
            schema: a :class:`~refdelta.schema.Schema`, or anything with ``__arrow_c_schema__``.
            mode: what to do where the table exists: ``error``, ``ignore``, or ``overwrite``, which replaces it by this
                one, with other columns and properties, in the same history.
            partition_by: the partition columns, in order.
            name: its name.
            description: its description.
            configuration: its table properties.
            storage_options: what the store needs.
            cluster_by: the clustering columns, as :func:`refdelta.write_deltalake` takes them.
            generated: of columns, the SQL that their values are made by: of the other columns, and of the column's
                type. Writers leave them out, or give just these values.
            defaults: of columns, the SQL of the values that they have where a writer leaves them out.
            identity: which columns are identity columns, :class:`refdelta.Identity` by name: their type is long, and
                the table numbers its rows in them. Of two writers at once to such a table, one fails.
            commit_properties: what to note in the commit.

        Raises:
            TableAlreadyExistsError: the table exists and the mode is ``error``.
            InvalidArgumentError: a column that does not exist, or what ``generated``, ``defaults`` or ``identity`` say
                of it cannot be.
            ConstraintViolationError: the table to be replaced is append-only.
            ProtocolChangedException: another writer created it meanwhile; not where the mode is ``ignore``, which takes
                that one.
            ConcurrentModificationError: another writer wrote to the table that is replaced.
        """
        from refdelta.ops import create as creation
        from refdelta.ops import target
        from refdelta.ops.declared import declared
        from refdelta.schema import struct_of
        from refdelta.staging import Staging

        if mode not in ("error", "ignore", "overwrite"):
            raise InvalidArgumentError(
                f"mode is one of 'error', 'ignore', 'overwrite', not {mode!r}; a table without rows has none to append"
            )
        store = open_location(table_uri, storage_options)
        snapshot = None
        if has_log(store):
            if mode == "error":
                raise TableAlreadyExistsError(f"there is a table at {store.uri}")
            if mode == "ignore":
                return cls(table_uri, storage_options=storage_options)
            snapshot = load_snapshot(store)
        made = target.new_table(
            declared(struct_of(schema), generated=generated, defaults=defaults, identity=identity),
            partition_by=partition_by,
            cluster_by=cluster_by,
            configuration=configuration,
            name=name,
            description=description,
            replaced=snapshot,
        )
        with Staging(store, snapshot, commit_properties=commit_properties) as txn:
            if snapshot is None:
                creation.create(txn, made, or_replace=mode == "overwrite")
            else:
                creation.replace(txn, snapshot, made)
            try:
                txn.commit()
            except ProtocolChangedException:
                if mode != "ignore":
                    raise
                return cls(table_uri, storage_options=storage_options)
        table = cls.__new__(cls)
        table._store, table._pinned = store, False  # noqa: SLF001 - of this class
        table.adopt(txn.result_snapshot or load_snapshot(store), alone=txn.alone)
        return table

    @classmethod
    def for_path(cls, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> DeltaTable:
        """The table at ``path``, by the name that delta-spark gives this call."""
        return cls(path, storage_options=storage_options)

    @staticmethod
    def is_deltatable(table_uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
        """Whether there is a log at this place. Whether it can be read is not looked at."""
        return has_log(open_location(table_uri, storage_options))

    # --- where the handle stands ---

    @property
    def table_uri(self) -> str:
        """Where the table is, without credentials."""
        return self._store.uri

    @property
    def store(self) -> Store:
        """The table's store."""
        return self._store

    @property
    def pinned(self) -> bool:
        """Whether the handle was made for one version, and is read-only."""
        return self._pinned

    def version(self) -> int:
        """The version that this handle sees."""
        return self._snapshot.version

    def load_as_version(self, version: Version) -> None:
        """Move the handle to a version or a time, and make it read-only. Errors are those of the constructor."""
        from refdelta.time_travel import snapshot_at

        self._snapshot, self._pinned, self._seen = snapshot_at(self._store, version), True, None

    def update_incremental(self) -> None:
        """Move the handle to the newest version, reading only what was committed since; a pinned handle is freed."""
        self._advance()
        self._pinned = False

    def newest_for_writing(self) -> Snapshot:
        """Move the handle to the newest version, as every verb does first.

        Raises ``ReadOnlyTableError`` for a pinned one.
        """
        if self._pinned:
            raise ReadOnlyTableError(
                f"this handle is pinned to version {self.version()} and read-only; "
                f"DeltaTable({self.table_uri!r}) can write"
            )
        return self._advance()

    def _advance(self) -> Snapshot:
        began = time.monotonic()
        self._snapshot = self._snapshot.advance()
        self._seen = self._snapshot, began
        return self._snapshot

    def adopt(self, snapshot: Snapshot, *, alone: bool = False) -> None:
        """Move the handle to the snapshot that its own commit left behind; ``alone``: nobody else had come first."""
        self._snapshot = snapshot
        self._seen = (snapshot, time.monotonic()) if alone else None

    def recent(self) -> tuple[Snapshot, float] | None:
        """The snapshot that was the newest one a moment ago, by a look at the log or as it is of the handle's own
        commit, and its age in seconds. None where others write too, where a checkpoint is due, which only a look at the
        log shows, and on a store of this machine, where a look costs nothing.
        """
        if self._seen is None or self._pinned or not self._store.capabilities.remote:
            return None
        snapshot, since = self._seen
        age = time.monotonic() - since
        return (snapshot, age) if age < _MOMENT and not snapshot.due_for_checkpoint else None

    # --- what the table is ---

    def schema(self) -> Schema:
        """The schema at this version."""
        from refdelta.schema import Schema

        return Schema(self._snapshot.schema)

    def metadata(self) -> Metadata:
        """The metaData action: id, name, description, partition_columns, configuration, created_time (milliseconds
        since 1970).
        """
        return self._snapshot.metadata

    def protocol(self) -> Protocol:
        """The protocol action: versions and table features."""
        return self._snapshot.protocol

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that the application ``app_id`` recorded, or None (PROTOCOL.md, "Transaction
        Identifiers").
        """
        txn = self._snapshot.txns.get(app_id)
        return None if txn is None else txn.version

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """One mapping a version, newest first: the fields of its commitInfo and its ``version``; ``timestamp`` in
        milliseconds since 1970.
        """
        from refdelta.ops.history import history

        if (limit := arguments.whole("limit", limit)) is not None and limit < 0:
            raise InvalidArgumentError(f"limit is not negative, but {limit} is")
        return list(history(self._snapshot, limit))

    def detail(self) -> dict[str, Any]:
        """What Spark's DESCRIBE DETAIL shows: id, location, number and size of files, properties, protocol."""
        from refdelta.ops import describe

        return describe.detail(self._snapshot)

    def files(self) -> pa.Table:
        """The live files, a row each: path, partition values, size in bytes, modification time, rows, deleted rows."""
        from refdelta.ops import describe

        return describe.files(self._snapshot)

    def file_uris(self) -> list[str]:
        """The live files as full URIs, or as paths where the table is local."""
        from refdelta.ops import describe

        return describe.file_uris(self._snapshot)

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        """The live files with partition values and statistics, in the columns that deltalake gives them.

        Args:
            flatten: one column a leaf (``min.a``, ``partition.p``) instead of structs.
        """
        from refdelta.ops import describe

        return describe.add_actions(self._snapshot, flatten=flatten)

    def partitions(self) -> list[dict[str, Any]]:
        """The partitions that have live files, each as a mapping of column to value."""
        from refdelta.ops import describe

        return describe.partitions(self._snapshot)

    # --- reading ---

    def scan(self, columns: Sequence[str] | None = None, predicate: Any = None) -> Scan:
        """Plan a read: which files, which are pruned and why. Nothing is read yet.

        Args:
            columns: names of top-level columns, in the order wanted; None for all.
            predicate: SQL in Spark's dialect, a ``pyarrow.compute.Expression``, or the list form that deltalake
                takes.
        """
        from refdelta.engine.scan import plan_scan

        return plan_scan(self._snapshot, columns=columns, predicate=predicate)

    def to_record_batch_reader(self, columns: Sequence[str] | None = None, filters: Any = None) -> pa.RecordBatchReader:
        """Stream the rows; memory is bounded by a few batches, whatever the size of the table."""
        return self.scan(columns, filters).to_reader()

    def to_pyarrow_table(self, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
        """All rows as one table. ``filters`` as :meth:`scan` takes its predicate."""
        return self.scan(columns, filters).to_table()

    def to_pandas(self, columns: Sequence[str] | None = None, filters: Any = None, **options: Any) -> pd.DataFrame:
        """All rows as a pandas frame; ``options`` go to ``pyarrow.Table.to_pandas``."""
        return self.to_pyarrow_table(columns, filters).to_pandas(**options)

    def load_cdf(
        self,
        starting_version: int | None = None,
        ending_version: int | None = None,
        starting_timestamp: str | dt.datetime | None = None,
        ending_timestamp: str | dt.datetime | None = None,
        columns: Sequence[str] | None = None,
        predicate: Any = None,
        allow_out_of_range: bool = False,
    ) -> pa.RecordBatchReader:
        """Stream what versions changed, row by row: the table's change data feed (PROTOCOL.md, "Change Data Files").

        Behind the columns of the table are ``_change_type`` (``insert``, ``delete``, ``update_preimage`` and
        ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``. The rows of a version stand together, in
        the order of versions.

        Args:
            starting_version: the first version; 0 unless said.
            ending_version: the last version; the one that this handle sees unless said, or where it is newer.
            starting_timestamp: a datetime or ISO 8601 string (UTC where it names no zone) in place of a version: the
                first version is the first that was committed then or later.
            ending_timestamp: likewise: the last version is the last that was committed by then.
            columns: names of columns, in the order wanted; None for all.
            predicate: as :meth:`scan` takes it; it may ask for the three columns, too.
            allow_out_of_range: whether changes that begin behind the newest version are none, and not an error.

        Raises:
            InvalidArgumentError: an end before the beginning, or a version at which ``delta.enableChangeDataFeed`` was
                not true.
            VersionNotFoundError: a version is not there, or no longer.
            SchemaMismatchError: columns were renamed, dropped or given another type between these versions.
        """
        from refdelta.ops.change_feed import Range, changes

        asked = Range(starting_version, ending_version, starting_timestamp, ending_timestamp, allow_out_of_range)
        return changes(self._snapshot, asked, columns=columns, predicate=predicate).to_reader()

    def count(self) -> int:
        """How many rows the table has: from statistics where all files carry them, else by reading."""
        return self.scan(columns=[]).count()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    # --- writing ---

    def begin(
        self,
        *,
        isolation: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> WriteTransaction:
        """Begin a transaction by hand, on the newest version. Nothing is visible before its ``commit()``.

        Args:
            isolation: ``WriteSerializable`` or ``Serializable``, at least as strict as the table's own level; None for
                that.
            app_id: with ``app_version``, makes it idempotent: it writes nothing if the table records this version of
                the application, or a later one.
            app_version: see ``app_id``.
            commit_properties: how to commit, and what to note in the commit.
            executor: who reads and writes the files of statements: threads of this process where it is None, the
                workers of a Spark cluster by :class:`refdelta.spark.SparkExecutor`. What is committed, and whether it
                may be, is decided here in any case.

        Raises:
            ReadOnlyTableError: the handle is pinned to a version.
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        """
        from refdelta.staging import Staging
        from refdelta.transaction import WriteTransaction

        snapshot = self.newest_for_writing()
        staging = Staging(
            self._store,
            snapshot,
            commit_properties=commit_properties,
            app_id=app_id,
            app_version=app_version,
            isolation=isolation,
            executor=executor,
        )
        return WriteTransaction(staging, snapshot, self._follow)

    def create_write_transaction(
        self,
        actions: Iterable[Any],
        mode: str,
        schema: Any,
        partition_by: Sequence[str] | str | None = None,
        *,
        partition_overwrite: str | None = None,
        isolation: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        commit_properties: CommitProperties | None = None,
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
            isolation: as for :meth:`begin`, like the arguments that follow.
            app_id: see :meth:`begin`.
            app_version: see :meth:`begin`.
            commit_properties: see :meth:`begin`.

        Raises:
            SchemaMismatchError: the files have other columns or types than the table.
            InvalidArgumentError: a file that cannot be one of the table: a path that leaves it, other partition
                columns, statistics that are none.
            UnsupportedFeatureError: a table whose files name their columns otherwise (column mapping).
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.
        """
        from refdelta.inserter import Told, WriteRequest, commit_files

        if mode not in ("append", "overwrite"):
            raise InvalidArgumentError(f"mode is one of 'append', 'overwrite', not {mode!r}: the table exists")
        request = WriteRequest(mode, partition_by, partition_overwrite=partition_overwrite)
        return commit_files(self, actions, request, schema, Told(commit_properties, app_id, app_version, isolation))

    def delete(
        self,
        predicate: str | None = None,
        *,
        isolation: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> CommitResult:
        """Delete the rows for which ``predicate`` is true, or all rows, in one commit.

        Rows for which the predicate is null stay, as in SQL. Files that hold other rows too are written anew.

        Args:
            predicate: SQL in Spark's dialect; None deletes every row.
            isolation: as for :meth:`begin`, like the arguments that follow.
            app_id: see :meth:`begin`.
            app_version: see :meth:`begin`.
            commit_properties: see :meth:`begin`.
            executor: see :meth:`begin`.

        Returns:
            What was committed; its version is None where no row matched. Metrics: ``num_added_files``,
            ``num_removed_files``, ``num_deleted_rows``, ``num_copied_rows``.

        Raises:
            PredicateError: the predicate cannot be parsed or bound.
            ConstraintViolationError: the table is append-only.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.
        """
        with self.begin(
            isolation=isolation,
            app_id=app_id,
            app_version=app_version,
            commit_properties=commit_properties,
            executor=executor,
        ) as txn:
            txn.delete(predicate)
            return txn.commit()

    def update(
        self,
        updates: Mapping[str, str] | None = None,
        new_values: Mapping[str, Any] | None = None,
        predicate: str | None = None,
        *,
        isolation: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> CommitResult:
        """Set columns of the rows for which ``predicate`` is true, or of all rows, in one commit.

        All expressions see the old values. A row whose partition column changes moves to its new partition.

        Args:
            updates: SQL expressions in Spark's dialect by column; a name with dots is a field of a struct.
            new_values: Python values by column; give one of the two.
            predicate: SQL; rows for which it is null stay as they are. None updates every row.
            isolation: as for :meth:`begin`, like the arguments that follow.
            app_id: see :meth:`begin`.
            app_version: see :meth:`begin`.
            commit_properties: see :meth:`begin`.
            executor: see :meth:`begin`.

        Returns:
            What was committed; its version is None where no row matched. Metrics: ``num_added_files``,
            ``num_removed_files``, ``num_updated_rows``, ``num_copied_rows``.

        Raises:
            PredicateError: SQL that cannot be parsed or bound, or a value that its column cannot hold.
            ConstraintViolationError: a null where the table has none, or a table that is append-only.
            ConcurrentModificationError: another writer's commit conflicts; nothing of this one is visible.
        """
        with self.begin(
            isolation=isolation,
            app_id=app_id,
            app_version=app_version,
            commit_properties=commit_properties,
            executor=executor,
        ) as txn:
            txn.update(updates, new_values, predicate)
            return txn.commit()

    def merge(
        self,
        source: Any,
        predicate: str,
        source_alias: str | None = "s",
        target_alias: str | None = "t",
        merge_schema: bool = False,
        *,
        isolation: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> TableMerger[CommitResult]:
        """Begin to put together a MERGE; its ``execute()`` runs it on the newest version, in one commit.

        Args:
            source: rows, as :func:`refdelta.write_deltalake` takes them. All of them are held in memory, of the table
                only pieces; a Spark DataFrame need not be, with a :class:`refdelta.spark.SparkExecutor`.
            predicate: ON: which rows of the source match which of the table; SQL in Spark's dialect.
            source_alias: the name of the source in all expressions.
            target_alias: the name of the table in all expressions.
            merge_schema: whether the table takes on the columns that only the source has and that a clause sets.
            isolation: as for :meth:`begin`, like the arguments that follow.
            app_id: see :meth:`begin`.
            app_version: see :meth:`begin`.
            commit_properties: see :meth:`begin`.
            executor: see :meth:`begin`.

        Returns:
            The MERGE, to which clauses are added. Metrics of its result: ``num_source_rows``,
            ``num_target_rows_inserted``, ``num_target_rows_updated``, ``num_target_rows_deleted``,
            ``num_target_rows_copied``, ``num_output_rows``, ``num_target_files_added``, ``num_target_files_removed``.
        """

        def run(clauses: tuple[Clause, ...]) -> CommitResult:
            with self.begin(
                isolation=isolation,
                app_id=app_id,
                app_version=app_version,
                commit_properties=commit_properties,
                executor=executor,
            ) as txn:
                txn.merge(source, predicate, source_alias, target_alias, merge_schema).add(clauses).execute()
                return txn.commit()

        from refdelta.merger import TableMerger

        return TableMerger(run)

    @property
    def alter(self) -> TableAlterer:
        """Changes of the table's properties and columns."""
        from refdelta.alter import TableAlterer

        return TableAlterer(self.begin)

    @property
    def optimize(self) -> TableOptimizer:
        """Fewer and better files for the same rows: ``optimize.compact()``, ``optimize.z_order(columns)``."""
        from refdelta.optimizer import TableOptimizer

        return TableOptimizer(self.begin)

    def reorg_purge(
        self,
        partition_filters: Any = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        *,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> CommitResult:
        """Rewrite all files that have deletion vectors, so that deleted rows are in no live file any more (REORG TABLE
        APPLY (PURGE)). ``vacuum`` then removes the old files.

        Args:
            partition_filters: which partitions: SQL over partition columns, or deltalake's list of conditions.
            target_size: up to how many bytes files are put together; None for ``delta.targetFileSize``, or else
                128 MiB.
            max_concurrent_tasks: how many files are written at once.
            commit_properties: how to commit, and what to note in the commit.
            executor: see :meth:`begin`; it decides how many files are written at once.

        Returns:
            What was committed, with the metrics of :meth:`refdelta.optimizer.TableOptimizer.compact`; its version is
            None where no file had a vector.

        Raises:
            InvalidArgumentError: a filter over columns that are no partition columns, or sizes that are not positive.
            ConcurrentModificationError: another writer's commit conflicts, as for ``optimize.compact``.
        """
        return self.optimize.purge(
            partition_filters,
            target_size,
            max_concurrent_tasks,
            commit_properties=commit_properties,
            executor=executor,
        )

    def reorg_upgrade_uniform(
        self,
        iceberg_compat_version: int = 2,
        *,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> CommitResult:
        """Give the table ``icebergCompatV2``, and rewrite its files for it (REORG TABLE APPLY (UPGRADE UNIFORM)).

        Implements PROTOCOL.md, "Iceberg Compatibility V2": columns are mapped, what is in arrays and maps has ids,
        files hold the partition columns, and there are no deletion vectors. One commit does it all; it conflicts with
        everybody who adds or removes files meanwhile. Metadata of Iceberg is not written: engines that do, do it from
        such a table.

        Args:
            iceberg_compat_version: 2.
            commit_properties: how to commit, and what to note in the commit.
            executor: see :meth:`begin`; it decides how many files are written at once.

        Returns:
            What was committed; its version is None where the table was such a one already.

        Raises:
            InvalidArgumentError: a table that Iceberg cannot have, such as for a column's type.
            ConcurrentModificationError: another writer's commit came first.
        """
        with self.begin(isolation="Serializable", commit_properties=commit_properties, executor=executor) as txn:
            txn.reorg_upgrade_uniform(iceberg_compat_version)
            return txn.commit()

    # --- files that are no longer needed ---

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
        from refdelta.ops.vacuum import Vacuum, vacuum

        request = Vacuum(
            retention_hours=retention_hours,
            enforce_retention_duration=enforce_retention_duration,
            full=full,
            keep_versions=keep_versions,
        )
        result, snapshot = vacuum(
            self.newest_for_writing(),
            request,
            dry_run=dry_run,
            commit_properties=commit_properties,
            progress=progress,
            executor=executor,
        )
        self._follow(snapshot)
        return result

    # --- back to an earlier version ---

    def restore(
        self,
        target: Version,
        *,
        ignore_missing_files: bool = False,
        isolation: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        commit_properties: CommitProperties | None = None,
        executor: Executor | None = None,
    ) -> CommitResult:
        """Make the table what it was: rows, schema, partition columns and properties of an earlier version, in a new
        version. Only the log is written.

        The protocol never loses a feature, and versions that applications have recorded stay. A version that is older
        than the retention can be restored while its files are there; no VACUUM may run then.

        Args:
            target: a version, or a time as a datetime or an ISO 8601 string (UTC where it names no zone) for the last
                version that was committed by then.
            ignore_missing_files: whether to restore what is left where files of that version are gone.
            isolation: as for :meth:`begin`, like the arguments that follow.
            app_id: see :meth:`begin`.
            app_version: see :meth:`begin`.
            commit_properties: see :meth:`begin`.
            executor: see :meth:`begin`.

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
        with self.begin(
            isolation=isolation,
            app_id=app_id,
            app_version=app_version,
            commit_properties=commit_properties,
            executor=executor,
        ) as txn:
            txn.restore(target, ignore_missing_files=ignore_missing_files)
            return txn.commit()

    def _follow(self, snapshot: Snapshot, *, alone: bool = False) -> None:
        if not self._pinned:
            self.adopt(snapshot, alone=alone)

    def shallow_clone(
        self,
        target: str | os.PathLike[str],
        version: Version | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        commit_properties: CommitProperties | None = None,
    ) -> DeltaTable:
        """Make another table that begins as this one is, without a copy of its files: its log names them in place.

        The two go on apart. The clone breaks where VACUUM removes files of this table that it still needs. It is read
        with ``DeltaTable(target, outside=[this table])``, and by delta-spark as it is.

        Args:
            target: where the clone is to be; there is no table there yet.
            version: a version of this table, or a time; None for what this handle sees.
            storage_options: what the clone's store needs; None for nothing.
            commit_properties: how to commit, and what to note in the commit.

        Returns:
            A handle on the clone, which reads this table's folder too.

        Raises:
            TableAlreadyExistsError: there is a table already.
            VersionNotFoundError: this table has no such version.
            UnsupportedFeatureError: the clone would need a feature that this engine cannot write, or tracks rows.
            ProtocolChangedException: another writer created the table meanwhile.
        """
        from refdelta.ops.clone import clone
        from refdelta.staging import Staging
        from refdelta.time_travel import snapshot_at

        source = self._snapshot if version is None else snapshot_at(self._store, version)
        store = open_location(target, storage_options)
        if has_log(store):
            raise TableAlreadyExistsError(f"there is a table at {store.uri}")
        with Staging(store, None, commit_properties=commit_properties) as txn:
            clone(txn, source)
            txn.commit()
        from refdelta.engine.annexed import AnnexedStore

        there = type(self).__new__(type(self))
        beside = self._store.annexes if isinstance(self._store, AnnexedStore) else ()
        own = self._store.inner if isinstance(self._store, AnnexedStore) else self._store
        there._store, there._pinned = AnnexedStore(store, [own, *beside]), False  # noqa: SLF001 - of this class
        there.adopt(load_snapshot(there._store))  # noqa: SLF001
        return there

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
        from refdelta.engine.checkpoint_write import write_checkpoint
        from refdelta.engine.checksum_check import refuse_contradictions

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
        from refdelta.engine.log_compaction import compact_log

        self.newest_for_writing().check_writable()
        start = arguments.whole("starting_version", starting_version)
        compact_log(self._store, self._snapshot, start, arguments.whole("ending_version", ending_version))

    def cleanup_metadata(self) -> int:
        """Remove log files older than ``delta.logRetentionDuration`` that no retained version needs.

        Returns how many.

        Raises:
            UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        """
        from refdelta.engine.cleanup import cleanup_log

        self.newest_for_writing().check_writable()
        return len(cleanup_log(self._store, self._snapshot, now_ms=time.time_ns() // 1_000_000))

    def __repr__(self) -> str:
        return f"DeltaTable({self.table_uri!r}, version={self.version()})"
