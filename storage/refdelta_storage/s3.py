"""S3 and what speaks its language, through the client of s3fs."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from refdelta_storage.base import Capabilities
from refdelta_storage.clients import upload_parts
from refdelta_storage.errors import StorageError, class_names
from refdelta_storage.remote import RemoteStore, Seen, etag, has_utf8, milliseconds

PROMISES = Capabilities(put_if_absent=True, list_after=True, durable=True, remote=True)

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws")
# A reply to HEAD has a status alone. Other codes of 404 tell of a missing bucket, or of a missing user at versitygw.
_ABSENT_CODES = {"NoSuchKey", "NoSuchVersion", "NotFound", "404", None}
# Conflicts, and requests that came in pieces, all with statuses that are final otherwise.
_PASSING_CODES = {"RequestTimeout", "IncompleteBody", "ConditionalRequestConflict", "OperationAborted", "SlowDown"}
# botocore's own, of requests that never left.
_UNSENT = {"NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "CredentialRetrievalError"}
# Errors of the connection. A wrong checksum means a damaged reply, or an object that was replaced meanwhile.
# ClientError is that of aiohttp; errors of botocore have a reply, and are handled before.
_NETWORK = {
    "ClientError",
    "ConnectionError",
    "FlexibleChecksumError",
    "HTTPClientError",
    "IncompleteReadError",
    "ResponseParserError",
}


class S3Store(RemoteStore):
    """Objects of a bucket: one PUT with ``If-None-Match`` for a commit, listings that start after a key, page by page.

    Neither botocore nor s3fs sends anything again; this store does, and never a conditional put. An upload in parts
    whose writer was killed stays, unseen, until a lifecycle rule of the bucket gives it up. Arguments are those of
    :class:`~refdelta_storage.remote.RemoteStore`.
    """

    bulk: ClassVar[int] = 1000
    page: ClassVar[int] = 1000

    @property
    def ordered(self) -> bool:
        """False for the directory buckets of S3 Express, which list in an order of their own and know no start."""
        return not self._bucket.endswith("--x-s3")

    def is_amazon(self) -> bool:
        """Whether the service is Amazon's own, which documents conditional puts. No request is made."""
        return is_amazon(str(self._client.file_system().s3.meta.endpoint_url))

    async def _call(self, method: str, **arguments: Any) -> Any:
        fs = self._client.file_system()
        await fs.set_session()
        function = getattr(await fs.get_s3(self._bucket), method)
        arguments = {"Bucket": self._bucket, **arguments}
        # The user's arguments for requests, where they fit. Ours are not left to this filter of s3fs: it would drop the
        # condition of a put, of which an old botocore does not know, and not say so.
        wanted = fs._get_s3_method_kwargs(function, **arguments)  # noqa: SLF001 - the one way to these arguments
        return await function(**{**wanted, **arguments})

    async def _create(self, name: str, data: bytes) -> None:
        await self._call("put_object", Key=name, Body=data, IfNoneMatch="*")

    async def _write(self, name: str, data: bytes) -> None:
        await self._call("put_object", Key=name, Body=data)

    async def _write_parts(self, name: str, parts: Sequence[Callable[[], bytes]]) -> None:
        begun = await self._insist(lambda: self._call("create_multipart_upload", Key=name))
        upload = {"Key": name, "UploadId": begun["UploadId"]}

        async def send(number: int, data: bytes) -> dict[str, Any]:
            sent = await self._insist(lambda: self._call("upload_part", PartNumber=number, Body=data, **upload))
            return {"PartNumber": number, "ETag": sent["ETag"]}

        try:
            done = {"Parts": await upload_parts(parts, send)}
            await self._insist(lambda: self._call("complete_multipart_upload", MultipartUpload=done, **upload))
        except BaseException as error:
            if _code(error) == "NoSuchUpload":
                # Completed by a request whose reply was lost, unless this finds nothing.
                await self._insist(lambda: self._look(name))
                return
            # Uploaded parts cost money until the upload is aborted.
            await self._insist(lambda: self._call("abort_multipart_upload", **upload))
            raise

    async def _read(self, name: str, start: int | None, length: int) -> bytes:
        wanted = {} if start is None else {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            reply = await self._call("get_object", Key=name, **wanted)
        except Exception as error:
            if start is not None and self._status(error) == 416:
                return b""
            raise
        async with reply["Body"] as body:
            self._check_edition(name, reply.get("ETag", ""))
            data: bytes = await body.read()
        # A server may pass over the range.
        return data if start is None or "ContentRange" in reply else data[start : start + length]

    async def _look(self, name: str) -> Seen:
        found = await self._call("head_object", Key=name)
        return found["ContentLength"], milliseconds(found["LastModified"]), etag(found.get("ETag"))

    async def _page(
        self, prefix: str, after: str | None, token: str | None
    ) -> tuple[builtins.list[tuple[str, Seen]], str | None]:
        wanted: dict[str, Any] = {"Prefix": self._prefix + prefix, "MaxKeys": self.page}
        if token is not None:
            wanted["ContinuationToken"] = token
        elif self.ordered and after is not None and has_utf8(after):
            wanted["StartAfter"] = after
        if not self.ordered:
            # They also want a prefix to end with a folder.
            wanted["Prefix"] = wanted["Prefix"][: wanted["Prefix"].rfind("/") + 1]
        found = await self._call("list_objects_v2", **wanted)
        entries = [
            (info["Key"], (info["Size"], milliseconds(info["LastModified"]), etag(info.get("ETag"))))
            for info in found.get("Contents", ())
        ]
        return entries, found.get("NextContinuationToken") if found.get("IsTruncated") else None

    async def _remove(self, names: builtins.list[str]) -> None:
        if len(names) == 1:
            await self._call("delete_object", Key=names[0])
            return
        wanted = {"Objects": [{"Key": name} for name in names], "Quiet": True}
        errors = (await self._call("delete_objects", Delete=wanted)).get("Errors", ())
        for error in errors:
            if error.get("Code") not in ("NoSuchKey", "NoSuchVersion"):
                kind = StorageError if error.get("Code") == "AccessDenied" else OSError
                raise kind(f"cannot delete: {error.get('Key')}: {error.get('Code')}: {error.get('Message')}")

    # -- errors

    def _status(self, error: BaseException) -> int | None:
        status: int | None = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status

    def _is_network(self, error: BaseException) -> bool:
        if _response(error):
            return _code(error) in _PASSING_CODES
        return isinstance(error, TimeoutError | OSError) or bool(_NETWORK & class_names(error))

    def _is_unsent(self, error: BaseException) -> bool:
        return type(error).__name__ in _UNSENT

    def _is_absent(self, error: BaseException) -> bool:
        return self._status(error) == 404 and _code(error) in _ABSENT_CODES

    def _reason(self, error: BaseException) -> str:
        code, message = _code(error), _response(error).get("Error", {}).get("Message")
        return f"{code}: {message}" if code else super()._reason(error)


def is_amazon(endpoint: str) -> bool:
    """Whether this is the address of a service of Amazon's."""
    return (urlsplit(endpoint).hostname or "").endswith(_AMAZON)


def _response(error: BaseException) -> dict[str, Any]:
    """The error of botocore with the reply of the server, which s3fs converts to Python's errors."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return response
    return {}


def _code(error: BaseException) -> str | None:
    code: str | None = _response(error).get("Error", {}).get("Code")
    return code
