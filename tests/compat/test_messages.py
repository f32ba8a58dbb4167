"""The key words of deltalake's errors, for which programs search, side by side with deltalake.

Tests of compat.deltalake.statement_context.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

deltalake = pytest.importorskip("deltalake")
compat = importlib.import_module("refdelta.compat.deltalake")
ROWS = pa.table({"a": [1, 2, 3], "p": ["x", "x", "y"]})
OTHER = ROWS.rename_columns(["a", "q"])
NESTED, WIDER = pa.table({"s": [{"a": 1}]}), pa.table({"s": [{"a": 1, "b": 2}]})


def write(rows: pa.Table, **options: Any) -> Callable[[Any, str], object]:
    return lambda library, path: library.write_deltalake(path, rows, **options)


def table(call: Callable[[Any], object]) -> Callable[[Any, str], object]:
    return lambda library, path: call(library.DeltaTable(path))


CALLS: dict[str, tuple[str, Callable[[Any, str], object]]] = {
    "a table is there": ("A table already exists at: file:///", write(ROWS)),
    "create": (
        "A Delta Lake table already exists at that location",
        lambda m, path: m.DeltaTable.create(path, ROWS.schema),
    ),
    "create to append": (
        "SaveMode `append` is not allowed",
        lambda m, path: m.DeltaTable.create(path, ROWS.schema, mode="append"),
    ),
    "convert": ("location is already a delta table location", lambda m, path: m.convert_to_deltalake(path)),
    "more columns": (
        "number of fields does not match: 3 vs 2",
        write(ROWS.append_column("n", ROWS["a"]), mode="append"),
    ),
    "fewer columns, one of them new": (
        "number of fields does not match: 1 vs 2",
        write(pa.table({"z": [1]}), mode="append"),
    ),
    "another column": ("Field q not found in schema", write(OTHER, mode="overwrite")),
    "a mode": ("Invalid save mode provided: nonsense, only these are supported", write(ROWS, mode="nonsense")),
    "a schema mode": (
        "Invalid schema write mode provided: nonsense",
        write(ROWS, mode="append", schema_mode="nonsense"),
    ),
    "a schema that an append replaces": (
        "Schema overwrite not supported for Append",
        write(ROWS, mode="append", schema_mode="overwrite"),
    ),
    "no rows": ("Expected object with __arrow_c_array__ or", lambda m, path: m.write_deltalake(path, 5, mode="append")),
    "syntax": ("sql parser error", table(lambda t: t.delete("a ="))),
    "a column of a predicate": ("No field named nope", table(lambda t: t.delete("nope = 1"))),
    "a column of both tables": (
        "Ambiguous reference to unqualified field a",
        table(lambda t: t.merge(ROWS, "a = 1", "s", "t").when_matched_delete().execute()),
    ),
    "a version": (
        "LogSegment end version 0 not the same as the specified end version 9",
        lambda m, path: m.DeltaTable(path, 9),
    ),
    "a time": ("Failed to parse datetime string:", table(lambda t: t.load_as_version("nonsense"))),
    "a folder": ("No files in log segment", lambda m, path: m.DeltaTable(f"{path}/_delta_log")),
    "no columns to sort by": ("Z-order requires at least one column", table(lambda t: t.optimize.z_order([]))),
    "a feed": (
        "Reading a table version: 0 that does not have change data enabled",
        table(lambda t: t.load_cdf().read_all()),
    ),
    "a constraint": ("Invalid data found: 3 rows failed", table(lambda t: t.alter.add_constraint({"c": "a > 5"}))),
    "a constraint to drop": (
        "Constraint with name 'nope' does not exist",
        table(lambda t: t.alter.drop_constraint("nope")),
    ),
    "no constraint": ("No check constraint", table(lambda t: t.alter.add_constraint({}))),
    "no files": ("No parquet file is found", lambda m, path: m.convert_to_deltalake(f"{path}/nothing")),
    "a partition column": (
        "Partition column 'nope' not found in schema",
        lambda m, path: m.DeltaTable.create(f"{path}/new", ROWS.schema, partition_by="nope"),
    ),
}
"""By what is wrong, the key words and the call."""


@pytest.mark.sample(check=60, test=60)
@pytest.mark.parametrize("library", [deltalake, compat], ids=["deltalake", "compat"])
@pytest.mark.parametrize("wrong", CALLS)
def test_messages_have_the_same_key_words(tmp_path, library, wrong):
    words, call = CALLS[wrong]
    path = str(tmp_path / "t")
    library.write_deltalake(path, ROWS)
    with pytest.raises(Exception, match=re.escape(words)):
        call(library, path)


@pytest.mark.parametrize("library", [deltalake, compat], ids=["deltalake", "compat"])
def test_fields_of_structs_are_counted(tmp_path, library):
    library.write_deltalake(str(tmp_path), NESTED)
    with pytest.raises(Exception, match="number of fields does not match: 2 vs 1"):
        library.write_deltalake(str(tmp_path), WIDER, mode="append")
