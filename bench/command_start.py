"""The processor time of the command before it works: ``python bench/command_start.py [ROUNDS]``.

Each sample is a process of its own, its user and its system time together, the interpreter's included. The processes
take turns, and the first round does not count. The goal: at most half of ``import pyarrow``.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

PYTHON, COMMAND = sys.executable, str(Path(sys.executable).with_name("refdelta"))


def completion(words: str) -> dict[str, str]:
    """The environment of a completion, as the script for bash sets it."""
    return {"_REFDELTA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}


CALLS: dict[str, tuple[list[str], dict[str, str]]] = {
    "an interpreter": ([PYTHON, "-c", "pass"], {}),
    "import pyarrow": ([PYTHON, "-c", "import pyarrow"], {}),
    "refdelta --version": ([COMMAND, "--version"], {}),
    "refdelta --help": ([COMMAND, "--help"], {}),
    "refdelta wri<TAB>": ([COMMAND], completion("refdelta wri")),
    "refdelta write --<TAB>": ([COMMAND], completion("refdelta write --")),
    "refdelta write --help": ([COMMAND, "write", "--help"], {}),
}


def seconds(command: list[str], environment: dict[str, str]) -> float:
    """The processor time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(rounds: int) -> None:
    found: dict[str, list[float]] = {name: [] for name in CALLS}
    for number in range(rounds + 1):
        for name, call in CALLS.items():
            took = seconds(*call)
            if number:
                found[name].append(took)
    floor = statistics.median(found["import pyarrow"])
    for name, samples in found.items():
        middle = statistics.median(samples)
        print(f"{name:24} {middle * 1000:7.1f} ms  {middle / floor:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 11)
