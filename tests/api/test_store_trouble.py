"""A full disk, a folder that cannot be written: one clear error, nothing left half-written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from refdelta import DeltaTable, write_deltalake

SMALL = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})


def everything(path):
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*"))


def child(code, *arguments, prepare=None):
    """Run code in another process, so that its limits and its user id are its own."""
    program = textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        preexec_fn=prepare,
        timeout=120,
    )


APPEND = """
    import sys, pyarrow as pa
    import refdelta
    from refdelta import errors
    rows = int(sys.argv[2])
    data = pa.table({"id": range(rows), "x": [str(i * 7919) for i in range(rows)]})
    try:
        refdelta.write_deltalake(sys.argv[1], data, mode="append")
    except errors.StoreError as error:
        print("StoreError:", error)
"""


def test_a_full_disk(tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": range(10), "x": [str(i) for i in range(10)]}))
    before = everything(path)

    def limit():
        # A write beyond the limit fails like one on a full disk; Python ignores the signal that comes with it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    done = child(APPEND, path, 300_000, prepare=limit)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("StoreError:"), done.stdout
    assert "parquet" in done.stdout
    assert done.stdout.count("\n") == 1
    assert everything(path) == before
    assert DeltaTable(path).count() == 10


BECOME_NOBODY = """
    import os
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone may become another user")
def test_a_folder_that_may_not_be_written():
    with tempfile.TemporaryDirectory(prefix="refdelta-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "t"
        write_deltalake(path, pa.table({"id": range(10), "x": [str(i) for i in range(10)]}))
        before = everything(path)
        lines = APPEND.splitlines(keepends=True)
        done = child("".join(lines[:4]) + BECOME_NOBODY.lstrip("\n") + "".join(lines[4:]), path, 10)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("StoreError:"), done.stdout
        assert "permission" in done.stdout.lower()
        assert everything(path) == before
