"""Deletion vectors between the engines: each reads the rows that the other hides, and their bytes are the same.

The bytes are compared with delta-spark's own bitmaps, and with the files that its DELETE writes. A file of a table here
has 70,000 rows, so that its vectors have two containers.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

import spark_tables
from comparison import assert_same_rows
from refdelta import DeltaTable, write_deltalake
from refdelta.core.log.actions import Add
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.paths import commit_key
from refdelta.core.rows.deletion_vector import parse_bitmap, relative_key, serialize_bitmap
from refdelta.crosscheck import oracle
from refdelta.engine.parquet.dv import load_deletion_vector
from refdelta_storage import LocalStore
from spark_tables import tries
from tiers import examples
from written_tables import actions

pytestmark = pytest.mark.spark

VECTORS = {"delta.enableDeletionVectors": "true"}
ROWS, FILES = 70_000, 3

# --- bitmaps ---


def stretches(most: int) -> st.SearchStrategy[range]:
    """Rows in sequence, or every second or third one."""
    return st.builds(
        lambda start, count, step: range(start, start + count * step, step),
        st.integers(0, most),
        st.one_of(st.integers(1, 40), st.sampled_from([4095, 4096, 4097, 65_535, 65_536, 65_537, 140_000])),
        st.sampled_from([1, 1, 2, 3]),
    )


def bitmaps(most: int) -> st.SearchStrategy[BitMap64]:
    """Sparse, dense and full of runs, all in one bitmap."""
    scattered = st.lists(st.integers(0, most), max_size=60)
    near_a_border = st.sets(st.integers(65_500, 65_600), max_size=60)
    parts = st.tuples(scattered, near_a_border, st.lists(stretches(most), max_size=5))
    return parts.map(lambda three: BitMap64().union(BitMap64(three[0]), BitMap64(three[1]), *map(BitMap64, three[2])))


class SparkBitmaps:
    """delta-spark's bitmaps of 64-bit numbers, from bytes and back to bytes."""

    def __init__(self, spark: Any):
        self.classes = spark._jvm.org.apache.spark.sql.delta.deletionvectors
        formats = getattr(self.classes, "RoaringBitmapArrayFormat$")
        self.portable = getattr(formats, "MODULE$").Portable()

    def written(self, data: bytes) -> tuple[int, bytes]:
        """The number of rows that delta-spark finds in a vector, and its own encoding of these rows."""
        bitmap = self.classes.RoaringBitmapArray.readFrom(data)
        bitmap.removeRunCompression()
        bitmap.runOptimize()
        return bitmap.cardinality(), bytes(bitmap.serializeAsByteArray(self.portable))


def afresh(bitmap: BitMap64) -> BitMap64:
    """The same rows in a bitmap without run containers.

    Which parts of a bitmap are written as runs is a question of size. In a part that came as runs, the library here
    goes on with them where an array would be as long, or two bytes shorter. The rows are the same.
    """
    return BitMap64(bitmap.to_array())


@examples(150)
@given(bitmap=bitmaps(2**20))
def test_bitmaps_have_the_bytes_that_spark_gives_them(spark, bitmap):
    ours = serialize_bitmap(afresh(bitmap))
    assert SparkBitmaps(spark).written(ours) == (len(bitmap), ours)
    # What came as runs can be longer than it must be, by two bytes for 65,536 rows at most, and is the same to Spark.
    as_runs = serialize_bitmap(bitmap)
    assert SparkBitmaps(spark).written(as_runs) == (len(bitmap), ours)
    assert len(as_runs) <= len(ours) + 2 * len({row >> 16 for row in bitmap})


@examples(50)
@given(low=bitmaps(2**20), high=bitmaps(2**34), shift=st.integers(0, 40))
def test_rows_beyond_32_bits_are_the_same_rows(spark, low, high, shift):
    """delta-spark writes an empty part for each 2^32 rows below the last one of which none is deleted; here they are
    left out, as the specification allows. Each reads what the other writes.
    """
    bitmap = low | high.shift(shift << 32)
    ours = serialize_bitmap(afresh(bitmap))
    count, theirs = SparkBitmaps(spark).written(ours)
    assert count == len(bitmap)
    assert parse_bitmap(theirs, file="theirs", cardinality=count) == bitmap
    parts = range((bitmap.max() >> 32) + 1 if bitmap else 0)
    assert (theirs == ours) == all(bitmap.range_cardinality(part << 32, (part + 1) << 32) for part in parts)


# --- tables ---

PATTERNS = {
    "none": lambda n, _: n < 0,
    "one": lambda n, _: n == 69_999,
    "few": lambda n, random: random.random(len(n)) < 0.0005,
    "many": lambda n, random: random.random(len(n)) < 0.3,
    "a run": lambda n, _: (n >= 3) & (n < 66_000),
    "runs": lambda n, random: (n // random.integers(5, 500)) % 3 == 1,
    "every second": lambda n, _: n % 2 == 0,
    "all but one": lambda n, _: n != 65_536,
    "all": lambda n, _: n >= 0,
}
FIRST_AND_NEXT = [
    ("few", "many"),
    ("runs", "a run"),
    ("one", "runs"),
    ("a run", "every second"),
    ("all but one", "all"),
]


def write_patterns(path: Path, choices: list[tuple[str, str]], seed: int, **properties: str) -> None:
    """A file for each choice: rows that are to go first, and rows that are to go next."""
    random = np.random.default_rng(seed)
    numbers = np.arange(ROWS)
    for index, names in enumerate(choices):
        first, next_ = (PATTERNS[name](numbers, random) for name in names)
        part = pa.table({"f": np.full(ROWS, index), "n": numbers, "first": first, "next": next_})
        write_deltalake(path, part, mode="append", configuration=None if index else VECTORS | properties)


def rows_left(path: Path) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table(columns=["f", "n"])


def spark_rows(spark: Any, path: Path) -> pa.Table:
    oracle.clear_cache(spark)
    return oracle.frame(spark, path).select("f", "n").toArrow()


def assert_same_numbers(got: pa.Table, want: pa.Table) -> None:
    """True if two tables of ``f`` and ``n`` have the same rows, each of them once."""
    keys = [np.sort(np.asarray(table["f"]) * ROWS + np.asarray(table["n"])) for table in (got, want)]
    np.testing.assert_array_equal(*keys)
    assert len(np.unique(keys[0])) == len(keys[0])


def vectors_added(path: Path, version: int) -> list[Add]:
    commit = decode_commit(LocalStore(path).get(commit_key(version)), "log")
    return [action for action in commit if isinstance(action, Add) and action.deletion_vector is not None]


def assert_framed_as_here(path: Path, add: Add, bitmap: BitMap64) -> None:
    """The file of a vector has the bytes that this engine would write, in their frame."""
    vector = add.deletion_vector
    assert vector.storage_type == "u"
    data = (path / relative_key(vector.path_or_inline_dv)).read_bytes()
    body = serialize_bitmap(afresh(bitmap))
    assert data[0] == 1
    assert vector.size_in_bytes == len(body)
    framed = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    assert data[vector.offset : vector.offset + len(framed)] == framed


@pytest.mark.tier("nightly")
def test_rows_that_either_engine_hides_are_hidden_from_both(quick_spark, tmp_path):
    spark, ours, theirs = quick_spark, tmp_path / "ours", tmp_path / "theirs"
    write_patterns(ours, FIRST_AND_NEXT, seed=7)
    shutil.copytree(ours, theirs)
    for version, column in enumerate(("first", "next"), start=len(FIRST_AND_NEXT)):
        DeltaTable(ours).delete(column)
        spark_tables.sql(spark, theirs, f"DELETE FROM {{t}} WHERE {column}")
        want = spark_rows(spark, ours)
        for got in (rows_left(ours), rows_left(theirs), spark_rows(spark, theirs)):
            assert_same_numbers(got, want)
        assert oracle.validate_checksum(spark, ours)

        # The same vectors and statistics, and in the files of delta-spark the bytes that this engine would write.
        mine = {add.path: add for add in vectors_added(ours, version)}
        yours = {add.path: add for add in vectors_added(theirs, version)}
        assert mine.keys() == yours.keys()
        for path, add in yours.items():
            bitmap = load_deletion_vector(LocalStore(ours), mine[path].deletion_vector)
            assert load_deletion_vector(LocalStore(theirs), add.deletion_vector) == bitmap
            assert_framed_as_here(theirs, add, bitmap)
            assert json.loads(mine[path].stats) == json.loads(add.stats)
    assert rows_left(ours).num_rows > ROWS


# --- any rows ---

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


@tries(2)
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
    store = LocalStore(path)
    for add in vectors_added(path, DeltaTable(path).version()):
        if not ours:
            assert_framed_as_here(path, add, load_deletion_vector(store, add.deletion_vector))


# --- around the vectors ---


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("inline", ["true", "false"])
def test_one_file_of_vectors_serves_many_data_files(quick_spark, tmp_path, inline):
    """Small vectors stand in the log where the table asks for it, the others together in one file."""
    spark, path = quick_spark, tmp_path / "t"
    patterns = [(name, "none") for name in PATTERNS]
    write_patterns(path, patterns, seed=1, **{"refdelta.inlineDeletionVectors": inline})
    DeltaTable(path).delete("first")
    vectors = [add.deletion_vector for add in vectors_added(path, len(PATTERNS))]
    in_files = [vector for vector in vectors if vector.storage_type == "u"]
    assert {vector.storage_type for vector in vectors} == ({"i", "u"} if inline == "true" else {"u"})
    assert len(in_files) >= 3
    assert len({vector.path_or_inline_dv for vector in in_files}) == len(list(path.glob("*.bin"))) == 1
    assert_same_numbers(spark_rows(spark, path), rows_left(path))


def test_files_without_statistics_get_their_number_of_rows(spark, tmp_path):
    """An entry with a vector must say how many rows its file has; delta-spark wrote these without statistics."""
    path = tmp_path / "t"
    data = pa.table({"n": range(100)})
    spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        spark_tables.create(spark, path, data.schema, properties=VECTORS)
        spark_tables.write(spark, path, data)
    finally:
        spark.conf.unset("spark.databricks.delta.stats.collect")
    assert "stats" not in actions(path, 1, "add")[0]
    DeltaTable(path).delete("n < 10")
    assert json.loads(actions(path, 2, "add")[0]["stats"])["numRecords"] == 100
    assert_same_rows(oracle.read_table(spark, path), data.slice(10))
    spark_tables.sql(spark, path, "DELETE FROM {t} WHERE n > 90")
    assert_same_rows(DeltaTable(path).to_pyarrow_table(), data.slice(10, 81))
    assert oracle.validate_checksum(spark, path)
