"""Files that Spark wrote in the hybrid calendar. The expected days and times are those of Spark 4.2."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from handmade import Handmade, field, struct
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.legacy_calendar import LegacyCalendar, legacy_calendar
from refdelta.engine.scan.scan import plan_scan
from refdelta.errors import DataFileError

SPARK = b"org.apache.spark.version"
ZONE = b"org.apache.spark.timeZone"
LEGACY = {SPARK: b"3.5.0", b"org.apache.spark.legacyDateTime": b""}
LEGACY_INT96 = {SPARK: b"3.5.0", b"org.apache.spark.legacyINT96": b""}

DAYS = {-719164: -719162, -354285: -354290, -171541: -171551, -141428: -141438, -141427: -141427, 0: 0}
MOMENTS = [-62135769600000000, -30610223999876544, -12219292800000001, -2717640422000000, -2208988800000001, 5]
TIMES = {
    "UTC": [-62135596800000000, -30610655999876544, -12220156800000001, -2717640422000000, -2208988800000001, 5],
    "America/Los_Angeles": [
        *(-62135597222000000, -30610656421876544, -12220157222000001),
        *(-2717640844000000, -2208988800000001, 5),
    ],
    "Asia/Kolkata": [
        *(-62135598208000000, -30610657407876544, -12219294208000001),
        *(-2717639892000000, -2208988270000001, 5),
    ],
}


def dates(days):
    return pa.array(days, pa.int32()).cast(pa.date32())


def times(micros):
    return pa.array(micros, pa.timestamp("us", "UTC"))


def read(content, schema, notes, predicate=None, **options):
    table = Handmade(schema, protocol=NTZ)
    # Only with its own schema does pyarrow write notes into the footer.
    table.commit(table.data("f", content.replace_schema_metadata(notes), parquet=options | {"store_schema": True}))
    return plan_scan(load_snapshot(table.store), predicate=predicate).to_table()


NTZ = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz", "typeWidening"],
        "writerFeatures": ["timestampNtz", "typeWidening"],
    }
}


def test_dates_keep_what_the_calendar_called_them():
    moved = LegacyCalendar(dates=True, times=False).move(dates([*DAYS, None]))
    assert moved.cast(pa.int32()).to_pylist() == [*DAYS.values(), None]


@pytest.mark.parametrize("zone", TIMES)
def test_times_keep_the_wall_clock_of_their_writer(zone):
    moved = LegacyCalendar(dates=True, times=True, zone=zone).move(times([*MOMENTS, None]))
    assert moved.type == pa.timestamp("us", "UTC")
    assert moved.cast(pa.int64()).to_pylist() == [*TIMES[zone], None]


@pytest.mark.parametrize(
    ("notes", "int96", "moved_dates", "moved_times"),
    [
        ({}, False, False, False),
        ({SPARK: b"3.5.0"}, True, False, False),
        ({SPARK: b"2.4.8"}, False, True, True),
        ({SPARK: b"3.0.1"}, False, False, False),
        ({SPARK: b"3.0.1"}, True, False, True),
        (LEGACY, False, True, True),
        (LEGACY, True, True, False),
        (LEGACY_INT96, False, False, False),
        (LEGACY_INT96, True, False, True),
    ],
)
def test_the_footer_says_what_is_moved(notes, int96, moved_dates, moved_times):
    schema = struct(field("d", "date"), field("t", "timestamp"), field("n", "timestamp_ntz"))
    content = pa.table({"d": dates([-719164]), "t": times(MOMENTS[:1]), "n": times(MOMENTS[:1])})
    # pyarrow writes all times as INT96 or none; a column without zone is INT64 in files of Spark.
    columns = content if not int96 else content.drop_columns("n")
    found = read(columns, schema, notes, use_deprecated_int96_timestamps=int96)
    assert found["d"].cast(pa.int32()).to_pylist() == [-719162 if moved_dates else -719164]
    assert found["t"].cast(pa.int64()).to_pylist() == [TIMES["UTC"][0] if moved_times else MOMENTS[0]]
    if not int96:
        assert found["n"].cast(pa.int64()).to_pylist() == MOMENTS[:1]


def test_nested_values_and_widened_dates_are_moved():
    element = {"type": "array", "elementType": "date", "containsNull": True}
    schema = struct(field("a", element), field("s", struct(field("t", "timestamp"))), field("w", "timestamp_ntz"))
    content = pa.table(
        {
            "a": pa.array([[-719164, None]], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
            "s": pa.StructArray.from_arrays([times(MOMENTS[:1])], ["t"]),
            "w": dates([-719164]),
        }
    )
    found = read(content, schema, LEGACY)
    assert found["a"].cast(pa.list_(pa.int32())).to_pylist() == [[-719162, None]]
    assert found["s"].combine_chunks().field("t").cast(pa.int64()).to_pylist() == TIMES["UTC"][:1]
    assert found["w"].cast(pa.int64()).to_pylist() == [-719162 * 86_400_000_000]


def test_statistics_of_row_groups_are_not_believed():
    content = pa.table({"d": dates([-719164, 0])})
    found = read(content, struct(field("d", "date")), LEGACY, "d = date'0001-01-01'", row_group_size=1)
    assert found["d"].cast(pa.int32()).to_pylist() == [-719162]


def test_an_unknown_zone_matters_for_old_times_only():
    schema = struct(field("t", "timestamp"))
    notes = LEGACY | {ZONE: b"Mars/Olympus"}
    assert read(pa.table({"t": times([5])}), schema, notes).num_rows == 1
    with pytest.raises(DataFileError, match="Mars/Olympus"):
        read(pa.table({"t": times([*MOMENTS])}), schema, notes)


def test_a_file_without_old_forms_has_no_calendar(tmp_path):
    path = tmp_path / "f"
    pq.write_table(pa.table({"x": [1]}), path)
    assert legacy_calendar(pq.read_metadata(path)) is None
