"""Readers of the data source ``refdelta``, of batches and of streams, and the partitions that their tasks read.

For a streaming query Spark keeps one process of Python, in which the offsets of batches are determined; rows are read
by its workers, each with the files of its task.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from refdelta.arrow.arrays import as_schema
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan.change_scan import changes_table, plan_changes
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.engine.work.executor import at_most
from refdelta.errors import DataFileNotFoundError, InvalidArgumentError, VersionNotFoundError
from refdelta.operations.stream.changes import TableStream
from refdelta.operations.stream.offsets import Allowance, StreamOptions
from refdelta.spark.failures import reported
from refdelta.spark.types import arrow_schema, delta_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.scan.change_scan import ChangeScan
    from refdelta.engine.scan.scan import Scan
    from refdelta_storage import Store


# The bytes of data files that one task reads at most, and the cost in bytes to open a file: the values of Spark's own
# readers.
_TASK_BYTES = 128 * 2**20
_OPEN_BYTES = 4 * 2**20
# Fewer bytes are shared among so many tasks, each of at least so many bytes. The number of cores is not known in the
# process that plans, which has no session.
_TASKS, _LEAST_BYTES = 16, 8 * 2**20


class FilePartition(InputPartition):
    """The partition of one task: files, and the plan by which they are read."""

    def __init__(self, files: list[ScanFile], plan: ReadPlan):
        super().__init__(files)
        self.plan = plan


def file_partitions(scan: Scan) -> list[FilePartition]:
    """The files of a scan as partitions of about the size of a task. Raises the errors of ``scan_files``."""
    files = [dataclasses.replace(file, vectors=None) for file in scan_files(scan)]
    share = min(_TASK_BYTES, max(_LEAST_BYTES, sum(file.size for file in files) // _TASKS))
    return [
        FilePartition(some, scan.plan)
        for some in at_most(files, lambda file: file.size * _TASK_BYTES // share + _OPEN_BYTES, _TASK_BYTES)
    ]


def check_types(schema: Any, plan: ReadPlan) -> None:
    """Check that the columns of a plan have the types of a Spark schema.

    Raises ``InvalidArgumentError`` for another type, and for a schema without columns, which would give no rows.
    """
    if not len(schema):
        raise InvalidArgumentError("the requested schema has no column")
    for asked, there in zip(schema, spark_schema(plan.columns), strict=True):
        if asked.dataType != there.dataType:
            raise InvalidArgumentError(
                f"column {there.name} is of type {there.dataType.simpleString()}, "
                f"not {asked.dataType.simpleString()} as in the requested schema"
            )


def partition_rows(store: Store, part: FilePartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a partition as batches of exactly this schema. Raises the errors of ``read_file``."""
    for file in part.value:
        for batch in read_file(store, file, part.plan):
            yield as_schema(batch.columns, schema)


class TableReader(DataSourceReader):
    """A reader of the files in the scans of one table."""

    def __init__(self, scans: Sequence[Scan], schema: Any):
        self._store, self._schema = scans[0].store, arrow_schema(schema)
        self._parts = [part for scan in scans for part in file_partitions(scan)]

    def __getstate__(self) -> dict[str, Any]:
        # A task gets its own partition, and does not need the others.
        return {**self.__dict__, "_parts": []}

    def partitions(self) -> list[InputPartition]:
        """The files as partitions of about the size of a task."""
        return list(self._parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On a worker: the rows of a partition."""
        if isinstance(partition, FilePartition):  # where there are no files Spark adds a partition itself
            with reported():
                yield from partition_rows(self._store, partition, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of a table as a stream.

    Args:
        store: the folder of the table.
        version: the version at which the source was created.
        schema: Spark's schema of the requested columns.
        options: the options of the stream.
    """

    def __init__(self, store: Store, version: int, schema: Any, options: StreamOptions):
        self._store, self._version, self._schema, self._options = store, version, schema, options
        self._last: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A worker reads partitions, and nothing of the log.
        return {name: value for name, value in self.__dict__.items() if name not in ("_changes", "_scan", "_feed")}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End the stream at the version that is the newest now."""
        with reported():
            self._last = self._changes.newest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of a batch; Spark has no limit of files and bytes together."""
        allowed = self._options.allowance()
        if self._options.max_bytes is not None and self._options.max_files is None:
            return ReadMaxBytes(allowed.size)
        return ReadMaxFiles(allowed.files)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The offset of a new stream. Raises the errors of :meth:`TableStream.first`."""
        with reported():
            return self._changes.first().as_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch. Raises the errors of :meth:`TableStream.latest`."""
        allowance = Allowance() if isinstance(limit, ReadAllAvailable) else self._options.allowance()
        with reported():
            return self._changes.latest(self._changes.parse(start), allowance, self._last).as_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The end of the table, for the progress of the query."""
        newest = self._changes.newest_known()
        return None if newest is None else newest.as_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FilePartition]:
        """The files between two offsets as partitions. Raises the errors of :meth:`TableStream.files`."""
        with reported():
            since, until = self._changes.parse(start), self._changes.parse(end)
            if since == until:
                return []
            files = self._changes.files(since, until)
            if not self._options.feed:
                return file_partitions(dataclasses.replace(self._scan, files=files))
            feed = self._feed.of(files)
            return [*file_partitions(feed.recorded), *file_partitions(feed.derived)]

    def read(self, partition: FilePartition) -> Iterator[pa.RecordBatch]:
        """On a worker: the rows of a partition."""
        with reported():
            try:
                yield from partition_rows(self._store, partition, arrow_schema(self._schema))
            except DataFileNotFoundError as error:
                raise DataFileNotFoundError(
                    "the stream has not read this file yet, but it does not exist any more: VACUUM removes files "
                    "whose rows were deleted or rewritten longer ago than delta.deletedFileRetentionDuration; "
                    "start a new stream, with a new checkpoint",
                    file=error.file,
                ) from None

    @cached_property
    def _changes(self) -> TableStream:
        try:
            return TableStream(load_snapshot(self._store, self._version), self._options)
        except VersionNotFoundError as error:
            raise VersionNotFoundError(f"the stream was loaded too long ago, load it again: {error}") from None

    @cached_property
    def _scan(self) -> Scan:
        scan = plan_scan(self._changes.made, self._names)
        check_types(self._schema, scan.plan)
        return scan

    @cached_property
    def _feed(self) -> ChangeScan:
        scan = plan_changes(self._changes.made, changes_table([]), self._names)
        check_types(self._schema, scan.derived.plan)
        return scan

    @property
    def _names(self) -> list[str]:
        return [item.name for item in delta_schema(self._schema)]
