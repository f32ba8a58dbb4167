"""Waits for a condition, with a generous end: a test passes on a machine under load, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

GENEROUS = 120.0
"""Seconds after which a wait fails; only a failure reaches them."""


def until(condition: Callable[[], T], seconds: float = GENEROUS, what: str = "the condition") -> T:
    """Wait until a condition holds.

    Args:
        condition: called again and again, with a short pause between two calls.
        seconds: the end of the wait.
        what: the condition in words, for the error.

    Returns:
        The result of the condition, which is true.

    Raises:
        AssertionError: the time is over.
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.01)
    return found
