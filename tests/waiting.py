"""Waits for a condition, with a generous end: a test passes on a machine under load, too."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

GENEROUS = 120.0
"""Seconds after which a wait fails; only a failure reaches them."""


def until(condition: Callable[[], T], seconds: float = GENEROUS, pause: float = 0.01) -> T:
    """Wait until a condition holds.

    Args:
        condition: called again and again.
        seconds: the end of the wait.
        pause: the seconds between two calls.

    Returns:
        The result of the condition, which is true.

    Raises:
        AssertionError: the time is over.
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds:g} s in vain"
        time.sleep(pause)
    return found


def next_moment() -> None:
    """Wait until the clock, and the times that file systems give, are a millisecond further than now."""
    now = time.time_ns() // 1_000_000

    def is_later() -> bool:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
            file.flush()
            return os.fstat(file.fileno()).st_mtime_ns // 1_000_000 > now

    until(is_later, pause=0.001)
