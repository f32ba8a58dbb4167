"""A script of a library on the compat module, in an environment without deltalake.

    python -P tests/compat/library.py NAME

It runs ``libraries/NAME.py`` in the current folder, and checks that refdelta made each commit of the tables in it.
``.ci/environments.py libraries`` makes the environments.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from importlib.metadata import distribution
from pathlib import Path

DISTRIBUTIONS = {"ibis": "ibis-framework", "dagster": "dagster-deltalake"}
"""The distributions of libraries that have another name than theirs."""
QUIET = {
    "DO_NOT_TRACK": "1",
    "DAGSTER_DISABLE_TELEMETRY": "yes",
    "RUNTIME__DLTHUB_TELEMETRY": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""No usage reports from a test."""


def commits(folder: Path) -> list[str]:
    """The engines of all commits of the tables in a folder."""
    found = []
    for log in sorted(folder.rglob("_delta_log/" + "[0-9]" * 20 + ".json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        found += [action["commitInfo"]["engineInfo"] for action in actions if "commitInfo" in action]
    return found


def main(name: str) -> None:
    """Run the script of a library, check the tables, and print its version and the number of commits."""
    os.environ.update(QUIET)
    runpy.run_path(str(Path(__file__).parent / "libraries" / f"{name}.py"), run_name="__main__")
    deltalake = importlib.import_module("deltalake")
    assert deltalake.__name__ == "refdelta.compat.deltalake", deltalake
    engines = commits(Path())
    assert engines
    assert all(engine.startswith("refdelta/") for engine in engines), engines
    named = DISTRIBUTIONS.get(name, name)
    print(f"{named} {distribution(named).version}: {len(engines)} commits of refdelta")


if __name__ == "__main__":
    main(sys.argv[1])
