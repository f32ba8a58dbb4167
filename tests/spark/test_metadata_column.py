"""The column ``_metadata`` of a read: the file of each row, and its place there, as delta-spark has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refdelta import DeltaTable, errors, write_deltalake
from refdelta.crosscheck import oracle
from refdelta.spark import read, write

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

FIELDS = ("file_path", "file_name", "file_size", "file_modification_time", "row_index")
SELECTED = ("id", *(f"_metadata.{name}" for name in FIELDS))
NAMES = ["plain", "a b", "é%20ü", "x+y,z;&=@$!~'()*", "[0]{1}?^`|<>", "日本", None]


def rows(count: int = 70) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64()), "k": [NAMES[number % 7] for number in range(count)]})


def made(uri: Path, shape: str) -> Path:
    """A table of several files, without some of its rows."""
    properties = {"delta.enableDeletionVectors": "false" if shape == "rewritten" else "true"}
    if shape == "mapped":
        properties |= {"delta.columnMapping.mode": "id"}
    partitions = ["k"] if shape in ("partitions", "mapped") else None
    write_deltalake(uri, rows(), partition_by=partitions, configuration=properties)
    write_deltalake(uri, rows(30), mode="append")
    if shape == "some":
        write_deltalake(uri, pa.table({"id": pa.array([1_000], pa.int64()), "k": ["other"]}), mode="append")
    if shape != "whole":
        DeltaTable(uri).delete("id % 5 = 3 and id < 1000")
    return uri


@pytest.mark.sample(test=2)
@pytest.mark.parametrize("shape", ["partitions", "whole", "some", "all", "rewritten", "mapped"])
def test_metadata_is_that_of_delta_spark(spark: Any, tmp_path: Path, shape: str) -> None:
    uri = made(tmp_path / "with a space é", shape)
    ours = read(spark, uri, metadata=True)
    assert ours.columns == ["id", "k", "_metadata"]
    assert [field.name for field in ours.schema["_metadata"].dataType] == list(FIELDS)
    # Without deletion vectors, delta-spark has no row_index.
    selected = SELECTED[:-1] if shape == "rewritten" else SELECTED
    theirs = oracle.frame(spark, uri).select(*selected)
    expected = sorted(theirs.collect())
    assert (len({row.file_path for row in expected}) > 1) == (shape != "rewritten")
    assert sorted(ours.select(*selected).collect()) == expected
    types = [field.dataType for field in theirs.schema]
    assert [field.dataType for field in ours.select(*selected).schema] == types


def test_metadata_goes_with_filters_columns_and_joins(spark: Any, tmp_path: Path) -> None:
    uri = made(tmp_path / "t", "partitions")
    some = read(spark, uri, columns=["id"], filter="id < 10 AND k = 'a b'", metadata=True)
    expected = oracle.frame(spark, uri).where("id < 10 AND k = 'a b'").select("id", "_metadata.row_index").collect()
    assert sorted(some.select("id", "_metadata.row_index").collect()) == sorted(expected)
    joined = some.join(spark.range(3), "id").where("_metadata.row_index >= 0")
    assert sorted(joined.select("id", "_metadata.file_name").collect()) == sorted(
        oracle.frame(spark, uri).where("id < 3 AND k = 'a b'").select("id", "_metadata.file_name").collect()
    )
    whole = read(spark, uri, metadata=True)
    assert whole.count() == len(whole.collect()) == DeltaTable(uri).count()
    assert read(spark, uri).columns == ["id", "k"]


def test_an_empty_table_has_the_column_too(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write_deltalake(uri, rows(0))
    assert read(spark, uri, metadata=True).select("_metadata.file_path").collect() == []


def test_a_column_of_that_name_is_refused(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write(spark.sql("SELECT 1 AS id, 2 AS _METADATA"), uri)
    with pytest.raises(errors.InvalidArgumentError, match="column _metadata of its own: read it without"):
        read(spark, uri, metadata=True)
    assert read(spark, uri, columns=["id"], metadata=True).select("_metadata.row_index").collect() == [(0,)]
    assert read(spark, uri).columns == ["id", "_METADATA"]
