"""``spark.readStream.format("refdelta")``: a table's rows, and then those that are added to it.

Spark keeps one process of Python for a query, in which the offsets of batches are worked out; rows are read by its
workers, each with the files of its task.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan.change_feed import changes_table, plan_changes
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import DataFileNotFoundError, VersionNotFoundError
from refdelta.spark.failures import reported
from refdelta.spark.parts import Part, check_types, parts, rows
from refdelta.spark.stream_changes import Changes
from refdelta.spark.stream_offsets import Allowance, StreamOptions
from refdelta.spark.types import arrow_schema, delta_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from refdelta.engine.scan.change_feed import ChangeScan
    from refdelta.engine.scan.scan import Scan
    from refdelta_storage import Store


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
        """Where a new stream begins. Raises as :meth:`Changes.first`."""
        with reported():
            return self._changes.first().as_dict()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next batch goes. Raises as :meth:`Changes.latest`."""
        allowance = Allowance() if isinstance(limit, ReadAllAvailable) else self._options.allowance()
        with reported():
            return self._changes.latest(self._changes.parse(start), allowance, self._last).as_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The end of the table, for the query's progress."""
        newest = self._changes.newest_known()
        return None if newest is None else newest.as_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        """The files between two offsets, as many together as make a task. Raises as :meth:`Changes.files`."""
        with reported():
            since, until = self._changes.parse(start), self._changes.parse(end)
            if since == until:
                return []
            files = self._changes.files(since, until)
            if not self._options.feed:
                return parts(dataclasses.replace(self._scan, files=files))
            feed = self._feed.of(files)
            return [*parts(feed.recorded), *parts(feed.derived)]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        """On a worker: the rows of some files."""
        with reported():
            try:
                yield from rows(self._store, partition, arrow_schema(self._schema))
            except DataFileNotFoundError as error:
                raise DataFileNotFoundError(
                    "the stream has not read this file yet, but it does not exist any more: VACUUM removes files of "
                    "which the rows were deleted or rewritten longer ago than delta.deletedFileRetentionDuration; "
                    "start a new stream, with a new checkpoint",
                    file=error.file,
                ) from None

    @cached_property
    def _changes(self) -> Changes:
        try:
            return Changes(load_snapshot(self._store, self._version), self._options)
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
