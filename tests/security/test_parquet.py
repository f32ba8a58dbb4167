"""Small files that unfold to much, read in a process with little memory: rows come out, or one clear error.

Tests of engine.parquet.limits.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuzz.pages import prefixes
from handmade import PROTOCOL, Handmade, add, checkpoint_file, field, metadata, parquet, struct
from refdelta import DeltaTable
from refdelta.engine.parquet import budget, limits
from refdelta.engine.parquet.files import open_parquet
from refdelta.engine.parquet.metadata import read_page_headers
from refdelta.engine.scan.reader import BATCH_ROWS
from refdelta.errors import InvalidLogError
from refdelta_storage import LocalStore
from security.bombs import (
    BYTE_ARRAY,
    FIXED,
    I32,
    INT64,
    RLE_DICTIONARY,
    SNAPPY,
    ZSTD,
    column,
    data_page,
    dictionary_page,
    levels,
    list_column,
    parquet_file,
    run,
    text,
    thrift,
)

MOST = 2**31 - 1
LONG_LIST = {"type": "array", "elementType": "long", "containsNull": True}
TEXT_LIST = {"type": "array", "elementType": "string", "containsNull": True}
SEVEN = dictionary_page(1, (7).to_bytes(8, "little"))
LIST_PATH = ("a", "list", "element")


def repeated(count: int) -> bytes:
    """The body of a page in which so many rows name the first entry of the dictionary."""
    return levels(run(count, 1)) + bytes([1]) + run(count)


def flat(kind: int, dictionary: bytes, count: int, **options: object) -> bytes:
    pages = [dictionary, data_page(count, repeated(count), RLE_DICTIONARY)]
    schema = column(kind, string=kind == BYTE_ARRAY)
    return parquet_file(schema, pages, kind=kind, rows=count, values=count, has_dictionary=True, **options)


def one_list(kind: int, dictionary: bytes, count: int, rows: int = 1) -> bytes:
    body = levels(run(1), run(count - 1, 1)) + levels(run(count, 2)) + bytes([1]) + run(count)
    pages = [dictionary, data_page(count, body, RLE_DICTIONARY)]
    schema = list_column(kind, string=kind == BYTE_ARRAY)
    return parquet_file(schema, pages, kind=kind, rows=rows, values=count, path=LIST_PATH, has_dictionary=True)


def long_text(count: int) -> bytes:
    """One text of 40 MB, 1 kB when it is compressed, in every row."""
    entry, body = text(b"x" * (40 * 2**20)), repeated(count)
    stored = pa.compress(entry, codec="zstd", asbytes=True)
    pages = [
        dictionary_page(1, stored, len(entry)),
        data_page(count, pa.compress(body, codec="zstd", asbytes=True), RLE_DICTIONARY, len(body)),
    ]
    schema = column(BYTE_ARRAY, string=True)
    return parquet_file(
        schema, pages, kind=BYTE_ARRAY, rows=count, values=count, codec=ZSTD, has_dictionary=True, unfolded=100
    )


def long_prefixes(count: int, more: int) -> bytes:
    """A text of a megabyte in every row, as its prefix; the number of the encoding has ``more`` than pyarrow keeps."""
    body = levels(run(count, 1)) + prefixes(count, 1_000_000)
    stored = pa.compress(body, codec="zstd", asbytes=True)
    page = data_page(count, stored, 7 + more, len(body))
    schema = column(BYTE_ARRAY, string=True)
    return parquet_file(schema, [page], kind=BYTE_ARRAY, rows=count, values=count, codec=ZSTD)


def shared_numbers(times: int) -> bytes:
    """Columns that share one page of 400 MB, 13 kB when it is compressed."""
    count = 1000
    body = levels(run(count, 1)) + bytes(400 * 2**20)
    page = data_page(count, pa.compress(body, codec="zstd", asbytes=True), size=len(body))
    return parquet_file(column(INT64), [page], kind=INT64, rows=count, values=count, codec=ZSTD, times=times)


def shared_dictionary(times: int) -> bytes:
    """Columns that share one dictionary of 800 MB."""
    entry, count = text(b"x" * (800 * 2**20)), 10
    stored = pa.compress(entry, codec="zstd", asbytes=True)
    body = repeated(count)
    pages = [
        dictionary_page(1, stored, len(entry)),
        data_page(count, pa.compress(body, codec="zstd", asbytes=True), RLE_DICTIONARY, len(body)),
    ]
    schema = column(BYTE_ARRAY, string=True)
    return parquet_file(
        schema, pages, kind=BYTE_ARRAY, rows=count, values=count, codec=ZSTD, has_dictionary=True, times=times
    )


def lists_of_nulls(count: int, times: int = 1) -> bytes:
    body = levels(run(1), run(count - 1, 1)) + levels(run(count, 1))
    schema = list_column(INT64)
    page = data_page(count, body)
    return parquet_file(schema, [page], kind=INT64, rows=1, values=count, path=LIST_PATH, times=times)


def footer_only(footer: bytes) -> bytes:
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


BOMBS = {
    "a long text in every row": ("string", lambda: long_text(65_536)),
    "two billion equal numbers": ("long", lambda: flat(INT64, SEVEN, MOST)),
    "a footer with 2**60 rows": ("long", lambda: flat(INT64, SEVEN, 1000, total_rows=2**60)),
    "a list of two billion": (LONG_LIST, lambda: one_list(INT64, SEVEN, MOST)),
    "a list of texts": (TEXT_LIST, lambda: one_list(BYTE_ARRAY, dictionary_page(1, text(b"y" * 1000)), 2**28)),
    "a list of two billion, in many rows": (LONG_LIST, lambda: one_list(INT64, SEVEN, MOST, rows=10**9)),
    "a dictionary of two billion texts": ("string", lambda: flat(BYTE_ARRAY, dictionary_page(MOST, text(b"x")), 10)),
    "a dictionary of two billion numbers": ("long", lambda: flat(INT64, dictionary_page(MOST, b"x" * 8), 10)),
    "a dictionary of two gigabytes": ("string", lambda: flat(BYTE_ARRAY, dictionary_page(1, text(b"x"), MOST), 10)),
    "a page of two gigabytes": (
        "string",
        lambda: parquet_file(
            column(BYTE_ARRAY, string=True),
            [data_page(10, pa.compress(b"a" * 100, codec="zstd", asbytes=True), size=MOST)],
            kind=BYTE_ARRAY,
            rows=10,
            values=10,
            codec=ZSTD,
        ),
    ),
    "a page of fewer values than it says": (
        "long",
        lambda: parquet_file(
            column(INT64), [data_page(MOST, levels(run(10, 1)) + bytes(80))], kind=INT64, rows=2**40, values=2**40
        ),
    ),
    "a value of a gigabyte": (
        "binary",
        lambda: parquet_file(
            column(FIXED, length=2**30), [data_page(10, levels(run(10, 1)) + b"x")], kind=FIXED, rows=10, values=10
        ),
    ),
    "a text whose encoding has 33 bits": ("string", lambda: long_prefixes(4096, 2**32)),
    "a text whose encoding has 32 bits": ("string", lambda: long_prefixes(4096, 2**31)),
    "a long prefix in every row": ("string", lambda: long_prefixes(4096, 0)),
    "a dictionary that says it is short": (
        "string",
        lambda: flat(BYTE_ARRAY, dictionary_page(1, text(b"x" * 2**20), 5), 65_536),
    ),
    "a page of numbers in 16 columns": (["long"] * 16, lambda: shared_numbers(16)),
    "a dictionary in 16 columns": (["string"] * 16, lambda: shared_dictionary(16)),
    "a list of nulls": (LONG_LIST, lambda: lists_of_nulls(2**29)),
    "lists of nulls in 16 columns": ([LONG_LIST] * 16, lambda: lists_of_nulls(2**26, 16)),
    "an unknown codec": (
        "string",
        lambda: flat(BYTE_ARRAY, dictionary_page(1, text(b"x")), 10, codec=4095),
    ),
    "pages without values": (
        "string",
        lambda: parquet_file(
            column(BYTE_ARRAY, string=True), [data_page(0, b"")] * 50_000, kind=BYTE_ARRAY, rows=10, values=10
        ),
    ),
    "a footer with a list of two billion": (
        "long",
        lambda: footer_only(thrift({1: I32(1)})[:-1] + bytes([0x19, 0xFC, 255, 255, 255, 255, 7])),
    ),
    "a schema of many levels": (
        "long",
        lambda: footer_only(
            thrift({1: I32(1), 2: [{4: b"s", 5: I32(1)}, *[{3: I32(1), 4: b"a", 5: I32(1)}] * 50_000], 3: 10, 4: []})
        ),
    ),
}

CHILD = """
import resource, sys
from refdelta import DeltaTable
from refdelta.errors import DeltaError
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30,) * 2)
for place in sys.argv[1:]:
    try:
        rows = DeltaTable(place).to_record_batch_reader().read_next_batch().num_rows
        print(rows, flush=True)
    except DeltaError as error:
        print(type(error).__name__, error, flush=True)
"""


def in_a_small_process(code: str, *arguments: object) -> list[str]:
    """The lines that some code prints in a process of its own."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def put(folder: Path, kind: object, content: bytes) -> Path:
    kinds = kind if isinstance(kind, list) else [kind]
    fields = [field(f"a{number or ''}", one) for number, one in enumerate(kinds)]
    made = Handmade(struct(*fields), store=LocalStore(folder))
    made.put("x.parquet", content)
    made.commit(add("x.parquet", size=len(content), rows=1000))
    return folder


@pytest.mark.tier("test")
def test_data_files_that_unfold(tmp_path):
    places = [put(tmp_path / str(i), kind, make()) for i, (kind, make) in enumerate(BOMBS.values())]
    assert max(path.stat().st_size for path in tmp_path.glob("*/x.parquet")) < 2_000_000
    results = dict(zip(BOMBS, in_a_small_process(CHILD, *places), strict=True))
    read = {name: int(line) for name, line in results.items() if line.isdecimal()}
    refused = {name for name, line in results.items() if line.startswith("DataFileError x.parquet: ")}
    # Arrow asks for the memory that the dictionary claims, and does not use it: SECURITY.md.
    claims = results["a dictionary of two billion numbers"]
    assert claims.startswith("NotEnoughMemoryError there is not enough memory to read x.parquet: ")
    refused.add("a dictionary of two billion numbers")
    assert set(results) - refused - set(read) == set()
    assert read["two billion equal numbers"] == BATCH_ROWS
    # As many rows as have a gigabyte, and no more.
    assert 8 <= read["a long text in every row"] <= 25
    assert 500 <= read["a long prefix in every row"] <= 1100
    assert read["a dictionary that says it is short"] <= 1024
    assert {name for name in refused if "33 bits" in name or "32 bits" in name or "16 columns" in name} == {
        "a text whose encoding has 33 bits",
        "a text whose encoding has 32 bits",
        "a page of numbers in 16 columns",
        "a dictionary in 16 columns",
        "lists of nulls in 16 columns",
    }


CLAIMED = """
import resource, sys
from refdelta import DeltaTable
from refdelta.errors import DeltaError
table = DeltaTable(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    table.to_pyarrow_table()
except DeltaError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.tier("test")
def test_a_page_of_numbers_that_claims_two_gigabytes_takes_no_memory(tmp_path):
    """Its header is not read: Arrow asks the system for what it claims, and then sees that it has less."""
    body = levels(run(1000, 1)) + bytes(8 * 1000)
    page = data_page(1000, pa.compress(body, codec="snappy", asbytes=True), size=MOST - 100)
    content = parquet_file(column(INT64), [page], kind=INT64, rows=1000, values=1000, codec=SNAPPY)
    error, more = in_a_small_process(CLAIMED, put(tmp_path, "long", content))
    assert error.startswith("x.parquet: cannot be read as Parquet: Page didn't decompress to expected size")
    assert int(more) < 2**18  # of 1,024 bytes


@pytest.mark.tier("test")
def test_lists_that_unfold_name_the_column(tmp_path):
    place = put(tmp_path, LONG_LIST, one_list(INT64, SEVEN, MOST))
    (line,) = in_a_small_process(CHILD, place)
    assert "column a.list.element of row group 0 would take 25,769," in line


@pytest.mark.tier("test")
def test_a_checkpoint_that_unfolds(tmp_path, monkeypatch):
    """It is held whole, so a path of a megabyte in each of its rows is bounded by no batch."""
    made = Handmade(struct(field("a", "long")), store=LocalStore(tmp_path))
    actions = [PROTOCOL, metadata(struct(field("a", "long"))), *[add("x" * 2**20, rows=1)] * 100]
    made.put(f"_delta_log/{0:020d}.checkpoint.parquet", checkpoint_file(actions))
    made.store.delete([f"_delta_log/{0:020d}.json"])
    assert DeltaTable(tmp_path).version() == 0
    monkeypatch.setattr(budget, "HELD_BYTES", 2**26)
    monkeypatch.setattr(budget, "HELD_UNFOLDED", 10)
    with pytest.raises(InvalidLogError, match=r"checkpoint\.parquet: .* would take more than 67,108,864 bytes"):
        DeltaTable(tmp_path)


# --- what is not a bomb is read as before ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many():
    """Data as any: texts that repeat and such that do not, lists, structs, maps, nulls."""
    count = 100_000
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
