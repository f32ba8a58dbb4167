"""The metadata and the rows of a table at a version: the part of :class:`refdelta.DeltaTable` that only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.api.awaiting import awaitable
from refdelta.arguments import missing_package
from refdelta.errors import InvalidArgumentError

# Methods import the rest when they are called: a program that only reads a table starts faster.
if TYPE_CHECKING:
    import datetime as dt
    import os
    from collections.abc import Mapping, Sequence

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset

    from refdelta.api.following import Follower
    from refdelta.api.handle import Handle
    from refdelta.api.table_scan import TableScan
    from refdelta.core.commit.intents import Fate
    from refdelta.core.log.actions import Metadata, Protocol
    from refdelta.engine.scan.scan import Scan
    from refdelta.operations.inspection.diff import VersionDiff
    from refdelta.operations.inspection.timeline import Timeline
    from refdelta.operations.maintenance.history import History
    from refdelta.schema import Schema
    from refdelta.transaction.time_travel import Version
    from refdelta_storage import Store


class Reading:
    """The methods of a table that read it."""

    _handle: Handle

    # --- the version ---

    @property
    def table_uri(self) -> str:
        """The URI of the table's folder, without credentials."""
        return self._handle.store.uri

    @property
    def store(self) -> Store:
        """The table's store."""
        return self._handle.store

    @property
    def pinned(self) -> bool:
        """True if the handle was opened at one version, and is read-only."""
        return self._handle.pinned

    def version(self) -> int:
        """The version that this handle reads."""
        return self._handle.snapshot.version

    def load_as_version(self, version: Version) -> None:
        """Move the handle to a version or a time, and make it read-only. If that fails, the handle does not change.

        Args:
            version: a version or a time, as the constructor takes it. Errors are those of the constructor.

        Example::

            table.load_as_version(0)
            table.count()
        """
        self._handle.pin(version)

    def update_incremental(self) -> None:
        """Move the handle to the newest version, by reading the commits since; a read-only handle becomes writable.

        Raises:
            TableNotFoundError: the table is gone.
            InvalidLogError: the log breaks the protocol; the handle does not change.
            UnsupportedFeatureError: the table now needs a feature that this engine cannot read.

        Example::

            write_deltalake(table.table_uri, rows, mode="append")
            table.update_incremental()
            table.count()
        """
        self._handle.advance()
        self._handle.pinned = False

    # --- metadata ---

    def schema(self) -> Schema:
        """The schema at this version.

        Example::

            [field.name for field in table.schema().fields]
        """
        from refdelta.schema import Schema

        return Schema(self._handle.snapshot.schema)

    def metadata(self) -> Metadata:
        """The metaData action: id, name, description, partition_columns, configuration, created_time (milliseconds
        since 1970).

        Example::

            table.metadata().partition_columns
        """
        return self._handle.snapshot.metadata

    def protocol(self) -> Protocol:
        """The protocol action: versions and table features (PROTOCOL.md, "Protocol Evolution").

        Example::

            table.protocol().min_writer_version
        """
        return self._handle.snapshot.protocol

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application recorded, or None if it recorded none (PROTOCOL.md, "Transaction
        Identifiers").

        Args:
            app_id: the application's id, which its writers give with ``app_version``.

        Example::

            write_deltalake(table, rows, mode="append", app_id="nightly", app_version=7)
            table.transaction_version("nightly")  # 7
        """
        txn = self._handle.snapshot.txns.get(app_id)
        return None if txn is None else txn.version

    def domain_metadata(self) -> dict[str, str]:
        """The metadata domains of the table, by name, with their configurations (PROTOCOL.md, "Domain Metadata").

        Includes the domains of engines, whose names begin with ``delta.``.

        Example::

            table.alter.set_domain_metadata("app.owner", "Ada")
            table.domain_metadata()["app.owner"]
        """
        return {name: domain.configuration for name, domain in self._handle.snapshot.domains.items()}

    def history(self, limit: int | None = None) -> History:
        """The commits of the table, newest first: a mapping each, with ``version`` and the fields of the commitInfo.

        ``timestamp`` is in milliseconds since 1970. Versions whose commits were cleaned up are missing. Of a damaged
        log, the versions that can be read are returned; a warning of the logger ``refdelta`` and the list's attribute
        ``damage`` say what is damaged. If the damage keeps the table from being opened, :meth:`read_history` reads it.

        Args:
            limit: the maximum number of commits; None for all. Older commits are not read, nor checked for damage.

        Returns:
            A list, with an attribute ``damage``: a tuple of ``InvalidLogError``, empty if no damage was found.

        Raises:
            InvalidArgumentError: the limit is not a whole number, or is negative.
            TableNotFoundError: the log is gone.

        Example::

            table.history(1)[0]["operation"]
            table.history().damage  # ()
        """
        from refdelta.operations.maintenance.history import collected, history

        return collected(self.table_uri, lambda damage: history(self._handle.snapshot, _limit(limit), damage))

    def outcome(self, transaction_id: str, *, withdraw: bool = False) -> Fate:
        """The state of a transaction by the log, for one whose commit did not say, such as that of a killed process.

        Args:
            transaction_id: its id, as ``CommitOutcomeUnknownError.txn_id`` and ``commitInfo.txnId`` have it.
            withdraw: commit an empty version that withdraws it, where the log does not name it yet. It is certain then
                that it will never be committed, and its work can be done again.

        Returns:
            ``kind`` is ``member`` (committed, alone or with others), ``refused``, ``withdrawn`` or ``open``: no commit
            file that the log still has names it. ``version`` names it first.

        Raises:
            StoreError: the store refused or failed.

        Example::

            table.outcome("a4000000-0000-4000-8000-000000000004").kind  # "open"
        """
        from refdelta.transaction import transaction
        from refdelta.transaction.intents import find

        arguments.text("transaction_id", transaction_id)
        store = self._handle.store
        if withdraw:
            transaction.withdraw(store, transaction_id)
        return find(store, transaction_id)

    @staticmethod
    def read_history(
        table_uri: str | os.PathLike[str],
        limit: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> History:
        """The commits of a log, as :meth:`history` returns them, without opening the table (the log may be damaged).

        Args:
            table_uri: the table's folder, as the constructor takes it.
            limit: as for :meth:`history`.
            storage_options: options of the store.

        Raises:
            InvalidArgumentError: the limit is not a whole number, or is negative.
            TableNotFoundError: there is no log.

        Example::

            write_deltalake(uri, rows)
            for commit in DeltaTable.read_history(uri, limit=3):
                print(commit["version"], commit["operation"])
        """
        from refdelta.engine.log.location import open_location
        from refdelta.operations.maintenance.history import collected, recorded_history

        store = open_location(table_uri, storage_options)
        return collected(store.uri, lambda damage: recorded_history(store, _limit(limit), damage))

    def timeline(
        self, limit: int | None = None, version: int | str | tuple[int | None, int | None] | None = None
    ) -> Timeline:
        """The versions of the table with the versions that they read and were committed over, from the log alone.

        An Arrow stream, oldest version first, that reads the log while it is consumed; its columns are those of
        :class:`~refdelta.operations.inspection.timeline.Timeline`. ``print`` draws it for a terminal, notebooks show a
        picture, ``to_svg()`` returns one. Drawn are the newest 20 versions, or those that are asked for, at most 1,000.
        Versions after that of this handle are included, and damage of the log is a column.

        Args:
            limit: the maximum number of versions, the newest ones; None for all.
            version: only this version, or a range: ``(first, last)``, where either may be None, or ``"3..7"``.

        Raises:
            InvalidArgumentError: the limit or the range is none.
            VersionNotFoundError: the log has no commit in the range.

        Example::

            print(table.timeline(limit=10))
            pa.table(table.timeline()).column("passed")
        """
        from refdelta.operations.inspection.timeline import timeline, version_range

        if (limit := arguments.whole("limit", limit)) is not None and limit < 1:
            raise InvalidArgumentError(f"limit is {limit}; at least one version is asked for")
        return timeline(self._handle.store, limit, *version_range(version))

    def diff(self, before: Version, after: Version | None = None) -> VersionDiff:
        """The difference of two versions: rows, columns, properties and protocol.

        An Arrow stream of the rows that only one of the versions has, each as often as it has it more often, with a
        column ``_change_type``: ``delete`` for rows of ``before``, ``insert`` for rows of ``after``. Rows come from the
        change data feed, if it covers the versions, else from the files that only one of the versions has. If columns
        were dropped or have other types, the columns that both versions have alike are compared.

        Args:
            before: a version or a time, as the constructor takes it.
            after: likewise; None for the version of this handle.

        Returns:
            The stream, with ``columns``, ``properties``, ``features`` and ``summary()``.

        Raises:
            VersionNotFoundError: a version does not exist, or no longer.
            DataFileNotFoundError: VACUUM removed files of a version; raised when the rows are read.

        Example::

            deleted = table.delete("id = 1").version
            pa.table(table.diff(deleted - 1, deleted)).to_pylist()
            table.diff(deleted - 1).summary()["deleted"]
        """
        from refdelta.operations.inspection.diff import VersionDiff
        from refdelta.transaction.time_travel import snapshot_at

        last = self._handle.snapshot if after is None else snapshot_at(self._handle.store, after, self._handle.timezone)
        return VersionDiff(snapshot_at(self._handle.store, before, self._handle.timezone), last)

    def detail(self) -> dict[str, Any]:
        """DESCRIBE DETAIL: id, location, number and size of files in bytes, properties, protocol.

        Example::

            table.detail()["size_in_bytes"]
        """
        from refdelta.operations.maintenance import describe

        return describe.detail(self._handle.snapshot)

    def files(self) -> pa.Table:
        """The live files, a row each: path, partition values, size in bytes, modification time, rows, deleted rows.

        Example::

            table.files().column("path")
        """
        from refdelta.operations.maintenance import describe

        return describe.files(self._handle.snapshot)

    def file_uris(self, filters: Any = None) -> list[str]:
        """The live files as full URIs; as paths if the table is local.

        Args:
            filters: the ``predicate`` of :meth:`scan`: only files that can hold rows for which it is true, by their
                partition values and statistics; None for all.

        Example::

            import pyarrow.parquet as pq

            pq.read_schema(table.file_uris()[0])
        """
        from refdelta.operations.maintenance import describe

        return describe.file_uris(
            self._handle.snapshot, None if filters is None else self._planned(predicate=filters).files
        )

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        """The live files with partition values and statistics, in the columns that deltalake returns.

        Args:
            flatten: one column for each leaf (``min.a``, ``partition.p``) instead of structs.

        Example::

            table.get_add_actions(flatten=True).column("max.id")
        """
        from refdelta.operations.maintenance import describe

        return describe.add_actions(self._handle.snapshot, flatten=flatten)

    def partitions(self, filters: Any = None) -> list[dict[str, Any]]:
        """The partitions that have live files, each as a mapping of column to value.

        Args:
            filters: the ``predicate`` of :meth:`scan`: only the partitions of files that can hold rows for which it is
                true; None for all.

        Example::

            write_deltalake(uri, rows, partition_by="day")
            DeltaTable(uri).partitions()[0]["day"]
        """
        from refdelta.operations.maintenance import describe

        return describe.partitions(
            self._handle.snapshot, None if filters is None else self._planned(predicate=filters).files
        )

    def deletion_vectors(self) -> pa.RecordBatchReader:
        """Stream the deletion vectors, a row for each live file that has one (PROTOCOL.md, "Deletion Vectors").

        Returns:
            A stream with the columns ``filepath``, the URI of the file, and ``selection_vector``, a list with an entry
            for each row of the file, in its order: false if the row is deleted. Memory is bounded by one vector.

        Raises:
            DataFileError: raised by the read: a vector is damaged, or gone (``DataFileNotFoundError``).

        Example::

            table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})
            table.delete("id = 2")
            table.deletion_vectors().read_all().column("selection_vector")
        """
        from refdelta.operations.maintenance import describe

        return describe.deletion_vectors(self._planned([]))

    # --- reading ---

    def scan(self, columns: Sequence[str] | None = None, predicate: Any = None) -> TableScan:
        """Plan a read: the files to read, and the files that are pruned and why. No data file is opened yet.

        Args:
            columns: names of columns, in the order of the result; None for all. ``s.a`` is the struct ``s`` with the
                field ``a`` alone; backticks are of a name with a dot. If the table tracks rows, ``_metadata.row_id``
                and ``_metadata.row_commit_version`` can be named, too; None leaves them out.
            predicate: SQL in Spark's dialect, a ``pyarrow.compute.Expression``, or deltalake's list of conditions. It
                may use the row ids even if ``columns`` does not name them. Rows for which it is null are left out.

        Returns:
            The scan. ``explain()`` describes it; ``to_table()``, ``to_batches()`` and the Arrow C stream read it, any
            number of times.

        Raises:
            ColumnNotFoundError: there is no such column.
            PredicateError: the predicate cannot be parsed or bound.
            DataFileError: raised by the read: a file is damaged, or gone (``DataFileNotFoundError``).

        Example::

            scan = table.scan(columns=["id"], predicate="day >= DATE '2026-01-01'")
            print(scan.explain())
            scan.to_table()
        """
        from refdelta.api.table_scan import TableScan

        return TableScan(self._planned(columns, predicate))

    def _planned(self, columns: Sequence[str] | None = None, predicate: Any = None) -> Scan:
        from refdelta.engine.scan.scan import plan_scan

        return plan_scan(self._handle.snapshot, columns=columns, predicate=predicate)

    def to_record_batch_reader(self, columns: Sequence[str] | None = None, filters: Any = None) -> pa.RecordBatchReader:
        """Stream the rows. Memory is bounded by a few batches, for tables of any size.

        Args:
            columns: as for :meth:`scan`.
            filters: the ``predicate`` of :meth:`scan`. Errors are those of :meth:`scan`.

        Example::

            for batch in table.to_record_batch_reader(columns=["id"]):
                batch.num_rows
        """
        return self._planned(columns, filters).to_reader()

    def to_pyarrow_table(self, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
        """All rows as one Arrow table in memory.

        Args:
            columns: as for :meth:`scan`.
            filters: the ``predicate`` of :meth:`scan`. Errors are those of :meth:`scan`.

        Example::

            table.to_pyarrow_table(filters=[("amount", ">", 10.0)])
        """
        return self._planned(columns, filters).to_table()

    to_pyarrow_table_async = awaitable(to_pyarrow_table)

    def to_pandas(self, columns: Sequence[str] | None = None, filters: Any = None, **options: Any) -> pd.DataFrame:
        """All rows as a pandas data frame.

        Args:
            columns: as for :meth:`scan`.
            filters: the ``predicate`` of :meth:`scan`. Errors are those of :meth:`scan`.
            options: arguments of ``pyarrow.Table.to_pandas``, such as ``types_mapper``. Without pandas,
                :class:`InvalidArgumentError` is raised before anything is read.

        Example::

            table.to_pandas(columns=["name", "amount"])
        """
        from importlib.util import find_spec

        if find_spec("pandas") is None:
            raise missing_package("to_pandas", "pandas")
        return self.to_pyarrow_table(columns, filters).to_pandas(**options)

    def to_polars(self, columns: Sequence[str] | None = None, filters: Any = None) -> pl.LazyFrame:
        """A Polars ``LazyFrame`` over this version; nothing is read before it is collected.

        Columns, conditions and limits are pushed down: comparisons, ``is_in``, ``is_between`` and ``is_null`` of whole
        numbers, strings, dates and times leave out files by partition values and statistics. Polars reads local files
        itself, without deleted rows, where it reads them right; else refdelta's scan does, so that every table can be
        read. ``scan().explain(readers=True)`` names the reader.

        Args:
            columns: as for :meth:`scan`, but whole columns: Polars selects fields itself.
            filters: the ``predicate`` of :meth:`scan`. Errors are those of :meth:`scan`.

        Raises:
            InvalidArgumentError: polars is not installed.

        Example::

            import polars as pl

            table.to_polars().filter(pl.col("id") > 1).select("id").collect()
        """
        from refdelta.api.lazy_readers import lazy_frame

        return lazy_frame(self._handle.snapshot, columns, filters)

    def to_duckdb(self, connection: Any = None, name: str | None = None) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation over this version.

        DuckDB reads local files itself, without deleted rows, where it reads them right; else it pushes columns and
        conditions into a pyarrow dataset (see :meth:`to_pyarrow_dataset`), or, where that would be wrong too, the rows
        are a stream of refdelta's scan, read whole for each query. ``scan().explain(readers=True)`` names the reader.

        Args:
            connection: a DuckDB connection; None for DuckDB's default one.
            name: a name for the table in SQL on this connection; None for none.

        Raises:
            InvalidArgumentError: duckdb is not installed.

        Example::

            table.to_duckdb().filter("id > 1").fetchall()
        """
        from refdelta.api.lazy_readers import relation

        return relation(self._handle.snapshot, connection, name)

    def to_pyarrow_dataset(
        self,
        partitions: Any = None,
        filesystem: Any = None,
        parquet_read_options: Any = None,
        schema: pa.Schema | None = None,
        as_large_types: bool = False,
        file_pruning_predicate: Any = None,
    ) -> pyarrow.dataset.Dataset:
        """A pyarrow ``Dataset`` whose fragments are the live files of this version, with deltalake's arguments.

        No file is opened. Afterwards, conditions leave files out by partition values and by the bounds in the log.

        Args:
            partitions: a condition on partition columns, as for :meth:`scan`; None for all files.
            filesystem: a file system of pyarrow or fsspec, or its URI, whose root is the table's folder; None for the
                store of this handle, with its options.
            parquet_read_options: a ``pyarrow.dataset.ParquetReadOptions``.
            schema: an Arrow schema in place of the table's.
            as_large_types: strings, binaries and lists with offsets of 64 bits; ``schema`` is preferred.
            file_pruning_predicate: in place of ``partitions``, a condition on any columns, as for :meth:`scan`: files
                in which no row can meet it are left out, and the rows of the others are not filtered.

        Raises:
            InvalidArgumentError: a dataset would read the table wrongly: deletion vectors, column mapping, a column
                of another name in a file, or of a type that pyarrow does not cast to the table's. The message says
                which. What only a footer shows is an error when the file is read.

        Example::

            import pyarrow.compute as pc

            table.to_pyarrow_dataset().to_table(filter=pc.field("id") > 1)
        """
        from refdelta.api.datasets import dataset_of

        return dataset_of(
            self._handle.snapshot,
            partitions=partitions,
            filesystem=filesystem,
            parquet_read_options=parquet_read_options,
            schema=schema,
            as_large_types=as_large_types,
            file_pruning_predicate=file_pruning_predicate,
        )

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
        """Stream the row changes of a range of versions: the change data feed (PROTOCOL.md, "Change Data Files").

        The columns of the table are followed by ``_change_type`` (``insert``, ``delete``, ``update_preimage`` or
        ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``. Rows are ordered by version.

        Args:
            starting_version: the first version; None for 0.
            ending_version: the last version; None, or a newer version than that of this handle, for this handle's.
            starting_timestamp: in place of ``starting_version``, a datetime or ISO 8601 string, without a zone of
                the handle's ``timezone``, or else UTC: begin with the first version committed at or after it.
            ending_timestamp: in place of ``ending_version``: end with the last version committed at or before it,
                the newest one for a later time.
            columns: names of columns, in the order of the result; None for all.
            predicate: as for :meth:`scan`; it may use the three further columns, too.
            allow_out_of_range: return no rows, instead of an error, for a range that begins after the newest version.

        Raises:
            InvalidArgumentError: the range ends before it begins, or ``delta.enableChangeDataFeed`` was not true at one
                of its versions.
            VersionNotFoundError: a version does not exist, or no longer.
            SchemaMismatchError: columns were renamed, dropped or given another type within the range.
            DataFileNotFoundError: when the reader comes to a change file that VACUUM has removed. A library that takes
                the reader by Arrow's C stream raises an error of its own, with the same message.

        Example::

            table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
            deleted = table.delete("id = 1")
            changes = table.load_cdf(starting_version=deleted.version).read_all()
            changes.column("_change_type")
        """
        from refdelta.operations.inspection.feed_range import FeedRange, changes

        asked = FeedRange(
            starting_version,
            ending_version,
            starting_timestamp,
            ending_timestamp,
            allow_out_of_range,
            self._handle.timezone,
        )
        return changes(self._handle.snapshot, asked, columns=columns, predicate=predicate).to_reader()

    def follow(
        self,
        since: str | int | None = None,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        filters: Any = None,
        max_bytes: int | None = None,
        interval: float = 1.0,
        change_feed: bool | None = None,
        ignore_deletes: bool = False,
        ignore_changes: bool = False,
        skip_change_commits: bool = False,
        fail_on_data_loss: bool = True,
    ) -> Follower:
        """Follow the table: its rows, then the changes of each later version, as they are committed.

        Iterate over the result, by ``for`` or ``async for``; it waits for the next version. Of a table that records its
        changes (``delta.enableChangeDataFeed``) the changes are those of :meth:`load_cdf`, and its first rows are
        inserted. Of any other table they are the rows that a commit adds; a commit that removes or changes rows stops
        the iteration with an error, unless an option says otherwise. Versions that change no row, such as those of
        OPTIMIZE, give none. The same position gives the same changes again, as long as the log has its versions. A
        position names the table, and the commit that was read last by its content: where the table was made anew, or
        restored from a copy that lacks this commit, the iteration ends with an error.

        Args:
            since: the position of the last change that was taken, or a version whose rows are known, so that the
                changes of the next one come first (-1: of version 0). None for all rows of the newest version first, or
                of that to which the handle is pinned.
            timeout: the iteration ends if there is no change for so many seconds, 0 for what is there now; None to wait
                for ever.
            columns: names of columns, in the order of the result; None for all.
            filters: the ``predicate`` of :meth:`scan`: only rows for which it is true.
            max_bytes: the size of data files, in bytes, after which the rows of a version are divided, so that a large
                one need not fit in memory; at least one file at a time. It counts as the power of two up to it. A
                larger one than that of the follower that made the position counts from the first version on that this
                cannot have given. Changes of the change feed are not divided. None: each version is one change.
            interval: the seconds between two looks at the log while there is nothing new.
            change_feed: whether the change data feed is read; None if the table records it and none of the next three
                is given.
            ignore_deletes: pass over commits that only remove whole files.
            ignore_changes: of commits that remove or change rows, give the rows of all files that they add: those that
                did not change come again.
            skip_change_commits: pass over commits that remove or change rows, with the rows that they add.
            fail_on_data_loss: whether commits that are not in the log any more are an error; otherwise they are passed
                over.

        Returns:
            A :class:`~refdelta.api.following.Follower` of :class:`refdelta.Change`: ``version``, ``position``,
            ``rows``, ``kind``, ``app_version`` and ``app_id``. It is a context manager; ``close()`` ends it from any
            thread.

        Raises:
            VersionNotFoundError: ``since`` is a version that the table does not have; or, as the following errors, in
                the iteration: a commit is not in the log any more.
            StreamStoppedError: a commit removes or changes rows, or changes the schema or the protocol. Of these, the
                rows before are taken: ``follow(since=position)`` goes on with the new schema.
            DataFileNotFoundError: VACUUM removed a file before its version was taken.
            InvalidArgumentError: an argument is none, the position is of another table, or the table was replaced: by
                another one, or by a copy of which a version that was read is another commit.

        Example::

            follower = table.follow(timeout=0)
            position = follower.position  # to be stored: follow(since=position) begins here, too
            for change in follower:
                once = {"app_id": change.app_id, "app_version": change.app_version}
                write_deltalake(uri, change.rows, mode="append", **once)
                position = change.position  # to be stored: follow(since=position) goes on from here
        """
        from refdelta.api.following import Follower

        return Follower(
            self._handle.snapshot if self._handle.pinned else self._handle.advance(),
            since,
            timeout,
            columns=columns,
            filters=filters,
            max_bytes=max_bytes,
            interval=interval,
            change_feed=change_feed,
            ignore_deletes=ignore_deletes,
            ignore_changes=ignore_changes,
            skip_change_commits=skip_change_commits,
            fail_on_data_loss=fail_on_data_loss,
        )

    def count(self, filters: Any = None) -> int:
        """The number of rows: from statistics if every file has them, else by reading.

        Args:
            filters: the ``predicate`` of :meth:`scan`: only rows for which it is true; None for all. Errors are those
                of :meth:`scan`.

        Example::

            table.count()
            table.count("amount > 10.0")
        """
        return self._planned([], filters).count()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._planned().__arrow_c_stream__(requested_schema)


def _limit(limit: int | None) -> int | None:
    if (limit := arguments.whole("limit", limit)) is not None and limit < 0:
        raise InvalidArgumentError(f"limit is {limit}; it cannot be negative")
    return limit
