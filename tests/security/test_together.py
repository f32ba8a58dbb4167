"""Many small things that are held together: each is within its bound, and so are all of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from handmade import CHECKPOINT_SCHEMA, PROTOCOL, Handmade, add, checkpoint_file, field, metadata, struct
from refdelta_storage import LocalStore
from security.bombs import INT64, ZSTD, column, data_page, levels, parquet_file, run

COLUMNS = struct(field("a", "long"))
V2 = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
}
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
CHILD = """
import json, resource, sys
from refdelta import DeltaTable
from refdelta.errors import DeltaError
from refdelta.engine.work.executor import limit_threads
limit_threads(2)
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30,) * 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    found = eval(sys.argv[1])(DeltaTable(sys.argv[2]))
except DeltaError as error:
    found = f"{type(error).__name__} {error}"
print(json.dumps([found, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024]))
"""
FILES = "lambda table: table.files().num_rows"
ROWS = "lambda table: sum(batch.num_rows for batch in table.to_record_batch_reader())"

pytestmark = pytest.mark.tier("test")


def outcome(folder, code):
    """The result of some code about a table, or its error, and how many bytes the process grew by."""
    command = [sys.executable, "-c", CHILD, code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def a_table(folder):
    made = Handmade(COLUMNS, store=LocalStore(folder))
    made.store.delete([f"_delta_log/{0:020d}.json"])
    return made


def test_a_sidecar_that_a_checkpoint_lists_many_times(tmp_path):
    made, count = a_table(tmp_path), 100_000
    adds = pa.StructArray.from_arrays(
        [
            pa.array(["f"] * count),
            pa.array([[]] * count, pa.map_(pa.string(), pa.string())),
            pa.array([1] * count, pa.int64()),
            pa.array([1] * count, pa.int64()),
            pa.array([True] * count),
        ],
        names=["path", "partitionValues", "size", "modificationTime", "dataChange"],
    )
    (tmp_path / "_delta_log/_sidecars").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"add": adds}), tmp_path / "_delta_log/_sidecars/s.parquet", store_schema=False)
    sidecar = {"sidecar": {"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    actions = [V2, metadata(COLUMNS), {"checkpointMetadata": {"version": 0}}, *[sidecar] * 200]
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    made.put(f"_delta_log/{0:020d}.checkpoint.{UUID}.json", lines.encode())
    found, bytes_ = outcome(tmp_path, FILES)
    assert found.startswith("InvalidLogError ")
    assert "lists the sidecar 's.parquet' twice" in found
    assert bytes_ < 2**28


def test_a_checkpoint_of_parts_that_unfold(tmp_path):
    made = a_table(tmp_path)
    name = "_delta_log/{:020d}.checkpoint.{:010d}.{:010d}.parquet"
    made.put(name.format(0, 1, 3), checkpoint_file([PROTOCOL, metadata(COLUMNS)]))
    add_type = CHECKPOINT_SCHEMA.field("add").type
    adds = pa.array([add("x" * 2**20)["add"] | {"partitionValues": []}], add_type).take(pa.array([0] * 700))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": adds}), sink, compression="zstd")
    part = sink.getvalue().to_pybytes()  # 700 MB of paths
    assert len(part) < 20_000
    for number in (2, 3):
        made.put(name.format(0, number, 3), part)
    found, bytes_ = outcome(tmp_path, FILES)
    assert found.startswith("InvalidLogError ")
    assert "the files of the checkpoint, beyond 100 times their sizes, would take more than 1,073,741,824" in found
    assert bytes_ < 2 * 2**30


def test_files_that_are_decoded_at_once(tmp_path):
    """Two threads: each file takes 1.6 GB while it is decoded, and one waits for the other."""
    names = [f"a{number or ''}" for number in range(4)]
    made = Handmade(struct(*(field(name, "long") for name in names)), store=LocalStore(tmp_path))
    body = levels(run(1000, 1)) + bytes(400 * 2**20)
    page = data_page(1000, pa.compress(body, codec="zstd", asbytes=True), size=len(body))
    content = parquet_file(column(INT64), [page], kind=INT64, rows=1000, values=1000, codec=ZSTD, times=4)
    for number in range(4):
        made.put(f"{number}.parquet", content)
    made.commit(*(add(f"{number}.parquet", size=len(content), rows=1000) for number in range(4)))
    found, bytes_ = outcome(tmp_path, ROWS)
    assert found == 4000
    assert bytes_ < 2.5 * 2**30
