"""A store in a folder of this machine, whose files other programs read and write too."""
# Plain calls of `os`, one or two an operation: building pathlib's objects would cost as much as the calls themselves.
# ruff: noqa: PTH100, PTH108, PTH112, PTH116, PTH123

from __future__ import annotations

import builtins
import contextlib
import copy
import dataclasses
import functools
import io
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from refdelta_storage.base import (
    Capabilities,
    ObjectInfo,
    PutOutcome,
    Store,
    check_key,
    check_prefix,
    check_ranges,
    committed_or_raise,
    order_key,
)
from refdelta_storage.disk import ABSENT, TEMPORARY, OutputFile, drop_checksum, hidden, sync, sync_folder, wanted
from refdelta_storage.errors import InvalidKeyError, ObjectNotFoundError, StorageError, failure, not_found
from refdelta_storage.naming import Naming, NewFile, file_info, taken

_BUFFER = 1 << 20
# The most files that are synced at once: then the file system writes its journal for several of them together.
_SYNCS = 8
# No link is followed, and no pipe is waited for.
_READ_PLAIN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK if hasattr(os, "O_NOFOLLOW") else None

_KINDS = (stat.S_IFREG, stat.S_IFDIR)


class LocalStore(Store):
    """A folder. Objects are its files at any depth.

    Args:
        root: the folder; a relative path counts from the current one, once and for all.
        fsync: whether a write is on the disk (file and folder) before it is acknowledged.
        create: whether to create the folder now. Otherwise the first write does it.

    Raises:
        StorageError: ``root`` is something else than a folder, or cannot be created.

    A folder in which an object was seen and that was removed since is not made again by :meth:`put_if_absent`.

    Not objects, and never listed: temporary files of writes in flight (see :meth:`leftovers`); ``.NAME.crc``, the
    checksums that Hadoop's local file system keeps beside its files (they go with the file when it is deleted or
    replaced: a stale one makes Hadoop refuse the new content); names that are not UTF-8; symbolic links that lead out
    of the folder, and such to folders; pipes, sockets and devices. A key that passes through a symbolic link out of the
    folder, or that names a pipe, which would keep its reader waiting for ever, is refused.
    """

    def __init__(self, root: str | os.PathLike[str], *, fsync: bool = True, create: bool = False) -> None:
        self._root = os.path.abspath(os.fspath(root)).rstrip("/")
        self._uri = Path(self._root or "/").as_uri()
        self._names = Naming(self._root, self._uri, fsync, seen=_is_folder(self._root or "/"))
        if create:
            with self._errors("create", "."):
                self._names.make_folder(self._root)

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def capabilities(self) -> Capabilities:
        return _capabilities(self._names.exclusive, self._names.fsync)

    def hasty(self) -> Store:
        if not self._names.fsync:
            return self
        view = copy.copy(self)
        view._names = dataclasses.replace(self._names, fsync=False)  # noqa: SLF001 - of this class
        return view

    # -- writing

    def sync(self, keys: Iterable[str]) -> None:
        if not self._names.fsync:
            return
        paths = {self._path(key): key for key in keys}
        folders = {f"{self._root}/{above}".rstrip("/"): above for key in paths.values() for above in _above(key)}
        # Other threads may sync, too: a folder is forgotten when it is on the disk, not before.
        made_in = tuple(self._names.unsynced)
        folders.update(dict.fromkeys(made_in, "."))

        def sync_one(path: str) -> None:
            with self._errors("write", paths[path]):
                sync(path, os.O_RDONLY)

        def sync_names(folder: str) -> None:
            with self._errors("write", folders[folder]):
                sync_folder(folder)

        # First the files, then their names.
        _for_each(sync_one, paths)
        _for_each(sync_names, folders)
        self._names.unsynced.difference_update(made_in)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        path, found = self._look(key)
        with self._errors("create", key):
            outcome = self._names.create(path, data) if found is None else taken(path)
        self._names.known.add(path.rpartition("/")[0])
        return outcome

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._errors("write", key):
            self._names.replace(path, data)

    @contextmanager
    def open_output(self, key: str) -> Iterator[BinaryIO]:
        path = self._path(key)
        with self._errors("write", key):
            file = self._names.begin(path)
        with self._writing(key, file) as stream:
            yield stream
            with self._errors("write", key):
                stream.close()
                self._names.finish(file)

    @contextmanager
    def _writing(self, key: str, file: NewFile) -> Iterator[BinaryIO]:
        """A stream into a new file, which is discarded at the end unless it got a name."""
        try:
            raw = OutputFile(file.descriptor, lambda error: failure("write", key, self.uri, error))
            stream = io.BufferedWriter(raw, _BUFFER)
            try:
                yield stream
            finally:
                with contextlib.suppress(OSError):
                    stream.close()
        finally:
            file.discard()

    @contextmanager
    def create_output(self, key: str) -> Iterator[BinaryIO]:
        path = self._path(key)
        with self._errors("create", key):
            file = self._names.begin(path)
        with self._writing(key, file) as stream:
            yield stream
            with self._errors("create", key):
                stream.close()
                outcome = self._names.claim(file)
        committed_or_raise(key, self.uri, outcome)

    @contextmanager
    def pinned(self, folder: str) -> Iterator[Store]:
        from refdelta_storage.pinned import PINS, pin

        path = self._path(folder)
        if not PINS:
            with self._errors("read", folder):
                os.stat(path)
            yield self
            return
        with pin(self, folder, path, self._path, fsync=self._names.fsync) as view:
            yield view

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        for info in infos:
            found = self._head_or_none(info.key)
            if found is not None and info.is_same(found):
                self.delete([info.key])

    def delete(self, keys: Iterable[str]) -> None:
        first: StorageError | None = None
        for key in keys:
            path = self._path(key, temporary=True)
            try:
                with self._errors("delete", key):
                    self._unlink_object(path)
                    drop_checksum(path)
            except StorageError as error:
                first = first or error
        if first is not None:
            raise first

    def _unlink_object(self, path: str) -> None:
        try:
            os.unlink(path)
        except ABSENT:
            return
        except PermissionError:
            # This is how macOS refuses to unlink a folder, which is no object.
            if not os.path.isdir(path):
                raise

    # -- reading

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with self._errors("read", key), open(path, "rb", buffering=0) as stream:
            return stream.readall()

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        found: builtins.list[bytes] = []
        known: str | None = None
        for key in keys:
            folder, _, name = key.rpartition("/")
            # Of files of one folder, the way to it was looked at with the first. Unusual names, and all errors, are for
            # the usual way.
            data = self._read_plain(key) if folder == known and name.isascii() and name[:1].isalnum() else None
            found.append(self.get(key) if data is None else data)
            known = folder
        return found

    def _read_plain(self, key: str) -> bytes | None:
        """A file that is no link, in a folder that was looked at; None where it is something else."""
        if _READ_PLAIN is None:
            return None
        try:
            descriptor = os.open(f"{self._root}/{key}", _READ_PLAIN)
        except (OSError, ValueError):
            return None
        try:
            # Seeking fails for a pipe, reading for a folder; a device has size 0.
            size = os.lseek(descriptor, 0, os.SEEK_END)
            data = os.pread(descriptor, size + 1, 0)
            return data if 0 < len(data) == size else None
        except (OSError, MemoryError, OverflowError):
            return None
        finally:
            os.close(descriptor)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[bytes]:
        ranges, path, found = check_ranges(key, ranges), self._path(key), []
        with self._errors("read", key), open(path, "rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            for start, length in ranges:
                # The size bounds the buffer: a broken file may ask for any length.
                found.append(_read(stream, start, min(length, size - start)))
        return found

    def open_input(self, key: str, size: int | None = None) -> BinaryIO:  # noqa: ARG002 - opening tells
        path = self._path(key)
        with self._errors("read", key):
            return open(path, "rb")

    def head(self, key: str) -> ObjectInfo:
        path, status = self._look(key)
        if status is None:  # nothing there, or the system says why not
            with self._errors("read", key):
                status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise not_found(key, self.uri)
        self._names.known.add(path.rpartition("/")[0])
        return file_info(key, status)

    def local_path(self, key: str) -> str | None:
        return self._path(key)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[ObjectInfo]:
        folder = check_prefix(prefix).rpartition("/")[0]
        _check_links(self._root, folder)
        return self._walk(folder, prefix.encode(), order_key(after))

    def list_keys(self, prefix: str = "", after: str | None = None) -> builtins.list[str]:
        folder = check_prefix(prefix).rpartition("/")[0]
        _check_links(self._root, folder)
        with self._errors("list", folder):
            shown = [wanted(folder, entry, prefix.encode(), order_key(after)) for entry in self._entries(folder)]
        found = [one for one in shown if one is not None]
        if all(entry.is_file(follow_symlinks=False) for _, _, entry in found):
            return [key.decode() for key in sorted(key for key, _, _ in found)]
        return super().list_keys(prefix, after)

    def _walk(self, folder: str, prefix: bytes, after: bytes) -> Iterator[ObjectInfo]:
        """One folder and those in it.

        A folder sorts as its name and "/", since that is how its keys begin: "a-b" < "a/b" < "a0".
        """
        with self._errors("list", folder):
            shown = [found for entry in self._entries(folder) if (found := wanted(folder, entry, prefix, after))]
        shown.sort(key=itemgetter(0))
        for encoded, is_folder, entry in shown:
            if is_folder:
                yield from self._walk(encoded[:-1].decode(), prefix, after)
            else:
                info = self._entry_info(encoded.decode(), entry)
                if info is not None:
                    yield info

    def _entry_info(self, key: str, entry: os.DirEntry[str]) -> ObjectInfo | None:
        """Size and time of a listed file; None for one that is gone by now, or that is no object."""
        try:
            if entry.is_symlink() and not _inside(self._root, entry.path):
                return None
            status = entry.stat()
        except FileNotFoundError:
            return None
        except OSError:
            with self._errors("list", key):
                raise
        return file_info(key, status) if stat.S_ISREG(status.st_mode) else None

    def leftovers(self) -> Iterator[ObjectInfo]:
        folders = [""]
        while folders:
            folder = folders.pop()
            with self._errors("list", folder):
                for entry in self._entries(folder):
                    key = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(key)
                    elif entry.name.startswith(TEMPORARY):
                        # It may be finished meanwhile, or lie in a folder of others whose name is not UTF-8.
                        with contextlib.suppress(FileNotFoundError, InvalidKeyError):
                            status = entry.stat(follow_symlinks=False)
                            if stat.S_ISREG(status.st_mode):
                                yield file_info(check_key(key), status)

    def _entries(self, folder: str) -> builtins.list[os.DirEntry[str]]:
        """The entries of a folder; none if it does not exist."""
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                return [*entries]
        except (FileNotFoundError, NotADirectoryError):
            return []

    # -- names and errors

    def _path(self, key: str, *, temporary: bool = False) -> str:
        return self._look(key, temporary=temporary)[0]

    def _look(self, key: str, *, temporary: bool = False) -> tuple[str, os.stat_result | None]:
        """The path of a key, and what is there, if anything."""
        check_key(key)
        name = key.rpartition("/")[2]
        if name[0] == "." and hidden(name) and not (temporary and name.startswith(TEMPORARY)):
            raise InvalidKeyError(f"this name is reserved for files that belong to others: {key!r}")
        found = _check_links(self._root, key)
        return f"{self._root}/{key}", found

    def _errors(self, action: str, key: str) -> _Errors:
        return _Errors(action, key, self.uri)


class _Errors:
    """A block in which errors of the system become a ``StorageError``. A generator would cost a commit as much as a
    call of the system.
    """

    __slots__ = ("action", "key", "uri")

    def __init__(self, action: str, key: str, uri: str) -> None:
        self.action, self.key, self.uri = action, key, uri

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        # A lack of memory is that of a file which is larger.
        if isinstance(error, StorageError) or not isinstance(error, (OSError, MemoryError)):
            return
        if self.action == "read" and isinstance(error, ABSENT):
            raise not_found(self.key, self.uri) from error
        raise failure(self.action, self.key, self.uri, error) from error


@functools.cache
def _capabilities(put_if_absent: bool, durable: bool) -> Capabilities:
    return Capabilities(put_if_absent=put_if_absent, list_after=False, durable=durable, remote=False)


def _for_each(function: Callable[[str], None], items: Iterable[str]) -> None:
    """Call a function for each item, on several threads. The first error is raised; after it no item is begun."""
    waiting, errors = deque(items), list[BaseException]()

    def work() -> None:
        while waiting and not errors:
            try:
                item = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                function(item)
            except BaseException as error:  # noqa: BLE001 - it is raised on the caller's thread
                errors.append(error)

    threads = [threading.Thread(target=work, name="refdelta-sync") for _ in range(min(_SYNCS, len(waiting)) - 1)]
    begun = []
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: this one does all of it
            break
        begun.append(thread)
    work()
    for thread in begun:
        thread.join()
    if errors:
        raise errors[0]


def _above(key: str) -> Iterator[str]:
    """The keys of the folders above a file; the root is ""."""
    while key:
        key = key.rpartition("/")[0]
        yield key


def _is_folder(path: str) -> bool:
    """Whether it is there. One look: another writer may create it meanwhile. Raises StorageError: it is no folder."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # what is wrong with it, the first use says
        return False
    if not stat.S_ISDIR(status.st_mode):
        raise StorageError(f"not a folder: {path}")
    return True


def _read(stream: io.FileIO, start: int, length: int) -> bytes:
    """``length`` bytes from ``start``; one read of the system gives at most 2 GiB."""
    if length <= 0:
        return b""
    stream.seek(start)
    data = stream.read(length)
    while len(data) < length and (more := stream.read(length - len(data))):
        data += more
    return data


# --- symbolic links ---


def _check_links(root: str, key: str) -> os.stat_result | None:
    """Refuse a key that passes through a symbolic link out of the folder, or names what is neither file nor folder.

    One ``lstat`` a segment, more for a link.

    Args:
        root: the folder.
        key: a legal key, or "" for the folder itself.

    Returns:
        The status of the file or folder, links followed; None if there is none, or none that is accessible.

    Raises:
        InvalidKeyError: it leaves the folder.
        ObjectNotFoundError: it is a pipe, a socket or a device.
    """
    path, status = root, None
    for part in key.split("/") if key else ():
        path = f"{path}/{part}"
        try:
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFLNK:
                if not _inside(root, path):
                    raise InvalidKeyError(f"{key!r} leaves {_root_uri(root)} through a symbolic link")
                status = os.stat(path)
                kind = stat.S_IFMT(status.st_mode)
        except StorageError:
            raise
        except OSError:
            return None  # nothing there, or nothing to see: the operation itself says what is wrong
        if kind not in _KINDS:
            raise ObjectNotFoundError(f"{key!r} is no file in {_root_uri(root)}, but a pipe, a socket or a device")
    return status


def _inside(root: str, path: str) -> bool:
    """Whether a path, once its links are followed, is within the folder."""
    return os.path.realpath(path).startswith(os.path.realpath(root or "/").rstrip("/") + "/")


def _root_uri(root: str) -> str:
    return Path(root or "/").as_uri()
