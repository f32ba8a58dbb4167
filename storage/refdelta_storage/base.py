"""The contract of a store: what a table format needs of a file system or an object store, and no more.

Keys are relative, ``/``-separated, without ``.`` or ``..`` segments and without a leading slash; they are the object's
real name, never percent-encoded. A store knows nothing of tables. :mod:`refdelta_storage.testing` is the contract as a
test class; a store that passes it is a store.
"""

from __future__ import annotations

import abc
import builtins
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from refdelta_storage.errors import InvalidKeyError, ObjectExistsError, ObjectNotFoundError, StorageError


@dataclass(frozen=True, slots=True)
class Committed:
    """The object did not exist, and now holds our bytes."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The store says that an object was there. It may be our own, of an attempt whose reply was lost."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome is unknown: the request was carried out, may be carried out later, or never arrived.

    The caller reads the key back; if nothing is there, it may put **the same bytes at the same key** again.
    """

    cause: BaseException | None = None


PutOutcome = Committed | Exists | Unknown


Tag = str | int | tuple[int, ...]
"""The identity of an object among all that ever had its key: see :class:`ObjectInfo`."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object, by a listing or by :meth:`Store.head`.

    Attributes:
        key: its key.
        size: its size in bytes.
        mtime_ms: its modification time in milliseconds since 1970 (UTC).
        tag: identifies the object: an object of other content that has, or had, the same key has another tag. The etag
            of a service, which may be the same for the same content; of a file its inode and its time in nanoseconds.
            None where the store has none.
    """

    key: str
    size: int
    mtime_ms: int
    tag: Tag | None = None

    def is_same(self, found: ObjectInfo) -> bool:
        """Whether both are the same object: by their tags, or by size and time where one of them has none."""
        if self.tag is not None and found.tag is not None:
            return self.tag == found.tag
        return (self.size, self.mtime_ms) == (found.size, found.mtime_ms)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The guarantees of a store, declared and never guessed.

    Attributes:
        put_if_absent: whether ``put_if_absent`` has one winner, whatever races; without it nothing may be committed.
        list_after: whether a listing starts after a key; without it the store filters, and pays for the whole.
        durable: whether an acknowledged write survives a power cut.
        remote: whether a request costs a round trip over a network, so that callers read in parallel.
        lists: whether there are listings at all; a web server has none, and its objects are read by their names.
    """

    put_if_absent: bool
    list_after: bool
    durable: bool
    remote: bool
    lists: bool = True


class Store(abc.ABC):
    """A folder of objects. Every method may raise :class:`~refdelta_storage.errors.StorageError`.

    Stores are safe to use from many threads and can be pickled, so that worker processes can open the same place.
    """

    @property
    @abc.abstractmethod
    def uri(self) -> str:
        """The URI of this store, without credentials and without a trailing slash."""

    @property
    @abc.abstractmethod
    def capabilities(self) -> Capabilities:
        """The guarantees of this store."""

    @property
    def authority(self) -> Any:
        """The catalog, or another instance, that decides which objects this store shows; None for most stores. That of
        a wrapper is that of the store that it wraps. Stores do not use it.
        """
        return None

    @abc.abstractmethod
    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Create the object whole, if no object has the key. Readers see all of it or nothing.

        Trouble whose effect is not known is :class:`Unknown`, not an exception: an exception means that nothing was
        created.
        """

    @abc.abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write the object whole, replacing one that exists. Readers see the old or the new, never a part."""

    @abc.abstractmethod
    def open_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A stream for a new object, which appears whole when the block ends, and never if an exception ends it."""

    def create_output(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A stream as that of :meth:`open_output`, for an object that must not replace another one.

        Raises ``ObjectExistsError`` when the block ends, if an object has the key.
        """
        return _creating(self, key)

    @abc.abstractmethod
    def get(self, key: str) -> bytes:
        """The whole object. Raises ``ObjectNotFoundError``."""

    @abc.abstractmethod
    def get_range(self, key: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer only where the object ends. Raises ``ObjectNotFoundError``."""

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        """Several ranges of one object, each ``(start, length)``, as :meth:`get_range` gives them, in this order.

        Remote stores fetch them in parallel, a bounded number at a time. Without any range nothing need be asked of the
        store, not even whether the object exists.
        """
        return [self.get_range(key, start, length) for start, length in check_ranges(key, ranges)]

    @abc.abstractmethod
    def open_input(self, key: str, size: int | None = None) -> BinaryIO:
        """A seekable stream of the object.

        Args:
            key: its key.
            size: its size in bytes, where the caller knows it. Then a remote store makes no request here, and
                ``ObjectNotFoundError`` may come with the first read. Without it the error comes here.
        """

    @abc.abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Size and modification time. Raises ``ObjectNotFoundError``."""

    @abc.abstractmethod
    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        """All objects whose key starts with ``prefix`` and is greater than ``after``, in the byte order of UTF-8 keys.

        Objects of any depth, in one flat listing.
        A prefix under which nothing is gives an empty listing. Temporary files of writes in flight are never listed.
        """

    @abc.abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, many at a time where the store can. A key that has no object is no error.

        Takes the keys of :meth:`leftovers` too.
        """

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        """Delete objects that are still those of a listing, or of :meth:`head`. An object that has taken the key of
        another one since stays.

        A store without conditional deletes looks at the objects immediately before: one by one if they are few, else by
        a listing.
        """
        wanted = {info.key: info for info in infos}
        if not wanted:
            return
        found: Iterable[ObjectInfo]
        if len(wanted) <= _FEW:
            found = filter(None, map(self._head_or_none, wanted))
        else:
            first, last = min(wanted), max(wanted)
            same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
            found = self.list(first[:same])
        self._delete_found(one for one in found if one.key in wanted and wanted[one.key].is_same(one))

    def _delete_found(self, found: Iterable[ObjectInfo]) -> None:
        """Delete objects that were seen just now, under the condition that they are the same, where a store can."""
        self.delete([info.key for info in found])

    def _head_or_none(self, key: str) -> ObjectInfo | None:
        try:
            return self.head(key)
        except ObjectNotFoundError:
            return None

    def leftovers(self) -> Iterator[ObjectInfo]:
        """Temporary files of writes, in no order: those in flight, and those whose writer was killed.

        None is an object: :meth:`list` never shows one. Only its age tells whether somebody still writes to it, and
        :meth:`delete` removes it. A store that publishes by requests has none.
        """
        return iter(())

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        """Several whole objects, in the order of the keys; remote stores fetch in parallel.

        Raises ``ObjectNotFoundError`` if one is missing.
        """
        return [self.get(key) for key in keys]

    def list_keys(self, prefix: str = "", after: str | None = None) -> builtins.list[str]:
        """The keys of :meth:`list`. Faster than that on a disk, where it reads no status of files."""
        return [info.key for info in self.list(prefix, after)]

    def steady(self) -> Store:
        """This store, for reads of an object that belong together, such as a footer and then what it points to.

        Where each is a request, a read that meets another content than the first read of the object has met raises
        ``StorageError``, for the two together would be nothing that anybody wrote.
        """
        return self

    def hasty(self) -> Store:
        """This store, for files that may be missing or empty after a power cut: optional ones, and those that are given
        to :meth:`sync` before they are referred to.
        """
        return self

    def sync(self, keys: Iterable[str]) -> None:  # noqa: B027 - what most stores acknowledge is durable
        """Wait until objects that were written by :meth:`hasty` are as durable as other writes of this store.

        A disk makes many files durable in the time that a few take one by one, and each folder once.
        """

    @contextmanager
    def pinned(self, folder: str) -> Iterator[Store]:  # noqa: ARG002 - most stores have no folders
        """This store, for changes in a folder that must be the one that it is now.

        On a disk, the view writes and deletes files below ``folder`` in the folder that was there when the block began,
        whatever has its path by now: in one that was removed nothing can be written (``StorageError``), and none is
        made again. The view is for the block, and cannot be pickled. Other stores have no folders, and change nothing.

        Raises ``ObjectNotFoundError`` if the folder does not exist.
        """
        yield self

    def remove_empty(self, folder: str) -> None:  # noqa: B027 - most stores have no folders
        """Remove the folder of a :meth:`pinned` view, or one in it, if there is nothing in it. Other stores have no
        folders.
        """

    def local_path(self, key: str) -> str | None:  # noqa: ARG002 - most stores have none
        """A path that native code on this machine may open for reading instead of going through Python, or None."""
        return None


@contextmanager
def _creating(store: Store, key: str) -> Iterator[BinaryIO]:
    from refdelta_storage.streams import CollectingStream

    check_key(key)
    stream = CollectingStream()
    yield stream
    stream.close()
    committed_or_raise(key, store.uri, store.put_if_absent(key, stream.content))


_FEW = 4
"""So many objects are looked at one by one before they are deleted."""


def committed_or_raise(key: str, uri: str, outcome: PutOutcome) -> None:
    """Raise ``ObjectExistsError`` or ``StorageError`` unless a put has created the object."""
    if isinstance(outcome, Exists):
        raise ObjectExistsError(f"there is an object {key!r} in {uri} already")
    if isinstance(outcome, Unknown):
        raise StorageError(f"it is not known whether {key!r} was created in {uri}: {outcome.cause}")


def check_key(key: str) -> str:
    """Return ``key`` if it is legal, else raise ``InvalidKeyError``: the guard against keys that leave the store."""
    parts = key.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in key:
        raise InvalidKeyError(f"not a legal key: {key!r}")
    _encodable(key)
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if some legal key can start with it, else raise ``InvalidKeyError``. The empty one is legal."""
    folders = prefix.split("/")[:-1]
    if "\0" in prefix or any(part in ("", ".", "..") for part in folders):
        raise InvalidKeyError(f"not a legal prefix: {prefix!r}")
    _encodable(prefix)
    return prefix


def check_range(key: str, start: int, length: int) -> None:
    """Raise ``StorageError`` for a range that no object has: such numbers come from broken files, not from stores."""
    if start < 0 or length < 0:
        raise StorageError(f"not a legal range of {key!r}: {length} bytes from {start}")


def check_ranges(key: str, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges of :meth:`Store.get_ranges`, all checked before the first is read."""
    checked = [*ranges]
    for start, length in checked:
        check_range(key, start, length)
    return checked


def order_key(after: str | None) -> bytes:
    """``after`` in bytes, with which listings compare keys; it need not be a legal key."""
    return b"" if after is None else after.encode("utf-8", "surrogatepass")


def _encodable(text: str) -> None:
    # Listings are ordered by UTF-8, so a name that has no UTF-8 form has no place in them.
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidKeyError(f"not a legal key, it has no UTF-8 form: {text!r}") from None
