"""What a table is at a version, and its rows: the part of :class:`refdelta.DeltaTable` that changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from refdelta import arguments
from refdelta.api.handle import Handle
from refdelta.errors import InvalidArgumentError

# What a method needs beyond that, it imports: who reads one table shall not wait for the verbs.
if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    import pandas as pd
    import pyarrow as pa

    from refdelta.core.log.actions import Metadata, Protocol
    from refdelta.engine.scan.scan import Scan
    from refdelta.schema import Schema


class Reading(Handle):
    """A table that is looked at."""

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
        """The last version that the application ``app_id`` recorded, or None where it recorded none (PROTOCOL.md,
        "Transaction Identifiers").

        Args:
            app_id: its name, as writers give it with ``app_version``.
        """
        txn = self._snapshot.txns.get(app_id)
        return None if txn is None else txn.version

    def domain_metadata(self) -> dict[str, str]:
        """The metadata domains of the table and what each says (PROTOCOL.md, "Domain Metadata"), those of the engines,
        whose names begin with ``delta.``, among them.
        """
        return {name: domain.configuration for name, domain in self._snapshot.domains.items()}

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """One mapping a version, newest first: the fields of its commitInfo and its ``version``; ``timestamp`` in
        milliseconds since 1970. Versions whose commits were cleaned up are not told any more.

        Args:
            limit: how many at most; None for all.

        Raises:
            InvalidArgumentError: the limit is no number, or negative.
            InvalidLogError: a commit breaks the protocol.
        """
        from refdelta.operations.maintenance.history import history

        if (limit := arguments.whole("limit", limit)) is not None and limit < 0:
            raise InvalidArgumentError(f"limit is not negative, but {limit} is")
        return list(history(self._snapshot, limit))

    def detail(self) -> dict[str, Any]:
        """What Spark's DESCRIBE DETAIL shows: id, location, number and size of files, properties, protocol."""
        from refdelta.operations.maintenance import describe

        return describe.detail(self._snapshot)

    def files(self) -> pa.Table:
        """The live files, a row each: path, partition values, size in bytes, modification time, rows, deleted rows."""
        from refdelta.operations.maintenance import describe

        return describe.files(self._snapshot)

    def file_uris(self) -> list[str]:
        """The live files as full URIs, or as paths where the table is local."""
        from refdelta.operations.maintenance import describe

        return describe.file_uris(self._snapshot)

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        """The live files with partition values and statistics, in the columns that deltalake gives them.

        Args:
            flatten: one column a leaf (``min.a``, ``partition.p``) instead of structs.
        """
        from refdelta.operations.maintenance import describe

        return describe.add_actions(self._snapshot, flatten=flatten)

    def partitions(self) -> list[dict[str, Any]]:
        """The partitions that have live files, each as a mapping of column to value."""
        from refdelta.operations.maintenance import describe

        return describe.partitions(self._snapshot)

    # --- reading ---

    def scan(self, columns: Sequence[str] | None = None, predicate: Any = None) -> Scan:
        """Plan a read: which files, which are pruned and why. Nothing is read yet.

        Args:
            columns: names of top-level columns, in the order wanted; None for all. Where the table tracks rows,
                ``_metadata.row_id`` and ``_metadata.row_commit_version`` are columns, too, but not among all.
            predicate: SQL in Spark's dialect, a ``pyarrow.compute.Expression``, or the list form that deltalake
                takes. It may look at the row ids in any case. Rows for which it is null are left out.

        Returns:
            The scan: ``explain()`` says what it reads, ``to_table()``, ``to_batches()`` and the Arrow C stream read it,
            as often as wanted.

        Raises:
            ColumnNotFoundError: there is no such column.
            PredicateError: the predicate cannot be parsed or bound.
            DataFileError: when it is read: a file is damaged, or gone (``DataFileNotFoundError``).
        """
        from refdelta.engine.scan.scan import plan_scan

        return plan_scan(self._snapshot, columns=columns, predicate=predicate)

    def to_record_batch_reader(self, columns: Sequence[str] | None = None, filters: Any = None) -> pa.RecordBatchReader:
        """Stream the rows; memory is bounded by a few batches, whatever the size of the table.

        Args:
            columns: as for :meth:`scan`.
            filters: as :meth:`scan` takes its predicate. Errors are those of it, too.
        """
        return self.scan(columns, filters).to_reader()

    def to_pyarrow_table(self, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
        """All rows as one table, in memory.

        Args:
            columns: as for :meth:`scan`.
            filters: as :meth:`scan` takes its predicate. Errors are those of it, too.
        """
        return self.scan(columns, filters).to_table()

    def to_pandas(self, columns: Sequence[str] | None = None, filters: Any = None, **options: Any) -> pd.DataFrame:
        """All rows as a pandas frame.

        Args:
            columns: as for :meth:`scan`.
            filters: as :meth:`scan` takes its predicate. Errors are those of it, too.
            options: go to ``pyarrow.Table.to_pandas``, such as ``types_mapper``.
        """
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
        from refdelta.operations.dml.change_feed import Range, changes

        asked = Range(starting_version, ending_version, starting_timestamp, ending_timestamp, allow_out_of_range)
        return changes(self._snapshot, asked, columns=columns, predicate=predicate).to_reader()

    def count(self) -> int:
        """How many rows the table has: from statistics where all files carry them, else by reading."""
        return self.scan(columns=[]).count()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)
