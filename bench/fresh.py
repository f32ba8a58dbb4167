"""Work in a process of its own: what it takes with nothing imported, nothing cached, and how much memory.

    told = fresh.call("bench_snapshot:open_refdelta", path)  # told.seconds, told.peak

The process imports the module first, then begins to count: seconds are those of the function alone, and the peak is
what the process's resident memory rose to above where it stood before. A function that is to be measured with its
imports does them itself.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from contest import Engine

BENCH = Path(__file__).parent
TESTS = BENCH.parent / "tests"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Fresh:
    """What a process told.

    Attributes:
        result: of the function, as JSON brings it over.
        seconds: of the function.
        peak: bytes that the resident memory rose by.
    """

    result: Any
    seconds: float
    peak: int


class Ready:
    """A process that has imported the module and waits: see :func:`ready`."""

    def __init__(self, function: str, arguments: tuple[Any, ...], environment: dict[str, str] | None):
        command = [sys.executable, "-m", "fresh", function, json.dumps(arguments)]
        path = os.pathsep.join([str(BENCH), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        variables = {**os.environ, "PYTHONPATH": path, **(environment or {})}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, cwd=BENCH)
        assert self._line() == b"ready\n"

    def _line(self) -> bytes:
        line = self._process.stdout.readline()
        if not line:
            raise subprocess.CalledProcessError(self._process.wait(), self._process.args)
        return line

    def go(self) -> Fresh:
        """Let it run the function, and wait for what it tells."""
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        return Fresh(**json.loads(self._line()))

    def end(self) -> None:
        """Wait until the process is gone, which takes a while with much in memory."""
        self._process.communicate()


def ready(function: str, *arguments: Any, environment: dict[str, str] | None = None) -> Ready:
    """A process that is about to run ``module:function`` of this folder, with arguments that JSON can carry.

    For a contest see :func:`engine`: ``before`` starts it, ``run`` says ``go``, and ``after`` ends it, so that neither
    its start, its imports nor its end are timed.
    """
    return Ready(function, arguments, environment)


def call(function: str, *arguments: Any, environment: dict[str, str] | None = None) -> Fresh:
    """Run ``module:function`` of this folder with arguments that JSON can carry."""
    process = ready(function, *arguments, environment=environment)
    told = process.go()
    process.end()
    return told


def engine(name: str, function: str, *arguments: Any, expected: Any, settings: str) -> Engine:
    """An engine of a contest, each run of which is a process of its own that has everything imported; it tells by how
    much the memory rose.

    Args:
        name: of the engine, as are the settings.
        function: ``module:function`` of this folder.
        arguments: of the function; JSON can carry them.
        expected: what it has to return.
    """

    def run(process: Ready) -> dict[str, float]:
        told = process.go()
        assert told.result == expected
        return {"peak MB": told.peak / 1e6}

    begin = partial(ready, function, *arguments)
    return Engine(name, run, before=begin, after=Ready.end, settings=settings)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def highest(pid: int | str = "self") -> int:
    """The highest resident memory of a process so far, in bytes. Raises ``OSError`` if it has ended."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")), 0)


def times(pid: int) -> list[float]:
    """User and system seconds of a process, and those of its children that have ended; ``[0.0]`` if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return [0.0]
    return [int(field) / _TICK for field in fields[11:15]]


class Highest:
    """A block whose ``peak`` is what the resident memory rises by, in bytes: by the kernel's mark, which is taken back
    before, or as a thread sees it where it cannot be.
    """

    def __enter__(self) -> Self:
        self.before = _resident()
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._watch = None
        except OSError:
            self._over, self._seen = threading.Event(), self.before
            self._watch = threading.Thread(target=self._look, daemon=True)
            self._watch.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.002):
            self._seen = max(self._seen, _resident())

    def __exit__(self, *_: object) -> None:
        if self._watch:
            self._over.set()
            self._watch.join()
        self.peak = max(0, (self._seen if self._watch else highest()) - self.before)


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    arguments = json.loads(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    with Highest() as memory:
        start = time.perf_counter()
        result = function(*arguments)
        seconds = time.perf_counter() - start
    print(json.dumps({"result": result, "seconds": seconds, "peak": memory.peak}), flush=True)


if __name__ == "__main__":
    main()
