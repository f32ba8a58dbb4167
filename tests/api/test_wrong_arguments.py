"""Arguments of another kind, or that do not go with the table: one error that names them, and nothing is written.

Tests of arguments.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from refdelta import CommitProperties, DeltaTable, Identity, errors, variants, write_deltalake
from refdelta.cli import main

ROWS = pa.table({"id": [1, 2], "s": ["a", None], "flag": [True, False], "at": [{"x": 1, "y": b"q"}] * 2})
COLUMNS = pa.schema([("id", "int64"), ("at", pa.timestamp("us", "UTC")), ("day", "date32"), ("n", "int64")])


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    return DeltaTable(tmp_path / "t")


def everything(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(folder, call, kind=errors.InvalidArgumentError, match=None):
    before = everything(folder)
    with pytest.raises(kind, match=match) as caught:
        call()
    assert everything(folder) == before
    return str(caught.value)


FLAGS = {
    "nullable": lambda t, no: t.alter.set_nullable("id", no),
    "dry_run": lambda t, no: t.vacuum(dry_run=no),
    "full": lambda t, no: t.vacuum(full=no),
    "enforce_retention_duration": lambda t, no: t.vacuum(0, enforce_retention_duration=no),
    "allow_protocol_versions_increase": lambda t, no: t.alter.add_feature("deletionVectors", no),
    "merge_schema": lambda t, no: t.merge(ROWS, "s.id = t.id", merge_schema=no).when_matched_delete().execute(),
    "if_exists": lambda t, no: t.alter.unset_table_properties(["x"], if_exists=no),
    "row_level": lambda t, no: t.delete("id = 1", commit_properties=CommitProperties(row_level=no)),
}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", ["no", "False", 0])
def test_what_is_true_or_false_is_no_text(table, tmp_path, name, value):
    refused(tmp_path, lambda: FLAGS[name](table, value), match=f"{name} must be True or False")


def test_truths_of_numpy_are_some(table):
    table.alter.set_nullable("id", np.bool_(False))
    assert not next(f for f in table.schema().fields if f.name == "id").nullable
    schema = json.loads(table.metadata().schema_string)
    assert schema["fields"][0]["nullable"] is False


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"max_commit_retries": "3"}, "max_commit_retries"),
        ({"max_commit_retries": -1}, "max_commit_retries"),
        ({"max_commit_seconds": "1"}, "max_commit_seconds"),
        ({"max_commit_seconds": float("nan")}, "max_commit_seconds"),
        ({"app_transactions": 5}, "app_transactions"),
        ({"app_transactions": [("a", 1)]}, "app_transactions"),
        ({"custom_metadata": {"a": object()}}, "custom_metadata"),
        ({"row_budget": 5}, "row_budget"),
    ],
)
def test_properties_of_a_commit(table, tmp_path, properties, named):
    told = CommitProperties(**properties)
    refused(tmp_path, lambda: table.delete("id = 1", commit_properties=told), match=named)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda t: t.vacuum(keep_versions=3), "keep_versions"),
        (lambda t: t.vacuum(keep_versions=["0"]), "keep_versions"),
        (lambda t: t.merge(ROWS, "s.id = t.id", source_alias=4).when_matched_delete().execute(), "source_alias"),
        (lambda t: t.merge(ROWS, "s.id = t.id", target_alias=4).when_matched_delete().execute(), "target_alias"),
        (lambda t: t.create_checkpoint(top_level="xml"), "top_level"),
        (lambda t: t.alter.unset_table_properties([5]), "names"),
    ],
)
def test_arguments_of_another_kind(table, tmp_path, call, named):
    refused(tmp_path, lambda: call(table), match=named)


HALF = "\udc80"  # as in a file name that is no UTF-8
TEXTS = {
    "user_metadata": lambda t: t.delete("id = 1", commit_properties=CommitProperties(user_metadata=HALF)),
    "app_id": lambda t: write_deltalake(t, ROWS, mode="append", app_id=HALF, app_version=1),
    "a note": lambda t: t.delete("id = 1", commit_properties=CommitProperties(custom_metadata={"a": HALF})),
    "a property": lambda t: t.alter.set_table_properties({"mine": HALF}),
    "its name": lambda t: t.alter.set_table_properties({HALF: "mine"}),
    "a name": lambda t: t.alter.set_table_name(HALF),
    "a comment": lambda t: t.alter.set_column_metadata("s", {"comment": HALF}),
    "a constraint": lambda t: t.alter.add_constraint({HALF: "id > 0"}),
    "a condition": lambda t: t.to_pyarrow_table(filters=f"s = '{HALF}'"),
    "a filter": lambda t: t.to_pyarrow_table(filters=[("s", "=", HALF)]),
    "a value": lambda t: t.update(new_values={"s": HALF}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_no_unicode(table, tmp_path, name):
    refused(tmp_path, lambda: TEXTS[name](table))


def test_a_field_that_is_missing_behind_an_alias_that_is_a_column_too(table, tmp_path):
    def merge():
        table.merge(ROWS.rename_columns(["id", "t", "s", "at"]), "s.nope = t.id").when_matched_delete().execute()

    refused(tmp_path, merge, errors.ColumnNotFoundError, "'nope' does not exist in s")


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("nope", "'nope' does not exist"),
        ("id,ID", "id twice"),
        ("at", "at.y is of type binary"),
        ("flag", "flag is of type boolean"),
        ("p", "p is a partition column"),
    ],
)
def test_columns_that_cannot_have_statistics(tmp_path, value, match):
    """As delta-spark holds ``delta.dataSkippingStatsColumns`` to the table that it is set for."""
    rows = ROWS.append_column("p", pa.array(["a", "b"]))
    asked = {"delta.dataSkippingStatsColumns": value}
    refused(
        tmp_path,
        lambda: write_deltalake(tmp_path / "new", rows, partition_by="p", configuration=asked),
        match=match,
    )
    write_deltalake(tmp_path / "t", rows, partition_by="p")
    table = DeltaTable(tmp_path / "t")
    refused(tmp_path, lambda: table.alter.set_table_properties(asked), match=match)
    table.alter.set_table_properties({"delta.dataSkippingStatsColumns": "S,at.x"})
    write_deltalake(table, rows, mode="append")
    newest = (tmp_path / "t/_delta_log" / f"{2:020d}.json").read_text().splitlines()
    stats = [json.loads(action["add"]["stats"]) for action in map(json.loads, newest) if "add" in action]
    assert sorted(sorted(one["nullCount"]) for one in stats) == [["at", "s"], ["at", "s"]]


def test_iceberg_is_promised_only_where_it_can_read(table, tmp_path):
    """``delta.universalFormat.enabledFormats`` rests on a compatibility, as delta-spark has it."""
    name = "delta.universalFormat.enabledFormats"
    refused(tmp_path, lambda: table.alter.set_table_properties({name: "iceberg"}), match="IcebergCompatV2")
    refused(tmp_path, lambda: table.alter.set_table_properties({name: "nope"}), match="must be iceberg")
    both = {name: "iceberg", "delta.enableIcebergCompatV2": "true"}
    refused(tmp_path, lambda: write_deltalake(tmp_path / "n", ROWS, configuration={name: "iceberg"}), match="Iceberg")
    write_deltalake(tmp_path / "n", ROWS, configuration=both)
    assert DeltaTable(tmp_path / "n").count() == 2


# --- columns with values of the table's own ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql", ["cast(at as", "rand()", "(select 1)", "sum(n)", "zz", "day", "at", "nope(n)", "current_date()"]
)
def test_expressions_by_which_no_column_is_generated(tmp_path, sql):
    told = refused(
        tmp_path, lambda: DeltaTable.create(tmp_path / "t", COLUMNS, generated={"day": sql}), match="column 'day'"
    )
    assert "cannot write to this table" not in told
    assert not (tmp_path / "t").exists()


def test_identity_columns_partition_nothing_and_have_no_default(tmp_path):
    numbers = {"id": Identity()}

    def partitioned():
        DeltaTable.create(tmp_path / "p", COLUMNS, identity=numbers, partition_by="id")

    refused(tmp_path, partitioned, match="'id' is an identity column")
    table = DeltaTable.create(tmp_path / "t", COLUMNS, identity=numbers)
    refused(tmp_path, lambda: table.alter.set_default("id", "5"), match="'id' is an identity column")


# --- data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pa.array([1, 2]), id="a column that is no table"),
        pytest.param(pd.DataFrame([[1, 2]], columns=["a", "a"]), id="two columns of pandas of one name"),
        pytest.param(pl.Series([1], dtype=pl.Int128), id="a type of Polars' own"),
    ],
)
def test_data_that_is_no_arrow_table(tmp_path, data):
    refused(tmp_path, lambda: write_deltalake(tmp_path / "t", data), match="cannot be read as an Arrow table")
    assert not (tmp_path / "t").exists()


def test_categories_of_polars(tmp_path):
    frame = pl.DataFrame(
        {
            "c": pl.Series(["x", None, "y", "x"], dtype=pl.Categorical),
            "e": pl.Series(["b", "a", None, "b"], dtype=pl.Enum(["a", "b"])),
            "l": pl.Series([["x"], [], None, ["y", None]], dtype=pl.List(pl.Categorical)),
        }
    )
    write_deltalake(tmp_path / "t", frame)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pydict() == frame.to_dict(as_series=False)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (None, errors.InvalidArgumentError),
        ("text", errors.InvalidArgumentError),
        ({"a": 1}, errors.InvalidArgumentError),
        ([object()], errors.UnsupportedTypeError),
        ([{1: 2}], errors.UnsupportedTypeError),
        ([10**40], errors.InvalidArgumentError),
        (["\udc80"], errors.InvalidArgumentError),
    ],
)
def test_values_that_are_no_variants(values: Any, kind):
    with pytest.raises(kind):
        variants(values)


# --- the command line --------------------------------------------------------------------------------------------


def test_explain_is_json_where_json_is_asked_for(table, capsys):
    assert main(["read", table.table_uri, "--explain", "--json", "--where", "id > 5"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], told["files_read"], told["pruned_by_stats"]) == (1, 0, 1)
