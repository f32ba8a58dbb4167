"""Compaction and sorting hold some batches of a table, whatever its size: measured in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

FILES, ROWS = 45, 125_000  # 4 MB of Arrow's memory each, 180 MB in all
LIMIT_MB = 110  # of Arrow's memory, at its highest

# The engine's budgets are set low, so that what is not under them stands out.
PROGRAM = """
    import sys
    import numpy as np, pyarrow as pa, pyarrow.compute as pc
    import refdelta
    from refdelta.engine.parquet import encode, write
    from refdelta.engine.scan import zorder
    from refdelta.engine.work import executor
    encode.IN_FLIGHT_BYTES = write.BUFFER_BYTES = write.ROW_GROUP_BYTES = executor.LOOK_AHEAD_BYTES = 8 * 2**20
    executor.CORE_BYTES = 4 * 2**20
    zorder.SORT_BYTES = 8 * 2**20
    path, what = sys.argv[1:]
    random = np.random.default_rng(1)
    if what == "write":
        for i in range({files}):
            n = {rows}
            data = dict(x=random.random(n), y=random.random(n), z=np.arange(n) + i * n, w=random.integers(0, 9, n))
            refdelta.write_deltalake(path, pa.table(data), mode="append")
    else:
        table = refdelta.DeltaTable(path)
        one = dict(target_size=2**40, max_concurrent_tasks=1)
        result = table.optimize.compact(**one) if what == "compact" else table.optimize.z_order(["x", "y"], **one)
        print(pa.default_memory_pool().max_memory() // 2**20, result["numFilesAdded"])
        count = {files} * {rows}
        total = sum(pc.sum(batch["z"]).as_py() for batch in table.to_record_batch_reader(["z"]))
        assert total == count * (count - 1) // 2, total
"""


def run(path, what):
    program = textwrap.dedent(PROGRAM).format(files=FILES, rows=ROWS)
    done = subprocess.run([sys.executable, "-c", program, str(path), what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp("memory") / "t"
    run(where, "write")
    return where


@pytest.mark.tier("nightly")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("what", ["compact", "z_order"])
def test_memory_is_bounded(path, what):
    megabytes, files = run(path, what)
    assert files == 1
    assert megabytes < LIMIT_MB
