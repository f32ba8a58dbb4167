"""Streams into a table: ``df.writeStream.format("refdelta")``, each batch one commit, and each exactly once.

A commit records the query's id and the number of the batch as an application transaction (PROTOCOL.md, "Transaction
Identifiers"), as delta-spark's do. Spark repeats a batch of which it does not know that it was done; the table knows.

Spark makes a writer for the tasks of every batch, and another one, in another process, for its commit. All that the
second has to know of the first comes with the tasks' messages.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from refdelta.api.transaction import WriteTransaction
from refdelta.api.writer import write_and_commit
from refdelta.errors import DeltaError, InvalidArgumentError
from refdelta.spark import options as source_options
from refdelta.spark.failures import reported
from refdelta.spark.job import TaskFiles, WriteJob, settle, tasks_failed
from refdelta.spark.leftovers import remove_leftovers
from refdelta.transaction.location import open_location
from refdelta_storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa


@dataclasses.dataclass
class WriteMessage(WriterCommitMessage):
    """What one task has written."""

    portion: TaskFiles


class TableWriter(DataSourceArrowWriter):
    """Writes rows as data files, and commits them. Made, pickled, and used in several processes."""

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool):
        request = source_options.request_of(options, overwrite=overwrite)
        self._commit_options = source_options.commit_options(options)
        self._job = settle(options, schema, request, reads_target=source_options.reads_target(options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
        """On a worker: write one partition of the rows."""
        return WriteMessage(self._job.write(iterator))

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


@dataclasses.dataclass
class BatchMessage(WriterCommitMessage):
    """What one task of a batch has written.

    Attributes:
        portion: the files.
        token: the job's.
        base: the version on which the job rests.
        query: the id of the query, where Spark tells it.
    """

    portion: TaskFiles
    token: str
    base: int | None
    query: str | None


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream.

    Args:
        options: of the stream.
        schema: Spark's, of the rows.
        overwrite: whether each batch replaces the table: the output mode is ``complete``.
    """

    def __init__(self, options: Mapping[str, str], schema: Any, *, overwrite: bool):
        self._options = options
        if options.get("overwriteSchema", "").lower() == "true" and not overwrite:
            raise InvalidArgumentError("overwriteSchema goes with the output mode complete, which replaces the table")
        request = source_options.request_of(options, overwrite=overwrite)
        reads_target = source_options.reads_target(options)
        if not isinstance(reads_target, bool):
            raise InvalidArgumentError(
                "readsTarget of a stream is true or false: each batch begins at the newest version"
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
                    "there are rows that Spark has not handed on: it writes to no Python sink under a continuous "
                    "trigger; processingTime and availableNow are there"
                )
            job = self._of(messages)
            try:
                txn = self._begun(job, messages, batchId)
                if txn.already_recorded:
                    remove_leftovers(job.store, job.token)
                    return
                self._stage(txn, job, messages, batchId)
            except BaseException:
                job.remove_files()
                raise
            txn.commit()

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Remove what the tasks of a failed batch have written. Spark calls this after an error of :meth:`commit` too.

        Where no task got as far as a message, nobody knows the names of what killed ones left: VACUUM takes it.
        """
        told = [message for message in messages if message is not None]
        if told and tasks_failed(messages):
            self._of(told).remove_files()

    def _of(self, messages: list[BatchMessage]) -> WriteJob:
        """The job that these messages are of."""
        return dataclasses.replace(self._job, token=messages[0].token, base=messages[0].base)

    def _begun(self, job: WriteJob, messages: list[BatchMessage], batch: int) -> WriteTransaction:
        properties = source_options.commit_options(self._options)["commit_properties"]
        query = _query(messages[0].query, self._options)
        return WriteTransaction(
            job.store, job.snapshot(), age=None, app_id=query, app_version=batch, commit_properties=properties
        )

    def _stage(self, txn: WriteTransaction, job: WriteJob, messages: list[BatchMessage], batch: int) -> None:
        if job.reads_target:
            txn.read_whole_table()
        rows = job.rows(message.portion for message in messages)
        txn.write(rows, job.request)
        complete = job.request.mode == "overwrite"
        parameters = {
            "outputMode": "Complete" if complete else "Append",
            "queryId": _query(messages[0].query, self._options),
            "epochId": str(batch),
        }
        noted = {
            "numAddedFiles": len(rows.written.adds),
            "numRemovedFiles": txn.description.metrics["num_removed_files"] if txn.description else 0,
            "numOutputRows": rows.written.rows,
            "numOutputBytes": rows.written.size,
        }
        txn.describe("STREAMING UPDATE", parameters, noted, always=True)


def _query(told: str | None, options: Mapping[str, str]) -> str:
    """Under which id the table records the batches of the query.

    Args:
        told: the query's id, where Spark tells it.
        options: of the stream: its checkpoint holds the id, too.

    Raises:
        InvalidArgumentError: nobody knows the id and ``txnAppId`` gives none, or another one than the query has.
    """
    given, found = options.get("txnAppId"), told or _recorded(options)
    if found is None and given is None:
        raise InvalidArgumentError(
            "Spark does not tell which query this stream is, and its checkpoint cannot be read: give the option "
            "txnAppId, a text of its own for each stream and each checkpoint, so that no batch is written twice"
        )
    if found is not None and given is not None and given != found:
        raise InvalidArgumentError(
            f"txnAppId is for streams whose query's id is not known; this one is {found}, under which the table "
            "records its batches: leave the option out"
        )
    return found or given or ""


def _recorded(options: Mapping[str, str]) -> str | None:
    """The query's id as its checkpoint has it."""
    checkpoint = options.get("checkpointLocation")
    if checkpoint is None:
        return None
    try:
        store = open_location(checkpoint, source_options.storage_options(options))
        return str(json.loads(store.get("metadata"))["id"])
    except (DeltaError, StorageError, ValueError, KeyError, TypeError):
        return None
