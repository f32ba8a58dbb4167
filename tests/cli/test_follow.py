"""``refdelta follow``: changes for people and for programs, from a version or a position on."""

import json

import pyarrow as pa

from refdelta import DeltaTable, write_deltalake


def changes(result):
    return [json.loads(line) for line in result.out.splitlines()]


def test_each_change_is_a_line_of_json_with_its_position(cli, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2]}))
    (first,) = changes(cli("follow", tmp_path / "t", "--timeout", 0, "--json"))
    assert (first["version"], first["kind"], first["rows"]) == (0, "snapshot", [{"id": 1}, {"id": 2}])
    write_deltalake(tmp_path / "t", pa.table({"id": [3]}), mode="append")
    for since in (first["position"], 0):
        (later,) = changes(cli("follow", tmp_path / "t", "--since", since, "--timeout", 0, "--json"))
        assert (later["version"], later["kind"], later["rows"]) == (1, "changes", [{"id": 3}])
        assert later["app_version"] > first["app_version"]


def test_columns_and_rows_are_those_asked_for(cli, tmp_path):
    for _ in range(2):
        write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "name": ["a", "b"]}), mode="append")
    given = ("--since", -1, "--timeout", 0, "--columns", "name", "--where", "id = 2")
    result = cli("follow", tmp_path / "t", *given)
    assert [line.strip() for line in result.out.splitlines() if line and "─" not in line] == [
        *("version 0, changes: 1 row", "name", "b"),
        *("version 1, changes: 1 row", "name", "b"),
    ]


def test_more_rows_than_are_shown(cli, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": range(30)}))
    result = cli("follow", tmp_path / "t", "--timeout", 0)
    assert len([line for line in result.out.splitlines() if line.strip().isdecimal()]) == 20
    assert "the first 20 rows" in result.err


def test_a_commit_that_changes_rows_is_one_line_with_the_options_of_the_command(fails, cli, tmp_path):
    for number in range(2):
        write_deltalake(tmp_path / "t", pa.table({"id": [number]}), mode="append")
    DeltaTable(tmp_path / "t").delete("id = 0")
    line = fails("follow", tmp_path / "t", "--since", 1, "--timeout", 0)
    assert "version 2 (DELETE) removes rows" in line
    assert "--skip-change-commits skips" in line
    assert cli("follow", tmp_path / "t", "--since", 1, "--timeout", 0, "--skip-change-commits").out == ""
    assert cli("follow", tmp_path / "t", "--since", 1, "--timeout", 0, "--ignore-deletes").out == ""
