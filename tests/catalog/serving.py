"""``refdelta serve`` in a process of its own, and a proxy that loses replies."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from waiting import until

TOKEN = "a-token-of-the-tests-0123456789"
OTHER = "another-token-of-the-tests-01234"


@dataclass
class Served:
    """A running server."""

    url: str
    folder: Path
    process: subprocess.Popen[str]

    @property
    def database(self) -> str:
        """The URL of its database."""
        return f"sqlite:///{self.folder}/catalog.db"

    def request(
        self, method: str, path: str, body: Any = None, *, token: str | None = TOKEN, headers: Any = ()
    ) -> tuple[int, dict[str, str], Any]:
        """Send one request, and return status, headers and the body as JSON."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=120)
        given = {"Content-Type": "application/json", **dict(headers)}
        if token is not None:
            given.setdefault("Authorization", f"Bearer {token}")
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        with contextlib.closing(connection):
            connection.request(method, f"{place.path}{path}", data, given)
            reply = connection.getresponse()
            content = reply.read()
            return reply.status, dict(reply.headers), json.loads(content) if content else None

    def stop(self) -> None:
        """End it as a supervisor would."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def start(
    folder: Path,
    *options: str,
    environment: dict[str, str] | None = None,
    files: int | None = None,
    before: str | None = None,
) -> Served:
    """Start a server over a SQLite file and a warehouse in a folder.

    Args:
        folder: the folder.
        options: more options of ``refdelta serve``.
        environment: more variables.
        files: the number of files that it may open.
        before: code that its process runs first.
    """
    program = ["-m", "refdelta"]
    if before is not None:
        program = ["-c", f"{before}\nfrom refdelta.cli import main\nraise SystemExit(main())"]
    tokens = folder / "tokens"
    tokens.write_text(f"# tokens\n{OTHER}\n{TOKEN}\n")
    tokens.chmod(0o600)
    arguments = [
        *("--catalog", f"sqlite:///{folder}/catalog.db", "--warehouse", str(folder / "warehouse")),
        *("--token-file", str(tokens), "--port", "0", *options),
    ]
    limited = [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
    command = [*limited, sys.executable, *program, "serve", *arguments]

    def served() -> Served | None:
        """The server; None if a connection of another program has its port for a moment."""
        with (folder / "server.log").open("a+") as log:
            before = log.tell()
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **(environment or {})}
            )
            line = process.stdout.readline()
            found = re.search(r"at (https?://\S+)$", line)
            made = Served(found.group(1) if found else "", folder, process)
            if not found:
                made.stop()
                log.seek(before)
                told = log.read()
                assert "Address already in use" in told, f"{line!r}\n{told}"
                log.truncate(before)
        return made if found else None

    return until(served)


@contextlib.contextmanager
def serving(
    folder: Path,
    *options: str,
    environment: dict[str, str] | None = None,
    files: int | None = None,
    before: str | None = None,
) -> Iterator[Served]:
    """Start a server as :func:`start` does; at the end, end it as a supervisor would."""
    served = start(folder, *options, environment=environment, files=files, before=before)
    try:
        yield served
    finally:
        served.stop()


class Proxy:
    """Stands between a client and a server, and asks ``plan`` about each request: ``lose-reply`` passes the request on
    and drops the answer, ``lose-request`` drops the request, ``twice`` passes it on two times, bytes are the answer in
    place of the server's, and None passes everything on.
    """

    def __init__(self, url: str, plan: Callable[[str, str, bytes], str | bytes | None]) -> None:
        self._place = urlsplit(url)
        self._plan = plan
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.seen: deque[tuple[str, str]] = deque()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}{self._place.path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader, contextlib.suppress(OSError):
            head = b"".join(iter(reader.readline, b"\r\n")) + b"\r\n"
            if not head.strip():
                return
            method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            body = reader.read(int(length.group(1))) if length else b""
            self.seen.append((method, path))
            fault = self._plan(method, path, body)
            if fault == "lose-request":
                return
            answer = fault if isinstance(fault, bytes) else self._passed_on(head, body)
            if fault == "twice":
                answer = self._passed_on(head, body)
            if fault != "lose-reply":
                connection.sendall(answer)

    def _passed_on(self, head: bytes, body: bytes) -> bytes:
        with socket.create_connection((self._place.hostname, self._place.port), timeout=120) as server:
            server.sendall(head.rstrip(b"\r\n") + b"\r\nConnection: close\r\n\r\n" + body)
            return b"".join(iter(lambda: server.recv(65536), b""))
