"""The data source ``refdelta``: tables by ``spark.read.format("refdelta")`` and ``df.write.format("refdelta")``.

Spark runs it in processes of its own, and knows of their errors nothing but the text: :mod:`refdelta.spark.failures`
brings the class through. All rows pass through Python: :func:`refdelta.spark.read` is several times as fast. There is
no pushdown of filters, for Spark 4.2 reuses the pruned files in the next action on the same DataFrame; the option
``filter`` prunes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from refdelta.api.table import DeltaTable
from refdelta.api.transaction import WriteTransaction
from refdelta.api.writer import write_and_commit
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan.change_feed import changes_table, plan_changes
from refdelta.errors import TableNotFoundError
from refdelta.operations.dml.change_feed import changes
from refdelta.spark import options as read_options
from refdelta.spark.failures import reported
from refdelta.spark.job import Portion, settle, tasks_failed
from refdelta.spark.leftovers import remove_leftovers
from refdelta.spark.parts import Part, check_types, parts, rows
from refdelta.spark.stream_read import StreamReader
from refdelta.spark.stream_write import StreamWriter
from refdelta.spark.types import arrow_schema, delta_schema, spark_schema
from refdelta.spark.writing import shared_store
from refdelta.transaction.location import with_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.engine.scan.scan import Scan
    from refdelta_storage import Store


class RefdeltaSource(DataSource):
    """A table as a source and a sink of Spark."""

    def __init__(self, options: Mapping[str, str]):
        super().__init__(options)
        self._version: int | None = None
        with reported():
            named = read_options.version_of(options)
            try:
                # Settled once, so that every action on one DataFrame, a self-join too, sees one version.
                self._version = self._table(named).version()
            except TableNotFoundError:  # it is written to; reading raises again
                if named is not None:
                    raise

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "refdelta"

    def schema(self) -> Any:
        """The table's schema as Spark's, of the version that is read."""
        with reported():
            if not read_options.reads_feed(self.options):
                return spark_schema(self._table(self._version).scan().plan.columns)
            ends = self.options.get("endingVersion") or self.options.get("endingTimestamp")
            snapshot = self._snapshot()
            # Only a batch has an end, and that may settle with which schema it is read.
            asked = read_options.range_of(self.options) if ends else None
            scan = plan_changes(snapshot, changes_table([])) if asked is None else changes(snapshot, asked)
            return spark_schema(scan.derived.plan.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader of the columns of ``schema``, which are the table's or some of them."""
        with reported():
            read_options.check_names(self.options, read_options.READ, "reads")
            names, told = [item.name for item in delta_schema(schema)], self.options.get("filter")
            asked = read_options.range_of(self.options)
            if asked is None:
                scans = [self._table(self._version).scan(names, told)]
            else:
                feed = changes(self._snapshot(), asked, columns=names, predicate=told)
                scans = [feed.recorded, feed.derived]
            check_types(schema, scans[-1].plan)
            return Reader(scans, schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of rows; ``overwrite`` is the mode."""
        with reported():
            read_options.check_names(self.options, read_options.WRITE, "writes")
            return Writer(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of the table as a stream, of the columns of ``schema``, which are the table's or some of them."""
        with reported():
            read_options.check_names(self.options, read_options.STREAM_READ, "streams")
            version = self._table(None).version() if self._version is None else self._version
            return StreamReader(self._store(), version, schema, read_options.stream_of(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """A writer of a stream's batches; ``overwrite`` is the output mode ``complete``."""
        with reported():
            read_options.check_names(self.options, read_options.STREAM_WRITE, "streams into a table")
            return StreamWriter(self.options, schema, overwrite=overwrite)

    def _snapshot(self) -> Snapshot:
        return load_snapshot(self._store(), self._version)

    def _store(self) -> Store:
        given = read_options.storage_options(self.options)
        store = shared_store(read_options.path_of(self.options), given)
        return with_others(store, read_options.outside_of(self.options), given)

    def _table(self, version: int | str | None) -> DeltaTable:
        self._store()  # a table in memory is refused
        path, given = read_options.path_of(self.options), read_options.storage_options(self.options)
        outside = read_options.outside_of(self.options)
        return DeltaTable(path, version=version, storage_options=given, outside=outside)


class Reader(DataSourceReader):
    """Reads the files of scans of one table."""

    def __init__(self, scans: Sequence[Scan], schema: Any):
        self._store, self._schema = scans[0].store, arrow_schema(schema)
        self._parts = [part for scan in scans for part in parts(scan)]

    def __getstate__(self) -> dict[str, Any]:
        # A task has its own files with it, and need not have those of all others.
        return {**self.__dict__, "_parts": []}

    def partitions(self) -> list[InputPartition]:
        """The files, as many together as make a task."""
        return list(self._parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some files."""
        if isinstance(partition, Part):  # of no files Spark makes a partition of its own
            with reported():
                yield from rows(self._store, partition, self._schema)


@dataclasses.dataclass
class Message(WriterCommitMessage):
    """What one task has written."""

    portion: Portion


class Writer(DataSourceArrowWriter):
    """Writes rows as data files, and commits them. Made, pickled, and used in several processes."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool):
        request = read_options.request_of(options, overwrite=overwrite)
        self._commit_options = read_options.commit_options(options)
        self._job = settle(options, schema, request, reads_target=read_options.reads_target(options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """On a worker: write one partition of the rows."""
        return Message(self._job.write(iterator))

    def commit(self, messages: list[Any]) -> None:
        """Commit what the tasks have written. What cannot be committed is removed; what may be committed is not."""
        job = self._job
        with reported():
            rows = job.rows(message.portion for message in messages)
            with WriteTransaction(job.store, job.snapshot(), age=None, **self._commit_options) as txn:
                if txn.already_recorded:
                    remove_leftovers(job.store, job.token)
                write_and_commit(txn, rows, job.request, reads_target=job.reads_target)

    def abort(self, messages: list[Any]) -> None:
        """Remove what the tasks of a failed job have written. Spark calls this after an error of :meth:`commit` too."""
        if tasks_failed(messages):
            self._job.remove_files()
