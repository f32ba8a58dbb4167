"""Deletion vectors between refdelta and delta-spark: each reads the other's, and writes on over them.

Random sets of rows, scattered, dense and in runs, over files of more rows than one container of a bitmap holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_tables
from refdelta import DeltaTable, write_deltalake
from refdelta.engine.dv import load_deletion_vector
from refdelta.engine.snapshot import load_snapshot
from refdelta.engine.state import to_adds
from refdelta.location import open_location
from refdelta.protocol.deletion_vector import frame, relative_key, serialize_bitmap
from refdelta.spark import oracle
from spark_tables import examples

pytestmark = pytest.mark.spark

ROWS, FILES = 70_000, 3
VECTORS = {"delta.enableDeletionVectors": "true"}

places = st.integers(0, ROWS - 1)
lengths = st.integers(1, 40_000)
row_sets = st.one_of(
    st.sets(places, max_size=20),
    st.sets(places, min_size=1, max_size=20).map(lambda kept: set(range(ROWS)) - kept),
    st.builds(lambda start, step: set(range(start % step, ROWS, step)), places, st.integers(2, 500)),
    st.builds(lambda start, length: set(range(start, min(ROWS, start + length))), places, lengths),
    st.builds(lambda length: {row for row in range(ROWS) if row // length % 2}, lengths),
    st.just(set(range(ROWS))),
)
rows_of_files = st.lists(row_sets, min_size=FILES, max_size=FILES)


def build(path: Any, first: list[set[int]], second: list[set[int]]) -> None:
    """Files of rows ``(id, first, second)``: which of two deletes takes the row."""
    for file in range(FILES):
        columns = {"id": np.arange(file * ROWS, (file + 1) * ROWS)}
        for name, gone in (("first", first), ("second", second)):
            columns[name] = np.zeros(ROWS, dtype=bool)
            columns[name][list(gone[file])] = True
        write_deltalake(path, pa.table(columns), mode="append", configuration=VECTORS)


def left(*deletes: list[set[int]]) -> pa.ChunkedArray:
    kept = np.ones(FILES * ROWS, dtype=bool)
    for gone in deletes:
        for file in range(FILES):
            kept[[file * ROWS + row for row in gone[file]]] = False
    return pa.chunked_array([np.flatnonzero(kept)])


def seen_by_refdelta(path: Any) -> pa.ChunkedArray:
    found = DeltaTable(path).to_pyarrow_table(["id"])
    assert DeltaTable(path).count() == found.num_rows
    return found.sort_by("id")["id"]


def seen_by_spark(spark: Any, path: Any) -> pa.ChunkedArray:
    return spark_tables.sql(spark, path, "SELECT id FROM {t}").toArrow().sort_by("id")["id"]


@examples(3)
@given(first=rows_of_files, second=rows_of_files, ours_first=st.booleans())
def test_each_deletes_over_the_vectors_of_the_other(quick_spark, fresh_path, first, second, ours_first):
    spark, path = quick_spark, fresh_path()
    build(path, first, second)
    for column, ours in (("first", ours_first), ("second", not ours_first)):
        if ours:
            DeltaTable(path).delete(column)
        else:
            spark_tables.sql(spark, path, f"DELETE FROM {{t}} WHERE {column}")
        wanted = left(first) if column == "first" else left(first, second)
        assert seen_by_refdelta(path).equals(wanted)
        assert seen_by_spark(spark, path).equals(wanted)


@examples(2)
@given(first=rows_of_files)
def test_vectors_are_the_bytes_that_spark_writes(quick_spark, fresh_path, first):
    spark, path = quick_spark, fresh_path()
    build(path, first, [set()] * FILES)
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE first")
    store = open_location(path)
    vectors = [add.deletion_vector for add in to_adds(load_snapshot(store).files)]
    for vector in filter(None, vectors):
        body = serialize_bitmap(load_deletion_vector(store, vector))
        assert len(body) == vector.size_in_bytes
        stored = store.get_range(relative_key(vector.path_or_inline_dv), vector.offset, len(body) + 8)
        assert stored == frame(body)


def test_checksums_and_checkpoints_over_vectors(spark, tmp_path):
    """delta-spark validates the checksum against the state that it reads, and reads on from our checkpoint."""
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": range(5_000)}), configuration=VECTORS)
    table = DeltaTable(path)
    table.delete("id % 3 = 0")
    table.update({"id": "-id"}, predicate="id % 5 = 0")
    table.create_checkpoint()
    table.delete("id = 1")
    wanted = sorted([-n if n % 5 == 0 else n for n in range(5_000) if n % 3 and n != 1])
    assert sorted(oracle.read_table(spark, path)["id"].to_pylist()) == wanted
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE id = 2")
    wanted.remove(2)
    assert sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist()) == wanted
    assert sorted(oracle.read_table(spark, path)["id"].to_pylist()) == wanted
