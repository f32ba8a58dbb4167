"""A script of a library on the compat module, in an environment without deltalake.

    python -P tests/compat/library.py NAME [URI OPTIONS]

It runs ``libraries/NAME.py`` with the place of its tables and the storage options as JSON, by deltalake's names, and
checks that refdelta made each commit of the tables there. Without a place, it is the current folder.
``nox -s libraries`` makes the environments.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refdelta_storage import Store

DISTRIBUTIONS = {"ibis": "ibis-framework", "dagster": "dagster-deltalake"}
"""The distributions of libraries that have another name than theirs."""
QUIET = {
    "DO_NOT_TRACK": "1",
    "DAGSTER_DISABLE_TELEMETRY": "yes",
    "RUNTIME__DLTHUB_TELEMETRY": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""No usage reports from a test."""


def commits(store: Store) -> list[str]:
    """The engines of all commits of the tables in a store."""
    found = []
    for info in store.list():
        if re.search(r"(^|/)_delta_log/\d{20}\.json$", info.key):
            actions = [json.loads(line) for line in store.get(info.key).splitlines()]
            found += [action["commitInfo"]["engineInfo"] for action in actions if "commitInfo" in action]
    return found


def main(name: str, lake: str = "", options: str = "null") -> None:
    """Run the script of a library, check the tables, and print its version and the number of commits."""
    from refdelta_storage import open_store

    os.environ.update(QUIET)
    lake = lake or str(Path.cwd())
    script = str(Path(__file__).parent / "libraries" / f"{name}.py")
    sys.argv = [script, lake, options]
    runpy.run_path(script, run_name="__main__")
    deltalake = importlib.import_module("deltalake")
    assert deltalake.__name__ == "refdelta.compat.deltalake", deltalake
    engines = commits(open_store(lake, json.loads(options)))
    assert engines
    assert all(engine.startswith("refdelta/") for engine in engines), engines
    named = DISTRIBUTIONS.get(name, name)
    print(f"{named} {distribution(named).version}: {len(engines)} commits of refdelta")


if __name__ == "__main__":
    main(*sys.argv[1:])
