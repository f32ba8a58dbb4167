"""Drivers of their own: a program with its Java, in another process, that a test may kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Self

TESTS = Path(__file__).resolve().parent.parent


class Driver:
    """A program of this folder that prints the number of its Java's process first; at the end of the block it is dead.

    Args:
        program: the module's name.
        folder: where it works; what it says otherwise is added to the file ``output`` there.
        arguments: what else it is told.
    """

    def __init__(self, program: str, folder: Path, *arguments: str):
        command = [sys.executable, "-m", f"spark.{program}", str(folder), *arguments]
        self._output = folder / "output"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, stderr=output)
        assert self._process.stdout
        self._java = int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self._process.stdout
        self._process.stdout.close()

    def kill(self) -> None:
        for pid in (self._java, self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_after(self, steps: Callable[[], int], most: int, dice: Random) -> None:
        """Kill it between two things that it does, up to so many of its steps further on."""
        until = steps() + dice.randint(1, most)
        while steps() < until and self._process.poll() is None:
            time.sleep(0.005)
        time.sleep(dice.uniform(0, 0.1))
        self.kill()

    def ended(self) -> bool:
        """True if it ended by itself and without an error."""
        return self._process.wait(timeout=300) == 0

    def said(self) -> str:
        """The end of what it and those before it said."""
        return self._output.read_text()[-4000:]
