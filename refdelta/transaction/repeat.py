"""Repeat a transaction after a conflict, with a growing random pause."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from refdelta import arguments
from refdelta.errors import ConcurrentModificationError, InvalidArgumentError
from refdelta.transaction.driver import RetryPolicy, full_jitter

T = TypeVar("T")


def repeat(
    work: Callable[[], T],
    *,
    attempts: int,
    sleep: Callable[[float], None] = time.sleep,
    uniform: Callable[[float, float], float] = random.uniform,
) -> T:
    """Call ``work`` until it raises no conflict, and return its result.

    Writers that repeat at once lose to each other again. So each pause is a random part of a limit that doubles, from
    10 ms up to one second.

    Args:
        work: begins a transaction on the newest version, and commits it.
        attempts: the maximum number of calls, at least 1.
        sleep: waits for some seconds.
        uniform: a random number between two.

    Raises:
        ConcurrentModificationError: the conflict of the last call.
        InvalidArgumentError: ``attempts`` is not a whole number, or is less than 1.
    """
    most = arguments.whole("attempts", attempts)
    if most is None or most < 1:
        raise InvalidArgumentError(f"attempts is {attempts!r}; it must be a whole number, 1 or more")
    policy = RetryPolicy()
    for attempt in range(1, most):
        try:
            return work()
        except ConcurrentModificationError:
            sleep(full_jitter(attempt, policy.base_delay, policy.max_delay, uniform))
    return work()
