"""Scans: what of a table's files becomes which rows.

Tests of engine.scan.file_stats, engine.scan.filters, engine.scan.reader.
"""

from __future__ import annotations

import datetime as dt
import threading
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from handmade import VECTORS, Handmade, add, field, struct
from refdelta.core.rows.deletion_vector import encode_relative, frame, serialize_bitmap, z85_encode
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.scan import reader
from refdelta.engine.scan.scan import plan_scan, scan_files
from refdelta.errors import (
    ColumnNotFoundError,
    DataFileError,
    DataFileNotFoundError,
    InvalidArgumentError,
    InvalidLogError,
    PredicateError,
    StoreError,
    UnsafePathError,
)
from refdelta_storage import LocalStore, MemoryStore, StorageError
from scanned import rows, scan
from tiers import examples

XS = struct(field("x", "long"), field("s", "string"))


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    """Local files are read by their paths, others through the store's streams."""
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def three_files(**options):
    table = Handmade(XS, **options)
    for i in range(3):
        content = pa.table({"x": range(10 * i, 10 * i + 10), "s": [f"v{j}" for j in range(10)]})
        stats = (
            f'{{"numRecords":10,"minValues":{{"x":{10 * i}}},"maxValues":{{"x":{10 * i + 9}}},"nullCount":{{"x":0}}}}'
        )
        table.commit(table.data(f"f{i}.parquet", content, stats=stats))
    return table


def test_properties_that_reading_does_not_need_are_not_looked_at():
    table = Handmade(XS, configuration={"delta.appendOnly": "perhaps", "delta.logRetentionDuration": "long"})
    table.commit(table.data("f", pa.table({"x": [1], "s": ["a"]})))
    assert rows(table) == [{"x": 1, "s": "a"}]
    with pytest.raises(InvalidLogError, match=r"delta\.columnMapping\.mode"):
        scan(Handmade(XS, configuration={"delta.columnMapping.mode": "perhaps"}))


# --- the shape of the result -------------------------------------------------------------------------------------


def test_all_rows_in_the_order_of_the_files(store):
    table = three_files(store=store)
    found = scan(table)
    assert found.to_table().column("x").to_pylist() == list(range(30))
    assert found.schema == pa.schema([("x", pa.int64()), ("s", pa.string())])
    assert found.to_reader().read_all() == found.to_table()
    assert pa.table(found) == found.to_table()  # the Arrow C stream; and a scan can be run again


def test_columns_are_chosen_in_any_case_and_order():
    table = three_files()
    assert scan(table, ["S", "x"]).to_table().column_names == ["s", "x"]
    assert scan(table, ["s"]).to_table().column_names == ["s"]
    with pytest.raises(ColumnNotFoundError, match="nope"):
        scan(table, ["nope"])
    for bad in ("x", ["x", "X"]):
        with pytest.raises(InvalidArgumentError):
            scan(table, bad)


def test_no_columns_is_still_rows():
    table = three_files()
    for predicate, count in ((None, 30), ("x >= 25", 5), ("x = 3 and s = 'v4'", 0)):
        found = scan(table, [], predicate).to_table()
        assert (found.num_columns, found.num_rows) == (0, count)
        assert scan(table, [], predicate).to_reader().read_all().num_rows == count


def test_an_empty_table():
    assert scan(Handmade(XS)).to_table() == pa.schema([("x", pa.int64()), ("s", pa.string())]).empty_table()
    assert scan(Handmade(XS)).count() == 0
    assert rows(Handmade(XS), predicate="x = 1") == []


def test_physical_columns_that_are_not_asked_for_are_not_read():
    table = Handmade(XS)
    # Reading s would fail: it is a struct in the file, and a string in the table.
    table.commit(table.data("f", pa.table({"x": [1], "s": [{"a": 1}]})))
    assert rows(table, ["x"]) == [{"x": 1}]
    with pytest.raises(DataFileError, match="column s"):
        scan(table).to_table()


# --- filters -----------------------------------------------------------------------------------------------------


def test_files_are_pruned_and_rows_are_filtered():
    table = three_files()
    assert [row["x"] for row in rows(table, predicate="x between 8 and 11")] == [8, 9, 10, 11]
    explained = scan(table, ["s"], "x between 8 and 11").explain()
    assert explained.as_dict()["paths"] == ["f0.parquet", "f1.parquet"]
    assert explained.as_dict()["pruned"] == [["f2.parquet", "stats"]]
    assert (explained.files, explained.files_read, explained.pruned_by_stats) == (3, 2, 1)
    assert explained.bytes > explained.bytes_read > 0
    text = str(explained)
    assert "2 of 3 read, 0 pruned by partition, 1 by statistics" in text
    assert "f2.parquet" in text
    assert "columns: s" in text


@pytest.mark.parametrize(
    "predicate",
    ["x > 12 and s = 'v5'", [("x", ">", 12), ("s", "=", "v5")], (pc.field("x") > 12) & (pc.field("s") == "v5")],
)
def test_every_form_of_a_filter(predicate):
    table = three_files()
    assert rows(table, ["x"], predicate) == [{"x": 15}, {"x": 25}]
    assert rows(table, predicate=predicate) == [{"x": 15, "s": "v5"}, {"x": 25, "s": "v5"}]
    assert rows(table, [], predicate) == [{}, {}]


def test_filters_that_do_not_fit():
    table = three_files()
    with pytest.raises(ColumnNotFoundError):
        scan(table, predicate="nope = 1")
    for bad in ("x = = 1", pc.field("nope") == 1, pc.field("x") == "text"):
        with pytest.raises(PredicateError):
            scan(table, predicate=bad)


@pytest.mark.parametrize(("predicate", "count"), [("true", 30), ("false", 0), ("null = 1", 0), ("1 = 1", 30)])
def test_filters_without_columns(predicate, count):
    for columns in (None, [], ["x"]):
        assert len(rows(three_files(), columns, predicate)) == count


def test_unknown_is_left_out():
    table = Handmade(XS)
    table.commit(table.data("f", pa.table({"x": [1, None, 3], "s": ["a", "b", None]})))
    assert rows(table, ["x"], "x <> 1") == [{"x": 3}]
    assert rows(table, ["x"], "not (s = 'a')") == [{"x": None}]


# --- partitions --------------------------------------------------------------------------------------------------

PARTITIONED = struct(field("d", "date"), field("x", "long"), field("p", "string"))


def partitioned():
    table = Handmade(PARTITIONED, "P", "d")  # the log need not spell them as the schema does
    for i, (date, text) in enumerate([("2024-01-01", "a b"), ("2024-01-02", None), (None, "é/=")]):
        content = pa.table({"x": [i, i + 10]})
        table.commit(table.data(f"f{i}", content, partitionValues={"d": date, "p": text}))
    return table


def test_partition_columns_are_typed_and_stand_where_the_schema_has_them():
    assert rows(partitioned()) == [
        {"d": dt.date(2024, 1, 1), "x": 0, "p": "a b"},
        {"d": dt.date(2024, 1, 1), "x": 10, "p": "a b"},
        {"d": dt.date(2024, 1, 2), "x": 1, "p": None},
        {"d": dt.date(2024, 1, 2), "x": 11, "p": None},
        {"d": None, "x": 2, "p": "é/="},
        {"d": None, "x": 12, "p": "é/="},
    ]
    assert rows(partitioned(), ["p"], "x = 11") == [{"p": None}]


@pytest.mark.parametrize(
    "predicate", ["d = date'2024-01-02'", pc.field("d") == dt.date(2024, 1, 2), [("p", "is", None)]]
)
def test_a_filter_on_partitions_alone_needs_no_look_at_rows(predicate):
    table = partitioned()
    planned = scan(table, ["x"], predicate)
    assert planned.to_table().to_pylist() == [{"x": 1}, {"x": 11}]
    explained = planned.explain()
    assert (explained.pruned_by_partition, explained.rows_filtered) == (2, False)
    table.store.delete(["f0", "f1", "f2"])
    assert planned.count() == 2  # from statistics alone


def test_a_file_may_hold_its_partition_columns_too():
    table = Handmade(PARTITIONED, "p", "d")
    content = pa.table({"x": [1], "p": ["wrong"], "d": [dt.date(1999, 1, 1)]})
    table.commit(table.data("f", content, partitionValues={"d": "2024-01-01", "p": "right"}))
    assert rows(table) == [{"d": dt.date(2024, 1, 1), "x": 1, "p": "right"}]


def test_a_partition_value_that_is_none_of_its_type():
    table = Handmade(PARTITIONED, "p", "d")
    table.commit(table.data("f", pa.table({"x": [1]}), partitionValues={"d": "yesterday", "p": "a"}))
    with pytest.raises(InvalidLogError, match="yesterday"):
        scan(table).to_table()


# --- deletion vectors --------------------------------------------------------------------------------------------


def vector(table, kind, deleted):
    bitmap = BitMap64(deleted)
    body = serialize_bitmap(bitmap)
    descriptor = {"storageType": kind, "sizeInBytes": len(body), "cardinality": len(bitmap)}
    if kind == "i":
        return descriptor | {"pathOrInlineDv": z85_encode(body + bytes(-len(body) % 4))}
    identity = uuid.uuid4()
    key = f"deletion_vector_{identity}.bin"
    table.put(key, b"\1" + b"other vectors" + frame(body))
    place = encode_relative(identity) if kind == "u" else f"{table.store.uri}/{key}"
    return descriptor | {"pathOrInlineDv": place, "offset": 14}


@pytest.mark.parametrize("kind", ["u", "i", "p"])
def test_deleted_rows_are_left_out(store, kind):
    table = Handmade(XS, protocol=VECTORS, store=store)
    content = pa.table({"x": range(100), "s": ["v"] * 100})
    deleted = [0, 1, 50, 99]
    dv = vector(table, kind, deleted)
    table.commit(table.data("f", content, deletionVector=dv, parquet={"row_group_size": 30}))
    expected = [x for x in range(100) if x not in deleted]
    assert [row["x"] for row in rows(table)] == expected
    assert [row["x"] for row in rows(table, ["x"], "x >= 50")] == expected[48:]
    assert len(rows(table, [])) == 96
    assert scan(table).explain().deletion_vectors == 1


@pytest.mark.tier("test")
@given(st.sets(st.integers(0, 199)), st.integers(1, 70), st.integers(1, 70))
@examples(40)
def test_deleted_rows_whatever_the_batches_and_row_groups(deleted, batch, group):
    table = Handmade(XS, protocol=VECTORS)
    dv = vector(table, "i", deleted)
    content = pa.table({"x": range(200), "s": [str(i) for i in range(200)]})
    table.commit(table.data("f", content, deletionVector=dv, parquet={"row_group_size": group}))
    before, reader.BATCH_ROWS = reader.BATCH_ROWS, batch
    try:
        assert [row["x"] for row in rows(table)] == [x for x in range(200) if x not in deleted]
        assert [row["x"] for row in rows(table, ["x"], "s like '1%'")] == [
            x for x in range(200) if x not in deleted and str(x).startswith("1")
        ]
    finally:
        reader.BATCH_ROWS = before


def test_counting_takes_deleted_rows_off_and_falls_back_to_footers():
    table = Handmade(XS, protocol=VECTORS)
    content = pa.table({"x": range(10), "s": ["v"] * 10})
    for i, stats in enumerate(['{"numRecords":10}', None, "{", '{"other":1}']):
        table.commit(table.data(f"f{i}", content, deletionVector=vector(table, "i", {i, 9}), stats=stats))
    assert scan(table).count() == 4 * 8
    assert len(rows(table)) == 4 * 8


def test_a_deletion_vector_that_is_gone_or_damaged():
    table = Handmade(XS, protocol=VECTORS)
    dv = vector(table, "u", {1})
    table.commit(table.data("f", pa.table({"x": [1, 2], "s": ["a", "b"]}), deletionVector=dv))
    (key,) = [info.key for info in table.store.list() if info.key.endswith(".bin")]
    content = table.store.get(key)
    table.put(key, content[:-1] + b"!")
    with pytest.raises(DataFileError, match="checksum") as caught:
        scan(table).to_table()
    assert caught.value.file == key
    table.put(key, content[:-5])
    with pytest.raises(DataFileError, match="ends"):
        scan(table).to_table()
    table.store.delete([key])
    with pytest.raises(DataFileNotFoundError, match=key):
        scan(table).to_table()


# --- bad files ---------------------------------------------------------------------------------------------------


def test_a_file_that_is_gone(store):
    table = three_files(store=store)
    table.store.delete(["f1.parquet"])
    with pytest.raises(DataFileNotFoundError, match=r"f1\.parquet"):
        scan(table).to_table()
    assert len(rows(table, predicate="x < 10")) == 10  # pruned, so never missed


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False, "compression": "none"}])
@pytest.mark.parametrize("predicate", [None, "x = 1", "s = 'a'"])
def test_a_file_without_rows(tmp_path, options, predicate):
    table = Handmade(XS, store=LocalStore(tmp_path))
    content = pa.table({"x": pa.array([1], pa.int64()), "s": ["a"]})
    table.commit(table.data("none.parquet", content.slice(0, 0), parquet=options, rows=None, stats=None))
    table.commit(table.data("one.parquet", content))
    assert rows(table, predicate=predicate) == [{"x": 1, "s": "a"}]


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "torn"])
def test_a_file_that_is_not_parquet(store, damage):
    table = three_files(store=store)
    content = store.get("f1.parquet")
    table.put(
        "f1.parquet",
        {
            "empty": b"",
            "text": b"a,b\n1,2\n" * 9,
            "truncated": content[:-20],
            "torn": content[:4] + b"\xff" * 60 + content[64:],
        }[damage],
    )
    with pytest.raises(DataFileError) as caught:
        scan(table).to_table()
    assert caught.value.file == "f1.parquet"


def test_trouble_of_the_system_is_not_blamed_on_the_file():
    class Troubled(MemoryStore):
        error = StorageError("no connection")

        def open_input(self, key, size=None):
            raise self.error

    table = three_files()
    content = {info.key: table.store.get(info.key) for info in table.store.list()}
    store = Troubled()
    for key, data in content.items():
        store.put(key, data)
    planned = plan_scan(load_snapshot(store))
    for error in (StorageError("no connection"), OSError(24, "Too many open files")):
        store.error = error
        with pytest.raises(StoreError, match=r"f0\.parquet"):
            planned.to_table()
    store.error = MemoryError()
    with pytest.raises(MemoryError):
        planned.to_table()


@pytest.mark.parametrize(
    "path", ["../other/f.parquet", "a/../../f", "%2e%2e/f", "file:///elsewhere/f", "s3://bucket/f", "/elsewhere/f"]
)
def test_a_path_that_leaves_the_table(tmp_path, path):
    table = Handmade(XS, store=LocalStore(tmp_path / "t", create=True))
    table.commit(add(path))
    with pytest.raises(UnsafePathError):
        scan(table).to_table()


def test_paths_are_decoded(store):
    table = Handmade(XS, store=store)
    content = pa.table({"x": [1], "s": ["a"]})
    action = table.data("a b/ü%41#?.parquet", content)
    action["add"]["path"] = "a%20b/%C3%BC%2541%23%3F.parquet"
    table.commit(action)
    assert rows(table) == [{"x": 1, "s": "a"}]
    inside = add(f"{store.uri}/abs.parquet", rows=1)
    table.data("abs.parquet", content)
    table.commit(inside)
    assert len(rows(table)) == 2


# --- streaming ---------------------------------------------------------------------------------------------------


def test_a_reader_that_is_dropped_stops_the_threads():
    table = three_files()
    before = threading.active_count()
    batches = scan(table).to_batches()
    next(batches)
    batches.close()
    assert threading.active_count() == before


def test_files_are_not_all_read_before_the_first_batch_is_taken(tmp_path):
    table = Handmade(XS, store=LocalStore(tmp_path))
    content = pa.table({"x": range(1000), "s": ["v" * 100] * 1000})
    for i in range(40):
        table.commit(table.data(f"f{i}", content))
    opened = []

    class Watching(LocalStore):
        def local_path(self, key):
            opened.append(key)
            return super().local_path(key)

    planned = plan_scan(load_snapshot(Watching(tmp_path)))
    stream = planned.executor.stream(
        lambda file: reader.read_file(planned.store, file, planned.plan),
        scan_files(planned),
        weigh=lambda batch: batch.nbytes,
        budget=300_000,
    )
    first = next(stream)
    assert first.num_rows == 1000
    assert len(opened) < 10
    assert sum(batch.num_rows for batch in stream) == 39_000


def test_a_file_of_many_row_groups_comes_in_batches():
    table = Handmade(XS)
    rows_ = 3 * reader.BATCH_ROWS
    content = pa.table({"x": pa.array(range(rows_)), "s": pa.nulls(rows_, pa.string())})
    table.commit(table.data("f", content, parquet={"row_group_size": rows_}))
    sizes = [batch.num_rows for batch in scan(table).to_batches()]
    assert max(sizes) <= reader.BATCH_ROWS
    assert sum(sizes) == rows_
    assert pq.ParquetFile(pa.BufferReader(table.store.get("f"))).num_row_groups == 1


# --- row groups --------------------------------------------------------------------------------------------------


GROUPED = struct(
    field("x", "long"), field("s", "string"), field("t", "timestamp"), field("f", "double"), field("wide", "long")
)


def grouped(tmp_path):
    table = Handmade(GROUPED, protocol=VECTORS, store=LocalStore(tmp_path))
    content = pa.table(
        {
            "x": range(100),
            "s": [f"{i:03d}" for i in range(100)],
            "t": pa.array(range(100), pa.timestamp("us", "UTC")),
            "f": [float(i) if i % 10 else float("nan") for i in range(100)],
            "wide": pa.array(range(100), pa.int32()),
        }
    )
    table.commit(table.data("f", content, parquet={"row_group_size": 10}))
    return table


@pytest.mark.parametrize(
    ("predicate", "groups"),
    [
        ("x = 42", 1),
        ("x < 15 or s >= '085'", 4),
        ("t < timestamp'1970-01-01 00:00:00.000025Z'", 3),
        ("x is null", 0),
        ("f > 1000", 10),  # NaN is greater than all, and is in none of the bounds
        ("wide = 42", 10),  # the bounds are those of another type
        ("x in (1, 2, 99) and f < 50", 2),
    ],
)
def test_row_groups_are_pruned_by_their_own_statistics(tmp_path, monkeypatch, predicate, groups):
    table = grouped(tmp_path)
    everything = scan(table).to_table()
    seen = []
    original = reader.groups_to_read
    monkeypatch.setattr(reader, "groups_to_read", lambda *a: seen.append(original(*a)) or seen[-1])

    found = scan(table, predicate=predicate).to_table()

    assert len(seen[0]) == groups
    expected = plan_scan(load_snapshot(table.store), predicate=predicate).predicate
    kept = pa.Table.from_batches([expected.apply(b) for b in everything.to_batches()], everything.schema)
    assert repr(found.to_pylist()) == repr(kept.to_pylist())  # as text, in which NaN is equal to itself


def test_deleted_rows_are_counted_over_row_groups_that_are_skipped(tmp_path):
    table = Handmade(XS, protocol=VECTORS, store=LocalStore(tmp_path))
    content = pa.table({"x": range(100), "s": ["v"] * 100})
    dv = vector(table, "u", {3, 42, 43, 99})
    table.commit(table.data("f", content, deletionVector=dv, parquet={"row_group_size": 10}))
    assert [row["x"] for row in rows(table, ["x"], "x between 40 and 45")] == [40, 41, 44, 45]


def test_row_groups_of_a_partitioned_file_with_columns_missing():
    schema = struct(field("x", "long"), field("p", "long"), field("later", "long"))
    table = Handmade(schema, "p")
    content = pa.table({"x": range(100)})
    table.commit(table.data("f", content, partitionValues={"p": "7"}, parquet={"row_group_size": 10}))
    assert rows(table, ["x"], "p = 7 and x > 97") == [{"x": 98}, {"x": 99}]
    assert rows(table, ["x"], "p = 8 or x > 98 or later = 1") == [{"x": 99}]
    assert rows(table, ["p"], "x < 1 and later is null") == [{"p": 7}]
