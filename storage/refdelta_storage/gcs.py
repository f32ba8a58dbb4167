"""Google Cloud Storage by its JSON interface, with the login and the connections of gcsfs."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from refdelta_storage.base import Capabilities, ObjectInfo, Tag
from refdelta_storage.errors import class_names
from refdelta_storage.remote import RemoteStore, Seen, has_utf8, milliseconds

PROMISES = Capabilities(put_if_absent=True, list_after=True, durable=True, remote=True)

# gcsfs's error of a login that cannot be renewed, and those of Google's library: no request was sent.
_UNSENT = {"HttpError", "NonRetryableError", "GoogleAuthError"}
_FIELDS = "name,size,timeCreated,generation"


class ReplyError(Exception):
    """A reply of the service that is no success.

    Args:
        status: its HTTP status.
        message: what the service says about it, in one line.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if message else str(status))
        self.status = status


class GcsStore(RemoteStore):
    """Objects of a bucket: one POST with ``ifGenerationMatch=0`` for a commit, listings that start at a key.

    The tag of an object is its generation, which is new with each content. The requests are made here, since those of
    gcsfs are sent up to six times, a conditional put too; this store never repeats one. An upload in parts is one
    session, whose parts go one after the other; after a failure it begins anew. Arguments are those of
    :class:`~refdelta_storage.remote.RemoteStore`.
    """

    bulk: ClassVar[int] = 1
    page: ClassVar[int] = 1000
    ordered = True

    async def _ask_for(
        self, method: str, path: str, data: bytes | None = None, headers: dict[str, str] | None = None, **query: Any
    ) -> tuple[Any, bytes]:
        """The reply to a request, and its content. Raises :class:`ReplyError` for a status of an error."""
        from aiohttp import ClientTimeout
        from yarl import URL

        fs = self._client.file_system()
        session = await fs._set_session()  # noqa: SLF001 - gcsfs has no other name for its session, address and login
        wait = ClientTimeout(total=None, sock_connect=self._patience.connect, sock_read=self._patience.read)
        base = path if "://" in path else f"{fs._location}/{path}"  # noqa: SLF001
        query = fs._get_params(query)  # noqa: SLF001 - with the project that pays, if the user names one
        url = URL(f"{base}?{urlencode(query, quote_via=quote)}" if query else base, encoded=True)
        sent = fs._get_headers({"Accept-Encoding": "identity", **(headers or {})})  # noqa: SLF001
        async with session.request(method, url, data=data, headers=sent, timeout=wait, allow_redirects=False) as reply:
            content = await reply.read()
            if reply.status >= 400:
                raise ReplyError(reply.status, _message(content))
            return reply, content

    def _path(self, name: str) -> str:
        return f"storage/v1/b/{quote(self._bucket, safe='')}/o/{quote(name, safe='')}"

    async def _upload(self, name: str, data: bytes | None, kind: str, **more: Any) -> tuple[Any, bytes]:
        path = f"upload/storage/v1/b/{quote(self._bucket, safe='')}/o"
        headers = {"Content-Type": "application/octet-stream"}
        return await self._ask_for("POST", path, data, headers, uploadType=kind, name=name, **more)

    async def _create(self, name: str, data: bytes) -> None:
        await self._upload(name, data, "media", ifGenerationMatch="0")

    async def _write(self, name: str, data: bytes) -> None:
        await self._upload(name, data, "media")

    async def _write_parts(self, name: str, parts: Sequence[Callable[[], bytes]]) -> None:
        await self._insist(lambda: self._write_session(name, parts))

    async def _write_session(self, name: str, parts: Sequence[Callable[[], bytes]]) -> None:
        begun, _ = await self._upload(name, None, "resumable")
        # Of the address the service's own host is left out: a proxy or an emulator may be between.
        location = begun.headers["Location"]
        address = f"{self._client.file_system()._location}/{location.split('://', 1)[1].partition('/')[2]}"  # noqa: SLF001
        sent = 0
        # By POST, since aiohttp sends a PUT again by itself where a connection ends early.
        for number, part in enumerate(parts, 1):
            data = part()
            end = sent + len(data)
            whole = str(end) if number == len(parts) else "*"
            reply, _ = await self._ask_for("POST", address, data, {"Content-Range": f"bytes {sent}-{end - 1}/{whole}"})
            if reply.status == 308 and reply.headers.get("Range", "").rpartition("-")[2] != str(end - 1):
                raise ConnectionError("the service has taken only a part of what was sent")
            sent = end

    async def _read(self, name: str, start: int | None, length: int) -> bytes:
        headers = {} if start is None else {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            reply, data = await self._ask_for("GET", self._path(name), None, headers, alt="media")
        except ReplyError as error:
            if start is not None and error.status == 416:
                return b""
            raise
        self._check_edition(name, reply.headers.get("x-goog-generation") or reply.headers.get("ETag", ""))
        # A range of an object that is stored compressed is passed over.
        return data if start is None or reply.status == 206 else data[start : start + length]

    async def _look(self, name: str) -> Seen:
        _, content = await self._ask_for("GET", self._path(name), fields=_FIELDS)
        return _seen(json.loads(content))

    async def _page(
        self, prefix: str, after: str | None, token: str | None
    ) -> tuple[builtins.list[tuple[str, Seen]], str | None]:
        query: dict[str, Any] = {
            "prefix": self._prefix + prefix or None,
            "startOffset": after if token is None and after and has_utf8(after) else None,
            "pageToken": token,
            "maxResults": self.page,
            "fields": f"nextPageToken,items({_FIELDS})",
        }
        try:
            _, content = await self._ask_for("GET", self._path("").removesuffix("/"), **query)
        except ReplyError as error:
            if error.status == 404:  # what is not there is the bucket
                raise self._failure("list", prefix, error) from None
            raise
        found = json.loads(content)
        return [(item["name"], _seen(item)) for item in found.get("items", ())], found.get("nextPageToken") or None

    async def _remove(self, names: builtins.list[str]) -> None:
        await self._remove_one(names[0])

    async def _remove_one(self, name: str, generation: Tag | None = None) -> None:
        try:
            await self._ask_for("DELETE", self._path(name), ifGenerationMatch=generation)
        except ReplyError as error:
            replaced = generation is not None and error.status == 412
            if not replaced and not self._is_absent(error):
                raise

    def _delete_found(self, found: Iterable[ObjectInfo]) -> None:
        """Delete objects under the condition that they still have their generations."""
        self._each(
            "delete", lambda info: info.key, lambda info: self._remove_one(self._name(info.key), info.tag), [*found]
        )

    # -- errors

    def _status(self, error: BaseException) -> int | None:
        return error.status if isinstance(error, ReplyError) else None

    def _is_network(self, error: BaseException) -> bool:
        if isinstance(error, ReplyError) or self._is_unsent(error):
            return False
        return isinstance(error, OSError | TimeoutError) or "ClientError" in class_names(error)

    def _is_unsent(self, error: BaseException) -> bool:
        return bool(_UNSENT & class_names(error))

    def _is_absent(self, error: BaseException) -> bool:
        return self._status(error) == 404 and "bucket does not exist" not in str(error)


def _message(content: bytes) -> str:
    """The message in the body of an error: JSON, or the text of a server in between."""
    text = content.decode(errors="replace")
    try:
        said = json.loads(text)["error"]
        text = str(said["message"] if isinstance(said, dict) else said)
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split())


def _seen(item: dict[str, Any]) -> Seen:
    # The time of this content: "updated" changes with the storage class and other properties as well.
    return int(item.get("size", 0)), milliseconds(datetime.fromisoformat(item["timeCreated"])), str(item["generation"])
