"""The times in ``tests/README.md``, of runs that were recorded.

REFDELTA_SECONDS=/tmp/check make check
REFDELTA_SECONDS=/tmp/test make test
make generate NAME=test-times ARGS="/tmp/check /tmp/test"
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from marked_block import rewritten

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "tests" / "README.md"
COLLECTION = "collection"
LONGEST = 10


def lines(file: str) -> list[dict[str, Any]]:
    """The phases of the tests of a run, and its collections."""
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def row(command: str, run: list[dict[str, Any]]) -> str:
    """The numbers of a run as a row of the table."""
    tests = {line["test"] for line in run if line["phase"] != COLLECTION}
    collections = [line["seconds"] for line in run if line["phase"] == COLLECTION]
    whole = max(line["start"] + line["seconds"] for line in run) - min(line["start"] for line in run)
    cpu = sum(line["cpu"] for line in run)
    return f"| `{command}` | {len(tests):,} | {max(collections):.0f} s | {whole:.0f} s | {cpu:.0f} s |"


def text(check: list[dict[str, Any]], test: list[dict[str, Any]]) -> str:
    """The block."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - wherever it is installed
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    seconds: Counter[str] = Counter()
    for line in test:
        if line["phase"] != COLLECTION:
            seconds[line["test"]] += line["seconds"]
    longest = [f"| {took:.0f} | `{name.removeprefix('tests/')}` |" for name, took in seconds.most_common(LONGEST)]
    return "\n".join(
        [
            f"At {commit} on {time.strftime('%Y-%m-%d', time.gmtime())}, {os.cpu_count()} cores, after set-up:",
            "",
            "| command | tests | of which collection | whole | CPU of tests |",
            "| --- | --- | --- | --- | --- |",
            row("make check", check),
            row("make test", test),
            "",
            "The longest tests of the gate, with their set-up:",
            "",
            "| seconds | test |",
            "| --- | --- |",
            *longest,
        ]
    )


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT, DOCUMENT.read_text(), "times", text(*map(lines, sys.argv[1:3])) + "\n"))
