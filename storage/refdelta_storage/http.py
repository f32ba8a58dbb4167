"""Objects of a web server: read only, and by name, since a web server has no listing."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from urllib.parse import quote

from refdelta_storage.base import Capabilities
from refdelta_storage.clients import PATIENCE, Client, Patience
from refdelta_storage.errors import ReadOnlyStoreError, StorageError, class_names
from refdelta_storage.remote import RemoteStore, Seen, etag, milliseconds

PROMISES = Capabilities(put_if_absent=False, list_after=True, durable=True, remote=True, lists=False)

# Of servers that do not answer HEAD.
_NO_HEAD = {405, 501}
_GONE = {404, 410}


class HttpStore(RemoteStore):
    """Objects below a URL of ``http://`` or ``https://``: GET, with ranges where the server knows them, and HEAD.

    Arguments are those of :class:`~refdelta_storage.remote.RemoteStore`, without a bucket and a path: names are joined
    to the URI.
    """

    bulk: ClassVar[int] = 1
    page: ClassVar[int] = 1
    ordered = True

    def __init__(self, client: Client, uri: str, patience: Patience = PATIENCE) -> None:
        super().__init__(client, uri, "", "", PROMISES, patience)

    async def _ask_for(self, method: str, name: str, **headers: str) -> tuple[Any, bytes]:
        """The reply to a request, and its content. Raises aiohttp's error for a status of an error."""
        from aiohttp import ClientTimeout

        session = await self._client.file_system().set_session()
        wait = ClientTimeout(total=None, sock_connect=self._patience.connect, sock_read=self._patience.read)
        sent = {"Accept-Encoding": "identity", **headers}
        url = f"{self._uri}/{quote(name)}"
        async with session.request(method, url, headers=sent, allow_redirects=True, timeout=wait) as reply:
            reply.raise_for_status()
            return reply, await reply.read()

    async def _read(self, name: str, start: int | None, length: int) -> bytes:
        if start is None:
            reply, data = await self._ask_for("GET", name)
            self._check_edition(name, reply.headers.get("ETag", ""))
            return data
        try:
            reply, data = await self._ask_for("GET", name, Range=f"bytes={start}-{start + length - 1}")
        except Exception as error:
            if self._status(error) == 416:
                return b""
            raise
        self._check_edition(name, reply.headers.get("ETag", ""))
        # A server may pass over the range.
        return data if reply.status == 206 else data[start : start + length]

    async def _look(self, name: str) -> Seen:
        try:
            reply, _ = await self._ask_for("HEAD", name)
            size = reply.headers.get("Content-Length")
        except Exception as error:
            if self._status(error) not in _NO_HEAD:
                raise
            size = None
        if size is None:
            reply, data = await self._ask_for("GET", name, Range="bytes=0-0")
            size = reply.headers.get("Content-Range", f"/{len(data)}").rpartition("/")[2]
        if not size.isdecimal():
            raise StorageError(f"{self.uri} does not tell the size of {name!r}")
        return int(size), _time(reply.headers.get("Last-Modified")), etag(reply.headers.get("ETag"))

    # -- what a web server has not

    async def _page(self, *_: Any) -> tuple[builtins.list[tuple[str, Seen]], str | None]:
        raise StorageError(f"a web server lists no objects: those of {self.uri} are read by their names")

    async def _create(self, name: str, _data: bytes) -> None:
        raise self._read_only(name)

    async def _write(self, name: str, _data: bytes) -> None:
        raise self._read_only(name)

    async def _write_parts(self, name: str, _parts: Sequence[Callable[[], bytes]]) -> None:
        raise self._read_only(name)

    async def _remove(self, names: builtins.list[str]) -> None:
        raise self._read_only(names[0])

    def _read_only(self, name: str) -> ReadOnlyStoreError:
        return ReadOnlyStoreError(f"cannot write {name!r} in {self.uri}: a web server is read only")

    # -- errors

    def _status(self, error: BaseException) -> int | None:
        status = getattr(error, "status", None)
        return status if isinstance(status, int) and status else None

    def _is_absent(self, error: BaseException) -> bool:
        return self._status(error) in _GONE

    def _is_unsent(self, error: BaseException) -> bool:
        return isinstance(error, ReadOnlyStoreError)

    def _is_network(self, error: BaseException) -> bool:
        names = class_names(error)
        return self._status(error) is None and (isinstance(error, OSError | TimeoutError) or "ClientError" in names)


def _time(text: str | None) -> int:
    """A time as headers have it, in milliseconds since 1970; 0 where there is none."""
    try:
        return milliseconds(parsedate_to_datetime(text)) if text else 0
    except ValueError:
        return 0
