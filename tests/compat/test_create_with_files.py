"""``create_table_with_add_actions``: a table of files that exist, in one commit, side by side with deltalake."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

deltalake = pytest.importorskip("deltalake")
NAMES = ["deltalake", "refdelta.compat.deltalake"]
ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "p": ["x", "x", "y"]})
OLD = pa.table({"a": pa.array([7], pa.int64()), "b": ["old"]})
DESCRIBED = {"name": "N", "description": "D", "configuration": {"delta.appendOnly": "false"}}


def modules(name):
    return importlib.import_module(name), importlib.import_module(f"{name}.transaction")


def file(transaction, path, name="f.parquet", **values):
    path.mkdir(exist_ok=True)
    pq.write_table(ROWS.drop_columns(list(values)), path / name)
    stats = json.dumps({"numRecords": 3})
    return transaction.AddAction(name, (path / name).stat().st_size, values, 1_700_000_000_000, True, stats)


def found(library, path):
    """The table, as both libraries must leave it; None if there is none."""
    if not library.DeltaTable.is_deltatable(str(path)):
        return None
    table = library.DeltaTable(str(path))
    info, told = table.history(1)[0], table.metadata()
    described = (told.name, told.description, told.configuration, told.partition_columns)
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=str)
    return table.version(), info["operation"], info.get("who"), described, rows, table.schema().to_json()


@pytest.mark.parametrize("by", [[], ["p"]], ids=["plain", "partitions"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore"])
def test_a_table_of_files_is_that_of_deltalake(tmp_path, mode, there, by):
    left, refused = [], []
    for name in NAMES:
        library, transaction = modules(name)
        path = tmp_path / name
        if there:
            library.write_deltalake(str(path), OLD, name="old", configuration={"delta.logRetentionDuration": "7 days"})
        schema = library.Schema.from_arrow(ROWS.schema)
        action = file(transaction, path, **dict.fromkeys(by, "x"))
        notes = transaction.CommitProperties(custom_metadata={"who": "me"})
        try:
            transaction.create_table_with_add_actions(
                str(path), schema, [action], mode, by, **DESCRIBED, commit_properties=notes
            )
        except library.exceptions.DeltaError:
            refused.append(name)
        left.append(found(library, path))
    assert left[0] == left[1]
    assert refused in ([], NAMES)
    assert (refused == NAMES) == (there and mode in ("error", "append"))


@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore"])
def test_a_refused_file_leaves_nothing(tmp_path, mode):
    library, transaction = modules(NAMES[1])
    schema = library.Schema.from_arrow(ROWS.schema)
    path = tmp_path / "t"
    wrong = [file(transaction, path), transaction.AddAction("g.parquet", 1, {"zz": "1"}, 1, True, "{}")]
    for there in (False, True):
        if there:
            library.write_deltalake(str(path), OLD, name="old")
        before = found(library, path)
        if there and mode == "ignore":
            continue
        with pytest.raises(library.exceptions.DeltaError):
            transaction.create_table_with_add_actions(str(path), schema, wrong, mode, [], **DESCRIBED)
        assert found(library, path) == before
    assert Path(path, "f.parquet").exists()


def test_only_files_to_add_create_a_table(tmp_path):
    library, transaction = modules(NAMES[1])
    schema = library.Schema.from_arrow(ROWS.schema)
    with pytest.raises(TypeError, match="an action must be an AddAction, not a RemoveAction"):
        transaction.create_table_with_add_actions(
            str(tmp_path), schema, [transaction.RemoveAction("f.parquet", True, 1)], partition_by=[]
        )
    assert not library.DeltaTable.is_deltatable(str(tmp_path))


def test_a_replaced_table_keeps_a_file_that_is_named_again(tmp_path):
    for name in NAMES:
        library, transaction = modules(name)
        path, schema = tmp_path / name, library.Schema.from_arrow(ROWS.schema)
        action = file(transaction, path)
        for _ in range(2):
            transaction.create_table_with_add_actions(str(path), schema, [action], "overwrite", [])
        assert library.DeltaTable(str(path)).to_pyarrow_table().num_rows == 3, name
