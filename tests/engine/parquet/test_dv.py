"""Deletion vectors as files: what is written is what is read, in the log or beside it, and bytes are what the
specification says.
"""

from __future__ import annotations

import struct
import uuid
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from refdelta.core.log.actions import DeletionVectorDescriptor
from refdelta.core.rows.deletion_vector import encode_relative, relative_key, serialize_bitmap
from refdelta.engine.parquet import dv
from refdelta.errors import DataFileError, StoreError, UnsafePathError
from refdelta_storage.errors import StorageError
from refdelta_storage.memory import MemoryStore
from tiers import examples

SPECIFICATION = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
SCATTERED = range(0, 3000, 3)


def files(store):
    return [info.key for info in store.list()]


def test_the_rows_of_the_specification_are_its_bytes():
    store = MemoryStore()
    (vector,) = dv.write_vectors(store, [BitMap64([3, 4, 7, 11, 18, 29])], inline=True)
    assert vector == DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv=SPECIFICATION, size_in_bytes=44, cardinality=6
    )
    assert files(store) == []


def test_vectors_that_are_needed_at_once_have_one_budget(monkeypatch):
    """A log may name a vector of some bytes for any number of files."""
    store = MemoryStore()
    (vector,) = dv.write_vectors(store, [BitMap64(SCATTERED)])
    monkeypatch.setattr(dv, "VECTOR_BYTES", 10 * vector.size_in_bytes)
    assert len(dv.load_deletion_vectors(store, [vector, None] * 10)) == 20
    with pytest.raises(DataFileError, match="deletion vectors that are needed at once would take more than"):
        dv.load_deletion_vectors(store, [vector] * 11)


def test_kept_vectors_are_read_once_and_are_as_many_as_there_is_room_for(monkeypatch):
    store, read = MemoryStore(), []
    wanted = [BitMap64([n, 1000 * n, 2_000_000]) for n in range(3)]
    some = [dv.write_vectors(store, [rows])[0] for rows in wanted]
    load = dv.load_deletion_vectors
    monkeypatch.setattr(dv, "load_deletion_vectors", lambda store, some: [read.extend(some), load(store, some)][1])
    kept = dv.KeptVectors()
    kept.keep(some[0], wanted[0])
    found = kept.load(store, some)
    assert (found, read) == (wanted, some[1:])
    found[1].add(5)  # those of a caller are its own
    assert kept.load(store, [some[1], some[0]]) == [wanted[1], wanted[0]]
    assert len(read) == 2
    monkeypatch.setattr(dv, "KEPT_BYTES", some[2].size_in_bytes)
    kept.keep(some[2], wanted[2])
    assert kept.load(store, some) == wanted
    assert read[2:] == some[:2]


def test_several_vectors_share_a_file_of_framed_vectors():
    store = MemoryStore()
    bitmaps = [BitMap64(SCATTERED), BitMap64([1]), BitMap64(range(1, 9000, 2))]
    first, small, second = dv.write_vectors(store, bitmaps, inline=True)
    assert small.storage_type == "i"
    assert first.path_or_inline_dv == second.path_or_inline_dv
    (key,) = files(store)
    assert key == relative_key(first.path_or_inline_dv)
    data = store.get(key)
    assert data[0] == 1
    position = 1
    for vector, bitmap in ((first, bitmaps[0]), (second, bitmaps[2])):
        body = serialize_bitmap(bitmap)
        assert (vector.offset, vector.size_in_bytes, vector.cardinality) == (position, len(body), len(bitmap))
        framed = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        assert data[position : position + len(framed)] == framed
        position += len(framed)
    assert position == len(data)


ROWS = st.one_of(
    st.lists(st.integers(0, 2**40), max_size=200),
    st.tuples(st.integers(0, 2**33), st.integers(1, 70_000), st.integers(1, 3)).map(
        lambda t: range(t[0], t[0] + t[1] * t[2], t[2])
    ),
)


@given(st.lists(ROWS, max_size=6), st.booleans())
@examples(40)
def test_what_is_written_is_read(rows, inline):
    store = MemoryStore()
    bitmaps = [BitMap64(items) for items in rows]
    vectors = dv.write_vectors(store, bitmaps, inline=inline)
    assert inline or all(vector.storage_type == "u" for vector in vectors)
    assert [dv.load_deletion_vector(store, vector) for vector in vectors] == bitmaps


def test_a_full_file_is_followed_by_another(monkeypatch):
    monkeypatch.setattr(dv, "FILE_BYTES", 5000)
    store = MemoryStore()
    bitmaps = [BitMap64(range(i, 3000 + i, 3)) for i in range(6)]
    vectors = dv.write_vectors(store, bitmaps)
    assert len(files(store)) == 3
    assert [dv.load_deletion_vector(store, vector) for vector in vectors] == bitmaps


def test_rows_in_sequence_are_written_as_runs():
    (vector,) = dv.write_vectors(MemoryStore(), [BitMap64(list(range(1_000_000)))])
    assert vector.size_in_bytes < 256


def test_a_file_goes_when_none_of_its_vectors_is_needed():
    store = MemoryStore()
    first, second, small = dv.write_vectors(
        store, [BitMap64(SCATTERED), BitMap64(SCATTERED), BitMap64([1])], inline=True
    )
    dv.remove_vectors(store, [first, small], keep=[second])
    assert len(files(store)) == 1
    dv.remove_vectors(store, [second, small])
    assert files(store) == []


class _Full(MemoryStore):
    """Takes one object."""

    def put(self, key, data):
        if files(self):
            raise StorageError("no space left")
        super().put(key, data)


def test_a_failure_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(dv, "FILE_BYTES", 100)
    store = _Full()
    with pytest.raises(StoreError, match=r"cannot write deletion_vector_.*no space left"):
        dv.write_vectors(store, [BitMap64(SCATTERED)] * 2)
    assert files(store) == []


def test_absolute_paths_are_read_inside_the_table_and_refused_outside():
    store = MemoryStore()
    (vector,) = dv.write_vectors(store, [BitMap64(SCATTERED)])
    (key,) = files(store)

    def absolute(uri):
        return DeletionVectorDescriptor(
            storage_type="p",
            path_or_inline_dv=uri,
            offset=vector.offset,
            size_in_bytes=vector.size_in_bytes,
            cardinality=vector.cardinality,
        )

    assert dv.load_deletion_vector(store, absolute(f"{store.uri}/{key}")) == BitMap64(SCATTERED)
    with pytest.raises(UnsafePathError, match="outside the table"):
        dv.load_deletion_vector(store, absolute(f"{store.uri}elsewhere/{key}"))


def test_a_prefix_is_a_folder():
    store = MemoryStore()
    (vector,) = dv.write_vectors(store, [BitMap64(SCATTERED)])
    (key,) = files(store)
    store.put(f"ab/{key}", store.get(key))
    identity = uuid.UUID(key.removeprefix("deletion_vector_").removesuffix(".bin"))
    moved = DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv=encode_relative(identity, "ab"),
        offset=1,
        size_in_bytes=vector.size_in_bytes,
        cardinality=vector.cardinality,
    )
    store.delete([key])
    assert dv.load_deletion_vector(store, moved) == BitMap64(SCATTERED)
