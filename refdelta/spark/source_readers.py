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

from refdelta.engine.arrow.arrays import as_schema
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan.change_feed import changes_table, plan_changes
from refdelta.engine.scan.chunking import at_most
from refdelta.engine.scan.reader import ReadPlan, ScanFile, read_file
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.errors import DataFileNotFoundError, InvalidArgumentError, VersionNotFoundError
from refdelta.spark.failures import reported
from refdelta.spark.stream_changes import TableStream
from refdelta.spark.stream_offsets import Allowance, StreamOptions
from refdelta.spark.types import arrow_schema, delta_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from refdelta.engine.scan.change_feed import ChangeScan
    from refdelta.engine.scan.scan import Scan
    from refdelta_storage import Store


# Bytes of data files that one task reads, and how many it counts as to open a file: the numbers of Spark's own readers.
_TASK_BYTES = 128 * 2**20
_OPEN_BYTES = 4 * 2**20


class FilePartition(InputPartition):
    """What one task reads: some files, and what to make of them."""

    def __init__(self, files: list[ScanFile], plan: ReadPlan):
        super().__init__(files)
        self.plan = plan


def file_partitions(scan: Scan) -> list[FilePartition]:
    """The files of a scan, as many together as make a task. Raises as ``scan_files``."""
    files = (dataclasses.replace(file, vectors=None) for file in scan_files(scan))
    return [
        FilePartition(some, scan.plan) for some in at_most(files, lambda file: file.size + _OPEN_BYTES, _TASK_BYTES)
    ]


def check_types(schema: Any, plan: ReadPlan) -> None:
    """See that the columns of a plan have the types that a Spark schema asks for.

    Raises ``InvalidArgumentError`` for one that has not, and for no columns at all, for Spark would see no rows.
    """
    if not len(schema):
        raise InvalidArgumentError("the schema that was asked for has no column")
    for asked, there in zip(schema, spark_schema(plan.columns), strict=True):
        if asked.dataType != there.dataType:
            raise InvalidArgumentError(
                f"column {there.name} is of type {there.dataType.simpleString()}, "
                f"not {asked.dataType.simpleString()} as the schema says that was asked for"
            )


def partition_rows(store: Store, part: FilePartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part as batches of exactly this schema. Raises as ``read_file``."""
    for file in part.value:
        for batch in read_file(store, file, part.plan):
            yield as_schema(batch.columns, schema)


class TableReader(DataSourceReader):
    """Reads the files of scans of one table."""

    def __init__(self, scans: Sequence[Scan], schema: Any):
        self._store, self._schema = scans[0].store, arrow_schema(schema)
        self._parts = [part for scan in scans for part in file_partitions(scan)]

    def __getstate__(self) -> dict[str, Any]:
        # A task has its own files with it, and need not have those of all others.
        return {**self.__dict__, "_parts": []}

    def partitions(self) -> list[InputPartition]:
        """The files, as many together as make a task."""
        return list(self._parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some files."""
        if isinstance(partition, FilePartition):  # of no files Spark makes a partition of its own
            with reported():
                yield from partition_rows(self._store, partition, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table as a stream.

    Args:
        store: the table's folder.
        version: the version at which the source was made.
        schema: Spark's schema of the columns that are wanted.
        options: what to read.
    """

    def __init__(self, store: Store, version: int, schema: Any, options: StreamOptions):
        self._store, self._version, self._schema, self._options = store, version, schema, options
        self._last: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A worker needs to know how to read a part, and nothing of the log.
        return {name: value for name, value in self.__dict__.items() if name not in ("_changes", "_scan", "_feed")}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than the version that is the newest now."""
        with reported():
            self._last = self._changes.newest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What a batch takes; Spark knows no limit of files and bytes together."""
        allowed = self._options.allowance()
        if self._options.max_bytes is not None and self._options.max_files is None:
            return ReadMaxBytes(allowed.size)
        return ReadMaxFiles(allowed.files)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins. Raises as :meth:`TableStream.first`."""
        with reported():
            return self._changes.first().as_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next batch goes. Raises as :meth:`TableStream.latest`."""
        allowance = Allowance() if isinstance(limit, ReadAllAvailable) else self._options.allowance()
        with reported():
            return self._changes.latest(self._changes.parse(start), allowance, self._last).as_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The end of the table, for the query's progress."""
        newest = self._changes.newest_known()
        return None if newest is None else newest.as_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[FilePartition]:
        """The files between two offsets, as many together as make a task. Raises as :meth:`TableStream.files`."""
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
        """On a worker: the rows of some files."""
        with reported():
            try:
                yield from partition_rows(self._store, partition, arrow_schema(self._schema))
            except DataFileNotFoundError as error:
                raise DataFileNotFoundError(
                    "the stream has not read this file yet, but it does not exist any more: VACUUM removes files of "
                    "which the rows were deleted or rewritten longer ago than delta.deletedFileRetentionDuration; "
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
