"""Files of the log and vectors that claim more than there is, or whose content does not fit into memory: one clear
error, or the right answer. Limits are lowered, and a lack of memory is a stub's.
"""

from __future__ import annotations

import struct as packing
import tracemalloc

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from handmade import VECTORS, Handmade, add, checkpoint_file, field, lines, metadata, struct
from refdelta import DeltaTable
from refdelta.core.log import codec, lean
from refdelta.core.log.codec import decode_commit
from refdelta.core.log.lean import decode_lean
from refdelta.core.rows.deletion_vector import encode_inline, frame, parse_bitmap, relative_key, serialize_bitmap
from refdelta.engine.log import commits
from refdelta.engine.log.snapshot import load_snapshot
from refdelta.engine.parquet.files import data_errors, log_errors
from refdelta.errors import DataFileError, DeltaError, InvalidLogError, NotEnoughMemoryError
from refdelta_storage import LocalStore, MemoryStore, StorageError

COLUMNS = struct(field("a", "long"))
PLACE = "ab^-aqEH.-t@S}K{vb[*"
COMMIT = b'{"commitInfo":{"operation":"WRITE"}}\n'


def a_table(store):
    made = Handmade(COLUMNS, store=store)
    made.commit(made.data("x.parquet", pa.table({"a": [1]})))
    return made


# --- files of the log --------------------------------------------------------------------------------------------


def test_a_commit_that_is_too_long_is_not_fetched(monkeypatch):
    made = a_table(MemoryStore("long"))
    key = f"_delta_log/{made.version + 1:020d}.json"
    made.put(key, COMMIT + b" " * 1_000)
    assert DeltaTable("memory://long").version() == 2
    monkeypatch.setattr(commits, "LONGEST_COMMIT", 1_000)

    def get_many(self, keys, own=MemoryStore.get_many):
        assert key not in keys
        return own(self, keys)

    monkeypatch.setattr(MemoryStore, "get_many", get_many)
    with pytest.raises(InvalidLogError, match=f"{key}: it has 1,037 bytes; at most 1,000 are read"):
        DeltaTable("memory://long").history()


class Small(MemoryStore):
    """A store of a process whose memory does not have room for some of its files."""

    large: frozenset[str] = frozenset()

    def get(self, key):
        self._check(key)
        return super().get(key)

    def get_range(self, key, start, length):
        self._check(key)
        return super().get_range(key, start, length)

    def open_input(self, key, size=None):
        self._check(key)
        return super().open_input(key, size)

    def _check(self, key):
        if key in self.large:
            raise StorageError(f"cannot read {key!r} in {self.uri}: Cannot allocate memory")


@pytest.mark.parametrize("name", ["_last_checkpoint", f"{1:020d}.crc"])
def test_an_aid_that_does_not_fit_into_memory_is_not_needed(name):
    store = Small()
    a_table(store).put(f"_delta_log/{name}", b"x" * 100)
    store.large = frozenset([f"_delta_log/{name}"])
    assert load_snapshot(store).version == 1


class Full:
    """A decoder for whose objects there is not enough memory."""

    def __call__(self, data):
        raise MemoryError

    decode = decode_lines = __call__


@pytest.mark.parametrize("decode", [decode_commit, decode_lean])
def test_lines_that_do_not_fit_into_memory(decode, monkeypatch):
    for module, names in ((codec, ("_LINE", "_LINES")), (lean, ("_decode", "_decode_file_line"))):
        for name in names:
            monkeypatch.setattr(module, name, Full())
    with pytest.raises(NotEnoughMemoryError, match=r"not enough memory to read 7\.json: 37 bytes of it are there"):
        decode(COMMIT, "7.json")


@pytest.mark.parametrize("errors", [data_errors, log_errors])
def test_a_file_that_does_not_fit_into_memory_is_named(errors):
    with pytest.raises(NotEnoughMemoryError, match="not enough memory to read x: malloc of size 64"), errors("x"):
        raise pa.ArrowMemoryError("malloc of size 64")


def test_a_sidecar_that_a_checkpoint_lists_twice_is_refused():
    made = Handmade(COLUMNS, store=MemoryStore("listed-twice"))
    made.store.delete([f"_delta_log/{0:020d}.json"])
    made.put("_delta_log/_sidecars/s.parquet", checkpoint_file([add("f", rows=1)] * 3))
    feature = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **feature}}
    sidecar = {"sidecar": {"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    for times in (1, 2):
        actions = [protocol, metadata(COLUMNS), {"checkpointMetadata": {"version": 0}}, *[sidecar] * times]
        made.put(f"_delta_log/{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", lines(*actions))
        if times == 1:
            assert DeltaTable(made.store.uri).files().num_rows == 3
    with pytest.raises(InvalidLogError, match=r"lists the sidecar 's\.parquet' twice"):
        DeltaTable(made.store.uri).files()


# --- vectors -----------------------------------------------------------------------------------------------------


def containers(count: int) -> bytes:
    """One bitmap of so many full containers, each a run of all its 65,536 values."""
    runs = b"\xff" * ((count + 7) // 8)
    heads = b"".join(packing.pack("<HH", key, 0xFFFF) for key in range(count))
    sizes = 4 + len(runs) + 4 * count + 4 * count
    offsets = b"".join(packing.pack("<I", sizes + 6 * key) for key in range(count)) if count >= 4 else b""
    bodies = packing.pack("<HHH", 1, 0, 0xFFFF) * count
    return packing.pack("<I", 12347 | (count - 1) << 16) + runs + heads + offsets + bodies


def test_a_vector_of_long_runs_stays_as_small_as_it_is(tmp_path):
    """As Python's numbers its rows would take a hundred times what is allowed here."""
    rows = 32 * 2**16
    body = packing.pack("<iQI", 1681511377, 1, 0) + containers(32)
    made = Handmade(COLUMNS, store=LocalStore(tmp_path), protocol=VECTORS)
    made.put(relative_key(PLACE), b"\1" + frame(body))
    vector = {"storageType": "u", "pathOrInlineDv": PLACE, "offset": 1, "sizeInBytes": len(body), "cardinality": rows}
    made.commit(made.data("x.parquet", pa.table({"a": [1, 2]}), deletionVector=vector))
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 0  # and what only a first time takes
    tracemalloc.start()
    try:
        bitmap = parse_bitmap(body, file="x", cardinality=rows)
        assert len(bitmap) == rows
        assert len(serialize_bitmap(bitmap)) < 2**10
        assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 0
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "claim",
    [{"sizeInBytes": 1_000}, {"sizeInBytes": 1_000, "offset": 1_000}, {"cardinality": 2}, {"offset": 1_000}],
    ids=str,
)
def test_descriptors_that_claim_more_than_there_is(claim, tmp_path):
    body = serialize_bitmap(BitMap64([0]))
    made = Handmade(COLUMNS, store=LocalStore(tmp_path), protocol=VECTORS)
    made.put(relative_key(PLACE), b"\1" + frame(body))
    vectors = [{"storageType": "u", "pathOrInlineDv": PLACE, "offset": 1}]
    if "offset" not in claim:
        vectors.append({"storageType": "i", "pathOrInlineDv": encode_inline(body)})
    for vector in vectors:
        whole = {"sizeInBytes": len(body), "cardinality": 1} | vector | claim
        version = made.commit(made.data(f"{made.version}.parquet", pa.table({"a": [1, 2]}), deletionVector=whole))
        with pytest.raises((DataFileError, InvalidLogError)):
            DeltaTable(tmp_path, version).to_pyarrow_table()
    with pytest.raises(DeltaError):
        DeltaTable(tmp_path).delete("a = 1")
