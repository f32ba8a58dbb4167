"""Texts that stay places in a dictionary from file to file, and columns that get no dictionary."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta.engine.dictionaries import dictionary_columns, joined, plain
from refdelta.engine.limits import BoundedParquetFile

ROWS = 300_000
COLORS = pa.array(["red", None, "blue"] * (ROWS // 3))


def opened(path):
    source = pa.OSFile(str(path))
    return BoundedParquetFile(source, lambda start, length: source.read_at(length, start))


def written(path, **options):
    columns = {
        "few": COLORS,
        "other": COLORS,
        "number": np.arange(ROWS),
        "many": [f"text {n}" for n in range(ROWS)],
        "pair": pa.StructArray.from_arrays([COLORS], ["few"]),
        "pair.few": pa.array(["x"] * ROWS),
    }
    pq.write_table(pa.table(columns), path, row_group_size=100_000, store_schema=False, **options)


def test_texts_are_kept_as_places_where_the_file_has_them_so(tmp_path):
    written(tmp_path / "file")
    with opened(tmp_path / "file") as file:
        assert file.keep_dictionaries(["few", "many", "number", "gone"]) == {"few"}
        batches = list(file.iter_batches(columns=["few", "other", "many", "pair"]))
        table = pa.Table.from_batches(batches)
        assert [pa.types.is_dictionary(kind) for kind in table.schema.types] == [True, False, False, False]
        assert pa.Table.from_batches(list(map(plain, batches))).equals(
            pq.read_table(tmp_path / "file", columns=["few", "other", "many", "pair"])
        )


def test_texts_are_texts_where_the_file_has_no_dictionary(tmp_path):
    written(tmp_path / "file", use_dictionary=["other"])
    with opened(tmp_path / "file") as file:
        assert file.keep_dictionaries(["few", "other"]) == {"other"}
    with opened(tmp_path / "file") as file:
        assert file.keep_dictionaries(["few"]) == frozenset()


def test_batches_with_and_without_dictionaries_are_one_table():
    texts = [pa.array(["a", None]), pa.array(["b", "a"])]
    batches = [pa.record_batch({"t": text.dictionary_encode(), "n": [1, 2]}) for text in texts]
    both = joined(batches)
    assert both["t"].chunk(0).dictionary.equals(both["t"].chunk(1).dictionary)
    mixed = joined([batches[0], plain(batches[1])])
    assert mixed.schema.types == [pa.string(), pa.int64()]
    assert mixed["t"].to_pylist() == both["t"].to_pylist() == ["a", None, "b", "a"]


def test_texts_that_no_row_has_leave_dictionaries_with_nulls():
    """Parquet's writer counts null as one of them: it would find the bounds of texts that are gone."""
    batch = pa.record_batch({"t": pa.array(["a", None, "z"]).dictionary_encode()})
    assert pa.types.is_dictionary(joined([batch])["t"].type)
    assert joined([batch.slice(0, 2)])["t"].type == pa.string()


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.timestamp("us"), pa.decimal128(15, 2)], ids=str)
def test_a_column_of_other_values_in_each_row_gets_no_dictionary(kind):
    def column(values):
        if pa.types.is_decimal(kind):
            return pa.array([decimal.Decimal(int(value)) for value in values], kind)
        return pa.array(values).cast(kind)

    names = {"each": np.arange(ROWS), "some": np.arange(ROWS) // 3, "runs": np.sort(np.arange(ROWS) % 20_000)}
    table = pa.table({name: column(values) for name, values in names.items()})
    assert dictionary_columns(table) == ["some", "runs"]


def test_columns_that_cannot_have_too_large_a_dictionary_are_not_asked():
    assert dictionary_columns(pa.table({"n": np.arange(100_000)})) is True
    assert dictionary_columns(pa.table({"t": COLORS, "small": np.arange(ROWS).astype(np.int16)})) is True
    nested = pa.table({"n": np.arange(ROWS), "pair": pa.StructArray.from_arrays([COLORS], ["few"])})
    assert dictionary_columns(nested) is True
