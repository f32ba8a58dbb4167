"""The base of the stores of S3, Azure and GCS: keys, outcomes, requests in parallel, bounded retries."""

from __future__ import annotations

import asyncio
import builtins
import copy
import itertools
import os
import random
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO, ClassVar, TypeVar, cast

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
    committed_or_raise,
    order_key,
)
from refdelta_storage.clients import PARALLEL, PATIENCE, Client, Patience, together
from refdelta_storage.errors import ObjectNotFoundError, StorageError, failure, not_found
from refdelta_storage.streams import RangedInput, collecting

PART = 16 << 20
"""Uploads larger than two of these, in bytes, go in parts of this size, a few at a time."""

# Seconds before a request is sent again: so many the first time, twice as many each time, so many at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 3.0
# Statuses of a server that is busy or broken for a moment; 408 is a request that did not arrive in time.
_PASSING = {408, 429, 500, 502, 503, 504}
# A request that is not allowed, or is for a bucket or container that is not there. Nothing has been carried out.
_REFUSED = {401, 403, 404, 405}
# Our own findings, all kinds of OSError.
_CERTAIN = (StorageError, FileNotFoundError)
Seen = tuple[int, int, str | None]
"""Size in bytes, time in milliseconds since 1970, and etag of an object."""
_T = TypeVar("_T")
_R = TypeVar("_R")


class RemoteStore(Store):
    """Objects of a bucket or container under one path. Subclasses say how a service does each of a few things.

    Args:
        client: the way to the service.
        uri: where this is, without credentials.
        bucket: the bucket or container.
        root: the path within it.
        capabilities: what the service promises.
        patience: how long to wait for it.
    """

    bulk: ClassVar[int]
    """How many objects one request deletes at most."""
    page: ClassVar[int]
    """How many objects one request lists at most."""

    def __init__(
        self,
        client: Client,
        uri: str,
        bucket: str,
        root: str,
        capabilities: Capabilities,
        patience: Patience = PATIENCE,
    ) -> None:
        self._client = client
        self._uri = uri.rstrip("/")
        self._bucket = bucket
        self._prefix = f"{root.strip('/')}/" if root.strip("/") else ""
        self._capabilities = capabilities
        self._patience = patience
        self._editions: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._uri!r})"

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    # -- what a service does in its own way; names are those of objects in the bucket

    @property
    @abstractmethod
    def ordered(self) -> bool:
        """Whether the service lists in the byte order of UTF-8. Otherwise a listing is sorted before it begins."""

    @abstractmethod
    async def _create(self, name: str, data: bytes) -> None:
        """Create an object under the condition that there is none, by one request."""

    @abstractmethod
    async def _write(self, name: str, data: bytes) -> None:
        """Write an object by one request."""

    @abstractmethod
    async def _write_parts(self, name: str, parts: Sequence[Callable[[], bytes]]) -> None:
        """Write an object in parts, which appear as one whole at the end."""

    @abstractmethod
    async def _read(self, name: str, start: int | None, length: int) -> bytes:
        """Read ``length`` bytes, which are not none, or all of it if ``start`` is None; nothing beyond the end.

        Calls :meth:`_check_edition`.
        """

    @abstractmethod
    async def _look(self, name: str) -> Seen:
        """Size in bytes, time in milliseconds and etag of an object."""

    @abstractmethod
    async def _page(
        self, prefix: str, after: str | None, token: str | None
    ) -> tuple[builtins.list[tuple[str, Seen]], str | None]:
        """One page of a listing: names, what is seen of each, and what leads to the next page, None at the end.

        ``after`` is a wish: what comes back may begin before.
        """

    @abstractmethod
    async def _remove(self, names: builtins.list[str]) -> None:
        """Delete objects, ``bulk`` at most; one that is not there is no error."""

    @abstractmethod
    def _status(self, error: BaseException) -> int | None:
        """The status of the reply that an error tells of, None where none came."""

    @abstractmethod
    def _is_unsent(self, error: BaseException) -> bool:
        """Whether an error tells of a request that was never sent, such as for want of credentials."""

    @abstractmethod
    def _is_network(self, error: BaseException) -> bool:
        """Whether an error tells of a connection or a reply that broke."""

    def _is_absent(self, error: BaseException) -> bool:
        """Whether an error says that there is no such object, of a bucket that is there."""
        return self._status(error) == 404

    def _reason(self, error: BaseException) -> str:
        """The message of an error, in one line."""
        return " ".join(str(error).split()) or (
            "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        )

    # -- writing

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        name = self._name(key)
        try:
            self._client.run(self._create, name, bytes(data))
        except Exception as error:  # noqa: BLE001 - client libraries raise anything
            status = self._status(error)
            if status == 412 or (status == 409 and self._is_taken(error)):
                # It may be ours: client libraries resend on their own, and then hear of their first request.
                return Exists()
            failed = self._failure("create", key, error)
            if self._is_unsent(error):
                raise failed from None
            return self._refused(key, failed) if status in _REFUSED else Unknown(failed)
        return Committed()

    def _is_taken(self, error: BaseException) -> bool:  # noqa: ARG002 - what a 409 means differs
        """Whether a conflict says that the object is there."""
        return False

    def _refused(self, key: str, failed: StorageError) -> PutOutcome:
        """A refusal, so nothing was created; unless only a resent request was refused, which cannot be seen."""
        try:
            self.head(key)
        except StorageError:
            raise failed from None
        return Exists()

    def put(self, key: str, data: bytes) -> None:
        name = self._name(key)
        self._ask("write", key, lambda: self._write(name, bytes(data)))

    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        check_key(key)
        stream = collecting(lambda error: self._failure("collect", key, error), partial(self._send, key))
        return cast("AbstractContextManager[BinaryIO]", stream)

    def _send(self, key: str, file: BinaryIO) -> None:
        name, size = self._name(key), os.fstat(file.fileno()).st_size
        if size <= 2 * PART:
            data = file.read()
            self._ask("write", key, lambda: self._write(name, data))
            return
        parts = [partial(_part, file, start) for start in range(0, size, PART)]
        self._run("write", key, lambda: self._write_parts(name, parts))

    def create_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        check_key(key)

        def send(file: BinaryIO) -> None:
            outcome: PutOutcome = Committed()
            if os.fstat(file.fileno()).st_size <= 2 * PART:
                outcome = self._create_for_certain(key, file.read())
            elif self._head_or_none(key) is None:  # services differ in what a condition on an upload in parts means
                self._send(key, file)
            else:
                outcome = Exists()
            committed_or_raise(key, self.uri, outcome)

        stream = collecting(lambda error: self._failure("collect", key, error), send)
        return cast("AbstractContextManager[BinaryIO]", stream)

    def _create_for_certain(self, key: str, data: bytes) -> PutOutcome:
        """Put the same bytes again after an outcome that is not known; what then is there may be ours."""
        outcome = self.put_if_absent(key, data)
        until = time.monotonic() + self._patience.total
        for sent in range(self._patience.retries):
            if not isinstance(outcome, Unknown) or time.monotonic() >= until:
                break
            time.sleep(_pause(sent))
            outcome = self.put_if_absent(key, data)
            if isinstance(outcome, Exists) and self.get(key) == data:
                return Committed()
        return outcome

    def delete(self, keys: Iterable[str]) -> None:
        names = [*dict.fromkeys(self._name(key) for key in keys)]
        groups = [names[start : start + self.bulk] for start in range(0, len(names), self.bulk)]
        self._each("delete", lambda group: group[0].removeprefix(self._prefix), self._remove, groups)

    # -- reading

    def get(self, key: str) -> bytes:
        name = self._name(key)
        return self._ask("read", key, lambda: self._read(name, None, 0))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        ranges, name = check_ranges(key, ranges), self._name(key)
        wanted = [(start, length) for start, length in ranges if length]
        if ranges and not wanted:
            self.head(key)
        found = iter(self._each("read", lambda _: key, lambda part: self._read(name, *part), wanted))
        return [next(found) if length else b"" for _, length in ranges]

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        keys = [check_key(key) for key in keys]
        return self._each("read", lambda key: key, lambda key: self._read(self._name(key), None, 0), keys)

    def steady(self) -> Store:
        view = copy.copy(self)
        view._editions = {}  # noqa: SLF001 - of our own copy
        return view

    def _check_edition(self, name: str, tag: str) -> None:
        """Note what the service calls the content of an object, and hold further replies to it."""
        if self._editions is not None and self._editions.setdefault(name, tag) != tag:
            raise StorageError(f"{name.removeprefix(self._prefix)!r} in {self.uri} was replaced while it was read")

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        check_key(key)
        whole = self.head(key).size if size is None else size
        check_range(key, 0, whole)
        return cast("BinaryIO", RangedInput(lambda start, length: self.get_range(key, start, length), whole))

    def head(self, key: str) -> ObjectInfo:
        name = self._name(key)
        return ObjectInfo(key, *self._ask("read", key, lambda: self._look(name)))

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        pages = self._pages(prefix, after)
        if self.ordered:
            return itertools.chain.from_iterable(pages)
        return iter(sorted(itertools.chain.from_iterable(pages), key=lambda info: info.key.encode()))

    def _pages(self, prefix: str, after: str | None) -> Iterator[builtins.list[ObjectInfo]]:
        """The pages of a listing, each asked for when it is wanted."""
        least, token = order_key(after), cast("str | None", None)
        begin = None if after is None else self._prefix + after
        while True:
            try:
                entries, token = self._ask("list", prefix, partial(self._page, prefix, begin, token))
            except ObjectNotFoundError:
                return  # how accounts with folders say that there is no such one
            page = [
                ObjectInfo(key, *seen)
                for key, seen in ((name[len(self._prefix) :], seen) for name, seen in entries)
                if key.encode() > least and key.startswith(prefix) and _is_key(key)
            ]
            yield page
            if token is None:
                return

    # -- requests

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _ask(self, action: str, key: str, request: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Send a request that may be sent twice, until it gets a reply that stays."""
        return self._run(action, key, lambda: self._insist(request))

    def _run(self, action: str, key: str, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        try:
            return self._client.run(work)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - client libraries raise anything
            # The cause is not chained: its message, printed with ours, may carry a signed URL.
            raise self._missing_or_failure(action, key, error) from None

    async def _insist(self, request: Callable[[], Awaitable[_T]]) -> _T:
        until = time.monotonic() + self._patience.total
        sent = 0
        while True:
            try:
                return await request()
            except _CERTAIN:
                raise
            except Exception as error:
                passing = self._status(error) in _PASSING or self._is_network(error)
                if not passing or sent >= self._patience.retries or time.monotonic() >= until:
                    raise
            await asyncio.sleep(_pause(sent))
            sent += 1

    def _each(
        self,
        action: str,
        key_of: Callable[[_T], str],
        request: Callable[[_T], Awaitable[_R]],
        items: Sequence[_T],
    ) -> builtins.list[_R]:
        """Send a request for each item, some of them at a time; the first failure ends them all."""
        if not items:
            return []

        async def everything() -> builtins.list[_R]:
            gate = asyncio.Semaphore(PARALLEL)

            async def one(item: _T) -> _R:
                async with gate:
                    try:
                        return await self._insist(lambda: request(item))
                    except Exception as error:  # noqa: BLE001 - client libraries raise anything
                        raise self._missing_or_failure(action, key_of(item), error) from None

            return await together(one(item) for item in items)

        return self._run(action, key_of(items[0]), everything)

    def _missing_or_failure(self, action: str, key: str, error: BaseException) -> StorageError:
        if action in ("read", "list") and self._is_absent(error):
            return not_found(key, self.uri)
        return self._failure(action, key, error)

    def _failure(self, action: str, key: str, error: BaseException) -> StorageError:
        if isinstance(error, StorageError):
            return error
        return failure(action, key, self.uri, error, self._client.secrets, self._reason(error))


def _pause(sent: int) -> float:
    """Seconds before a request is sent again that was sent again so many times."""
    part: float = random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
    return min(FIRST_PAUSE * 2.0**sent, LONGEST_PAUSE) * part


def _part(file: BinaryIO, start: int) -> bytes:
    # All parts are read by the thread of the event loop, so they do not move the position under one another.
    file.seek(start)
    return file.read(PART)


def _is_key(key: str) -> bool:
    try:
        check_key(key)
    except StorageError:
        return False
    return True


def has_utf8(text: str) -> bool:
    """Whether a service can be asked for it; a start of a listing need not be a legal key."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def etag(text: str | None) -> str | None:
    """An etag without the quotation marks, which only some replies have."""
    return text.strip('"') if text else None


def milliseconds(moment: datetime) -> int:
    """A time, as services give it, in milliseconds since 1970."""
    return round(moment.timestamp() * 1000)
