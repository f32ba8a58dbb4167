"""S3, Azure and Google Cloud Storage through obstore, the Python package of the Rust crate ``object_store``."""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from refdelta_storage import remote
from refdelta_storage.azure import AzureCli, BearerToken
from refdelta_storage.base import check_key
from refdelta_storage.clients import UPLOADS, Patience, together
from refdelta_storage.errors import InvalidOptionError, StorageError, redact, secrets_of
from refdelta_storage.remote import RemoteStore, Seen, etag, milliseconds
from refdelta_storage.s3 import is_amazon

_T = TypeVar("_T")

# The whole of one request, in seconds: obstore's 30 would end an upload over a slow line. Silence ends it earlier.
_WHOLE_REQUEST = 3600.0

_STATUS = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_CODE = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<\n]*)", re.DOTALL)
_ABSENT_CODES = {
    *("NoSuchKey", "NoSuchVersion", "NotFound", "404", None),
    *("BlobNotFound", "ResourceNotFound", "PathNotFound"),
}
# Of an upload in parts that is completed again.
_COMPLETED = {"NoSuchUpload", "InvalidBlockList"}
# Conflicts, and requests that came in pieces, all with statuses that are final otherwise.
_PASSING_CODES = {"RequestTimeout", "IncompleteBody", "ConditionalRequestConflict", "OperationAborted", "SlowDown"}
# Of an answer with all of an object that ends before the range, as Azurite gives it for the first byte after the end.
_BEYOND = "Wanted range starting at"
_UNSENT = {"InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError", "UnauthenticatedError"}


class ObstoreClient:
    """The way to one bucket by obstore: what a store there is made of, once for a process.

    Args:
        service: ``S3``, ``Azure`` or ``GCS``.
        bucket: the bucket or container.
        config: obstore's own names, without prefixes.
        patience: how long to wait. Requests are sent once, but for those of uploads in parts, which obstore repeats.
    """

    def __init__(self, service: str, bucket: str, config: Mapping[str, Any], patience: Patience) -> None:
        self.service, self.bucket, self.config, self.patience = service, bucket, dict(config), patience
        prefix = {"S3": "AWS_", "Azure": "AZURE_", "GCS": "GOOGLE_"}[service]
        logins = sorted(item for item in os.environ.items() if item[0].startswith(prefix))
        self.secrets = secrets_of({**dict(logins), **config})
        known = repr((service, bucket, sorted(self.config.items()), patience, logins))
        self.name = hashlib.sha256(known.encode(errors="surrogateescape")).hexdigest()

    def store(self, *, repeating: bool = False) -> Any:
        """The store of obstore. Raises ``StorageError`` in a forked child, where its threads are missing."""
        name = (self.name, repeating)
        with _made.lock:
            if _made.process != os.getpid():
                raise StorageError(
                    "obstore does not work in a forked process whose parent has used it: start processes by spawn or "
                    "forkserver, or use the storage option client='fsspec'"
                )
            if name not in _made.stores:
                _made.stores[name] = self._make(repeating)
            return _made.stores[name]

    def _make(self, repeating: bool) -> Any:
        from obstore import store

        endpoint = self.config.get("endpoint") or self.config.get("base_url") or ""
        return getattr(store, f"{self.service}Store")(
            self.bucket,
            config=self.config,
            client_options={
                "connect_timeout": timedelta(seconds=self.patience.connect),
                "read_timeout": timedelta(seconds=self.patience.read),
                "timeout": timedelta(seconds=_WHOLE_REQUEST),
                "allow_http": endpoint.startswith("http://"),
            },
            retry_config={
                "max_retries": self.patience.retries if repeating else 0,
                "retry_timeout": timedelta(seconds=self.patience.total),
            },
        )

    def run(self, function: Callable[..., Coroutine[Any, Any, _T]], *arguments: Any) -> _T:
        """Run a coroutine to its end, on fsspec's event loop."""
        from fsspec.asyn import get_loop, sync

        return cast("_T", sync(get_loop(), function, *arguments))


class _Made:
    """The stores of this process, and the process in which obstore has begun to work."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stores: dict[tuple[str, bool], Any] = {}
        self.process = os.getpid()

    def begin_in_child(self) -> None:
        """In a forked child, begin anew where the parent has made nothing; else what is here stays its parent's."""
        self.lock = threading.Lock()
        if not self.stores:
            self.process = os.getpid()


_made = _Made()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_made.begin_in_child)


class ObstoreStore(RemoteStore):
    """Objects of a bucket or container, each request by obstore: a put with ``mode="create"`` for a commit.

    obstore sends each request once; this store does the rest, and never repeats a conditional put. Azure is
    listed whole from the prefix on, and sorted, as by :class:`~refdelta_storage.azure.AzureStore`. Arguments are those
    of :class:`~refdelta_storage.remote.RemoteStore`.
    """

    bulk: ClassVar[int] = 256
    page: ClassVar[int] = 1000

    @property
    def ordered(self) -> bool:
        """False for Azure, and for the directory buckets of S3 Express."""
        return self._obstore.service != "Azure" and not self._bucket.endswith("--x-s3")

    def is_amazon(self) -> bool:
        """Whether the service is Amazon's own, which documents conditional puts. No request is made."""
        config = self._store().config
        endpoint = config.get("aws_endpoint_url_s3") or config.get("endpoint")
        return not endpoint or is_amazon(str(endpoint))

    @property
    def _obstore(self) -> ObstoreClient:
        return cast("ObstoreClient", self._client)

    def _store(self, *, repeating: bool = False) -> Any:
        return self._obstore.store(repeating=repeating)

    async def _create(self, name: str, data: bytes) -> None:
        await self._store().put_async(name, data, mode="create", use_multipart=False)

    async def _write(self, name: str, data: bytes) -> None:
        await self._store().put_async(name, data, use_multipart=False)

    async def _write_parts(self, name: str, parts: Sequence[Callable[[], bytes]]) -> None:
        sizes: builtins.list[int] = []

        def contents() -> Iterator[bytes]:
            for part in parts:
                data = part()
                sizes.append(len(data))
                yield data

        try:
            await self._store(repeating=True).put_async(
                name, contents(), use_multipart=True, chunk_size=remote.PART, max_concurrency=UPLOADS
            )
        except Exception as error:
            # Completed by a request whose reply was lost, unless another object or none is there.
            if _code(error) not in _COMPLETED or (await self._insist(lambda: self._look(name)))[0] != sum(sizes):
                raise

    async def _read(self, name: str, start: int | None, length: int) -> bytes:
        options = {} if start is None else {"range": (start, start + length)}
        try:
            reply = await self._store().get_async(name, options=options)
        except Exception as error:
            if start is not None and (self._status(error) == 416 or _BEYOND in str(error)):
                return b""
            raise
        self._check_edition(name, reply.meta["e_tag"] or "")
        return bytes(await reply.bytes_async())

    async def _look(self, name: str) -> Seen:
        return _seen(await self._store().head_async(name))

    async def _page(
        self, prefix: str, after: str | None, token: str | None
    ) -> tuple[builtins.list[tuple[str, Seen]], str | None]:
        folder = (self._prefix + prefix).rpartition("/")[0]  # prefixes are folders there
        if not self.ordered:
            found = await self._store().list(folder or None).collect_async()
            return [(info["path"], _seen(info)) for info in found], None
        wanted = self._prefix + prefix
        begin = token or max(_before(wanted), after if after and _is_legal(after) else "")
        stream = self._store().list(folder or None, offset=begin or None, chunk_size=self.page)
        page: builtins.list[tuple[str, Seen]] = []
        async for chunk in stream:
            # A service that knows no start begins at the beginning.
            page += [(info["path"], _seen(info)) for info in chunk if info["path"] > begin]
            if len(page) >= self.page:
                last = page[-1][0]
                return page, last if last < wanted or last.startswith(wanted) else None
        return page, None

    async def _remove(self, names: builtins.list[str]) -> None:
        if len(names) > 1 and self._obstore.service == "GCS":  # it has no request for many
            await together(self._remove([name]) for name in names)
            return
        try:
            await self._store().delete_async(names)
        except Exception as error:
            if not self._is_absent(error):
                raise
            # One that is missing ends the whole list.
            if len(names) > 1:
                await together(self._remove([name]) for name in names)

    # -- errors

    def _status(self, error: BaseException) -> int | None:
        found = _STATUS.search(str(error)) if _is_obstore(error) else None
        if found is not None:
            return int(found[1] or found[2])
        return 404 if isinstance(error, FileNotFoundError) else None

    def _is_taken(self, error: BaseException) -> bool:
        return _code(error) == "BlobAlreadyExists"  # of other conflicts obstore says that the object exists, too

    def _is_network(self, error: BaseException) -> bool:
        if self._status(error) is not None:
            return _code(error) in _PASSING_CODES
        return isinstance(error, OSError | TimeoutError) or type(error).__name__ in ("GenericError", "JoinError")

    def _is_unsent(self, error: BaseException) -> bool:
        return isinstance(error, StorageError) or (self._status(error) is None and type(error).__name__ in _UNSENT)

    def _is_absent(self, error: BaseException) -> bool:
        return self._status(error) == 404 and _code(error) in _ABSENT_CODES

    def _reason(self, error: BaseException) -> str:
        found = _CODE.search(str(error))
        text = f"{found[1]}: {found[2]}" if found else str(error).partition("\n\nDebug source:")[0]
        return " ".join(text.split()) or super()._reason(error)


def _seen(info: Mapping[str, Any]) -> Seen:
    return info["size"], milliseconds(info["last_modified"]), etag(info["e_tag"])


def _is_obstore(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) or type(error).__module__.startswith("obstore")


def _code(error: BaseException) -> str | None:
    found = _CODE.search(str(error))
    return found[1] if found else None


def _before(prefix: str) -> str:
    """A legal name after which all names with this prefix come, and few others before them; or an empty one."""
    last = prefix[-1:]
    if not (last.isascii() and last.isalnum()):
        return ""
    before = "." if last == "0" else chr(ord(last) - 1)  # before "0" is "/", which begins an empty segment
    return f"{prefix[:-1]}{before}\U0010ffff"


def _is_legal(key: str) -> bool:
    try:
        check_key(key)
    except StorageError:
        return False
    return True


# -- options: from the arguments of fsspec's classes, as the tables of the URI schemes give them, to obstore's config

FSSPEC_NAMES = {
    "S3": {"key", "secret", "token", "endpoint_url", "anon", "client_kwargs", "config_kwargs"},
    "Azure": {
        *("account_name", "account_key", "sas_token", "connection_string", "account_host", "anon"),
        *("client_id", "client_secret", "tenant_id"),
    },
    "GCS": {"token", "endpoint_url", "project"},
}
"""The arguments of fsspec's classes that have a meaning for obstore."""


def config_of(service: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of obstore for the arguments of fsspec's class; names that only obstore knows stay.

    Raises:
        InvalidOptionError: an argument that has no meaning there.
    """
    given = dict(arguments)
    config = {"S3": _s3, "Azure": _azure, "GCS": _gcs}[service](given)
    return {name: value for name, value in {**given, **config}.items() if value is not None}


def checked_client(client: ObstoreClient, where: str, known: Callable[[str], InvalidOptionError]) -> ObstoreClient:
    """The client, whose options obstore accepts. ``known`` makes the error for the name of an unknown option."""
    try:
        client.store()
    except StorageError:
        raise
    except Exception as error:  # noqa: BLE001 - obstore raises its own errors, ValueError and TypeError
        unknown = re.search(r"Configuration key: '([^']*)'", str(error))
        if unknown:
            raise known(unknown[1]) from None
        text = str(error).partition("\n")[0]
        raise InvalidOptionError(f"cannot open {where}: {redact(text, client.secrets)}") from None
    return client


def _s3(given: dict[str, Any]) -> dict[str, Any]:
    inner, settings = dict(given.pop("client_kwargs", None) or {}), dict(given.pop("config_kwargs", None) or {})
    style = dict(settings.pop("s3", None) or {}).pop("addressing_style", None)
    if given.pop("profile", None):
        raise InvalidOptionError("option 'profile': obstore reads no profiles, use client='fsspec'")
    config = {
        "access_key_id": given.pop("key", None) or inner.pop("aws_access_key_id", None),
        "secret_access_key": given.pop("secret", None) or inner.pop("aws_secret_access_key", None),
        "session_token": given.pop("token", None) or inner.pop("aws_session_token", None),
        "endpoint": given.pop("endpoint_url", None) or inner.pop("endpoint_url", None),
        "region": inner.pop("region_name", None),
        "skip_signature": given.pop("anon", None),
        "virtual_hosted_style_request": None if style is None else style == "virtual",
    }
    if left := [*inner, *settings]:
        raise InvalidOptionError(f"option {left[0]!r} of botocore has no meaning for obstore")
    return config


def _azure(given: dict[str, Any]) -> dict[str, Any]:
    text = given.pop("connection_string", None) or os.environ.get("AZURE_STORAGE_CONNECTION_STRING") or ""
    parts = {
        name.strip().lower(): value
        for name, separator, value in (part.partition("=") for part in text.split(";"))
        if separator
    }
    account = given.pop("account_name", None) or parts.get("accountname")
    endpoint = parts.get("blobendpoint") or given.pop("account_host", None)
    given.pop("account_host", None)
    if not endpoint and account and parts.get("endpointsuffix"):
        endpoint = f"{account}.blob.{parts['endpointsuffix']}"
    if endpoint and "://" not in endpoint:
        endpoint = f"{parts.get('defaultendpointsprotocol') or 'https'}://{endpoint}"
    login = given.pop("credential", None)
    token = given.pop("sas_token", None) or parts.get("sharedaccesssignature")
    return {
        "account_name": account,
        "account_key": given.pop("account_key", None) or parts.get("accountkey"),
        "sas_key": token.removeprefix("?") if token else None,
        "token": login.token if isinstance(login, BearerToken) else None,
        "use_azure_cli": True if isinstance(login, AzureCli) else None,
        "skip_signature": given.pop("anon", None),
        "endpoint": endpoint.rstrip("/") if endpoint else None,
    }


def _gcs(given: dict[str, Any]) -> dict[str, Any]:
    token, endpoint = given.pop("token", None), given.pop("endpoint_url", None)
    given.pop("project", None)
    config: dict[str, Any] = {"base_url": endpoint}
    if token == "anon":  # noqa: S105 - a name
        # By skip_signature only reads are without a login.
        nobody = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        return {
            **config,
            "service_account_key": json.dumps({**nobody, **({"gcs_base_url": endpoint} if endpoint else {})}),
        }
    if isinstance(token, Mapping):
        if token.get("type") == "authorized_user":
            raise InvalidOptionError(
                "obstore finds the credentials of a user by the environment variable GOOGLE_APPLICATION_CREDENTIALS"
            )
        return {**config, "service_account_key": json.dumps(dict(token))}
    if token in ("cache", "cloud", "browser") or not isinstance(token, str | None):
        raise InvalidOptionError("option 'token': this way to log in is gcsfs's own, use client='fsspec'")
    if token is None or token == "google_default":  # noqa: S105 - a name
        return config
    return {**config, "service_account" if Path(token).exists() else "bearer_token": token}
