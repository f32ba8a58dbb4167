"""The clients of remote services: one a process, patient for so long, with several requests under way at a time."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from refdelta_storage.errors import secrets_of

PARALLEL = 32
"""How many requests one call has under way at a time."""

UPLOADS = 4
"""How many parts of one upload are under way at a time."""

_LOGINS = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a service.

    Attributes:
        connect: seconds for a connection.
        read: seconds without a byte of a reply.
        retries: how often a request that failed for a moment is sent again. A conditional put never is: its caller
            reads the object to learn the outcome.
        total: seconds after which nothing is sent again.
    """

    connect: float = 5.0
    read: float = 15.0
    retries: int = 4
    total: float = 30.0


PATIENCE = Patience()


class Client:
    """One of fsspec's asynchronous file systems: its login, its connections and its event loop.

    Made when it is first used, once for a process and its arguments, however many stores and threads use it; a forked
    child and an unpickled copy make their own.
    """

    def __init__(self, protocol: str, arguments: Mapping[str, Any]) -> None:
        self.protocol = protocol
        self.arguments = dict(arguments)
        # Clients with the same arguments are one, as long as the environment says the same: the libraries read logins
        # there. The name is a digest of all that, and tells none of it.
        logins = sorted(item for item in os.environ.items() if item[0].startswith(_LOGINS))
        self.secrets = secrets_of({**dict(logins), **arguments})
        known = repr((protocol, sorted(arguments.items(), key=repr), logins))
        self.name = hashlib.sha256(known.encode(errors="surrogateescape")).hexdigest()

    def file_system(self) -> Any:
        """The file system of this process."""
        from fsspec import get_filesystem_class

        with _made.lock:
            if self.name not in _made.clients:
                arguments = {"skip_instance_cache": True, "use_listings_cache": False, **self.arguments}
                _made.clients[self.name] = get_filesystem_class(self.protocol)(**arguments)
            return _made.clients[self.name]

    def run(self, function: Callable[..., Coroutine[Any, Any, _T]], *arguments: Any) -> _T:
        """Let the event loop of the file system run a coroutine to its end."""
        from fsspec.asyn import sync

        return cast("_T", sync(self.file_system().loop, function, *arguments))


class _Made:
    """The clients of this process. A forked child cannot use its parent's, whose event loop thread is not forked."""

    def __init__(self) -> None:
        self.left_behind: list[Any] = []
        self.renew()

    def renew(self) -> None:
        self.lock = threading.Lock()
        self.clients: dict[str, Any] = {}

    def leave_behind(self) -> None:
        """Begin anew in a forked child, which would wait for that thread for ever if it closed its parent's clients."""
        self.left_behind += self.clients.values()
        for finalizer in [*getattr(weakref.finalize, "_registry", ())]:
            alive = finalizer.peek()
            if alive and any(alive[0] is client for client in self.left_behind):
                finalizer.detach()
        self.renew()


_made = _Made()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_made.leave_behind)


async def together(coroutines: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results of all, in order; the first exception ends the others and comes out."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def upload_parts(
    parts: Sequence[Callable[[], bytes]], upload: Callable[[int, bytes], Coroutine[Any, Any, _T]]
) -> list[_T]:
    """Upload the parts of an object, a few at a time, so that no more of them are in memory."""
    gate = asyncio.Semaphore(UPLOADS)

    async def one(number: int, part: Callable[[], bytes]) -> _T:
        async with gate:
            return await upload(number, part())

    return await together(one(number, part) for number, part in enumerate(parts, 1))
