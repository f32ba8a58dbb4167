"""`spark.readStream.format("refdelta")`: the rows of a table, then those that are added, each once."""

from __future__ import annotations

import dataclasses
import decimal
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.engine.log.location import open_location
from refdelta.operations.stream.offsets import StreamOptions
from refdelta.spark import typed_errors
from refdelta.spark.source_readers import StreamReader
from refdelta.spark.types import spark_schema

pytestmark = pytest.mark.spark

Batches = list[list[Any]]


def append(uri: Path, *ids: int, **arguments: Any) -> None:
    rows = pa.table({"id": pa.array(ids, pa.int64()), "k": [f"k{number % 2}" for number in ids]})
    write_deltalake(uri, rows, mode="append", **arguments)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 3 with two rows each, in two partitions; it has deletion vectors."""
    uri = tmp_path / "t"
    append(uri, 0, 1, partition_by="k", configuration={"delta.enableDeletionVectors": "true"})
    for number in (2, 4, 6):
        append(uri, number, number + 1)
    return uri


def load(session: Any, uri: Path, form: str = "refdelta", **options: Any) -> Any:
    return session.readStream.format(form).options(**options).load(str(uri))


def run(frame: Any, checkpoint: Path, into: Batches | None = None, fail_at: int | None = None) -> Batches:
    """The rows of each batch of all that there is now, in some settled order."""
    found = [] if into is None else into

    def take(batch: Any, number: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        if number == fail_at:
            raise RuntimeError("the driver fails here")
        found.append(sorted(rows, key=repr))

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    with typed_errors():
        writer.trigger(availableNow=True).start().awaitTermination()
    return found


def ids(batches: Batches) -> list[list[int]]:
    return [[row[0] for row in rows] for rows in batches]


OPTIONS: list[dict[str, Any]] = [
    {"maxFilesPerTrigger": 2},
    {"maxBytesPerTrigger": "700b", "startingVersion": "1", "skipChangeCommits": "true"},
    {"maxFilesPerTrigger": 3, "maxBytesPerTrigger": "1500b", "startingVersion": "2", "skipChangeCommits": "true"},
]


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("options", OPTIONS, ids=["snapshot", "bytes", "both"])
def test_batches_are_those_of_delta_spark(session: Any, table: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    DeltaTable(table).delete("id = 3")
    DeltaTable(table).optimize.compact()
    append(table, 8, 9, 10, 11, 12)
    append(table, 13)
    ours = run(load(session, table, **options), tmp_path / "ours")
    theirs = run(load(session, table, "delta", **options), tmp_path / "theirs")
    assert ours == theirs
    assert len(ours) > 2


STATEMENTS = """
create table {t} (id long, at timestamp, local timestamp_ntz, day date, price decimal(9,2), raw binary,
    deep struct<a: array<long>, b: struct<x: string>>, labels map<string, int>, part double)
    using delta partitioned by (part)
    tblproperties ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true');
insert into {t} values
    (1, timestamp'1970-01-01 00:00:00.000001', timestamp_ntz'1970-01-01 00:00:00', date'1970-01-01', 1.25, x'00ff',
        named_struct('a', array(1L, null), 'b', named_struct('x', 'y')), map('a', 1), 1.5),
    (2, null, null, null, null, null, null, null, null),
    (3, timestamp'0400-01-01', timestamp_ntz'9000-01-01 00:00:00', date'2024-02-29', -3.50, x'', null, map(), 1.5);
alter table {t} rename column price to cost;
alter table {t} rename column deep.b to c;
delete from {t} where id = 3;
alter table {t} add columns (more string first);
insert into {t} values ('new', 4, null, null, null, 7, null, named_struct('a', null, 'c', null), null, 2.5);
"""


@pytest.mark.tier("nightly")
def test_a_stream_goes_on_with_either_engine(session: Any, table: Path, tmp_path: Path) -> None:
    found: Batches = []
    limit = {"maxFilesPerTrigger": 3}
    with pytest.raises(Exception, match="the driver fails here"):
        run(load(session, table, "delta", **limit), tmp_path / "checkpoint", found, fail_at=1)
    with pytest.raises(Exception, match="the driver fails here"):
        run(load(session, table, **limit), tmp_path / "checkpoint", found, fail_at=2)
    append(table, 8)
    run(load(session, table, "delta", **limit), tmp_path / "checkpoint", found)
    append(table, 9)
    run(load(session, table, **limit), tmp_path / "checkpoint", found)
    assert sorted(number for batch in ids(found) for number in batch) == list(range(10))
    assert [len(batch) for batch in found] == [3, 3, 2, 1, 1]


@pytest.mark.tier("nightly")
def test_rows_of_all_kinds_are_those_of_delta_spark(session: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    for statement in STATEMENTS.format(t=f"delta.`{uri}`").split(";")[:-1]:
        session.sql(statement)
    ours = run(load(session, uri), tmp_path / "ours")
    assert ours == run(load(session, uri, "delta"), tmp_path / "theirs")
    assert sorted(row[1] for row in ours[0]) == [1, 2, 4]
    # From the first version on: rows of before a column was renamed come as the table is now.
    whole = run(load(session, uri, startingVersion="0", skipChangeCommits="true"), tmp_path / "whole")
    assert sorted(row[1] for row in whole[0]) == [1, 2, 3, 4]
    assert {row[1]: row[5] for row in whole[0]}[3] == decimal.Decimal("-3.50")
    with pytest.raises(Exception, match="SCHEMA"):  # delta-spark reads nothing of before
        run(load(session, uri, "delta", startingVersion="0", skipChangeCommits="true"), tmp_path / "refused")
    narrow = session.readStream.format("refdelta").schema("id long, cost decimal(9,2)").load(str(uri))
    assert {len(row) for row in run(narrow, tmp_path / "narrow")[0]} == {2}
    wrong = session.readStream.format("refdelta").schema("id string").load(str(uri))
    with pytest.raises(errors.InvalidArgumentError, match="bigint"):
        run(wrong, tmp_path / "wrong")


@pytest.mark.tier("nightly")
def test_a_batch_that_failed_is_repeated_with_the_same_rows(session: Any, table: Path, tmp_path: Path) -> None:
    at = tmp_path / "checkpoint"
    with pytest.raises(Exception, match="the driver fails here"):
        run(load(session, table, maxFilesPerTrigger=3), at, fail_at=0)
    # The first batch is the hard one: of its start Spark keeps nothing.
    DeltaTable(table).optimize.compact()
    DeltaTable(table).delete("id < 8")
    append(table, 10)
    later = {"maxFilesPerTrigger": 3, "skipChangeCommits": "true"}
    with pytest.raises(Exception, match="the driver fails here"):
        run(load(session, table, **later), at, fail_at=1)
    append(table, 11)
    found = run(load(session, table, **later), at)
    assert [len(batch) for batch in found[:2]] == [3, 3]
    assert sorted(number for batch in ids(found) for number in batch) == [*range(3, 8), 10, 11]


@pytest.mark.tier("nightly")
def test_what_stops_a_stream_and_how_it_goes_on(session: Any, table: Path, tmp_path: Path) -> None:
    at = tmp_path / "checkpoint"
    stream = load(session, table)
    assert ids(run(stream, at)) == [list(range(8))]
    more = pa.table({"id": [8], "k": ["k0"], "new": ["yes"]})
    append(table, 9)
    write_deltalake(table, more, mode="append", schema_mode="merge")
    found: Batches = []
    frame = stream.writeStream.foreachBatch(lambda batch, _: found.append(batch.collect()))
    query = frame.option("checkpointLocation", str(at)).start()  # without an end of its own
    with (
        pytest.raises(errors.StreamStoppedError, match="version 5 changes the table's schema") as caught,
        typed_errors(),
    ):
        query.awaitTermination()
    assert (caught.value.version, caught.value.reload, ids(found)) == (5, True, [[9]])
    assert run(load(session, table), at) == [[(8, "k0", "yes")]]
    DeltaTable(table).delete("k = 'k0'")
    append(table, 10)
    with pytest.raises(errors.StreamStoppedError, match=r"version 6 \(DELETE\) removes rows.*ignoreDeletes") as caught:
        run(load(session, table), at)
    assert (caught.value.version, caught.value.reload) == (6, False)
    assert ids(run(load(session, table, ignoreDeletes="true"), at)) == [[10]]


def test_what_is_gone_or_wrong_is_a_clear_error(session: Any, table: Path, tmp_path: Path) -> None:
    at = tmp_path / "checkpoint"
    run(load(session, table), at)
    append(table, 8)
    next(path for path in (table / "k=k0").iterdir() if "part" in path.name).unlink()
    with pytest.raises(errors.DataFileNotFoundError, match=r"k=k0/.*not exist any more: VACUUM"):
        run(load(session, table, startingVersion="0"), tmp_path / "other")
    other = tmp_path / "another"
    append(other, 1)
    with pytest.raises(errors.InvalidArgumentError, match="the stream reads the table with the id"):
        run(load(session, other), at)
    with pytest.raises(errors.TableNotFoundError), typed_errors():
        load(session, tmp_path / "none")
    for options, said in (
        ({"filter": "id > 1"}, "option 'filter' does not exist .*startingVersion"),
        ({"startingVersion": "soon"}, "startingVersion is a whole number"),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger must be a positive number"),
        ({"maxBytesPerTrigger": "1x"}, "number of bytes"),
        ({"ignoreDeletes": "maybe"}, "true or false"),
    ):
        from refdelta.spark.source import RefdeltaSource

        with pytest.raises(errors.InvalidArgumentError, match=said), typed_errors():
            RefdeltaSource({"path": str(other), **options}).streamReader(session.range(1).schema)


@pytest.mark.tier("nightly")
def test_what_delta_spark_does_otherwise(session: Any, table: Path, tmp_path: Path) -> None:
    ours, theirs = load(session, table, startingVersion="2"), load(session, table, "delta", startingVersion="2")
    # A property changes nothing of what it reads, and it reads on.
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "false"})
    append(table, 8)
    assert ids(run(theirs, tmp_path / "theirs")) == [[4, 5, 6, 7, 8]]
    found: Batches = []
    with pytest.raises(errors.StreamStoppedError, match="version 4"):
        run(ours, tmp_path / "ours", found)
    assert ids(found) == [[4, 5, 6, 7]]
    assert ids(run(load(session, table), tmp_path / "ours")) == [[8]]
    # It checks the commit after a batch before the batch is read, and fails: the batch never arrives.
    append(table, 9)
    DeltaTable(table).delete("id = 3")
    for form, error, name in (
        ("delta", "DELTA_SOURCE_IGNORE_DELETE", "theirs"),
        ("refdelta", "version 7", "ours"),
    ):
        found.clear()
        with pytest.raises(Exception, match=error):
            run(load(session, table, form), tmp_path / name, found)
        assert ids(found) == ([] if form == "delta" else [[9]])


def test_the_reader_keeps_to_limits_and_to_the_end_of_available_now(table: Path) -> None:
    scan = DeltaTable(table)._planned()

    def reader(**options: Any) -> StreamReader:
        return StreamReader(open_location(table), 3, spark_schema(scan.plan.columns), StreamOptions(**options))

    assert reader().getDefaultReadLimit() == ReadMaxFiles(1000)
    assert reader(max_bytes=7).getDefaultReadLimit() == ReadMaxBytes(7)
    limited = reader(max_files=3, max_bytes=10**9)
    assert limited.getDefaultReadLimit() == ReadMaxFiles(3)
    limited.prepareForTriggerAvailableNow()
    for number in (8, 9):  # too late
        append(table, number)
    start, ends = limited.initialOffset(), []
    while (end := limited.latestOffset(start, ReadMaxFiles(3))) != start:
        ends.append((end["reservoirVersion"], end["index"]))
        assert len(limited.partitions(start, end)[0].value) <= 3
        start = end
    assert ends == [(3, 2), (3, 5), (4, -1)]
    assert limited.partitions(start, start) == []
    # Spark may ask for all there is, and then limits do not count.
    everything = reader(max_files=1)
    assert everything.reportLatestOffset() is None
    end = everything.latestOffset(everything.initialOffset(), ReadAllAvailable())
    assert end["reservoirVersion"] == 6
    assert everything.reportLatestOffset() == end
    # A worker has the files of its task, and nothing of the log.
    parts = everything.partitions(everything.initialOffset(), end)
    worker, part = pickle.loads(pickle.dumps((everything, parts[0])))
    assert "_changes" in vars(everything)
    assert "_changes" not in vars(worker)
    assert sorted(number for batch in worker.read(part) for number in batch.column("id").to_pylist()) == list(range(10))


def test_many_small_files_are_more_than_one_task(table: Path) -> None:
    from refdelta.spark.source_readers import file_partitions

    files = DeltaTable(table)._planned()
    assert [len(part.value) for part in file_partitions(files)] == [8]
    wide = pa.table({"id": pa.arange(0, 100), "k": [f"p{number}" for number in range(100)]})
    write_deltalake(table, wide, mode="append")
    assert [len(part.value) for part in file_partitions(DeltaTable(table)._planned())] == [31, 31, 31, 15]


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([7, 7, 7, 7], [1, 1, 1, 1]),  # few bytes, and still more than one task
        ([1] * 8, [6, 2]),
        ([40] * 16, [1] * 16),
        ([30] * 100, [3] * 33 + [1]),  # 3 GB: as much as a task takes
    ],
)
def test_the_tasks_of_few_large_files(table: Path, sizes: list[int], tasks: list[int]) -> None:
    from refdelta.spark.source_readers import file_partitions

    scan = DeltaTable(table)._planned()
    files = scan.files.take([0] * len(sizes))
    place = files.schema.get_field_index("size")
    files = files.set_column(place, "size", pa.array([size * 2**20 for size in sizes], pa.int64()))
    assert [len(part.value) for part in file_partitions(dataclasses.replace(scan, files=files))] == tasks
