"""A proxy before an object store, which counts what clients ask for, may take its time, and may get in the way.

A signature includes the host that the client was given, so requests go on byte for byte, with the host's name.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

from refdelta.proxy.exchange import Exchange, happen
from refdelta.proxy.faults import Plan
from refdelta.proxy.messages import Message, Reader
from refdelta.proxy.requests import Origin, Request, understand


class Proxy:
    """Stands before one server, on a free port of this machine. Thread-safe; clients may be other processes.

    Args:
        server: the server.
        plan: the faults that requests meet; None for no faults.
        delay: the seconds that a request takes longer, as over a network; None for no delay.

    Example:
        >>> from refdelta.proxy import Proxy
        >>> from refdelta.proxy.endpoint import Endpoint
        >>> store = Endpoint.of("s3://tables/t", {"endpoint_url": "http://127.0.0.1:9000"})
        >>> with Proxy(store, delay=lambda request: 0.025) as proxy:
        ...     options = store.through(proxy.endpoint)  # for clients, instead of the store's own
        ...     proxy.counts
        Counter()
    """

    def __init__(
        self, server: Origin, plan: Plan | None = None, *, delay: Callable[[Request], float] | None = None
    ) -> None:
        self.server = server
        self._plan = plan
        self._delay = delay
        self._under_way = 0
        self._listener: socket.socket | None = None
        self._lock = threading.Condition()
        self._seen: list[Request] = []
        self._connections: set[socket.socket] = set()
        self._port = 0

    def start(self) -> Self:
        """Listen. A proxy that was stopped is started again at the same port."""
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
        """The address for clients, instead of the server's own endpoint."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def seen(self) -> list[Request]:
        """All requests since the last :meth:`reset`, in the order in which they came."""
        with self._lock:
            return [*self._seen]

    @property
    def requests(self) -> list[tuple[str, str]]:
        """The method and the key of each request; a listing is a LIST of its prefix."""
        return [(request.method, request.key) for request in self.seen]

    @property
    def counts(self) -> Counter[str]:
        """The number of requests of each method and kind, such as ``{"PUT commit": 1, "LIST log": 2}``."""
        return Counter(str(request) for request in self.seen)

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
            while (message := reader.request()) is not None:
                request = understand(message, self.server.scheme)
                with self._lock:
                    self._seen.append(request)
                if not self._exchange(connection, message, request):
                    break
        except OSError:
            pass  # the client went away
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _exchange(self, connection: socket.socket, message: Message, request: Request) -> bool:
        """Serve one request. Whether the client's connection stays open."""
        exchange = Exchange(self.server, connection, message, request, self.under_way)
        with self.under_way():
            if self._delay is not None and (seconds := self._delay(request)) > 0:
                time.sleep(seconds)
            fault = self._plan(request) if self._plan else None
            if fault is not None:
                request.fault = fault
                return happen(fault, exchange, self.server.scheme)
            return exchange.answer(exchange.ask())

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """A context in which a request may still reach the server."""
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self._lock.notify_all()

    def settle(self) -> None:
        """Wait until no request is on its way to the server: a request that its client gave up may arrive later."""
        with self._lock:
            self._lock.wait_for(lambda: not self._under_way)
