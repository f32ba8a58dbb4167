"""A store in memory: the model that other stores are compared with, and a place for tests and scratch tables."""

from __future__ import annotations

import bisect
import builtins
import io
import os
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from refdelta_storage.base import (
    Capabilities,
    Committed,
    Exists,
    ObjectInfo,
    PutOutcome,
    Store,
    check_key,
    check_prefix,
    check_range,
    check_ranges,
    order_key,
)
from refdelta_storage.errors import StorageError, not_found
from refdelta_storage.streams import CollectingStream


class _Space:
    """The objects of one store: a dictionary, and its keys in byte order for listings."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # garbage that is collected meanwhile may remove its files
        # Content, time, and the number of the write.
        self.objects: dict[bytes, tuple[bytes, int, int]] = {}
        self.writes = 0
        self.order: list[bytes] = []

    def set(self, key: bytes, data: bytes) -> None:
        """Write an object; the caller holds the lock."""
        if key not in self.objects:
            bisect.insort(self.order, key)
        self.writes += 1
        self.objects[key] = (data, time.time_ns() // 1_000_000, self.writes)

    def remove(self, key: bytes) -> None:
        """Remove an object if it is there; the caller holds the lock."""
        if self.objects.pop(key, None) is not None:
            del self.order[bisect.bisect_left(self.order, key)]


class _Process:
    """The identity of this process. A forked child has its own copy of the objects, so it gets a new token."""

    token = uuid.uuid4().hex


def _new_token() -> None:
    _Process.token = uuid.uuid4().hex


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_token)

_named: dict[str, _Space] = {}
_anonymous: weakref.WeakValueDictionary[str, _Space] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


class MemoryStore(Store):
    """Objects in a dictionary that a lock protects.

    Args:
        name: stores of one name share their objects within the process, for as long as it lives; ``None`` gives a
            store of its own, whose objects go with it.

    A pickled store finds its objects again in the same process. In another one, a forked child included, every method
    raises ``StorageError``: an empty store under the same name would be a lie.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._id = name if name is not None else uuid.uuid4().hex
        self._token = _Process.token
        with _registry_lock:
            self._space = _named.setdefault(self._id, _Space()) if name is not None else _Space()
            if name is None:
                _anonymous[self._id] = self._space

    def __getstate__(self) -> tuple[str | None, str, str]:
        return self._name, self._id, self._token

    def __setstate__(self, state: tuple[str | None, str, str]) -> None:
        self._name, self._id, self._token = state
        spaces = _named if self._name is not None else _anonymous
        # A missing space is replaced by an empty one, which `_open` then refuses.
        found = spaces.get(self._id) if self._token == _Process.token else None
        if found is None:
            self._token = ""
        self._space = found or _Space()

    def __repr__(self) -> str:
        return f"MemoryStore({self._name!r})"

    @property
    def uri(self) -> str:
        return f"memory://{self._id}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(put_if_absent=True, list_after=True, durable=False, remote=False)

    def _open(self) -> _Space:
        if self._token != _Process.token:
            raise StorageError(f"{self.uri} lives in the memory of another process")
        return self._space

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        encoded, space = check_key(key).encode(), self._open()
        with space.lock:
            if encoded in space.objects:
                return Exists()
            space.set(encoded, bytes(data))
            return Committed()

    def put(self, key: str, data: bytes) -> None:
        encoded, space = check_key(key).encode(), self._open()
        with space.lock:
            space.set(encoded, bytes(data))

    @contextmanager
    def open_output(self, key: str) -> Iterator[BinaryIO]:
        check_key(key)
        self._open()
        stream = CollectingStream()
        yield stream
        stream.close()
        self.put(key, stream.content)

    def _find(self, key: str) -> tuple[bytes, int]:
        found = self._open().objects.get(check_key(key).encode())
        if found is None:
            raise not_found(key, self.uri)
        return found[:2]

    def get(self, key: str) -> bytes:
        return self._find(key)[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        return self._find(key)[0][start : start + length]

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        ranges, data = check_ranges(key, ranges), self._find(key)[0]
        return [data[start : start + length] for start, length in ranges]

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:  # noqa: ARG002 - it is here
        return io.BytesIO(self._find(key)[0])

    def head(self, key: str) -> ObjectInfo:
        self._find(key)
        encoded, space = key.encode(), self._open()
        with space.lock:
            if encoded not in space.objects:
                raise not_found(key, self.uri)
            data, mtime_ms, number = space.objects[encoded]
        return ObjectInfo(key, len(data), mtime_ms, number)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(self._listing(check_prefix(prefix).encode(), order_key(after)))

    def _listing(self, prefix: bytes, after: bytes) -> builtins.list[ObjectInfo]:
        space, found = self._open(), []
        with space.lock:
            start = max(bisect.bisect_left(space.order, prefix), bisect.bisect_right(space.order, after))
            for position in range(start, len(space.order)):
                key = space.order[position]
                if not key.startswith(prefix):
                    break
                data, mtime_ms, number = space.objects[key]
                found.append(ObjectInfo(key.decode(), len(data), mtime_ms, number))
        return found

    def delete(self, keys: Iterable[str]) -> None:
        encoded, space = [check_key(key).encode() for key in keys], self._open()
        with space.lock:
            for key in encoded:
                space.remove(key)

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        space = self._open()
        with space.lock:
            for info in infos:
                key = check_key(info.key).encode()
                data, mtime_ms, number = space.objects.get(key, (b"", 0, 0))
                if info.is_same(ObjectInfo(info.key, len(data), mtime_ms, number)):
                    space.remove(key)
