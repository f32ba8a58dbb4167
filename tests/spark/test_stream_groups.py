"""Streams and batches of Spark that share versions by intents: the option ``group``.

Tests of spark.options, spark.source_writers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, settle, write_deltalake
from refdelta.core.commit import intents
from refdelta.spark import typed_errors, write
from refdelta.transaction.options import CommitProperties
from spark.files import committed, data_files, rows_of
from spark.test_stream_write import SCHEMA, Stream, write_one, writer
from transaction.test_intents import lay

pytestmark = pytest.mark.spark

NONE = pa.table({"id": pa.array([], pa.int64()), "kind": pa.array([], pa.string())})


@pytest.fixture
def stream(session: Any, tmp_path: Path) -> Stream:
    write_deltalake(tmp_path / "t", NONE)
    return Stream(session, tmp_path)


def entries(uri: Path) -> list[dict[str, Any]]:
    """The transactions of the history, the oldest first, without the one that made the table."""
    versions = reversed(DeltaTable(uri).history()[:-1])
    return [one for entry in versions for one in entry.get("members", [entry])]


def test_batches_of_two_streams_share_a_version_and_a_stream_reads_each_row_once(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other stream has put its batch beside the log, and was killed."""
    monkeypatch.setattr(intents, "FRESH_MS", 86_400_000)  # the machine may stall
    monkeypatch.setattr(intents, "LISTING_SECONDS", 86_400.0)
    uri, group = str(stream.uri), {"group": "ALWAYS"}
    rows = pa.table({"id": [8], "kind": ["other"]})
    batch, mine = write_one(writer(stream, **group)), writer(stream, txnAppId="me", **group)
    lay(uri, lambda txn: txn.append(rows), app_id="other", app_version=4)
    mine.commit([batch], 0)
    (shared,) = [entry for entry in DeltaTable(uri).history() if "members" in entry]
    assert (shared["version"], len(shared["members"])) == (1, 2)
    assert [DeltaTable(uri).transaction_version(app) for app in ("me", "other")] == [0, 4]
    # Run again: skipped for its own id, and the files are removed; the other stream goes on.
    writer(stream, txnAppId="me", **group).commit([write_one(writer(stream, **group))], 0)
    assert DeltaTable(uri).version() == 1
    assert data_files(stream.uri) == committed(stream.uri)
    writer(stream, txnAppId="other", **group).commit([write_one(writer(stream, **group))], 5)
    assert [DeltaTable(uri).transaction_version(app) for app in ("me", "other")] == [0, 5]
    assert stream.rows == [(8, "other"), (9, "a"), (9, "a")]
    settle()

    copied = stream.uri.parent / "copied"
    reader = stream.session.readStream.format("refdelta").option("startingVersion", 1).load(uri)
    query = reader.writeStream.format("refdelta").option("checkpointLocation", str(stream.uri.parent / "read"))
    with typed_errors():
        query.trigger(availableNow=True).start(str(copied)).awaitTermination()
    assert rows_of(copied) == stream.rows


def test_two_streams_at_once_write_each_batch_once(stream: Stream, tmp_path: Path) -> None:
    other = Stream(stream.session, tmp_path / "other")
    other.uri = stream.uri
    for number in range(3):
        stream.add((number, "one"))
        other.add((10 + number, "two"))
    with typed_errors():
        queries = [one.start(group="always") for one in (stream, other)]
        for query in queries:
            query.awaitTermination()
    assert sorted(stream.rows) == [(n, "one") for n in range(3)] + [(10 + n, "two") for n in range(3)]
    table = DeltaTable(stream.uri)
    assert [table.transaction_version(one.query) for one in (stream, other)] == [2, 2]
    found = entries(stream.uri)
    for one in (stream, other):
        epochs = [
            entry["operationParameters"]["epochId"]
            for entry in found
            if entry["operationParameters"]["queryId"] == one.query
        ]
        assert epochs == ["0", "1", "2"]
    assert all("leadMs" in entry for entry in table.history()[:-1]), "a version was put without an intent"
    assert data_files(stream.uri) == committed(stream.uri)
    version = table.version()
    stream.forget(2)
    stream.run(group="intents")
    assert DeltaTable(stream.uri).version() == version


def test_batches_of_dataframes_are_put_as_intents(stream: Stream) -> None:
    frame = stream.session.createDataFrame([(1, "a")], SCHEMA)
    frame.write.format("refdelta").mode("append").option("group", "always").save(str(stream.uri))
    write(frame, stream.uri, mode="append", commit_properties=CommitProperties(group="always"))
    frame.write.format("refdelta").mode("append").option("group", "Intents").save(str(stream.uri))  # it is alone
    frame.write.format("refdelta").mode("append").save(str(stream.uri))
    history = DeltaTable(stream.uri).history()[:-1]
    assert ["leadMs" in entry for entry in history] == [False, False, True, True]
    assert ["writer" in entry for entry in history] == [False, True, True, True]
    assert stream.rows == [(1, "a")] * 4


def test_another_value_is_refused_before_a_task_runs(stream: Stream) -> None:
    frame = stream.session.createDataFrame([(1, "a")], SCHEMA)
    refused = "group must be intents or always, not 'all'"
    with pytest.raises(errors.InvalidArgumentError, match=refused), typed_errors():
        frame.write.format("refdelta").mode("append").option("group", "all").save(str(stream.uri))
    with pytest.raises(errors.InvalidArgumentError, match=refused), typed_errors():
        writer(stream, group="all")
    with pytest.raises(errors.InvalidArgumentError, match="'group'"), typed_errors():
        stream.session.read.format("refdelta").option("group", "always").load(str(stream.uri)).collect()
    assert data_files(stream.uri) == set()
