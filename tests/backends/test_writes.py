"""Creating and writing tables, and reading them back now and as they were: the same on every backend."""

from __future__ import annotations

import datetime as dt
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from backends.tables import NOW, files, ids, numbers, objects, opened, paths, write
from refdelta import DeltaTable, errors
from refdelta.engine.log.location import open_location
from refdelta.engine.scan.reader import BATCH_ROWS


def test_each_way_to_write_and_every_version_stays_readable(place):
    assert not DeltaTable.is_deltatable(place.uri, place.options)
    with pytest.raises(errors.TableNotFoundError):
        opened(place)
    schema = numbers().schema
    made = DeltaTable.create(place.uri, schema, partition_by=["p"], storage_options=place.options, name="numbers")
    assert (made.version(), made.count()) == (0, 0)
    with pytest.raises(errors.TableAlreadyExistsError):
        DeltaTable.create(place.uri, schema, storage_options=place.options)
    with pytest.raises(errors.TableAlreadyExistsError):
        write(place, numbers(9))
    assert write(place, numbers(9), mode="ignore").version is None

    wanted: list[list[int]] = [[]]

    def now_holds(*expected):
        wanted.append(list(expected))
        assert ids(place) == list(expected)

    write(place, numbers(1, 2, p="a"), mode="append")
    now_holds(1, 2)
    write(place, numbers(3, 4, p="b"), mode="append")
    now_holds(1, 2, 3, 4)
    write(place, numbers(5, p="a"), mode="overwrite", predicate="p = 'a'")
    now_holds(3, 4, 5)
    write(place, numbers(6, p="b"), mode="overwrite", predicate="id between 4 and 6 and p = 'b'")
    now_holds(3, 5, 6)
    both = pa.concat_tables([numbers(7, p="b"), numbers(8, p="c")])
    write(place, both, mode="overwrite", partition_overwrite="dynamic")
    now_holds(5, 7, 8)
    write(place, numbers(9, p="d").append_column("more", pa.array([1.5])), mode="append", schema_mode="merge")
    now_holds(5, 7, 8, 9)
    write(place, pa.table({"id": [10], "q": [1]}), mode="overwrite", schema_mode="overwrite", partition_by=["q"])
    now_holds(10)
    assert [field.name for field in opened(place).schema().fields] == ["id", "q"]

    for version, expected in enumerate(wanted):
        assert ids(place, version) == expected, version
    # Each data file that is in the store is one that the log names.
    named = {unquote(path) for version in range(len(wanted)) for path in paths(place, version)}
    assert files(place) == named


def test_an_application_writes_each_of_its_versions_once(place):
    for _ in range(2):
        for version in (1, 2):
            write(place, numbers(version), mode="append", app_id="loader", app_version=version)
    assert ids(place) == [1, 2]
    assert opened(place).transaction_version("loader") == 2


ODD = [
    "x",
    None,
    " ",
    "..",
    ".",
    "a/b=c d",
    "/",
    "%2F",
    "100%",
    "a+b&c?d#e",
    "quote\"'`",
    "back\\slash",
    "[*]{}~^|<>",
    "new\nline\ttab",
    "Ünïcödé 日本 🙂",
    "e\u0301",
    "trailing.",
    "x" * 150,
]


def test_odd_partition_values_make_the_round_trip_to_names_of_objects(place):
    data = pa.table({"id": list(range(len(ODD))), "p": ODD, "half": [i % 2 == 0 for i in range(len(ODD))]})
    write(place, data, partition_by=["p", "half"])
    table = opened(place)
    assert sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["id"]) == data.to_pylist()
    for i, value in enumerate(ODD):
        if value is not None:
            assert table.to_pyarrow_table(["id"], [("p", "=", value)])["id"].to_pylist() == [i], value
    assert len(files(place)) == len(ODD)
    # Half of them go: their objects are found by their names, and no others.
    by_value = {unquote(name.split("/")[0].removeprefix("p=")): name for name in files(place)}
    kept = {by_value["__HIVE_DEFAULT_PARTITION__" if value is None else value] for value in ODD[1::2]}
    table.delete("id % 2 = 0")
    table.vacuum(dry_run=False, full=True, **NOW)
    assert files(place) == kept
    assert ids(place) == list(range(1, len(ODD), 2))


def test_a_table_larger_than_a_batch_is_streamed(place):
    rows = 3 * BATCH_ROWS + 7
    data = pa.table({"id": pa.array(range(rows), pa.int64()), "half": pa.array([i // 2 for i in range(rows)])})
    source = pa.RecordBatchReader.from_batches(data.schema, iter(data.to_batches(max_chunksize=10_000)))
    write(place, source)
    write(place, data.slice(0, 10), mode="append")
    reader = opened(place).to_record_batch_reader(columns=["half", "id"], filters=f"half >= 2 or id > {rows}")
    total = count = batches = 0
    for batch in reader:
        if not batches:
            # What the reader began to read is what it reads to the end.
            write(place, data.slice(0, 0), mode="overwrite")
        assert batch.num_rows <= BATCH_ROWS
        total += pc.sum(batch["id"]).as_py() or 0
        count, batches = count + batch.num_rows, batches + 1
    assert batches > 3
    assert count == rows - 4 + 6
    assert total == sum(range(4, rows)) + sum(range(4, 10))
    assert opened(place).count() == 0


def test_time_travel_by_the_times_of_the_log(place):
    for number in range(4):
        write(place, numbers(number), mode="append")
    store = open_location(place.uri, place.options)
    times = [info.mtime_ms for info in store.list("_delta_log/") if info.key.endswith(".json")]
    # Some stores tell whole seconds: of versions of one second each counts as a millisecond later than the one before.
    adjusted: list[int] = []
    for time in times:
        adjusted.append(max([time, *(last + 1 for last in adjusted[-1:])]))
    assert len(adjusted) == 4
    for version, time in enumerate(adjusted):
        moment = dt.datetime.fromtimestamp(time / 1000, dt.UTC)
        assert opened(place, moment).version() == version
        assert ids(place, moment.isoformat()) == list(range(version + 1))
    with pytest.raises(errors.VersionNotFoundError):
        opened(place, dt.datetime.fromtimestamp(adjusted[0] / 1000 - 1, dt.UTC))


def test_time_travel_by_the_times_that_the_commits_note(place):
    """Exact to the millisecond, whatever the store's own times are."""
    properties = {"delta.enableInCommitTimestamps": "true"}
    for number in range(4):
        write(place, numbers(number), mode="append", configuration=properties)
    entries = opened(place).history()[::-1]
    times = [entry["inCommitTimestamp"] for entry in entries]
    assert times == sorted({*times})
    assert [entry["timestamp"] for entry in entries] == times
    for version, time in enumerate(times):
        assert opened(place, dt.datetime.fromtimestamp(time / 1000, dt.UTC)).version() == version
    with pytest.raises(errors.VersionNotFoundError):
        opened(place, dt.datetime.fromtimestamp(times[0] / 1000 - 0.001, dt.UTC))


def test_a_handle_follows_others_and_a_pinned_one_stays(place):
    write(place, numbers(1))
    handle, pinned = opened(place), opened(place, 0)
    for number in range(2, 5):
        write(place, numbers(number), mode="append")
    handle.update_incremental()
    assert (handle.version(), handle.count(), pinned.count()) == (3, 4, 1)
    with pytest.raises(errors.ReadOnlyTableError):
        pinned.delete()
    assert [entry["version"] for entry in handle.history()] == [3, 2, 1, 0]
    assert objects(place, "_delta_log/") >= {f"_delta_log/{version:020d}.json" for version in range(4)}
