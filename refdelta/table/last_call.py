"""A function of one immutable value that keeps the result of its last call.

A statement asks many times for what follows from its table's protocol or metadata, which are the same objects as long
as no commit changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, TypeVar

Value = TypeVar("Value")
Result = TypeVar("Result")


class LastCall(Generic[Value, Result]):
    """The function, which is called only if the value is another object than the last time.

    Args:
        function: a function whose result depends on its argument alone. Neither is changed afterwards.
    """

    def __init__(self, function: Callable[[Value], Result]) -> None:
        self._function = function
        # Replaced as a whole, so that threads need no lock.
        self._last: tuple[Value, Result] | None = None
        update_wrapper(self, function)

    def __call__(self, value: Value) -> Result:
        """The function of the value."""
        last = self._last
        if last is None or last[0] is not value:
            last = self._last = value, self._function(value)
        return last[1]
