"""``create_table_with_add_actions``: a table of files that exist, in one commit, side by side with deltalake."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

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


TRANSACTIONS: dict[str, tuple[str, pa.Table, list[tuple[str, str, Any]] | None]] = {
    "append": ("append", ROWS, None),
    "error": ("error", ROWS, None),
    "ignore": ("ignore", ROWS, None),
    "overwrite": ("overwrite", ROWS, None),
    "other columns": ("overwrite", pa.table({"b": ["q"], "p": ["x"]}), None),
    "another type": ("overwrite", pa.table({"a": [1.5], "p": ["x"]}), None),
    "another order": ("overwrite", ROWS.select(["p", "a"]), None),
    "a partition": ("overwrite", ROWS, [("p", "=", "x")]),
    "partitions": ("overwrite", ROWS, [("p", "in", ["x", "y"])]),
    "a partition and a new column": ("overwrite", ROWS.append_column("n", pa.array([1] * 3)), [("p", "=", "x")]),
}
"""Mode, rows and filters on partitions of a commit of a file to a table that is partitioned by p."""


@pytest.mark.parametrize("by", [["p"], [], None])
@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_a_file_is_committed_as_in_deltalake(tmp_path, kind, by):
    left = []
    mode, rows, filters = TRANSACTIONS[kind]
    for name in NAMES:
        library, transaction = modules(name)
        path = tmp_path / name
        library.write_deltalake(str(path), pa.table({"a": [7, 8], "p": ["x", "y"]}), partition_by=["p"])
        pq.write_table(rows.drop_columns(["p"]), path / "new.parquet")
        size = (path / "new.parquet").stat().st_size
        action = transaction.AddAction("new.parquet", size, {"p": "x"}, 1, True, json.dumps({"numRecords": len(rows)}))
        schema = library.Schema.from_arrow(rows.schema)
        library.DeltaTable(str(path)).create_write_transaction([action], mode, schema, by, filters)
        table = library.DeltaTable(str(path))
        found = table.to_pyarrow_table().select(sorted(rows.column_names)).to_pylist()
        columns = sorted((one.name, str(one.type)) for one in table.schema().fields)
        left.append((sorted(map(repr, found)), columns, table.metadata().partition_columns, table.version()))
    assert left[0] == left[1]
