"""``refdelta delete`` and ``refdelta update``: one commit, or a dry run that leaves nothing.

Tests of cli.changing.
"""

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.api.table_transaction import TableTransaction
from refdelta.cli import render
from refdelta.transaction.results import CommitResult


def rows(path):
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])


def test_delete_removes_rows_and_says_what_it_did(cli, table):
    result = cli("delete", table, "--where", "id > 2 and day = 'a'", "--message", "late")
    assert result.out.startswith("version 3: 1 row deleted, 1 file removed, 0 written, ")
    assert [row["id"] for row in rows(table)] == [1, 5]
    newest = cli("history", table, "--limit", 1, "--json").json[0]
    assert (newest["operation"], newest["userMetadata"]) == ("DELETE", "late")


def test_delete_keeps_the_rows_for_which_the_condition_is_null(cli, tmp_path):
    (tmp_path / "a.csv").write_text("id,name\n1,x\n2,\n3,y\n")
    assert cli("write", tmp_path / "t", tmp_path / "a.csv").status == 0
    found = cli("delete", tmp_path / "t", "--where", "name <> 'y'", "--json").json
    assert (found["version"], found["num_deleted_rows"], found["num_copied_rows"]) == (1, 1, 2)
    assert [row["id"] for row in rows(tmp_path / "t")] == [2, 3]


def test_delete_of_every_row_has_to_be_said(cli, fails, table):
    assert "--where" in fails("delete", table)
    assert cli("delete", table, "--where", "true").status == 0
    assert rows(table) == []


def test_update_sets_columns_from_the_old_values(cli, table):
    result = cli("update", table, "--set", "id = id * 10", "--set", "name=concat('was ', id)", "--where", "id >= 3")
    assert result.out.startswith("version 3: 2 rows updated, 2 files removed, 2 written")
    assert [(row["id"], row["name"]) for row in rows(table)] == [(1, "one"), (30, "was 3"), (50, "was 5")]


def test_update_of_every_row(cli, table):
    found = cli("update", table, "--set", "name='=x'", "--json").json
    assert (found["version"], found["num_updated_rows"], found["rebased_over"]) == (3, 3, [])
    assert {row["name"] for row in rows(table)} == {"=x"}, "the first = ends the name, a second one is SQL"


@pytest.mark.parametrize("arguments", [("delete", "--where", "id = 77"), ("update", "--set", "id=1", "--where", "1=0")])
def test_where_nothing_matches_nothing_is_written(cli, table, arguments):
    command, *options = arguments
    assert cli(command, table, *options).out == "no row matches: nothing was written\n"
    assert DeltaTable(table).version() == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("delete", "--where", "id = 1"), "version 2 would have 1 row deleted, 1 file removed, 0 written; nothing"),
        (("delete", "--where", "true"), "version 2 would have 3 rows deleted, 3 files removed, 0 written; nothing"),
        (("update", "--set", "id=0"), "version 2 would have 3 rows updated, 3 files removed, 2 written; nothing"),
        (("delete", "--where", "id = 77"), "version 2 would have 0 rows deleted, 0 files removed, 0 written; nothing"),
    ],
)
def test_a_dry_run_says_what_would_be_done_and_leaves_nothing(cli, table, arguments, said):
    command, *options = arguments
    before = sorted(table.rglob("*"))
    result = cli(command, table, *options, "--dry-run")
    assert result.out.startswith(said)
    assert result.out.count("\n  ") == int(said.split(", ")[1].split()[0]), "each file that would go has a line"
    assert sorted(table.rglob("*")) == before


def test_a_dry_run_as_json_names_the_files(cli, table):
    found = cli("delete", table, "--where", "id = 5", "--dry-run", "--json").json
    assert (found["dry_run"], found["read_version"], found["num_deleted_rows"]) == (True, 2, 1)
    assert len(found["files"]) == 1
    assert (table / found["files"][0]).exists()


@pytest.mark.tier("test")
def test_a_dry_run_shows_a_screenful_of_files(cli, tmp_path):
    for number in range(render._SHOWN + 2):
        (tmp_path / "a.csv").write_text(f"id\n{number}\n")
        assert cli("write", tmp_path / "t", tmp_path / "a.csv", "--mode", "append").status == 0
    assert cli("delete", tmp_path / "t", "--where", "true", "--dry-run").out.endswith(
        "  ... and 2 more; --json lists all\n"
    )


def test_the_level_may_be_stricter_and_is_noted(cli, table):
    assert cli("delete", table, "--where", "id = 1", "--isolation", "serializable").status == 0
    assert cli("history", table, "--limit", 1, "--json").json[0]["isolationLevel"] == "Serializable"
    (table.parent / "more.csv").write_text("id\n7\n")
    cli("write", table, table.parent / "more.csv", "--mode", "append", "--isolation", "Serializable")
    assert [c["isolationLevel"] for c in cli("history", table, "--limit", 2, "--json").json] == ["Serializable"] * 2


def test_over_which_versions_a_commit_moved_is_said(cli, table, monkeypatch):
    def rebased(*_arguments, **_named):
        metrics = {"num_deleted_rows": 2, "num_removed_files": 1, "num_added_files": 0}
        return CommitResult(9, 2, (5, 6, 7, 8), metrics=metrics)

    monkeypatch.setattr(DeltaTable, "delete", rebased)
    assert "version 9 (over versions 5 to 8): 2 rows" in cli("delete", table, "--where", "true").out


def test_with_deletion_vectors_files_stay_and_that_is_said(cli, tmp_path):
    rows_written = pa.table({"id": range(10)})
    write_deltalake(tmp_path / "t", rows_written, configuration={"delta.enableDeletionVectors": "true"})
    said = "0 files removed, 0 written, 1 given a deletion vector"
    before = sorted((tmp_path / "t").rglob("*"))
    assert f"2 rows deleted, {said}; nothing" in cli("delete", tmp_path / "t", "--where", "id < 2", "--dry-run").out
    assert sorted((tmp_path / "t").rglob("*")) == before
    assert f"2 rows deleted, {said}, " in cli("delete", tmp_path / "t", "--where", "id < 2").out
    changed = cli("update", tmp_path / "t", "--set", "id=id+100", "--where", "id = 5", "--no-row-level").out
    assert "1 row updated, 0 files removed, 1 written, 1 given a deletion vector, " in changed
    assert [row["id"] for row in rows(tmp_path / "t")] == [2, 3, 4, 6, 7, 8, 9, 105]


@pytest.mark.tier("test")
def test_a_statement_that_lost_runs_again_as_often_as_it_may(cli, tmp_path, monkeypatch):
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2], "n": [0, 0]}))
    (tmp_path / "s.csv").write_text("id,n\n1,7\n3,7\n")
    commit, others = TableTransaction.commit, []

    def beaten(transaction):
        if others:
            others.pop()
            with DeltaTable(tmp_path / "t").begin() as other:
                other.update({"n": "n + 1"}, predicate="id = 1")
                commit(other._transaction)
        return commit(transaction)

    monkeypatch.setattr(TableTransaction, "commit", beaten)
    for command in (
        ("update", tmp_path / "t", "--set", "n=n+10", "--where", "id = 1"),
        ("merge", tmp_path / "t", tmp_path / "s.csv", "--on", "s.id = t.id", "--update", "n=t.n + s.n", "--insert-all"),
        ("delete", tmp_path / "t", "--where", "n > 0"),
    ):
        others.append(1)
        lost = cli(*command)
        assert lost.status == 1
        assert "(version" in lost.err
        others.append(1)
        assert cli(*command, "--attempts", "2").status == 0
        assert not others
    assert rows(tmp_path / "t") == [{"id": 2, "n": 0}]


@pytest.mark.parametrize(("option", "asked"), [((), None), (("--row-level",), True), (("--no-row-level",), False)])
def test_whether_rows_or_files_decide_may_be_said_and_what_fell_back_is(cli, table, monkeypatch, option, asked):
    def fell_back(*_arguments, commit_properties, **_named):
        assert commit_properties.row_level is asked
        return CommitResult(3, 1, (2,), ("a reason",), {"num_deleted_rows": 1})

    monkeypatch.setattr(DeltaTable, "delete", fell_back)
    result = cli("delete", table, "--where", "true", *option)
    assert result.out.endswith(" s\n  files decided over conflicts, not rows: a reason\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("delete", "--where", "town = 1"), "town"),
        (("delete", "--where", "id >"), "id >"),
        (("delete", "--where", "town = 1", "--dry-run"), "town"),
        (("delete", "--where", "id = 1", "--isolation", "chaos"), "chaos"),
        (("update", "--where", "id = 1"), "--set"),
        (("update", "--set", "id"), "'id' is not column=SQL"),
        (("update", "--set", "id="), "'id=' is not column=SQL"),
        (("update", "--set", "id=1", "--set", "id =2"), "id is set twice"),
        (("update", "--set", "town='x'"), "town"),
        (("update", "--set", "id='x'"), "cannot cast"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(fails, table, arguments, said):
    command, *options = arguments
    before = sorted(table.rglob("*"))
    assert said in fails(command, table, *options)
    assert sorted(table.rglob("*")) == before


def test_an_append_only_table_refuses(fails, tmp_path):
    write_deltalake(tmp_path / "t", pa.table({"id": [1]}), configuration={"delta.appendOnly": "true"})
    for more in ((), ("--dry-run",)):
        assert "appendOnly" in fails("delete", tmp_path / "t", "--where", "true", *more)


def test_a_weaker_level_than_the_tables_is_refused(cli, fails, tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\n")
    strict = ("--property", "delta.isolationLevel=Serializable")
    assert cli("write", tmp_path / "t", tmp_path / "a.csv", *strict).status == 0
    assert "weaker" in fails("delete", tmp_path / "t", "--where", "true", "--isolation", "WriteSerializable")


def test_the_time_is_that_of_the_beginning_for_every_row_and_in_what_was_read(cli, tmp_path):
    (tmp_path / "a.csv").write_text("id,at\n1,2020-01-01T00:00:00Z\n2,2021-01-01T00:00:00Z\n")
    assert cli("write", tmp_path / "t", tmp_path / "a.csv").status == 0
    before = "at < current_timestamp() and date(at) < current_date()"
    assert cli("update", tmp_path / "t", "--set", "at=current_timestamp()", "--where", before).status == 0
    (moment,) = {row["at"] for row in rows(tmp_path / "t")}
    (text,) = DeltaTable(tmp_path / "t").history(1)[0]["readPredicates"]
    assert "current" not in text.lower()
    assert moment.strftime("%Y-%m-%dT%H:%M:%S.%f") in text


# --- merge -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def towns(tmp_path):
    path = tmp_path / "towns"
    write_deltalake(path, pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "n": [1, 2, 3]}))
    return path


UPSERT = ("--on", "s.id = t.id", "--update-all", "--insert-all")


def test_merge_updates_and_inserts_the_rows_of_files(cli, towns, tmp_path):
    (tmp_path / "a.csv").write_text("id,name,n\n2,B,20\n")
    (tmp_path / "b.csv").write_text("id,name,n\n4,NA,40\n")
    result = cli("merge", towns, tmp_path / "a.csv", tmp_path / "b.csv", *UPSERT, "--null", "NA", "--message", "daily")
    said = "version 1: 1 row updated, 1 inserted, 0 deleted; 1 file removed, "
    assert result.out.startswith(said)
    assert [(row["id"], row["name"], row["n"]) for row in rows(towns)] == [
        (1, "a", 1),
        (2, "B", 20),
        (3, "c", 3),
        (4, None, 40),
    ]
    assert DeltaTable(towns).history(1)[0]["userMetadata"] == "daily"


def test_merge_takes_a_table_and_each_kind_of_clause(cli, towns, tmp_path):
    source = pa.table({"id": [1, 2, 9, 8], "gone": [True, False, False, True], "plus": [5, 6, 7, 8]})
    write_deltalake(tmp_path / "s", source)
    clauses = (
        *("--delete-when", "s.gone", "--update", "n=t.n + s.plus", "--update-when", "s.plus > 1"),
        *("--insert", "id=s.id", "--insert", "name='new'", "--insert-when", "not s.gone"),
        *("--update-missing", "name=upper(t.name)", "--update-missing-when", "t.n = 3"),
    )
    found = cli("merge", towns, tmp_path / "s", "--on", "s.id = t.id", *clauses, "--json").json
    counts = [found[f"num_target_rows_{done}"] for done in ("updated", "inserted", "deleted")]
    assert counts == [2, 1, 1]
    assert [(row["id"], row["name"], row["n"]) for row in rows(towns)] == [(2, "b", 8), (3, "C", 3), (9, "new", None)]
    gone = cli("merge", towns, tmp_path / "s", "--on", "s.id = t.id", "--delete-missing-when", "true")
    assert "0 rows updated, 0 inserted, 1 deleted" in gone.out
    assert [row["id"] for row in rows(towns)] == [2, 9]


def test_merge_leaves_columns_alone_that_a_json_file_lacks(cli, towns, tmp_path):
    (tmp_path / "a.json").write_text('{"id": 2, "n": 20}\n')
    assert cli("merge", towns, tmp_path / "a.json", "--on", "s.id = t.id", "--update-all").status == 1, (
        "name is missing"
    )
    assert cli("merge", towns, tmp_path / "a.json", "--on", "s.id = t.id", "--update", "n=s.n").status == 0
    assert [(row["name"], row["n"]) for row in rows(towns)] == [("a", 1), ("b", 20), ("c", 3)]


def test_merge_adds_columns_if_asked(cli, fails, towns, tmp_path):
    (tmp_path / "a.csv").write_text("id,name,n,more\n2,B,20,x\n")
    assert cli("merge", towns, tmp_path / "a.csv", *UPSERT, "--schema-mode", "merge").status == 0
    assert [row["more"] for row in rows(towns)] == [None, "x", None]


def test_a_dry_run_of_merge_leaves_nothing(cli, towns, tmp_path):
    (tmp_path / "a.csv").write_text("id,name,n\n2,B,20\n5,E,50\n")
    before = sorted(towns.rglob("*"))
    result = cli("merge", towns, tmp_path / "a.csv", *UPSERT, "--dry-run")
    assert result.out.startswith("version 0 would have 1 row updated, 1 inserted, 0 deleted; 1 file removed, ")
    assert sorted(towns.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--update-all",), "--on"),
        (("--on", "s.id = t.id"), "say what to do: --update-all"),
        (("--on", "s.id = t.id", "--update-all", "--update", "n=1"), "--update-all and --update exclude each other"),
        (("--on", "s.id = t.id", "--insert-all", "--update-when", "true"), "--update-when goes with --update"),
        (("--on", "s.id = t.idd", "--update-all"), "did you mean"),
        (("--on", "s.id = t.id", "--update-all", "--delimiter", ";;"), "--delimiter is one character"),
        (("--on", "s.id > 0", "--update-all"), "match"),
    ],
)
def test_merge_says_what_is_wrong(fails, towns, tmp_path, arguments, words):
    (tmp_path / "a.csv").write_text("id,name,n\n2,B,20\n5,E,50\n")
    assert words in fails("merge", towns, tmp_path / "a.csv", *arguments)
    assert DeltaTable(towns).version() == 0
