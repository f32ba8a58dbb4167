"""A write by the data source, of a batch or of a stream: settled on the driver before a task runs, done by the tasks,
ended by a commit. Each of the three is in another process.
"""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.api.writer import existing
from refdelta.core.log.paths import commit_key
from refdelta.engine.arrow.schema import to_arrow
from refdelta.engine.expressions.sql import parse_predicate
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.operations.dml.rewrite import requires
from refdelta.operations.write.append import FileWriter, Rows, Written
from refdelta.spark import options as source_options
from refdelta.spark import tasks
from refdelta.spark.failures import check_session, raise_again, reported
from refdelta.spark.leftovers import attempt, remove_leftovers, watched
from refdelta.spark.types import delta_schema
from refdelta.transaction.location import open_location
from refdelta_storage import StorageError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from refdelta.engine.log.snapshot import Snapshot
    from refdelta.operations.write.request import WriteRequest
    from refdelta_storage import Store


_WRITTEN = "attempt string, written binary"
# How a stream is written.
STREAMS = (
    "writeStream.format('refdelta') writes it, each batch once; so does writeStream.foreachBatch with "
    "refdelta.spark.write(batch, uri, mode='append', app_id=..., app_version=batch_id)"
)


class FrameRows(Rows):
    """The rows of a DataFrame, which Spark's workers write.

    Args:
        df: the DataFrame.

    Attributes:
        schema: their Arrow schema, all of it nullable.
    """

    def __init__(self, df: Any):
        if not hasattr(df, "mapInArrow"):
            raise InvalidArgumentError(f"df is a Spark DataFrame, not a {type(df).__name__}")
        check_session(df.sparkSession)
        if df.isStreaming:
            raise InvalidArgumentError(f"df is a stream; {STREAMS}")
        self.schema = to_arrow(delta_schema(df.schema))
        self._df = df

    def write(self, writer: FileWriter) -> Written:
        """Write them in one Spark job. What one that fails writes, or an attempt that does not count, is removed."""
        writer.check_fits(self.schema)
        with watched(self._df.sparkSession, writer.store) as watch:
            token = watch.token

            def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                written = write_part(writer, token, batches)
                yield pa.record_batch({"attempt": [attempt(token)], "written": [pickle.dumps(written)]})

            with raise_again():
                parts = tasks.over(self._df, work, _WRITTEN).collect()
            watch.counting.update(part.attempt for part in parts)
        return together(writer, [pickle.loads(part.written) for part in parts])  # noqa: S301 - of our own workers


def write_part(writer: FileWriter, token: str, batches: Iterator[pa.RecordBatch]) -> Written:
    """On a worker: write one partition of a DataFrame, under names of this attempt's own."""
    first = next(batches, None)
    if first is None:
        return Written([], 0)

    def all_of_them() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    with reported():
        return writer.of_task(tasks.number()).write(first.schema, all_of_them(), unique=attempt(token))


def together(writer: FileWriter, parts: Iterable[Written]) -> Written:
    """What several tasks have written by this writer."""
    listed = list(parts)
    return Written(
        [add for part in listed for add in part.adds],
        sum(part.rows for part in listed),
        marks=writer.target.rules.furthest(part.marks for part in listed),
        changes=[file for part in listed for file in part.changes],
    )


def shared_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> Store:
    """The store of a table, where other processes reach it too.

    Raises ``InvalidArgumentError`` for one in memory.
    """
    store = open_location(uri, storage_options)
    if store.uri.startswith("memory:"):
        raise InvalidArgumentError(f"{store.uri} is in the memory of one process: Spark's workers cannot reach it")
    return store


@dataclass(frozen=True)
class TaskFiles:
    """What one task has written.

    Attributes:
        written: the files.
        attempt: what names the files of this attempt at the task.
        again: whether there was an attempt before.
    """

    written: Written
    attempt: str
    again: bool


@dataclass(frozen=True)
class WriteJob:
    """A write as all who take part in it know it. It can be pickled.

    Attributes:
        token: what the names of its data files hold, and those of no other job.
        base: the version on which it rests; None where there was no table.
        reads_target: whether its rows are made from those of that version.
        request: what becomes of the table.
        schema: the Arrow schema of its rows.
        writer: writes them.
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
        again = context is not None and context.attemptNumber() > 0
        return TaskFiles(write_part(self.writer, self.token, batches), attempt(self.token), again)

    def rows(self, portions: Iterable[TaskFiles]) -> WrittenRows:
        """What all tasks have written. Where one was tried again, what its other attempts have left is removed."""
        listed = list(portions)
        if any(portion.again for portion in listed):
            remove_leftovers(self.store, self.token, {portion.attempt for portion in listed})
        return WrittenRows(self.schema, together(self.writer, (portion.written for portion in listed)))

    def snapshot(self) -> Snapshot | None:
        """The version on which it rests."""
        return None if self.base is None else load_snapshot(self.store, self.base)

    def remove_files(self) -> None:
        """Remove what its tasks have written, unless a commit may name it: a commit whose reply was lost has landed, or
        may land yet. What a task writes that Spark has not ended by now stays, and VACUUM takes it.
        """
        if not _named(self.store, self.base, self.token):
            remove_leftovers(self.store, self.token)


@dataclass(frozen=True)
class WrittenRows(Rows):
    """Rows that are in data files already.

    Attributes:
        schema: their Arrow schema.
        written: the files.
    """

    schema: pa.Schema
    written: Written

    def write(self, writer: FileWriter) -> Written:  # noqa: ARG002 - it is what they were written by
        """The files."""
        return self.written


def settle(options: Mapping[str, str], schema: Any, request: WriteRequest, *, reads_target: bool | int) -> WriteJob:
    """Decide what a write does, and find all that is wrong with its schema and its options before a task runs.

    Args:
        options: where the table is.
        schema: Spark's, of the rows.
        request: what is to become of the table.
        reads_target: the version from which the rows are made; True for the newest, False where they are not.

    Raises:
        SchemaMismatchError: the rows do not fit.
        UnsupportedTypeError: a type that no table can have.
        UnsupportedFeatureError: the table needs a feature that this engine cannot write.
        InvalidArgumentError: options that do not go together, or with the table; a store that workers cannot reach.
    """
    store = shared_store(source_options.path_of(options), source_options.storage_options(options))
    base = existing(store)
    if base is not None and not isinstance(reads_target, bool):
        base = load_snapshot(store, reads_target)
    rows = to_arrow(delta_schema(schema))
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
    """Whether an abort is one of tasks, and not of a commit: Spark knows no message of a task that failed.

    A commit that failed has removed what it could. What it left may be committed.
    """
    return not messages or None in messages


def _named(store: Store, base: int | None, token: str) -> bool:
    """Whether a commit behind version ``base`` may name files of the job with this token."""
    try:
        newest = existing(store)
        first = 0 if base is None else base + 1
        last = -1 if newest is None else newest.version
        return any(token.encode() in store.get(commit_key(version)) for version in range(first, last + 1))
    except (DeltaError, StorageError):  # nobody can tell
        return True
