"""Which mutations of the code the tests find: ``make mutations``, or ``python -m mutations --tier check``.

Each mutation is made in a copy of the project, one at a time, and the tests run there until the first that fails. A
mutation that no test finds may be one that changes nothing that anybody can see; ``--only 12 --show`` prints it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutations.sites import Mutation, drawn

ROOT = Path(__file__).resolve().parents[2]
SEED, COUNT = 20261122, 50
# More than any tier takes; a mutation may make a loop endless.
LIMIT = 3600
_LEFT = (".venv", ".cache", ".git", "data", "__pycache__", ".hypothesis", ".*_cache", "dist", "build")


def main() -> None:
    """Run the tests over each mutation and print what became of it."""
    asked = argparse.ArgumentParser(prog="mutations", description=__doc__)
    asked.add_argument("--tier", default="check", help="the tests that are to find them")
    asked.add_argument("--seed", type=int, default=SEED)
    asked.add_argument("--count", type=int, default=COUNT)
    asked.add_argument("--only", type=int, nargs="+", default=[], metavar="N", help="these of them, from 1")
    asked.add_argument("--show", action="store_true", help="print them, and run nothing")
    asked.add_argument("--json", type=Path, metavar="FILE", help="append a line for each to this file")
    given = asked.parse_args()
    chosen = [(n, one) for n, one in enumerate(drawn(ROOT, given.seed, given.count), 1) if n in (given.only or [n])]
    if given.show:
        print(*(f"{n:3} {one}" for n, one in chosen), sep="\n")
        return
    found = 0
    with tempfile.TemporaryDirectory(prefix="refdelta-mutations-") as folder:
        copy = Path(folder) / "project"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_LEFT))
        if failed := _failed(copy, given.tier):
            sys.exit(f"without any mutation {failed} fails")
        for n, one in chosen:
            start = time.monotonic()
            by = _with(one, copy, given.tier)
            found += by is not None
            print(f"{n:3} {one}\n    {time.monotonic() - start:4.0f} s  {by or 'NOT FOUND'}", flush=True)
            if given.json:
                line = {"n": n, "mutation": str(one), "tier": given.tier, "found by": by}
                with given.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print(f"{found} of {len(chosen)} found by `make {_TARGETS[given.tier]}`")


_TARGETS = {"check": "check", "test": "test", "all": "test-all"}


def _with(mutation: Mutation, copy: Path, tier: str) -> str | None:
    file = copy / mutation.file
    text = file.read_text()
    try:
        file.write_text(mutation.apply(text))
        return _failed(copy, tier)
    finally:
        file.write_text(text)


def _failed(copy: Path, tier: str) -> str | None:
    """The first test that fails there, or None."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["REFDELTA_CACHE"] = os.environ.get("REFDELTA_CACHE") or str(ROOT / ".cache")
    env["PYTHONPATH"] = os.pathsep.join(str(copy / part) for part in (".", "storage", "tests"))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "auto", "--maxprocesses", "4", "--dist", "loadgroup"]
    try:
        done = subprocess.run(
            [*command, "--tier", tier], cwd=copy, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return "the limit of time"
    if done.returncode == 0:
        return None
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return named[1] if named else (done.stdout + done.stderr).strip().splitlines()[-1]


if __name__ == "__main__":
    main()
