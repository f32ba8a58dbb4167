"""Filters before the other columns are decoded, files in parts, and files that share the plan of their columns."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import VECTORS, Handmade, field, struct
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet import files, limits
from refdelta.engine.scan import filters, reader
from refdelta.engine.scan import scan as scans
from refdelta.engine.scan.reader import FileReader
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.engine.work.executor import ThreadExecutor
from refdelta.errors import DataFileError
from refdelta_storage import LocalStore
from scanned import rows, scan
from tiers import examples
from written_tables import inline_vector

LONGS = {"type": "array", "elementType": "long", "containsNull": True}
COLUMNS = struct(field("x", "long"), field("s", "string"), field("d", "decimal(10,2)"), field("l", LONGS))
COUNT = 200


def content(count=COUNT):
    return pa.table(
        {
            "x": pa.array(range(count), pa.int64()),
            "s": [None if x % 11 == 0 else f"text {x % 5}" for x in range(count)],
            "d": pa.array([Decimal(x) for x in range(count)], pa.decimal128(10, 2)),
            "l": [[x, None] if x % 3 else [] for x in range(count)],
        }
    )


@contextlib.contextmanager
def small(batch, searched=1):
    """Batches of few rows, and files that are not too short to search their columns first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BATCH_ROWS", batch)
        patch.setattr(reader, "FEW_ROWS", 0)
        patch.setattr(reader, "_SEARCHED_ROWS", searched)
        yield


FILTERS = {
    "x >= 150": lambda row: row["x"] >= 150,
    "s = 'text 3'": lambda row: row["s"] == "text 3",
    "s = 'text 3' or x < 7": lambda row: row["s"] == "text 3" or row["x"] < 7,
    "d > 12.5 and d <= 150": lambda row: 12.5 < row["d"] <= 150,
    "x > 20 and 100 / (x - 20) >= 1": lambda row: 20 < row["x"] <= 120,  # it fails for a row that is deleted
    "l is not null and s is null": lambda row: row["s"] is None,
    "x = -1": lambda _: False,
}


@pytest.mark.tier("test")
@pytest.mark.parametrize("sql", FILTERS)
@given(data=st.data())
@examples(6)
def test_a_filter_over_batches_row_groups_and_deleted_rows(sql, data):
    deleted = data.draw(st.sets(st.integers(0, COUNT - 1))) | {20}
    batch, group, searched = (data.draw(st.integers(20, 150)) for _ in range(3))
    columns = data.draw(st.sampled_from([None, [], ["l"], ["x"], ["d", "s"], ["s", "x", "l"]]))
    table = Handmade(COLUMNS, protocol=VECTORS)
    table.commit(table.data("f", content(), deletionVector=inline_vector(deleted), parquet={"row_group_size": group}))
    expected = [row for row in content().to_pylist() if row["x"] not in deleted and FILTERS[sql](row)]
    with small(batch, searched):
        found = rows(table, columns, sql)
    names = content().column_names if columns is None else columns
    assert found == [{name: row[name] for name in names} for row in expected]


@pytest.mark.tier("test")
@given(st.integers(20, 150), st.integers(20, 150), st.sets(st.integers(0, COUNT - 1)))
@examples(6)
def test_an_expression_of_pyarrow_and_positions(batch, group, deleted):
    table = Handmade(COLUMNS, protocol=VECTORS)
    dv = {"deletionVector": inline_vector(deleted)} if deleted else {}
    table.commit(table.data("f", content(), parquet={"row_group_size": group}, **dv))
    planned = scan(table, ["s"], pc.field("x") > 60)
    plan = replace(planned.plan, positions=True)
    with small(batch):
        batches = list(FileReader(planned.store, plan).read(scan_files(planned)[0]))
    found = pa.Table.from_batches(batches, plan.schema)
    assert found.column(1).to_pylist() == [x for x in range(61, COUNT) if x not in deleted]
    assert found.column(0).to_pylist() == [content()["s"][x].as_py() for x in range(61, COUNT) if x not in deleted]


def damaged(column):
    """A file whose second of two row groups has a damaged page of a column."""
    sink = pa.BufferOutputStream()
    pq.write_table(content(), sink, row_group_size=COUNT // 2, compression="zstd", write_statistics=False)
    data = bytearray(sink.getvalue().to_pybytes())
    footer = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    chunk = footer.row_group(1).column(names.index(column))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    end = start + chunk.total_compressed_size
    data[end - 12 : end] = b"\xff" * 12
    return bytes(data)


def test_columns_are_decoded_only_in_row_groups_with_a_match():
    table = Handmade(COLUMNS)
    data = damaged("s")
    table.put("f.parquet", data)
    table.commit({"add": {**table.data("g", content())["add"], "path": "f.parquet", "size": len(data), "stats": None}})
    with small(50):
        assert len(rows(table, ["s"], "x < 60")) == 60
        assert rows(table, predicate="x = 1000") == []
        with pytest.raises(DataFileError, match=r"f\.parquet"):
            scan(table, ["s"], "x = 150").to_table()
    with pytest.raises(DataFileError, match=r"f\.parquet"):  # a short file is read at once
        scan(table, ["s"], "x < 60").to_table()


def test_text_that_is_not_returned_need_not_be_valid():
    table = Handmade(struct(field("x", "long"), field("s", "string")))
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    table.commit(table.data("f", pa.table({"x": [1, 2, 3], "s": texts}), parquet={"use_dictionary": False}))
    with small(100):
        assert rows(table, predicate="x <> 2") == [{"x": 1, "s": "a"}, {"x": 3, "s": "c"}]
        for sql in ("x = 2", "s <> 'a'"):
            with pytest.raises(DataFileError, match="UTF8"):
                scan(table, predicate=sql).to_table()


def test_only_tables_in_memory_come_in_larger_batches(monkeypatch):
    """A batch of an expression's results, or of padded strings, must fit into memory."""
    monkeypatch.setattr(reader, "BATCH_ROWS", 50)
    padded = field("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(9)")
    table = Handmade(struct(*map(field, "xs", ("long", "string")), padded))
    columns = {"x": range(COUNT), "s": ["text"] * COUNT, "c": ["c"] * COUNT}
    table.commit(table.data("f", pa.table(columns), stats=None))

    def most(*arguments):
        chunks = scan(table, *arguments).to_table()["x"].chunks
        assert sum(map(len, chunks)) == COUNT
        return max(map(len, chunks))

    assert most(["x", "s"]) == 100
    assert most(["x"], "x >= 0 and s is not null or s in ('a', 'b') or not s like 'text%'") == 100
    assert most(["x"], "length(s) > 0") == 50
    assert most(["x"], pc.field("x") >= 0) == 50
    assert most(["x", "c"]) == 50
    assert most(["x"], "c <> 'd'") == 50
    assert max(batch.num_rows for batch in scan(table, ["x", "s"]).to_batches()) == 50


def test_a_predicate_is_walked_through_as_often_for_many_files_as_for_one(monkeypatch):
    walks, columns = [], filters.predicate_columns
    monkeypatch.setattr(filters, "predicate_columns", lambda predicate: walks.append(1) or columns(predicate))
    table, counts = Handmade(COLUMNS), []
    for number in range(3):
        table.commit(table.data(f"f{number}", content(), parquet={"row_group_size": 10}))
        walks.clear()
        assert len(rows(table, predicate="x > 190 and d < 195")) == 4 * (number + 1)
        counts.append(len(walks))
    assert counts[0] > 0
    assert counts == counts[:1] * 3


# --- parts -------------------------------------------------------------------------------------------------------


@pytest.mark.tier("test")
@pytest.mark.parametrize("said", [1.0, 0.0, 0.3, 20.0], ids=str)
@pytest.mark.parametrize("group", [10, 64, COUNT])
def test_a_file_in_parts_gives_each_row_once_and_in_order(tmp_path, monkeypatch, said, group):
    table = Handmade(COLUMNS, store=LocalStore(tmp_path), protocol=VECTORS)
    for number in range(3):
        made = table.data(
            f"f{number}", content(), parquet={"row_group_size": group}, deletionVector=inline_vector({1, 150})
        )
        size = made["add"]["size"]
        made["add"]["size"] = int(size * said)
        table.commit(made)
    monkeypatch.setattr(scans, "_PART_BYTES", size // 5)
    parts = [part for file in scan_files(scan(table)) for part in scans._parts(file)]
    assert len(parts) >= 3 * min(64, max(1, int(5 * said)))
    looked, examine = [], limits.examine_footer
    monkeypatch.setattr(limits, "examine_footer", lambda *arguments: looked.append(1) or examine(*arguments))
    planned = scan(table, executor=ThreadExecutor(1))
    planned.to_table()
    assert len(looked) == 3  # one look at a footer, however many parts
    live = [x for x in range(COUNT) if x not in (1, 150)]
    assert [row["x"] for row in rows(table)] == live * 3
    assert [row["x"] for row in rows(table, ["x"], "s = 'text 3'")] == [x for x in live if x % 5 == 3 and x % 11] * 3


@pytest.mark.parametrize("workers", [1, 4])
def test_the_row_groups_of_a_file_in_parts_are_chosen_once(tmp_path, monkeypatch, workers):
    table = Handmade(COLUMNS, store=LocalStore(tmp_path))
    for number in range(3):
        made = table.data(f"f{number}", content(), parquet={"row_group_size": 10})
        table.commit(made)
    monkeypatch.setattr(scans, "_PART_BYTES", made["add"]["size"] // 5)
    chosen, choose = [], reader.groups_to_read
    monkeypatch.setattr(reader, "groups_to_read", lambda *arguments: chosen.append(1) or choose(*arguments))
    planned = scan(table, ["x"], "x between 35 and 150", executor=ThreadExecutor(workers))
    assert planned.to_table()["x"].to_pylist() == list(range(35, 151)) * 3
    if workers == 1:  # otherwise the last part of a file may be opened before another one
        assert len(chosen) == 3


# --- small files, and files of one form --------------------------------------------------------------------------


@pytest.mark.parametrize("said", [0, 10, 2**40])
def test_a_wrong_size_in_the_log_does_not_matter(tmp_path, monkeypatch, said):
    monkeypatch.setattr(files, "SMALL_BYTES", 3_000)
    table = Handmade(struct(field("x", "long")), store=LocalStore(tmp_path))
    for count in (10, 5_000):
        made = table.data(f"f{count}", pa.table({"x": range(count)}))
        table.commit({"add": {**made["add"], "size": said}})
    assert [row["x"] for row in rows(table)] == [*range(10), *range(5_000)]


def test_files_of_one_schema_share_the_plan_of_their_columns():
    table = Handmade(struct(field("a", "long"), field("b", "string")))
    plain = pa.table({"a": [1], "b": ["x"]})
    forms = [
        plain,
        plain.slice(0, 0),
        plain.select(["b", "a"]),  # another order
        pa.table({"A": pa.array([2], pa.int32()), "b": ["y"]}),  # another name and type
        pa.table({"b": ["z"]}),
        plain.replace_schema_metadata({"org.apache.spark.version": "2.4.0"}),  # another calendar
        plain,
    ]
    for number, form in enumerate(forms):
        table.commit(table.data(f"f{number}", form, parquet={"store_schema": number == 5}))
    planned = scan(table)
    shared = FileReader(planned.store, planned.plan)
    found = {
        file.key: [row for batch in shared.read(file) for row in batch.to_pylist()] for file in scan_files(planned)
    }
    one = {"a": 1, "b": "x"}
    assert found == {
        **{f"f{number}": [one] for number in (0, 2, 5, 6)},
        "f1": [],
        "f3": [{"a": 2, "b": "y"}],
        "f4": [{"a": None, "b": "z"}],
    }
    assert len(shared._layouts) == 5


def test_a_table_that_is_read_whole_waits_for_nobody(monkeypatch):
    """All rows are kept, so that a limit of those that wait would only stop the readers."""
    table = Handmade(COLUMNS)
    for number in range(3):
        table.commit(table.data(f"f{number}", content()))
    planned = plan_scan(load_snapshot(table.store))
    budgets = []

    def stream(self, *arguments, budget, **options):
        budgets.append(budget)
        return original(self, *arguments, budget=budget, **options)

    original = ThreadExecutor.stream
    monkeypatch.setattr(ThreadExecutor, "stream", stream)
    assert planned.to_table().num_rows == 3 * COUNT
    assert sum(batch.num_rows for batch in planned.to_batches()) == 3 * COUNT
    assert budgets[0] > 2**60
    assert budgets[1] is None
