"""Files of the log and vectors that are, or claim to be, larger than memory: one clear error, or the right answer."""

from __future__ import annotations

import struct as packing
import subprocess
import sys

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from handmade import VECTORS, Handmade, field, struct
from refdelta import DeltaTable
from refdelta.core.rows.deletion_vector import encode_inline, frame, parse_bitmap, relative_key, serialize_bitmap
from refdelta.errors import DataFileError, DeltaError, InvalidLogError
from refdelta_storage import LocalStore

COLUMNS = struct(field("a", "long"))
PLACE = "ab^-aqEH.-t@S}K{vb[*"
CHILD = """
import resource, sys
from refdelta import DeltaTable
from refdelta.errors import DeltaError
plain, *places = sys.argv[1:]
DeltaTable(plain).history()
pages = int(open("/proc/self/statm").read().split()[0])  # what the interpreter and Arrow have reserved by now
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28 * 2,) * 2)
for place in places:
    for verb in (lambda: DeltaTable(place).version(), lambda: len(DeltaTable(place).history())):
        try:
            print(verb(), flush=True)
        except DeltaError as error:
            print(type(error).__name__, error, flush=True)
"""


def answers(*places, then="len(DeltaTable(place).history())"):
    plain = places[0].with_name("plain")
    a_table(plain)
    code = CHILD.replace("len(DeltaTable(place).history())", then)
    command = [sys.executable, "-c", code, *map(str, [plain, *places])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    return list(zip(lines[::2], lines[1::2], strict=True))


def a_table(folder, protocol=None):
    made = Handmade(COLUMNS, store=LocalStore(folder), **({"protocol": protocol} if protocol else {}))
    made.commit(made.data("x.parquet", pa.table({"a": [1]})))
    return folder / "_delta_log"


def with_a_hole(path, size):
    with path.open("wb") as file:
        file.truncate(size)


@pytest.mark.tier("test")
@pytest.mark.parametrize("size", [2**30, 2**40], ids=["a gigabyte", "a terabyte"])
def test_files_with_a_hole(size, tmp_path):
    """They cost their maker nothing, and would fill the memory of who reads them."""
    names = {
        "commit": f"{2:020d}.json",
        "hint": "_last_checkpoint",
        "checksum": f"{1:020d}.crc",
        "checkpoint": f"{1:020d}.checkpoint.parquet",
        "manifest": f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
    }
    for name, file in names.items():
        with_a_hole(a_table(tmp_path / name) / file, size)
    found = dict(zip(names, answers(*(tmp_path / name for name in names)), strict=True))
    for name in ("hint", "checksum", "checkpoint"):
        assert found[name] == ("1", "2")  # none of them is needed
    for line in found["commit"] + found["manifest"]:
        assert line.startswith(("InvalidLogError ", "StoreError ", "NotEnoughMemoryError "))
        assert any(file in line for file in names.values())


@pytest.mark.tier("test")
def test_lines_that_unfold(tmp_path):
    """Two bytes of JSON are an object of fifty in memory."""
    many = 2**23
    lines = {
        "arrays": b'{"commitInfo":{"a":[' + b"[]," * many + b"[]]}}\n",
        "unknown": b'{"unknown":[' + b"{}," * many + b"{}]}\n",
        "text": b'{"commitInfo":{"a":"' + b"x" * (2 * many) + b'"}}\n',
    }
    for name, line in lines.items():
        (a_table(tmp_path / name) / f"{2:020d}.json").write_bytes(line)
    found = dict(zip(lines, answers(*(tmp_path / name for name in lines)), strict=True))
    for name in ("arrays", "unknown"):
        for line in found[name]:
            assert line.startswith("NotEnoughMemoryError ")
            assert f"{2:020d}.json" in line
    assert found["text"][0] == "2"


# --- vectors -----------------------------------------------------------------------------------------------------


def containers(count: int) -> bytes:
    """One bitmap of so many full containers, each a run of all its 65,536 values."""
    runs = b"\xff" * ((count + 7) // 8)
    heads = b"".join(packing.pack("<HH", key, 0xFFFF) for key in range(count))
    sizes = 4 + len(runs) + 4 * count + 4 * count
    offsets = b"".join(packing.pack("<I", sizes + 6 * key) for key in range(count)) if count >= 4 else b""
    bodies = packing.pack("<HHH", 1, 0, 0xFFFF) * count
    return packing.pack("<I", 12347 | (count - 1) << 16) + runs + heads + offsets + bodies


@pytest.mark.parametrize(
    "body",
    [
        packing.pack("<iQ", 1681511377, 2**40) + bytes(100),
        packing.pack("<iQ", 1681511377, 2**64 - 1),
        packing.pack("<iQI", 1681511377, 1, 0) + packing.pack("<II", 12346, 2**32 - 1) + bytes(100),
        packing.pack("<iQI", 1681511377, 1, 0) + packing.pack("<I", 12347 | 0xFFFF << 16) + bytes(100),
        packing.pack("<iQI", 1681511377, 1, 2**32 - 1) + containers(1),
        packing.pack(">ii", 1681511376, 2**31 - 1) + bytes(100),
    ],
    ids=["2**40 bitmaps", "2**64 bitmaps", "2**32 containers", "65536 containers", "beyond 63 bits", "native"],
)
def test_vectors_that_claim_more_than_there_is(body):
    with pytest.raises(DataFileError, match="x: the deletion vector is not valid"):
        parse_bitmap(body, file="x", cardinality=2**40)


@pytest.mark.tier("test")
def test_a_vector_of_four_billion_rows_stays_as_small_as_it_is(tmp_path):
    """Its 900 kB stand for 2**32 positions, which nobody may spell out: as numbers they would be 32 GB."""
    body = packing.pack("<iQI", 1681511377, 1, 0) + containers(2**16)
    bitmap = parse_bitmap(body, file="x", cardinality=2**32)
    assert len(bitmap) == 2**32
    assert len(serialize_bitmap(bitmap)) < 2**20
    made = Handmade(COLUMNS, store=LocalStore(tmp_path / "t"), protocol=VECTORS)
    made.put(relative_key(PLACE), b"\1" + frame(body))
    vector = {
        "storageType": "u",
        "pathOrInlineDv": PLACE,
        "offset": 1,
        "sizeInBytes": len(body),
        "cardinality": 2**32,
    }
    made.commit(made.data("x.parquet", pa.table({"a": [1, 2]}), deletionVector=vector))
    assert answers(tmp_path / "t", then="DeltaTable(place).to_pyarrow_table().num_rows") == [("1", "0")]


@pytest.mark.parametrize(
    "claim",
    [
        {"sizeInBytes": 2**31 - 1},
        {"sizeInBytes": 2**31 - 1, "offset": 2**31 - 1},
        {"cardinality": 2**40},
        {"cardinality": 2**63 - 1},
        {"offset": 2**31 - 1},
    ],
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
