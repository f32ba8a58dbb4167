"""Calls of the command line, in this process and in one of its own."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest

from refdelta import write_deltalake
from refdelta.cli import main


@pytest.fixture
def cli(capfdbinary, monkeypatch):
    """``cli("read", path)`` gives ``.status``, ``.out`` and ``.err``, with ``--json`` also ``.json``."""
    monkeypatch.delenv("REFDELTA_DEBUG", raising=False)

    def call(*arguments):
        status = main([str(argument) for argument in arguments])
        out, err = (text.decode() for text in capfdbinary.readouterr())
        result = SimpleNamespace(status=status, out=out, err=err)
        if "--json" in arguments and status == 0:
            lines = out.splitlines() if arguments[0] in ("read", "changes") else [out]
            parsed = [json.loads(line) for line in lines]
            result.json = parsed if arguments[0] in ("read", "changes") else parsed[0]
        return result

    return call


@pytest.fixture
def fails(cli):
    """``fails("read", path)`` asserts one clear line and status 1, and returns the line."""

    def call(*arguments):
        result = cli(*arguments)
        assert result.status == 1
        assert result.out == ""
        assert result.err.startswith("refdelta: ")
        assert result.err.count("\n") == 1, result.err
        assert "REFDELTA_DEBUG" not in result.err, result.err
        return result.err.removeprefix("refdelta: ").rstrip("\n")

    return call


@pytest.fixture
def process():
    """Start ``python -m refdelta`` with these arguments, its three streams piped."""

    def start(*arguments, code=None):
        program = ["-m", "refdelta"] if code is None else ["-c", code]
        command = [sys.executable, *program, *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    return start


@pytest.fixture
def table(tmp_path):
    """A table of three versions: two rows, two more, then one overwritten row."""
    path = tmp_path / "table"
    first = pa.table({"id": [1, 2], "name": ["one", None], "day": ["a", "b"]})
    write_deltalake(path, first, partition_by=["day"], name="numbers")
    write_deltalake(path, pa.table({"id": [3, 4], "name": ["three", "four"], "day": ["a", "b"]}), mode="append")
    write_deltalake(
        path, pa.table({"id": [5], "name": ["five"], "day": ["b"]}), mode="overwrite", predicate="day = 'b'"
    )
    return path
