"""Where the time of a run goes: ``REFDELTA_SECONDS=FILE make test`` notes it, ``python tests/seconds.py FILE`` says it.

A line of the file is a phase of a test: its worker, when it began, how long it took, and the seconds of CPU that its
process and the children that it waited for used meanwhile. A server or a Spark that outlives the test is not in them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

COLLECTION = "collection"
"""The phase in which a worker finds its tests."""


class Recorder:
    """Writes a line for each phase of each test, from whichever worker runs it."""

    def __init__(self, file: str) -> None:
        self._file = Path(file).open("a", buffering=1)  # noqa: SIM115 - open as long as the run
        self._worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._cpu = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        start, before = time.time(), _cpu()
        result = yield
        self._write(COLLECTION, COLLECTION, start, time.time() - start, _cpu() - before)
        return result

    def pytest_runtest_logstart(self) -> None:
        self._cpu = _cpu()

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
        before, self._cpu = self._cpu, _cpu()
        self._write(item.nodeid.partition("@")[0], call.when, call.start, call.duration, self._cpu - before)

    def _write(self, test: str, phase: str, start: float, seconds: float, cpu: float) -> None:
        line = {
            "test": test,
            "worker": self._worker,
            "phase": phase,
            "start": round(start, 3),
            "seconds": round(seconds, 4),
            "cpu": round(cpu, 4),
        }
        self._file.write(json.dumps(line) + "\n")


def _cpu() -> float:
    return sum(os.times()[:4])


def report(lines: Iterable[dict[str, Any]], most: int = 20) -> str:
    """The slowest tests and files, what is set-up and what is work, and when each worker had nothing left to do."""
    tests: Counter[str] = Counter()
    files: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    spans: dict[str, list[float]] = defaultdict(lambda: [float("inf"), 0.0, 0.0])
    numbers: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line["phase"] == COLLECTION:
            continue
        name, took, span = line["test"], line["seconds"], spans[line["worker"]]
        file = name.partition("::")[0]
        tests[name] += took
        files[file] += took
        cpu[file] += line["cpu"]
        phases[line["phase"]] += took
        numbers[file].add(name)
        span[:] = min(span[0], line["start"]), max(span[1], line["start"] + took), span[2] + took
    text = [
        f"{len(tests)} tests, {sum(tests.values()):.0f} s: " + ", ".join(f"{k} {v:.0f} s" for k, v in phases.items())
    ]
    first = min((span[0] for span in spans.values()), default=0.0)
    for worker, (begin, end, busy) in sorted(spans.items()):
        text.append(f"{worker}: from {begin - first:.0f} s to {end - first:.0f} s, {busy:.0f} s of them in tests")
    text += ["", f"{'seconds':>8} {'CPU':>8} {'tests':>6}  file"]
    text += [f"{took:8.1f} {cpu[file]:8.1f} {len(numbers[file]):6}  {file}" for file, took in files.most_common(most)]
    text += ["", f"{'seconds':>8}  test"]
    text += [f"{took:8.1f}  {name}" for name, took in tests.most_common(most)]
    return "\n".join(text)


if __name__ == "__main__":
    source, *number = sys.argv[1:]
    with Path(source).open() as written:
        print(report(map(json.loads, written), *map(int, number)))
