"""Multi-root store: the table's folder, and further folders from which data files may be read.

The log of a shallow clone names data files where they are: in the folder of the source table. A log is not trusted
with that (see :mod:`refdelta.core.log.paths`). Only folders that the caller of this engine names are read, and
nothing is ever written to them or deleted from them.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from refdelta.core.log.paths import ELSEWHERE, Place
from refdelta_storage.wrappers import WrapperStore

if TYPE_CHECKING:
    from refdelta_storage.base import ObjectInfo, Store


class MultiRootStore(WrapperStore):
    """The table's store. Keys of absolute paths, see :func:`refdelta.core.log.paths.data_key`, go to further roots.

    Args:
        inner: the store of the table's folder.
        roots: stores of the further folders, which are only read.
    """

    def __init__(self, inner: Store, roots: Sequence[Store]) -> None:
        super().__init__(inner)
        self.roots = tuple(roots)

    @property
    def uri(self) -> str:
        return Place(self.inner.uri, [root.uri for root in self.roots])

    def get(self, key: str) -> bytes:
        store, inside = self.resolve(key)
        return store.get(inside)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        store, inside = self.resolve(key)
        return store.get_range(inside, start, length)

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        store, inside = self.resolve(key)
        return store.get_ranges(inside, ranges)

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        wanted = list(keys)
        if any(key.startswith(ELSEWHERE) for key in wanted):
            return [self.get(key) for key in wanted]
        return self.inner.get_many(wanted)

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        store, inside = self.resolve(key)
        return store.open_input(inside, size)

    def head(self, key: str) -> ObjectInfo:
        store, inside = self.resolve(key)
        return store.head(inside)

    def local_path(self, key: str) -> str | None:
        store, inside = self.resolve(key)
        return store.local_path(inside)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(self._own(keys))

    @staticmethod
    def _own(keys: Iterable[str]) -> Iterator[str]:
        return (key for key in keys if not key.startswith(ELSEWHERE))

    def resolve(self, key: str) -> tuple[Store, str]:
        """The store that holds a key's object, and the key there."""
        if not key.startswith(ELSEWHERE):
            return self.inner, key
        number, _, inside = key[len(ELSEWHERE) :].partition("/")
        return self.roots[int(number)], inside


def uri_of(store: Store, key: str) -> str:
    """The URI of a key's object."""
    if isinstance(store, MultiRootStore):
        store, key = store.resolve(key)
    return f"{store.uri}/{key}"
