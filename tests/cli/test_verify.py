"""``refdelta verify``: text and JSON, and the exit status.

Tests of cli.verifying, verifier.report.
"""

import json

import pyarrow as pa
import pytest

from refdelta import write_deltalake


@pytest.fixture
def path(tmp_path):
    for number in range(3):
        write_deltalake(tmp_path / "t", pa.table({"id": [number]}), mode="append")
    return tmp_path / "t"


def test_a_sound_table(cli, path):
    shown = cli("verify", path)
    assert shown.status == 0
    assert shown.out.startswith("sound: versions 0 to 2; 3 commits, ")
    found = cli("verify", path, "--json", "--full").json
    assert found["sound"] is True
    assert found["findings"] == []
    assert found["checked"]["rows"] == 3


def test_a_table_that_breaks_a_rule(cli, path):
    commit = path / "_delta_log" / f"{2:020d}.json"
    lines = commit.read_text().splitlines()
    commit.write_text("\n".join([*lines, lines[-1]]))
    shown = cli("verify", path)
    assert shown.status == 1
    assert (
        "error: action-1: version 2, _delta_log/00000000000000000002.json:3: the commit has another add of" in shown.out
    )
    assert shown.out.splitlines()[-1].startswith("1 error: ")
    printed = cli("verify", path, "--json")
    assert printed.status == 1
    (finding,) = json.loads(printed.out)["findings"]
    assert (finding["clause"], finding["line"], finding["level"]) == ("action-1", 3, "MUST")
    assert finding["says"] == "a commit has at most one add and one remove of a path"


def test_warnings_leave_the_status_alone(cli, path):
    (path / "_delta_log" / "_last_checkpoint").write_text("{")
    shown = cli("verify", path)
    assert shown.status == 0
    assert shown.out.startswith("warning: check-6: ")
    assert "sound and 1 warning: " in shown.out


def test_samples(cli, path):
    assert cli("verify", path, "--json", "--sample", 1).json["checked"]["rows"] == 1
    assert "rows" not in cli("verify", path, "--json", "--sample", 0).json["checked"]
    assert "--full and --sample exclude each other" in cli("verify", path, "--full", "--sample", 1).err


def test_what_cannot_be_verified(cli, tmp_path):
    shown = cli("verify", tmp_path / "nothing")
    assert (shown.status, shown.out) == (2, "")
    assert shown.err.startswith("refdelta: there is no Delta table at ")
