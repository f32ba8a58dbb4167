"""One request on its way through the proxy, and what can be done with it."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from servers.messages import Message, Reader
from servers.requests import Seen

if TYPE_CHECKING:
    from servers.proxy import Proxy

_SERVER_ANSWERS_WITHIN = 60.0
_CLIENT_WAITS_AT_MOST = 30.0
_SLOW = 0.03
_LATE = (0.02, 0.2, 0.8, 2.5)
_turns = itertools.count()
_RESET = struct.pack("ii", 1, 0)


class Exchange:
    """A request, the connection on which it came, and the server that it is for."""

    def __init__(self, proxy: Proxy, connection: socket.socket, request: Message, seen: Seen) -> None:
        self._proxy = proxy
        self._connection = connection
        self._request = request
        self._seen = seen

    # -- towards the server

    def ask(self) -> Message:
        """Send the request on and return the server's reply. Raises ``OSError`` where it has none.

        On a connection of its own: what a client keeps open tells nothing of the server's connections, and a server
        that was killed and started again is simply there again.
        """
        with self._upstream() as upstream:
            server = self._proxy.server
            asked = server.understood(self._request)
            upstream.sendall(asked.whole)
            reply = Reader(upstream).response(asked.first_line[0])
            reply = reply if asked is self._request else server.answered(reply)
        self._seen.status = int(reply.first_line[1])
        return reply

    def ask_half(self) -> bool:
        """Send a half of the request's body on, and close both connections."""
        body = self._request.body
        with self._upstream() as upstream:
            upstream.sendall(self._request.head + body[: len(body) // 2])
        return self.drop()

    def ask_later(self) -> bool:
        """Close the client's connection, and send the request on after a while."""

        # In turn, and not by the head of the request: where heads have no date, it is the same each time.
        pause = _LATE[next(_turns) % len(_LATE)]
        held = contextlib.ExitStack()
        held.enter_context(self._proxy.under_way())

        def ask() -> None:
            with held, contextlib.suppress(OSError):
                time.sleep(pause)
                self.ask()

        threading.Thread(target=ask, daemon=True).start()
        return self.drop()

    def _upstream(self) -> socket.socket:
        upstream = socket.create_connection(self._proxy.upstream, timeout=_SERVER_ANSWERS_WITHIN)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return upstream

    # -- towards the client. Each returns whether its connection stays open.

    def answer(self, reply: Message) -> bool:
        """Pass a reply on."""
        self._connection.sendall(reply.whole)
        return not (_closes(self._request) or _closes(reply))

    def answer_half(self, reply: Message) -> bool:
        """Pass a half of a reply on: of its body, or where it has none of its head."""
        body = reply.body
        self._connection.sendall(reply.head + body[: len(body) // 2] if body else reply.head[: len(reply.head) // 2])
        return False

    def refuse(self, status: int, code: str) -> bool:
        """Answer with an error, as S3 and Azure write it."""
        body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>injected</Message></Error>'
        head = [f"HTTP/1.1 {status} Injected", "Content-Type: application/xml", f"x-ms-error-code: {code}"]
        head += [f"Content-Length: {len(body)}", "", ""]
        sent = "\r\n".join(head) + ("" if self._request.first_line[0] == "HEAD" else body)
        self._connection.sendall(sent.encode())
        return not _closes(self._request)

    def drop(self) -> bool:
        """Cut the connection, so that the client gets a reset and no orderly end."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return False

    def hang(self) -> bool:
        """Say nothing until the client closes its connection."""
        self._connection.settimeout(1.0)
        waiting = select.poll()  # select() takes no descriptor beyond 1,023
        waiting.register(self._connection, select.POLLIN)
        waiting.poll(_CLIENT_WAITS_AT_MOST * 1000)
        return False

    def wait(self) -> None:
        """Let some time pass."""
        time.sleep(_SLOW)


def _closes(message: Message) -> bool:
    return message.header("connection").lower() == "close"
