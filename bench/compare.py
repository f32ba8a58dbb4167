"""``make bench-compare A=<commit> B=<commit>``: refdelta as it was at two commits, by the same benchmarks.

    python bench/compare.py A B [--pairs 3] [--size default] [-k stale and other options of pytest]

Each commit's engine stands in a worktree of its own, and both run the benchmarks of this tree, in this environment,
without any rival. The runs alternate, A B A B: what is told is the median over the pairs of B's time over A's within a
pair, with its spread.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from contest import ratio
from report import duration, times
from results import ResultsError, load

BENCH = Path(__file__).parent
ROOT = BENCH.parent

Medians = Mapping[str, Mapping[int, float]]
"""Seconds a unit, of each benchmark by its title, in each pair."""


class CompareError(Exception):
    """There is nothing to compare."""


def resolve(root: Path, name: str) -> str:
    """The full id of a commit. Raises ``CompareError`` where there is none of that name."""
    if not name or name.startswith("-"):
        raise CompareError(f"{name!r} is no commit; say make bench-compare A=<commit> B=<commit>")
    done = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if done.returncode:
        raise CompareError(f"there is no commit {name!r} in {root}")
    return done.stdout.strip()


@contextmanager
def worktree(root: Path, commit: str, folder: Path) -> Iterator[Path]:
    """The tree of a commit, for as long as it is needed."""
    added = _git(root, "worktree", "add", "--quiet", "--detach", str(folder), commit)
    if added.returncode:
        raise CompareError(f"cannot check {commit} out: {added.stderr.strip()}")
    try:
        yield folder
    finally:
        _git(root, "worktree", "remove", "--force", str(folder))


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)


def environment(tree: Path) -> dict[str, str]:
    """Python's path with a tree's engine before the one that is installed. Raises ``CompareError`` without one."""
    path = os.pathsep.join([str(tree), str(tree / "storage")])
    found = {**os.environ, "PYTHONPATH": path}
    ask = "import refdelta, refdelta_storage; print(refdelta.__file__, refdelta_storage.__file__, sep='\\n')"
    command = [sys.executable, "-c", ask]
    done = subprocess.run(command, env=found, cwd=tree, capture_output=True, text=True, check=False)
    files = done.stdout.splitlines()
    if done.returncode or not all(Path(file).is_relative_to(tree) for file in files):
        raise CompareError(f"the engine at this commit does not start: {done.stderr.strip() or files}")
    return found


def measure(tree: Path, told: Path, options: Sequence[str]) -> dict[str, float]:
    """Run the benchmarks with a tree's engine. Returns the median seconds a unit of those that ran, by title."""
    # An older engine may lack a module that some benchmarks import; the others run.
    command = [sys.executable, "-m", "pytest", "-c", str(BENCH / "pytest.ini"), "--alone"]
    command.append("--continue-on-collection-errors")
    command += ["--benchmark-json", str(told), *options]
    if not any(option.startswith(str(BENCH)) for option in options):
        command.append(str(BENCH))
    # Elsewhere than in the project, whose own engine Python would find before all others.
    done = subprocess.run(command, env=environment(tree), cwd=told.parent, capture_output=True, text=True, check=False)
    try:
        return {bench.title: bench.own.middle for bench in load(told).benches}
    except ResultsError as error:
        raise CompareError(f"no benchmark ran:\n{done.stdout[-3000:]}{done.stderr[-1000:]}") from error


def compare(root: Path, names: Sequence[str], pairs: int, options: Sequence[str]) -> tuple[Medians, Medians]:
    """The medians of both commits, by pair."""
    commits = [resolve(root, name) for name in names]
    found: tuple[dict[str, dict[int, float]], ...] = ({}, {})
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        place = Path(folder).resolve()
        with worktree(root, commits[0], place / "a") as first, worktree(root, commits[1], place / "b") as second:
            for tree in (first, second):
                environment(tree)
            for pair in range(pairs):
                for tree, medians in zip((first, second), found, strict=True):
                    for title, seconds in measure(tree, place / "told.json", options).items():
                        medians.setdefault(title, {})[pair] = seconds
                print(f"{pair + 1} of {pairs} pairs", file=sys.stderr)
    return found[0], found[1]


def lines(names: Sequence[str], first: Medians, second: Medians) -> Iterator[str]:
    """A line for each benchmark."""
    width = max(map(len, first.keys() | second.keys()), default=0)
    for title in dict.fromkeys([*first, *second]):
        a, b = first.get(title, {}), second.get(title, {})
        if not a.keys() & b.keys():
            yield f"{title:<{width}}  not compared: it fails at {names[0] if not a else names[1]}"
            continue
        found = ratio(b, a)
        word = "faster" if found.high < 1 else "slower" if found.low > 1 else "no difference beyond the spread"
        middles = [duration(statistics.median(some.values())) for some in (a, b)]
        yield f"{title:<{width}}  A {middles[0]:>8}  B {middles[1]:>8}  B takes {times(found)} of A: {word}"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="make bench-compare", description="refdelta at two commits.")
    parser.add_argument("a", help="a commit")
    parser.add_argument("b", help="another one")
    parser.add_argument("--pairs", type=int, default=3, help="how often each runs")
    given, options = parser.parse_known_args(arguments)
    if given.pairs < 1:
        parser.error("--pairs: at least one")
    # So that the worktrees go, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = (given.a, given.b)
    try:
        changed = _git(root, "status", "--porcelain", "--", "refdelta", "storage").stdout.splitlines()
        if changed:
            print(f"{len(changed)} changed files of the engine are not committed, and not compared", file=sys.stderr)
        first, second = compare(root, names, given.pairs, options)
    except CompareError as error:
        print(f"make bench-compare: {error}", file=sys.stderr)
        return 2
    print(f"A is {given.a}, B is {given.b}; medians of {given.pairs} pairs of runs, and the ratio's spread")
    print(*lines(names, first, second), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
