"""Names of columns, generated columns, and key words of messages in the statements of the compat module.

Tests of compat.deltalake.statement_context, compat.deltalake.query, compat.deltalake.writer._conversion.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import pyarrow as pa
import pytest

import refdelta
from refdelta.compat.deltalake import DeltaTable, Field, QueryBuilder, Schema, convert_to_deltalake, write_deltalake
from refdelta.compat.deltalake.schema import PrimitiveType
from refdelta.compat.deltalake.statement_context import key_words, statement
from refdelta.compat.deltalake.table import TableFeatures, options_for
from refdelta.compat.deltalake.writer._conversion import _convert_arro3_schema_to_delta as converted
from refdelta.errors import (
    CommitFailedError,
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConflictDetails,
    ConstraintViolationError,
    DeltaError,
    InvalidArgumentError,
    MetadataChangedException,
)

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "p": ["x", "y"]})
TWICE = pa.table({"id": pa.array([1, 1], pa.int64()), "p": ["x", "y"]})


def message(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(DeltaError) as raised:
        call(*arguments, **named)
    return str(raised.value)


@pytest.fixture
def uri(tmp_path) -> str:
    write_deltalake(tmp_path / "t", ROWS)
    return str(tmp_path / "t")


def test_messages_of_writes_begin_with_their_key_words(uri):
    def told(rows: Any, **options: Any) -> str:
        return message(write_deltalake, uri, rows, mode="overwrite" if "predicate" in options else "append", **options)

    wider = told(ROWS.append_column("n", pa.array([1, 2])))
    assert wider.startswith("Cannot cast schema, number of fields does not match: 3 vs 2. ")
    assert "the table has no column n" in wider
    text = pa.table({"id": ["one"], "p": ["x"]})
    assert told(text).startswith("Cast error: Cannot cast string 'one' to value of Int64 type. ")
    assert told(ROWS, partition_by=["p"]).startswith(
        'Generic error: Specified table partitioning does not match table partitioning: expected: [], got: ["p"] '
    )
    assert told(ROWS, predicate="id = 1").startswith("Invalid data found: 1 rows failed validation check. ")
    assert told(ROWS, predicate="none = 1").startswith("No field named none. ")
    DeltaTable(uri).alter.add_constraint({"small": "id < 9"})
    broken = told(pa.table({"id": pa.array([9], pa.int64()), "p": ["x"]}))
    assert broken.startswith("Invalid data found: 1 rows failed validation check. ")


def test_messages_of_statements_begin_with_their_key_words(uri):
    table = DeltaTable(uri)
    merge = table.merge(TWICE, "s.id = t.id", "s", "t").when_matched_update_all()
    assert message(merge.execute).startswith("satisfy duplicate relevant WHEN MATCHED clauses: ")
    assert message(table.vacuum, 1).startswith("Generic error: Invalid retention period, minimum retention for vacuum")
    assert message(table.load_cdf, 7).startswith("Invalid table version: 7. ")
    told = message(table.load_cdf, starting_timestamp="2999-01-01T00:00:00Z")
    assert told.startswith("The starting timestamp is greater than latest commit timestamp. ")
    kinds = {"ChangeDataFeed": "enables writer feature, but", "DeletionVectors": "enables reader and writer feature"}
    for name, words in kinds.items():
        assert f"Table feature {words}" in message(table.alter.add_feature, TableFeatures[name])
    column = Field("g", PrimitiveType("long"), metadata={"delta.generationExpression": "5"})
    assert message(table.alter.add_columns, column).startswith("New columns cannot be a generated column. ")


def test_messages_of_conversions_begin_with_their_key_words(tmp_path):
    importlib.import_module("pyarrow.parquet").write_to_dataset(ROWS, tmp_path, partition_cols=["p"])
    assert "The schema of partition columns must be provided" in message(convert_to_deltalake, tmp_path)
    schema: Any = Schema.from_arrow(ROWS.select(["p"]).schema)
    told = message(convert_to_deltalake, tmp_path, partition_by=schema, partition_strategy="flat")  # type: ignore[arg-type]
    assert told.startswith("Partition strategy must be `hive` or `directory`: ")


def test_a_removal_from_an_append_only_table_fails_as_a_commit_and_as_a_constraint(tmp_path):
    write_deltalake(tmp_path, ROWS, configuration={"delta.appendOnly": "true"})
    for kind in (CommitFailedError, ConstraintViolationError):
        with pytest.raises(kind, match="includes Remove action with data change but Delta table is append-only"):
            DeltaTable(tmp_path).delete()


def test_key_words_are_written_once_and_only_where_there_are_some():
    assert key_words("the file is gone") == ""
    cast = "row 0: the value Decimal('1000.1') of column x (decimal(5,1) in the data) does not fit into decimal(4,1) "
    assert key_words(f"{cast}without loss") == "Cannot cast field x from Decimal128(5, 1) to Decimal128(4, 1)."
    with pytest.raises(InvalidArgumentError) as raised, statement(), statement():
        raise InvalidArgumentError("column 'a' does not exist in the table")
    assert str(raised.value) == "No field named a. column 'a' does not exist in the table"


def test_conflicts_begin_with_their_key_words(uri):
    conflicts = {
        ConcurrentAppendException: "Commit failed: a concurrent transactions added new data. ",
        ConcurrentDeleteReadException: "Commit failed: a concurrent transaction deleted data this operation read. ",
        MetadataChangedException: "Metadata changed since last commit. ",
    }
    for kind, words in conflicts.items():
        with pytest.raises(kind, match=re.escape(f"{words}because (version 7). Again.")), statement():
            raise kind("because", ConflictDetails("rule", 7, None, advice="Again."))


def test_options_that_deltalake_passes_over_are_left_out(tmp_path):
    options = {"provider": "local", "AWS_REGION": "x", "fsync": "false"}
    write_deltalake(tmp_path / "t", ROWS, storage_options=options)
    assert DeltaTable((tmp_path / "t").as_uri(), storage_options=options).count() == 2
    assert options_for(tmp_path, options) == {"fsync": "false"}
    assert options_for(tmp_path, {"provider": "local"}) is None
    assert options_for("s3://bucket/t", options) == {"AWS_REGION": "x", "fsync": "false"}


def test_column_names_have_any_characters(tmp_path):
    rows = ROWS.rename_columns(["order id", "a=b"])
    write_deltalake(tmp_path / "t", rows, partition_by=["a=b"])
    table = DeltaTable(tmp_path / "t")
    table.alter.add_columns(Field("x y", PrimitiveType("long")))
    more = pa.table({"order id": [2, 3], "a=b": ["y", "z"], "x y": [1, 2], "n m": [5, 6]})
    merge = table.merge(more, 's."order id" = t."order id"', "s", "t", merge_schema=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    found = table.to_pyarrow_table().sort_by("order id")
    assert found.to_pydict() == {
        "order id": [1, 2, 3],
        "a=b": ["x", "y", "z"],
        "x y": [None, 1, 2],
        "n m": [None, 5, 6],
    }
    with pytest.raises(InvalidArgumentError, match="column name 'order id' holds ' ', which Parquet reserves"):
        refdelta.write_deltalake(tmp_path / "own", rows)


@pytest.mark.parametrize("evolving", [False, True])
def test_a_merge_of_all_columns_computes_generated_columns_that_the_source_lacks(tmp_path, evolving):
    columns = [Field("id", PrimitiveType("long"))]
    columns.append(Field("g", PrimitiveType("long"), metadata={"delta.generationExpression": "id * 10"}))
    table = DeltaTable.create(tmp_path, Schema(columns))
    write_deltalake(table, pa.table({"id": [1]}), mode="append")
    rows = pa.table({"id": [1, 2]})
    merge = table.merge(rows, "s.id = t.id", "s", "t", merge_schema=evolving)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    found = pa.table(QueryBuilder().register("t", table).execute("select * from t order by id").read_all())
    assert found.to_pydict() == {"id": [1, 2], "g": [10, 20]}
    assert found.schema.field("g").metadata == {b"delta.generationExpression": b"id * 10"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.uint32(), pa.int32()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.uint8(), 3), pa.list_(pa.int8(), 3)),
        (pa.large_list(pa.struct({"a": pa.uint64()})), pa.large_list(pa.struct({"a": pa.int64()}))),
        (pa.map_(pa.string(), pa.uint16()), pa.map_(pa.string(), pa.int16())),
        (pa.null(), pa.null()),
        (pa.string(), pa.string()),
    ],
)
def test_an_arrow_schema_is_converted_to_what_a_table_stores(given, stored):
    field = pa.field("x", given, nullable=pa.types.is_null(given), metadata={"unit": "m"})
    assert pa.schema(converted(pa.schema([field]))).equals(pa.schema([field.with_type(stored)]), check_metadata=True)


def test_columns_of_nulls_have_the_types_of_the_table():
    schema = pa.schema({"id": pa.int64(), "name": pa.null(), "new": pa.null()})
    found = pa.schema(converted(schema, ROWS.rename_columns(["id", "name"]).schema))
    assert found.types == [pa.int64(), pa.string(), pa.null()]
