"""One request on its way through the proxy: sent on, answered, or met by a fault."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from refdelta.proxy.faults import REPLIES
from refdelta.proxy.messages import Message, Reader
from refdelta.proxy.requests import Origin, Request

_SERVER_ANSWERS_WITHIN = 60.0
_CLIENT_WAITS_AT_MOST = 30.0
_SLOW = 0.03
_LATE = (0.02, 0.2, 0.8, 2.5)
_turns = itertools.count()
_RESET = struct.pack("ii", 1, 0)


class Exchange:
    """A request and its two connections.

    Args:
        server: the server that the request is for.
        connection: the client's connection.
        message: the request as it came.
        request: the same, understood; it gets the status and the length of the reply.
        under_way: a context in which a request may still reach the server.
    """

    def __init__(
        self,
        server: Origin,
        connection: socket.socket,
        message: Message,
        request: Request,
        under_way: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._server = server
        self._connection = connection
        self._message = message
        self._request = request
        self._under_way = under_way

    # -- towards the server

    def ask(self) -> Message:
        """Send the request on and return the server's reply. Raises ``OSError`` if there is none.

        Each request has a connection of its own to the server, so that one that was killed and started again is reached
        by a client that kept its connection.
        """
        with self._upstream() as upstream:
            asked = self._server.understood(self._message)
            upstream.sendall(asked.whole)
            reply = Reader(upstream).response(asked.first_line[0])
            reply = reply if asked is self._message else self._server.answered(reply)
        self._request.status, self._request.reply = int(reply.first_line[1]), len(reply.body)
        return reply

    def ask_half(self) -> bool:
        """Send a half of the request's body on, and close both connections."""
        body = self._message.body
        with self._upstream() as upstream:
            upstream.sendall(self._message.head + body[: len(body) // 2])
        return self.drop()

    def ask_later(self) -> bool:
        """Close the client's connection, and send the request on after a while."""
        # In turn, and not by the head of the request: where heads have no date, it is the same each time.
        pause = _LATE[next(_turns) % len(_LATE)]
        held = contextlib.ExitStack()
        held.enter_context(self._under_way())

        def ask() -> None:
            with held, contextlib.suppress(OSError):
                time.sleep(pause)
                self.ask()

        threading.Thread(target=ask, daemon=True).start()
        return self.drop()

    def _upstream(self) -> socket.socket:
        upstream = socket.create_connection(self._server.address, timeout=_SERVER_ANSWERS_WITHIN)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return upstream

    # -- towards the client. Each returns whether its connection stays open.

    def answer(self, reply: Message) -> bool:
        """Pass a reply on."""
        self._connection.sendall(reply.whole)
        return not (_closes(self._message) or _closes(reply))

    def answer_half(self, reply: Message) -> bool:
        """Pass a half of a reply on: of its body, or of its head if it has no body."""
        body = reply.body
        self._connection.sendall(reply.head + body[: len(body) // 2] if body else reply.head[: len(reply.head) // 2])
        return False

    def refuse(self, status: int, code: str) -> bool:
        """Answer with an error, as S3 and Azure write it."""
        body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>injected</Message></Error>'
        head = [f"HTTP/1.1 {status} Injected", "Content-Type: application/xml", f"x-ms-error-code: {code}"]
        head += [f"Content-Length: {len(body)}", "", ""]
        sent = "\r\n".join(head) + ("" if self._message.first_line[0] == "HEAD" else body)
        self._connection.sendall(sent.encode())
        return not _closes(self._message)

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


def happen(kind: str, exchange: Exchange, scheme: str) -> bool:
    """Let a request meet a fault. Returns whether the client's connection stays open."""
    what, _, when = kind.partition("-")
    if when == "after":
        reply = exchange.ask()
    match kind:
        case "drop-before" | "drop-after":
            return exchange.drop()
        case "cut-before":
            return exchange.ask_half()
        case "cut-after":
            return exchange.answer_half(reply)
        case "hang-before" | "hang-after":
            return exchange.hang()
        case "slow-before" | "slow-after":
            exchange.wait()
            return exchange.answer(exchange.ask() if when == "before" else reply)
        case "late":
            return exchange.ask_later()
        case "twice":
            exchange.ask()
            return exchange.answer(exchange.ask())
        case _:
            return exchange.refuse(*REPLIES[scheme][what])
