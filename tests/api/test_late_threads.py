"""Threads that go on after the main thread has ended, for which the interpreter waits, read and change tables."""

import subprocess
import sys

import pytest

CODE = """
import sys, threading
import pyarrow as pa
from refdelta import DeltaTable, write_deltalake

uri = sys.argv[1]
rows = pa.table({"id": range(100), "d": [i % 10 for i in range(100)]})
for _ in range(3):
    write_deltalake(uri, rows, mode="append", partition_by=["d"])

def late():
    threading.main_thread().join()
    # The pools refuse tasks a little later, when the interpreter has begun to end.
    import concurrent.futures.thread as pools
    while not pools._shutdown:
        pass
    write_deltalake(uri, rows, mode="append")
    DeltaTable(uri).update({"id": "id + 1"}, predicate="id > 5")
    DeltaTable(uri).delete("id % 3 = 0")
    DeltaTable(uri).optimize.compact()
    DeltaTable(uri).create_checkpoint()
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    print(DeltaTable(uri).to_pyarrow_table().num_rows == DeltaTable(uri).count())

threading.Thread(target=late).start()
"""


@pytest.mark.tier("test")
def test_every_statement_runs_after_the_main_thread(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "t")], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("True", "")
