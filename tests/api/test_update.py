"""UPDATE: new values from old ones, moves between partitions, and what columns refuse."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from written_tables import actions, with_vector


def rows(table, *names):
    found = table.to_pyarrow_table(list(names) or None).to_pylist()
    return [tuple(row.values()) for row in found]


@pytest.fixture
def table(tmp_path):
    data = pa.table(
        {
            "id": [1, 2, 3],
            "v": ["a", "b", None],
            "s": pa.array([{"x": 1, "y": {"z": 2}}, None, {"x": 3, "y": None}]),
        }
    )
    write_deltalake(tmp_path / "t", data)
    write_deltalake(tmp_path / "t", pa.table({"id": [7], "v": ["z"]}), mode="append")
    return DeltaTable(tmp_path / "t")


def test_expressions_see_the_old_values_and_rows_keep_their_order(table):
    result = table.update({"ID": "id + length(v)", "v": "CONCAT(v, CAST(id AS STRING))"}, predicate="v <> 'a'")
    assert rows(table, "id", "v") == [(1, "a"), (3, "b2"), (3, None), (8, "z7")]
    wanted = {"num_removed_files": 2, "num_added_files": 1, "num_updated_rows": 2, "num_copied_rows": 2}
    assert {name: result[name] for name in wanted} == wanted


def test_expressions_are_not_computed_for_other_rows(table):
    table.update({"id": "10 / (id - 1)"}, predicate="id <> 1")
    assert [row[0] for row in rows(table, "id")] == [1, 10, 5, 1]


def test_all_rows_without_a_predicate(table):
    table.update({"v": "NULL"})
    assert [row[1] for row in rows(table, "id", "v")] == [None] * 4
    assert table.history(1)[0]["operationParameters"] == {"predicate": "[]"}


def test_fields_of_structs(table):
    table.update({"s.x": "id * 10", "s.y.z": "id"}, predicate="id < 3")
    assert {row["id"]: row["s"] for row in table.to_pyarrow_table().to_pylist()} == {
        1: {"x": 10, "y": {"z": 1}},
        2: {"x": 20, "y": {"z": 2}},
        3: {"x": 3, "y": None},
        7: None,
    }


def test_python_values(tmp_path):
    data = {
        "l": pa.array([1], pa.int64()),
        "d": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "t": pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("us", "UTC")),
        "a": pa.array([[1]], pa.list_(pa.int64())),
        "b": pa.array([b"x"]),
    }
    write_deltalake(tmp_path, pa.table(data))
    table = DeltaTable(tmp_path)
    new = {
        "l": 2,
        "d": Decimal("2.25"),
        "t": dt.datetime(2021, 2, 3, tzinfo=dt.UTC),
        "a": [1, None, 3],
        "b": None,
    }
    table.update(new_values=new)
    assert table.to_pyarrow_table().to_pylist() == [new]
    for bad in ({"l": "x"}, {"l": 1.5}, {"d": Decimal("1.234")}, {"l": 2**70}):
        with pytest.raises(errors.InvalidArgumentError, match="cannot be a value of column"):
            table.update(new_values=bad)


def test_rows_move_to_their_new_partition(tmp_path):
    write_deltalake(tmp_path, pa.table({"p": ["a", "a", "b"], "v": [1, 2, 3]}), partition_by="p")
    table = DeltaTable(tmp_path)
    table.update({"p": "'new'"}, predicate="v = 2 OR p = 'b'")
    assert sorted(rows(table, "p", "v")) == [("a", 1), ("new", 2), ("new", 3)]
    assert {part["p"] for part in table.partitions()} == {"a", "new"}
    table.update({"p": "NULL"}, predicate="p = 'a'")
    assert {part["p"] for part in table.partitions()} == {None, "new"}


def test_what_the_commit_says(table):
    table.update({"v": "'x'"}, predicate="id = 2")
    info = table.history(1)[0]
    assert (info["operation"], info["isBlindAppend"]) == ("UPDATE", False)
    assert json.loads(info["operationParameters"]["predicate"]) == ["id = 2"]
    metrics = info["operationMetrics"]
    wanted = {"numRemovedFiles": "1", "numAddedFiles": "1", "numUpdatedRows": "1", "numCopiedRows": "2"}
    assert {name: metrics[name] for name in wanted} == wanted
    assert {"executionTimeMs", "scanTimeMs", "rewriteTimeMs", "numAddedBytes", "numRemovedBytes"} < metrics.keys()


def test_an_update_that_matches_nothing_commits_nothing(table):
    assert table.update({"v": "'x'"}, predicate="id = 99").version is None
    assert table.version() == 1


def test_nulls_and_overflows_leave_nothing_written(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("small", pa.int8()), ("d", pa.decimal128(3, 1))])
    write_deltalake(tmp_path, pa.table({"id": [1], "small": [1], "d": [Decimal("1.5")]}, schema))
    table = DeltaTable(tmp_path)
    files = sorted(tmp_path.glob("*.parquet"))
    with pytest.raises(errors.ConstraintViolationError, match="id"):
        table.update({"id": "NULL"})
    for updates in ({"small": "id + 200"}, {"d": "id * 1000"}, {"id": "9223372036854775807 + id"}, {"id": "id / 0"}):
        with pytest.raises(errors.DeltaError):
            table.update(updates)
    assert sorted(tmp_path.glob("*.parquet")) == files
    assert table.version() == 0


def test_fields_that_are_never_null_within_structs_that_may_be(tmp_path):
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("s", inner), ("l", pa.list_(inner))])
    data = {"id": [1, 2], "s": [{"x": 1, "y": 2}, None], "l": [[{"x": 1, "y": 1}], None]}
    write_deltalake(tmp_path, pa.table(data, schema))
    table = DeltaTable(tmp_path)
    assert table.to_pyarrow_table().to_pydict() == data
    assert table.schema().to_arrow().field("s").type == inner
    for update in ({"updates": {"s.x": "NULL"}}, {"updates": {"s.y": "1"}}, {"new_values": {"s": {"y": 1}}}):
        with pytest.raises(errors.ConstraintViolationError, match=r"s\.x is not null"):
            table.update(**update)
    more = pa.table({"id": [2, 3], "s": [{"x": 5, "y": 6}, None], "l": [[{"x": 7, "y": 8}], []]})
    table.merge(more, "t.id = s.id", "s").when_matched_update_all().when_not_matched_insert_all().execute()
    table.update({"s.x": "id"}, predicate="s IS NOT NULL")
    assert {row["id"]: row["s"] for row in table.to_pyarrow_table().to_pylist()} == {
        1: {"x": 1, "y": 2},
        2: {"x": 2, "y": 6},
        3: None,
    }


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({}, errors.InvalidArgumentError, "needs either updates"),
        ({"updates": {"v": "1"}, "new_values": {"v": 1}}, errors.InvalidArgumentError, "not both"),
        ({"updates": {"v": "1"}, "new_values": "id = 1"}, errors.InvalidArgumentError, "predicate='id = 1'"),
        ({"updates": {"nope": "1"}}, errors.ColumnNotFoundError, "'nope'"),
        ({"updates": {"v": "nope"}}, errors.ColumnNotFoundError, "'nope'"),
        ({"updates": {"v": 7}}, errors.InvalidArgumentError, "new_values takes Python values"),
        ({"updates": {"v": "'a'", "V": "'b'"}}, errors.InvalidArgumentError, "assigned twice"),
        ({"updates": {"s": "NULL", "s.x": "1"}}, errors.InvalidArgumentError, "assigned twice"),
        ({"updates": {"s.nope": "1"}}, errors.ColumnNotFoundError, "nope"),
        ({"updates": {"id.x": "1"}}, errors.PredicateError, "no field 'x'"),
        ({"updates": {"v": "(SELECT 1)"}}, errors.PredicateError, "subquer"),
        ({"updates": {"s": "1"}}, errors.SchemaMismatchError, "cannot be stored"),
        ({"updates": {"v": "'a"}}, errors.PredicateError, "is not SQL"),
    ],
)
def test_misuse_is_one_clear_error(table, arguments, error, said):
    with pytest.raises(error, match=said):
        table.update(**arguments)
    assert table.version() == 1


@pytest.mark.breaks_tables
def test_deletion_vectors_of_other_engines(tmp_path):
    vector = with_vector(tmp_path, [0, 9])
    table = DeltaTable(tmp_path)
    assert table.update({"id": "-1"}, predicate="id = 9").version is None
    result = table.update({"id": "id + 100"}, predicate="id < 3")
    assert rows(table, "id") == [(101,), (102,), *((i,) for i in range(3, 9))]
    assert (result["num_updated_rows"], result["num_copied_rows"]) == (2, 6)
    (remove,), (add,) = actions(tmp_path, 2, "remove"), actions(tmp_path, 2, "add")
    assert remove["deletionVector"] == vector
    assert "deletionVector" not in add


def test_append_only_tables_refuse(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1]}), configuration={"delta.appendOnly": "true"})
    with pytest.raises(errors.ConstraintViolationError, match="append-only"):
        DeltaTable(tmp_path).update({"id": "2"}, predicate="id = 99")


@pytest.mark.tier("test")
def test_a_statement_that_fails_leaves_its_transaction_as_it_was(table, tmp_path):
    """Half of an update must not be committed by whoever caught its error."""
    folder = tmp_path / "t"
    txn = table.begin()
    txn.append(pa.table({"id": [8], "v": ["new"]}))
    with pytest.raises(errors.DeltaError):
        txn.update({"id": "id / (id - 7)"})
    with pytest.raises(errors.PredicateError):
        txn.update({"id": "id +"})
    txn.update({"v": "'y'"}, predicate="id = 7")
    with pytest.raises(errors.InvalidArgumentError, match="holds a statement already"):
        txn.update({"v": "'y'"})
    txn.commit()
    assert sorted(rows(table, "id", "v"), key=str) == sorted(
        [(1, "a"), (2, "b"), (3, None), (7, "y"), (8, "new")], key=str
    )
    live = set(table.get_add_actions().column("path").to_pylist())
    assert live <= {file.name for file in folder.glob("*.parquet")}
    assert len(live) == 3
