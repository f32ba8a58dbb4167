"""The check of footers and page headers refuses what contradicts itself, before pyarrow is asked about columns.

Tests of engine.parquet.metadata and engine.parquet.limits. Footers are sound, and the schema that they are compared
with is a stub that lies in one place; other bytes are fragments, which go to our reader alone.
"""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from handmade import Handmade, add, field, parquet, struct
from refdelta import DeltaTable
from refdelta.engine.parquet import limits
from refdelta.engine.parquet import metadata as module
from refdelta.engine.parquet.limits import BoundedParquetFile
from refdelta.engine.parquet.metadata import (
    I32,
    I64,
    LIST,
    STRUCT,
    CompactReader,
    check_footer,
    read_page_headers,
)
from refdelta.errors import DataFileError
from refdelta_storage import MemoryStore

IDS = struct(field("id", "long"))
FILE = parquet(pa.table({"id": [1, 2, 3]}), row_group_size=2)
"""Two row groups of a column of INT64 with bounds."""

COLUMN = pq.ParquetFile(pa.BufferReader(FILE)).metadata.schema.column(0)


def told(count=1, **lies):
    """The metadata of the file, with so many columns like its own; ``lies`` are wrong about each."""
    names = ("path", "physical_type", "length", "max_repetition_level", "max_definition_level")
    column = SimpleNamespace(**{name: getattr(COLUMN, name) for name in names} | lies)
    return SimpleNamespace(num_columns=count, schema=SimpleNamespace(column=lambda number: column))


@pytest.fixture(autouse=True)
def no_known_heads(monkeypatch):
    monkeypatch.setattr(module, "_known_heads", ())


def check(metadata, footer=None):
    """The result of the check for the file's footer, or for another one, which belongs to no file."""
    data = FILE if footer is None else footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return check_footer(metadata, lambda start, length: data[start : start + length], len(data))


# --- footers -----------------------------------------------------------------------------------------------------


def test_sound_footers_are_taken():
    assert check(told()) == frozenset()
    nested = parquet(
        pa.table(
            {"a": [[{"x": 1, "y": None}], []], "d": pa.array(["1.5", None]).cast(pa.decimal128(30, 2)), "s": ["x", "y"]}
        ),
        store_decimal_as_integer=False,
    )
    metadata = pq.ParquetFile(pa.BufferReader(nested)).metadata
    assert check_footer(metadata, lambda start, length: nested[start : start + length], len(nested)) == frozenset()


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (told(physical_type="INT32"), "column id has another type in a row group than in the schema"),
        (told(max_definition_level=2), "column id has sizes of 2 levels, and another number of levels"),
        (told(max_definition_level=0), "column id has sizes of 2 levels, and another number of levels"),
        (told(2), "a row group has 1 columns, the schema 2"),
        (told(0), "a row group has 1 columns, the schema 0"),
    ],
)
def test_a_footer_that_contradicts_the_schema_is_refused(metadata, reason):
    with pytest.raises(ValueError, match=reason):
        check(metadata)


def test_a_codec_that_is_not_known_is_refused(monkeypatch):
    monkeypatch.setattr(module, "_CODECS", 1)  # the file has codec 1
    monkeypatch.setattr(module.ChunkPattern, "end", lambda self, data, at: None)
    with pytest.raises(ValueError, match="column id has the unknown codec 1"):
        check(told())


def test_a_column_of_which_bounds_are_too_short_has_none(monkeypatch):
    monkeypatch.setitem(module.PHYSICAL_WIDTHS, "INT64", 16)
    assert check(told()) == frozenset([0])


def compact(*fields):
    return b"".join(fields) + b"\0"


# A footer of the schema (an empty list), a number of rows, and what follows.
HEAD = b"\x29\x0c\x16\x06"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (b"\x19\x1c" + compact(b"\x36\x01"), "a row group has -1 rows"),
        (b"\x5c\0", "the file is encrypted"),
        (b"\x19\x1c" + compact(b"\x36" + b"\xff" * 9 + b"\x7f"), "number of more than 64 bits"),
        (b"\x19\x15\x02", "a list of another kind"),
        (b"\x19\x1c", "the footer ends too early"),
    ],
)
def test_a_footer_with_impossible_parts_is_refused(more, reason):
    with pytest.raises(ValueError, match=reason):
        check(told(0), compact(HEAD, more))


def test_bytes_after_the_end_of_a_footer_do_not_matter():
    assert check(told(0), compact(HEAD) + bytes(20)) == frozenset()


# --- the order of the check and of pyarrow -----------------------------------------------------------------------


@pytest.fixture
def contradicts(monkeypatch):
    """A footer that contradicts itself, by a stub."""

    def examine_footer(metadata, bytes_at, size):
        raise ValueError("it contradicts itself")

    monkeypatch.setattr(limits, "examine_footer", examine_footer)


class Unasked:
    """The metadata of a file that must not be asked for a row group."""

    num_rows, num_row_groups, num_columns = 3, 2, 1

    def row_group(self, number):
        raise AssertionError("pyarrow was asked")


class Watched(BoundedParquetFile):
    metadata = Unasked()


@pytest.mark.parametrize(
    "use",
    [
        lambda file: list(file.iter_batches()),
        lambda file: file.batch_rows(10, [0], ["id"]),
        lambda file: file.keep_dictionaries(["id"]),
        lambda file: file.row_groups_with({"id"}),
        lambda file: file.footer,
    ],
)
def test_a_footer_is_checked_before_pyarrow_is_asked_about_columns(use, contradicts):
    file = Watched(pa.BufferReader(FILE), lambda start, length: FILE[start : start + length])
    with pytest.raises(ValueError, match="it contradicts itself"):
        use(file)


def test_a_table_with_such_a_footer_ends_in_one_error(contradicts):
    made = Handmade(IDS, store=MemoryStore("contradicts"))
    made.put("f.parquet", FILE)
    made.commit(add("f.parquet", size=len(FILE)))
    with pytest.raises(DataFileError, match=r"f\.parquet: cannot be read as Parquet: it contradicts itself"):
        DeltaTable(made.store.uri).to_pyarrow_table(filters="id > 1")


def test_bounds_that_are_too_short_are_not_used(monkeypatch):
    made = Handmade(IDS, store=MemoryStore("short bound"))
    made.put("f.parquet", FILE)
    made.commit(add("f.parquet", size=len(FILE)))

    def asked(chunk, rows):
        raise AssertionError("pyarrow was asked for statistics")

    monkeypatch.setattr(limits, "_all_null", asked)
    file = BoundedParquetFile(pa.BufferReader(FILE), lambda start, length: FILE[start : start + length])
    with pytest.raises(AssertionError):
        file.row_groups_with({"id"})
    monkeypatch.setattr(limits, "examine_footer", lambda metadata, bytes_at, size: (frozenset([0]), None))
    file = BoundedParquetFile(pa.BufferReader(FILE), lambda start, length: FILE[start : start + length])
    assert file.row_groups_with({"id"}) == [0, 1]
    assert DeltaTable(made.store.uri).to_pyarrow_table(filters="id > 1")["id"].to_pylist() == [2, 3]


# --- the reader --------------------------------------------------------------------------------------------------


def reader(data, deepest=8):
    return CompactReader(data, "a struct", deepest=deepest)


def skipped(data, deepest=8):
    """Skip a struct. Returns how many bytes it has."""
    one = reader(data, deepest)
    assert list(one.fields({})) == []
    return one.position


def test_a_number_has_at_most_the_bits_of_its_field():
    for bits, most in ((32, b"\xff\xff\xff\xff\x0f"), (64, b"\xff" * 9 + b"\x01")):
        assert reader(most).integer(bits) == -(2 ** (bits - 1))
    for more in (b"\x80\x80\x80\x80\x10", b"\x8e\x80\x80\x80\x10"):  # 0 and 7, to a reader that keeps 32 bits
        with pytest.raises(ValueError, match="a number of more than 32 bits"):
            reader(more).integer(32)
    for more in (b"\x80" * 9 + b"\x02", b"\x80" * 11 + b"\0"):
        with pytest.raises(ValueError, match="a number of more than 64 bits"):
            reader(more).integer()


@pytest.mark.parametrize(("head", "kind"), [(b"\x15", I64), (b"\x16", I32), (b"\x1c", LIST), (b"\x19", STRUCT)])
def test_a_list_has_the_kind_that_is_expected(head, kind):
    for read in (reader(head + b"\0" * 9).length, reader(head + b"\0" * 9).skip_list):
        with pytest.raises(ValueError, match="a list of another kind"):
            read(kind)


@pytest.mark.parametrize("data", [b"\x19\xf1\x64\0\0", b"\x1b\x64\x11\0\0", b"\x18\x64\0", b"\x19\x91\0\0\0"])
def test_a_count_beyond_the_end_is_refused_before_it_is_used(data, monkeypatch):
    skips = []

    def skip(self, kind, *, own=CompactReader._skip, **options):
        skips.append(kind)
        own(self, kind, **options)

    monkeypatch.setattr(CompactReader, "_skip", skip)
    with pytest.raises(IndexError):
        skipped(data)
    assert len(skips) == 1


def test_a_struct_nests_as_deeply_as_is_allowed():
    for five in (b"\x1c\x1c\x1c\x1c\0\0\0\0\0", b"\x1c\x19\x19\x19\x13\1\0\0"):
        assert skipped(five, 5) == len(five)
        with pytest.raises(ValueError, match="nests too deeply"):
            skipped(five, 4)


def test_fields_have_numbers_of_16_bits():
    with pytest.raises(ValueError, match="a field of an impossible number"):
        skipped(b"\x05\x80\x80\x04\0\0")


# --- page headers ------------------------------------------------------------------------------------------------


def page(values, size=4, stored=1, *, kind=b"\0"):
    """The header of a page of data, and a body."""
    counts = compact(b"\x15", bytes([2 * values]), b"\x15\0\x15\6\x15\6")
    return (
        compact(b"\x15", kind, b"\x15", bytes([2 * size]), b"\x15", bytes([2 * stored]), b"\x2c", counts)
        + b"x" * stored
    )


def headers(data, values):
    return read_page_headers(lambda start, length: data[start : start + length], 0, values)


def test_pages_are_read_up_to_the_number_of_values():
    assert [(one.values, one.size, one.encoding) for one in headers(page(3) * 4, 6)] == [(3, 4, 0)] * 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (page(3), "no page begins at byte"),
        (b"", "no page begins at byte 0"),
        (compact(b"\x15\0\x15\x01\x15\2\x2c", b"\x15\6\x15\0\0"), "a page without its kind and size"),
        (compact(b"\x15\0\x15\2\x15\2"), "a page without the number of its values"),
        (compact(b"\x15\0\x15\2\x15\2\x2c", b"\x15\1\x15\0\0"), "a page without the number of its values"),
        (compact(b"\x15\0\x15\2\x15\2\x2c", b"\x15\6\x15\x80\x80\x80\x80\x10\0"), "more than 32 bits"),
    ],
)
def test_a_page_without_a_sound_header_is_refused(data, reason):
    with pytest.raises(ValueError, match=reason):
        headers(data, 6)


def test_pages_without_values_have_an_end(monkeypatch):
    monkeypatch.setattr(module, "_MOST_PAGES", 8)
    assert len(headers(page(0) * 7 + page(1), 1)) == 8
    with pytest.raises(ValueError, match="a column has more than 8 pages"):
        headers(page(0) * 8 + page(1), 1)


def test_a_header_has_an_end(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", 512)
    asked = []

    def bytes_at(start, length):
        asked.append(length)
        return b"\x18\xff\xff\x03" + bytes(length - 4)  # a text that goes on

    with pytest.raises(ValueError, match="no page begins at byte 0"):
        read_page_headers(bytes_at, 0, 1)
    assert asked == [256, 4096]
