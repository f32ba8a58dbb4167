"""MERGE holds its source and pieces of the table, never the table: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

BATCHES, ROWS = 40, 200_000  # 40 files of 6.4 MB in memory: 256 MB in all
SOURCE = 50_000
LIMIT_MB = 190  # of Arrow's memory, at its highest

WRITE = """
    import sys
    import numpy as np, pyarrow as pa
    import refdelta
    random = np.random.default_rng(1)
    for i in range({batches}):
        n = {rows}
        # Every file holds keys of the whole range, so that statistics leave none out.
        id = random.permutation(n) * {batches} + i
        columns = dict(id=id, x=random.random(n), y=random.random(n), z=np.arange(n))
        vectors = {{"delta.enableDeletionVectors": sys.argv[2]}}
        refdelta.write_deltalake(sys.argv[1], pa.table(columns), mode="append", configuration=vectors)
"""

MERGE = """
    import sys
    import numpy as np, pyarrow as pa
    import refdelta
    from refdelta.engine.parquet import encode, write
    from refdelta.engine.work import executor
    encode.IN_FLIGHT_BYTES = write.BUFFER_BYTES = write.ROW_GROUP_BYTES = executor.LOOK_AHEAD_BYTES = 16 * 2**20
    n, source = {batches} * {rows}, {source}
    step = 2 * n // source
    id = np.arange(source) * step + np.arange(source) % {batches}  # one half matches, in every file
    table = refdelta.DeltaTable(sys.argv[1])
    result = (
        table.merge(pa.table(dict(id=id, x=np.full(source, -1.0))), "t.id = s.id")
        .when_matched_update({{"x": "s.x"}})
        .when_not_matched_insert({{"id": "s.id", "x": "s.x"}})
        .execute()
    )
    matched = int((id < n).sum())
    assert result["num_target_rows_updated"] == matched, dict(result)
    assert result["num_target_rows_inserted"] == source - matched, dict(result)
    count = "num_deletion_vectors_added" if sys.argv[2] == "true" else "num_target_files_removed"
    assert result[count] == {batches}, dict(result)
    print(pa.default_memory_pool().max_memory() // 2**20)
"""


def megabytes(code, *arguments):
    program = textwrap.dedent(code).format(batches=BATCHES, rows=ROWS, source=SOURCE)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout or 0)


@pytest.mark.tier("test")
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_merge_holds_its_source_and_never_the_table(tmp_path, vectors):
    megabytes(WRITE, tmp_path / "t", vectors)
    assert megabytes(MERGE, tmp_path / "t", vectors) < LIMIT_MB
