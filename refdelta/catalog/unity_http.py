"""Requests to a server of Unity Catalog's Delta API: one attempt at a time, with the certainty that it gives.

A request that failed has had an effect, or has not, or may have had one: :attr:`RequestError.certain` says which. The
caller decides whether it is sent again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from refdelta.arguments import missing_package
from refdelta.catalog import delta_api as api
from refdelta.errors import InvalidArgumentError
from refdelta_storage.errors import StorageError, redact

try:
    import urllib3
except ModuleNotFoundError:
    raise missing_package("UnityCatalog", "urllib3", "unity") from None

Token: TypeAlias = str | Callable[[], str] | None

_TIMEOUT = urllib3.Timeout(connect=5.0, read=60.0)
_LARGEST_REPLY = 16 * 2**20
_LONGEST_REPLY = 300.0
_LONGEST_MESSAGE = 500
_TRIES = 4
_LONGEST_PAUSE = 5.0
_LOCAL = ("localhost", "127.0.0.1", "::1")
_T = TypeVar("_T")


class RequestError(StorageError):
    """A request that was refused, or that has no reply.

    Attributes:
        status: the status of HTTP; None without a reply.
        kind: the type of the error, as the API names it; empty if the reply has none.
        retry_after: the seconds that the server asks to wait; None if it does not.
        certain: whether it is certain that the request had no effect.
    """

    def __init__(
        self, message: str, *, status: int | None, kind: str = "", retry_after: float | None = None, certain: bool
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.retry_after, self.certain = status, kind, retry_after, certain

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (str(self), self.status, self.kind, self.retry_after, self.certain)

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status >= 500 or self.kind == api.TOO_MANY


def _rebuilt(message: str, status: int | None, kind: str, retry_after: float | None, certain: bool) -> RequestError:
    return RequestError(message, status=status, kind=kind, retry_after=retry_after, certain=certain)


def root_of(url: str, *, allow_http: bool) -> str:
    """The URL under which the server answers.

    Args:
        url: the server's URL, with or without Unity Catalog's path.
        allow_http: whether the token may be sent unencrypted to another machine.

    Raises:
        InvalidArgumentError: it is no such URL.
    """
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except (ValueError, TypeError, AttributeError):
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise InvalidArgumentError("the URL of a catalog is like https://host or http://localhost:8080")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgumentError("the URL of a catalog has no credentials in it: pass the token")
    if parts.scheme == "http" and not allow_http and host not in _LOCAL:
        raise InvalidArgumentError(f"the token would go unencrypted to {host}: use https, or pass allow_http=True")
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or api.ROOT}"


def path_of(*segments: str) -> str:
    """Segments of a path, escaped."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


@dataclass
class _Pool:
    manager: urllib3.PoolManager
    process: int


class Connection:
    """The connections to one server. Thread-safe; a forked process makes its own.

    Args:
        root: the result of :func:`root_of`.
        token: the bearer token, or a function that returns the one of the moment; None for a server that needs none.
        ca_file: the certificates of the authorities that are trusted, in PEM; None for those of the system.
    """

    def __init__(self, root: str, token: Token, ca_file: str | None = None) -> None:
        self.root = root
        self._token = token
        self._ca_file = ca_file
        self._pool = self._new_pool()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self._token, self._ca_file)

    def __repr__(self) -> str:
        return f"Connection({self.root!r})"

    def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        if self._pool.process == os.getpid():
            self._pool.manager.clear()

    def get(self, path: str, kind: type[_T], query: Mapping[str, str] | None = None, match: str | None = None) -> _T:
        """Read something. A failure that may pass is tried again. The arguments are those of :meth:`send`.

        Raises:
            RequestError: the server refused, or gave no answer.
        """

        def attempt() -> _T:
            try:
                return self.send("GET", path, kind, query=query, match=match)
            except RequestError as error:
                error.certain = True  # it had no effect, whether it arrived or not
                raise

        return self._patiently(attempt)

    def repeat(self, method: str, path: str, kind: type[_T], body: api.Wire | None = None) -> _T:
        """Change something by a request that does no harm if it arrives twice. A failure that may pass is tried again.

        Raises:
            RequestError: the server refused, or gave no answer; ``certain`` is true if no attempt had an effect.
        """
        lost = False

        def attempt() -> _T:
            nonlocal lost
            try:
                return self.send(method, path, kind, body)
            except RequestError as error:
                lost = lost or not error.certain
                error.certain = not lost
                raise

        return self._patiently(attempt)

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        for number in range(1, _TRIES):
            try:
                return attempt()
            except RequestError as error:
                if not error.passing:
                    raise
                pause(error, number)
        return attempt()

    def send(
        self,
        method: str,
        path: str,
        kind: type[_T],
        body: api.Wire | msgspec.Raw | None = None,
        query: Mapping[str, str] | None = None,
        match: str | None = None,
    ) -> _T:
        """Send one request, once.

        Args:
            method: the method.
            path: the path below the root.
            kind: the type of the reply; ``NoneType`` if it has no body.
            body: the body.
            query: the parameters.
            match: the id of the table that the request is for, as the condition ``If-Match``; None without a condition.

        Raises:
            RequestError: the server refused, or gave no answer.
        """
        url = f"{self.root}{path}" + (f"?{urlencode(query)}" if query else "")
        secret = self._token() if callable(self._token) else self._token
        headers = {"Accept": "application/json"}
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        if match is not None:
            headers["If-Match"] = f'"{match}"'
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode(body)
        what = f"{method} {path} at {self.root}"
        secrets = frozenset(() if secret is None else (secret,))
        try:
            reply = self._manager.request(
                method,
                url,
                body=data,
                headers=headers,
                redirect=False,
                retries=False,
                timeout=_TIMEOUT,
                preload_content=False,
            )
            try:
                content = _body(reply)
            finally:
                reply.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            certain = isinstance(
                error,
                (
                    urllib3.exceptions.NewConnectionError,
                    urllib3.exceptions.ConnectTimeoutError,
                    urllib3.exceptions.SSLError,
                ),
            )
            raise RequestError(
                f"{what}: no answer: {_shown(str(error), secrets)}", status=None, certain=certain
            ) from None
        return _read(reply.status, reply.headers, content, kind, what, secrets)

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine, by a loopback address."""
        return urlsplit(self.root).hostname in _LOCAL

    @property
    def _manager(self) -> urllib3.PoolManager:
        if self._pool.process != os.getpid():
            self._pool = self._new_pool()
        return self._pool.manager

    def _new_pool(self) -> _Pool:
        manager = urllib3.PoolManager(num_pools=1, maxsize=16, block=False, ca_certs=self._ca_file)
        return _Pool(manager, os.getpid())


def _body(reply: urllib3.BaseHTTPResponse) -> bytes:
    """The body, up to a byte more than the largest one. It is not decompressed: no compression was asked for.

    Raises:
        HTTPError: it did not come to its end in time.
    """
    read1 = getattr(reply, "read1", None)
    if read1 is None:  # urllib3 1: it waits for all bytes that it is asked for
        return reply.read(_LARGEST_REPLY + 1, decode_content=True)
    ends = time.monotonic() + _LONGEST_REPLY
    found = bytearray()
    while len(found) <= _LARGEST_REPLY and (part := read1(2**16, decode_content=False)):
        found += part
        if time.monotonic() > ends:
            reply.close()
            raise urllib3.exceptions.HTTPError(f"the reply has no end after {_LONGEST_REPLY:.0f} seconds")
    if len(found) > _LARGEST_REPLY:
        reply.close()
    return bytes(found)


def pause(error: RequestError, number: int) -> None:
    """Wait before another attempt: as long as the server asks, within bounds, or longer each time."""
    asked = error.retry_after if error.retry_after is not None else 0.1 * 2**number
    time.sleep(min(max(asked, 0.0), _LONGEST_PAUSE))


def _read(
    status: int, headers: Mapping[str, str], content: bytes, kind: type[_T], what: str, secrets: frozenset[str]
) -> _T:
    if len(content) > _LARGEST_REPLY:
        raise RequestError(f"{what}: the reply has more than {_LARGEST_REPLY} bytes", status=status, certain=False)
    if 200 <= status < 300:
        try:
            return api.decoder_of(kind).decode(content or b"null")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = _shown(str(error), secrets)
            raise RequestError(
                f"{what}: the reply is not as the API has it: {reason}", status=None, certain=False
            ) from None
    try:
        found = api.decoder_of(api.ApiErrorReply).decode(content).error
        name, message = found.type, found.message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        name, message = "", ""
    raise RequestError(
        f"{what}: {status} {_shown(name, secrets)} {_shown(message, secrets)}".rstrip(),
        status=status,
        kind=name,
        retry_after=_seconds(headers.get("Retry-After")),
        # A gateway may have passed the request on.
        certain=status < 500 or name == api.UNAVAILABLE,
    )


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() and len(text) < 9 else None


def _shown(text: str, secrets: frozenset[str]) -> str:
    """The words of a server, or of a library: one line, bounded, without secrets."""
    return redact(" ".join(text.split()), secrets, _LONGEST_MESSAGE)
