"""``refdelta history``, ``detail``, ``files`` and ``log``."""

import json


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
