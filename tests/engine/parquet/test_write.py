"""Rows into data files: what lies where, in which form, and that nothing stays behind when it goes wrong.

Tests of engine.parquet.encode.
"""

from __future__ import annotations

import errno
import itertools
import json
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import comparison
import strategies
from refdelta.arrow.partition import parse_partition_column
from refdelta.arrow.schema import from_arrow, to_arrow
from refdelta.core.log.paths import data_key
from refdelta.engine.parquet import encode, write
from refdelta.engine.parquet.files import open_parquet
from refdelta.engine.parquet.metadata import read_page_headers
from refdelta.engine.parquet.write import abort_files, write_files
from refdelta.errors import InvalidArgumentError, StoreError, UnsupportedTypeError
from refdelta.table.properties import TableProperties
from refdelta.table.types import LONG, VOID, StructField, StructType
from refdelta_storage import LocalStore, MemoryStore
from refdelta_storage.wrappers import Fault, FaultyStore, WrapperStore
from tiers import examples


def fitted(table):
    """The table as write_files wants it, and its Delta schema."""
    schema = from_arrow(table.schema)
    return table.cast(to_arrow(schema)), schema


def write_table(store, table, partition_by=(), properties=None, **options):
    data, schema = fitted(table)
    batches = options.pop("rows_a_batch", None)
    return write_files(
        store,
        data.to_reader(max_chunksize=batches),
        schema=schema,
        partition_columns=list(partition_by),
        properties=TableProperties.parse(properties or {}),
        **options,
    )


def read_back(store, adds, table, partition_by=()):
    """All rows as a reader sees them: partition columns from the log, never from the file."""
    data, schema = fitted(table)
    parts = []
    for add in adds:
        part = open_parquet(store, data_key(add.path, store.uri)).read()
        columns = []
        for field in schema:
            if field.name in partition_by:
                strings = pa.array([add.partition_values[field.name]], pa.string())
                value = parse_partition_column(strings, field.type)[0]
                columns.append(pa.repeat(value, part.num_rows))
            else:
                columns.append(part.column(field.name))
        parts.append(pa.table(columns, schema=data.schema) if columns else part)
    return pa.concat_tables(parts) if parts else data.schema.empty_table()


def keys(store):
    return [info.key for info in store.list()]


def numbers(count, **columns):
    return pa.table({"n": pa.array(range(count), pa.int64()), **columns})


@pytest.mark.tier("test")
@examples(60)
@given(table=strategies.tables(parts=(1, 2)))
def test_what_is_written_is_read_back(table):
    store = MemoryStore(None)
    adds = [add for part in table.parts for add in write_table(store, part, table.partition_by)]
    seen = read_back(store, adds, table.whole, table.partition_by)
    assert comparison.rows(seen) == comparison.rows(fitted(table.whole)[0])
    assert sorted(keys(store)) == sorted(data_key(add.path, store.uri) for add in adds)
    for add in adds:
        assert store.head(data_key(add.path, store.uri)).size == add.size
        assert json.loads(add.stats)["numRecords"] > 0


@pytest.mark.parametrize("first", [True, False])
def test_texts_may_be_dictionaries_in_some_batches(monkeypatch, first):
    """Within a row group, and from one to the next: the file is of texts, whatever it began with."""
    monkeypatch.setattr(write, "_SMALL_ROWS", 10)
    monkeypatch.setattr(write, "ROW_GROUP_ROWS", 100)
    rows = numbers(400, text=[None if n % 7 == 0 else f"text {n % 31}" for n in range(400)], part=["p", "q"] * 200)
    data, schema = fitted(rows)
    at = data.schema.get_field_index("text")
    batches = []
    for number, batch in enumerate(data.to_batches(max_chunksize=40)):
        encoded = first if number in (0, 1, 2, 7) else not first
        batches.append(batch.set_column(at, "text", batch["text"].dictionary_encode()) if encoded else batch)
    for partition_by in ([], ["part"]):
        store = MemoryStore(None)
        adds = write_files(
            store, batches, schema=schema, partition_columns=partition_by, properties=TableProperties.parse({})
        )
        assert read_back(store, adds, rows, partition_by).sort_by("n").equals(data)
        for add in adds:
            stats = json.loads(add.stats)
            assert (stats["minValues"]["text"], stats["maxValues"]["text"]) == ("text 0", "text 9")


def test_pages_stay_small():
    """Of long texts fewer are encoded at once, so that no page has megabytes of them."""
    store = MemoryStore(None)
    rows = numbers(20_000, long=[f"{n:05d}" * 200 for n in range(20_000)])
    (add,) = write_table(store, rows)
    file = open_parquet(store, data_key(add.path, store.uri))
    chunk = file.metadata.row_group(0).column(1)
    pages = read_page_headers(file._bytes_at, chunk.dictionary_page_offset, chunk.num_values)
    assert max(page.size for page in pages) < 3 * 2**20


def test_no_rows_make_no_files():
    store = MemoryStore(None)
    assert write_table(store, numbers(0)) == []
    assert write_table(store, numbers(0), ["n"]) == []
    assert keys(store) == []


def test_order_is_kept_within_a_partition():
    table = numbers(5000, p=pa.array([i * 7 % 3 for i in range(5000)]))
    store = MemoryStore(None)
    adds = write_table(store, table, ["p"], rows_a_batch=700)
    assert [add.partition_values for add in adds] == [{"p": "0"}, {"p": "1"}, {"p": "2"}]
    for add in adds:
        read = open_parquet(store, add.path).read()
        assert read.column_names == ["n"]
        expected = table.filter(pc.equal(table["p"], int(add.partition_values["p"])))
        assert read["n"].to_pylist() == expected["n"].to_pylist()


def test_partition_folders_are_hive_style_and_paths_are_encoded():
    table = numbers(6, p=["a b", "x/y=1", "100%", None, "", "é"], q=pa.array([1.5] * 6))
    store = MemoryStore(None)
    adds = write_table(store, table, ["p", "q"])
    folders = {key.rsplit("/", 1)[0] for key in keys(store)}
    assert folders == {
        "p=a b/q=1.5",
        "p=x%2Fy%3D1/q=1.5",
        "p=100%25/q=1.5",
        "p=__HIVE_DEFAULT_PARTITION__/q=1.5",
        "p=é/q=1.5",
    }
    by_value = {add.partition_values["p"]: add.path.rsplit("/", 1)[0] for add in adds}
    # The empty string and null are one partition, and the escape character of folders is itself escaped in URIs.
    assert by_value[None] == "p=__HIVE_DEFAULT_PARTITION__/q=1.5"
    assert by_value["x/y=1"] == "p=x%252Fy%253D1/q=1.5"
    assert by_value["a b"] == "p=a%20b/q=1.5"
    assert sum(json.loads(add.stats)["numRecords"] for add in adds) == 6


def test_long_partition_values_do_not_break_the_file_system(tmp_path):
    store = LocalStore(tmp_path / "t", create=True)
    long = ["é" * 300, "é" * 300 + "x", "/" * 200]
    adds = write_table(store, numbers(3, p=long), ["p"])
    assert sorted(add.partition_values["p"] for add in adds) == sorted(long)
    assert len({add.path for add in adds}) == 3
    wide = {f"p{i}": ["v" * 250] for i in range(8)}
    with pytest.raises(InvalidArgumentError, match=r"path of \d+ bytes"):
        write_table(store, numbers(1, **wide), list(wide))
    assert len(keys(store)) == 3


def test_a_table_of_partition_columns_only_keeps_its_rows():
    table = pa.table({"p": ["a", "b", "a", None], "q": [1, 1, 1, 2]})
    store = MemoryStore(None)
    adds = write_table(store, table, ["p", "q"])
    counts = {
        (add.partition_values["p"], add.partition_values["q"]): open_parquet(store, add.path).metadata.num_rows
        for add in adds
    }
    assert counts == {("a", "1"): 2, ("b", "1"): 1, (None, "2"): 1}


@pytest.mark.tier("test")
def test_files_are_rolled_near_the_target():
    table = numbers(400_000, x=pc.random(400_000, initializer=1))
    store = MemoryStore(None)
    target = 500_000
    adds = write_table(store, table, target_file_size=target)
    assert len(adds) > 5
    assert all(target / 3 < add.size < target * 1.5 for add in adds[:-1])
    assert read_back(store, adds, table).sort_by("n").equals(table)
    # The files are consecutive pieces of the data, so that sorted data stays apart.
    bounds = [json.loads(add.stats) for add in adds]
    assert all(a["maxValues"]["n"] < b["minValues"]["n"] for a, b in itertools.pairwise(bounds))
    # The same by the table's property; and a call's own target wins over it.
    assert len(write_table(store, table, properties={"delta.targetFileSize": "500kb"})) > 5
    assert len(write_table(store, table, properties={"delta.targetFileSize": "500kb"}, target_file_size=2**30)) == 1


class OpenFiles(WrapperStore):
    """Counts how many outputs are open at once."""

    def __init__(self, inner):
        super().__init__(inner)
        self.now = self.most = 0

    @contextmanager
    def open_output(self, key):
        with self.inner.open_output(key) as sink:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                yield sink
            finally:
                self.now -= 1


def test_open_files_and_buffers_are_bounded(monkeypatch):
    monkeypatch.setattr(write, "OPEN_FILES", 5)
    monkeypatch.setattr(write, "BUFFER_BYTES", 40_000)
    monkeypatch.setattr(encode, "IN_FLIGHT_BYTES", 20_000)
    table = numbers(30_000, p=pa.array([i % 40 for i in range(30_000)]))
    store = OpenFiles(MemoryStore(None))
    adds = write_table(store, table, ["p"], rows_a_batch=1000, workers=2)
    assert store.most <= 5
    assert store.now == 0
    assert sum(json.loads(add.stats)["numRecords"] for add in adds) == 30_000
    assert read_back(store, adds, table, ["p"]).sort_by("n").equals(table)


@pytest.mark.tier("test")
@pytest.mark.parametrize("rule", [True, False])
def test_few_rows_of_a_partition_do_not_keep_whole_batches(monkeypatch, rule):
    """Most rows are of one partition, which is written all the time; each other has a row in each batch."""
    monkeypatch.setattr(write, "BUFFER_BYTES", 2**20)
    monkeypatch.setattr(encode, "IN_FLIGHT_BYTES", 2**20)
    if not rule:
        monkeypatch.setattr(write, "shares_copies", lambda _rows, _parts: False)
    before, most = pa.total_allocated_bytes(), 0

    def batches():
        for number in range(40):
            start = number * 40_000
            rows = numbers(40_000, p=pa.array([0 if i % 400 else 1 + i // 400 for i in range(40_000)]))
            yield rows.set_column(0, "n", pa.array(range(start, start + 40_000))).to_batches()[0]

    def watch(_rows):
        nonlocal most
        most = max(most, pa.total_allocated_bytes() - before)

    schema = from_arrow(numbers(1, p=pa.array([1])).schema)
    adds = write_files(
        MemoryStore(None),
        batches(),
        schema=schema,
        partition_columns=["p"],
        properties=TableProperties.parse({}),
        target_file_size=2**18,
        progress=watch,
    )
    assert sum(json.loads(add.stats)["numRecords"] for add in adds) == 40 * 40_000
    # A copy of what the files store of all rows has 12.8 MB.
    assert (most < 9 * 10**6) is rule, most


def test_row_groups_are_bounded(monkeypatch):
    monkeypatch.setattr(write, "ROW_GROUP_ROWS", 1000)
    store = MemoryStore(None)
    (add,) = write_table(store, numbers(4500))
    metadata = open_parquet(store, add.path).metadata
    assert metadata.num_row_groups == 5
    assert max(metadata.row_group(i).num_rows for i in range(5)) <= 1000


def test_many_small_batches_make_few_row_groups():
    store = MemoryStore(None)
    (add,) = write_table(store, numbers(3000), rows_a_batch=7)
    assert open_parquet(store, add.path).metadata.num_row_groups == 1


def test_the_parquet_form_is_the_one_that_spark_reads():
    table = pa.table(
        {
            "t": pa.array([1], pa.timestamp("us", "UTC")),
            "z": pa.array([1], pa.timestamp("us")),
            "d": pa.array([1], pa.decimal128(12, 2)),
            "l": pa.array([[1]], pa.list_(pa.int64())),
        }
    )
    store = MemoryStore(None)
    (add,) = write_table(store, table)
    parquet = open_parquet(store, add.path)
    assert b"ARROW:schema" not in (parquet.metadata.metadata or {})
    column = {parquet.schema.column(i).path: parquet.schema.column(i) for i in range(4)}
    assert json.loads(column["t"].logical_type.to_json())["isAdjustedToUTC"] is True
    assert json.loads(column["z"].logical_type.to_json())["isAdjustedToUTC"] is False
    assert {column[name].physical_type for name in "tzd"} == {"INT64"}
    assert "l.list.element" in column


@pytest.mark.parametrize(
    ("codec", "suffix", "stored"),
    [
        (None, "-c000.snappy.parquet", "SNAPPY"),
        ("zstd", "-c000.zstd.parquet", "ZSTD"),
        ("gzip", "-c000.gz.parquet", "GZIP"),
        ("none", "-c000.parquet", "UNCOMPRESSED"),
        ("lz4", "-c000.lz4raw.parquet", "LZ4"),
    ],
)
def test_codec(codec, suffix, stored):
    store = MemoryStore(None)
    (add,) = write_table(store, numbers(10), properties={"delta.parquet.compression.codec": codec} if codec else {})
    assert add.path.endswith(suffix)
    assert add.path.startswith("part-00000-")
    assert open_parquet(store, add.path).metadata.row_group(0).column(0).compression == stored


@pytest.mark.parametrize(("version", "kind"), [(None, b"\x00"), ("1.0.0", b"\x00"), ("2.12.0", b"\x06")])
def test_version_of_pages(version, kind):
    store = MemoryStore(None)
    (add,) = write_table(store, numbers(10), properties={"delta.parquet.format.version": version} if version else {})
    start = open_parquet(store, add.path).metadata.row_group(0).column(0).data_page_offset
    # The first field of a page's header is its type, an integer that Thrift writes doubled: 0 of version 1, 3 of 2.
    assert store.get_range(add.path, start, 2) == b"\x15" + kind


def test_void_columns_are_not_stored():
    inner = StructType((StructField("a", LONG), StructField("v", VOID)))
    schema = StructType((StructField("n", LONG), StructField("v", VOID), StructField("s", inner)))
    data = pa.table([[1, 2], pa.nulls(2), [{"a": 1, "v": None}, None]], schema=to_arrow(schema))
    store = MemoryStore(None)
    properties = TableProperties.parse({})
    (add,) = write_files(store, data.to_reader(), schema=schema, partition_columns=[], properties=properties)
    read = open_parquet(store, add.path).read()
    assert read.to_pylist() == [{"n": 1, "s": {"a": 1}}, {"n": 2, "s": None}]
    assert set(json.loads(add.stats)["nullCount"]) == {"n", "s"}
    nothing = StructType((StructField("v", VOID),))
    with pytest.raises(UnsupportedTypeError, match="void"):
        write_files(
            store,
            pa.table([pa.nulls(2)], schema=to_arrow(nothing)).to_reader(),
            schema=nothing,
            partition_columns=[],
            properties=properties,
        )


def test_progress_counts_all_rows():
    seen = []
    write_table(MemoryStore(None), numbers(1000), rows_a_batch=300, progress=seen.append)
    assert sum(seen) == 1000


def test_a_bad_target_is_refused():
    with pytest.raises(InvalidArgumentError, match="target_file_size"):
        write_table(MemoryStore(None), numbers(1), target_file_size=0)


# --- when it goes wrong ------------------------------------------------------------------------------------------


class SourceError(Exception):
    pass


@pytest.mark.tier("test")
def test_an_error_of_the_source_is_passed_on_and_nothing_stays(tmp_path):
    store = LocalStore(tmp_path / "t", create=True)
    data, schema = fitted(numbers(200_000, p=pa.array([i % 3 for i in range(200_000)])))

    def broken():
        yield from data.to_batches(max_chunksize=70_000)
        raise SourceError("the source broke")

    for source in (broken(), pa.RecordBatchReader.from_batches(data.schema, broken())):
        with pytest.raises(SourceError, match="the source broke"):
            write_files(
                store,
                source,
                schema=schema,
                partition_columns=["p"],
                properties=TableProperties.parse({}),
                # Small files, so that some are complete when it happens.
                target_file_size=50_000,
            )
        assert [path for path in (tmp_path / "t").rglob("*") if path.is_file()] == []


def test_a_failing_store_is_one_clear_error_and_nothing_stays(tmp_path):
    store = FaultyStore(LocalStore(tmp_path / "t", create=True), [Fault("fail", "open_output", skip=2)])
    with pytest.raises(StoreError, match="cannot write p="):
        write_table(store, numbers(9, p=pa.array([i % 5 for i in range(9)])), ["p"])
    assert [path for path in (tmp_path / "t").rglob("*") if path.is_file()] == []


class FullDisk(WrapperStore):
    """Every output takes ``room`` bytes."""

    def __init__(self, inner, room):
        super().__init__(inner)
        self.room = room

    @contextmanager
    def open_output(self, key):
        with self.inner.open_output(key) as sink:
            yield _Full(sink, self.room)


class _Full:
    closed = False

    def __init__(self, sink, room):
        self.sink, self.room = sink, room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.sink.write(data)

    def tell(self):
        return self.sink.tell()

    def flush(self):
        self.sink.flush()

    def close(self):
        self.closed = True

    def writable(self):
        return True

    def readable(self):
        return False

    def seekable(self):
        return False


@pytest.mark.parametrize("room", [0, 3, 1000, 100_000])
def test_a_full_disk(tmp_path, room):
    store = FullDisk(LocalStore(tmp_path / "t", create=True), room)
    with pytest.raises(StoreError, match="No space left"):
        write_table(store, numbers(100_000), target_file_size=200_000)
    assert [path for path in (tmp_path / "t").rglob("*") if path.is_file()] == []


def test_abort_removes_the_files_and_never_fails():
    store = MemoryStore(None)
    adds = write_table(store, numbers(10, p=["a b"] * 5 + ["c"] * 5), ["p"])
    assert len(keys(store)) == 2
    abort_files(FaultyStore(store, [Fault("fail", "delete")]), adds)
    assert len(keys(store)) == 2
    abort_files(store, adds)
    assert keys(store) == []
    abort_files(store, adds)


def test_local_files_have_no_leftovers(tmp_path):
    store = LocalStore(tmp_path / "t", create=True)
    adds = write_table(store, numbers(10))
    assert [path.name for path in (tmp_path / "t").iterdir()] == [add.path for add in adds]
    assert pq.read_metadata(tmp_path / "t" / adds[0].path).num_rows == 10


def test_a_small_file_is_written_without_threads(monkeypatch):
    pools = []
    make = encode.ThreadPoolExecutor
    monkeypatch.setattr(encode, "ThreadPoolExecutor", lambda *a, **k: pools.append(1) or make(*a, **k))
    store = MemoryStore(None)
    adds = write_table(store, numbers(1000))
    with pytest.raises(StoreError):
        write_table(FaultyStore(store, [Fault("fail", "open_output")]), numbers(10))
    assert not pools
    assert read_back(store, adds, numbers(1000)).equals(numbers(1000))
    write_table(store, numbers(300_000))
    write_table(store, numbers(4, p=[1, 1, 2, 2]), ["p"])
    assert len(pools) == 2


def test_a_system_without_threads_fails_and_leaves_nothing(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    store = MemoryStore(None)
    monkeypatch.setattr(encode.threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        write_table(store, numbers(300_000))
    assert keys(store) == []
