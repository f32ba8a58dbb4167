"""mypy refuses wrong modes and levels in a user's script, and accepts the right ones."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import pyarrow as pa
from refdelta import CommitResult, DeltaTable, write_deltalake

rows = pa.table({"id": [1]})
result: CommitResult = write_deltalake("t", rows, mode="append", schema_mode="merge", isolation="Serializable")
write_deltalake("t", rows, mode="overwrite", partition_overwrite="dynamic")
table = DeltaTable("t")
table.delete("id = 1", isolation="WriteSerializable")
version: int | None = table.transact(lambda txn: txn.delete("id = 1"), attempts=3).version
DeltaTable.create("t", rows.schema, mode="ignore")
"""
WRONG = [
    'write_deltalake("t", rows, mode="apend")',
    'write_deltalake("t", rows, schema_mode="mrge")',
    'write_deltalake("t", rows, partition_overwrite="static")',
    'DeltaTable.create("t", rows.schema, mode="append")',
    'table.delete("id = 1", isolation="snapshot")',
    'table.transact(lambda txn: txn.delete("id = 1"), attempts="3")',
]


@pytest.mark.tier("nightly")
def test_mypy_refuses_wrong_words(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "\n".join(WRONG) + "\n")
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "storage")))
    options = ["--follow-imports=silent", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, script.name],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": paths, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    refused = {int(line) for line in re.findall(r"^script\.py:(\d+): error:", done.stdout, re.MULTILINE)}
    first = SCRIPT.count("\n") + 1
    assert refused == set(range(first, first + len(WRONG))), done.stdout


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "refdelta/py.typed").exists()
