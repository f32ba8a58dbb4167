"""A folder of a disk by its descriptor: what is written goes into it, whatever has its path by now."""
# As in `local`: plain calls of `os`.
# ruff: noqa: D102, PTH106, PTH116

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NoReturn

from refdelta_storage.base import Committed, Exists, ObjectInfo, PutOutcome, Store, Unknown, committed_or_raise
from refdelta_storage.disk import ABSENT, TEMPORARY, OutputFile, sync_folder
from refdelta_storage.errors import StorageError, failure, not_found
from refdelta_storage.naming import CERTAIN, LINKS_REFUSED, file_info, rename_noreplace
from refdelta_storage.wrappers import WrapperStore

PINS = (
    hasattr(os, "O_DIRECTORY")
    and {os.open, os.link, os.rename, os.unlink, os.mkdir, os.rmdir, os.stat} <= os.supports_dir_fd
)
"""Whether the system knows files by a folder's descriptor and a name."""

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_BUFFER = 1 << 20


@contextmanager
def pin(
    inner: Store, folder: str, path: str, check: Callable[..., str], *, fsync: bool, within: int | None = None
) -> Iterator[Store]:
    """The view of a folder that is there now; arguments are those of :class:`PinnedFolder`.

    Args:
        inner: the store.
        folder: the folder's key.
        path: its path.
        check: gives the path of a key, and raises for one that the store refuses.
        fsync: whether a write is on the disk before it is acknowledged.
        within: the descriptor of the folder where the path begins.
    """
    try:
        descriptor = os.open(path, _FOLDER, dir_fd=within)
    except ABSENT as error:
        raise not_found(folder, inner.uri) from error
    except OSError as error:
        raise failure("read", folder, inner.uri, error) from error
    try:
        yield PinnedFolder(inner, folder, descriptor, check, fsync=fsync)
    finally:
        os.close(descriptor)


class PinnedFolder(WrapperStore):
    """A local store that changes files of one folder through its descriptor. It reads by paths, as ever.

    Once the folder was removed, every write to it fails, also where another one has its path. It is for one block of
    one process, and cannot be pickled: elsewhere the number of a descriptor means another file.

    Args:
        inner: the store.
        folder: the folder's key.
        descriptor: the open folder.
        check: gives the path of a key, and raises for one that the store refuses. With ``temporary=True`` it takes
            those of temporary files, too.
        fsync: whether a write is on the disk before it is acknowledged.
    """

    def __init__(self, inner: Store, folder: str, descriptor: int, check: Callable[..., str], *, fsync: bool) -> None:
        super().__init__(inner)
        self._folder, self._descriptor, self._check, self._fsync = f"{folder}/", descriptor, check, fsync

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a pinned folder of {self.uri} cannot be pickled: it is for one block of one process")

    def hasty(self) -> Store:
        view = PinnedFolder.__new__(PinnedFolder)
        vars(view).update(vars(self), inner=self.inner.hasty(), _fsync=False)
        return view

    @contextmanager
    def pinned(self, folder: str) -> Iterator[Store]:
        name, path = self._name(folder), self._check(folder)
        within = None if name is None else self._descriptor
        with pin(self, folder, name or path, self._check, fsync=self._fsync, within=within) as view:
            yield view

    def _name(self, key: str, *, temporary: bool = False) -> str | None:
        """The name of a file below the folder; None for a key elsewhere. Raises for a key that the store refuses."""
        if not key.startswith(self._folder):
            return None
        self._check(key, temporary=temporary)
        return key.removeprefix(self._folder)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        name = self._name(key)
        if name is None:
            return self.inner.put_if_absent(key, data)
        with self._writing(key, name) as (stream, descriptor, temporary):
            stream.write(data)
            return self._claim(stream, descriptor, temporary, name)

    def put(self, key: str, data: bytes) -> None:
        with self.open_output(key) as stream:
            stream.write(data)

    @contextmanager
    def open_output(self, key: str) -> Iterator[BinaryIO]:
        name = self._name(key)
        if name is None:
            with self.inner.open_output(key) as stream:
                yield stream
            return
        with self._writing(key, name) as (stream, descriptor, temporary):
            yield stream
            self._finish(stream, descriptor)
            self._drop_checksum(name)
            os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            self._sync_folder(name)

    @contextmanager
    def create_output(self, key: str) -> Iterator[BinaryIO]:
        name = self._name(key)
        if name is None:
            with self.inner.create_output(key) as stream:
                yield stream
            return
        with self._writing(key, name) as (stream, descriptor, temporary):
            yield stream
            outcome = self._claim(stream, descriptor, temporary, name)
        committed_or_raise(key, self.uri, outcome)

    @contextmanager
    def _writing(self, key: str, name: str) -> Iterator[tuple[BinaryIO, int, str]]:
        """A stream into a temporary file beside a name, its descriptor and its own name."""
        folder = name.rpartition("/")[0]
        temporary = f"{TEMPORARY}{uuid.uuid4().hex}"
        temporary = f"{folder}/{temporary}" if folder else temporary

        def failed(error: OSError) -> StorageError:
            return failure("write", key, self.uri, error)

        try:
            if folder:
                self._make_folder(folder)
            descriptor = os.open(temporary, _NEW, 0o666, dir_fd=self._descriptor)
        except OSError as error:
            raise failed(error) from error
        try:
            stream = io.BufferedWriter(OutputFile(descriptor, failed), _BUFFER)
            try:
                yield stream, descriptor, temporary
            finally:
                with contextlib.suppress(OSError):
                    stream.close()
        except StorageError:
            raise
        except OSError as error:
            raise failed(error) from error
        finally:
            os.close(descriptor)
            self._discard(temporary)

    def _make_folder(self, folder: str) -> None:
        parts = folder.split("/")
        for count in range(1, len(parts) + 1):
            made = "/".join(parts[:count])
            with contextlib.suppress(FileExistsError):
                os.mkdir(made, dir_fd=self._descriptor)
                self._sync_folder(made)

    def _finish(self, stream: BinaryIO, descriptor: int) -> None:
        stream.close()
        if self._fsync:
            os.fsync(descriptor)

    def _claim(self, stream: BinaryIO, descriptor: int, temporary: str, name: str) -> PutOutcome:
        """Give the file its name, if nothing has it: as :class:`refdelta_storage.naming.Naming` does."""
        self._finish(stream, descriptor)
        self._drop_checksum(name)
        try:
            try:
                os.link(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            except OSError as error:
                if error.errno not in LINKS_REFUSED:
                    raise
                rename_noreplace(temporary, name, self._descriptor)
        except FileExistsError:
            if os.fstat(descriptor).st_nlink > 1:  # a network file system has answered a request that it sent twice
                return Committed()
            if self._is_folder(name):
                raise IsADirectoryError(errno.EISDIR, "a folder has this name") from None
            return Exists()
        except OSError as error:
            if error.errno in CERTAIN | LINKS_REFUSED | {errno.EINVAL}:
                raise
            return Unknown(error)
        try:
            self._sync_folder(name)
        except OSError as error:
            return Unknown(error)
        return Committed()

    def _sync_folder(self, name: str) -> None:
        """Wait until a name is on the disk."""
        if self._fsync:
            sync_folder(name.rpartition("/")[0] or ".", self._descriptor)

    def _is_folder(self, name: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def _discard(self, name: str) -> None:
        """Remove a file, and ignore errors."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._descriptor)

    def _drop_checksum(self, name: str) -> None:
        """As :func:`refdelta_storage.disk.drop_checksum`."""
        folder, _, last = name.rpartition("/")
        self._discard(f"{folder}/.{last}.crc" if folder else f".{last}.crc")

    def remove_empty(self, folder: str) -> None:
        """Remove the folder, or one in it, if it is empty and still has its path."""
        with contextlib.suppress(OSError):
            if folder.startswith(self._folder):
                os.rmdir(folder.removeprefix(self._folder), dir_fd=self._descriptor)
            elif f"{folder}/" == self._folder and (path := self.inner.local_path(folder)) is not None:
                here = os.fstat(self._descriptor)
                if os.path.samestat(os.stat(path), here):
                    os.rmdir(path)

    def delete(self, keys: Iterable[str]) -> None:
        others: builtins.list[str] = []
        first: StorageError | None = None
        for key in keys:
            name = self._name(key, temporary=True)
            if name is None:
                others.append(key)
                continue
            try:
                os.unlink(name, dir_fd=self._descriptor)
            except ABSENT:
                pass
            except OSError as error:
                # This is how macOS refuses to unlink a folder, which is no object.
                if not (isinstance(error, PermissionError) and self._is_folder(name)):
                    first = first or failure("delete", key, self.uri, error)
                    continue
            self._drop_checksum(name)
        self.inner.delete(others)
        if first is not None:
            raise first

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        others: builtins.list[ObjectInfo] = []
        for info in infos:
            name = self._name(info.key)
            if name is None:
                others.append(info)
                continue
            try:
                status = os.stat(name, dir_fd=self._descriptor)
            except ABSENT:
                continue
            except OSError as error:
                raise failure("read", info.key, self.uri, error) from error
            if stat.S_ISREG(status.st_mode) and info.is_same(file_info(info.key, status)):
                self.delete([info.key])
        self.inner.delete_unchanged(others)
