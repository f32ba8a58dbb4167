"""Members of a version are transactions of their own in what is said of the log.

Tests of operations.inspection.timeline, transaction.parties.
"""

import json

import deltalake
import pyarrow as pa
import pytest

from grouped import append, delete, grown, mixing, rows, statement, together, update
from refdelta import CommitProperties, DeltaTable, errors, explain_conflict, observe_commits, write_deltalake

VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def table(tmp_path):
    """Version 2 has a DELETE, an UPDATE of another file, and an append, as in version 0.2; version 3 is an UPDATE."""
    path = tmp_path / "stock"
    write_deltalake(path, rows(1, 2, 3), configuration=VECTORS)
    write_deltalake(path, rows(11, 12, 13), mode="append")
    noted = CommitProperties(user_metadata="by hand")
    with mixing():
        found = together(
            DeltaTable(path),
            statement(lambda txn: txn.append(rows(20))),
            statement(lambda txn: txn.delete("id = 1"), commit_properties=noted),
            statement(lambda txn: txn.update({"v": "v + 7"}, predicate="id = 12")),
        )
    assert [(one.version, one.member) for one in found] == [(2, 2), (2, 0), (2, 1)]
    DeltaTable(path).update({"v": "v + 1"}, predicate="id = 2 or id = 12")
    return DeltaTable(path)


def test_the_history_has_them(table):
    info = table.history()[1]
    assert [one["operation"] for one in info["members"]] == ["DELETE", "UPDATE", "WRITE"]
    assert [one.get("userMetadata") for one in info["members"]] == ["by hand", None, None]
    assert info["members"][0]["operationMetrics"]["numDeletedRows"] == "1"
    assert len({one["txnId"] for one in info["members"]}) == 3
    shown = table.history()._repr_html_()
    assert "<td>2.0</td><td></td><td>DELETE</td>" in shown
    assert shown.index("<td>GROUP</td>") < shown.index("<td>2.0</td>") < shown.index("<td>2.2</td>")


def test_the_timeline_has_a_lane_for_each(table):
    found = pa.table(table.timeline()).to_pylist()
    named = [(one["version"], one["member"], one["operation"], one["predicate"]) for one in found]
    assert named[2:5] == [(2, 0, "DELETE", "id = 1L"), (2, 1, "UPDATE", "id = 12L"), (2, 2, "WRITE", None)]
    assert [one["rows"] for one in found] == [3, 3, 1, 1, 1, 2]
    assert [one["blind_append"] for one in found[2:5]] == [False, False, True]
    assert [one["files_added"] for one in found[2:5]] == [0, 1, 1]
    assert [one["note"] for one in found[2:5]] == ["by hand", None, None]
    assert {one["engine"] for one in found[2:5]} == {found[0]["engine"]}
    lines = table.timeline().draw(80).splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2.0", "2.1", "2.2", "3"]
    assert ">2.1</text>" in table.timeline().to_svg()


def test_a_member_that_was_moved_over_versions(tmp_path):
    write_deltalake(tmp_path, rows(1, 2), configuration=VECTORS)
    table = DeltaTable(tmp_path)
    found = together(
        table,
        statement(lambda txn: (txn.delete("id = 1"), write_deltalake(tmp_path, rows(4), mode="append"))),
        statement(lambda txn: txn.delete("id = 2")),
    )
    assert [(one.version, one.member) for one in found] == [(2, 0), (2, 1)]
    of_members = pa.table(table.timeline()).to_pylist()[2:]
    assert [(one["member"], one["read_version"], one["passed"]) for one in of_members] == [(0, 0, [1]), (1, 1, [])]
    assert [line[:9].rstrip() for line in str(table.timeline()).splitlines()[2:]] == ["2.0  ●─┘", "2.1  ●"]


@pytest.mark.breaks_tables
def test_damage_is_of_the_first_member(table, tmp_path):
    (tmp_path / "stock" / "_delta_log" / f"{1:020d}.json").unlink()
    found = pa.table(table.timeline()).to_pylist()
    assert [one["member"] for one in found] == [None, 0, 1, 2, None]
    assert [one["damage"] for one in found] == [None, "version 1 is missing", None, None, None]


@pytest.mark.breaks_tables
def test_members_that_contradict_the_file_are_one_version(table, tmp_path):
    log = tmp_path / "stock" / "_delta_log" / f"{2:020d}.json"
    info, *others = log.read_text().splitlines()
    action = json.loads(info)
    action["commitInfo"]["members"][0]["lines"] = [[1, 70]]
    log.write_text("\n".join([json.dumps(action), *others, ""]))
    assert pa.table(table.timeline()).column("member").null_count == 4


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_the_winner_is_the_member_that_conflicts(table):
    late = table.begin()
    late.update({"v": "0"}, predicate="id = 12")
    found = together(
        table,
        statement(lambda txn: txn.delete("id = 3")),
        statement(lambda txn: txn.delete("id = 12"), commit_properties=CommitProperties(user_metadata="gone")),
    )
    assert [(one.version, one.member) for one in found] == [(4, 0), (4, 1)]
    with pytest.raises(errors.ConcurrentDeleteReadException, match=r"version 4\.1, DELETE") as error:
        late.commit()
    conflict = error.value.conflict
    assert (conflict.version, conflict.member, conflict.operation) == (4, 1, "DELETE")
    winner = conflict.winner
    assert (winner.version, winner.member, winner.predicate, winner.note) == (4, 1, "id = 12L", "gone")
    assert conflict.as_dict()["winner"]["member"] == 1


def test_events_have_the_member_and_that_of_the_winner(table):
    events = []
    late = table.begin()
    late.update({"v": "0"}, predicate="id = 12")
    with observe_commits(events.append):
        together(table, statement(lambda txn: txn.delete("id = 3")), statement(lambda txn: txn.delete("id = 12")))
        with pytest.raises(errors.ConcurrentModificationError):
            late.commit()
    assert sorted((one.version, one.member) for one in events[:2]) == [(4, 0), (4, 1)]
    assert (events[2].outcome, events[2].winner, events[2].winner_member) == ("conflict", 4, 1)


# --- why --------------------------------------------------------------------------------------------------------------


def test_of_a_version_the_member_that_conflicts_is_named(table):
    found = explain_conflict(table, 2, lambda txn: txn.delete("id = 12"))
    assert (found.rule, found.winner.version, found.winner.member) == ("files-added", 2, 1)
    assert "first   version 2.1: UPDATE where id = 12L" in str(found)
    assert found.rows.column("id").to_pylist() == [12]


@pytest.mark.parametrize(("member", "rule"), [(0, None), (1, "files-added"), (2, None)])
def test_one_member_comes_first(table, member, rule):
    found = explain_conflict(table, (2, member), lambda txn: txn.delete("id = 12"))
    assert (found.rule, found.winner.member) == (rule, member)
    assert f"version 2.{member}: " in str(found)


def test_members_come_second_one_after_the_other(tmp_path):
    write_deltalake(tmp_path, rows(1, 2, 3), configuration=VECTORS)
    DeltaTable(tmp_path).update({"v": "5"}, predicate="id = 2")
    together(
        DeltaTable(tmp_path), statement(lambda txn: txn.delete("id = 1")), statement(lambda txn: txn.delete("id = 2"))
    )
    table = DeltaTable(tmp_path)
    found = explain_conflict(table, 1, 2)
    assert (found.own.member, found.own.predicate, found.winner.member) == (1, "id = 2L", None)
    assert found.rule == "files-added"
    assert "second  version 2.1: DELETE where id = 2L" in str(found)
    assert explain_conflict(table, 1, (2, 0)).rule is None
    assert explain_conflict(table, 1, (2, 1)).as_dict()["own"]["member"] == 1


def test_none_of_the_members_conflicts(tmp_path):
    write_deltalake(tmp_path, rows(1, 2, 3), configuration=VECTORS)
    DeltaTable(tmp_path).delete("id = 3")
    together(
        DeltaTable(tmp_path), statement(lambda txn: txn.delete("id = 1")), statement(lambda txn: txn.delete("id = 2"))
    )
    found = explain_conflict(DeltaTable(tmp_path), 1, 2)
    assert found.conflict is None
    assert "nor do the other members of version 2: 2.1" in found.notes


def test_rows_that_the_log_has_together(tmp_path):
    """The vector of a file has the rows of all members: which one deleted a row is not in the log."""
    write_deltalake(tmp_path, rows(1, 2, 3), configuration=VECTORS)
    together(
        DeltaTable(tmp_path), statement(lambda txn: txn.delete("id = 1")), statement(lambda txn: txn.delete("id = 2"))
    )
    found = explain_conflict(DeltaTable(tmp_path), 1, lambda txn: txn.delete("id = 2"))
    assert found.rule == "read-file-removed"
    assert any(note.startswith("1.0 and 1.1 deleted rows of the same files") for note in found.notes)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((2, 3), 3, "version 2 has no member 3; its members: 0 to 2"),
        ((3, 0), lambda txn: txn.delete("id = 1"), "version 3 has no member 0; its members: none"),
        ((2, 0), (2, 1), "members of one version were checked against each other"),
        ((2, -1), 3, "a is a version of the table, or \\(version, member\\)"),
        (1, (2, 0, 0), "b is a version|b must be|b is"),
    ],
)
def test_no_such_member(table, a, b, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        explain_conflict(table, a, b)


# --- another engine --------------------------------------------------------------------------------------------------


def rows_of(table):
    return sorted(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


@pytest.mark.tier("test")
def test_deltalake_reads_versions_with_members(tmp_path):
    grown(tmp_path, VECTORS)
    for version in range(5):
        theirs = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(tmp_path, version=version))
        found = pa.table(theirs.execute("SELECT id, v FROM t").read_all())
        assert rows_of(DeltaTable(tmp_path, version=version).to_pyarrow_table()) == rows_of(found)
    found = deltalake.DeltaTable(tmp_path)
    assert [one["operation"] for one in found.history()][::-1] == ["WRITE", "GROUP", "UPDATE", "DELETE", "WRITE"]
    assert found.version() == 4


# --- applications -----------------------------------------------------------------------------------------------------


def test_applications_of_members_are_recorded_each(tmp_path):
    write_deltalake(tmp_path, rows(0))

    def once(number, app_id):
        return lambda group: group.append(rows(number), app_id=app_id, app_version=7)

    found = together(DeltaTable(tmp_path), once(1, "shop"), once(2, "depot"))
    assert [(one.version, one.member) for one in found] == [(1, 0), (1, 1)]
    table = DeltaTable(tmp_path)
    assert [table.transaction_version(name) for name in ("shop", "depot")] == [7, 7]
    for again in (once(1, "shop"), once(2, "depot")):  # in a group, and without one
        with table.group_commit() as group:
            assert again(group).version is None
    assert write_deltalake(tmp_path, rows(1), mode="append", app_id="shop", app_version=7).version is None
    assert DeltaTable(tmp_path).version() == 1
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]


def test_one_application_for_two_members_is_written_once(tmp_path):
    write_deltalake(tmp_path, rows(0))
    call = lambda group: group.append(rows(5), app_id="shop", app_version=1)  # noqa: E731
    found = together(DeltaTable(tmp_path), call, call)
    assert [one.version for one in found] == [1, None]
    assert DeltaTable(tmp_path).count() == 2


def test_a_follower_has_the_rows_of_each_member_once(tmp_path):
    write_deltalake(tmp_path, rows(0), configuration={**VECTORS, "delta.enableChangeDataFeed": "true"})
    (first,) = DeltaTable(tmp_path).follow(timeout=0)
    together(DeltaTable(tmp_path), append(1), append(2), append(3))
    with mixing():
        together(DeltaTable(tmp_path), append(4), delete("id = 1"), delete("id = 2"))
    found = list(DeltaTable(tmp_path).follow(since=first.position, timeout=0))
    seen = [(one.version, row["_change_type"], row["id"]) for one in found for row in one.rows.to_pylist()]
    assert sorted(seen) == [
        *[(1, "insert", number) for number in (1, 2, 3)],
        (2, "delete", 1),
        (2, "delete", 2),
        (2, "insert", 4),
    ]


@pytest.mark.parametrize("tracked", [False, True])
def test_a_follower_that_passes_over_changes_of_rows_has_the_rows_of_each_append(tmp_path, tracked):
    more = {"delta.enableRowTracking": "true"} if tracked else {}
    write_deltalake(tmp_path, rows(0, 1, 2, 3), configuration=VECTORS | more)
    calls = [append(10), delete("id = 1"), append(11), update("v + 1", "id = 2"), append(12), delete("id = 3")]
    found = together(DeltaTable(tmp_path), *calls)
    assert [(one.version, one.member) for one in found] == [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]
    (version,) = DeltaTable(tmp_path).follow(0, 0, skip_change_commits=True)
    assert version.rows.column("id").to_pylist() == [10, 11, 12]
    with pytest.raises(errors.StreamStoppedError, match="version 2"):
        list(DeltaTable(tmp_path).follow(0, 0))
    assert [one.get("operation") for one in DeltaTable(tmp_path).history(2)] == ["GROUP", "WRITE"]
