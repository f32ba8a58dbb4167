"""Members of a version on the command line: ``history``, ``timeline``, ``log``, ``why``."""

import pyarrow as pa
import pytest

from grouped import mixing, statement, together
from refdelta import CommitProperties, DeltaTable, write_deltalake


@pytest.fixture
def path(tmp_path):
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    write_deltalake(tmp_path / "stock", rows, configuration={"delta.enableDeletionVectors": "true"})
    with mixing():
        together(
            DeltaTable(tmp_path / "stock"),
            statement(lambda txn: txn.delete("id = 1"), commit_properties=CommitProperties(user_metadata="by hand")),
            statement(lambda txn: txn.delete("id = 2")),
            lambda group: group.append(pa.table({"id": pa.array([9], pa.int64())})),
        )
    DeltaTable(tmp_path / "stock").delete("id = 9")
    return tmp_path / "stock"


def test_history(path, cli):
    lines = cli("history", path).out.splitlines()
    words = [line.split() for line in lines[2:]]
    assert [line[0] for line in words] == ["2", "1", "1.0", "1.1", "1.2", "0"]
    assert [line[1] for line in words[2:5]] == ["DELETE", "DELETE", "WRITE"]  # no time of their own
    assert "GROUP" in words[1]
    assert "by hand" in lines[4]
    assert len(cli("history", path, "--limit", "2").out.splitlines()) == 2 + 1 + 4
    assert [len(entry.get("members", [])) for entry in cli("history", path, "--json").json] == [0, 3, 0]


def test_timeline(path, cli):
    assert [row["member"] for row in cli("timeline", path, "--json").json] == [None, 0, 1, 2, None]
    assert [line.split()[0] for line in cli("timeline", path).out.splitlines()] == ["0", "1.0", "1.1", "1.2", "2"]


def test_log(path, cli):
    found = cli("log", path, "--version", "1").out
    members = DeltaTable(path).history()[1]["members"]
    named = "; ".join(f"{number}: {one['operation']} {one['txnId']}" for number, one in enumerate(members))
    assert f"members              {named}; --json shows their commitInfo" in found
    kinds = [line for line in found.splitlines() if line.startswith(("add", "remove", "commitInfo"))]
    assert kinds == ["commitInfo", "remove of members 0, 1", "add of members 0, 1", "add of member 2"]


def test_why(path, cli, fails):
    named = cli("why", path, "1", "2", "--json").json
    assert named["own"]["version"] == 2
    one = cli("why", path, "1.2", "2", "--json").json
    assert (one["winner"]["version"], one["winner"]["member"]) == (1, 2)
    assert "first   version 1.0: DELETE where id = 1L" in cli("why", path, "1.0", "2").out
    assert fails("why", path, "1.3", "2") == "version 1 has no member 3; its members: 0 to 2"
    assert "'1.x' is no version such as 3, and no member of one such as 3.1" in fails("why", path, "1.x", "2")
