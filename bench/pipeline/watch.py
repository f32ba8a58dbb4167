"""What is shown while the pipeline runs: a live line and finished stages on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from refdelta.status_line import StatusLine

_REDRAW_SECONDS = 0.2


class Watch:
    """A line with the stage, its seconds, and what ``tell`` says of it; drawn by a thread of its own.

    Args:
        tell: what has happened so far, as text.
    """

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._stage, self._began = "", 0.0
        self.tell: Callable[[], str] = lambda: ""
        self.seconds: dict[str, float] = {}

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw while the block runs."""
        if not self._live:
            yield
            return
        ended = threading.Event()
        line = StatusLine()

        def draw() -> None:
            while not ended.wait(_REDRAW_SECONDS):
                if self._stage:
                    line.show(f"{self._stage}  {time.perf_counter() - self._began:.0f} s  {self.tell()}", force=True)

        thread = threading.Thread(target=draw, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            line.clear()

    @contextmanager
    def stage(self, who: str, name: str) -> Iterator[None]:
        """Take the time of a stage, which is kept in ``seconds`` by its name."""
        self._stage, self._began = f"{who}  {name}", time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - self._began
        if self._live:
            sys.stderr.write(f"\r\x1b[2K{who:<12}{name:<20}{self.seconds[name]:>7.1f} s  {self.tell()}\n")
        self._stage = ""
