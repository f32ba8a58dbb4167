"""``refdelta history``, ``detail``, ``files`` and ``log``."""

import json
import uuid

import pyarrow as pa

from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.cli import inspect
from refdelta.cli.render import echo_json, echo_json_list
from refdelta.core.rows.deletion_vector import encode_relative
from refdelta.errors import InvalidLogError


def test_history(cli, table):
    commits = cli("history", table, "--json").json
    assert [commit["version"] for commit in commits] == [2, 1, 0]
    assert [commit["operation"] for commit in commits[:2]] == ["WRITE", "WRITE"]
    lines = cli("history", table, "--limit", 2).out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["2", "1"]
    assert "WRITE" in lines[2]
    assert "day = 'b'" in lines[2], "the predicate of replaceWhere is among the parameters"


def test_detail(cli, table):
    found = cli("detail", table, "--json").json
    assert (found["name"], found["num_files"], found["partition_columns"]) == ("numbers", 3, ["day"])
    text = dict(line.split("  ", 1) for line in cli("detail", table).out.splitlines() if "  " in line)
    text = {name: value.strip() for name, value in text.items()}
    assert (text["name"], text["num files"], text["partition columns"]) == ("numbers", "3", "day")
    assert text["size in bytes"].startswith(f"{found['size_in_bytes']:,} (")
    assert text["last modified"].startswith("20")
    assert cli("detail", table, "--version", 0, "--json").json["num_files"] == 2


def test_files(cli, table):
    found = cli("files", table, "--json").json
    assert len(found) == 3
    assert all((table / row["path"]).stat().st_size == row["size_bytes"] for row in found)
    assert sorted(row["partition_values"]["day"] for row in found) == ["a", "a", "b"]
    lines = cli("files", table).out.splitlines()
    assert len(lines) == 2 + 3
    assert all("day=" in line for line in lines[2:])


def test_log_shows_the_actions_of_a_version(cli, table):
    actions = cli("log", table, "--version", 2, "--json").json
    raw = (table / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    assert actions == [json.loads(line) for line in raw]
    text = cli("log", table).out
    assert text.startswith(f"_delta_log/{2:020}.json: {len(raw)} actions\n")
    headings = [line for line in text.splitlines() if line and not line.startswith((" ", "_"))]
    assert headings == [next(iter(action)) for action in actions]
    assert next(a["add"]["path"] for a in actions if "add" in a) in text


def test_deletion_vectors_for_people_and_programs(cli, tmp_path):
    path = tmp_path / "t"
    asked = {"delta.enableDeletionVectors": "true", "refdelta.inlineDeletionVectors": "true"}
    write_deltalake(path, pa.table({"id": range(10)}), configuration=asked)
    assert "num deletion vectors" not in cli("detail", path).out
    DeltaTable(path).delete("id < 3")
    found = cli("detail", path, "--json").json
    assert (found["num_deletion_vectors"], found["num_deleted_rows"]) == (1, 3)
    assert "num deleted rows      3\n" in cli("detail", path).out
    (file,) = cli("files", path, "--json").json
    assert (file["num_records"], file["num_deleted"]) == (10, 3)
    vector = next(a["add"]["deletionVector"] for a in cli("log", path, "--json").json if "add" in a)
    assert f"  deletionVector    3 rows, {vector['sizeInBytes']} bytes in the log\n" in cli("log", path).out
    DeltaTable(path).reorg_purge()
    assert "rowPlaces            of the rows of 1 file; --json shows them\n" in cli("log", path).out
    info = next(a["commitInfo"] for a in cli("log", path, "--json").json if "commitInfo" in a)
    assert next(iter(info["rowPlaces"].values()))[0]["deletionVector"] == vector
    DeltaTable(path).delete("true")
    assert cli("detail", path, "--json").json["num_deleted_rows"] == 0


def test_vectors_in_files_are_named():
    name = uuid.uuid4()
    vector = {"storageType": "u", "pathOrInlineDv": encode_relative(name), "sizeInBytes": 1, "cardinality": 2}
    assert inspect._vector(vector) == f"2 rows, 1 byte at 0 of deletion_vector_{name}.bin"
    elsewhere = {**vector, "storageType": "p", "pathOrInlineDv": "s3://b/x.bin", "offset": 9}
    assert inspect._vector(elsewhere) == "2 rows, 1 byte at 9 of s3://b/x.bin"
    for wrong in ({**vector, "storageType": "x"}, {"storageType": "u"}, 7):
        assert inspect._vector(wrong) == wrong, "the log is shown as it is"


def test_log_of_a_version_that_was_cleaned_up(cli, fails, table):
    assert cli("checkpoint", table).status == 0
    (table / "_delta_log" / f"{2:020}.json").unlink()
    assert "cleaned up" in fails("log", table)


def test_a_folder_that_is_no_table(fails, tmp_path):
    for command in ("history", "detail", "files", "log", "read", "checkpoint"):
        assert str(tmp_path) in fails(command, tmp_path)


def test_a_corrupt_log_line_is_named(fails, table):
    log = table / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text() + '{"add": {"path"\n')
    for command in ("read", "files", "detail"):
        message = fails(command, table)
        assert f"{1:020}.json" in message
        assert "line" in message


def test_history_of_a_damaged_log_shows_the_rest(cli, table):
    DeltaTable(table).delete("id = 1")
    log = table / "_delta_log"
    (log / f"{1:020}.json").unlink()
    (log / f"{2:020}.json").write_text("{broken\n")
    result = cli("history", table)
    assert [line.split()[0] for line in result.out.splitlines()[2:]] == ["3", "2", "0"]
    assert result.status == 1
    assert f"{2:020}.json, line 1" in result.err
    assert "1 more place" in result.err
    assert cli("history", table, "--limit", 1).status == 0, "what is not shown is not read"


def test_log_of_a_damaged_version_shows_the_rest(cli, table):
    log = table / "_delta_log" / f"{2:020}.json"
    whole = log.read_text()
    log.write_text(whole + '{"add": {"path"\n')
    (table / "_delta_log" / f"{1:020}.json").unlink()
    result = cli("log", table)
    assert result.status == 1
    assert f"{2:020}.json, line {whole.count(chr(10)) + 1}" in result.err
    assert "commitInfo" in result.out


def test_history_shows_notes_and_engines_and_says_that_there_is_more(cli, tmp_path):
    for number in range(22):
        note = CommitProperties(user_metadata=f"note {number}")
        write_deltalake(tmp_path / "t", pa.table({"id": [number]}), mode="append", commit_properties=note)
    result = cli("history", tmp_path / "t")
    assert len(result.out.splitlines()) == 2 + 20
    assert "note 21" in result.out
    assert "refdelta" in result.out
    assert result.err == "... the newest 20 versions; --limit N shows more\n"
    assert len(cli("history", tmp_path / "t", "--json").json) == 22


def test_files_shows_a_screenful_and_says_how_many_there_are(cli, tmp_path):
    uri = tmp_path / "t"
    write_deltalake(uri, pa.table({"id": range(23), "part": range(23)}), partition_by=["part"])
    result = cli("files", uri)
    assert len(result.out.splitlines()) == 2 + 20
    assert result.err == "... 20 of 23 files; --limit N shows more, --json all\n"
    everything = cli("files", uri, "--limit", 23)
    assert (len(everything.out.splitlines()), everything.err) == (2 + 23, "")
    assert {file["path"] for file in cli("files", uri, "--json").json} == set(
        DeltaTable(uri).files()["path"].to_pylist()
    )
    assert len(cli("files", uri, "--json", "--limit", 3).json) == 3


def test_history_as_json_is_printed_commit_by_commit(cli, table, monkeypatch):
    def recorded(_store, _limit, _damage):
        for version in (2, 1):
            yield {"version": version, "nested": {"a": [1, 2]}}
        raise InvalidLogError("broken off")

    monkeypatch.setattr("refdelta.cli.inspect.recorded_history", recorded)
    result = cli("history", table, "--json")
    assert result.status == 1
    assert json.loads(result.out + "]") == [{"version": version, "nested": {"a": [1, 2]}} for version in (2, 1)]


def test_a_list_is_printed_as_one_document(capsys):
    for values in ([], [{"a": 1}], [{"a": [{"b": "two\nlines"}]}, 3]):
        echo_json(values)
        whole = capsys.readouterr().out
        echo_json_list(iter(values))
        assert capsys.readouterr().out == whole


def test_history_over_a_gap_of_any_size_reports_it_once(table, cli):
    log = table / "_delta_log"
    last = f"{2**63 - 1:020d}.json"
    (log / last).write_bytes((log / f"{0:020d}.json").read_bytes())
    said = cli("history", table, "--limit", "3")
    assert said.status == 1
    assert "the commit file is missing, and those of all versions from " in said.err
    assert f"{2**63 - 2:020d}.json" in said.err
    assert "more places" not in said.err
