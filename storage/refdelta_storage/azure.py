"""Azure's Blob service and Data Lake Storage Gen2, through the client of adlfs."""

from __future__ import annotations

import base64
import builtins
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from refdelta_storage.base import Capabilities
from refdelta_storage.clients import upload_parts
from refdelta_storage.errors import class_names
from refdelta_storage.remote import RemoteStore, Seen, etag, milliseconds

PROMISES = Capabilities(put_if_absent=True, list_after=False, durable=True, remote=True)

_NETWORK = {"ServiceRequestError", "ServiceResponseError", "IncompleteReadError", "ClientError"}
_UNSENT = {"CredentialUnavailableError", "ClientAuthenticationError"}
_NO_END = 253402300799  # the end of the year 9999: the service says when a token has expired
_ABSENT = {None, "BlobNotFound", "ResourceNotFound", "PathNotFound"}


@dataclass(frozen=True, repr=False)
class BearerToken:
    """A login by a token that somebody else renews: a credential of Azure's SDK. Its ``repr`` does not show it."""

    token: str

    def __repr__(self) -> str:
        return f"BearerToken({hashlib.sha256(self.token.encode()).hexdigest()})"

    async def get_token(self, *_scopes: str, **_options: Any) -> Any:
        """The token, for the SDK."""
        from azure.core.credentials import AccessToken

        return AccessToken(self.token, _NO_END)


@dataclass(frozen=True)
class AzureCli:
    """The login of the command ``az``, which is asked for a token when one is needed."""

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """The token, for the SDK."""
        from azure.identity.aio import AzureCliCredential

        async with AzureCliCredential() as credential:
            return await credential.get_token(*scopes, **options)


class AzureStore(RemoteStore):
    """Blobs of a container: one Put Blob with ``If-None-Match`` for a commit.

    The SDK, which would wait 15 seconds before it sends anything again, sends each request once; this store does the
    rest. Listings begin at a prefix and no later: the service has a parameter for it, of which its own pages say
    different things, the emulator nothing, and a listing that leaves out a commit is worse than one that is long.
    Accounts with a hierarchical namespace list by folders, so listings are sorted here; their folders are no objects.
    Arguments are those of :class:`~refdelta_storage.remote.RemoteStore`; ``patience`` holds for the SDK too.
    """

    bulk: ClassVar[int] = 256
    page: ClassVar[int] = 5000
    ordered = False

    def _container(self) -> Any:
        return self._client.file_system().service_client.get_container_client(self._bucket)

    def _blob(self, name: str) -> Any:
        return self._container().get_blob_client(name)

    @property
    def _once(self) -> dict[str, Any]:
        """How the SDK sends a request: once, and not for ever."""
        patience = self._patience
        return {"retry_total": 0, "connection_timeout": patience.connect, "read_timeout": patience.read}

    async def _create(self, name: str, data: bytes) -> None:
        await self._blob(name).upload_blob(data, overwrite=False, **self._once)

    async def _write(self, name: str, data: bytes) -> None:
        await self._blob(name).upload_blob(data, overwrite=True, **self._once)

    async def _write_parts(self, name: str, parts: Sequence[Callable[[], bytes]]) -> None:
        from azure.storage.blob import BlobBlock

        blob = self._blob(name)

        async def send(number: int, data: bytes) -> Any:
            block = base64.b64encode(f"{number:06d}".encode()).decode()
            await self._insist(lambda: blob.stage_block(block, data, **self._once))
            return BlobBlock(block_id=block)

        blocks = await upload_parts(parts, send)
        await self._insist(lambda: blob.commit_block_list(blocks, **self._once))

    async def _read(self, name: str, start: int | None, length: int) -> bytes:
        try:
            stream = await self._blob(name).download_blob(
                offset=start, length=None if start is None else length, max_concurrency=4, **self._once
            )
            self._check_edition(name, stream.properties.etag)
            data: bytes = await stream.readall()
        except Exception as error:
            if start is not None and self._status(error) == 416:
                return b""
            raise
        return data

    async def _look(self, name: str) -> Seen:
        found = await self._blob(name).get_blob_properties(**self._once)
        if _is_folder(found):
            raise FileNotFoundError(name)
        return found.size, milliseconds(found.last_modified), etag(found.etag)

    async def _page(
        self,
        prefix: str,
        after: str | None,  # noqa: ARG002 - it is a wish
        token: str | None,
    ) -> tuple[builtins.list[tuple[str, Seen]], str | None]:
        pages = self._container().list_blobs(
            name_starts_with=(self._prefix + prefix) or None,
            include=["metadata"],
            results_per_page=self.page,
            **self._once,
        )
        pages = pages.by_page(continuation_token=token)
        try:
            page = await anext(pages)
        except StopAsyncIteration:
            return [], None
        entries = [
            (info.name, (info.size, milliseconds(info.last_modified), etag(info.etag)))
            async for info in page
            if not _is_folder(info)
        ]
        return entries, pages.continuation_token or None

    async def _remove(self, names: builtins.list[str]) -> None:
        if len(names) > 1:
            replies = await self._container().delete_blobs(*names, raise_on_any_failure=False, **self._once)
            left = [
                name
                for name, reply in zip(names, [reply async for reply in replies], strict=True)
                if reply.status_code not in (202, 404)
            ]
        else:
            left = names
        for name in left:
            try:
                await self._blob(name).delete_blob(**self._once)
            except Exception as error:
                if not self._is_absent(error):
                    raise

    # -- errors

    def _status(self, error: BaseException) -> int | None:
        status: int | None = getattr(error, "status_code", None)
        return status

    def _is_taken(self, error: BaseException) -> bool:
        return _code(error) == "BlobAlreadyExists"

    def _is_network(self, error: BaseException) -> bool:
        if self._status(error) is not None:
            return False
        return isinstance(error, TimeoutError | OSError) or bool(_NETWORK & class_names(error))

    def _is_unsent(self, error: BaseException) -> bool:
        return self._status(error) is None and type(error).__name__ in _UNSENT

    def _is_absent(self, error: BaseException) -> bool:
        return isinstance(error, FileNotFoundError) or (self._status(error) == 404 and _code(error) in _ABSENT)

    def _reason(self, error: BaseException) -> str:
        code, message = _code(error), str(error).partition("\n")[0]
        return f"{code}: {message}" if code else message or super()._reason(error)


def _code(error: BaseException) -> str | None:
    code = getattr(error, "error_code", None)
    return None if code is None else str(getattr(code, "value", code))


def _is_folder(info: Any) -> bool:
    """Whether this is how accounts with a hierarchical namespace show a folder."""
    return str((info.metadata or {}).get("hdi_isfolder", "")).lower() == "true"
