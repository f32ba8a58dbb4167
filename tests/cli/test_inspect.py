"""``refdelta history``, ``detail``, ``files`` and ``log``.

Tests of cli.render, operations.maintenance.newest_files.
"""

import json
import uuid

import pyarrow as pa
import pytest
from rich.text import Text

from handmade import add, write_commit
from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.cli import inspect
from refdelta.cli.render import echo_json, echo_json_list
from refdelta.core.rows.deletion_vector import encode_relative
from refdelta.engine.log.location import open_location
from refdelta.errors import InvalidLogError
from refdelta.operations.maintenance.newest_files import NewestFiles
from refdelta_storage.wrappers import TracingStore


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
    for command in ("read", "detail"):
        message = fails(command, table)
        assert f"{1:020}.json" in message
        assert "line" in message


@pytest.mark.parametrize("damage", ["line", "gap"])
def test_files_of_a_damaged_log_are_shown_as_far_as_they_are_known(cli, table, damage):
    DeltaTable(table).delete("id = 1")
    newer = {row["path"] for version in (2, 3) for row in added(table, version)}
    file = table / "_delta_log" / f"{1:020}.json"
    file.write_text(file.read_text() + '{"add": {"path"\n') if damage == "line" else file.unlink()
    result = cli("files", table)
    assert result.status == 1
    assert f"{1:020}.json" in result.err
    assert {line.split()[0] for line in result.out.splitlines()[2:]} == newer
    assert (shown := cli("files", table, "--limit", 1)).status == (damage == "gap"), "what is not shown is not read"
    assert len(shown.out.splitlines()) == 2 + 1


def added(table, version):
    """The files that a commit added, by its log file."""
    lines = (table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]


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


def test_on_a_terminal_a_version_of_the_history_is_one_line(cli, tmp_path, monkeypatch):
    said = CommitProperties(user_metadata="two\nlines\x1b[2J " + "漢" * 60, custom_metadata={"userName": "ada" * 40})
    for number in range(3):
        write_deltalake(tmp_path / "t", pa.table({"id": [number]}), mode="append", commit_properties=said)
    piped = cli("history", tmp_path / "t").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    for width in (80, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = [Text.from_ansi(line) for line in cli("history", tmp_path / "t").out.splitlines()]
        assert len(lines) == 2 + 3
        assert all(line.cell_len <= width for line in lines), lines
        assert [line.plain.split()[0].strip("─") for line in lines] == ["version", "", "2", "1", "0"]
        assert "\x1b[2J" not in "".join(line.plain for line in lines)
    assert "numOutputRows=1" not in cli("history", tmp_path / "t").out
    wide = cli("history", tmp_path / "t", "--wide").out
    assert wide.count("numOutputRows=1") == piped.count("numOutputRows=1") == 3


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


@pytest.mark.tier("test")
@pytest.mark.breaks_tables
@pytest.mark.sample(check=1)
@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.checkpointPolicy": "v2"},
        {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "true"},
    ],
    ids=["classic", "v2", "struct"],
)
def test_files_read_backwards_are_those_of_the_snapshot(tmp_path, properties):
    wanted = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "4", **properties}
    first = pa.table({"id": range(9), "part": [0, 1, 2] * 3})
    write_deltalake(tmp_path, first, partition_by="part", configuration=wanted)
    table = DeltaTable(tmp_path)
    for number in range(5):
        write_deltalake(table, pa.table({"id": [9 + number], "part": [number % 2]}), mode="append")
        table.delete(f"id = {2 * number}")
    table.optimize.compact()
    table.restore(3)
    table.create_checkpoint(**({"top_level": "json"} if "delta.checkpointPolicy" in properties else {}))
    table.delete("id = 1")
    for version in range(table.version() + 1):
        damage = []
        files = NewestFiles(open_location(tmp_path, None), version, damage.append)
        found = pa.concat_tables(files.tables())
        at = DeltaTable(tmp_path, version=version).files()
        assert found.sort_by("path").equals(at.sort_by("path").cast(found.schema)), version
        assert files.count() in (len(found), None)
        assert damage == []


def test_a_limit_reads_no_more_of_the_log_than_it_shows(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    DeltaTable(tmp_path).create_checkpoint()
    for version in range(1, 121):
        write_commit(tmp_path, version, add(f"f{version}"))
    store = TracingStore(open_location(tmp_path, None))
    assert next(NewestFiles(store, None, pytest.fail).tables())["path"].to_pylist() == ["f120"]
    read = [key for operation, key in store.calls if operation in ("get", "get_many", "open_input", "get_ranges")]
    assert not [key for key in read if "checkpoint.parquet" in key]
    assert len([key for key in read if key.endswith(".json")]) <= 100


def test_history_as_json_is_printed_commit_by_commit(cli, table, monkeypatch):
    def recorded(_store, _limit, _damage):
        for version in (2, 1):
            yield {"version": version, "nested": {"a": [1, 2]}}
        raise InvalidLogError("broken off")

    monkeypatch.setattr("refdelta.operations.maintenance.history.recorded_history", recorded)
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
