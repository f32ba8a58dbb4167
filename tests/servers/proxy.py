"""A proxy before a server of the tests that counts what clients ask for, and may get in the way.

A signature holds the host that the client was given, so requests go on byte for byte, the host's name included.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Self

from servers.exchange import Exchange
from servers.faults import Plan, happen
from servers.messages import Message, Reader
from servers.requests import Seen, understand
from servers.running import Place, Server


class Proxy:
    """Stands before one server: ``with Proxy(server) as proxy: ... proxy.place() ... proxy.counts``.

    Thread-safe; clients may be other processes.

    Args:
        server: the server.
        plan: which requests meet which faults; none without it.
        delay: seconds that each request takes longer, as over a network.
    """

    def __init__(self, server: Server, plan: Plan | None = None, *, delay: float = 0.0) -> None:
        self.server = server
        self._plan = plan
        self._delay = delay
        self._under_way = 0
        self._listener: socket.socket | None = None
        self._lock = threading.Condition()
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
        return self.server.place(name, endpoint=self.endpoint)

    def through(self, place: Place) -> Place:
        """A place of the server, by way of this proxy."""
        return Place(place.uri, self.server.options(self.endpoint))

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
        exchange = Exchange(self, connection, request, seen)
        with self.under_way():
            if self._delay:
                time.sleep(self._delay)
            fault = self._plan(seen) if self._plan else None
            if fault is not None:
                seen.fault = fault
                return happen(fault, exchange, self.server.scheme)
            return exchange.answer(exchange.ask())

    @property
    def upstream(self) -> tuple[str, int]:
        """Where the server listens."""
        return "127.0.0.1", self.server.port

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """While a request may still reach the server."""
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self._lock.notify_all()

    def settle(self) -> None:
        """Wait until no request is on its way to the server: what clients have given up may land long after."""
        with self._lock:
            self._lock.wait_for(lambda: not self._under_way)
