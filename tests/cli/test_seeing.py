"""``refdelta why``, ``timeline`` and ``diff``.

Tests of operations.inspection.explanation.
"""

import re

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, write_deltalake
from refdelta.errors import ConcurrentModificationError, ConflictDetails


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "stock"
    rows = pa.table({"id": [1, 2, 3], "item": ["pen", "ink", "cap"]})
    write_deltalake(folder, rows, configuration={"delta.enableDeletionVectors": "true"})
    table = DeltaTable(folder)
    first = table.begin(
        commit_properties=CommitProperties(user_metadata="x\x1b[2Jy", custom_metadata={"userName": "<b>"})
    )
    second = table.begin()
    first.delete("id = 1")
    second.update({"item": "'hat'"}, predicate="id = 3")
    first.commit()
    second.commit()
    return folder


def test_why_two_versions_conflict(path, cli, fails):
    DeltaTable(path).update({"item": "'ball'"}, predicate="id <= 3")
    found = cli("why", path, "1", "3")
    assert found.status == 0
    assert found.out.startswith("conflict: another writer removed rows or files that this transaction read\n")
    assert "ConcurrentDeleteReadException by the rule read-file-removed" in found.out
    assert "id=1, item='pen'" in found.out
    assert "\x1b" not in found.out
    assert cli("why", path, "1", "3", "--json").json["rule"] == "read-file-removed"
    moved = cli("why", path, "1", "2").out
    assert moved.startswith("no conflict: both concern the same files, and different rows of them\n")
    assert "version 2 began at version 0, and was committed over version 1" in moved
    assert "version 1 is not later than version 2" in fails("why", path, "2", "1")


def test_why_a_failed_transaction_and_a_read(path, cli, fails, tmp_path):
    stale, table = DeltaTable(path).begin(), DeltaTable(path)
    table.update({"item": "'ball'"}, predicate="id <= 3")
    stale.update({"item": "'bat'"}, predicate="id = 3")
    with pytest.raises(ConcurrentModificationError) as caught:
        stale.commit()
    conflict = caught.value.conflict
    assert ConflictDetails.from_json(conflict.as_json()) == conflict
    assert "id = 3" in str(caught.value)
    assert "attempts=" in conflict.advice
    file = tmp_path / "conflict.json"
    file.write_text(conflict.as_json())
    found = cli("why", file)
    assert (found.status, found.err) == (0, "")
    assert f"rule {conflict.rule}" in found.out
    assert cli("why", path, file, "--json").json["rule"] == conflict.rule
    path.rename(tmp_path / "moved")
    assert cli("why", file, "--json").json["rule"] == conflict.rule, "from the file alone"
    assert cli("why", tmp_path / "moved", file, "--json").json["rule"] == conflict.rule
    newest = table.version()
    read = cli("why", tmp_path / "moved", "--reads", "id = 3", "--since", newest - 1, "--json").json
    assert [one["winner"]["version"] for one in read] == [newest]
    assert cli("why", tmp_path / "moved", "--reads", "id = 99", "--since", newest - 1, "--json").json == []
    file.write_text("[1]")
    assert "not the JSON of a conflict" in fails("why", file)
    assert "--since" in fails("why", path, "--reads", "id = 3")


def test_timeline(path, cli, fails, tmp_path):
    lines = cli("timeline", path).out.splitlines()
    assert [line[:8].rstrip() for line in lines] == ["0  ●─┐", "1  ● │", "2  ●─┘"]
    assert all(len(line) <= 80 for line in lines)
    assert [row["passed"] for row in cli("timeline", path, "--json", "--version", "1..").json] == [[], [1]]
    assert len(cli("timeline", path, "--limit", "1").out.splitlines()) == 1
    picture = tmp_path / "picture.svg"
    assert cli("timeline", path, "--svg", picture).out == ""
    assert picture.read_text().startswith("<svg ")
    assert fails("timeline", path, "--version", "7..9") == "the log has no version from 7 to 9; it has 0 to 2"
    assert fails("timeline", path, "--version", "x").startswith("version is a version, (first, last) or 'FIRST..LAST'")
    assert fails("timeline", tmp_path / "nothing").startswith("there is no Delta table at")


@pytest.mark.parametrize("command", [("timeline",), ("diff", "0", "2")])
def test_colours_can_be_switched_off(path, cli, monkeypatch, command):
    # click asks the terminal itself, which is none here: only what is painted without it is seen
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    name, *versions = command
    painted = cli(name, path, *versions).out
    assert "\x1b[" in painted
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli(name, path, *versions).out == re.sub("\x1b\\[[0-9;]*m", "", painted)


def test_diff(path, cli, fails):
    DeltaTable(path).alter.set_table_properties({"note": "\x1b[2J"})
    text = cli("diff", path, "0", "3")
    assert text.out.splitlines() == [
        "property note: (none) -> \\x1b[2J",
        "2 rows less, 1 row more, by the files",
        "- id=1, item=pen",
        "- id=3, item=cap",
        "+ id=3, item=hat",
    ]
    found = cli("diff", path, "0", "3", "--json").json
    assert (found["deleted"], found["inserted"], found["by"]) == (2, 1, "files")
    assert found["rows"][2] == {"id": 3, "item": "hat", "_change_type": "insert"}
    few = cli("diff", path, "0", "3", "--limit", "1")
    assert few.out.count("\n") == 3
    assert "the first 1 rows" in few.err
    assert fails("diff", path, "0", "9") == "the table has no version 9; its newest is 3"
