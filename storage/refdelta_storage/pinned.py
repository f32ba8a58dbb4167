"""A folder of a disk by its descriptor: what is written goes into it, whatever has its path by now."""
# As in `local`: plain calls of `os`.
# ruff: noqa: D102, PTH106, PTH116, PTH120

from __future__ import annotations

import builtins
import contextlib
import io
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from refdelta_storage.base import Created, Exists, ObjectInfo, PutOutcome, Store, created_or_raise
from refdelta_storage.disk import TEMPORARY, OutputFile
from refdelta_storage.errors import StorageError, failure
from refdelta_storage.naming import LINKS_REFUSED
from refdelta_storage.wrappers import WrapperStore

PINS = (
    hasattr(os, "O_DIRECTORY")
    and {os.open, os.link, os.rename, os.unlink, os.mkdir, os.rmdir, os.stat} <= os.supports_dir_fd
)
"""Whether the system knows files by a folder's descriptor and a name."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_BUFFER = 1 << 20


class PinnedFolder(WrapperStore):
    """A local store that changes files of one folder through its descriptor. It reads by paths, as ever.

    Once the folder was removed, every write to it fails, also where another one has its path.

    Args:
        inner: the store.
        folder: the folder's key.
        descriptor: the open folder.
        fsync: whether a write is on the disk before it is acknowledged.
    """

    def __init__(self, inner: Store, folder: str, descriptor: int, *, fsync: bool) -> None:
        super().__init__(inner)
        self._folder, self._descriptor, self._fsync = f"{folder}/", descriptor, fsync

    def hasty(self) -> Store:
        view = PinnedFolder.__new__(PinnedFolder)
        vars(view).update(vars(self), inner=self.inner.hasty(), _fsync=False)
        return view

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        if not key.startswith(self._folder):
            return self.inner.put_if_absent(key, data)
        try:
            with self.create_output(key) as stream:
                stream.write(data)
        except FileExistsError:
            return Exists()
        return Created()

    def put(self, key: str, data: bytes) -> None:
        if not key.startswith(self._folder):
            self.inner.put(key, data)
            return
        with self.open_output(key) as stream:
            stream.write(data)

    @contextmanager
    def open_output(self, key: str) -> Iterator[BinaryIO]:
        if not key.startswith(self._folder):
            with self.inner.open_output(key) as stream:
                yield stream
            return
        with self._writing(key) as (stream, temporary, name):
            yield stream
            self._sync(stream)
            self._drop_checksum(name)
            os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    @contextmanager
    def create_output(self, key: str) -> Iterator[BinaryIO]:
        if not key.startswith(self._folder):
            with self.inner.create_output(key) as stream:
                yield stream
            return
        outcome: PutOutcome = Created()
        with self._writing(key) as (stream, temporary, name):
            yield stream
            self._sync(stream)
            self._drop_checksum(name)
            try:
                os.link(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            except FileExistsError:
                outcome = Exists()
            except OSError as error:
                if error.errno not in LINKS_REFUSED:
                    raise
                outcome = self._rename(temporary, name)
        created_or_raise(key, self.uri, outcome)

    @contextmanager
    def _writing(self, key: str) -> Iterator[tuple[BinaryIO, str, str]]:
        """A stream into a temporary file of the folder, its name, and the name that it is to get."""
        name = key.removeprefix(self._folder)
        beside = os.path.dirname(name)
        temporary = f"{beside}/{TEMPORARY}{uuid.uuid4().hex}" if beside else f"{TEMPORARY}{uuid.uuid4().hex}"

        def failed(error: OSError) -> StorageError:
            return failure("write", key, self.uri, error)

        try:
            if beside:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(beside, dir_fd=self._descriptor)
            descriptor = os.open(temporary, _NEW, 0o666, dir_fd=self._descriptor)
        except OSError as error:
            raise failed(error) from error
        try:
            with io.BufferedWriter(OutputFile(descriptor, failed), _BUFFER) as stream:
                yield stream, temporary, name
            if self._fsync:
                os.fsync(self._descriptor)
        except StorageError:
            raise
        except OSError as error:
            raise failed(error) from error
        finally:
            os.close(descriptor)
            self._unlink(temporary)

    def _rename(self, temporary: str, name: str) -> PutOutcome:
        """Give a file its name without a hard link. It is not exclusive: of two writers, the last one wins."""
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=self._descriptor)
            return Exists()
        os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        return Created()

    def _sync(self, stream: BinaryIO) -> None:
        stream.flush()
        if self._fsync:
            os.fsync(stream.fileno())

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def _drop_checksum(self, name: str) -> None:
        """As :func:`refdelta_storage.disk.drop_checksum`."""
        folder, _, last = name.rpartition("/")
        self._unlink(f"{folder}/.{last}.crc" if folder else f".{last}.crc")

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
        for key in keys:
            if not key.startswith(self._folder):
                others.append(key)
                continue
            name = key.removeprefix(self._folder)
            try:
                self._unlink(name)
                self._drop_checksum(name)
            except OSError as error:
                raise failure("delete", key, self.uri, error) from error
        self.inner.delete(others)

    def delete_unchanged(self, infos: Iterable[ObjectInfo]) -> None:
        others: builtins.list[ObjectInfo] = []
        for info in infos:
            if not info.key.startswith(self._folder):
                others.append(info)
                continue
            try:
                status = os.stat(info.key.removeprefix(self._folder), dir_fd=self._descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            time_ns = status.st_mtime_ns
            if info.is_same(ObjectInfo(info.key, status.st_size, time_ns // 1_000_000, (status.st_ino, time_ns))):
                self.delete([info.key])
        self.inner.delete_unchanged(others)
