"""Column chunks with NaN have no bounds in the footer, and those with zeros no encodings of pages. All other parts of a
file are as pyarrow writes them."""

from __future__ import annotations

import io
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import float_tables
from comparison import assert_same_rows
from refdelta.engine.parquet import metadata as module
from refdelta.engine.parquet.float_chunks import FloatChunks, float_leaves
from refdelta.engine.parquet.metadata import check_footer
from tiers import examples

NAN = math.nan
STRUCT = pa.struct({"x": pa.float64(), "t": pa.string()})
ROWS = pa.table(
    {
        "n": range(6),
        "d": [0.5, NAN, None, 2.0, 3.0, -0.0],
        "f": pa.array([1.0, 2.0, 3.0, 4.0, 5.0, NAN], pa.float32()),
        "s": pa.array([{"x": NAN, "t": "a"}, None, *[{"x": 1.0, "t": "b"}] * 4], STRUCT),
        "l": [[1.0], [NAN, None], None, [], [2.0], [3.0]],
        "m": pa.array([[("a", 1.0)], [("b", NAN)], [], None, [("c", 2.0)], []], pa.map_(pa.string(), pa.float64())),
        "clean": [1.5, -1.5, None, math.inf, -math.inf, 0.0],
        "text": list("abcdef"),
        "all": pa.array([NAN] * 6),
    }
)
#: The row groups of three rows with NaN, by column.
WITH_NAN = {"d": {0}, "f": {1}, "s.x": {0}, "l.list.element": {0}, "m.key_value.value": {0}, "all": {0, 1}}


def written(rows, **options):
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=3, store_schema=False, **options)
    return sink.getvalue()


def found(rows, group_rows=3):
    chunks = FloatChunks(float_leaves(rows.schema))
    chunks.add(rows, group_rows)
    return chunks


def changed(rows, content):
    return found(rows).changed(content)


def footer(content):
    return pq.ParquetFile(io.BytesIO(content)).metadata


def columns(metadata):
    """The column chunks, each with its row group and its path."""
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            yield group, column.path_in_schema, column


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
def test_only_the_bounds_of_chunks_with_nan_are_left_out(pages, index):
    content = written(ROWS, write_page_index=index, data_page_version=pages)
    new = changed(ROWS, content)
    before, after = footer(content), footer(new)
    for (group, path, old), (_, _, column) in zip(columns(before), columns(after), strict=True):
        is_, was = column.to_dict(), old.to_dict()
        assert column.has_offset_index == old.has_offset_index == index
        if group in WITH_NAN.get(path, ()):
            assert not column.statistics.has_min_max, (group, path)
            assert not column.has_column_index
            assert column.statistics.null_count == old.statistics.null_count
            is_.pop("statistics"), was.pop("statistics")
        else:
            assert column.has_column_index == old.has_column_index == index
        assert is_ == was
    is_, was = after.to_dict(), before.to_dict()
    for one in (is_, was):
        del one["serialized_size"]
        for group in one["row_groups"]:
            del group["columns"]
    assert is_ == was
    assert after.schema.equals(before.schema)
    assert_same_rows(pq.read_table(io.BytesIO(new)), ROWS)


def test_values_under_nulls_are_no_nan():
    mask = pa.array([False, True, False])
    hidden = pa.array([1.0, NAN, 2.0])
    arrays = {
        "struct": pa.StructArray.from_arrays([hidden], ["x"], mask=mask),
        "list": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), hidden, mask=mask),
        "own": pa.Array.from_buffers(pa.float64(), 3, [pa.py_buffer(b"\5"), hidden.buffers()[1]]),
    }
    assert not found(pa.table(arrays)).nan
    assert found(pa.table(dict.fromkeys(arrays, hidden))).nan == {(0, 0), (0, 1), (0, 2)}
    long = pa.table({name: pa.concat_arrays([array] * 50) for name, array in arrays.items()})
    assert not found(long, 150).nan


def test_parts_of_longer_arrays_are_looked_at_alone():
    rows = ROWS.slice(3, 2)
    assert found(rows).nan == {(0, 10)}  # the column of NaN only
    joined = pa.concat_tables([ROWS.slice(3, 1), ROWS.slice(0, 1)])
    assert found(joined, 1).nan == {(0, 10), (1, 3), (1, 10)}


def test_row_groups_are_numbered_through():
    rows = ROWS.select(["n", "f"])
    chunks = FloatChunks(float_leaves(rows.schema))
    for _ in range(2):
        chunks.add(rows, 4)
    assert chunks.nan == {(1, 1), (3, 1)}


def test_leaves_have_the_numbers_of_parquet_columns():
    kinds = pa.schema(
        [
            ("a", pa.map_(pa.float32(), pa.list_(pa.struct([("b", pa.int8()), ("c", pa.float64())])))),
            ("d", pa.struct([("e", pa.string()), ("f", pa.struct([("g", pa.float16())]))])),
            ("h", pa.large_list(pa.float32())),
            ("i", pa.list_(pa.float64(), 2)),
            ("j", pa.int64()),
            ("k", pa.float64()),
        ]
    )
    sink = io.BytesIO()
    pq.write_table(kinds.empty_table(), sink)
    metadata = pq.ParquetFile(sink).metadata
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    assert [paths[leaf.number] for leaf in float_leaves(kinds)] == [
        "a.key_value.key",
        "a.key_value.value.list.element.c",
        "d.f.g",
        "h.list.element",
        "i.list.element",
        "k",
    ]


def page_encodings(content):
    """The column chunks whose description says how pages are encoded, each by its row group and leaf column."""
    length = int.from_bytes(content[-8:-4], "little")
    reader = module.CompactReader(content, "the footer", deepest=60, start=len(content) - 8 - length)
    places = set()

    def chunk(place):
        for _ in reader.fields({3: module.STRUCT}):
            for _ in reader.fields({13: module.LIST}):
                places.add(place)
                reader.skip_list(module.STRUCT)

    for _ in reader.fields({4: module.LIST}):
        for group in range(reader.length(module.STRUCT)):
            for _ in reader.fields({1: module.LIST}):
                for leaf in range(reader.length(module.STRUCT)):
                    chunk((group, leaf))
    return places


def test_only_chunks_with_zeros_have_no_encodings_of_pages():
    rows = pa.table({"n": range(6), "a": [1.0, 2.0, 3.0, 0.0, 5.0, 6.0], "b": [-0.0, *[NAN] * 4, None], "c": [1.0] * 6})
    content = written(rows)
    assert page_encodings(content) == {(group, leaf) for group in range(2) for leaf in range(4)}
    assert page_encodings(content) - page_encodings(changed(rows, content)) == {(1, 1), (0, 2)}
    long = pa.concat_tables([rows] * 40)
    assert found(long, 120).zero == {(0, 1), (1, 1), (0, 2), (1, 2)}


@given(float_tables.parts(), st.integers(1, 20))
@examples(60)
def test_random_rows(rows, group_rows):
    """A chunk has bounds if and only if it has values and none of them is NaN."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=group_rows, write_page_index=True)
    content = sink.getvalue()
    new = found(rows, group_rows).changed(content)
    file = pq.ParquetFile(io.BytesIO(new))
    assert_same_rows(file.read(), rows)
    for group in range(file.num_row_groups):
        there = values_by_path(file.read_row_group(group))
        for number in range(file.metadata.num_columns):
            column = file.metadata.row_group(group).column(number)
            values = there[column.path_in_schema]
            bounded = bool(values) and not any(value != value for value in values)
            assert column.statistics.has_min_max == bounded, (group, column.path_in_schema)
            if bounded and column.physical_type in ("FLOAT", "DOUBLE"):
                low, high = min(values), max(values)
                # The lowest pyarrow bounds infinities alone by the last number before them.
                assert column.statistics.min <= low <= high <= column.statistics.max
                # Both zeros lie between the bounds (Parquet's specification, ColumnOrder).
                assert low or math.copysign(1, column.statistics.min) == -1
                assert high or math.copysign(1, column.statistics.max) == 1


def values_by_path(rows):
    """The values of each leaf that are not null, in Python."""
    found = {}

    def walk(value, kind, path):
        if pa.types.is_struct(kind):
            for item in kind:
                walk(None if value is None else value[item.name], item.type, f"{path}.{item.name}")
        elif pa.types.is_map(kind):
            for key, item in value or [(None, None)]:
                walk(key, kind.key_type, f"{path}.key_value.key")
                walk(item, kind.item_type, f"{path}.key_value.value")
        elif pa.types.is_list(kind):
            for item in value or [None]:
                walk(item, kind.value_type, f"{path}.list.element")
        else:
            found.setdefault(path, []).extend([] if value is None else [value])

    for field in rows.schema:
        for value in rows.column(field.name).to_pylist():
            walk(value, field.type, field.name)
    return found


def test_changed_footers_pass_the_check_by_pattern_and_by_loop(monkeypatch):
    monkeypatch.setattr(module, "_COMPILE_AFTER", 0)
    new = changed(ROWS, written(ROWS, write_page_index=True))
    metadata = footer(new)
    for _ in range(2):
        assert check_footer(metadata, lambda start, length: new[start : start + length], len(new)) == frozenset()
        monkeypatch.setattr(module.ChunkPattern, "end", lambda self, data, at: None)


def test_the_end_of_a_file_is_enough():
    content = written(ROWS, write_page_index=True)
    length = int.from_bytes(content[-8:-4], "little") + 8
    for start in (0, 100, len(content) - length):
        assert content[:start] + changed(ROWS, content[start:]) == changed(ROWS, content)


def test_a_field_whose_number_is_far_from_the_last_one_is_kept():
    """Thrift's short form of a field has at most 15 numbers between."""
    far = bytes([1 << 4 | 5, 2, 15 << 4 | 5, 4, 2 << 4 | 5, 6, 0])  # the fields 1, 16 and 18
    reader = module.CompactReader(far, "a struct", deepest=3)
    copied = reader.copy(without=[16])
    assert copied == bytes([1 << 4 | 5, 2, 5, 36, 6, 0])
    assert reader.position == len(far)
    again = module.CompactReader(copied, "a struct", deepest=3)
    assert {number: again.integer() for number in again.fields({1: 5, 18: 5})} == {1: 1, 18: 3}


@pytest.mark.tier("test")
def test_a_large_file_is_changed_in_the_row_groups_with_nan(tmp_path):
    from refdelta import DeltaTable, write_deltalake
    from refdelta.engine.parquet.file_options import FileOptions, files_written_with

    values = np.arange(300_000.0)
    values[150_000] = NAN
    rows = pa.table({"d": values, "clean": np.arange(300_000.0)})
    with files_written_with(FileOptions(row_group_rows=100_000)):
        write_deltalake(tmp_path / "t", rows)
    (path,) = DeltaTable(tmp_path / "t").file_uris()
    chunks = columns(pq.read_metadata(path))
    assert [(group, name) for group, name, chunk in chunks if not chunk.statistics.has_min_max] == [(1, "d")]
    assert DeltaTable(tmp_path / "t").count("isnan(d)") == 1
    assert_same_rows(pq.read_table(path), rows)
