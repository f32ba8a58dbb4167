"""``explain_conflict``: what it says of two commits in the log is what happens when the two run at once.

Tests of operations.inspection.explanation, operations.inspection.recorded_transaction, transaction.rehearsal.
"""

import itertools
import json
import random
import time

import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, errors, explain_conflict, write_deltalake

LEVELS = ("WriteSerializable", "Serializable")
KINDS = {
    "vectors": {"configuration": {"delta.enableDeletionVectors": "true"}},
    "files": {},
    "partitions": {"configuration": {"delta.enableDeletionVectors": "true"}, "partition_by": ["p"]},
}
STATEMENTS = {
    "delete one": lambda t: t.delete("id = 1"),
    "delete another": lambda t: t.delete("id = 4"),
    "delete a partition": lambda t: t.delete("p = 'b'"),
    "update some": lambda t: t.update({"v": "v + 1"}, predicate="id <= 2"),
    "update all": lambda t: t.update({"v": "v + 1"}),
    "move into the range": lambda t: t.update({"id": "2"}, predicate="id = 6"),
    "merge": lambda t: t.merge(rows([2, 9]), "t.id = s.id").when_matched_update({"v": "s.v"}).execute(),
    "append": lambda t: t.append(rows([2])),
    "append elsewhere": lambda t: t.append(rows([90])),
    "read and append": lambda t: (t.read(predicate="id = 6"), t.append(rows([7]))),
    "compact": lambda t: t.compact(),
    "overwrite": lambda t: t.overwrite(rows([1])),
    "replace where": lambda t: t.overwrite(rows([6]), predicate="id = 6"),
    "property": lambda t: t.set_table_properties({"a.b": "1"}),
    "column": lambda t: t.add_columns(pa.schema({f"c{time.monotonic_ns()}": pa.int64()})),
}  # fmt: skip


def rows(ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "p": ["a" if i < 5 else "b" for i in ids], "v": [0] * len(ids)})


def made(path, kind):
    write_deltalake(path, rows([1, 2, 3, 4]), **KINDS[kind])
    write_deltalake(path, rows([5, 6]), mode="append")
    return DeltaTable(path)


def together(table, first, second, options):
    """The rule by which ``second`` conflicts with ``first`` if both begin before either commits."""
    one, two = table.begin(), table.begin(**options)
    STATEMENTS[first](one)
    STATEMENTS[second](two)
    if one.commit().version is None:
        return "nothing"
    try:
        return None if two.commit().version is not None else "nothing"
    except errors.ConcurrentModificationError as error:
        return error.conflict.rule


def one_after_the_other(table, first, second):
    for name in (first, second):
        with table.begin() as txn:
            STATEMENTS[name](txn)
            if txn.commit().version is None:
                return False
    return True


@pytest.mark.tier("test")
@pytest.mark.sample(test=8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(STATEMENTS, STATEMENTS)))
def test_the_answers_are_those_of_two_transactions_at_once(tmp_path, kind, first, second):
    """At each level, by rows and by files, for each pair: the log alone gives the rule that the race gives."""
    later = made(tmp_path / "later", kind)
    if not one_after_the_other(later, first, second):
        assert later.version() < 3  # after the first one, the second finds nothing to do
        return
    found = explain_conflict(later, 2, 3)
    for answer in found.answers:
        place = tmp_path / f"{answer.isolation_level}-{answer.by_rows}"
        properties = CommitProperties(row_level=answer.by_rows)
        race = together(
            made(place, kind), first, second, {"isolation": answer.isolation_level, "commit_properties": properties}
        )
        if race != "nothing":
            assert (answer.conflict and answer.conflict.rule) == race, (answer, found.notes)


# --- what it says ----------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    return made(tmp_path / "table", "vectors")


def test_rows_files_and_predicates_of_a_conflict(table):
    properties = CommitProperties(user_metadata="clean up", custom_metadata={"userName": "<b>Ada\x1b[2J"})
    table.delete("id = 1", commit_properties=properties)
    table.update({"v": "v + 1"}, predicate="id <= 2")
    found = explain_conflict(table, 2, 3)
    assert (found.rule, found.answer.error) == ("read-file-removed", "ConcurrentDeleteReadException")
    assert found.rows.select(["id"]).to_pylist() == [{"id": 1}]
    assert (found.winner.predicate, found.own.predicate) == ("id = 1L", "id <= 2L")
    assert len(found.conflict.files) == 1
    text = str(found)
    assert "so it saw version 2" in text
    assert "id=1, p='a', v=0" in text
    assert "\x1b" not in text
    assert "clean up" in text
    assert "<b>" not in found._repr_html_()
    assert json.loads(json.dumps(found.as_dict()))["rows"] == [{"id": 1, "p": "a", "v": 0}]


def test_rows_that_were_added_are_shown(table):
    table.merge(rows([20]), "t.id = s.id").when_not_matched_insert_all().execute()
    table.delete("id > 10")
    found = explain_conflict(table, 2, 3)
    assert found.rule == "files-added"
    assert found.rows.column("id").to_pylist() == [20]
    assert any("it builds on version 2" in note for note in found.notes)


@pytest.mark.parametrize(
    ("first", "second", "level", "reason"),
    [
        ("append", "append elsewhere", None, "blind append"),
        ("append elsewhere", "update all", "WriteSerializable", "level"),
        ("delete one", "delete another", None, "rows"),
        ("append elsewhere", "delete one", "Serializable", "statistics"),
        ("compact", "delete one", None, "rearranged"),
        ("delete one", "compact", None, "rearranged"),
        ("delete a partition", "delete one", None, "not read"),
    ],
)
def test_the_reason_why_there_is_no_conflict(table, first, second, level, reason):
    if level:
        table.alter.set_table_properties({"delta.isolationLevel": level})
    assert one_after_the_other(table, first, second)
    found = explain_conflict(table, table.version() - 1, table.version())
    assert found.conflict is None
    assert found.answer.reasons == (reason,)


def test_partition_values_rule_out_files(tmp_path):
    table = made(tmp_path, "partitions")
    write_deltalake(table, rows([7]), mode="append")
    table.delete("p = 'a' AND id = 1")
    serial = [one for one in explain_conflict(table, 2, 3).answers if one.isolation_level == "Serializable"]
    assert {one.reasons for one in serial} == {("partition values",)}


def test_advice_says_with_which_settings_both_commit(tmp_path):
    partitioned, plain = made(tmp_path / "p", "partitions"), made(tmp_path / "f", "files")
    for table in (partitioned, plain):
        assert one_after_the_other(table, "delete one", "delete another")
    assert "row_level=True" in explain_conflict(partitioned, 2, 3).advice
    assert "delta.enableDeletionVectors" in explain_conflict(plain, 2, 3).advice


def test_a_statement_in_place_of_a_version(table):
    table.delete("id = 1")
    files = sorted(info.key for info in table.store.list())
    found = explain_conflict(table, 2, lambda txn: txn.update({"v": "7"}, predicate="id = 1"))
    assert (found.rule, found.own.operation, found.own.predicate) == ("read-file-removed", "UPDATE", "id = 1L")
    assert explain_conflict(table, 2, lambda txn: txn.delete("id = 3")).conflict is None
    assert table.version() == 2
    assert sorted(info.key for info in table.store.list()) == files


def test_what_another_engine_records_counts(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path, rows([1, 2, 3]))
    theirs = deltalake.DeltaTable(tmp_path)
    theirs.delete("id = 1")
    theirs.delete("id = 3")
    deltalake.write_deltalake(tmp_path, rows([9]), mode="append")
    table = DeltaTable(tmp_path)
    found = explain_conflict(table, 1, 2)
    assert (found.rule, found.own.predicate) == ("files-added", "id = 3")
    unknown = explain_conflict(table, 2, 3)
    assert any("does not record what it read" in note for note in unknown.notes)


def test_wrong_versions(table):
    with pytest.raises(errors.InvalidArgumentError, match="version 1 is not later than version 1"):
        explain_conflict(table, 1, 1)
    with pytest.raises(errors.VersionNotFoundError, match="no commit of version 9"):
        explain_conflict(table, 1, 9)
    with pytest.raises(errors.InvalidArgumentError, match="b is a version"):
        explain_conflict(table, 0, -1)
    with pytest.raises(errors.InvalidArgumentError, match="created the table"):
        explain_conflict(table, 0, lambda txn: txn.delete("id = 1"))
    assert explain_conflict(table, 0, 1).rule == "table-created"


VALUES = (
    None, True, -1, 10**30, "x", "TRUE", "id = ", "id = 1", ["id = 1"], ["TRUE"], {}, 2**62, ["a"] * 3,
    {"predicate": "[1"}, {"predicate": '["id = 1"]'}, {"predicate": "\x1b[2J"},
)  # fmt: skip
FIELDS = (
    "readPredicates", "readDomains", "operationParameters", "readVersion", "isBlindAppend", "isolationLevel",
    "rowPlaces", "userName", "timestamp", "userMetadata", "engineInfo", "inCommitTimestamp",
)  # fmt: skip


@pytest.mark.tier("test")
@pytest.mark.breaks_tables
@pytest.mark.parametrize("seed", range(40))
def test_hostile_commits_are_explained_or_refused(tmp_path, seed):
    """Commits with any field of any type give an answer, or an error of this package."""
    random_ = random.Random(seed)
    write_deltalake(tmp_path, rows([1, 2, 3]), configuration={"delta.enableDeletionVectors": "true"})
    DeltaTable(tmp_path).delete("id = 1")
    log = tmp_path / "_delta_log"
    lines = (log / f"{1:020d}.json").read_text().splitlines()
    (add,) = [line["add"] for line in map(json.loads, lines) if "add" in line]
    info = {name: random_.choice(VALUES) for name in random_.sample(FIELDS, 6)}
    info["operation"] = random_.choice(["DELETE", "UPDATE", "MERGE", "OPTIMIZE", "RESTORE", "VACUUM START", 7])
    vector, changes = add.pop("deletionVector"), random_.choice([True, False])
    if random_.random() < 0.5:
        copied = {"path": add["path"], "start": 0, "rows": random_.choice([1, 2, 2**31]), "deletionVector": vector}
        info["rowPlaces"] = {"new.parquet": [copied]}
    remove = {"path": add["path"], "dataChange": changes, "deletionTimestamp": 1}
    if random_.random() < 0.7:
        remove["deletionVector"] = vector
    new = {**add, "path": "new.parquet", "dataChange": changes}
    new["stats"] = json.dumps({"numRecords": random_.choice([2**40, -1, 0, 3])})
    domain = {"domain": "q", "configuration": "", "removed": False}
    others = [{"remove": remove}, {"add": new}, {"txn": {"appId": "a", "version": 1}}, {"domainMetadata": domain}]
    actions = [{"commitInfo": info}, *random_.sample(others, random_.randrange(5))]
    (log / f"{2:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    table = DeltaTable(tmp_path, version=1)
    for before in (0, 1):
        try:
            found = explain_conflict(table, before, 2)
        except errors.DeltaError:
            continue
        assert "\x1b" not in str(found)
        assert found._repr_html_()
        assert json.dumps(found.as_dict())
    assert "\x1b" not in str(table.timeline())


def test_files_that_came_between_the_two_are_named(table):
    table.delete("id = 1")
    first = table.version()
    write_deltalake(table.table_uri, rows([70, 71]), mode="append")
    table.update_incremental()
    table.update({"v": "9"}, predicate="id IN (2, 70)")
    found = explain_conflict(table, first, table.version())
    (note,) = (note for note in found.notes if "between" in note)
    assert note.startswith(
        f"version {first + 2} removes rows of 1 file that versions between {first} and {first + 2} add"
    )
    assert not any("between" in note for note in explain_conflict(table, first + 1, first + 2).notes)
