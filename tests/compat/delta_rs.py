"""delta-rs' own tests of its Python package, on ``refdelta.compat.deltalake``.

    python tests/compat/delta_rs.py FOLDER [arguments of pytest]

``FOLDER`` is ``python`` of a checkout of delta-rs, tag ``python-v1.6.6``, or of deltalake's source distribution. Its
tests import ``deltalake``; here that name is the compat module.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = ("exceptions", "query", "schema", "table", "transaction", "writer", "writer.properties", "writer.writer")
# Modules of functions inside deltalake that refdelta has not: tests that call them fail.
LACKING = {
    "_util": "deprecate_positional_commit_args",
    "writer._conversion": "_convert_arro3_schema_to_delta",
    "writer._utils": "try_get_table_and_table_uri",
}


def _inside(*_args: object) -> None:
    raise NotImplementedError("an inside of deltalake, which refdelta has not")


class Raw:
    """The part of deltalake's inner table by which its tests find the folder of a table."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def table_uri(self) -> str:
        return str(self._table.table_uri)


def map_modules() -> None:
    """Make the compat module importable as ``deltalake``."""
    home = "refdelta.compat.deltalake"
    root: Any = importlib.import_module(home)
    sys.modules["deltalake"] = root
    root.DeltaTable._table = property(Raw)
    vars(root).update(
        _NANOSECOND_TIMESTAMPS=False,
        _disable_nanosecond_timestamps=lambda: None,
        _nanosecond_timestamps_enabled=lambda: False,
        _set_cast_nanos_timestamps_to_micros=lambda _: None,
    )
    for name, function in LACKING.items():
        inside = sys.modules[f"deltalake.{name}"] = ModuleType(f"deltalake.{name}")
        setattr(inside, function, _inside)
    util: Any = sys.modules["deltalake._util"]
    util.encode_partition_value = importlib.import_module(f"{home}.table").encode_partition_value
    for name in MODULES:
        module = sys.modules[f"deltalake.{name}"] = importlib.import_module(f"{home}.{name}")
        if name in ("exceptions", "schema"):  # deltalake._internal has them, too
            vars(root).update({one: getattr(module, one) for one in module.__all__})
    sys.modules["deltalake._internal"] = root


if __name__ != "__main__":  # pytest imports this module as a plugin, before the tests' conftest.py
    map_modules()
else:
    import pytest

    folder = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(Path(__file__).parent))
    os.chdir(folder)
    options = ["-q", "-c", os.devnull, f"--rootdir={folder}", "-p", "delta_rs", "-p", "no:cacheprovider"]
    sys.exit(pytest.main([*options, *(sys.argv[2:] or ["tests"])]))
