"""From a URI and options, as users write them, to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from refdelta_storage.base import Store
from refdelta_storage.errors import InvalidOptionError, redact
from refdelta_storage.local import LocalStore
from refdelta_storage.options import checked, truth

_SCHEME = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]+)://")
# A remote store's scheme with fewer slashes than two: `Path("s3://bucket")` is `s3:/bucket`. A path that was made
# absolute has it as a folder.
_ONE_SLASH = re.compile(
    r"(?i)(?:^|/)(s3[an]?|abfss?|az|azure|adl|wasbs?|gs|gcs|dbfs|hdfs|webhdfs|oss|cosn?|https?|memory):(?:/+|$)(.*)"
)
_NO_SLASH = re.compile(_ONE_SLASH.pattern.replace("(?:^|/)", "^").replace("(?:/+|$)", "(?!/)"))
# OneLake, as its portal shows addresses: the first folder is the workspace.
_ONE_LAKE = re.compile(r"(?i)https://([\w.-]*onelake\.(?:dfs|blob)\.fabric\.microsoft\.com)/([^/?#]+)(.*)")
_FILE = re.compile(r"(?i)file:(?://)?(?=/|[^/])")


def open_store(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    create: bool = False,
    read_only: bool = False,
) -> Store:
    """The store that a URI names. No request is made, except for what a file system's own construction does.

    Args:
        uri: a path (``~`` is the home folder), ``file:///path`` with percent-encoding, ``memory://name``, or a URI of
            any protocol that fsspec knows: ``s3://bucket/path``, ``gs://bucket/path``,
            ``abfss://container@account.dfs.core.windows.net/path``.
            ``https://host/path`` is read only, and by name: a web server has no listing.
        storage_options: for the local file system ``fsync`` (default true). For S3, Azure and GCS ``client``,
            ``"fsspec"`` or ``"obstore"``, and the names of fsspec's file systems and of deltalake, in any case, and
            what the environment says of those that are not given; ``timeout`` (seconds without a byte of a reply, 15),
            ``connect_timeout`` (5), ``max_retries`` (4) and ``retry_timeout`` (seconds after which nothing is sent
            again, 30). Elsewhere fsspec's own. ``put_if_absent`` says whether an object is created for one writer only;
            without it that is tried, before the first write of a process, in places that do not document it: unknown
            protocols, and S3 that is not Amazon's.
        create: create the folder of a local path now, rather than with the first write.
        read_only: refuse every write.

    Raises:
        InvalidOptionError: a URI or an option that cannot be understood, an unknown option, or a missing package.
        StorageError: the path is there and is no folder.
    """
    text, options = os.fspath(uri), dict(storage_options or {})
    if not text or "\0" in text:
        raise InvalidOptionError(f"not a URI: {text!r}")
    store = _open(text, options, create=create)
    if not read_only:
        return store
    from refdelta_storage.wrappers import ReadOnlyStore

    return ReadOnlyStore(store)


def _open(text: str, options: dict[str, Any], *, create: bool) -> Store:
    if "::" in text and _SCHEME.search(text):
        raise InvalidOptionError(f"chained URIs are not supported, a cache in between hides commits: {redact(text)}")
    if text.lower().startswith("file:") and not re.match(r"(?i)file:[^/]", text):
        return _local(_file_path(text), options, create=create)
    match = _SCHEME.match(text)
    if match is None:
        _refuse_fewer_slashes(text)
        return _local(os.path.expanduser(text), options, create=create)  # noqa: PTH111 - a path stays as it was written
    scheme = match.group(1).lower()
    text = scheme + text[match.end(1) :]  # fsspec's file systems know theirs in lower case only
    if scheme == "memory":
        checked(options, "the store in memory", {})
        from refdelta_storage.memory import MemoryStore

        return MemoryStore(text[match.end() :].strip("/") or "default")
    if scheme == "https" and (lake := _ONE_LAKE.match(text)):
        text, scheme = f"abfss://{lake[2]}@{lake[1]}{lake[3]}", "abfss"
    # With asyncio and TLS, which a local table does not wait for.
    from refdelta_storage.protocols import PROTOCOLS, other

    return (PROTOCOLS.get(scheme) or other(scheme)).open(text, options)


def _refuse_fewer_slashes(text: str) -> None:
    match = _ONE_SLASH.search(text) or _NO_SLASH.match(text)
    if match is None:
        return
    scheme, rest = match.group(1).lower(), match.group(2)
    raise InvalidOptionError(
        f"not a path of this machine: {redact(text)!r}; a URI has two slashes after the scheme: "
        f"{redact(f'{scheme}://{rest}')!r} as a string, since pathlib.Path removes one of them. A folder that is "
        f"called {match.group(1) + ':'!r} is opened by a file:/// URI"
    )


def _local(path: str, options: dict[str, Any], *, create: bool) -> LocalStore:
    values = checked(options, "the local file system", {"fsync": truth})
    return LocalStore(path, fsync=values.get("fsync", True), create=create)


def _file_path(uri: str) -> str:
    rest = uri[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost") or not slash:
            raise InvalidOptionError(f"a file URI names an absolute path of this machine, file:///path: {uri!r}")
        rest = "/" + path
    path = unquote(rest, errors="surrogateescape")
    if "\0" in path:
        raise InvalidOptionError(f"not a path: {uri!r}")
    return path
