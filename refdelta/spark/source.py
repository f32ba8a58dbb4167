"""The data source ``refdelta``: tables by ``spark.read.format("refdelta")`` and ``df.write.format("refdelta")``.

Spark runs it in processes of its own, and knows of their errors nothing but the text: :mod:`refdelta.spark.failures`
brings the class through. All rows pass through Python: :func:`refdelta.spark.read` is several times as fast. There is
no pushdown of filters, for Spark 4.2 reuses the pruned files in the next action on the same DataFrame; the option
``filter`` prunes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

from refdelta.engine.reader import ScanFile, read_file
from refdelta.engine.scan import scan_files
from refdelta.errors import InvalidArgumentError, TableNotFoundError
from refdelta.ops.append import Written
from refdelta.spark import options as read_options
from refdelta.spark.failures import reported
from refdelta.spark.job import WrittenRows, settle, tasks_failed
from refdelta.spark.stream_write import StreamWriter
from refdelta.spark.types import delta_schema, spark_schema
from refdelta.spark.writing import remove_leftovers, shared_store, together
from refdelta.staging import Staging
from refdelta.table import DeltaTable
from refdelta.writer import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from refdelta.engine.scan import Scan

# Bytes of data files that one task reads.
_TASK_BYTES = 128 * 2**20


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
            return spark_schema(self._table(self._version).scan().plan.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader of the columns of ``schema``, which are the table's or some of them."""
        with reported():
            read_options.check_names(self.options, read_options.READ, "reads")
            table = self._table(self._version)
            wanted = delta_schema(schema)
            scan = table.scan([item.name for item in wanted], self.options.get("filter"))
            for asked, there in zip(schema, spark_schema(scan.plan.columns), strict=True):
                if asked.dataType != there.dataType:
                    raise InvalidArgumentError(
                        f"column {there.name} is of type {there.dataType.simpleString()}, "
                        f"not {asked.dataType.simpleString()} as the schema says that was asked for"
                    )
            return Reader(scan, schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of rows; ``overwrite`` is the mode."""
        with reported():
            read_options.check_names(self.options, read_options.WRITE, "writes")
            return Writer(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: Any) -> Any:  # noqa: ARG002, N802 - Spark's name
        """There is none: raises ``InvalidArgumentError``, which names what to do."""
        with reported():
            raise InvalidArgumentError("the data source refdelta reads batches; refdelta.spark.read reads a version")

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """A writer of a stream's batches; ``overwrite`` is the output mode ``complete``."""
        with reported():
            read_options.check_names(self.options, read_options.STREAM_WRITE, "streams into a table")
            return StreamWriter(self.options, schema, overwrite=overwrite)

    def _table(self, version: int | str | None) -> DeltaTable:
        path, given = read_options.path_of(self.options), read_options.storage_options(self.options)
        shared_store(path, given)
        return DeltaTable(path, version=version, storage_options=given)


class Files(InputPartition):
    """What one task reads: some files of the table."""

    def __init__(self, files: list[ScanFile]):
        super().__init__(files)


class Reader(DataSourceReader):
    """Reads the files of a scan."""

    def __init__(self, scan: Scan, schema: Any):
        from pyspark.sql.pandas.types import to_arrow_schema

        self._store, self._plan, self._schema = scan.store, scan.plan, to_arrow_schema(schema, timezone="UTC")
        self._parts: list[list[ScanFile]] = []
        size = _TASK_BYTES
        for file in scan_files(scan):
            if size + file.size > _TASK_BYTES:
                self._parts.append([])
                size = 0
            self._parts[-1].append(dataclasses.replace(file, vectors=None))
            size += file.size

    def __getstate__(self) -> dict[str, Any]:
        # A task has its own files with it, and need not have those of all others.
        return {**self.__dict__, "_parts": []}

    def partitions(self) -> list[InputPartition]:
        """The files, as many together as make a task."""
        return [Files(files) for files in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some files."""
        for file in partition.value or ():
            with reported():
                for batch in read_file(self._store, file, self._plan):
                    columns = [
                        column if column.type == field.type else column.cast(field.type)
                        for column, field in zip(batch.columns, self._schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


@dataclasses.dataclass
class Message(WriterCommitMessage):
    """What one task has written."""

    written: Written


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
            rows = WrittenRows(job.schema, together(message.written for message in messages))
            txn = Staging(job.store, job.snapshot(), fresh=False, **self._commit_options)
            if txn.already_recorded:
                remove_leftovers(job.store, job.token)
            write_rows(txn, rows, job.request, reads_target=job.reads_target)

    def abort(self, messages: list[Any]) -> None:
        """Remove what the tasks of a failed job have written. Spark calls this after an error of :meth:`commit` too."""
        if tasks_failed(messages):
            self._job.remove_files()
