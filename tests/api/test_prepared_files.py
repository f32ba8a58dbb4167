"""Commits of data files that are there already: `DeltaTable.create_write_transaction`."""

from __future__ import annotations

import json
from dataclasses import replace

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction as TheirAction
from deltalake.transaction import RemoveAction as TheirRemoval

from refdelta import AddAction, DeltaTable, RemoveAction, errors, write_deltalake
from refdelta.api.table_transaction import TableTransaction

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["a", "a", "b"]})
FILES = ROWS.select(["id"])


@pytest.fixture
def place(tmp_path):
    write_deltalake(tmp_path / "t", ROWS, partition_by=["p"])
    return tmp_path / "t"


def prepared(place, name, partition="c", rows=FILES, action=AddAction):
    """Writes a data file and tells what an engine would tell of it."""
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    stats = {"numRecords": rows.num_rows, "minValues": {"id": 1}, "maxValues": {"id": 3}, "nullCount": {"id": 0}}
    return action(name, path.stat().st_size, {"p": partition}, 1_700_000_000_000, True, json.dumps(stats))


def rows(place):
    return sorted(DeltaTable(place).to_pyarrow_table().select(["id", "p"]).to_pylist(), key=str)


@pytest.mark.parametrize("action", [AddAction, TheirAction])
def test_rows_of_the_files_are_the_tables(place, action):
    table = DeltaTable(place)
    files = [prepared(place, name, action=action) for name in ("p=c/x.parquet", "p=c/ü %41.parquet")]
    result = table.create_write_transaction(files, "append", ROWS.schema, partition_by="p")
    assert (result.version, result["num_added_files"], result["num_added_rows"]) == (1, 2, 6)
    assert table.version() == 1
    expected = sorted([*ROWS.to_pylist(), *({"id": n, "p": "c"} for n in (1, 1, 2, 2, 3, 3))], key=str)
    assert rows(place) == expected
    assert table.scan(predicate="id > 3").to_table().num_rows == 0
    theirs = deltalake.DeltaTable(place)
    found = pa.table(deltalake.QueryBuilder().register("t", theirs).execute("select id, p from t").read_all())
    assert sorted(found.to_pylist(), key=str) == expected


def test_files_replace_all_others_or_those_of_their_partitions(place):
    table = DeltaTable(place)
    first = prepared(place, "p=a/x.parquet", "a")
    table.create_write_transaction([first], "overwrite", table.schema(), partition_overwrite="dynamic")
    assert rows(place) == [{"id": n, "p": "a"} for n in (1, 2, 3)] + [{"id": 3, "p": "b"}]
    table.create_write_transaction([prepared(place, "y.parquet", "b")], "overwrite", table.schema())
    assert rows(place) == [{"id": n, "p": "b"} for n in (1, 2, 3)]


def test_a_file_that_is_committed_again_is_there_once(place):
    table = DeltaTable(place)
    file = prepared(place, "x.parquet")
    for _ in range(2):
        table.create_write_transaction([file], "append", ROWS.schema)
    assert len(rows(place)) == 6
    assert table.count() == DeltaTable(place).count() == 6


def test_a_live_file_can_be_among_those_that_replace_all(place):
    table = DeltaTable(place)
    first, second = (prepared(place, f"p=a/{name}.parquet", "a") for name in "xy")
    table.create_write_transaction([first], "overwrite", table.schema())
    result = table.create_write_transaction([first, second], "overwrite", table.schema())
    assert (result["num_added_files"], result["num_removed_files"]) == (2, 0)
    assert rows(place) == sorted([{"id": n, "p": "a"} for n in (1, 2, 3)] * 2, key=str)


def test_files_stay_where_the_commit_fails(place):
    late = DeltaTable(place)
    file = prepared(place, "x.parquet")
    DeltaTable(place).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(errors.ConstraintViolationError):
        late.create_write_transaction([file], "overwrite", ROWS.schema)
    assert (place / "x.parquet").exists()
    late.create_write_transaction([file], "append", ROWS.schema)
    assert len(rows(place)) == 6


def test_an_applications_version_is_recorded_once(place):
    table = DeltaTable(place)
    for version in (2, None):
        done = table.create_write_transaction(
            [prepared(place, "x.parquet")], "append", ROWS.schema, app_id="job", app_version=7
        )
        assert done.version == (version and 1)
    assert DeltaTable(place).transaction_version("job") == 7


ONE = AddAction("x.parquet", 1, {"p": "c"}, 1, True, None)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ("x.parquet", "a list of AddAction, not a str"),
        (7, "a list of AddAction, not a int"),
        (["x.parquet"], "a str has no path, size"),
        ([replace(ONE, path="")], "has an empty path"),
        ([replace(ONE, path=7)], "path must be a string, not 7"),
        ([replace(ONE, path="../x.parquet")], "'../x.parquet' does not name a file inside the table"),
        ([replace(ONE, path="/x.parquet")], "is outside the table"),
        ([replace(ONE, path="s3://b/x.parquet")], "does not name a data file"),
        ([replace(ONE, path="a//x.parquet")], "does not name a data file"),
        ([replace(ONE, path="_delta_log/x.parquet")], "does not name a data file"),
        ([replace(ONE, size=-1)], "the size is negative"),
        ([replace(ONE, size="1")], "size of 'x.parquet' must be an integer"),
        ([replace(ONE, modification_time=None)], "modification time of 'x.parquet' are missing"),
        ([replace(ONE, data_change="yes")], "True or False, not 'yes'"),
        ([replace(ONE, stats="{")], "stats of 'x.parquet' are not valid JSON of statistics"),
        ([replace(ONE, stats=7)], "stats of 'x.parquet' must be a string"),
        ([replace(ONE, partition_values={})], "partitioned by ['p']"),
        ([replace(ONE, partition_values={"q": "1"})], "have ['q'], but the table is partitioned by ['p']"),
        ([replace(ONE, partition_values={"p": 1})], "partition value of 'p' of 'x.parquet' must be a string, not 1"),
    ],
)
def test_a_file_that_cannot_be_one_of_the_table_is_refused(place, files, told):
    table = DeltaTable(place)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        table.create_write_transaction(files, "append", ROWS.schema)
    assert told in str(caught.value)
    assert DeltaTable(place).version() == 0


def test_a_value_that_is_none_of_the_partition_columns_type_is_refused(tmp_path):
    write_deltalake(tmp_path, pa.table({"id": [1], "n": pa.array([5], pa.int32())}), partition_by=["n"])
    table = DeltaTable(tmp_path)
    for value, told in (("five", "the partition value of 'n' is not valid"), (str(2**40), "not valid")):
        with pytest.raises(errors.InvalidArgumentError, match=told):
            table.create_write_transaction([replace(ONE, partition_values={"n": value})], "append", table.schema())


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (pa.schema([("id", pa.int32()), ("p", pa.string())]), "column 'id' is integer in the files, and long in the"),
        (pa.schema([("ID", pa.int64())]), "column 'id' of the table is 'ID' in the files"),
        (pa.schema([("id", pa.int64()), ("more", pa.int64())]), "column 'more' is not in the table"),
        (pa.schema([("id", pa.uint64())]), r"column 'id' is decimal\(20,0\) in the files"),
    ],
)
def test_files_of_another_schema_are_refused(place, schema, told):
    with pytest.raises(errors.SchemaMismatchError, match=told):
        DeltaTable(place).create_write_transaction([ONE], "append", schema)


@pytest.mark.breaks_tables
def test_columns_that_may_not_be_null_have_to_be_there(tmp_path):
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())])
    table = DeltaTable.create(tmp_path, schema)
    file = replace(ONE, partition_values={})
    for wrong, told in ((["b"], "'a' is missing, and may not be null"), (["a"], "'a' may be null by the schema")):
        with pytest.raises(errors.SchemaMismatchError, match=told):
            table.create_write_transaction([file], "append", pa.schema([(name, pa.int64()) for name in wrong]))
    table.create_write_transaction([file], "append", pa.schema([schema.field("a")]))


@pytest.mark.parametrize("mode", ["error", "ignore", "Append", None])
def test_a_mode_that_makes_no_sense_is_refused(place, mode):
    with pytest.raises(errors.InvalidArgumentError, match="mode is one of 'append', 'overwrite'"):
        DeltaTable(place).create_write_transaction([ONE], mode, ROWS.schema)


def test_what_is_no_schema_is_refused(place):
    with pytest.raises(errors.InvalidArgumentError, match=r"schema is a refdelta.Schema or an Arrow schema, not a int"):
        DeltaTable(place).create_write_transaction([ONE], "append", 7)


def test_a_handle_of_one_version_writes_nothing(place):
    with pytest.raises(errors.ReadOnlyTableError):
        DeltaTable(place, version=0).create_write_transaction([ONE], "append", ROWS.schema)


def removals(place, *, data_change=False, action=RemoveAction):
    """An action that removes each live file."""
    paths = DeltaTable(place).get_add_actions().column("path").to_pylist()
    return [action(path, data_change, 1_700_000_000_000) for path in paths]


@pytest.mark.parametrize("action", [RemoveAction, TheirRemoval])
def test_files_of_a_compaction_by_another_program_replace_others(tmp_path, action):
    place = tmp_path / "t"
    for start in (0, 1):
        write_deltalake(place, FILES.slice(start, 1), mode="append")
    pq.write_table(FILES.slice(0, 2), place / "both.parquet")
    size = (place / "both.parquet").stat().st_size
    both = AddAction("both.parquet", size, {}, 1_700_000_000_000, False, '{"numRecords": 2}')
    old = removals(place, action=action)
    DeltaTable(place).create_write_transaction([both, *old], "append", FILES.schema)
    table = DeltaTable(place)
    assert table.get_add_actions().column("path").to_pylist() == ["both.parquet"]
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == [1, 2]
    lines = [json.loads(line) for line in (place / "_delta_log" / f"{2:020}.json").read_text().splitlines()]
    removed = [line["remove"] for line in lines if "remove" in line]
    assert sorted(remove["path"] for remove in removed) == sorted(one.path for one in old)
    assert all(remove["dataChange"] is False and remove["size"] > 0 for remove in removed)
    # The retention of VACUUM counts from the commit, whatever the caller says.
    assert all(remove["deletionTimestamp"] > 1_700_000_000_000 for remove in removed)
    assert table.history(1)[0]["operationMetrics"]["numRemovedFiles"] == "2"


def test_a_removal_that_cannot_be_is_refused(place):
    table, schema = DeltaTable(place), FILES.schema
    with pytest.raises(errors.InvalidArgumentError, match="is not in version 0"):
        table.create_write_transaction([RemoveAction("p=a/gone.parquet")], "append", schema)
    with pytest.raises(errors.InvalidArgumentError, match="overwrite"):
        table.create_write_transaction(removals(place), "overwrite", schema)
    both = prepared(place, "p=c/new.parquet")
    with pytest.raises(errors.InvalidArgumentError, match="same file path"):
        table.create_write_transaction([both, RemoveAction("p=c/new.parquet")], "append", schema)
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(errors.ConstraintViolationError, match="append-only"):
        table.create_write_transaction(removals(place, data_change=True), "append", schema)
    with pytest.raises(errors.InvalidArgumentError, match="no added file has data_change=False"):
        table.create_write_transaction(removals(place), "append", schema)
    few = replace(prepared(place, "p=c/few.parquet", rows=FILES.slice(0, 2)), data_change=False)
    with pytest.raises(errors.InvalidArgumentError, match=r"files with 3 rows leave .* have 2 rows"):
        table.create_write_transaction([few, *removals(place)], "append", schema)
    as_many = replace(prepared(place, "p=c/new.parquet"), data_change=False)
    table.create_write_transaction([as_many, *removals(place)], "append", schema)  # rows that are elsewhere may leave
    assert DeltaTable(place).count() == 3


def test_files_are_not_replaced_where_rows_have_ids(tmp_path):
    write_deltalake(tmp_path, FILES, configuration={"delta.enableRowTracking": "true"})
    with pytest.raises(errors.UnsupportedFeatureError, match="rowTracking"):
        DeltaTable(tmp_path).create_write_transaction(removals(tmp_path), "append", FILES.schema)
    DeltaTable(tmp_path).create_write_transaction(removals(tmp_path, data_change=True), "append", FILES.schema)
    assert DeltaTable(tmp_path).count() == 0


@pytest.mark.parametrize("data_change", [False, True])
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_concurrent_change_of_a_removed_file_conflicts(place, monkeypatch, data_change, vectors):
    DeltaTable(place).alter.set_table_properties({"delta.enableDeletionVectors": vectors})
    table, commit = DeltaTable(place), TableTransaction.commit
    new = replace(prepared(place, "p=c/new.parquet"), data_change=data_change)
    actions = [new, *removals(place, data_change=data_change)]

    def late(txn):
        monkeypatch.setattr(TableTransaction, "commit", commit)
        DeltaTable(place).delete("id = 1")
        return commit(txn)

    monkeypatch.setattr(TableTransaction, "commit", late)
    with pytest.raises(errors.ConcurrentModificationError):
        table.create_write_transaction(actions, "append", FILES.schema)
