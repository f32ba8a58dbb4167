"""The members of a version, against the actions of its commit."""

from __future__ import annotations

import json

import pytest

import refdelta
from grouped import append, delete, mixing, rows, together
from refdelta import DeltaTable, write_deltalake

PROPERTIES = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def path(tmp_path):
    """Version 1, as in 0.2, has two DELETEs of one file and an append; its lines: commitInfo, remove, add, add."""
    write_deltalake(tmp_path, rows(1, 2, 3), configuration=PROPERTIES)
    with mixing():
        together(DeltaTable(tmp_path), delete("id = 1"), delete("id = 2"), append(9))
    return tmp_path


def findings(path, change):
    """The clauses and lines that are found after a change of the actions of version 1."""
    log = path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["lines"] for one in lines[0]["commitInfo"]["members"]] == [[[1, 3]], [[1, 3]], [[3, 4]]]
    change(lines, lines[0]["commitInfo"]["members"])
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for crc in log.parent.glob("*.crc"):
        crc.unlink()
    found = [one for one in refdelta.verify(path).findings if one.clause in {"action-21", "action-22"}]
    return [(one.clause, one.line, one.message) for one in found]


def test_what_is_written_is_sound(path):
    assert refdelta.verify(path).sound
    assert findings(path, lambda lines, members: None) == []


def test_of_another_engine_the_field_means_something_else(path):
    def change(lines, members):
        lines[0]["commitInfo"] |= {"engineInfo": "Other/1.0", "members": "two"}

    assert findings(path, change) == []


def no_list(lines, members):
    lines[0]["commitInfo"]["members"] = {"0": members[0]}


def beyond_the_file(lines, members):
    members[2]["lines"] = [[3, 5]]


def of_no_lines(lines, members):
    del members[2]["lines"]


def twice_the_same_line(lines, members):
    members[0]["lines"] = [[1, 3], [2, 3]]


def commit_info_as_an_action(lines, members):
    members[2]["lines"] = [[0, 1]]


def of_no_member(lines, members):
    members[2]["lines"] = []


def same_id(lines, members):
    members[1]["txnId"] = members[0]["txnId"]


def no_id(lines, members):
    del members[1]["txnId"]


def a_version_that_it_cannot_have_read(lines, members):
    members[1]["readVersion"] = 1


def one_application_for_two(lines, members):
    lines.append({"txn": {"appId": "a", "version": 1}})
    members[0]["lines"] += [[4, 5]]
    members[1]["lines"] += [[4, 5]]


def one_new_file_of_two(lines, members):
    members[1]["lines"] += [[3, 4]]


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (no_list, 1, "members of commitInfo is not a list of objects"),
        (beyond_the_file, 1, "the lines of member 2 are [[3, 5]], no ascending ranges of the lines 1 to 3"),
        (of_no_lines, 1, "the lines of member 2 are None, no ascending ranges of the lines 1 to 3"),
        (twice_the_same_line, 1, "the lines of member 0 are [[1, 3], [2, 3]], no ascending ranges of the lines 1 to 3"),
        (commit_info_as_an_action, 1, "the lines of member 2 are [[0, 1]], no ascending ranges of the lines 1 to 3"),
        (of_no_member, 4, "the action is of no member"),
        (same_id, 1, "members 0 and 1 have the same txnId "),
        (no_id, 1, "member 1 has no txnId"),
        (a_version_that_it_cannot_have_read, 1, "readVersion of member 1 is 1, not an earlier version"),
        (one_application_for_two, 5, "the action is of the members 0, 1; only a file can be of several"),
        (one_new_file_of_two, 4, "is added by the members 1, 2, and not removed by each of them"),
    ],
)
def test_members_that_contradict_the_actions(path, change, line, message):
    ((clause, at, said),) = findings(path, change)
    assert (clause, at) == ("action-21", line)
    assert message in said


def an_operation_that_is_seen_by_name(lines, members):
    members[2]["operation"] = "VACUUM END"


def a_compaction(lines, members):
    lines[3]["add"]["dataChange"] = False


def change_files_of_one(lines, members):
    change = {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 1, "dataChange": False}
    lines.append({"cdc": change})
    members[2]["lines"] = [[3, 5]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (an_operation_that_is_seen_by_name, "member 2 is 'VACUUM END', which must have a version alone"),
        (a_compaction, "member 2 only rearranges files, and must have a version alone"),
        (change_files_of_one, "members 2 have change files, and members 0, 1 have none"),
    ],
)
def test_members_that_may_not_share_a_version(path, change, message):
    ((clause, _, said),) = findings(path, change)
    assert clause == "action-22"
    assert message in said


@pytest.mark.parametrize("kind", ["metaData", "protocol"])
def test_a_change_of_the_table_among_them(path, kind):
    first = [json.loads(line) for line in (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]

    def change(lines, members):
        lines.append(next(line for line in first if kind in line))
        members[2]["lines"] = [[3, 5]]

    assert findings(path, change) == [("action-22", 5, f"a version with 3 members has a {kind} action")]
