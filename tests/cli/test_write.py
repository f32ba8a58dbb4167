"""``refdelta write``: files in, one commit; nothing where something is wrong.

Tests of cli.inputs, cli.writing.
"""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable


def rows(path, key="id"):
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row[key])


def test_csv_types_are_guessed_for_a_new_table(cli, tmp_path):
    (tmp_path / "a.csv").write_text('id,name,at\n1,"one",2026-01-02T03:04:05.25Z\n2,,NA\n')
    result = cli("write", tmp_path / "t", tmp_path / "a.csv", "--null", "NA", "--json")
    assert (result.json["version"], result.json["num_added_rows"]) == (0, 2)
    assert rows(tmp_path / "t") == [
        {"id": 1, "name": "one", "at": dt.datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=dt.UTC)},
        {"id": 2, "name": None, "at": None},
    ]


def test_csv_and_json_have_the_types_of_the_table_they_go_to(cli, tmp_path):
    one = pa.table({"id": pa.array([1], pa.int16()), "code": ["007"], "price": pa.array([1], pa.decimal128(9, 2))})
    pq.write_table(one, tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("id,code,price\n2,008,2.5\n")
    (tmp_path / "c.jsonl").write_text('{"id": 3, "code": "009", "price": "3.5"}\n')
    for file in ("a.parquet", "b.csv", "c.jsonl"):
        assert cli("write", tmp_path / "t", tmp_path / file, "--mode", "append").status == 0
    assert [row["code"] for row in rows(tmp_path / "t")] == ["007", "008", "009"]
    assert [str(row["price"]) for row in rows(tmp_path / "t")] == ["1.00", "2.50", "3.50"]


def test_several_files_are_one_commit(cli, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f"id\n{number}\n")
    result = cli("write", tmp_path / "t", *(tmp_path / f"{number}.csv" for number in range(3)))
    assert result.out.startswith("version 0: 3 rows in 1 file")
    assert result.err == "", "progress belongs on a terminal only"
    assert [row["id"] for row in rows(tmp_path / "t")] == [0, 1, 2]


def test_partitions_properties_and_names(cli, tmp_path):
    (tmp_path / "a.csv").write_text("id;day\n1;x\n2;y\n")
    arguments = [
        "--partition-by",
        "day",
        "--property",
        "delta.checkpointInterval=3",
        "--name",
        "n",
        "--description",
        "d",
    ]
    result = cli("write", tmp_path / "t", tmp_path / "a.csv", "--delimiter", ";", *arguments, "--message", "first")
    assert result.status == 0, result.err
    detail = cli("detail", tmp_path / "t", "--json").json
    assert (detail["name"], detail["description"], list(detail["partition_columns"])) == ("n", "d", ["day"])
    assert detail["properties"]["delta.checkpointInterval"] == "3"
    assert cli("history", tmp_path / "t", "--json").json[0]["userMetadata"] == "first"


def test_clustering_columns(cli, tmp_path):
    (tmp_path / "a.csv").write_text("id,day\n1,x\n2,y\n")
    assert cli("write", tmp_path / "t", tmp_path / "a.csv", "--cluster-by", "day,id").status == 0
    assert cli("detail", tmp_path / "t", "--json").json["clustering_columns"] == ["day", "id"]
    refused = cli("write", tmp_path / "t", tmp_path / "a.csv", "--mode", "append", "--cluster-by", "id")
    assert (refused.status, "clustered by ['day', 'id']" in refused.err) == (1, True)


def test_overwrite_where_dynamic_and_schema_mode(cli, tmp_path):
    table = tmp_path / "t"
    (tmp_path / "a.csv").write_text("id,day\n1,x\n2,y\n3,z\n")
    (tmp_path / "b.csv").write_text("id,day\n4,y\n")
    (tmp_path / "c.csv").write_text("id,day,more\n5,w,1\n")
    assert cli("write", table, tmp_path / "a.csv", "--partition-by", "day").status == 0
    assert cli("write", table, tmp_path / "b.csv", "--mode", "overwrite", "--where", "day = 'y'").status == 0
    assert [row["id"] for row in rows(table)] == [1, 3, 4]
    assert cli("write", table, tmp_path / "b.csv", "--mode", "overwrite", "--dynamic").status == 0
    assert [row["id"] for row in rows(table)] == [1, 3, 4]
    assert cli("write", table, tmp_path / "c.csv", "--mode", "append", "--schema-mode", "merge").status == 0
    assert [row["more"] for row in rows(table)] == [None, None, None, 1]
    assert cli("write", table, tmp_path / "c.csv", "--mode", "overwrite").status == 0
    assert [row["id"] for row in rows(table)] == [5]
    assert cli("write", table, tmp_path / "a.csv", "--mode", "ignore").out == "nothing was written\n"


def log_files(table):
    return sorted(path.name for path in (table / "_delta_log").glob("*.json"))


@pytest.mark.parametrize(
    ("name", "content", "arguments", "said"),
    [
        ("a.csv", "id\n2\n", [], "there is a table"),
        ("a.csv", "other\n2\n", ["--mode", "append"], "other"),
        ("a.csv", "id\nx\n", ["--mode", "append"], "a.csv"),
        ("a.csv", "", ["--mode", "append"], "a.csv"),
        ("a.json", '{"id": 1}\n{"id": \n', ["--mode", "append"], "a.json"),
        ("a.parquet", "not parquet", ["--mode", "append"], "a.parquet"),
        ("a.dat", "id\n2\n", ["--mode", "append"], "--format"),
        (None, "", ["--mode", "append"], "no such file"),
        ("a.csv", "id\n2\n", ["--mode", "upsert"], "upsert"),
        ("a.csv", "id\n2\n", ["--mode", "append", "--where", "id = 2"], "overwrite"),
        ("a.csv", "id\n2\n", ["--mode", "append", "--delimiter", ";;"], "--delimiter"),
        ("a.csv", "id\n2\n", ["--mode", "append", "--property", "x"], "name=value"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(cli, fails, tmp_path, name, content, arguments, said):
    (tmp_path / "first.csv").write_text("id\n1\n")
    table = tmp_path / "t"
    assert cli("write", table, tmp_path / "first.csv").status == 0
    before = sorted(table.rglob("*"))
    if name is not None:
        (tmp_path / name).write_text(content)
    assert said in fails("write", table, tmp_path / (name or "gone.csv"), *arguments)
    assert sorted(table.rglob("*")) == before


def test_files_that_differ_are_refused_by_name(fails, tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b.csv").write_text("id,more\n1,2\n")
    message = fails("write", tmp_path / "t", tmp_path / "a.csv", tmp_path / "b.csv")
    assert "b.csv" in message
    assert "2 columns" in message
    assert not (tmp_path / "t" / "_delta_log").exists() or log_files(tmp_path / "t") == []


def test_no_files_at_all(fails, tmp_path):
    assert "FILE" in fails("write", tmp_path / "t")


def test_a_checkpoint(cli, table):
    assert cli("checkpoint", table).out == "checkpoint of version 2 written\n"
    last = json.loads((table / "_delta_log" / "_last_checkpoint").read_text())
    assert last["version"] == 2
    assert cli("checkpoint", table, "--json").json == {"version": 2}


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (["--dynamic"], "day <=> 'y'"),
        (["--where", "day = 'y' and id > 3"], "(day = 'y') AND (id > 3L)"),
        ([], "TRUE"),
        (["--schema-mode", "overwrite"], "TRUE"),
    ],
)
def test_an_overwrite_has_read_what_it_replaces(cli, tmp_path, arguments, read):
    (tmp_path / "a.csv").write_text("id,day\n1,x\n2,y\n5,y\n")
    (tmp_path / "b.csv").write_text("id,day\n4,y\n")
    assert cli("write", tmp_path / "t", tmp_path / "a.csv", "--partition-by", "day").status == 0
    assert cli("write", tmp_path / "t", tmp_path / "b.csv", "--mode", "overwrite", *arguments).status == 0
    newest = cli("history", tmp_path / "t", "--limit", 1, "--json").json[0]
    assert (newest["isBlindAppend"], newest["readPredicates"]) == (False, [read])


@pytest.fixture
def of_times(tmp_path):
    """A table with points in time, and files of local times."""
    DeltaTable.create(tmp_path / "t", pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")}))
    (tmp_path / "a.csv").write_text("id,at\n1,2024-07-01 12:00:00\n")
    (tmp_path / "a.json").write_text('{"id": 1, "at": "2024-07-01 12:00:00"}\n')
    local = pa.table({"id": [1], "at": pa.array([dt.datetime(2024, 7, 1, 12)], pa.timestamp("us"))})
    pq.write_table(local, tmp_path / "a.parquet")
    return tmp_path


NOON = [{"id": 1, "at": dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)}]


@pytest.mark.parametrize("file", ["a.csv", "a.json", "a.parquet"])
@pytest.mark.parametrize("how", ["append", "merge", "create"])
def test_local_times_of_a_zone(cli, of_times, file, how):
    zone = ("--timezone", "Europe/Berlin")
    if how == "append":
        found = cli("write", of_times / "t", of_times / file, "--mode", "append", *zone)
    elif how == "merge":
        found = cli("merge", of_times / "t", of_times / file, "--on", "s.id = t.id", "--insert-all", *zone)
    else:
        found = cli(
            "write", of_times / "t", of_times / file, "--mode", "overwrite", "--schema-mode", "overwrite", *zone
        )
    assert found.status == 0
    assert DeltaTable(of_times / "t").to_pyarrow_table().to_pylist() == NOON


def test_local_times_without_a_zone_are_refused_with_the_option(fails, of_times):
    for name in ("a.csv", "a.json"):
        assert "--timezone says the zone" in fails("write", of_times / "t", of_times / name, "--mode", "append")
    said = fails("write", of_times / "t", of_times / "a.parquet", "--mode", "append")
    assert '--timezone "Europe/Berlin"' in said
    assert 'timezone="' not in said
    assert "did you mean" in fails("write", of_times / "t", of_times / "a.csv", "--timezone", "Europe/Berlyn")


def test_a_run_that_is_repeated_writes_its_rows_once(cli, tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\n")
    append = ("write", tmp_path / "t", tmp_path / "a.csv", "--mode", "append", "--app-id", "nightly", "--app-version")
    assert cli(*append, "20260301").out.startswith("version 0: 1 row")
    assert cli(*append, "20260301").out == "nothing was written\n"
    assert cli(*append, "20260228").out == "nothing was written\n"
    assert cli(*append, "20260302").out.startswith("version 1: 1 row")
    refused = cli(*append[:-1])
    assert refused.status == 1
    assert "--app-version" in refused.err
    assert DeltaTable(tmp_path / "t").count() == 2
