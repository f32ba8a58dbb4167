"""Texts of compacted files: they stay places in dictionaries on the way, which nobody is to notice."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, write_deltalake

COLORS = ["red", "green", None, "blue", "", "größer"]
ROWS = 600


def rows(start, colors=COLORS):
    numbers = range(start, start + ROWS)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "color": [colors[n % len(colors)] for n in numbers],
            "text": [f"text {n}" for n in numbers],
            "none": pa.nulls(ROWS, pa.string()),
            "part": ["a"] * ROWS,
        }
    )


@pytest.fixture
def path(tmp_path):
    """Files with dictionaries, each with another one, and with deleted rows: of some texts no row is left."""
    table = tmp_path / "t"
    for start, colors in ((0, COLORS), (ROWS, ["zebra", "aardvark", "blue"]), (2 * ROWS, COLORS[::-1])):
        write_deltalake(
            table,
            rows(start, colors),
            mode="append",
            configuration={"delta.enableDeletionVectors": "true"},
            partition_by=["part"],
        )
    DeltaTable(table).delete("color = 'zebra'")
    return table


def compacted(path, *, by):
    optimize = DeltaTable(path).optimize
    result = optimize.z_order(by) if by else optimize.compact()
    assert (result["numFilesAdded"], result["numDeletionVectorsRemoved"]) == (1, 1)
    (name,) = DeltaTable(path).files()["path"].to_pylist()
    return pq.ParquetFile(path / name)


def sorted_rows(path):
    return DeltaTable(path).to_pyarrow_table().sort_by("n")


@pytest.mark.parametrize("by", [None, ["n"], ["color"]], ids=str)
def test_the_rows_and_their_statistics_are_the_same(path, by):
    before = sorted_rows(path)
    file = compacted(path, by=by)
    assert sorted_rows(path).equals(before)
    assert file.schema_arrow.field("color").type == pa.string()
    (stats,) = (json.loads(text) for text in DeltaTable(path)._handle.newest_for_writing().files["stats"].to_pylist())
    expected = pc.min_max(before["color"]).as_py()
    assert (stats["minValues"]["color"], stats["maxValues"]["color"]) == (expected["min"], expected["max"])
    assert expected == {"min": "", "max": "red"}
    assert stats["nullCount"] == {"n": 0, "color": before["color"].null_count, "text": 0, "none": before.num_rows}
    column = file.metadata.row_group(0).column(1)
    assert (column.statistics.min, column.statistics.max) == ("", "red")
    assert column.has_dictionary_page
