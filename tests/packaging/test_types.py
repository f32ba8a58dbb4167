"""A type checker refuses wrong modes and levels in a user's script, and accepts the right ones."""

import os
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


def complaints(command, tmp_path):
    """The numbers of the lines with errors."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "\n".join(WRONG) + "\n")
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "storage")))
    environment = {**os.environ, "MYPYPATH": paths, "PYTHONPATH": paths}
    done = subprocess.run(
        [*command, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    found = [line for line in done.stdout.splitlines() if "script.py:" in line and "error" in line]
    return {int(line.split("script.py:")[1].split(":")[0]) for line in found}, done.stdout


def expected():
    first = SCRIPT.count("\n") + 1
    return set(range(first, first + len(WRONG)))


@pytest.mark.tier("nightly")
def test_mypy_refuses_wrong_words(tmp_path):
    options = ["--follow-imports=silent", "--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache")]
    found, output = complaints([sys.executable, "-m", "mypy", *options], tmp_path)
    assert found == expected(), output


@pytest.mark.tier("test")
def test_pyright_refuses_wrong_words(tmp_path):
    # basedpyright is pyright with its own Node.js: that of PyPI fetches both when it first runs.
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--level", "error", "--pythonpath", sys.executable]
    found, output = complaints(command, tmp_path)
    assert found == expected(), output


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "refdelta/py.typed").exists()
