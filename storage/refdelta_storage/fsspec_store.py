"""A store over any file system of fsspec."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from refdelta_storage.base import (
    Capabilities,
    Committed,
    Exists,
    ObjectInfo,
    PutOutcome,
    Store,
    Unknown,
    check_key,
    check_prefix,
    check_range,
    check_ranges,
    order_key,
)
from refdelta_storage.errors import InvalidOptionError, StorageError, class_names, failure, not_found, secrets_of
from refdelta_storage.streams import RangedInput, collecting

NO_PROMISES = Capabilities(put_if_absent=False, list_after=False, durable=True, remote=True)

# Several client libraries have an error of their own for what is not there.
_MISSING = {"ResourceNotFoundError", "NoSuchKey", "NoSuchBucket", "NoSuchUpload"}
# Under these names file systems tell when an object was written.
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
# Under these, how they identify its content.
_TAGS = ("ETag", "etag", "generation")
_PATTERN = re.compile(r"[*?\[]")
_PARALLEL = 32  # requests at a time, of one call


class FsspecStore(Store):
    """Objects of an fsspec file system under one path.

    Args:
        fs: the file system. It should be made with ``use_listings_cache=False``: a cached listing hides commits.
        root: the path of this store within it, as the file system writes its paths.
        uri: where this is, without credentials.
        capabilities: what this file system promises. Nothing by default, so that ``put_if_absent`` is refused: fsspec
            has a ``mode="create"`` for all of them, and for some it is a check followed by a write.
        create_options: more arguments for ``pipe_file(mode="create")``, such as S3's ``chunksize``, without which large
            objects become multi-part uploads.

    Raises:
        InvalidOptionError: ``fs`` is the local file system, whose exclusive create has two winners at times.
    """

    def __init__(
        self,
        fs: Any,
        root: str,
        uri: str,
        capabilities: Capabilities = NO_PROMISES,
        create_options: Mapping[str, Any] | None = None,
    ) -> None:
        _refuse_local(fs)
        self._fs = fs
        self._root = root.rstrip("/")
        self._uri = uri.rstrip("/")
        self._capabilities = capabilities
        self._create_options = dict(create_options or {})
        self._secrets = secrets_of(getattr(fs, "storage_options", {}))

    def __repr__(self) -> str:
        return f"FsspecStore({self._uri!r})"

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    # -- writing

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        path = self._path(key)
        if not self._capabilities.put_if_absent:
            raise StorageError(
                f"{self.uri} is not known to create an object for one writer only; nothing can be committed there"
            )
        try:
            self._fs.pipe_file(path, bytes(data), mode="create", **self._create_options)
        except FileExistsError:
            # It may be ours: clients resend on their own, and then tell of what their first request did.
            return Exists()
        except Exception as error:  # noqa: BLE001 - client libraries raise anything, and none of it says that nothing was written
            return Unknown(self._failure("create", key, error))
        return Committed()

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._errors("write", key):
            self._fs.pipe_file(path, bytes(data))

    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        path = self._path(key)

        def send(file: BinaryIO) -> None:
            with self._errors("write", key):
                name = f"/dev/fd/{file.fileno()}"
                if Path(name).exists():
                    self._fs.put_file(name, path)
                else:
                    self._fs.pipe_file(path, file.read())

        stream = collecting(lambda error: self._failure("collect", key, error), send)
        return cast("AbstractContextManager[BinaryIO]", stream)

    def delete(self, keys: Iterable[str]) -> None:
        paths = {self._path(key): key for key in keys}
        # `rm` takes its paths for patterns, and would delete what matches them.
        bulk = [path for path in paths if not _PATTERN.search(path)] if len(paths) > 1 else []
        if bulk:
            try:
                self._fs.rm(bulk)
            except Exception:  # noqa: BLE001 - one missing object fails the whole list in some: what is left goes one by one
                bulk = []
        done = set(bulk)
        for path, key in paths.items():
            if path not in done:
                self._delete_one(path, key)

    def _delete_one(self, path: str, key: str) -> None:
        try:
            self._fs.rm_file(path)
        except Exception as error:  # noqa: BLE001 - client libraries raise anything
            if not _is_missing(error):
                raise self._failure("delete", key, error) from None

    # -- reading

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with self._errors("read", key):
            return bytes(self._fs.cat_file(path))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        path = self._path(key)
        with self._errors("read", key):
            if length:
                try:
                    # By name: the second argument of s3fs is a version.
                    return bytes(self._fs.cat_file(path, start=start, end=start + length))
                except Exception:
                    # Object stores call a range beyond the end an error, and others raise it as they like.
                    if start < self.head(key).size:
                        raise
            else:
                self.head(key)
        return b""

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        keys = [*keys]
        if not getattr(self._fs, "async_impl", False):
            return [self.get(key) for key in keys]
        paths = [self._path(key) for key in keys]
        with self._errors("read", ", ".join(keys[:3])):
            # Not `cat`, which takes paths for patterns.
            answers = self._fs.cat_ranges(paths, None, None, on_error="return", batch_size=_PARALLEL)
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, BaseException):
                raise self._missing_or_failure("read", key, answer) from None
        return [bytes(answer) for answer in answers]

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        ranges, path = check_ranges(key, ranges), self._path(key)
        if not getattr(self._fs, "async_impl", False) or len(ranges) < 2:
            return super().get_ranges(key, ranges)
        starts, ends = [start for start, _ in ranges], [start + length for start, length in ranges]
        with self._errors("read", key):
            answers = self._fs.cat_ranges([path] * len(ranges), starts, ends, on_error="return", batch_size=_PARALLEL)
        # Ranges that failed together are read again one by one, which handles the ends of objects.
        return [
            bytes(answer) if length and not isinstance(answer, BaseException) else self.get_range(key, start, length)
            for (start, length), answer in zip(ranges, answers, strict=True)
        ]

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        check_key(key)
        whole = self.head(key).size if size is None else size
        return cast("BinaryIO", RangedInput(lambda start, length: self.get_range(key, start, length), whole))

    def head(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with self._errors("read", key):
            return self._info(key, self._regular(path, self._fs.info(path)))

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._listing(prefix, order_key(after))

    def _listing(self, prefix: str, after: bytes) -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        base = f"{self._root}/{folder}" if folder else self._root
        with self._errors("list", prefix):
            try:
                found = self._find(base)
            except Exception as error:
                if not _is_missing(error):
                    raise
                return
        start = len(self._root) + 1
        keys = {path[start:]: path for path in found if path.startswith(f"{self._root}/")}
        order = sorted((key.encode(), key) for key in keys if key.startswith(prefix) and _legal(key))
        for encoded, key in order:
            info = found[keys[key]]
            if encoded > after and info.get("type", "file") == "file":
                with self._errors("list", key):
                    shown = self._info(key, info)
                yield shown

    def _find(self, base: str) -> Mapping[str, Any]:
        """All objects below a folder. fsspec's own walk takes a folder that cannot be listed for an empty one."""
        from fsspec import AbstractFileSystem
        from fsspec.asyn import AsyncFileSystem

        if isinstance(self._fs, AsyncFileSystem):  # its `find` is made for each object of `_find`
            own = getattr(type(self._fs), "_find") is not getattr(AsyncFileSystem, "_find")  # noqa: B009
        else:
            own = getattr(self._fs.find, "__func__", None) is not AbstractFileSystem.find
        if own:
            return cast("Mapping[str, Any]", self._fs.find(base, detail=True))
        found: dict[str, Any] = {}
        folders, seen = [base], {base}
        while folders:
            folder = folders.pop()
            try:
                entries = self._fs.ls(folder, detail=True)
            except Exception as error:
                if not _is_missing(error):
                    raise
                continue  # it was removed in the meantime
            for entry in entries:
                name = entry["name"].rstrip("/")
                if entry.get("type") != "directory":
                    found[entry["name"]] = entry
                elif name not in seen:
                    seen.add(name)
                    folders.append(name)
        return found

    def _regular(self, path: str, info: Mapping[str, Any]) -> Mapping[str, Any]:
        if info.get("type", "file") != "file":
            raise FileNotFoundError(path)
        return info

    def _info(self, key: str, info: Mapping[str, Any]) -> ObjectInfo:
        moment = next((info[name] for name in _TIMES if info.get(name) is not None), None)
        if moment is None:
            try:
                moment = self._fs.modified(self._path(key))
            except NotImplementedError:
                raise StorageError(
                    f"{self.uri} does not tell when its objects were written, as web servers do not in their listings: "
                    "a table cannot be read there; open it by the protocol of its store, such as s3://, or copy it"
                ) from None
        tag = next((str(info[name]).strip('"') for name in _TAGS if info.get(name) is not None), None)
        return ObjectInfo(key, int(info["size"] or 0), _milliseconds(moment), tag)

    # -- errors

    @contextmanager
    def _errors(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - client libraries raise anything
            # The cause is not chained: its message, printed with ours, may carry a signed URL.
            raise self._missing_or_failure(action, key, error) from None

    def _missing_or_failure(self, action: str, key: str, error: BaseException) -> StorageError:
        if action == "read" and _is_missing(error):
            return not_found(key, self.uri)
        return self._failure(action, key, error)

    def _failure(self, action: str, key: str, error: BaseException) -> StorageError:
        return failure(action, key, self.uri, error, self._secrets)


def _refuse_local(fs: Any) -> None:
    inner = fs
    while inner is not None:
        protocols = getattr(inner, "protocol", ())
        if "file" in ((protocols,) if isinstance(protocols, str) else tuple(protocols)):
            raise InvalidOptionError(
                "fsspec's local file system creates files with two winners at times; use LocalStore"
            )
        inner = getattr(inner, "fs", None)


def _is_missing(error: BaseException) -> bool:
    missing = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
    return missing or bool(_MISSING & class_names(error))


def _legal(key: str) -> bool:
    try:
        check_key(key)
    except StorageError:
        return False
    return True


def _milliseconds(moment: Any) -> int:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        # Without a zone it is UTC, in every file system that we have met.
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return round(float(moment) * 1000)
