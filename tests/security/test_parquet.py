"""Limits of the memory that reading a Parquet file takes: rows come out, or one clear error.

Tests of engine.parquet.limits. The limits are lowered to some thousand bytes, and footers and pages are plain values:
no file is read that says of itself what it is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import handmade
from handmade import PROTOCOL, Handmade, add, checkpoint_file, metadata, parquet, struct
from refdelta import DeltaTable
from refdelta.engine.parquet import budget, limits
from refdelta.engine.parquet.files import open_parquet
from refdelta.engine.parquet.limits import BoundedParquetFile
from refdelta.engine.parquet.metadata import PageHeader, read_page_headers
from refdelta.errors import DataFileError, InvalidLogError
from refdelta_storage import LocalStore

SIZE = 10_000
"""The bytes of a file that is described."""

PLAIN, DICTIONARY, PREFIX = 0, 8, 7


def data(values, size, encoding=PLAIN):
    return PageHeader(False, size, values, encoding, (4, 1))


def dictionary(entries, size):
    return PageHeader(True, size, entries, PLAIN, (4, 1))


@dataclass
class Chunk:
    """A column of the one row group."""

    pages: list = field(default_factory=list)
    kind: str = "BYTE_ARRAY"
    length: int = 0
    codec: str = "ZSTD"
    stored: int = 100
    claimed: int = 100
    repeated: bool = False


class Described(BoundedParquetFile):
    """A file whose footer is a stub, and was found to be sound."""

    metadata = None
    examined = (frozenset(), None)


@pytest.fixture
def described(monkeypatch):
    """``described(chunks, rows)`` is a file with these columns: a, b, c and so on."""
    for name, value in {"BATCH_BYTES": 1_000, "DICTIONARY_BYTES": 1_000, "ROW_BYTES": 4_000, "UNFOLDED": 10}.items():
        monkeypatch.setattr(limits, name, value)

    def make(*chunks, rows=64):
        monkeypatch.setattr(limits, "read_page_headers", lambda bytes_at, start, values: chunks[start].pages)
        content = parquet(pa.table({"a": ["x"]}))
        file = Described(pa.BufferReader(content), lambda start, length: content[start : start + length])
        file.size = SIZE
        leaves = [
            SimpleNamespace(path=chr(97 + at), max_repetition_level=int(one.repeated), length=one.length)
            for at, one in enumerate(chunks)
        ]
        group = [
            SimpleNamespace(
                num_values=max(1, sum(page.values for page in one.pages if not page.is_dictionary)),
                physical_type=one.kind,
                compression=one.codec,
                total_compressed_size=one.stored,
                total_uncompressed_size=one.claimed,
                data_page_offset=at,
                dictionary_page_offset=None,
            )
            for at, one in enumerate(chunks)
        ]
        file.metadata = SimpleNamespace(
            num_columns=len(chunks),
            num_row_groups=1,
            num_rows=rows,
            schema=SimpleNamespace(column=leaves.__getitem__),
            row_group=lambda number: SimpleNamespace(num_rows=rows, column=group.__getitem__),
        )
        return file

    return make


def rows_of(file):
    """The rows of a batch of all columns, at most 64."""
    return file.batch_rows(64, [0], [chr(97 + at) for at in range(file.metadata.num_columns)])


LONG = {"kind": "INT64"}
ROW = "a row of row group 0, with its pages, may take [4-9],"
REFUSED = {
    "a long dictionary": ([Chunk([dictionary(1, 1_001), data(64, 8, DICTIONARY)])], "dictionary of 1 values, of 1,001"),
    "more texts than fit into a dictionary": (
        [Chunk([dictionary(26, 100)])],
        "dictionary of 26 values, of 100",
    ),
    "more numbers than fit into it": (
        [Chunk([dictionary(13, 100)], **LONG)],
        "dictionary of 13 values, of 100",
    ),
    "a value that is too wide": ([Chunk(kind="FIXED_LEN_BYTE_ARRAY", length=2**20 + 1)], "values of 1,048,577 bytes"),
    "more stored bytes than the file has": ([Chunk(stored=SIZE + 1)], "says that it has 10,001 bytes"),
    "fewer stored bytes than none": ([Chunk(stored=-1)], "says that it has -1 bytes"),
    "a long list": ([Chunk([data(400, 100)], repeated=True, **LONG)], "column a of row group 0 would take 4,900 bytes"),
    "a list of texts": (
        [Chunk([dictionary(1, 104), data(40, 10, DICTIONARY)], codec="LZO", repeated=True)],
        "column a of row group 0 would take 4,330 bytes",
    ),
    "two lists": (
        [Chunk([data(200, 100)], repeated=True, **LONG)] * 2,
        "2 columns .* would take 5,000 bytes",
    ),
    "a long page of numbers": ([Chunk([data(64, 4_001)], **LONG)], ROW),
    "pages of numbers": ([Chunk([data(64, 1_400)], **LONG)] * 3, ROW),
    "a long page of texts": ([Chunk([data(64, 4_001)])], ROW),
    "pages without compression": ([Chunk(codec="UNCOMPRESSED", stored=4_001, claimed=9_999, **LONG)], ROW),
    "dictionaries": (
        [Chunk([dictionary(1, 700), data(64, 8)])] * 3,
        ROW,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_group_that_no_number_of_rows_bounds_is_refused(name, described):
    chunks, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason):
        rows_of(described(*chunks))


TAKEN = {
    "few bytes": ([Chunk([dictionary(1, 8), data(64, 8, DICTIONARY)], codec="LZO")], 64),
    "a long text in every row": ([Chunk([dictionary(1, 104), data(64, 8, DICTIONARY)], codec="LZO")], 8),
    "a long prefix in every row": ([Chunk([data(64, 100, PREFIX)])], 8),
    "numbers": ([Chunk([data(64, 100)], **LONG)], 64),
    "wide numbers": ([Chunk([data(64, 100)], kind="FIXED_LEN_BYTE_ARRAY", length=50)], 16),
    "wide numbers in two columns": ([Chunk([data(64, 100)], kind="FIXED_LEN_BYTE_ARRAY", length=50)] * 2, 8),
    "one list": ([Chunk([data(200, 100)], repeated=True, **LONG)], 16),
    "a dictionary": ([Chunk([dictionary(1, 700), data(64, 8)])], 1),
    "two pages of numbers": ([Chunk([data(64, 1_400)], **LONG)] * 2, 32),
}


@pytest.mark.parametrize("name", TAKEN)
def test_batches_have_as_many_rows_as_fit(name, described):
    chunks, rows = TAKEN[name]
    assert rows_of(described(*chunks)) == rows


@pytest.mark.parametrize("codec", ["UNCOMPRESSED", "SNAPPY", "LZ4"])
def test_pages_of_codecs_that_make_little_of_a_byte_are_not_looked_at(codec, described, monkeypatch):
    file = described(Chunk(codec=codec, stored=10, claimed=5, **LONG))

    def read(*_):
        raise AssertionError

    monkeypatch.setattr(limits, "read_page_headers", read)
    assert rows_of(file) == 64


def test_rows_without_columns_are_counted_by_pages(described, monkeypatch):
    monkeypatch.setattr(limits, "_MANY_ROWS", 10)
    chunk = Chunk([data(11, 100)], **LONG)
    assert described(chunk, rows=11).batch_rows(64, [0], []) == 64
    with pytest.raises(ValueError, match="row group 0 says that it has 12 rows, and has fewer"):
        described(chunk, rows=12).batch_rows(64, [0], [])


def test_a_scan_shares_the_bytes_of_its_batches(tmp_path, monkeypatch):
    shared = []

    def sharing(bytes_, *, own=limits.sharing):
        shared.append(bytes_)
        return own(bytes_)

    monkeypatch.setattr(limits, "sharing", sharing)
    pq.write_table(pa.table({"a": range(1_000)}), tmp_path / "x.parquet", compression="none", use_dictionary=False)
    with open_parquet(LocalStore(tmp_path), "x.parquet") as opened:
        assert sum(batch.num_rows for batch in opened.iter_batches()) == 1_000
    assert len(shared) == 1
    assert 8 * 2**16 < shared[0] < 9 * 2**16


def put(folder, kind, content):
    made = Handmade(struct(handmade.field("a", kind)), store=LocalStore(folder))
    made.put("x.parquet", content)
    made.commit(add("x.parquet", size=len(content), rows=1000))
    return folder


def test_a_data_file_beyond_a_limit_is_named(tmp_path, monkeypatch):
    place = put(tmp_path, "string", parquet(pa.table({"a": ["x" * 5_000, "y" * 5_000]}), compression="none"))
    assert DeltaTable(place).to_pyarrow_table().num_rows == 2
    monkeypatch.setattr(limits, "ROW_BYTES", 4_000)
    with pytest.raises(DataFileError, match=r"x\.parquet: .*a row of row group 0, with its pages, may take"):
        DeltaTable(place).to_pyarrow_table()


def test_a_list_beyond_a_limit_is_named_with_its_column(tmp_path, monkeypatch):
    kind = {"type": "array", "elementType": "long", "containsNull": True}
    place = put(tmp_path, kind, parquet(pa.table({"a": [[7] * 1_000]})))
    monkeypatch.setattr(limits, "ROW_BYTES", 4_000)
    monkeypatch.setattr(limits, "UNFOLDED", 10)
    with pytest.raises(DataFileError, match=r"column a\.list\.element of row group 0 would take 1.,... bytes"):
        DeltaTable(place).to_pyarrow_table()


def test_a_checkpoint_beyond_a_limit_is_named(tmp_path, monkeypatch):
    """It is held whole, so a long path in each of its rows is bounded by no batch."""
    columns = struct(handmade.field("a", "long"))
    made = Handmade(columns, store=LocalStore(tmp_path))
    actions = [PROTOCOL, metadata(columns), *[add("x" * 2**10, rows=1)] * 100]
    made.put(f"_delta_log/{0:020d}.checkpoint.parquet", checkpoint_file(actions))
    made.store.delete([f"_delta_log/{0:020d}.json"])
    assert DeltaTable(tmp_path).version() == 0
    monkeypatch.setattr(budget, "HELD_BYTES", 2**13)
    monkeypatch.setattr(budget, "HELD_UNFOLDED", 1)
    with pytest.raises(InvalidLogError, match=r"checkpoint\.parquet: .* would take more than 8,192 bytes"):
        DeltaTable(tmp_path)


# --- files of other writers -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many():
    """Data as any: texts that repeat and such that do not, lists, structs, maps, nulls."""
    count = 70_000
    return pa.table(
        {
            "n": pa.array(range(count)),
            "few": pa.array([f"v{i % 7}" for i in range(count)]),
            "many": pa.array([f"text number {i}" if i % 5 else None for i in range(count)]),
            "list": pa.array([[i, i + 1] if i % 3 else None for i in range(count)]),
            "texts": pa.array([[f"t{i % 100}"] * (i % 4) for i in range(count)]),
            "struct": pa.array([{"x": f"s{i % 1000}", "y": i} for i in range(count)]),
            "map": pa.array([[(f"k{i % 3}", i)] for i in range(count)], pa.map_(pa.string(), pa.int64())),
        }
    )


@pytest.mark.sample(test=4)
@pytest.mark.tier("test")
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "snappy"},
        {"compression": "zstd", "row_group_size": 30_000},
        {"compression": "lz4"},
        {"compression": "brotli"},
        {"compression": "gzip", "data_page_version": "2.0", "data_page_size": 16384},
        {"compression": "none", "use_dictionary": False, "write_statistics": False},
        {"compression": "lz4", "column_encoding": {"many": "DELTA_BYTE_ARRAY"}, "use_dictionary": False},
        {"compression": "brotli", "column_encoding": {"many": "DELTA_LENGTH_BYTE_ARRAY"}, "use_dictionary": ["few"]},
    ],
    ids=["snappy", "zstd", "lz4", "brotli", "pages of version 2", "plain", "prefixes", "lengths"],
)
def test_honest_files_come_in_full_batches(many, options, tmp_path):
    data, folder = many, tmp_path
    pq.write_table(data, folder / "x.parquet", **options)
    with open_parquet(LocalStore(folder), "x.parquet") as opened:
        batches = list(opened.iter_batches())
        footer = opened.metadata
    assert pa.Table.from_batches(batches).cast(data.schema).equals(data)
    if "column_encoding" not in options or "DELTA_BYTE_ARRAY" not in options["column_encoding"].values():
        assert len(batches) <= -(-data.num_rows // 65_536) + footer.num_row_groups
    content = (folder / "x.parquet").read_bytes()
    group = footer.row_group(0)
    for leaf in range(footer.num_columns):
        chunk = group.column(leaf)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        pages = read_page_headers(lambda at, length: content[at : at + length], start, chunk.num_values)
        assert sum(page.values for page in pages if not page.is_dictionary) == chunk.num_values
        assert sum(page.size for page in pages) <= chunk.total_uncompressed_size


@pytest.mark.tier("test")
def test_long_values_make_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_BYTES", 2**20)
    blobs = pa.table({"a": [bytes([i % 256]) * 50_000 for i in range(400)], "n": list(range(400))})
    for use_dictionary in (True, False):
        pq.write_table(
            blobs, tmp_path / "x.parquet", use_dictionary=use_dictionary, data_page_size=10, write_batch_size=2
        )
        with open_parquet(LocalStore(tmp_path), "x.parquet") as opened:
            batches = list(opened.iter_batches())
        assert pa.Table.from_batches(batches) == blobs
        assert max(batch.nbytes for batch in batches) <= 2**20
        assert max(batch.num_rows for batch in batches) >= 4


def test_one_long_value_among_short_ones_costs_no_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_BYTES", 2**22)
    texts = [f"text {i}" for i in range(100_000)]
    texts[70_000] = "x" * 2**20
    pq.write_table(pa.table({"a": texts}), tmp_path / "x.parquet", use_dictionary=False, data_page_size=2**16)
    with open_parquet(LocalStore(tmp_path), "x.parquet") as opened:
        assert [batch.num_rows for batch in opened.iter_batches()] == [65_536, 34_464]


@pytest.mark.tier("test")
@pytest.mark.sample(check=2)
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_the_longest_entry_of_a_dictionary_is_found(codec, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_BYTES", 2**20)
    texts = ["x" * (i % 1000) for i in range(20_000)]
    nested = [[text] for text in texts]
    pq.write_table(pa.table({"a": texts, "b": nested}), tmp_path / "x.parquet", compression=codec)
    with open_parquet(LocalStore(tmp_path), "x.parquet") as opened:
        for leaf in (0, 1):
            pages = opened._pages(0, "", opened.metadata.row_group(0).column(leaf), 0)
            assert pages[0].is_dictionary
            assert opened._longest(0, leaf, pages, 65_536) == 999


def test_broken_headers_are_refused(tmp_path):
    content = bytearray(parquet(pa.table({"a": ["x", "y"] * 100})))
    content[4:40] = b"\xff" * 36
    put(tmp_path, "string", bytes(content))
    with pytest.raises(Exception, match=r"x\.parquet: cannot be read as Parquet"):
        DeltaTable(tmp_path).to_pyarrow_table()
