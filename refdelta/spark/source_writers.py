"""Writers of the data source ``refdelta``: of a batch, and of the batches of a stream, each committed exactly once.

The commit of a stream's batch records the id of the query and the number of the batch as an application transaction
(PROTOCOL.md, "Transaction Identifiers"), as delta-spark does. Spark repeats a batch if it does not know that the batch
was committed; the table knows it.

Spark creates one writer for the tasks of a batch, and another one, in another process, for its commit. All that the
second needs to know of the first comes with the messages of the tasks.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from refdelta.api.table_transaction import TableTransaction
from refdelta.api.writer import write_and_commit
from refdelta.engine.log.location import open_location
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.spark import options as source_options
from refdelta.spark.failures import reported
from refdelta.spark.job import TaskFiles, WriteJob, WrittenRows, settle, tasks_failed
from refdelta.spark.leftovers import remove_leftovers
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa


@dataclasses.dataclass
class WriteMessage(WriterCommitMessage):
    """The files that one task has written."""

    files: TaskFiles


class TableWriter(DataSourceArrowWriter):
    """A writer of rows as data files, and their commit. It is pickled, and used in several processes."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool):
        request = source_options.request_of(options, overwrite=overwrite)
        self._commit_options = source_options.commit_options(options)
        self._job = settle(options, schema, request, reads_target=source_options.reads_target(options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
        """On a worker: write one partition of the rows."""
        return WriteMessage(self._job.write(iterator))

    def commit(self, messages: list[Any]) -> None:
        """Commit the files of the tasks. After a failure they are removed, unless they may be committed."""
        job = self._job
        with reported():
            rows = job.rows(message.files for message in messages)
            with TableTransaction(job.store, job.snapshot(), age=None, **self._commit_options) as txn:
                if txn.already_recorded:
                    remove_leftovers(job.store, job.token)
                write_and_commit(txn, rows, job.request, reads_target=job.reads_target)

    def abort(self, messages: list[Any]) -> None:
        """Remove the files of a failed job. Spark calls this after an error of :meth:`commit`, too."""
        if tasks_failed(messages):
            self._job.remove_files()


@dataclasses.dataclass
class BatchMessage(WriterCommitMessage):
    """The files that one task of a batch has written.

    Attributes:
        files: the data files.
        token: the token of the job.
        base: the version that the job read.
        query: the id of the query, if Spark passes it.
    """

    files: TaskFiles
    token: str
    base: int | None
    query: str | None


class StreamWriter(DataSourceStreamArrowWriter):
    """A writer of the batches of a stream.

    Args:
        options: the options of the stream.
        schema: Spark's schema of the rows.
        overwrite: whether each batch replaces the table: the output mode is ``complete``.
    """

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool):
        self._options = options
        self._properties = source_options.commit_options(options)["commit_properties"]
        if options.get("overwriteSchema", "").lower() == "true" and not overwrite:
            raise InvalidArgumentError("overwriteSchema requires the output mode complete, which replaces the table")
        request = source_options.request_of(options, overwrite=overwrite)
        reads_target = source_options.reads_target(options)
        if not isinstance(reads_target, bool):
            raise InvalidArgumentError(
                "readsTarget of a stream must be true or false: each batch begins at the newest version"
            )
        self._job = settle(options, schema, request, reads_target=reads_target)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchMessage:
        """On a worker: write one partition of a batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        return BatchMessage(self._job.write(iterator), self._job.token, self._job.base, query)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a batch. One that the table records already is skipped, and its files are removed."""
        with reported():
            if None in messages:
                raise InvalidArgumentError(
                    "Spark has not passed on all rows: with a continuous trigger it writes to no sink in Python; use "
                    "the trigger processingTime or availableNow"
                )
            job = self._of(messages)
            try:
                query = _query(messages[0].query, self._options)
                txn = self._begun(job, query, batchId)
                if txn.already_recorded:
                    remove_leftovers(job.store, job.token)
                    return
                _stage(txn, job, job.rows(message.files for message in messages), query, batchId)
            except BaseException:
                job.remove_files()
                raise
            txn.commit()

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Remove the files of a failed batch. Spark calls this after an error of :meth:`commit`, too.

        If no task returned a message, the token of the files is unknown: VACUUM removes them.
        """
        arrived = [message for message in messages if message is not None]
        if arrived and tasks_failed(messages):
            self._of(arrived).remove_files()

    def _of(self, messages: list[BatchMessage]) -> WriteJob:
        """The job of these messages."""
        return dataclasses.replace(self._job, token=messages[0].token, base=messages[0].base)

    def _begun(self, job: WriteJob, query: str, batch: int) -> TableTransaction:
        return TableTransaction(
            job.store, job.snapshot(), age=None, app_id=query, app_version=batch, commit_properties=self._properties
        )


def _stage(txn: TableTransaction, job: WriteJob, rows: WrittenRows, query: str, batch: int) -> None:
    """Stage the rows of a batch, and describe them as delta-spark describes a batch of a stream."""
    if job.reads_target:
        txn.read_whole_table()
    txn.write(rows, job.request)
    complete = job.request.mode == "overwrite"
    parameters = {
        "outputMode": "Complete" if complete else "Append",
        "queryId": query,
        "epochId": str(batch),
    }
    noted = {
        "numAddedFiles": len(rows.written.adds),
        "numRemovedFiles": txn.description.metrics["num_removed_files"] if txn.description else 0,
        "numOutputRows": rows.written.rows,
        "numOutputBytes": rows.written.size,
    }
    txn.describe("STREAMING UPDATE", parameters, noted, always=True)


def _query(passed: str | None, options: Mapping[str, str]) -> str:
    """The id under which the table records the batches of the query.

    Args:
        passed: the id of the query, if Spark passes it.
        options: the options of the stream, whose checkpoint has the id, too.

    Raises:
        InvalidArgumentError: the id is unknown and ``txnAppId`` is missing, or ``txnAppId`` differs from the id.
    """
    given, found = options.get("txnAppId"), passed or _recorded(options)
    if found is None and given is None:
        raise InvalidArgumentError(
            "Spark does not pass the id of this query, and its checkpoint cannot be read: set the option txnAppId "
            "to a unique string for each stream and each checkpoint, so that no batch is written twice"
        )
    if found is not None and given is not None and given != found:
        raise InvalidArgumentError(
            f"txnAppId is for streams whose query has no known id; the id of this one is {found}, under which the "
            "table records its batches: remove the option"
        )
    return found or given or ""


def _recorded(options: Mapping[str, str]) -> str | None:
    """The id of the query in its checkpoint."""
    checkpoint = options.get("checkpointLocation")
    if checkpoint is None:
        return None
    try:
        store = open_location(checkpoint, source_options.storage_options(options))
        return str(json.loads(store.get("metadata"))["id"])
    except (DeltaError, StorageError, ValueError, KeyError, TypeError):
        return None
