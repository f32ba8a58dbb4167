"""Which mutations of the code the tests find: ``make mutations``, or ``python -m mutations --tier check``.

The tests run once over code that notes which of them come by the place of a mutation (:mod:`mutations.reach`). Then
each mutation is made in a copy of the project, one at a time, and the tests that reach it run until the first that
fails. A mutation that no test finds may be one that changes nothing that anybody can see; ``--only 12 --show`` prints
it.
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
from collections.abc import Sequence
from pathlib import Path

import tiers
from mutations import reach
from mutations.sites import Mutation, drawn

ROOT = Path(__file__).resolve().parents[2]
SEED, COUNT = 20261122, 50
# Seconds. More than any tier takes; a mutation may make a loop endless.
LIMIT = 3600
MOST = 600
"""Of the tests that reach a mutation, so many run first: those nearest to it."""
_LEFT = (".venv*", ".cache", ".git", ".nox", "data", "__pycache__", ".hypothesis", ".*_cache", "dist", "build")


def main() -> None:
    """Run the tests over each mutation and print what became of it."""
    asked = argparse.ArgumentParser(prog="mutations", description=__doc__)
    asked.add_argument("--tier", default=tiers.TEST, choices=tiers.TIERS, help="the tests that are to find them")
    asked.add_argument("--seed", type=int, nargs="+", default=[SEED], help="one or several")
    asked.add_argument("--count", type=int, default=COUNT)
    asked.add_argument("--only", type=int, nargs="+", default=[], metavar="N", help="these of each seed, from 1")
    asked.add_argument("--show", action="store_true", help="print them, and run nothing")
    asked.add_argument(
        "--reached", type=Path, metavar="FILE", help="which tests reach them, of an earlier run; written if it is new"
    )
    asked.add_argument("--json", type=Path, metavar="FILE", help="append a line for each to this file")
    given = asked.parse_args()
    names = [
        (f"{seed}/{n}", one)
        for seed in given.seed
        for n, one in enumerate(drawn(ROOT, seed, given.count), 1)
        if n in (given.only or [n])
    ]
    chosen = dict(enumerate(names))
    if given.show:
        print(*(f"{name:12} {one}" for name, one in names), sep="\n")
        return
    found = 0
    with tempfile.TemporaryDirectory(prefix="refdelta-mutations-") as folder:
        Path(folder).chmod(0o755)  # some tests become another user, who has to import the package
        copy, reached = Path(folder) / "project", given.reached or Path(folder) / "reached"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_LEFT))
        shutil.copytree(copy, Path(folder) / "noting")
        at_import = reach.instrument(Path(folder) / "noting", {key: one for key, (_, one) in chosen.items()})
        if not reached.exists():
            noted = {reach.VARIABLE: str(reached.absolute())}
            # The notes themselves fail some tests, such as those of what the core may import.
            suspected = _run(Path(folder) / "noting", given.tier, noted, stop=False)
            if suspected and (failed := _run(copy, given.tier, tests=suspected)):
                sys.exit(f"without any mutation {failed[0]} fails")
        tests = reach.read(reached)
        for key, (name, one) in chosen.items():
            start = time.monotonic()
            near = sorted(tests.get(key, ()), key=lambda test, one=one: -_near(one, test))
            by = _with(one, copy, given.tier, None if key in at_import else near)
            found += by is not None
            seconds = time.monotonic() - start
            print(f"{name:12} {one}\n    {seconds:4.0f} s, {len(near)} tests  {by or 'NOT FOUND'}", flush=True)
            if given.json:
                line = {"n": name, "mutation": str(one), "tier": given.tier, "reached": len(near), "found by": by}
                with given.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print(f"{found} of {len(chosen)} found by `make {given.tier}`")


def _near(mutation: Mutation, test: str) -> int:
    """The number of words that the paths of a test and of the mutated module share."""
    return len(set(re.split(r"[/_.:\[]+", mutation.file)) & set(re.split(r"[/_.:\[]+", test.partition("[")[0])))


def _with(mutation: Mutation, copy: Path, tier: str, tests: Sequence[str] | None) -> str | None:
    """The first test that fails with the mutation, or None."""
    file = copy / mutation.file
    text = file.read_text()
    try:
        file.write_text(mutation.apply(text))
        if tests is None:
            return next(iter(_run(copy, tier)), None)
        parts = (part for part in (tests[:MOST], tests[MOST:]) if part)
        return next((failed[0] for part in parts if (failed := _run(copy, tier, tests=part))), None)
    finally:
        file.write_text(text)


def _run(
    copy: Path, tier: str, more: dict[str, str] | None = None, *, tests: Sequence[str] = (), stop: bool = True
) -> list[str]:
    """Run the tests of the tier, or these of them; those that fail, which is one if it stops there."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | (more or {})
    env["HYPOTHESIS_PROFILE"] = "mutations"
    env["REFDELTA_CACHE"] = os.environ.get("REFDELTA_CACHE") or str(ROOT / ".cache")
    env["PYTHONPATH"] = os.pathsep.join(str(copy / part) for part in (".", "storage", "tests"))
    command = [sys.executable, "-m", "pytest", "-q", "--dist", "loadgroup", "-p", "no:cacheprovider", "--tier", tier]
    # Few tests are done before further workers have begun.
    command += ["-n", "auto", "--maxprocesses", "4"] if len(tests) > 20 or not tests else ["-n", "0"]
    command += ["-x"] if stop else []
    names = copy.parent / "tests"
    names.write_text("\n".join(tests))
    command += [f"@{names}"] if tests else []
    try:
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return ["the limit of time"]
    if done.returncode == 0:
        return []
    if unknown := re.search(r"^ERROR: not found: (.*)$", done.stdout + done.stderr, re.MULTILINE):
        sys.exit(f"{unknown[1]} is no test of the tree")
    # Without the group that pytest-xdist puts at its end, and the reason.
    named = re.findall(r"^(?:FAILED|ERROR) (.+?)(?:@[^@\]]*)?(?: - .*)?$", done.stdout, re.MULTILINE)
    return named or [(done.stdout + done.stderr).strip().splitlines()[-1]]


if __name__ == "__main__":
    main()
