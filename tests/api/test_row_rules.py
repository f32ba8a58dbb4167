"""CHECK constraints and invariants: every path that writes rows holds them, and says which one was broken.

Tests of operations.alter.constraints, operations.shared.row_rules.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import refdelta
from handmade import Handmade, field, struct
from refdelta import DeltaTable, errors, write_deltalake
from refdelta.operations.write.prepared_files import AddAction
from refdelta_storage import LocalStore

ROWS = pa.table({"a": [1, 2], "b": ["x", "y"]})


@pytest.fixture(params=["false", "true"], ids=["copies", "vectors"])
def table(request, tmp_path):
    write_deltalake(tmp_path / "t", ROWS, configuration={"delta.enableDeletionVectors": request.param})
    found = DeltaTable(tmp_path / "t")
    found.alter.add_constraint({"Positive": "a > 0"})
    return found


BAD = pa.table({"a": [7, -1], "b": ["x", "x"]})
PATHS = {
    "append": lambda t: write_deltalake(t, BAD, mode="append"),
    "append of nulls": lambda t: write_deltalake(t, pa.table({"b": ["x"]}), mode="append"),
    "append with a new column": lambda t: write_deltalake(
        t, BAD.append_column("c", [[1, 2]]), mode="append", schema_mode="merge"
    ),
    "overwrite": lambda t: write_deltalake(t, BAD, mode="overwrite"),
    "another schema": lambda t: write_deltalake(t, BAD.select(["a"]), mode="overwrite", schema_mode="overwrite"),
    "replaceWhere": lambda t: write_deltalake(t, BAD, mode="overwrite", predicate="b = 'x'"),
    "update": lambda t: t.update({"a": "a - 1"}),
    "update by values": lambda t: t.update(new_values={"a": None}, predicate="a = 2"),
    "merge, insert": lambda t: t.merge(BAD, "s.a = t.a").when_not_matched_insert_all().execute(),
    "merge, update": lambda t: t.merge(ROWS, "s.a = t.a").when_matched_update({"a": "t.a - 2"}).execute(),
    "merge, the rest": lambda t: t.merge(BAD, "s.a = t.a").when_not_matched_by_source_update({"a": "-t.a"}).execute(),
    "transaction": lambda t: t.begin().append(BAD),
}


@pytest.mark.sample(check=8)
@pytest.mark.parametrize("path", PATHS)
def test_no_path_writes_a_row_that_breaks_a_constraint(table, path):
    before = table.file_uris()
    with pytest.raises(errors.ConstraintViolationError, match=r"CHECK constraint 'positive' \(a > 0\).*has a="):
        PATHS[path](table)
    assert table.version() == 1
    assert table.to_pyarrow_table().sort_by("a") == ROWS
    there = {entry.key for entry in table.store.list("") if entry.key.endswith(".parquet")}
    assert len(there) == len(before)  # nothing that was written stays


def test_rows_that_satisfy_it_are_written_and_rearranged(table):
    write_deltalake(table, pa.table({"a": [3], "b": ["z"]}), mode="append")
    table.update({"a": "a + 10"}, predicate="a < 3")
    table.merge(ROWS, "s.a + 10 = t.a").when_matched_delete("t.a = 11").when_not_matched_insert_all().execute()
    table.optimize.compact()
    table.optimize.z_order(["a"])
    table.delete("a = 3")
    assert table.to_pyarrow_table().column("a").to_pylist() == [12]
    table.restore(0)  # where there was none yet
    write_deltalake(table, BAD, mode="append")


def test_a_constraint_that_does_not_hold_for_the_rows_is_not_added(table):
    write_deltalake(table, pa.table({"a": [9, 10], "b": [None, "w"]}), mode="append")
    with pytest.raises(errors.ConstraintViolationError, match=r"'long' \(b > 'w'\).*2 rows"):
        table.alter.add_constraint({"long": "b > 'w'"})  # and null is not true
    with pytest.raises(errors.InvalidArgumentError, match="'positive' already: a > 0"):
        table.alter.add_constraint({"POSITIVE": "a > 1"})
    for given in (
        {},
        {"a": "a > 1", "A": "a > 0"},
        {"a": "a > 1", "b": "nope > 2"},
        {"": "a > 1"},
        {"c": ""},
        {"c": "nope > 1"},
        {"c": "a >"},
        {"c": 1},
    ):
        with pytest.raises(errors.InvalidArgumentError):
            table.alter.add_constraint(given)
    assert table.version() == 2


def test_several_constraints_are_added_in_one_commit_or_none_is(table):
    write_deltalake(table, pa.table({"a": [9], "b": ["w"]}), mode="append")
    before = table.version()
    with pytest.raises(errors.ConstraintViolationError, match=r"'long' \(b > 'w'\).*1 rows"):
        table.alter.add_constraint({"small": "a < 10", "long": "b > 'w'"})
    assert DeltaTable(table.table_uri).version() == before
    table.alter.add_constraint({"small": "a < 10", "Word": "b < 'z'"})
    assert table.version() == before + 1
    found = table.metadata().configuration
    assert (found["delta.constraints.small"], found["delta.constraints.word"]) == ("a < 10", "b < 'z'")
    told = json.loads(table.history(1)[0]["operationParameters"]["constraints"])
    assert told == [{"name": "small", "expr": "a < 10"}, {"name": "Word", "expr": "b < 'z'"}]
    for broken in ({"a": [10], "b": ["a"]}, {"a": [1], "b": ["z"]}):
        with pytest.raises(errors.ConstraintViolationError):
            write_deltalake(table, pa.table(broken), mode="append")


def test_what_the_log_says_of_constraints(table):
    table.alter.add_constraint({"named": "`b` <> ''"})
    info = table.history(1)[0]
    assert (info["operation"], info["operationParameters"]) == (
        "ADD CONSTRAINT",
        {"name": "named", "expr": "`b` <> ''"},
    )
    assert "checkConstraints" in (table.protocol().writer_features or ()) or table.protocol().min_writer_version == 3
    with pytest.raises(
        errors.InvalidArgumentError, match="constraint 'nope' does not exist in the table; constraints: positive, named"
    ):
        table.alter.drop_constraint("nope")
    assert table.alter.drop_constraint("nope", raise_if_not_exists=False).version is None
    table.alter.drop_constraint("POSITIVE")
    info = table.history(1)[0]
    assert info["operation"] == "DROP CONSTRAINT"
    assert info["operationParameters"] == {"name": "POSITIVE", "expr": "a > 0", "existed": "true"}
    kept = {key for key in table.metadata().configuration if key.startswith("delta.constraints.")}
    assert kept == {"delta.constraints.named"}
    write_deltalake(table, BAD, mode="append")
    for change in (
        lambda: table.alter.set_table_properties({"delta.constraints.x": "a > 1"}),
        lambda: table.alter.unset_table_properties(["delta.constraints.named"]),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="is the property of a constraint"):
            change()


def test_a_constraint_conflicts_with_rows_that_break_it_and_with_no_others(table):
    txn = table.begin()
    txn.add_constraint({"small": "a < 50"})
    write_deltalake(table, pa.table({"a": [3], "b": ["z"]}), mode="append")
    if table.metadata().configuration["delta.enableDeletionVectors"] == "true":
        assert txn.commit().rebased_over == (2,)
    else:  # nobody looks into a file
        with pytest.raises(errors.ConcurrentAppendException):
            txn.commit()
    with pytest.raises(errors.InvalidArgumentError, match=r"'positive'.*uses a column that does not exist"):
        write_deltalake(table, BAD.select(["b"]), mode="overwrite", schema_mode="overwrite")
    txn = table.begin()
    txn.add_constraint({"smaller": "a < 40"})
    write_deltalake(table, pa.table({"a": [45], "b": ["z"]}), mode="append")
    with pytest.raises(errors.ConcurrentAppendException):
        txn.commit()
    txn = table.begin()
    txn.append(pa.table({"a": [49], "b": ["z"]}))
    table.alter.add_constraint({"named": "b is not null"})
    with pytest.raises(errors.MetadataChangedException):
        txn.commit()


def test_a_new_table_may_begin_with_one(tmp_path):
    made = {"delta.constraints.c": "a < b"}
    with pytest.raises(errors.ConstraintViolationError, match="'c'"):
        write_deltalake(tmp_path / "t", pa.table({"a": [1], "b": [1]}), configuration=made)
    write_deltalake(tmp_path / "t", pa.table({"a": [1], "b": [2]}), configuration=made)
    assert DeltaTable(tmp_path / "t").protocol().min_writer_version == 3


def test_files_that_nobody_looked_into_are_refused(table):
    given = AddAction(path="x.parquet", size=1, partition_values={}, modification_time=1)
    with pytest.raises(errors.UnsupportedFeatureError, match="checkConstraints"):
        table.create_write_transaction([given], "append", refdelta.Schema.from_arrow(ROWS.schema))


# --- what others wrote -------------------------------------------------------------------------------------------


def invariant(sql):
    return {"delta.invariants": json.dumps({"expression": {"expression": sql}})}


def handmade(path, *fields, **more):
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}
    Handmade(struct(*fields), store=LocalStore(path), protocol=protocol, **more)
    return DeltaTable(path)


def test_invariants_of_columns_and_of_fields_of_structs(tmp_path):
    inner = struct(field("x", "long", **invariant("s.x <> 5")))
    table = handmade(tmp_path, field("a", "long", **invariant("a > 3")), field("s", inner))
    write_deltalake(table, pa.table({"a": [4], "s": [{"x": 4}]}), mode="append")
    for a, x, column in ((3, 4, "a"), (None, 4, "a"), (4, 5, "s.x"), (4, None, "s.x")):
        with pytest.raises(errors.ConstraintViolationError, match=f"the invariant of column {column} "):
            write_deltalake(table, pa.table({"a": pa.array([a], "int64"), "s": [{"x": x}]}), mode="append")
    with pytest.raises(errors.ConstraintViolationError, match=r"invariant of column a \(a > 3\)"):
        table.update({"a": "a - 1"})


def test_a_rule_beyond_our_sql_leaves_the_table_to_readers(tmp_path):
    table = handmade(
        tmp_path, field("a", "long"), configuration={"delta.constraints.odd": "aggregate(array(a), 0, (x, y) -> x) = 0"}
    )
    with pytest.raises(errors.UnsupportedFeatureError, match="checkConstraints; the CHECK constraint 'odd' cannot be"):
        write_deltalake(table, pa.table({"a": [1]}), mode="append")
    with pytest.raises(errors.UnsupportedFeatureError, match="'odd'"):
        table.update({"a": "1"})
    assert table.count() == 0
    table.delete("a = 1")


def test_invariants_where_they_mean_nothing_are_refused(tmp_path):
    inner = {"type": "array", "elementType": struct(field("x", "long", **invariant("x > 1"))), "containsNull": True}
    table = handmade(tmp_path, field("a", inner))
    with pytest.raises(
        errors.UnsupportedFeatureError, match="invariants; there is an invariant within the elements of a"
    ):
        write_deltalake(table, pa.table({"a": [[{"x": 2}]]}), mode="append")


@pytest.mark.parametrize("text", ["{}", "nope", '{"expression": 1}', "[]"])
def test_an_invariant_that_is_none_is_a_broken_log(tmp_path, text):
    table = handmade(tmp_path, field("a", "long", **{"delta.invariants": text}))
    with pytest.raises(errors.InvalidLogError, match="invariant of column a"):
        write_deltalake(table, pa.table({"a": [2]}), mode="append")
