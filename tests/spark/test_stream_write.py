"""`df.writeStream.format("refdelta")`: each batch of a stream is one commit, and is there exactly once.

Tests of spark.source_writers.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.spark import typed_errors, write
from refdelta.spark.source import RefdeltaSource
from refdelta.spark.source_writers import StreamWriter
from spark.files import committed, data_files, rows_of

pytestmark = pytest.mark.spark

SCHEMA = "id long, kind string"


class Stream:
    """A folder of Parquet files, one of them a batch, that streams into a table with one checkpoint."""

    def __init__(self, session: Any, folder: Path):
        self.session, self.source, self.uri, self.checkpoint = (
            session,
            folder / "in",
            folder / "t",
            folder / "checkpoint",
        )
        self.source.mkdir(parents=True)

    def add(self, *rows: tuple[int, str | None]) -> Stream:
        """One more batch."""
        ids, kinds = zip(*rows, strict=True) if rows else ((), ())
        table = pa.table({"id": pa.array(ids, pa.int64()), "kind": pa.array(kinds, pa.string())})
        pq.write_table(table, self.source / f"{len(list(self.source.iterdir())):03}.parquet")
        return self

    def frame(self) -> Any:
        return self.session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.source))

    def start(
        self,
        change: Callable[[Any], Any] = lambda frame: frame,
        mode: str = "append",
        form: str = "refdelta",
        checkpoint: Path | None = None,
        **options: Any,
    ) -> Any:
        """The query, on its way through what there is."""
        writer = change(self.frame()).writeStream.format(form).outputMode(mode).options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint))
        return writer.trigger(availableNow=True).start(str(self.uri))

    def run(self, change: Callable[[Any], Any] = lambda frame: frame, **options: Any) -> Stream:
        """All that there is, to its end."""
        with typed_errors():
            self.start(change, **options).awaitTermination()
        return self

    @property
    def query(self) -> str:
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    @property
    def batches(self) -> list[int]:
        """Which Spark knows to be done."""
        done = (path.name for path in (self.checkpoint / "commits").iterdir() if not path.name.startswith("."))
        return sorted(map(int, done))

    def forget(self, batch: int) -> None:
        """Make Spark forget that a batch was done, as if it was killed after the commit of the table."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return rows_of(self.uri)


@pytest.fixture
def stream(session: Any, tmp_path: Path) -> Stream:
    return Stream(session, tmp_path)


def test_each_batch_is_a_commit_that_records_query_and_batch(stream: Stream) -> None:
    stream.add((1, "a")).add((2, "b"), (3, None)).run(partitionBy="kind", userMetadata="noted")
    stream.add((4, "a")).run()
    table = DeltaTable(stream.uri)
    assert stream.rows == [(1, "a"), (2, "b"), (3, None), (4, "a")]
    assert table.metadata().partition_columns == ["kind"]
    assert table.transaction_version(stream.query) == 2
    history = table.history()
    assert [entry["operation"] for entry in history] == ["STREAMING UPDATE"] * 3
    assert [entry["operationParameters"]["epochId"] for entry in history] == ["2", "1", "0"]
    assert [entry.get("userMetadata") for entry in history] == [None, "noted", "noted"]
    assert data_files(stream.uri) == committed(stream.uri)


def test_a_batch_that_the_table_has_is_skipped_and_leaves_no_file(stream: Stream) -> None:
    stream.add((1, "a")).add((2, "b")).run()
    version, files = DeltaTable(stream.uri).version(), data_files(stream.uri)
    stream.forget(1)
    stream.run()
    assert stream.batches == [0, 1]
    assert (DeltaTable(stream.uri).version(), data_files(stream.uri)) == (version, files)
    stream.forget(1)
    stream.add((3, "c")).run()
    assert stream.rows == [(1, "a"), (2, "b"), (3, "c")]
    assert data_files(stream.uri) == committed(stream.uri)


def test_two_queries_with_one_checkpoint_write_no_batch_twice(stream: Stream, tmp_path: Path) -> None:
    uri = str(stream.uri)

    def rival(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Another driver of the same query, which is faster by a moment."""
        from pyspark import TaskContext

        told: Any = TaskContext.get()
        query, batch = map(told.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
        rows = pa.table({"id": [10 + int(batch)], "kind": ["theirs"]})
        write_deltalake(uri, rows, mode="append", app_id=query, app_version=int(batch))
        yield from batches

    def beside_a_rival(frame: Any) -> Any:
        return frame.mapInArrow(rival, SCHEMA)

    stream.add((1, "a")).run()
    stream.add((2, "b"))
    with pytest.raises(errors.ConcurrentTransactionException, match="application id") as caught:
        stream.run(beside_a_rival)
    assert caught.value.conflict is not None
    assert data_files(stream.uri) == committed(stream.uri)
    # The batch is theirs; the query continues after it.
    stream.add((3, "c")).run()
    assert stream.rows == [(1, "a"), (11, "theirs"), (3, "c")]
    # A query that begins with an older copy of the checkpoint writes no batch that the table has.
    copy = tmp_path / "copy"
    shutil.copytree(stream.checkpoint, copy)
    for name in ("1", "2", ".1.crc", ".2.crc"):
        for kind in ("offsets", "commits"):
            (copy / kind / name).unlink(missing_ok=True)
    stream.run(checkpoint=copy)
    assert stream.rows == [(1, "a"), (11, "theirs"), (3, "c")]
    assert data_files(stream.uri) == committed(stream.uri)


@pytest.mark.tier("nightly")
def test_delta_spark_and_refdelta_take_over_from_each_other(stream: Stream, session: Any) -> None:
    stream.add((1, "a")).run(form="delta")
    stream.add((2, "b")).run()
    stream.forget(1)
    stream.add((3, "c")).run(form="delta")
    stream.forget(2)
    stream.add((4, "d")).run()
    assert stream.rows == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    ours, theirs = oracle.history(session, stream.uri)[:2]
    assert ours["operation"] == theirs["operation"]
    assert ours["operationParameters"] == {**theirs["operationParameters"], "epochId": "3"}
    assert ours["operationMetrics"].keys() == theirs["operationMetrics"].keys()
    assert ours["operationMetrics"]["numOutputRows"] == theirs["operationMetrics"]["numOutputRows"] == "1"
    assert ours["isBlindAppend"] is theirs["isBlindAppend"] is True
    assert oracle.read_table(session, stream.uri).sort_by("id").column("id").to_pylist() == [1, 2, 3, 4]


@pytest.mark.tier("nightly")
def test_complete_mode_replaces_the_table_by_each_batch(stream: Stream, session: Any) -> None:
    def counts(frame: Any) -> Any:
        return frame.groupBy("kind").count()

    stream.add((1, "a"), (2, "b")).add((3, "a")).run(counts, mode="complete")
    assert stream.rows == [("a", 2), ("b", 1)]
    history = DeltaTable(stream.uri).history()
    assert [entry["operationParameters"]["outputMode"] for entry in history] == ["Complete", "Complete"]
    assert history[0]["operationMetrics"]["numRemovedFiles"] == history[1]["operationMetrics"]["numAddedFiles"]
    stream.forget(1)
    stream.run(counts, mode="complete")
    assert DeltaTable(stream.uri).version() == 1
    with pytest.raises(errors.SchemaMismatchError, match="more"):
        stream.add((4, "b")).run(lambda frame: counts(frame).selectExpr("*", "1 as more"), mode="complete")
    stream.run(lambda frame: counts(frame).selectExpr("*", "1 as more"), mode="complete", overwriteSchema="true")
    assert stream.rows == [("a", 2, 1), ("b", 2, 1)]
    with pytest.raises(Exception, match="Update mode"):
        stream.run(counts, mode="update", checkpoint=stream.uri.parent / "other")


def test_batches_without_rows_are_recorded_and_create_the_table(stream: Stream) -> None:
    def none(frame: Any) -> Any:
        return frame.where("id < 0")

    stream.add((1, "a")).add().run(none)
    table = DeltaTable(stream.uri)
    assert (table.version(), table.count(), table.transaction_version(stream.query)) == (1, 0, 1)
    assert table.to_pyarrow_table().column_names == ["id", "kind"]
    assert not data_files(stream.uri)


def test_rows_of_another_schema_are_refused_before_a_task_runs(stream: Stream) -> None:
    write_deltalake(stream.uri, pa.table({"id": [0], "kind": ["z"]}), partition_by="kind")
    stream.add((1, "a"))

    def wider(frame: Any) -> Any:
        return frame.selectExpr("*", "raise_error('ran') as more")

    with pytest.raises(errors.SchemaMismatchError, match="more"):
        stream.run(wider)
    with pytest.raises(errors.InvalidArgumentError, match="partitioned by"):
        stream.run(partitionBy="id")
    with pytest.raises(errors.UnsupportedTypeError):
        stream.run(lambda frame: frame.selectExpr("*", "interval 1 day as more"))
    assert DeltaTable(stream.uri).version() == 0
    # Names are found, whatever their order; what is missing is null.
    stream.run(lambda frame: frame.selectExpr("kind", "id", "id * 2 as more"), mergeSchema="true", partitionBy="kind")
    assert stream.rows == [(0, "z", None), (1, "a", 2)]


def test_what_is_refused_says_why(session: Any, tmp_path: Path) -> None:
    schema = session.createDataFrame([(1, "a")], SCHEMA).schema

    def refused(match: str, *, complete: bool = False, **options: str) -> None:
        given = CaseInsensitiveDict({"path": str(tmp_path / "t"), **options})
        with pytest.raises(errors.InvalidArgumentError, match=match), typed_errors():
            RefdeltaSource(given).streamWriter(schema, complete)

    refused("replacewhere.*checkpointLocation", replaceWhere="id = 1", complete=True)
    refused("txnversion", txnVersion="1")
    refused("readsTarget of a stream", readsTarget="3")
    refused("overwriteSchema requires the output mode complete", overwriteSchema="true")
    refused("memory", path="memory://here")


def test_a_batch_that_fails_leaves_the_table_as_it_was(stream: Stream, tmp_path: Path) -> None:
    flag = str(tmp_path / "flag")

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not Path(flag).exists():
            Path(flag).touch()
            raise ValueError("no luck")

    stream.add((1, "a")).run()
    stream.add((2, "b"))
    with pytest.raises(Exception, match="no luck"):
        stream.run(lambda frame: frame.mapInArrow(fail_once, SCHEMA))
    assert stream.rows == [(1, "a")]
    stream.run(lambda frame: frame.mapInArrow(fail_once, SCHEMA))
    assert stream.rows == [(1, "a"), (2, "b")]


def test_a_change_of_the_table_under_a_batch_is_the_conflict_that_it_is(stream: Stream) -> None:
    uri = str(stream.uri)

    def changing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        DeltaTable(uri).alter.set_table_properties({"delta.appendOnly": "false"})
        yield from batches

    stream.add((1, "a")).run()
    with pytest.raises(errors.MetadataChangedException):
        stream.add((2, "b")).run(lambda frame: frame.mapInArrow(changing, SCHEMA))
    assert data_files(stream.uri) == committed(stream.uri)
    stream.run(readsTarget="true")
    assert stream.rows == [(1, "a"), (2, "b")]
    assert DeltaTable(stream.uri).history(1)[0]["isBlindAppend"] is False


def writer(stream: Stream, *, overwrite: bool = False, **options: str) -> StreamWriter:
    """The writer that Spark creates for each batch, and again for its commit."""
    schema = stream.session.createDataFrame([(1, "a")], SCHEMA).schema
    source = RefdeltaSource(CaseInsensitiveDict({"path": str(stream.uri), **options}))
    found = source.streamWriter(schema, overwrite)
    assert isinstance(found, StreamWriter)
    return found


def write_one(job: StreamWriter) -> Any:
    return pickle.loads(pickle.dumps(job)).write(iter([pa.record_batch({"id": [9], "kind": ["a"]})]))


def test_abort_keeps_what_a_commit_names(stream: Stream) -> None:
    message = write_one(writer(stream, txnAppId="me"))
    writer(stream, txnAppId="me").commit([message], 0)
    landed = data_files(stream.uri)
    assert len(landed) == 1
    for messages in ([message], [message, None], []):
        writer(stream).abort(messages, 0)
        assert data_files(stream.uri) == landed
    message = write_one(writer(stream))
    assert data_files(stream.uri) > landed
    writer(stream).abort([None], 1)
    writer(stream).abort([message, None], 1)
    assert data_files(stream.uri) == landed


def test_the_slower_of_two_drivers_commits_nothing(stream: Stream) -> None:
    expected = (errors.ProtocolChangedException, errors.ConcurrentTransactionException)
    for batch, kind in enumerate(expected):
        faster, slower = (write_one(writer(stream, txnAppId="me")) for _ in range(2))
        writer(stream, txnAppId="me").commit([faster], batch)
        with pytest.raises(kind), typed_errors():
            writer(stream, txnAppId="me").commit([slower], batch)
        writer(stream, txnAppId="me").commit([write_one(writer(stream, txnAppId="me"))], batch)
        assert DeltaTable(stream.uri).version() == batch
        assert data_files(stream.uri) == committed(stream.uri)


def test_complete_mode_leaves_an_append_only_table_as_it_is(stream: Stream) -> None:
    rows = pa.table({"id": [0], "kind": ["z"]})
    write_deltalake(stream.uri, rows, configuration={"delta.appendOnly": "true"})
    with pytest.raises(errors.ConstraintViolationError, match="append-only"), typed_errors():
        writer(stream, overwrite=True, txnAppId="me").commit([write_one(writer(stream, overwrite=True))], 0)
    assert data_files(stream.uri) == committed(stream.uri)


def test_a_query_that_spark_does_not_name_is_named_by_its_checkpoint_or_by_the_user(stream: Stream) -> None:
    stream.checkpoint.mkdir()
    (stream.checkpoint / "metadata").write_text('{"id":"7a"}')
    by_checkpoint = {"checkpointLocation": str(stream.checkpoint)}
    writer(stream, **by_checkpoint).commit([write_one(writer(stream))], 3)
    assert DeltaTable(stream.uri).transaction_version("7a") == 3
    writer(stream, txnAppId="me").commit([write_one(writer(stream))], 4)
    assert DeltaTable(stream.uri).transaction_version("me") == 4
    landed = data_files(stream.uri)
    with pytest.raises(errors.InvalidArgumentError, match="txnAppId"), typed_errors():
        writer(stream, checkpointLocation="nowhere").commit([write_one(writer(stream))], 5)
    with pytest.raises(errors.InvalidArgumentError, match="7a"), typed_errors():
        writer(stream, txnAppId="me", **by_checkpoint).commit([write_one(writer(stream))], 5)
    assert data_files(stream.uri) == landed


def test_rows_that_spark_keeps_to_itself_are_never_taken_for_written(stream: Stream) -> None:
    # What a sink in Python gets under a continuous trigger: no rows, and no word of it.
    with pytest.raises(errors.InvalidArgumentError, match="continuous"), typed_errors():
        writer(stream).commit([None], 0)
    assert not stream.uri.exists()


def test_foreach_batch_with_an_application_writes_each_batch_once(stream: Stream) -> None:
    uri = stream.uri

    def each(batch: Any, number: int) -> None:
        write(batch, uri, mode="append", app_id="mine", app_version=number)

    def run() -> None:
        frame = stream.frame().writeStream.foreachBatch(each).option("checkpointLocation", str(stream.checkpoint))
        frame.trigger(availableNow=True).start().awaitTermination()

    stream.add((1, "a")).add((2, "b"))
    run()
    stream.forget(1)
    stream.add((3, "c"))
    run()
    assert stream.rows == [(1, "a"), (2, "b"), (3, "c")]
    assert DeltaTable(uri).transaction_version("mine") == 2
    assert data_files(uri) == committed(uri)
