"""The connections of ``refdelta serve``: how many there may be, and how long one may wait.

A stranger can open connections as fast as the network allows. So their number is bounded, below the number of files
that the process may open, and a new connection is accepted in the place of one that waits: first of those that have
shown no right token, the oldest of these. So a client with a token is not shut out by any number of idle connections.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger("refdelta.serve")

KNOWN = "refdelta.known"
"""The key of a request's scope that is true once it has shown a right token."""

HEADER_SECONDS = 15.0
_MOST = 512
_WAITING = 1024
_OTHER_FILES = 96
_WARN_SECONDS = 60.0
_PAUSE = 0.01
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def most_connections() -> int:
    """The most open connections: 512, or half of the files that the process may open beside its own."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return _MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(8, min(_MOST, (files - _OTHER_FILES) // 2))


class Listener(socket.socket):
    """A listening socket that bounds the number of its open connections.

    Args:
        family: that of its address.
        most: the bound; None for :func:`most_connections`.
    """

    def __init__(self, family: int, most: int | None = None) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self.most = most_connections() if most is None else most
        self._open: dict[int, _Connection] = {}
        self._shut: list[socket.socket] = []
        self._warned = -_WARN_SECONDS
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        """Close it. Connections that are open stay so."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        super().close()

    def listen(self, _backlog: int = 0) -> None:
        """Listen. The argument is the number of connections that the event loop accepts in a turn; more than these may
        wait, since a client whose connection finds no room there waits for a second and more.
        """
        super().listen(_WAITING)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and close others for it if there are too many.

        Raises:
            BlockingIOError: there is none, or no room for it at this moment. The event loop goes on.
        """
        if len(self._open) >= self.most:
            # It does not hear of connections that have ended.
            self._open = {number: one for number, one in self._open.items() if one.socket.fileno() == number}
            if len(self._open) >= self.most and not self._make_room():
                self._refuse()
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _NO_RESOURCES:
                raise
            # The event loop would log this for each connection that it tries to accept, with a traceback.
            self._warn(f"connections are closed or refused: {error.strerror}; the process needs a higher limit")
            # The bound leaves descriptors free, so they are of connections that the event loop is about to close: no
            # client with a token has to go.
            if not self._make_room(of_strangers=True) and not self._is_closing:
                self._refuse()
            raise BlockingIOError from error
        self._open.pop(connection.fileno(), None)  # of a connection that was closed
        self._open[connection.fileno()] = _Connection(connection)
        return connection, address

    def note(self, protocol: Impatient) -> None:
        """Take note of the protocol of a connection, once it has one (with TLS, after the handshake)."""
        accepted = protocol.transport.get_extra_info("socket")
        found = None if accepted is None else self._open.get(accepted.fileno())
        if found is not None:
            found.protocol = protocol

    def _make_room(self, *, of_strangers: bool = False) -> bool:
        """Close an eighth of the connections: the oldest of those that have shown no token, or if there are none of
        those that rest, unless only ``of_strangers``. Returns False if there was none to close.
        """
        wanted = max(1, len(self._open) - self.most + max(1, self.most // 8))
        chosen = ([*self._strangers()] or ([] if of_strangers else [*self._resting()]))[:wanted]
        for number, one in chosen:
            # The event loop finds that the connection ended, and closes it: also amid a handshake of TLS.
            with suppress(OSError):
                one.socket.shutdown(socket.SHUT_RDWR)
            del self._open[number]
        self._shut = [one for one in self._shut if one.fileno() >= 0] + [one.socket for _, one in chosen]
        return bool(chosen)

    @property
    def _is_closing(self) -> bool:
        """Whether connections that were shut have their descriptors still."""
        return any(one.fileno() >= 0 for one in self._shut)

    def _strangers(self) -> Iterator[tuple[int, _Connection]]:
        return ((number, one) for number, one in self._open.items() if one.protocol is None or not one.protocol.known)

    def _resting(self) -> Iterator[tuple[int, _Connection]]:
        known = ((number, one, one.protocol) for number, one in self._open.items())
        return ((number, one) for number, one, found in known if found is not None and found.known and found.idle)

    def _refuse(self) -> None:
        """Close the connection that waits, with the descriptor that is kept for this. Raises ``BlockingIOError``."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        try:
            super().accept()[0].close()
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError as error:
            # The event loop asks again at once, also where nothing has changed.
            time.sleep(_PAUSE)
            raise BlockingIOError from error
        raise BlockingIOError

    def _warn(self, message: str) -> None:
        if time.monotonic() - self._warned >= _WARN_SECONDS:
            self._warned = time.monotonic()
            log.warning("%s", message)


class _Connection:
    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.protocol: Impatient | None = None


class Impatient(H11Protocol):
    """Closes a connection whose headers do not come in time."""

    listener: ClassVar[Listener | None] = None
    _deadline: asyncio.TimerHandle | None = None
    _known = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait(transport)
        if self.listener is not None:
            self.listener.note(self)

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request."""
        self._known = self.known
        super().data_received(data)
        if str(self.conn.their_state) != "IDLE":
            self._arrived()
        elif self._deadline is None:
            self._wait(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait."""
        self._arrived()
        super().connection_lost(exc)

    @property
    def known(self) -> bool:
        """Whether a request of this connection has shown a right token."""
        return self._known or bool(self.scope and self.scope.get(KNOWN))

    @property
    def idle(self) -> bool:
        """Whether it waits for a request."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self, transport: Any) -> None:
        self._deadline = self.loop.call_later(HEADER_SECONDS, transport.close)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
