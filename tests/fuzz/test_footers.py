"""Footers that contradict themselves, at which pyarrow ends the process when it is asked about their columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from handmade import Handmade, add, field, parquet, struct
from refdelta import DeltaTable
from refdelta.engine.parquet.metadata import check_footer
from refdelta.errors import DataFileError
from refdelta_storage import MemoryStore

IDS = struct(field("id", "long"))

# Two row groups of a column of INT64 with bounds. Asked about what becomes of it here, pyarrow ends the process.
FILE = parquet(pa.table({"id": [1, 2, 3]}), row_group_size=2)
CONTRADICTIONS = {
    "another type": (b"\x1c\x15\x04\x19", b"\x1c\x15\x02\x19", "has another type"),
    "an unknown type": (b"\x1c\x15\x04\x19", b"\x1c\x15\x7e\x19", "has another type"),
    "too many levels": (b"\x29\x06\x19\x26\x00\x04", b"\x29\x06\x19\x36\x00\x04\x00", "sizes of 3 levels"),
}
SHORT_BOUND = (b"\x18\x08\x03" + bytes(7) + b"\x11", b"\x18\x02\x03\x00\x11")


def _with_footer(*changes: tuple[bytes, bytes]) -> bytes:
    length = int.from_bytes(FILE[-8:-4], "little")
    footer = FILE[-8 - length : -8]
    for old, new in changes:
        assert old in footer
        footer = footer.replace(old, new)
    return FILE[: -8 - length] + footer + len(footer).to_bytes(4, "little") + FILE[-4:]


def _check(data: bytes) -> frozenset[int]:
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    return check_footer(metadata, lambda start, length: data[start : start + length], len(data))


def test_a_footer_that_is_sound():
    assert _check(FILE) == frozenset()
    nested = pa.table(
        {"a": [[{"x": 1, "y": None}], []], "d": pa.array(["1.5", None]).cast(pa.decimal128(30, 2)), "s": ["x", "y"]}
    )
    assert _check(parquet(nested, store_decimal_as_integer=False)) == frozenset()


def test_a_footer_whose_row_groups_have_a_column_too_few():
    one = b"\x15\x04\x25\x02\x18\x02id\x00"
    schema = b"\x19\x2c\x35\x00\x18\x06schema\x15\x02\x00" + one
    two = b"\x19\x3c\x35\x00\x18\x06schema\x15\x04\x00" + one + one.replace(b"id", b"ie")
    footer = _with_footer((schema, two), (b"\x19\x1c\x1c\x00\x00\x00", b"\x19\x2c\x1c\x00\x00\x1c\x00\x00\x00"))
    with pytest.raises(ValueError, match="a row group has 1 columns, the schema 2"):
        _check(footer)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_footer_that_contradicts_itself(name):
    old, new, reason = CONTRADICTIONS[name]
    data = _with_footer((old, new))
    with pytest.raises(ValueError, match=reason):
        _check(data)
    made = Handmade(IDS, store=MemoryStore(f"footer {name}"))
    made.put("f.parquet", data)
    made.commit(add("f.parquet", size=len(data)))
    with pytest.raises(DataFileError, match=r"f\.parquet: cannot be read as Parquet"):
        DeltaTable(made.store.uri).to_pyarrow_table(filters="id > 1")


AS_26_WRITES = pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 26, reason="bytes that pyarrow 26 writes")


@AS_26_WRITES
def test_a_bound_that_is_too_short_for_its_type_is_not_used():
    data = _with_footer(SHORT_BOUND)
    assert _check(data) == frozenset([0])
    made = Handmade(IDS, store=MemoryStore("short bound"))
    made.put("f.parquet", data)
    made.commit(add("f.parquet", size=len(data)))
    assert DeltaTable(made.store.uri).to_pyarrow_table(filters="id > 1")["id"].to_pylist() == [2, 3]


@AS_26_WRITES
def test_a_row_group_with_fewer_than_no_rows():
    last = b"\x16\x02\x26\xdc\x01\x16\xc4\x01"
    with pytest.raises(ValueError, match="a row group has -1 rows"):
        _check(_with_footer((last, b"\x16\x01" + last[2:])))


def test_a_file_that_says_it_is_encrypted():
    # An algorithm of encryption, empty: field 8, a struct.
    with pytest.raises(ValueError, match="the file is encrypted"):
        _check(_with_footer((b"\x19\x1c\x1c\x00\x00\x00", b"\x19\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00")))


@AS_26_WRITES
def test_a_number_of_rows_beyond_64_bits():
    last = b"\x16\x02\x26\xdc\x01\x16\xc4\x01"
    with pytest.raises(ValueError, match="number of more than 64 bits"):
        _check(_with_footer((last, b"\x16" + b"\xff" * 9 + b"\x7f" + last[2:])))


def test_a_footer_with_something_behind_its_end():
    end = b"\x19\x1c\x1c\x00\x00\x00"
    assert _check(_with_footer((end, end + bytes(20)))) == frozenset()
    with pytest.raises(ValueError, match="has another type"):
        _check(_with_footer((end, end + bytes(20)), CONTRADICTIONS["another type"][:2]))
