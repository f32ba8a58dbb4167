"""Rows by their positions: found by a filter, read alone, over deletion vectors, row groups and batches of any size."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from handmade import VECTORS, Handmade, field, struct
from refdelta.core.log.actions import Add
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.log.state import STATS_PARSED, adds_table
from refdelta.engine.log.statistics import counted_add
from refdelta.engine.parquet.dv import kept_rows, live_mask, to_bitmap, to_positions
from refdelta.engine.scan import reader, scan
from refdelta.engine.scan.positions import RowsByFile, find_rows, read_rows, stand
from refdelta.engine.scan.reader import POSITION, FileReader, read_file
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.engine.work.executor import ThreadExecutor
from tiers import examples
from written_tables import inline_vector

row_sets = st.sets(st.integers(0, 39))


def snapshot_of(parts, group=7, partitioned=False, **fields):
    """A table with one file of 40 rows for each set of deleted rows; ``x`` is the position, and the file in ``f``."""
    columns = [field("x", "long"), field("f", "long")]
    table = Handmade(struct(*columns), *(["f"] if partitioned else []), protocol=VECTORS)
    for number, deleted in enumerate(parts):
        content = pa.table({"x": range(40)} | ({} if partitioned else {"f": [number] * 40}))
        extra = {"deletionVector": inline_vector(deleted)} if deleted else {}
        values = {"partitionValues": {"f": str(number)}} if partitioned else {}
        table.commit(table.data(f"f{number}", content, parquet={"row_group_size": group}, **extra, **values, **fields))
    return load_snapshot(table.store)


@given(st.lists(row_sets, min_size=1, max_size=3), st.integers(0, 45), st.sampled_from([3, 7, 40]), st.booleans())
@examples(40)
def test_the_rows_that_a_filter_selects(parts, least, batch, partitioned):
    snapshot = snapshot_of(parts, partitioned=partitioned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BATCH_ROWS", batch)
        scan = plan_scan(snapshot, predicate=f"x >= {least} AND f >= 0")
        found = dict(zip((file.key for file in scan_files(scan)), find_rows(scan), strict=True))
    for number, deleted in enumerate(parts):
        wanted = set(range(least, 40)) - deleted
        if f"f{number}" in found:
            rows = found[f"f{number}"]
            assert set(rows.rows) == wanted
            assert (set(rows.deleted), rows.physical_rows, rows.live_rows) == (deleted, 40, 40 - len(deleted))
        else:  # pruned by statistics, or all of its rows are gone
            assert not wanted


@given(st.lists(st.tuples(row_sets, st.none() | row_sets), min_size=1, max_size=3), st.booleans())
@examples(40)
def test_reading_some_rows(parts, filtered):
    snapshot = snapshot_of([deleted for deleted, _ in parts])
    scan = plan_scan(snapshot, ["f", "x"], "x % 2 = 0" if filtered else None)
    scan = dataclasses.replace(scan, plan=dataclasses.replace(scan.plan, positions=True))
    wanted = [None if rows is None else BitMap64(rows) for _, rows in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BATCH_ROWS", 5)
        found = pa.Table.from_batches(list(read_rows(scan, wanted)), scan.plan.schema)
    assert found.column("x").to_pylist() == found.column(POSITION.name).to_pylist()
    assert list(zip(found.column("f").to_pylist(), found.column("x").to_pylist(), strict=True)) == [
        (number, row)
        for number, (deleted, rows) in enumerate(parts)
        for row in range(40)
        if row not in deleted and (rows is None or row in rows) and not (filtered and row % 2)
    ]


def test_row_groups_without_a_wanted_row_are_not_read(monkeypatch):
    snapshot = snapshot_of([set()])
    read = []
    batches = reader._batches

    def watched(parquet, names, groups, most):
        read.extend(groups)
        return batches(parquet, names, groups, most)

    monkeypatch.setattr(reader, "_batches", watched)
    assert sum(batch.num_rows for batch in read_rows(plan_scan(snapshot), [BitMap64([8, 39])])) == 2
    assert read == [1, 5]


def test_positions_of_rows_without_columns():
    snapshot = snapshot_of([{0, 1}], group=40, partitioned=True)
    (found,) = find_rows(plan_scan(snapshot, columns=[]))
    assert found.rows == BitMap64(range(2, 40))
    (file,) = scan_files(plan_scan(snapshot, columns=["f"]))
    plan = dataclasses.replace(plan_scan(snapshot, columns=["f"]).plan, positions=True)
    (batch,) = read_file(snapshot.store, file, plan)
    assert (batch.num_rows, batch.schema.names) == (38, ["f", POSITION.name])


@pytest.mark.parametrize("count", [1, 3])
def test_small_files_are_searched_and_read_without_a_thread(count, monkeypatch):
    before, seen, opened = threading.get_ident(), [], FileReader.open
    snapshot = snapshot_of([{0, 1}] * count)
    monkeypatch.setattr(FileReader, "open", lambda *args: seen.append(threading.get_ident()) or opened(*args))
    found = [one.rows for one in find_rows(plan_scan(snapshot, predicate="x < 3"))]
    assert found == [BitMap64([2])] * count
    assert [batch.num_rows for batch in read_rows(plan_scan(snapshot), found)] == [1] * count
    assert seen == [before] * 2 * count


def test_large_files_are_searched_by_threads(monkeypatch):
    before, seen, opened = threading.get_ident(), [], FileReader.open
    snapshot = snapshot_of([{0, 1}] * 3)
    monkeypatch.setattr(FileReader, "open", lambda *args: seen.append(threading.get_ident()) or opened(*args))
    monkeypatch.setattr(scan, "SMALL_BYTES", 100)
    found = [one.rows for one in find_rows(plan_scan(snapshot, predicate="x < 3"))]
    assert found == [BitMap64([2])] * 3
    assert before not in seen
    assert len(seen) == 3


def test_the_files_of_an_executor_of_other_processes_are_one_job():
    jobs = []

    class Executor(ThreadExecutor):
        def map(self, function, tasks, **options):
            jobs.append(len(tasks))
            return super().map(function, tasks, **options)

    found = list(find_rows(plan_scan(snapshot_of([set(), {5}, set()]), predicate="x = 5"), Executor()))
    assert [list(one.rows) for one in found] == [[5], [], [5]]
    assert jobs == [3]


def test_positions_where_columns_are_mapped():
    table = Handmade(
        struct(field("x", "long", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"})),
        protocol={
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["columnMapping", "deletionVectors"],
                "writerFeatures": ["columnMapping", "deletionVectors"],
            }
        },
        configuration={"delta.columnMapping.mode": "name"},
    )
    table.commit(table.data("f", pa.table({"c1": range(40)}), deletionVector=inline_vector({7})))
    scan = plan_scan(load_snapshot(table.store), predicate="x % 7 = 0")
    (found,) = find_rows(scan)
    assert found.rows == BitMap64([0, 14, 21, 28, 35])
    assert [batch.column("x").to_pylist() for batch in read_rows(scan, [BitMap64([14, 15, 35])])] == [[14, 35]]


def test_how_files_stand():
    scan = plan_scan(snapshot_of([{3}, set()], rows=None))
    first, second = stand(scan, [BitMap64([1]), BitMap64([2])])
    assert (first.rows, first.deleted, first.physical_rows) == (BitMap64([1]), BitMap64([3]), 40)
    assert (second.rows, second.deleted, second.live_rows) == (BitMap64([2]), BitMap64(), 40)
    assert scan.file_counts() == [39, 40]


@given(st.lists(st.integers(0, 2**40), max_size=50), st.integers(0, 5))
@examples(40)
def test_bitmaps_and_arrays(numbers, offset):
    column = pa.array(numbers, pa.uint64()).slice(offset)
    rows = to_bitmap(column)
    assert rows == BitMap64(numbers[offset:])
    assert to_bitmap(pa.chunked_array([column, column.slice(1)], pa.uint64())) == rows
    assert to_positions(rows).to_pylist() == sorted(set(numbers[offset:]))


@given(row_sets, st.none() | row_sets, st.integers(0, 40), st.integers(0, 40))
@examples(60)
def test_kept_rows(deleted, wanted, start, length):
    found = kept_rows(start, start + length, BitMap64(deleted), None if wanted is None else BitMap64(wanted))
    model = [row for row in range(start, start + length) if row not in deleted and (wanted is None or row in wanted)]
    assert (list(range(start, start + length)) if found is None else found.to_pylist()) == model
    mask = live_mask(start, start + length, BitMap64(deleted), None if wanted is None else BitMap64(wanted))
    assert (mask is None) == (found is None)
    assert mask is None or mask.to_pylist() == [row in model for row in range(start, start + length)]


# --- the entry of a file that is to get a vector ---


def entry(stats):
    return adds_table([Add(path="f", partition_values={}, size=1, modification_time=1, data_change=True, stats=stats)])


@pytest.mark.parametrize(
    ("stats", "wanted"),
    [
        (None, '{"numRecords":5}'),
        ("no JSON", '{"numRecords":5}'),
        ("{}", '{"numRecords":5}'),
        ('{"numRecords":5}', '{"numRecords":5}'),
        ('{"maxValues":{"d":1.10}}', '{"numRecords":5,"maxValues":{"d":1.10}}'),
        ('{"numRecords":4,"own":[1]}', '{"numRecords":5,"own":[1]}'),
    ],
)
def test_the_entry_says_how_many_rows_the_file_has(stats, wanted):
    assert counted_add(entry(stats), 5).stats == wanted


def test_statistics_of_a_checkpoint_that_has_them_as_structs_are_kept():
    day, moment = dt.date(2020, 2, 29), dt.datetime(2020, 1, 1, 12, 0, 0, 123456)
    low = {
        "i": 1,
        "s": "a",
        "d": day,
        "t": moment.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))),
        "n": moment,
        "m": decimal.Decimal("12345678901234567890.10"),
        "f": float("nan"),
        "b": b"x",
        "c": {"x": None, "y": True},
    }
    parsed = pa.array([{"numRecords": 4, "minValues": low, "nullCount": {"i": 0}}])
    add = counted_add(entry(None).append_column(STATS_PARSED, parsed), 4)
    assert json.loads(add.stats, parse_float=decimal.Decimal) == {
        "numRecords": 4,
        "minValues": {
            "i": 1,
            "s": "a",
            "d": "2020-02-29",
            "t": "2020-01-01T10:00:00.123456Z",
            "n": "2020-01-01T12:00:00.123456",
            "m": decimal.Decimal("12345678901234567890.10"),
            "c": {"y": True},
        },
        "nullCount": {"i": 0},
    }


def test_statistics_beyond_the_calendar_are_given_up():
    parsed = pa.StructArray.from_arrays([pa.array([2**30], pa.date32())], ["maxValues"])
    assert counted_add(entry(None).append_column(STATS_PARSED, parsed), 4).stats == '{"numRecords":4}'


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=12), max_size=4))
@examples(40)
def test_rows_by_file(calls):
    found, model = RowsByFile(), {}
    for call in calls:
        rows = sorted(call, key=lambda row: row[0])
        found.note(*(pa.array([row[i] for row in rows], kind) for i, kind in enumerate([pa.int64(), pa.uint64()])))
        for file, position in rows:
            model.setdefault(file, set()).add(position)
    assert {file: set(rows) for file, rows in found.items()} == model
