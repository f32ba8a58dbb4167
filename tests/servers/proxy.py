"""A proxy before versitygw or Azurite that counts what clients ask for, and may get in the way.

A signature holds the host that the client was given, so requests go on byte for byte, the host's name included. The
server is asked on a connection of its own for each request: what a client keeps open tells nothing of the server's
connections, and a server that was killed and started again is simply there again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from typing import Self

from servers.messages import Message, Reader
from servers.requests import Seen, understand
from servers.running import Place, Server

_SERVER_ANSWERS_WITHIN = 60.0


class Proxy:
    """Stands before one server: ``with Proxy(server) as proxy: ... proxy.place() ... proxy.counts``.

    Thread-safe; clients may be other processes.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._seen: list[Seen] = []
        self._connections: set[socket.socket] = set()
        self._port = 0

    def start(self) -> Self:
        """Listen on a free port of this machine."""
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=256)
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Close all connections; in-flight requests are cut."""
        if self._listener is not None:
            # Closing alone leaves the thread waiting in `accept`.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            connections = [*self._connections]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """Where clients find it, in place of the server's own endpoint."""
        return f"http://127.0.0.1:{self._port}"

    def place(self, name: str = "t") -> Place:
        """A fresh place for a table, by way of this proxy."""
        return self._server.place(name, endpoint=self.endpoint)

    def through(self, place: Place) -> Place:
        """A place of the server, by way of this proxy."""
        return Place(place.uri, self._server.options(self.endpoint))

    @property
    def seen(self) -> list[Seen]:
        """All requests since the last :meth:`reset`, in the order in which they came."""
        with self._lock:
            return [*self._seen]

    @property
    def requests(self) -> list[tuple[str, str]]:
        """The method and the key of each request; a listing is a LIST of its prefix."""
        return [(seen.method, seen.key) for seen in self.seen]

    @property
    def counts(self) -> Counter[str]:
        """How many requests of each method and kind, such as ``{"PUT commit": 1, "LIST log": 2}``."""
        return Counter(str(seen) for seen in self.seen)

    def reset(self) -> None:
        """Forget the requests so far."""
        with self._lock:
            self._seen.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._connections.add(connection)
        try:
            reader = Reader(connection)
            while (request := reader.request()) is not None:
                seen = understand(request)
                with self._lock:
                    self._seen.append(seen)
                if not self._exchange(connection, request, seen):
                    break
        except OSError:
            pass  # the client went away
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _exchange(self, connection: socket.socket, request: Message, seen: Seen) -> bool:
        """Serve one request. Whether the client's connection stays open."""
        try:
            reply = self.ask(request, seen)
        except OSError:
            return False
        connection.sendall(reply.whole)
        return stays_open(request) and stays_open(reply)

    def ask(self, request: Message, seen: Seen) -> Message:
        """Send a request on to the server and return its reply. Raises ``OSError`` where it has none."""
        with socket.create_connection(("127.0.0.1", self._server.port), timeout=_SERVER_ANSWERS_WITHIN) as upstream:
            upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            upstream.sendall(request.whole)
            reply = Reader(upstream).response(request.first_line[0])
        seen.status = int(reply.first_line[1])
        return reply


def stays_open(message: Message) -> bool:
    """Whether more messages may follow this one on its connection."""
    return message.header("connection").lower() != "close"
