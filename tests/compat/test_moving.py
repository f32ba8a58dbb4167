"""The example for users of deltalake prints the same with deltalake and with the compat module."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("datafusion")
pytest.importorskip("duckdb")
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "moving_from_deltalake.py"


@pytest.mark.tier("test")
def test_the_example_prints_the_same_with_both_libraries(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("moving_from_deltalake", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    printed = []
    for name in ("deltalake", "refdelta.compat.deltalake"):
        folder = tmp_path / name
        folder.mkdir()
        example.main(importlib.import_module(name), folder)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "{'city': 'Oslo', 'total': 22.25}" in printed[0]
    assert "{'city': 'Oslo', 'orders': 3}" in printed[0]
