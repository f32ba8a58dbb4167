"""Write jobs: data files written by Spark's tasks, of a DataFrame or through the data source.

For a DataFrame one process plans, starts the tasks and commits. A write through the data source is planned on the
driver before a task runs, done by the tasks, and ended by a commit, each in another process. Spark may run a task
twice, which then writes twice, under different names: only the files of the attempt whose result arrived are committed.
The names of all files of a job contain its token, by which the files of a failed job are found.
"""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.api.table import DeltaTable
from refdelta.api.writer import existing
from refdelta.core.log.paths import commit_key
from refdelta.engine.log.location import open_location
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.expressions.sql import parse_predicate
from refdelta.operations.shared.rewrite import requires
from refdelta.operations.write.append import FileWriter, Rows, WrittenFiles
from refdelta.operations.write.source import DistributedRows
from refdelta.spark import options as source_options
from refdelta.spark import origins, tasks
from refdelta.spark.failures import check_session, raise_again, reported
from refdelta.spark.leftovers import attempt, remove_leftovers, watched
from refdelta.spark.types import declared_schema
from refdelta_storage import StorageError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.target import WriteRequest
    from refdelta_storage import Store

    PartWriter = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


_WRITTEN = "attempt string, written binary"
# The advice to write a stream.
STREAMS = (
    "writeStream.format('refdelta') writes it, each batch once; so does writeStream.foreachBatch with "
    "refdelta.spark.write(batch, uri, mode='append', app_id=..., app_version=batch_id)"
)


class FrameRows(DistributedRows):
    """The rows of a DataFrame, to be written by Spark's workers.

    Args:
        df: the DataFrame.

    Attributes:
        schema: the Arrow schema of the rows, with all fields nullable.
    """

    def __init__(self, df: Any):
        if not hasattr(df, "mapInArrow"):
            raise InvalidArgumentError(f"df must be a Spark DataFrame, not a {type(df).__name__}")
        check_session(df.sparkSession)
        if df.isStreaming:
            raise InvalidArgumentError(f"df is a stream; {STREAMS}")
        self.schema = declared_schema(df.schema)
        self._df = df

    def write(self, writer: FileWriter) -> WrittenFiles:
        """Write the rows in one Spark job. The files of a failed job, and of attempts without a result, are removed."""
        check_shared(writer.store)
        writer.check_fits(self.schema)
        return write_job(self._df.sparkSession, writer, lambda work, schema: tasks.over(self._df, work, schema))

    def version_of(self, table: Snapshot) -> int | None:
        """As :meth:`refdelta.spark.merging.FrameSource.version_of`."""
        return origins.version_of(self._df, table, remembered=False)

    def versions_elsewhere(self) -> Callable[[str], int | None] | None:
        """By the marks of :func:`refdelta.spark.read`, and by the sources of the format ``refdelta``."""
        return origins.versions_read(self._df)


def write_job(spark: Any, writer: FileWriter, frame_of: Callable[[PartWriter, str], Any]) -> WrittenFiles:
    """Write rows in one Spark job. The files of a failed job, and of attempts without a result, are removed.

    Args:
        spark: the session.
        writer: the writer of the files.
        frame_of: makes a DataFrame of the results that a function, the first argument, yields once for the rows of each
            task; the second argument is the schema of the results. So the rows of a task need not return to Java
            between the function that makes them and the one that writes them.
    """
    with watched(spark, writer.store) as watch:
        token = watch.token

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            written = write_part(writer, token, batches)
            yield pa.record_batch({"attempt": [attempt(token)], "written": [pickle.dumps(written)]})

        with raise_again():
            parts = frame_of(work, _WRITTEN).collect()
        watch.counting.update(part.attempt for part in parts)
    return together(writer, [pickle.loads(part.written) for part in parts])  # noqa: S301 - of our own workers


def write_part(writer: FileWriter, token: str, batches: Iterator[pa.RecordBatch]) -> WrittenFiles:
    """On a worker: write one partition of a DataFrame, under names that are unique to this attempt."""
    first = next(batches, None)
    if first is None:
        return WrittenFiles([], 0)

    def all_batches() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    with reported():
        return writer.of_task(tasks.number()).write(first.schema, all_batches(), unique=attempt(token))


def together(writer: FileWriter, parts: Iterable[WrittenFiles]) -> WrittenFiles:
    """The files of several tasks as those of one writer."""
    listed = list(parts)
    return WrittenFiles(
        [add for part in listed for add in part.adds],
        sum(part.rows for part in listed),
        marks=writer.target.rules.furthest(part.marks for part in listed),
        changes=[file for part in listed for file in part.changes],
    )


def shared_store(place: str | os.PathLike[str] | DeltaTable, storage_options: Mapping[str, str] | None) -> Store:
    """The store of a table that other processes can reach. Raises ``InvalidArgumentError`` for a store in memory."""
    if isinstance(place, DeltaTable):
        if storage_options:
            raise InvalidArgumentError("storage_options go with a path; a DeltaTable has its store already")
        store = place.store
    else:
        store = open_location(place, storage_options)
    check_shared(store)
    return store


def check_shared(store: Store) -> None:
    """Raise ``InvalidArgumentError`` for a store in memory."""
    if store.uri.startswith("memory:"):
        raise InvalidArgumentError(f"{store.uri} is in the memory of one process: Spark's workers cannot reach it")


def source_store(options: Mapping[str, str]) -> Store:
    """The store of the table that the options of the data source name. Errors as for :func:`shared_store` and
    :func:`refdelta.spark.options.place_of`.
    """
    place = source_options.place_of(options)
    return shared_store(place, source_options.storage_options(options) if isinstance(place, str) else None)


@dataclass(frozen=True)
class TaskFiles:
    """The data files that one task has written.

    Attributes:
        written: the files.
        attempt: the text that the names of the files of this attempt contain.
        again: whether there may be another attempt, an earlier one or, with speculation, one beside it.
    """

    written: WrittenFiles
    attempt: str
    again: bool


@dataclass(frozen=True)
class WriteJob:
    """A planned write through the data source. It can be pickled.

    Attributes:
        token: a unique text that the names of its data files contain.
        base: the version that it read; None if there was no table.
        reads_target: whether its rows are made from the rows of that version.
        request: the kind of the write.
        schema: the Arrow schema of its rows.
        writer: the writer of its data files.
    """

    token: str
    base: int | None
    reads_target: bool
    request: WriteRequest
    schema: pa.Schema
    writer: FileWriter

    @property
    def store(self) -> Store:
        """The table's folder."""
        return self.writer.store

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskFiles:
        """On a worker: write one partition of the rows."""
        from pyspark import TaskContext

        context = TaskContext.get()
        again = context is not None and (
            context.attemptNumber() > 0 or context.getLocalProperty("spark.speculation") == "true"
        )
        return TaskFiles(write_part(self.writer, self.token, batches), attempt(self.token), again)

    def rows(self, tasks: Iterable[TaskFiles]) -> WrittenRows:
        """The rows that all tasks have written. The files of attempts that do not count are removed."""
        listed = list(tasks)
        if any(task.again for task in listed):
            remove_leftovers(self.store, self.token, {task.attempt for task in listed})
        return WrittenRows(self.schema, together(self.writer, (task.written for task in listed)))

    def snapshot(self) -> Snapshot | None:
        """The snapshot of the version that it read."""
        return None if self.base is None else load_snapshot(self.store, self.base)

    def remove_files(self) -> None:
        """Remove the files of its tasks, unless a commit may name them, such as one whose reply was lost.

        Files that a task still running writes later stay until VACUUM removes them.
        """
        if not _named(self.store, self.base, self.token):
            remove_leftovers(self.store, self.token)


@dataclass(frozen=True)
class WrittenRows(Rows):
    """Rows that are in data files already.

    Attributes:
        schema: the Arrow schema of the rows.
        written: the files.
    """

    schema: pa.Schema
    written: WrittenFiles

    def write(self, writer: FileWriter) -> WrittenFiles:  # noqa: ARG002 - the same writer wrote them
        """The files."""
        return self.written


def settle(options: Mapping[str, str], schema: Any, request: WriteRequest, *, reads_target: bool | int) -> WriteJob:
    """Plan a write, and check its schema and its options before a task runs.

    Args:
        options: the options, with the location of the table.
        schema: Spark's schema of the rows.
        request: the kind of the write.
        reads_target: the version from which the rows are made; True for the newest, False if they are not made from
            the table.

    Raises:
        SchemaMismatchError: the rows do not fit.
        UnsupportedTypeError: Delta has no such type.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        InvalidArgumentError: options that exclude each other or do not fit the table; a store in memory.
    """
    store = source_store(options)
    base = existing(store)
    if base is not None and not isinstance(reads_target, bool):
        base = load_snapshot(store, reads_target)
    rows = declared_schema(schema)
    target = request.target(base, rows)
    target.check_fits(rows)
    sql = request.predicate
    check = None if sql is None else requires(parse_predicate(sql, target.schema), sql)
    return WriteJob(
        token=str(uuid.uuid4()),
        base=None if base is None else base.version,
        reads_target=base is not None and reads_target is not False,
        request=request,
        schema=rows,
        writer=FileWriter(store, target, request.target_file_size, check),
    )


def tasks_failed(messages: list[Any]) -> bool:
    """True if Spark aborts because a task failed: then a message is missing. After a failed commit none is.

    A failed commit has already removed the files that it could; the others may be committed.
    """
    return not messages or None in messages


def _named(store: Store, base: int | None, token: str) -> bool:
    """True if a commit after version ``base`` may name files of the job with this token."""
    try:
        newest = existing(store)
        first = 0 if base is None else base + 1
        last = -1 if newest is None else newest.version
        return any(token.encode() in store.get(commit_key(version)) for version in range(first, last + 1))
    except (DeltaError, StorageError):  # unknown
        return True
