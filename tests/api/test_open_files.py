"""The number of open files does not grow with the number of partitions, in any statement."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys
import pyarrow as pa
from refdelta import DeltaTable, write_deltalake

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
uri, count = sys.argv[1], 150
rows = pa.table({"p": [i % count for i in range(2 * count)], "v": list(range(2 * count))})
write_deltalake(uri, rows, partition_by=["p"], configuration={"delta.enableChangeDataFeed": "true"})
write_deltalake(uri, rows, mode="append")
write_deltalake(uri, rows, mode="overwrite", predicate="p >= 0")
write_deltalake(uri, rows, mode="overwrite")
DeltaTable(uri).update({"v": "v + 1"}, predicate="v % 2 = 0")
DeltaTable(uri).delete("v > 250")
merge = DeltaTable(uri).merge(rows, "t.p = s.p and t.v = s.v", source_alias="s", target_alias="t")
merge.when_matched_update_all().when_not_matched_insert_all().execute()
write_deltalake(uri, rows, mode="append")
DeltaTable(uri).optimize.compact()
print(DeltaTable(uri).count(), DeltaTable(uri).load_cdf(4).read_all().num_rows > 0)
"""


@pytest.mark.tier("test")
def test_every_statement_runs_with_64_descriptors(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "t")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows, changes = done.stdout.split()
    assert int(rows) >= 600
    assert changes == "True"
