"""The routes of CONTRIBUTING.md: each call passes the modules that are named, in the order in which they are named."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import refdelta
from refdelta import DeltaTable, write_deltalake

ROOT = Path(refdelta.__file__).parent
TEXT = Path(__file__).parents[2].joinpath("CONTRIBUTING.md").read_text()
ROWS = pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]})


def route(name):
    """The modules of a route, in the order of their first mention."""
    section = TEXT.partition("## Where a call goes")[2].partition("\n## ")[0]
    (text,) = (part for part in section.split("\n- **") if part.startswith(name))
    return list(dict.fromkeys(re.findall(r"`([a-z_/]+)\.py`", text)))


def called(call):
    """The modules of the package as they are called one after the other, and those on the stack of each call of the
    store that writes.
    """
    trace, stacks = [], []

    def note(frame, event, _):
        if event != "call":
            return
        if (module := module_of(frame)) is not None:
            trace.append(module)
        elif frame.f_code.co_name in {"put", "put_if_absent", "open_output"}:
            stacks.append(stack_of(frame))

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace, stacks


def module_of(frame):
    path = Path(frame.f_code.co_filename)
    return str(path.relative_to(ROOT).with_suffix("")) if path.is_relative_to(ROOT) else None


def stack_of(frame):
    found = []
    while frame is not None:
        if (module := module_of(frame)) is not None and module not in found:
            found.append(module)
        frame = frame.f_back
    return found


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path / "t", ROWS, configuration={"delta.enableDeletionVectors": "true"})
    return DeltaTable(tmp_path / "t")


def conflict(table):
    first, second = table.begin(), table.begin()
    first.delete("a = 1")
    second.delete("a = 2")
    first.commit()
    return second.commit


CALLS = {
    "Append": lambda table: lambda: write_deltalake(table, ROWS, mode="append"),
    "Conflict": conflict,
    "Snapshot read": lambda table: lambda: DeltaTable(table.table_uri).to_pyarrow_table(filters="a > 1"),
    "DELETE": lambda table: lambda: table.delete("a = 3"),
    "MERGE": lambda table: (
        lambda: table.merge(ROWS, "t.a = s.a").when_matched_update_all().when_not_matched_insert_all().execute()
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_its_route(table, name):
    trace, _ = called(CALLS[name](table))
    named = route(name)
    assert len(named) > 5
    rest = iter(trace)
    assert [module for module in named if module not in rest] == []


def test_an_append_passes_few_modules_on_its_way_to_the_store(table):
    _, stacks = called(CALLS["Append"](table))
    assert len(stacks) >= 2  # the data file, and the log's entry
    assert len({module for stack in stacks for module in stack}) <= 20
