"""Memory is bounded by batches and files, never by the table: measured in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

BATCHES, ROWS = 60, 250_000  # 60 batches of 7 MB: 420 MB in all
LIMIT_MB = 200  # of Arrow's memory, at its highest

# The engine's budgets are set low, so that what is not under them stands out in half a gigabyte.
WRITE = """
    import sys
    import numpy as np, pyarrow as pa
    import refdelta
    from refdelta.engine.parquet import encode, write
    encode.IN_FLIGHT_BYTES = write.BUFFER_BYTES = write.ROW_GROUP_BYTES = 32 * 2**20
    path, partitioned = sys.argv[1], sys.argv[2] == "1"
    random = np.random.default_rng(1)
    schema = pa.schema([("p", pa.int32()), ("x", pa.float64()), ("y", pa.float64()), ("z", pa.int64())])
    def batches():
        for i in range({batches}):
            n = {rows}
            p, x, y = random.integers(0, 8, n, dtype=np.int32), random.random(n), random.random(n)
            yield pa.record_batch([pa.array(p), pa.array(x), pa.array(y), pa.array(np.arange(n) + i * n)], schema)
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    refdelta.write_deltalake(path, reader, partition_by="p" if partitioned else None, target_file_size=32 * 2**20)
    print(pa.default_memory_pool().max_memory() // 2**20)
"""

READ = """
    import sys
    import pyarrow as pa, pyarrow.compute
    import refdelta
    rows = total = 0
    for batch in refdelta.DeltaTable(sys.argv[1]).to_record_batch_reader(filters="x < 2"):
        rows += batch.num_rows
        total += pa.compute.sum(batch["z"]).as_py()
    count = {batches} * {rows}
    assert rows == count and total == count * (count - 1) // 2, (rows, total)
    print(pa.default_memory_pool().max_memory() // 2**20)
"""


def megabytes(code, *arguments):
    program = textwrap.dedent(code).format(batches=BATCHES, rows=ROWS)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("partitioned", [False, True])
def test_streams_are_written_and_read_without_being_held(tmp_path, partitioned):
    path = tmp_path / "t"
    assert megabytes(WRITE, path, int(partitioned)) < LIMIT_MB
    assert megabytes(READ, path) < LIMIT_MB
