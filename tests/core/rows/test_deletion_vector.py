"""Deletion vectors: the specification's own vectors, round trips, and bytes that lie."""

from __future__ import annotations

import struct
import uuid
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.rows import deletion_vector as dv
from refdelta.errors import DataFileError, InvalidLogError, UnsafePathError
from tiers import examples

ROWS = [3, 4, 7, 11, 18, 29]
# PROTOCOL.md prints this one, of the native form; its text says that it should be of the portable form, as the next
# one is.
NATIVE = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
PORTABLE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"


def descriptor(**changes):
    return DeletionVectorDescriptor(
        **{"storage_type": "i", "path_or_inline_dv": PORTABLE, "size_in_bytes": 44, "cardinality": 6, **changes}
    )


@pytest.mark.parametrize(("text", "size"), [(NATIVE, 40), (PORTABLE, 44)])
def test_both_inline_forms_give_the_rows_of_the_specification(text, size):
    place = dv.locate(descriptor(path_or_inline_dv=text, size_in_bytes=size))
    assert isinstance(place, dv.InlineBytes)
    assert list(dv.parse_bitmap(place.data, file="log", cardinality=6)) == ROWS


def test_we_write_the_portable_form():
    assert dv.z85_encode(dv.serialize_bitmap(BitMap64(ROWS))) == PORTABLE


def test_the_path_of_the_specification():
    place = dv.locate(descriptor(storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4))
    assert place == dv.RelativeKey("ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")


def test_absolute_paths_are_handed_on():
    place = dv.locate(descriptor(storage_type="p", path_or_inline_dv="s3://bucket/x.bin"))
    assert place == dv.AbsoluteUri("s3://bucket/x.bin")


@given(st.uuids(), st.sampled_from(["", "ab", "a/b"]))
def test_paths_round_trip(identity, prefix):
    key = dv.relative_key(dv.encode_relative(identity, prefix))
    assert key == f"{prefix}/deletion_vector_{identity}.bin".lstrip("/")


@pytest.mark.parametrize("prefix", ["..", "/etc", "a/../..", "a//b", "c:", "a\\..", "."])
def test_paths_that_leave_the_table_are_refused(prefix):
    with pytest.raises(UnsafePathError, match="leaves the table"):
        dv.relative_key(dv.encode_relative(uuid.uuid4(), prefix))


@pytest.mark.parametrize(
    "changes",
    [
        {"storage_type": "x"},
        {"storage_type": "u", "path_or_inline_dv": "short"},
        {"storage_type": "u", "path_or_inline_dv": '"' * 20},
        {"size_in_bytes": 100},
        {"size_in_bytes": 39},
        {"size_in_bytes": -1},
        {"cardinality": -1},
        {"storage_type": "u", "offset": -1},
        {"path_or_inline_dv": PORTABLE[:-1]},
        {"path_or_inline_dv": "#####" * 11},
        {"path_or_inline_dv": "\u00e4" * 55},
    ],
)
def test_descriptors_that_make_no_sense_are_refused(changes):
    with pytest.raises(InvalidLogError):
        dv.locate(descriptor(**changes))


@given(st.binary(max_size=40).map(lambda b: b[: len(b) // 4 * 4]))
def test_z85_round_trips(data):
    assert dv.z85_decode(dv.z85_encode(data)) == data


def test_z85_of_its_own_specification():
    assert dv.z85_encode(bytes([0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B])) == "HelloWorld"


# Row 3, as an engine in Rust has written it into tables: two bytes behind 32, filled up at the head.
FILLED = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"


def test_a_text_that_is_filled_up_at_the_head_of_its_last_characters():
    place = dv.locate(descriptor(path_or_inline_dv=FILLED, size_in_bytes=34, cardinality=1))
    assert list(dv.parse_bitmap(place.data, file="f", cardinality=1)) == [3]
    with pytest.raises(ValueError, match="overflow"):
        dv.z85_decode(FILLED)  # delta-spark cuts it to 32 bits, which makes row 28168 of it


@given(st.binary(max_size=40))
def test_filled_up_texts_are_read_and_whole_ones_are_read_as_ever(data):
    rest = len(data) % 4
    whole = data[: len(data) - rest]
    text = dv.z85_encode(whole)
    if rest:
        text += "#" * (4 - rest) + dv.z85_encode(bytes(4 - rest) + data[len(whole) :])[4 - rest :]
    assert dv.padded_decode(text) == data


@pytest.mark.parametrize("last", ["#####", "####1", "###$$", "##0 0", "##0"])
def test_what_is_filled_up_wrongly(last):
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        dv.padded_decode(FILLED[:-5] + last)


ROW_SETS = st.one_of(
    st.lists(st.integers(0, 200_000), max_size=300),
    st.lists(st.integers(0, 2**63 - 1), max_size=50),
    st.tuples(st.integers(0, 2**40), st.integers(1, 70_000), st.integers(1, 3)).map(
        lambda t: range(t[0], t[0] + t[1] * t[2], t[2])
    ),
)


@given(ROW_SETS, st.booleans())
@examples(60)
def test_bitmaps_round_trip(rows, optimized):
    bitmap = BitMap64(rows)
    if optimized:
        bitmap.run_optimize()
    back = dv.parse_bitmap(dv.serialize_bitmap(bitmap), file="f", cardinality=len(bitmap))
    assert back == bitmap


def native(bitmap: BitMap64, order: str) -> bytes:
    buckets: dict[int, list[int]] = {}
    for row in bitmap:
        buckets.setdefault(row >> 32, []).append(row & 0xFFFFFFFF)
    count = max(buckets, default=-1) + 1
    parts = [BitMap(buckets.get(key, [])).serialize() for key in range(count)]
    body = b"".join(struct.pack(order + "i", len(part)) + part for part in parts)
    return struct.pack(order + "ii", dv.NATIVE_MAGIC, count) + body


@given(st.lists(st.integers(0, 3 * 2**32), max_size=40), st.sampled_from("<>"))
@examples(40)
def test_the_native_form_is_read_in_either_byte_order(rows, order):
    assert dv.parse_bitmap(native(BitMap64(rows), order), file="f") == BitMap64(rows)


@given(st.lists(st.integers(0, 200_000), max_size=100), st.data())
@examples(150)
def test_damaged_bytes_give_the_rows_or_an_error_and_nothing_else(rows, data):
    good = dv.serialize_bitmap(BitMap64(rows))
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(bad)))
    for candidate in (bytes(bad), bytes(bad[:cut]), good + bytes(bad[:cut])):
        try:
            bitmap = dv.parse_bitmap(candidate, file="f")
        except DataFileError:
            continue
        # What was taken is a bitmap, of exactly these bytes.
        assert BitMap64(list(bitmap.to_array())[:10_000]).issubset(bitmap)
        assert len(dv.serialize_bitmap(bitmap)) <= len(candidate) + 8


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "0 bytes"),
        (struct.pack("<iQ", dv.PORTABLE_MAGIC, 3) + bytes(20), "3 bitmaps in 28 bytes"),
        (struct.pack("<iQ", 7, 0), "begins with 7"),
        (struct.pack("<iQ", dv.PORTABLE_MAGIC, 0) + b"x", "after its end"),
        (struct.pack("<ii", dv.NATIVE_MAGIC, -1), "bitmaps in"),
        (struct.pack("<iii", dv.NATIVE_MAGIC, 1, -5) + bytes(20), "is not -5 bytes"),
        (struct.pack("<iQI", dv.PORTABLE_MAGIC, 1, 2**31) + BitMap([1]).serialize(), "beyond 63 bits"),
        (struct.pack("<iQI", dv.PORTABLE_MAGIC, 1, 0) + BitMap([1]).serialize()[:-2], "2 bytes too early"),
        (struct.pack("<iQI", dv.PORTABLE_MAGIC, 1, 0) + struct.pack("<II", 12346, 3) + bytes(4), "not valid"),
    ],
)
def test_numbers_are_refused_before_they_are_believed(data, what, untouched):
    with pytest.raises(DataFileError, match=what):
        dv.parse_bitmap(data, file="x.bin")


def test_more_containers_than_there_can_be_are_refused(monkeypatch, untouched):
    assert dv.MOST_CONTAINERS == 2**16
    monkeypatch.setattr(dv, "MOST_CONTAINERS", 2)
    three = BitMap([1, 1 << 16, 2 << 16]).serialize()
    with pytest.raises(DataFileError, match="a bitmap of 3 containers"):
        dv.parse_bitmap(struct.pack("<iQI", dv.PORTABLE_MAGIC, 1, 0) + three, file="x.bin")


@pytest.fixture
def untouched(monkeypatch):
    """pyroaring, which is not asked."""

    class Untouched:
        @staticmethod
        def deserialize(data):
            raise AssertionError("the bytes were handed on")

    monkeypatch.setattr(dv, "BitMap", Untouched)
    monkeypatch.setattr(dv, "BitMap64", Untouched)


def test_buckets_out_of_order_are_refused():
    bucket = struct.pack("<I", 1) + BitMap([1]).serialize()
    with pytest.raises(DataFileError, match="ascending"):
        dv.parse_bitmap(struct.pack("<iQ", dv.PORTABLE_MAGIC, 2) + bucket + bucket, file="x.bin")


def test_values_out_of_order_are_refused():
    data = bytearray(dv.serialize_bitmap(BitMap64(ROWS)))
    data[-2:] = b"\x01\x00"
    with pytest.raises(DataFileError, match=r"x\.bin"):
        dv.parse_bitmap(bytes(data), file="x.bin")


def test_the_wrong_cardinality_is_refused():
    with pytest.raises(DataFileError, match="6 rows, 7 in the log"):
        dv.parse_bitmap(dv.serialize_bitmap(BitMap64(ROWS)), file="x.bin", cardinality=7)


def test_frames():
    body = dv.serialize_bitmap(BitMap64(ROWS))
    framed = dv.frame(body)
    assert framed[:4] == struct.pack(">i", len(body))
    assert framed[-4:] == struct.pack(">I", zlib.crc32(body))
    assert dv.unframe(framed, len(body), "f") == body
    assert dv.framed_range(descriptor(storage_type="u", offset=17, size_in_bytes=44)) == (17, 52)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda b: b[:-1], "ends after"),
        (lambda b: b"", "ends after"),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), "checksum"),
        (lambda b: b[:20] + bytes([b[20] ^ 1]) + b[21:], "checksum"),
        (lambda b: struct.pack(">i", 3) + b[4:], "3 bytes long there, 44 in the log"),
    ],
)
def test_damaged_frames_are_refused(change, what):
    body = dv.serialize_bitmap(BitMap64(ROWS))
    with pytest.raises(DataFileError, match=what):
        dv.unframe(change(dv.frame(body)), len(body), "dir/x.bin")
