"""Commits of other writers in the log of a table, and this engine's transactions that follow them."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from written_tables import commit_file, commit_of, ids_of

pytestmark = pytest.mark.breaks_tables

VECTORS = {"delta.enableDeletionVectors": "true"}


def write_lines(path, version, lines):
    commit_file(path, version).write_text("".join(json.dumps(line) + "\n" for line in lines))


# --- a vector that counts more, and is no superset -------------------------------------------------------------------


@pytest.mark.parametrize("engine", [None, "Apache-Spark/4.0.0 Delta-Lake/4.0.0", "another/1.0"])
@pytest.mark.parametrize("operation", ["RESTORE", "CLONE", "Restore", "ROLLBACK", "WRITE", None])
def test_a_row_that_a_larger_vector_brings_back_is_noticed(tmp_path, operation, engine):
    path = tmp_path / "t"
    serializable = {**VECTORS, "delta.isolationLevel": "Serializable"}
    write_deltalake(path, pa.table({"id": [1, 2, 3, 4]}), configuration=serializable)
    DeltaTable(path).delete("id IN (2, 3)")
    larger = next(line["add"] for line in commit_of(path, 1) if "add" in line)
    DeltaTable(path).restore(0)
    DeltaTable(path).delete("id = 1")
    smaller = next(line["add"] for line in commit_of(path, 3) if "add" in line)
    late = DeltaTable(path).begin()
    late.append(pa.table({"id": [100 + late.read(predicate="id = 1").num_rows]}))
    names = {"path": smaller["path"], "deletionVector": smaller["deletionVector"], "size": smaller["size"]}
    remove = {**names, "partitionValues": {}, "dataChange": True, "deletionTimestamp": int(time.time() * 1000)}
    info = {"operation": operation, "engineInfo": engine}
    info = {name: value for name, value in info.items() if value is not None}
    write_lines(path, 4, [{"commitInfo": info}, {"remove": remove}, {"add": larger}])
    with pytest.raises(errors.ConcurrentAppendException):
        late.commit()
    assert ids_of(path) == [1, 4]


# --- a record of places -----------------------------------------------------------------------------------------------


def compacted(path, statement):
    """A table whose compaction began before version 3, which hides row 2, and committed after it, while a statement
    that began before both waits.
    """
    for low in (0, 10):
        write_deltalake(path, pa.table({"id": list(range(low, low + 10))}), mode="append", configuration=VECTORS)
    DeltaTable(path).delete("id = 1")
    late, other = DeltaTable(path).begin(), DeltaTable(path).begin()
    statement(late)
    other.compact()
    DeltaTable(path).delete("id = 2")
    other.commit()
    return late


def runs_with_the_vector_first(lines):
    (runs,) = lines[0]["commitInfo"]["rowPlaces"].values()
    return runs if "deletionVector" in runs[0] else runs[::-1]


def two_too_few(runs, _):
    runs[0]["rows"] -= 2


def hidden_rows_counted(runs, _):
    runs[0]["rows"] += 1


def no_vector(runs, _):
    del runs[0]["deletionVector"]


def vector_of_the_remove(runs, lines):
    removes = {line["remove"]["path"]: line["remove"] for line in lines if "remove" in line}
    runs[0]["deletionVector"] = removes[runs[0]["path"]]["deletionVector"]


def an_input_that_stays(runs, _):
    runs[0]["path"] = f"{runs[0]['path']}-other"


@pytest.mark.parametrize("target", [5, 9, 15])
@pytest.mark.parametrize(
    "change", [two_too_few, hidden_rows_counted, no_vector, vector_of_the_remove, an_input_that_stays]
)
def test_a_record_that_contradicts_its_commit_is_not_followed(tmp_path, change, target):
    late = compacted(tmp_path / "t", lambda txn: txn.delete(f"id = {target}"))
    lines = commit_of(tmp_path / "t", 4)
    change(runs_with_the_vector_first(lines), lines)
    write_lines(tmp_path / "t", 4, lines)
    left = [0, *range(3, 20)]
    if target == 15 and change in {no_vector, vector_of_the_remove}:
        # The vector is of the other input: the runs of this one, and of the output, are right.
        late.commit()
        left.remove(target)
    else:
        with pytest.raises(errors.ConcurrentDeleteReadException):
            late.commit()
    assert ids_of(tmp_path / "t") == left


def merged(*given):
    def statement(txn):
        merge = txn.merge(pa.table({"id": list(given)}), "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_delete().execute()

    return statement


STATEMENTS = {
    "delete": lambda txn: txn.delete("id = 5"),
    "delete of two ranges": lambda txn: txn.delete("id = 5 OR id = 15"),
    "update": lambda txn: txn.update({"id": "id + 100"}, predicate="id = 5"),
    "merge": merged(5, 15),
}


def of_another_engine(path, change=lambda _: None, engine="another/1.0"):
    lines = commit_of(path, 4)
    lines[0]["commitInfo"]["engineInfo"] = engine
    change(lines[0]["commitInfo"]["rowPlaces"])
    write_lines(path, 4, lines)


def other_order(places):
    """As many rows of each input, in another order: the sums are right."""
    (runs,) = places.values()
    longer, shorter = sorted(runs, key=lambda run: -run["rows"])
    runs[:] = [{**longer, "rows": 1}, shorter, {**longer, "start": 1, "rows": longer["rows"] - 1}]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_true_record_of_another_engine_is_followed(tmp_path, statement):
    late = compacted(tmp_path / "t", STATEMENTS[statement])
    of_another_engine(tmp_path / "t")
    before = set(ids_of(tmp_path / "t"))
    late.commit()
    gone = before - set(ids_of(tmp_path / "t"))
    assert gone == ({5} if statement in {"delete", "update"} else {5, 15})


@pytest.mark.parametrize("engine", ["another/1.0", "refdelta/0.2.0"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_rows_that_do_not_satisfy_the_reads_at_their_new_places_are_not_there(tmp_path, statement, engine):
    late = compacted(tmp_path / "t", STATEMENTS[statement])
    of_another_engine(tmp_path / "t", other_order, engine)
    with pytest.raises(errors.ConcurrentModificationError) as raised:
        late.commit()
    assert "version 4 moved rows to other places than it records" in str(raised.value.conflict.fallbacks) or (
        raised.value.conflict.rule == "files-added"
    )
    assert ids_of(tmp_path / "t") == [0, *range(3, 20)]


def test_rows_that_come_beside_data_change_false_are_new(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1, 2]}), configuration={"delta.isolationLevel": "Serializable"})
    late = DeltaTable(path).begin()
    late.append(pa.table({"id": [100 + late.read(predicate="id = 7").num_rows]}))
    write_deltalake(path, pa.table({"id": [7]}), mode="append")
    lines = commit_of(path, 1)
    lines[0]["commitInfo"] = {"operation": "OPTIMIZE"}
    for line in lines:
        if "add" in line:
            line["add"]["dataChange"] = False
    write_lines(path, 1, lines)
    with pytest.raises(errors.ConcurrentAppendException):
        late.commit()
