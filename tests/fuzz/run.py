"""``python -m fuzz.run``: many inputs for every target, in children that may crash, hang and ask for memory in vain.

Prints for each target how many inputs it had, how many outcomes were told apart, and how fast it went. What is found is
kept in ``--findings`` as a file that ``python -m fuzz.run --replay FILE TARGET`` runs again; the exit code is 1 then.
Targets that go on to another library's reader (``Target.outside``) keep no input: their findings are kinds of ends,
with the number of each.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.targets import Target, judge, target_of, targets
from fuzz.worker import FOUND, Current

TESTS = Path(__file__).resolve().parent.parent
CHILD, TOGETHER = 25_000, 4_000
"""Inputs of one child at most: of one target, and of several, which are whole tables that take their time."""

Work = list[tuple[str, int]]


@dataclass
class Tally:
    """What became of a target."""

    inputs: int = 0
    outcomes: int = 0
    findings: list[Path] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    """Of a target that goes on to another library: kinds of findings, with the number of each."""

    @property
    def found(self) -> int:
        """The number of findings."""
        return len(self.findings) + self.ends.total()


def fuzz(counts: dict[str, int], seed: str, jobs: int, findings: Path, most: int = 20) -> dict[str, Tally]:
    """Feed targets, each first with its corpus.

    Args:
        counts: how many inputs for which target.
        seed: decides what they are.
        jobs: how many children at once.
        findings: the folder for what is found.
        most: how many findings are enough for a target.
    """
    run = _Run(findings, most)
    tasks = list(enumerate(_tasks(counts, jobs)))
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda task: run.work(f"{seed}.{task[0]}", task[1]), tasks))
    return {name: run.tallies[name] for name in counts}


def _tasks(counts: dict[str, int], jobs: int) -> list[Work]:
    """The work of each child: large shares in pieces, small ones together, and enough for every job."""
    whole = sum(counts.values())
    most, together = (min(limit, max(1, whole // jobs)) for limit in (CHILD, TOGETHER))
    tasks: list[Work] = []
    for name, count in counts.items():
        left = count
        while left >= most:
            tasks.append([(name, most)])
            left -= most
        if not left:
            continue
        if tasks and tasks[-1][-1][0] != name and sum(n for _, n in tasks[-1]) + left <= together:
            tasks[-1].append((name, left))
        else:
            tasks.append([(name, left)])
    return tasks


class _Run:
    def __init__(self, findings: Path, most: int):
        self.findings, self.most = findings, most
        self.tallies: dict[str, Tally] = defaultdict(Tally)

    def work(self, seed: str, work: Work) -> None:
        """Run children until a share is done: behind a finding, the next one goes on with another seed."""
        while work:
            with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
                child = _child(seed, Path(folder), work)
                for (name, count), outcomes in zip(work, child.stdout.split(), strict=False):
                    self.tallies[name].inputs += count
                    self.tallies[name].outcomes = max(self.tallies[name].outcomes, int(outcomes))
                if child.returncode == 0:
                    return
                place, number, data = Current.read(Path(folder, "current"))
                why = Path(folder, "why")
                outside = target_of(work[place][0]).outside
                stderr = "" if outside else child.stderr
                text = why.read_text() if child.returncode == FOUND else _end(child.returncode, stderr)
            name, count = work[place]
            number = max(1, number + 1 - len(target_of(name).inputs()))
            self.tallies[name].inputs += min(number, count)
            if outside:
                self.tallies[name].ends[text.strip()] += 1
                print(f"FOUND by {name}: {text.strip()}", flush=True)
            else:
                self._found(name, f"{name}-{seed}-{number}", data, text)
            rest = [(name, count - number)] if number < count and self.tallies[name].found < self.most else []
            work, seed = rest + work[place + 1 :], seed + "+"

    def _found(self, name: str, label: str, data: bytes, why: str) -> None:
        self.findings.mkdir(parents=True, exist_ok=True)
        path = self.findings / label
        path.write_bytes(data)
        path.with_name(path.name + ".why").write_text(why)
        self.tallies[name].findings.append(path)
        print(f"FOUND {path}\n{why}", flush=True)


def _child(seed: str, folder: Path, work: Work) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", "-m", "fuzz.worker", seed, str(folder)]
    return subprocess.run(
        [*command, *(f"{name}={count}" for name, count in work)],
        check=False,
        cwd=TESTS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )


def _end(code: int, stderr: str) -> str:
    if code == -signal.SIGPROF:
        return "the input takes too long"
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the process ended by {name}\n{stderr[-3000:]}"


def replay(target: Target, path: Path) -> None:
    """Run one input in this process, and say what came of it."""
    print(judge(target, path.read_bytes()))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--each", action="store_true", help="so many inputs for each target, not in shares")
    parser.add_argument("--findings", type=Path, default=TESTS.parent / ".cache" / "fuzz")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("names", nargs="*", help="targets; all unless said")
    options = parser.parse_args()
    names = options.names or list(targets())
    if options.replay:
        replay(targets()[names[0]], options.replay)
        return 0
    print(f"seed {options.seed}", flush=True)
    begun = time.monotonic()
    counts = dict.fromkeys(names, options.inputs) if options.each else shares(names, options.inputs)
    tallies = fuzz(counts, options.seed, options.jobs, options.findings)
    print(report(tallies), f"\nin {time.monotonic() - begun:,.0f} seconds, seed {options.seed}")
    return 1 if any(tally.found for tally in tallies.values()) else 0


def shares(names: list[str], inputs: int) -> dict[str, int]:
    """How many of so many inputs each target gets."""
    whole = sum(targets()[name].share for name in names)
    return {name: max(1, inputs * targets()[name].share // whole) for name in names}


def report(tallies: dict[str, Tally]) -> str:
    """A line a target."""
    rows = [f"{'target':<22}{'inputs':>11}{'outcomes':>10}{'findings':>10}"]
    rows += [f"{name:<22}{t.inputs:>11,}{t.outcomes:>10,}{t.found:>10}" for name, t in tallies.items()]
    rows += [f"{name}: {number} times {end}" for name, t in tallies.items() for end, number in t.ends.items()]
    everything = list(tallies.values())
    found = sum(tally.found for tally in everything)
    rows.append(
        f"{'all':<22}{sum(t.inputs for t in everything):>11,}{sum(t.outcomes for t in everything):>10,}{found:>10}"
    )
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
