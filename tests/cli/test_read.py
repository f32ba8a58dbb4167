"""``refdelta read``: the right rows, in each format, to each place.

Tests of cli.output, cli.reading.
"""

import csv
import datetime as dt
import decimal
import io
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, errors, write_deltalake

NESTED = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "price": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)),
        "day": pa.array([dt.date(2026, 1, 2), None]),
        "at": pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "tags": pa.array([["a", "b"], []], pa.list_(pa.string())),
        "place": pa.array([{"x": 1.5, "y": None}, None], pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        "counts": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "raw": pa.array([b"\x00\xff", None]),
        "flag": pa.array([True, None]),
    }
)


def ids(rows):
    return sorted(row["id"] for row in rows)


def test_a_table_for_people(cli, table):
    result = cli("read", table)
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[0] == ["id", "name", "day"]
    assert sorted(lines[2:]) == [["1", "one", "a"], ["3", "three", "a"], ["5", "five", "b"]]
    assert result.err == ""


def test_json_is_one_object_a_row(cli, table):
    assert ids(cli("read", table, "--json").json) == [1, 3, 5]


def test_columns_come_in_the_order_asked_for(cli, table):
    rows = cli("read", table, "--columns", "name, id", "--json").json
    assert all(list(row) == ["name", "id"] for row in rows)


def test_where_keeps_the_rows_that_match(cli, table):
    assert ids(cli("read", table, "--where", "id > 1 and day = 'a'", "--json").json) == [3]


def test_a_version_by_number_and_by_time(cli, table):
    for version in range(3):
        at = dt.datetime(2026, 1, 1, 12, version, tzinfo=dt.UTC).timestamp()
        os.utime(table / "_delta_log" / f"{version:020}.json", (at, at))
    assert ids(cli("read", table, "--version", 0, "--json").json) == [1, 2]
    assert ids(cli("read", table, "--version", "2026-01-01T12:00:30Z", "--json").json) == [1, 2]
    assert ids(cli("read", table, "--version", "2026-01-01 12:01", "--json").json) == [1, 2, 3, 4]


def test_a_limit(cli, table):
    assert len(cli("read", table, "--limit", 2, "--json").json) == 2
    assert cli("read", table, "--limit", 0, "--json").json == []


def test_a_table_shows_twenty_rows_and_says_so(cli, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"n": range(25)}))
    result = cli("read", tmp_path / "t")
    assert len(result.out.splitlines()) == 2 + 20
    assert "first 20 rows" in result.err
    result = cli("read", tmp_path / "t", "--limit", 25)
    assert len(result.out.splitlines()) == 2 + 25
    assert result.err == ""


def test_every_type_as_json(cli, tmp_path):
    write_deltalake(tmp_path / "t", NESTED)
    one, two = sorted(cli("read", tmp_path / "t", "--json").json, key=lambda row: row["id"])
    assert one == {
        "id": 1,
        "price": "1.50",
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.600000Z",
        "tags": ["a", "b"],
        "place": {"x": 1.5, "y": None},
        "counts": {"k": 1},
        "raw": "AP8=",
        "flag": True,
    }
    assert two == {"id": 2, "tags": [], **dict.fromkeys(["price", "day", "at", "place", "counts", "raw", "flag"])}


def test_every_type_as_csv(cli, tmp_path):
    write_deltalake(tmp_path / "t", NESTED)
    rows = list(csv.DictReader(io.StringIO(cli("read", tmp_path / "t", "--format", "csv").out)))
    one, two = sorted(rows, key=lambda row: row["id"])
    assert (one["price"], one["day"], one["flag"], one["raw"]) == ("1.50", "2026-01-02", "true", "AP8=")
    assert json.loads(one["place"]) == {"x": 1.5, "y": None}
    assert json.loads(one["counts"]) == {"k": 1}
    assert (two["price"], two["place"], two["tags"]) == ("", "", "[]")


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_an_output_file_has_the_format_of_its_ending(cli, table, tmp_path, ending):
    target = tmp_path / f"rows.{ending}"
    assert cli("read", table, "--output", target).out == ""
    if ending == "parquet":
        found = pq.read_table(target).column("id").to_pylist()
    elif ending == "csv":
        found = [int(row["id"]) for row in csv.DictReader(target.read_text().splitlines())]
    else:
        found = [json.loads(line)["id"] for line in target.read_text().splitlines()]
    assert sorted(found) == [1, 3, 5]
    assert [path.name for path in tmp_path.iterdir() if "rows" in path.name] == [target.name]


def test_after_an_error_the_output_file_is_as_it_was(fails, table, tmp_path):
    target = tmp_path / "rows.csv"
    target.write_text("before")
    next(path for path in table.rglob("*.parquet") if "day=a" in str(path)).unlink()
    for other in table.rglob("*.parquet"):
        other.unlink()
    assert ".parquet" in fails("read", table, "--output", target)
    assert target.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "table"]


def test_a_link_beside_the_output_leads_nowhere(cli, table, tmp_path):
    precious, target = tmp_path / "precious", tmp_path / "rows.csv"
    precious.write_text("mine")
    for name in (".rows.csv.part", "rows.csv.part", "rows.csv"):
        (tmp_path / name).symlink_to(precious)
    cli("read", table, "--output", target)
    assert precious.read_text() == "mine"
    assert not target.is_symlink()
    assert target.read_text().startswith('"')
    assert target.stat().st_mode == precious.stat().st_mode
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.endswith(".part")) == [
        ".rows.csv.part",
        "rows.csv.part",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "parquet"], "--output"),
        (["--output", "rows.txt"], "rows.txt"),
        (["--json", "--format", "csv"], "exclude"),
        (["--format", "table", "--output", "x.csv"], "screen"),
        (["--columns", "nme"], "'nme'"),
        (["--where", "nme = 1"], "nme"),
        (["--where", "id = = 1"], "id = = 1"),
        (["--version", "17"], "17"),
        (["--version", "yesterday"], "yesterday"),
        (["--version", "-1"], "-1"),
        (["--limit", "few"], "few"),
        (["--no-such-option"], "--no-such-option"),
        (["--storage-option", "region"], "name=value"),
    ],
)
def test_a_wrong_option_is_one_line(fails, table, arguments, said):
    assert said in fails("read", table, *arguments)


def test_explain_says_which_files_are_read(cli, table):
    result = cli("read", table, "--where", "day = 'a'", "--explain")
    assert result.status == 0
    assert "day=a" in result.out or "partition" in result.out


def test_what_changed(cli, fails, tmp_path):
    uri = tmp_path / "t"
    write_deltalake(
        uri, pa.table({"id": [1, 2], "v": ["a", "b"]}), configuration={"delta.enableChangeDataFeed": "true"}
    )
    DeltaTable(uri).update({"v": "'c'"}, predicate="id = 2")
    DeltaTable(uri).delete("id = 1")
    lines = [line.split() for line in cli("changes", uri, "--columns", "id,v,_change_type").out.splitlines()]
    assert lines[2:4] == [["1", "a", "insert"], ["2", "b", "insert"]]
    assert sorted(lines[4:]) == [["1", "a", "delete"], ["2", "b", "update_preimage"], ["2", "c", "update_postimage"]]
    found = cli("changes", uri, "--from", 1, "--to", 1, "--json").json
    assert [(row["_commit_version"], row["id"]) for row in found] == [(1, 2), (1, 2)]
    since = DeltaTable(uri).history()[0]["timestamp"]
    at = dt.datetime.fromtimestamp(since / 1000, dt.UTC).isoformat()
    (last,) = cli("changes", uri, "--from", at, "--where", "_change_type = 'delete'", "--json").json
    assert last["_commit_version"] == 2
    assert "after version 2" in fails("changes", uri, "--from", 3)
    assert "ending_timestamp is a datetime or an ISO 8601 string, not 'soon'" in fails("changes", uri, "--to", "soon")


# --- dates and times that Python does not have -------------------------------------------------------------------


@pytest.fixture
def far(tmp_path):
    """A table with times of the years 10000, 294247 and 0, also in a struct, a list and a map, and its values."""
    days = pa.array([0, 2_932_897, -719_163], pa.int32()).view(pa.date32())
    micros = pa.array([0, 253_402_300_800_000_000, -62_135_596_800_000_001], pa.int64())
    rows = {
        "id": pa.array([1, 2, 3], pa.int64()),
        "d": days,
        "at": micros.view(pa.timestamp("us", "UTC")),
        "wall": micros.view(pa.timestamp("us")),
        "s": pa.StructArray.from_arrays([days], ["d"]),
        "l": pa.ListArray.from_arrays([0, 1, 2, 3], days),
        "m": pa.MapArray.from_arrays([0, 1, 2, 3], days, micros.view(pa.timestamp("us", "UTC"))),
    }
    uri = tmp_path / "far"
    write_deltalake(uri, pa.table(rows), configuration={"delta.enableChangeDataFeed": "true"})
    return uri


FAR = [
    {"d": "1970-01-01", "at": "1970-01-01T00:00:00Z", "wall": "1970-01-01T00:00:00"},
    {"d": "+10000-01-01", "at": "+10000-01-01T00:00:00Z", "wall": "+10000-01-01T00:00:00"},
    {"d": "0000-12-31", "at": "0000-12-31T23:59:59.999999Z", "wall": "0000-12-31T23:59:59.999999"},
]


def test_far_times_as_json(cli, far):
    found = sorted(cli("read", far, "--json").json, key=lambda row: row["id"])
    for row, expected in zip(found, FAR, strict=True):
        assert {name: row[name] for name in expected} == expected
        assert (row["s"], row["l"], row["m"]) == (
            {"d": expected["d"]},
            [expected["d"]],
            {expected["d"]: expected["at"]},
        )


def test_far_times_as_a_table(cli, far):
    lines = cli("read", far, "--columns", "id,d,at,wall").out.splitlines()
    assert sorted(" ".join(line.split()) for line in lines[2:]) == [
        "1 1970-01-01 1970-01-01 00:00:00+00:00 1970-01-01 00:00:00",
        "2 +10000-01-01 +10000-01-01 00:00:00+00:00 +10000-01-01 00:00:00",
        "3 0000-12-31 0000-12-31 23:59:59.999999+00:00 0000-12-31 23:59:59.999999",
    ]


def test_far_times_as_csv(cli, far):
    rows = list(csv.DictReader(io.StringIO(cli("read", far, "--format", "csv").out)))
    found = {row["id"]: (row["at"], row["wall"]) for row in rows}
    assert found["1"] == ("1970-01-01 00:00:00.000000Z", "1970-01-01 00:00:00.000000")
    assert found["2"] == ("+10000-01-01T00:00:00Z", "+10000-01-01T00:00:00")
    assert sorted(row["d"] for row in rows) == ["+10000-01-01", "0000-12-31", "1970-01-01"]
    assert [json.loads(row["l"]) for row in sorted(rows, key=lambda row: row["id"])] == [[each["d"]] for each in FAR]


def test_far_times_in_other_commands(cli, far):
    DeltaTable(far).delete("id = 2")
    assert any(row["d"] == "+10000-01-01" for row in cli("changes", far, "--json").json)
    assert "+10000-01-01" in cli("changes", far, "--columns", "d,at").out
    assert "+10000-01-01 00:00:00+00:00" in cli("diff", far, 0, 1).out
    assert cli("diff", far, 0, 1, "--json").json["rows"][0]["at"] == "+10000-01-01T00:00:00Z"
    assert cli("files", far).status == 0
    assert cli("files", far, "--json").status == 0


def test_a_row_with_a_far_time_in_an_error(far):
    table = DeltaTable(far)
    table.alter.add_constraint({"near": "id = 2 OR d < DATE '3000-01-01'"})
    with pytest.raises(errors.ConstraintViolationError, match=r"d='\+10000-01-01'"):
        table.update({"id": "id + 10"}, predicate="id = 2")


def test_partitions_of_far_times(cli, tmp_path):
    days = pa.array([2_932_897, 0], pa.int32()).view(pa.date32())
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "d": days}), partition_by=["d"])
    assert {row["d"] for row in DeltaTable(tmp_path / "t").partitions()} == {"+10000-01-01", dt.date(1970, 1, 1)}
    assert "+10000-01-01" in cli("files", tmp_path / "t").out


def test_partition_times_without_an_offset_have_the_zone_that_is_said(cli, tmp_path):
    (tmp_path / "a.csv").write_text("id,at\n1,2024-01-15T16:00:00Z\n")
    assert cli("write", tmp_path / "t", tmp_path / "a.csv", "--partition-by", "at").status == 0
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace("2024-01-15T16:00:00.000000Z", "2024-01-15 16:00:00"))
    for checksum in log.parent.glob("*.crc"):
        checksum.unlink()
    zone, condition = ("--timezone", "America/New_York"), ("--where", "at = timestamp'2024-01-15 21:00:00Z'")
    assert len(cli("read", tmp_path / "t", *condition, *zone, "--json").json) == 1
    assert cli("follow", tmp_path / "t", *condition, *zone, "--timeout", "0", "--json").out.count('"id":1') == 1
    assert cli("update", tmp_path / "t", *condition, "--set", "id=2", "--dry-run").out.startswith(
        "version 0 would have 0"
    )
    assert cli("delete", tmp_path / "t", *condition, *zone).out.startswith("version 1: 1 row deleted")
