"""The change data feed by the data source: a batch of some versions, and a stream of all that changes.

Tests of spark.source_readers, operations.stream.offsets.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from comparison import rows
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.operations.stream.offsets import StreamOptions
from refdelta.spark import typed_errors
from refdelta.spark.source import RefdeltaSource
from refdelta.spark.source_readers import StreamReader

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {**FEED, "delta.enableDeletionVectors": "true"}


def data(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "k": [f"k{number % 2}" for number in ids]})


@pytest.fixture(params=["plain", "vectors"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Versions 0 to 5: rows, an update, a delete, an append, a compaction, and a delete of a whole partition."""
    uri = tmp_path / "t"
    properties = FEED if request.param == "plain" else VECTORS
    write_deltalake(uri, data(0, 1, 2, 3), partition_by=["k"], configuration=properties)
    table = DeltaTable(uri)
    table.update({"k": "'k2'"}, predicate="id = 1")
    table.delete("id = 2")
    write_deltalake(uri, data(4, 5), mode="append")
    table.optimize.compact()
    table.delete("k = 'k1'")
    assert table.version() == 5
    return uri


def reader(uri: Path, version: int | None = None, **options: Any) -> StreamReader:
    store = open_location(uri)
    seen = DeltaTable(uri, version=version).version()
    schema = RefdeltaSource({"path": str(uri), "readChangeFeed": "true"}).schema()
    return StreamReader(store, seen, schema, StreamOptions(feed=True, **options))


def batches(stream: StreamReader, limit: Any = None, offset: Any = None) -> tuple[list[pa.Table], Any]:
    """The batches that there are now, and where they end."""
    found: list[Any] = []
    offset = offset or stream.initialOffset()
    while True:
        end = stream.latestOffset(offset, limit or ReadAllAvailable())
        end = json.loads(json.dumps(end))
        if end == offset:
            return found, offset
        read = [batch for part in stream.partitions(offset, end) for batch in stream.read(part)]
        found.append(pa.Table.from_batches(read) if read else None)
        offset = end


def together(found: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(table for table in found if table is not None)


@pytest.mark.sample(check=1)
def test_a_stream_has_the_rows_and_then_all_that_changes(uri):
    stream = reader(uri, version=1)
    (whole, *rest), offset = batches(stream)
    # What version 1 holds, as if it had inserted it, and what changed since.
    table = DeltaTable(uri)
    expected = table.load_cdf(2).read_all()
    held = DeltaTable(uri, version=1).to_pyarrow_table()
    told = together([whole, *rest])
    inserted = told.filter(pa.compute.equal(told["_commit_version"], 1))
    assert rows(inserted.select(["id", "k"])) == rows(held)
    assert set(inserted["_change_type"].to_pylist()) == {"insert"}
    assert rows(told.filter(pa.compute.greater(told["_commit_version"], 1))) == rows(expected.cast(told.schema))
    table.update({"k": "'k9'"}, predicate="id = 0")
    (more,), offset = batches(stream, offset=offset)
    assert rows(more) == rows(table.load_cdf(6).read_all().cast(more.schema))
    assert more.num_rows == 2
    assert batches(stream, offset=offset)[0] == []


@pytest.mark.sample(check=1)
def test_a_stream_from_a_version_in_small_batches(uri):
    expected = DeltaTable(uri).load_cdf(1).read_all()
    found, offset = batches(reader(uri, starting_version=1, max_files=1), ReadMaxFiles(1))
    per_batch = [[] if one is None else sorted(set(one["_commit_version"].to_pylist())) for one in found]
    # All that a version changed is in one batch.
    assert sorted(version for batch in per_batch for version in batch) == [1, 2, 3, 5]
    assert len(found) >= 4
    told = together(found)
    assert rows(told) == rows(expected.cast(told.schema))
    since = DeltaTable(uri).history()[0]["timestamp"] / 1000
    at = dt.datetime.fromtimestamp(since, dt.UTC).isoformat()
    (last,), _ = batches(reader(uri, starting_timestamp=at))
    assert set(last["_commit_version"].to_pylist()) == {5}
    assert batches(reader(uri, starting_version="latest"))[0] == []
    middle = {**offset, "reservoirVersion": 2, "index": 0}
    with pytest.raises(Exception, match="not an offset of a stream of refdelta over a change data feed"):
        reader(uri).latestOffset(middle, ReadAllAvailable())


@pytest.mark.tier("test")
@pytest.mark.sample(check=1)
def test_where_a_stream_stops(uri):
    stream = reader(uri)
    _, offset = batches(stream)
    table = DeltaTable(uri)
    table.alter.add_columns(pa.schema([("later", pa.int64())]))
    table.delete("id = 0")
    with pytest.raises(Exception, match="version 6 changes the table's schema"):
        batches(stream, offset=offset)
    (more,), offset = batches(reader(uri), offset=offset)
    assert more["later"].null_count == more.num_rows == 1
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    with pytest.raises(Exception, match="version 8 was not recorded"):
        batches(reader(uri), offset=offset)
    table.alter.set_table_properties(FEED)
    with pytest.raises(Exception, match="version 8 was not recorded"):
        batches(reader(uri), offset=offset)
    with pytest.raises(Exception, match="version 8 was not recorded"):
        reader(uri, starting_version=8).initialOffset()
    assert reader(uri, starting_version=9).initialOffset()["reservoirVersion"] == 9


@pytest.mark.tier("nightly")
@pytest.mark.spark
def test_spark_reads_batches_and_streams_as_delta_spark_does(session, uri, tmp_path):
    def read(form: str, **options: Any) -> pa.Table:
        return session.read.format(form).option("readChangeFeed", "true").options(**options).load(str(uri)).toArrow()

    for options in ({"startingVersion": 0}, {"startingVersion": 1, "endingVersion": 3}):
        ours, theirs = read("refdelta", **options), read("delta", **options)
        assert ours.schema.names == theirs.schema.names
        assert rows(ours) == rows(theirs)
    filtered = read("refdelta", startingVersion=0, filter="_change_type = 'delete'")
    assert set(filtered["_change_type"].to_pylist()) == {"delete"}
    for options, said in (({}, "startingVersion"), ({"startingVersion": 9}, "after version 5")):
        with pytest.raises(errors.DeltaError, match=said), typed_errors():
            read("refdelta", **options)
    with pytest.raises(errors.InvalidArgumentError, match="requires readChangeFeed"), typed_errors():
        session.read.format("refdelta").option("endingVersion", 1).load(str(uri)).toArrow()

    found = {}
    for form in ("refdelta", "delta"):
        out: list[Any] = []
        stream = session.readStream.format(form).option("readChangeFeed", "true").option("startingVersion", 0)
        query = (
            stream.load(str(uri))
            .writeStream.foreachBatch(lambda batch, _, out=out: out.extend(tuple(row) for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{form}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(300)
        found[form] = sorted(map(str, out))
    assert found["refdelta"] == found["delta"]
    assert len(found["delta"]) == DeltaTable(uri).load_cdf().read_all().num_rows
