"""The data source ``refdelta``: tables by ``spark.read.format("refdelta")`` and ``df.write.format("refdelta")``.

Spark runs it in processes of its own, and knows of their errors nothing but the text: :mod:`refdelta.spark.failures`
brings the class through. All rows pass through Python: :func:`refdelta.spark.read` is several times as fast. There is
no pushdown of filters, for Spark 4.2 reuses the pruned files in the next action on the same DataFrame; the option
``filter`` prunes.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from refdelta.engine.fit import plan_fit
from refdelta.engine.reader import ScanFile, read_file
from refdelta.engine.scan import scan_files
from refdelta.engine.schema import to_arrow
from refdelta.engine.snapshot import load_snapshot
from refdelta.engine.sql import parse_predicate
from refdelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError
from refdelta.ops.append import FileWriter, Written
from refdelta.ops.rewrite import requires
from refdelta.protocol.paths import commit_key
from refdelta.spark import options as read_options
from refdelta.spark.failures import reported
from refdelta.spark.types import delta_schema, spark_schema
from refdelta.spark.writing import STREAMS, remove_leftovers, shared_store, together, write_part
from refdelta.staging import Staging
from refdelta.table import DeltaTable
from refdelta.writer import existing, write_rows
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from refdelta.engine.scan import Scan
    from refdelta_storage import Store

# Bytes of data files that one task reads.
_TASK_BYTES = 128 * 2**20


class RefdeltaSource(DataSource):
    """A table as a source and a sink of Spark. Batch only."""

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

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: ARG002, N802 - Spark's name
        """There is none: raises ``InvalidArgumentError``, which names what to do."""
        with reported():
            raise InvalidArgumentError(f"the data source refdelta writes batches; {STREAMS}")

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
        self._request = read_options.request_of(options, overwrite=overwrite)
        self._commit_options = read_options.commit_options(options)
        self._token = str(uuid.uuid4())
        self._store = shared_store(read_options.path_of(options), read_options.storage_options(options))
        told = read_options.reads_target(options)
        newest = existing(self._store)
        base = newest
        if newest is not None and not isinstance(told, bool):
            base = load_snapshot(self._store, told)
        self._reads_target = base is not None and told is not False
        self._base = None if base is None else base.version
        self._schema = to_arrow(delta_schema(schema))
        # All that is wrong with the schema or the options is told before a task runs.
        target = self._request.target(base, self._schema)
        plan_fit(self._schema, target.schema)
        sql = self._request.predicate
        check = None if sql is None else requires(parse_predicate(sql, target.schema), sql)
        self._writer = FileWriter(self._store, target, self._request.target_file_size, check)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """On a worker: write one partition of the rows."""
        return Message(write_part(self._writer, self._token, iterator))

    def commit(self, messages: list[Any]) -> None:
        """Commit what the tasks have written. What cannot be committed is removed; what may be committed is not."""
        with reported():
            rows = WrittenRows(self._schema, together(message.written for message in messages))
            base = None if self._base is None else load_snapshot(self._store, self._base)
            txn = Staging(self._store, base, fresh=False, **self._commit_options)
            if txn.already_recorded:
                remove_leftovers(self._store, self._token)
            write_rows(txn, rows, self._request, reads_target=self._reads_target)

    def abort(self, messages: list[Any]) -> None:
        """Remove what the tasks of a failed job have written.

        Spark calls this after an error of :meth:`commit` too. That has removed what it could, and what it left may be
        committed: its reply may be lost, or on its way.
        """
        failed = not messages or None in messages
        if failed and not _named(self._store, self._base, self._token):
            remove_leftovers(self._store, self._token)


@dataclasses.dataclass(frozen=True)
class WrittenRows:
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


def _named(store: Store, base: int | None, token: str) -> bool:
    """Whether a commit behind version ``base`` may name files of the job with this token."""
    try:
        newest = existing(store)
        first = 0 if base is None else base + 1
        last = -1 if newest is None else newest.version
        return any(token.encode() in store.get(commit_key(version)) for version in range(first, last + 1))
    except (DeltaError, StorageError):  # nobody can tell
        return True
