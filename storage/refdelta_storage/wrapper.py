"""The base of stores that wrap another store: passes all calls on."""

from __future__ import annotations

import builtins
import copy
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from refdelta_storage.base import Capabilities, ObjectInfo, PutOutcome, Store


class WrapperStore(Store):
    """Passes everything on to ``inner``. A wrapper of one's own overrides what it changes."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self.inner.put(key, data)

    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        return self.inner.open_output(key)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.inner.get_range(key, start, length)

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        return self.inner.get_ranges(key, ranges)

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        return self.inner.open_input(key, size)

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def leftovers(self) -> Iterator[ObjectInfo]:
        return self.inner.leftovers()

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        return self.inner.get_many(keys)

    def steady(self) -> Store:
        return self._around(self.inner.steady())

    def hasty(self) -> Store:
        return self._around(self.inner.hasty())

    def _around(self, inner: Store) -> Store:
        if inner is self.inner:
            return self
        view = copy.copy(self)
        view.inner = inner
        return view

    def local_path(self, key: str) -> str | None:
        return self.inner.local_path(key)
