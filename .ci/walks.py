"""Count the modules of ours that a call goes through: what a reader who follows the call has to open.

A module is on the walk of a call if one of its Python functions is called until the call returns, in the thread of the
caller or in one that the call starts. Each
call runs twice in one process, and the second run counts, so that imports and caches that are filled once do not.

    python .ci/walks.py                     the number of modules of each call, those of refdelta_storage apart
    python .ci/walks.py --list append       the modules of one call, with the number of calls into each
    python .ci/walks.py --json              all of it as JSON: {call: {"goal": 45, "modules": {name: calls}}}

The calls, on a table of three rows with deletion vectors in a local folder:

    append    write_deltalake(table, rows, mode="append")
    scan      DeltaTable(uri).to_pyarrow_table(filters="id > 1")
    delete    the commit of a DELETE after another DELETE of the same file took the version
    merge     table.merge(...).when_matched_update_all().when_not_matched_insert_all().execute()
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import refdelta
import refdelta_storage
from refdelta import DeltaTable, write_deltalake

ROOTS = [Path(str(package.__file__)).parent for package in (refdelta, refdelta_storage)]
ROWS = pa.table({"id": [1, 2, 3], "town": ["Ulm", "Bonn", "Kiel"]})
SOURCE = pa.table({"id": [2, 4], "town": ["Bonn am Rhein", "Trier"]})


def append(table: DeltaTable) -> Callable[[], Any]:
    """An append of three rows."""
    return lambda: write_deltalake(table, ROWS, mode="append")


def scan(table: DeltaTable) -> Callable[[], Any]:
    """A read of the rows that a filter selects, from the opening of the table."""
    return lambda: DeltaTable(table.table_uri).to_pyarrow_table(filters="id > 1")


def delete(table: DeltaTable) -> Callable[[], Any]:
    """The commit of a DELETE over a winner that deleted another row of the same file."""
    winner, later = table.begin(), table.begin()
    winner.delete("id = 1")
    later.delete("id = 2")
    winner.commit()
    return later.commit


def merge(table: DeltaTable) -> Callable[[], Any]:
    """A MERGE that updates one row and inserts another."""
    merged = table.merge(SOURCE, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all()
    return merged.execute


CALLS = {append: 45, scan: 40, delete: 45, merge: 70}
"""The calls, each with the number of modules of refdelta that it should not exceed."""


def module_of(file: str) -> str | None:
    """The module of a file of ours, from its package on; None for other files."""
    path = Path(file)
    for root in ROOTS:
        if path.is_relative_to(root):
            return ".".join(path.relative_to(root.parent).with_suffix("").parts)
    return None


def walk(call: Callable[[], Any]) -> dict[str, int]:
    """The number of calls into each module of ours while a call runs, in the order of the first ones.

    Args:
        call: the call, without arguments.
    """
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_filename] += 1

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    found: dict[str, int] = {}
    for file, count in calls.items():
        module = module_of(file)
        if module is not None:
            found[module] = found.get(module, 0) + count
    return found


def walks(names: list[str]) -> Iterator[tuple[str, int, dict[str, int]]]:
    """The name, the goal and the walk of calls, each on tables of its own in a temporary folder."""
    for make, goal in CALLS.items():
        if make.__name__ in names:
            with tempfile.TemporaryDirectory() as folder:
                calls = []
                for run in ("first", "second"):
                    uri = Path(folder, run)
                    write_deltalake(uri, ROWS, configuration={"delta.enableDeletionVectors": "true"})
                    calls.append(make(DeltaTable(uri)))
                calls[0]()
                yield make.__name__, goal, walk(calls[1])


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Count the modules of ours that a call goes through.")
    names = [make.__name__ for make in CALLS]
    parser.add_argument("--list", choices=names, metavar="CALL", help=f"list the modules of one: {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="print calls, goals and modules as JSON")
    options = parser.parse_args()
    found = list(walks([options.list] if options.list else names))
    if options.json:
        print(json.dumps({name: {"goal": goal, "modules": modules} for name, goal, modules in found}, indent=2))
        return 0
    for name, goal, modules in found:
        stores = sum(module.startswith("refdelta_storage.") for module in modules)
        print(f"{name:8} {len(modules) - stores:4} modules of refdelta, {stores} of refdelta_storage; goal {goal}")
        if options.list:
            for module, count in modules.items():
                print(f"  {count:6}  {module}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
