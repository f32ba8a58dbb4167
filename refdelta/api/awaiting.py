"""``await`` forms of methods and functions that wait for a store: each runs in a thread, and the event loop goes on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_P = ParamSpec("_P")
_R = TypeVar("_R")


def awaitable(function: Callable[_P, _R]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    """The form of a function that is awaited: its name ends with ``_async``; arguments, result and errors are the same.

    A task that is cancelled does not end the call, which goes on in its thread: a commit may still be made.

    Args:
        function: a function, or a method in its class.
    """

    @functools.wraps(function)
    async def in_a_thread(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        import asyncio  # a program that awaits nothing starts faster

        return await asyncio.to_thread(function, *args, **kwargs)

    in_a_thread.__name__ = f"{function.__name__}_async"
    in_a_thread.__qualname__ = f"{function.__qualname__}_async"
    in_a_thread.__doc__ = awaited_docstring(function.__doc__ or "", function.__qualname__)
    return in_a_thread


def awaited_docstring(docstring: str, qualified: str) -> str:
    """The docstring of the ``await`` form of a function.

    Args:
        docstring: that of the function.
        qualified: its name, after that of its class.
    """
    owner, _, name = qualified.rpartition(".")
    of = {"": "", "WriteTransaction": "txn.", "TableMerger": "merge."}.get(owner, "table.")
    first = docstring.partition("\n\n")[0]
    return (
        f"{first}\n\n``await`` it: the call runs in a thread. Arguments, result and errors are as :meth:`{name}` has "
        "them. A task that is cancelled does not end the call.\n\n"
        f"Example::\n\n    async def main(*given):\n        return await {of}{name}_async(*given)\n"
    )
