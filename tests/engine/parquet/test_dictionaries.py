"""Texts that stay places in a dictionary from file to file, and columns that get no dictionary."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refdelta import DeltaTable, write_deltalake
from refdelta.arrow.arrays import check_texts
from refdelta.engine.parquet import limits
from refdelta.engine.parquet.dictionaries import decoded, dictionary_columns, joined, plain, text_size
from refdelta.engine.parquet.limits import BoundedParquetFile

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


@pytest.mark.parametrize(
    "texts",
    [["A", "N", "R"], ["äb", "cde", "f\0g"], ["one", "three"], [""], ["", "a"], ["x" * 40, "y" * 40], [None, "a"], []],
    ids=repr,
)
@pytest.mark.parametrize("nulls", [False, True])
def test_decoded_texts_are_those_of_arrow(texts, nulls):
    for first in range(min(2, len(texts) + 1)):
        dictionary = pa.array(texts, pa.string()).slice(first)
        places = [place % len(dictionary) for place in (0, 1, 1, 2, 0, 5, 2)] if len(dictionary) else []
        indices = pa.array([None if nulls and place == 1 else place for place in places], pa.int32())
        column = pa.DictionaryArray.from_arrays(indices, dictionary)
        for part in (column, column.slice(2), column.slice(1, 3), column.slice(0, 0)):
            found = decoded(part)
            found.validate(full=True)
            assert found.type == pa.string()
            assert found.equals(part.dictionary_decode())
            assert found.nbytes <= part.dictionary_decode().nbytes


@pytest.mark.tier("test")
def test_texts_are_kept_as_places_where_the_file_has_them_so(tmp_path):
    written(tmp_path / "file")
    with opened(tmp_path / "file") as file:
        assert file.keep_dictionaries(["few", "many", "gone"]) == {"few": True}
        batches = list(file.iter_batches(columns=["few", "other", "many", "pair"]))
        table = pa.Table.from_batches(batches)
        assert [pa.types.is_dictionary(kind) for kind in table.schema.types] == [True, False, False, False]
        assert pa.Table.from_batches(list(map(plain, batches))).equals(
            pq.read_table(tmp_path / "file", columns=["few", "other", "many", "pair"])
        )


@pytest.mark.tier("test")
def test_texts_are_texts_where_the_file_has_no_dictionary(tmp_path):
    written(tmp_path / "file", use_dictionary=["other"])
    with opened(tmp_path / "file") as file:
        assert file.keep_dictionaries(["few", "other"]) == {"other": True}
    with opened(tmp_path / "file") as file:
        assert file.keep_dictionaries(["few"]) == {}


def test_a_large_dictionary_is_kept_where_no_text_stands_beside_it(tmp_path):
    texts = pa.table({"t": [f"text {n}" for n in range(100_000)]})
    for rows, kept in ((20_000, {"t": False}), (100_000, {})):
        pq.write_table(texts.slice(0, rows), tmp_path / "file", store_schema=False)
        with opened(tmp_path / "file") as file:
            assert file.keep_dictionaries(["t"]) == kept
            assert pa.concat_tables([joined([plain(batch)]) for batch in file.iter_batches()]).equals(texts[:rows])


def test_rows_whose_texts_would_take_too_much_come_in_pieces(tmp_path, monkeypatch):
    """Read as places, a batch is small: it is cut before texts are made of them."""
    rows = pa.table({"n": np.arange(20_000), "t": ["x" * 1000, "y"] * 10_000})
    write_deltalake(tmp_path / "t", rows)
    monkeypatch.setattr(limits, "BATCH_BYTES", 2**20)
    batches = list(DeltaTable(tmp_path / "t").scan().to_batches())
    assert len(batches) >= 20
    assert max(batch.nbytes for batch in batches) <= 2**20
    assert pa.Table.from_batches(batches).equals(rows)


def test_dictionaries_that_the_writer_asks_for_are_none_here(tmp_path):
    """pyarrow notes what a column was, and makes the same of it; they may be dictionaries of numbers."""
    rows = pa.table({"t": ["a", "b"] * 5000, "n": [1, 2] * 5000})
    write_deltalake(tmp_path / "t", rows)
    (name,) = DeltaTable(tmp_path / "t").files()["path"].to_pylist()
    other = pa.table({"t": rows["t"].dictionary_encode(), "n": rows["n"].dictionary_encode()})
    pq.write_table(other, tmp_path / "t" / name)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().equals(rows)


def test_the_size_of_rows_is_that_of_their_texts():
    for texts in (["a", None, "bcd"] * 1000, ["long" * 20, "b", None] * 1000):
        plain_rows = pa.record_batch({"t": texts})
        rows = pa.record_batch({"t": plain_rows["t"].dictionary_encode()})
        assert plain_rows.nbytes <= text_size(rows) <= 3 * plain_rows.nbytes
        assert text_size(plain_rows) == plain_rows.nbytes


def test_places_that_are_none_are_found():
    for places in ([0, 2], [-1, 0]):
        column = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(["a", "b"]), safe=False)
        with pytest.raises(pa.ArrowException, match="bound"):
            check_texts(pa.record_batch({"t": column}))
    latin = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xe9")]
    )
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        check_texts(pa.record_batch({"t": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), latin)}))


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


@pytest.mark.sample(check=2)
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
