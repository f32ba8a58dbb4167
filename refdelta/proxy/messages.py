"""HTTP/1.1 messages as a proxy needs them: read whole from a socket, kept byte for byte."""

from __future__ import annotations

import socket
from dataclasses import dataclass

_BUFFER = 1 << 16
_WITHOUT_BODY = {204, 304}


class ClosedError(OSError):
    """The other side closed the connection in the middle of a message, or before it."""


@dataclass(frozen=True)
class Message:
    """A request or a response: its head up to the empty line, and its body as it was sent, in chunks if it was."""

    head: bytes
    body: bytes

    @property
    def first_line(self) -> list[str]:
        """Its three words: method, target and version; or version, status and reason."""
        return self.head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)

    def header(self, name: str) -> str:
        """The value of a header, or an empty text."""
        return header(self.head, name)

    @property
    def whole(self) -> bytes:
        """Head and body."""
        return self.head + self.body


def header(head: bytes, name: str) -> str:
    """The value of the header ``name`` in a message's head, or an empty text."""
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.decode("latin-1").lower() == name:
            return value.decode("latin-1").strip()
    return ""


class Reader:
    """Messages from one socket, one after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""

    def request(self) -> Message | None:
        """The next request, or None if the client has closed."""
        try:
            head = self._until(b"\r\n\r\n")
        except ClosedError:
            return None
        if header(head, "expect").lower() == "100-continue":
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            # The body is passed on together with the head, so the server must not be asked for a permission.
            head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:"))
        return Message(head, self._body(head, until_closed=False))

    def response(self, method: str) -> Message:
        """The response to a request of this method; those that say "go on" are left out."""
        while True:
            head = self._until(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status >= 200:
                break
        empty = method == "HEAD" or status in _WITHOUT_BODY
        return Message(head, b"" if empty else self._body(head, until_closed=True))

    def _body(self, head: bytes, *, until_closed: bool) -> bytes:
        if "chunked" in header(head, "transfer-encoding").lower():
            return self._chunks()
        length = header(head, "content-length")
        if length:
            return self._take(int(length))
        return self._rest() if until_closed else b""

    def _chunks(self) -> bytes:
        parts = []
        while True:
            line = self._until(b"\r\n")
            parts.append(line)
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            parts.append(self._take(size + 2))
        while parts[-1] != b"\r\n":
            parts.append(self._until(b"\r\n"))
        return b"".join(parts)

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more()
        found, _, self._buffer = self._buffer.partition(mark)
        return found + mark

    def _take(self, length: int) -> bytes:
        parts, left = [self._buffer], length - len(self._buffer)
        while left > 0:
            part = self._connection.recv(min(left, 1 << 20))
            if not part:
                raise ClosedError("closed in the middle of a message")
            parts.append(part)
            left -= len(part)
        whole = b"".join(parts)
        self._buffer = whole[length:]
        return whole[:length]

    def _rest(self) -> bytes:
        parts = [self._buffer]
        self._buffer = b""
        while part := self._connection.recv(_BUFFER):
            parts.append(part)
        return b"".join(parts)

    def _more(self) -> None:
        part = self._connection.recv(_BUFFER)
        if not part:
            raise ClosedError("closed in the middle of a message" if self._buffer else "closed")
        self._buffer += part
