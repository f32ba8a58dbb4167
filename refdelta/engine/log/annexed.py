"""A table's folder together with others that its log may name objects of, because the caller said so.

The log of a shallow clone (and of nothing else) names data files where they are: in the folder of the table that was
cloned. A log is not believed when it does, see :mod:`refdelta.core.log.paths`; only folders that the caller of this
engine names are read, and nothing is ever written to them or deleted there.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from refdelta.core.log.paths import ELSEWHERE, Place
from refdelta_storage.wrapper import WrapperStore

if TYPE_CHECKING:
    from refdelta_storage.base import ObjectInfo, Store


class AnnexedStore(WrapperStore):
    """The table's store; keys that :func:`refdelta.core.log.paths.data_key` makes of absolute paths go to others.

    Args:
        inner: the table's folder.
        annexes: the others, which are only read.
    """

    def __init__(self, inner: Store, annexes: Sequence[Store]) -> None:
        super().__init__(inner)
        self.annexes = tuple(annexes)

    @property
    def uri(self) -> str:
        return Place(self.inner.uri, [annex.uri for annex in self.annexes])

    def get(self, key: str) -> bytes:
        store, inside = self._whose(key)
        return store.get(inside)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        store, inside = self._whose(key)
        return store.get_range(inside, start, length)

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        store, inside = self._whose(key)
        return store.get_ranges(inside, ranges)

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        wanted = list(keys)
        if any(key.startswith(ELSEWHERE) for key in wanted):
            return [self.get(key) for key in wanted]
        return self.inner.get_many(wanted)

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        store, inside = self._whose(key)
        return store.open_input(inside, size)

    def head(self, key: str) -> ObjectInfo:
        store, inside = self._whose(key)
        return store.head(inside)

    def local_path(self, key: str) -> str | None:
        store, inside = self._whose(key)
        return store.local_path(inside)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(self._own(keys))

    @staticmethod
    def _own(keys: Iterable[str]) -> Iterator[str]:
        return (key for key in keys if not key.startswith(ELSEWHERE))

    def _whose(self, key: str) -> tuple[Store, str]:
        if not key.startswith(ELSEWHERE):
            return self.inner, key
        number, _, inside = key[len(ELSEWHERE) :].partition("/")
        return self.annexes[int(number)], inside


def uri_of(store: Store, key: str) -> str:
    """What a key names, as a URI."""
    if key.startswith(ELSEWHERE) and isinstance(store, AnnexedStore):
        store, key = store._whose(key)  # noqa: SLF001 - of this module
    return f"{store.uri}/{key}"
