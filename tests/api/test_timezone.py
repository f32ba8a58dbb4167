"""``timezone=``: the zone of times that have none, in rows that are written and in times of travel.

The rules are those of Spark's session time zone: of a time that occurs twice the earlier, and a time that is left out
moves forward. Python's ``zoneinfo`` with ``fold=0`` has the same rules, and is the oracle.

Tests of arrow.conversion.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import pathlib
from functools import cache
from zoneinfo import ZoneInfo

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.arrow.conversion import instants
from tiers import examples

BERLIN = "Europe/Berlin"
TWICE, LEFT_OUT, PLAIN = dt.datetime(2024, 10, 27, 2, 30), dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 7, 1, 12)
NOON = dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)
LOCAL = pa.timestamp("us")
INSTANT = pa.timestamp("us", "UTC")
ZONES = [BERLIN, "UTC", "America/St_Johns", "Australia/Lord_Howe", "Africa/Monrovia", "Asia/Kathmandu", "Pacific/Apia"]
_tables = itertools.count()


def fresh() -> str:
    return f"memory://zones-{next(_tables)}"


def in_zone(time: dt.datetime | None, zone: str) -> dt.datetime | None:
    return None if time is None else time.replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)


def rows(*times, kind=LOCAL) -> pa.Table:
    return pa.table({"id": list(range(len(times))), "at": pa.array(times, kind)})


def table_of(kind=INSTANT, **options) -> DeltaTable:
    uri = fresh()
    DeltaTable.create(uri, pa.schema({"id": pa.int64(), "at": kind}))
    return DeltaTable(uri, **options)


def times(table) -> list:
    table.update_incremental()
    return [row["at"] for row in sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["id"])]


def test_the_rules_by_example():
    table = table_of()
    write_deltalake(table, rows(TWICE, LEFT_OUT, PLAIN, None), mode="append", timezone=BERLIN)
    assert times(table) == [
        dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC),  # the summer time's
        dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC),  # 03:30
        dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC),
        None,
    ]


@cache
def changes_of(zone: str) -> list[dt.datetime]:
    """Local times near the changes of the zone's offset."""
    found, hour = [], dt.timedelta(hours=1)
    at = dt.datetime(1971, 1, 1, tzinfo=dt.UTC)
    info = ZoneInfo(zone)
    while at.year < 2025:
        if at.astimezone(info).utcoffset() != (at + 6 * hour).astimezone(info).utcoffset():
            found.append(at.replace(tzinfo=None) + at.astimezone(info).utcoffset())
        at += 6 * hour
    return found or [dt.datetime(2000, 1, 1)]


@pytest.mark.tier("test")
@given(data=st.data())
@examples(200)
def test_random_times_are_those_of_zoneinfo(data):
    zone = data.draw(st.sampled_from(ZONES))
    near = st.builds(
        lambda change, seconds, micros: change + dt.timedelta(seconds=seconds, microseconds=micros),
        st.sampled_from(changes_of(zone)),
        st.integers(-90_000, 90_000),
        st.integers(0, 999_999),
    )
    anywhere = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2037, 1, 1))
    drawn = data.draw(st.lists(st.none() | near | anywhere, max_size=8))
    unit = data.draw(st.sampled_from(["s", "ms", "us", "ns"]))
    cut = [
        one and one.replace(microsecond={"s": 0, "ms": one.microsecond // 1000 * 1000}.get(unit, one.microsecond))
        for one in drawn
    ]
    found = instants(pa.array(cut, pa.timestamp(unit)), zone)
    assert found.type == pa.timestamp(unit, "UTC")
    assert found.cast(INSTANT).to_pylist() == [in_zone(one, zone) for one in cut]


def append(table, data, **options):
    write_deltalake(table, data, mode="append", **options)


def overwrite(table, data, **options):
    write_deltalake(table, data, mode="overwrite", **options)


def replace(table, data, **options):
    write_deltalake(table, data, mode="overwrite", predicate="id < 100", **options)


def evolve(table, data, **options):
    write_deltalake(table, data, mode="append", schema_mode="merge", **options)


def staged(table, data, **options):
    with table.begin() as txn:
        txn.append(data, **options)
        txn.commit()


def staged_overwrite(table, data, **options):
    with table.begin() as txn:
        txn.overwrite(data, **options)
        txn.commit()


def merge(table, data, **options):
    table.merge(data, "s.id = t.id", **options).when_not_matched_insert_all().execute()


def merge_explicitly(table, data, **options):
    given = data.rename_columns({"at": "when"})
    table.merge(given, "s.id = t.id", **options).when_not_matched_insert({"id": "s.id", "at": "s.when"}).execute()


def staged_merge(table, data, **options):
    with table.begin() as txn:
        txn.merge(data, "s.id = t.id", **options).when_not_matched_insert_all().execute()
        txn.commit()


WRITES = [append, overwrite, replace, evolve, staged, staged_overwrite, merge, merge_explicitly, staged_merge]


@pytest.mark.parametrize("write", WRITES)
def test_each_statement_takes_a_zone_or_has_the_handle_s(write):
    by_argument, by_handle = table_of(), table_of(timezone=BERLIN)
    write(by_argument, rows(TWICE, PLAIN), timezone=BERLIN)
    write(by_handle, rows(TWICE, PLAIN))
    assert times(by_argument) == times(by_handle) == [in_zone(TWICE, BERLIN), in_zone(PLAIN, BERLIN)]
    write_over = table_of(timezone="America/New_York")
    write(write_over, rows(PLAIN), timezone=BERLIN)
    assert times(write_over) == [in_zone(PLAIN, BERLIN)]


@pytest.mark.parametrize("write", WRITES)
def test_without_a_zone_the_error_names_both_ways_out(write):
    table = table_of()
    with pytest.raises(errors.SchemaMismatchError, match=r"timezone=.*timestamp_ntz"):
        write(table, rows(PLAIN))
    assert table.version() == 0


@pytest.mark.parametrize("write", [one for one in WRITES if one is not merge_explicitly])
def test_times_stay_local_where_the_table_has_local_times(write):
    table = table_of(LOCAL, timezone=BERLIN)
    write(table, rows(LEFT_OUT))
    assert times(table) == [LEFT_OUT]


def test_times_with_a_zone_are_not_changed():
    table = table_of(timezone=BERLIN)
    append(table, rows(PLAIN, kind=pa.timestamp("us", "America/New_York")))
    assert times(table) == [PLAIN.replace(tzinfo=dt.UTC)]


def test_a_new_table_and_new_columns_have_points_in_time():
    uri = fresh()
    write_deltalake(uri, rows(PLAIN), timezone=BERLIN)
    table = DeltaTable(uri, timezone=BERLIN)
    assert table.to_pyarrow_table().schema.field("at").type == INSTANT
    more = rows(PLAIN).append_column("until", pa.array([PLAIN], LOCAL))
    write_deltalake(table, more, mode="append", schema_mode="merge")
    assert DeltaTable(uri).to_pyarrow_table().schema.field("until").type == INSTANT
    write_deltalake(table, rows(PLAIN).drop_columns("id"), mode="overwrite", schema_mode="overwrite")
    assert DeltaTable(uri).to_pyarrow_table().to_pylist() == [{"at": in_zone(PLAIN, BERLIN)}]


@pytest.mark.parametrize("kind", ["pandas", "polars", "dates", "a dictionary", "nested"])
def test_each_form_of_a_local_time(kind):
    expected = in_zone(PLAIN, BERLIN)
    table = table_of(timezone=BERLIN)
    if kind == "pandas":
        append(table, pd.DataFrame({"id": [0], "at": pd.to_datetime([PLAIN])}))
    elif kind == "polars":
        append(table, pl.LazyFrame({"id": [0], "at": [PLAIN]}))
    elif kind == "dates":
        append(table, rows(PLAIN.date(), kind=pa.date32()))
        expected = in_zone(dt.datetime(2024, 7, 1), BERLIN)
    elif kind == "a dictionary":
        append(table, pa.table({"id": [0], "at": pa.array([PLAIN], LOCAL).dictionary_encode()}))
    else:
        deep = pa.struct({"l": pa.list_(LOCAL), "m": pa.map_(pa.string(), LOCAL)})
        uri = fresh()
        data = pa.table(
            {"s": pa.array([None, {"l": [PLAIN, None], "m": [("a", PLAIN)]}, {"l": None, "m": None}], deep)}
        )
        write_deltalake(uri, data.slice(0, 3), timezone=BERLIN)
        assert DeltaTable(uri).to_pyarrow_table()["s"].to_pylist() == [
            None,
            {"l": [expected, None], "m": [("a", expected)]},
            {"l": None, "m": None},
        ]
        return
    assert times(table) == [expected]


def test_values_of_an_update_have_the_handle_s_zone():
    table = table_of(timezone=BERLIN)
    append(table, rows(PLAIN, PLAIN))
    table.update(new_values={"at": TWICE}, predicate="id = 0")
    table.update(new_values={"at": PLAIN.replace(tzinfo=dt.UTC)}, predicate="id = 1")
    assert times(table) == [in_zone(TWICE, BERLIN), PLAIN.replace(tzinfo=dt.UTC)]


@pytest.mark.parametrize("name", ["Europe/Berlyn", "+02:00", "", 3])
def test_an_unknown_zone_is_refused(name):
    with pytest.raises(errors.InvalidArgumentError, match="timezone must be"):
        write_deltalake(fresh(), rows(PLAIN), timezone=name)
    with pytest.raises(errors.InvalidArgumentError, match="timezone must be"):
        DeltaTable(fresh(), timezone=name)


def test_a_zone_that_is_nearly_right_gets_a_suggestion():
    with pytest.raises(errors.InvalidArgumentError, match="did you mean 'Europe/Berlin'"):
        write_deltalake(fresh(), rows(PLAIN), timezone="Europe/Berlyn")


@pytest.mark.parametrize("edge", ["earliest", "latest"])
def test_arrow_s_own_rules_for_a_gap_are_not_spark_s(edge):
    """Why the offset before the gap is applied: each rule of Arrow alone is wrong by the distance to the gap's edge."""
    own = pa.compute.assume_timezone(pa.array([LEFT_OUT], LOCAL), BERLIN, ambiguous="earliest", nonexistent=edge)
    assert own.cast(INSTANT).to_pylist() != [in_zone(LEFT_OUT, BERLIN)]
    assert instants(pa.array([LEFT_OUT], LOCAL), BERLIN).to_pylist() == [in_zone(LEFT_OUT, BERLIN)]


NEW_YORK = "America/New_York"
STORED = ["2024-01-15 16:00:00", "2024-03-10 02:30:00", "2024-11-03 01:30:00", "2024-07-01 12:00:00Z"]
MEANT = [
    dt.datetime(2024, 1, 15, 21, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 10, 7, 30, tzinfo=dt.UTC),  # 03:30, since 02:30 is left out
    dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC),  # the first of two
    dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC),
]


@pytest.fixture
def written_in_new_york(tmp_path):
    """A table whose partition values are as a session of Spark in New York writes them, the last one but for UTC."""
    write_deltalake(tmp_path, rows(*MEANT, kind=INSTANT), partition_by=["at"])
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    spelt = dict(zip((f"{one:%Y-%m-%dT%H:%M:%S.%fZ}" for one in MEANT), STORED, strict=True))
    for action in actions:
        if "add" in action:
            action["add"]["partitionValues"]["at"] = spelt[action["add"]["partitionValues"]["at"]]
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for checksum in log.parent.glob("*.crc"):
        checksum.unlink()
    return str(tmp_path)


def test_partition_times_without_an_offset_are_of_the_handles_zone(written_in_new_york):
    table = DeltaTable(written_in_new_york, timezone=NEW_YORK)
    assert times(table) == MEANT
    for place, instant in enumerate(MEANT):
        filters = f"at = timestamp'{instant:%Y-%m-%d %H:%M:%S}Z'"
        found = table.scan(predicate=filters)
        assert found.to_table()["id"].to_pylist() == [place]
        assert len(table.file_uris(filters)) == 1
        assert pl.DataFrame(table.to_polars(filters=filters).collect())["id"].to_list() == [place]
    assert times(DeltaTable(written_in_new_york))[0] == dt.datetime(2024, 1, 15, 16, tzinfo=dt.UTC)


def test_an_instant_goes_to_the_partition_that_has_it(written_in_new_york):
    table = DeltaTable(written_in_new_york, timezone=NEW_YORK)
    write_deltalake(table, rows(*MEANT, kind=INSTANT), mode="append")
    assert len(table.partitions()) == len(MEANT)
    assert table.optimize.compact().metrics["numFilesAdded"] == len(MEANT)
    table.delete("at = timestamp'2024-01-15 21:00:00Z'")
    assert sorted(times(table)) == sorted(2 * MEANT[1:])
    again = pa.table({"id": [9], "at": pa.array(MEANT[1:2], INSTANT)})
    write_deltalake(table, again, mode="overwrite", partition_overwrite="dynamic")
    assert sorted(times(table)) == sorted([*MEANT[1:2], *2 * MEANT[2:]])
    assert sorted(times(DeltaTable(written_in_new_york))) == sorted(times(table)), "new values have offsets"


def test_a_checkpoint_keeps_partition_times_as_they_are(written_in_new_york):
    DeltaTable(written_in_new_york, timezone=NEW_YORK).create_checkpoint()
    assert times(DeltaTable(written_in_new_york))[0] == dt.datetime(2024, 1, 15, 16, tzinfo=dt.UTC)
    assert times(DeltaTable(written_in_new_york, timezone=NEW_YORK)) == MEANT
    assert times(DeltaTable(written_in_new_york, version=0, timezone=NEW_YORK)) == MEANT


def test_a_conflict_is_decided_in_the_zone_of_the_handle(written_in_new_york):
    log = pathlib.Path(written_in_new_york) / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    add = next(one["add"] for one in actions if one.get("add", {}).get("partitionValues") == {"at": STORED[0]})
    one = DeltaTable(written_in_new_york, timezone=NEW_YORK).begin(isolation="Serializable")
    one.delete("at = timestamp'2024-01-15 21:00:00Z'")
    (log / f"{1:020}.json").write_text(json.dumps({"add": {**add, "path": "of-another-writer.parquet"}}) + "\n")
    with pytest.raises(errors.ConcurrentAppendException):
        one.commit()


def test_strings_have_the_zone_too():
    texts = pa.array(["2024-07-01 12:00:00", "2024-07-01T12:00", "2024-07-01", "2024-07-01 10:00:00Z", None])
    table = table_of(timezone=BERLIN)
    write_deltalake(table, pa.table({"id": list(range(5)), "at": texts}), mode="append")
    assert times(table) == [in_zone(PLAIN, BERLIN)] * 2 + [in_zone(dt.datetime(2024, 7, 1), BERLIN)] + [NOON, None]
    in_utc = table_of()
    write_deltalake(
        in_utc, pa.table({"id": [0, 1], "at": ["2024-07-01 12:00:00", "2024-07-01 12:00:00 Asia/Tokyo"]}), mode="append"
    )
    assert times(in_utc) == [in_zone(PLAIN, "UTC"), in_zone(PLAIN, "Asia/Tokyo")]


def test_strings_of_an_update_are_times_as_in_sql():
    table = table_of(timezone=BERLIN)
    write_deltalake(table, rows(PLAIN), mode="append")
    for text, wanted in [
        ("2024-07-01 12:00:00", in_zone(PLAIN, BERLIN)),
        ("2024-07-01 12:00:00 Asia/Tokyo", in_zone(PLAIN, "Asia/Tokyo")),
        ("2024-07-01", in_zone(dt.datetime(2024, 7, 1), BERLIN)),
    ]:
        table.update(new_values={"at": text})
        assert times(table) == [wanted]
    with pytest.raises(errors.InvalidArgumentError, match="noon"):
        table.update(new_values={"at": "noon"})
    local = table_of(LOCAL)
    with pytest.raises(errors.InvalidArgumentError, match="at"):
        local.update(new_values={"at": "2024-07-01 12:00:00+02:00"})


def test_a_time_of_travel_may_name_a_zone():
    table = table_of()
    write_deltalake(table, rows(PLAIN), mode="append", timezone=BERLIN)
    now = dt.datetime.now(dt.UTC)
    for zone in (BERLIN, "Asia/Tokyo"):
        local = (now - dt.timedelta(days=1)).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        with pytest.raises(errors.VersionNotFoundError):
            DeltaTable(table.table_uri, version=f"{local:%Y-%m-%d %H:%M:%S} {zone}")
    with pytest.raises(errors.InvalidArgumentError, match="ISO 8601"):
        DeltaTable(table.table_uri, version="2024-01-01 00:00:00 Europe/Berlyn")
