"""Names for finished files in a local folder: exclusively, or replacing the file of that name."""
# As in `local`: plain calls of `os`.
# ruff: noqa: PTH102, PTH105, PTH112, PTH114, PTH120

from __future__ import annotations

import ctypes
import errno
import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from refdelta_storage.base import Committed, Exists, ObjectInfo, PutOutcome, Unknown
from refdelta_storage.disk import TEMPORARY, UNNAMED, drop_checksum, link_count, link_open, sync_folder, unlink
from refdelta_storage.errors import StorageError

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# How file systems without nameless files say so, and kernels that do not know of any.
_UNNAMED_REFUSED = {errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# How file systems without hard links say so: FAT with EPERM, others by the rest.
LINKS_REFUSED = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}
_COPIED = 1 << 20
_RENAME_REFUSED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# Refusals after which the file system is certainly unchanged. After others (EIO, ESTALE, ETIMEDOUT, as network file
# systems give them) the call may have been carried out nevertheless.
CERTAIN = {
    errno.EACCES,
    errno.EDQUOT,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EROFS,
}


class NewFile:
    """A file that is being written, and has no name of its own yet.

    Attributes:
        path: the name that it will get.
        descriptor: the open file; one without any name can be read, too.
        temporary: the name until then; None for a file without any.
    """

    def __init__(self, path: str, descriptor: int, temporary: str | None = None) -> None:
        self.path, self.descriptor, self.temporary = path, descriptor, temporary

    def close(self) -> None:
        """Close it, if it is open."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def discard(self) -> None:
        """Close it, and remove the temporary name, if there is one."""
        self.close()
        if self.temporary is not None:
            unlink(self.temporary)


@dataclass
class Naming:
    """Writes files into a folder. Errors come as the system raises them.

    Attributes:
        root: the folder.
        uri: the same for errors.
        fsync: whether a write is on the disk (file and folder) before it is acknowledged.
        seen: whether the folder was there once: then it is not made again where somebody removed it.
        known: further folders that were there once, and are not made again for :meth:`create`.
        unsynced: folders in which folders were made without a sync.
        unnamed: whether there are files without a name; True until a call fails.
        links: whether there are hard links; True until a call fails.
        exclusive: whether a name can be taken exclusively; True until a call fails.
    """

    root: str
    uri: str
    fsync: bool
    seen: bool
    known: set[str] = field(default_factory=set)
    unsynced: set[str] = field(default_factory=set)
    unnamed: bool = field(default_factory=lambda: UNNAMED is not None)
    links: bool = True
    exclusive: bool = True

    def create(self, path: str, data: bytes) -> PutOutcome:
        """Create a file, if nothing has its name."""
        outcome = (self._put_unnamed(path, data) if self.unnamed else None) or self._put_named(path, data)
        if isinstance(outcome, Committed):
            try:
                self._sync_folder(os.path.dirname(path))
            except OSError as error:
                # Readers see the object, a power cut may still take it away: neither "created" nor "nothing created".
                return Unknown(error)
        return outcome

    def replace(self, path: str, data: bytes) -> None:
        """Put a file in the place of whatever has the name."""
        self.publish(self._write_temporary(path, data), path)

    def _put_unnamed(self, path: str, data: bytes) -> PutOutcome | None:
        """Give a name to a file that never had one, which takes one change of the folder instead of three, and of
        which nothing is left if the writer dies. None: not here, and nothing was done.
        """
        descriptor = self._open_unnamed(path)
        if descriptor is None:
            return None
        try:
            self._fill(descriptor, data)
            drop_checksum(path)
            try:
                link_open(descriptor, path)
            except OSError as error:
                if not os.fstat(descriptor).st_nlink:
                    return self._not_named(path, error)
            return Committed()
        finally:
            os.close(descriptor)

    def _open_unnamed(self, path: str) -> int | None:
        """A new file without a name, in the folder of ``path``; None: not here."""
        try:
            return os.open(os.path.dirname(path), UNNAMED or 0, 0o666)
        except OSError as error:
            # Other errors, such as a missing folder, show up in the other way.
            self.unnamed = error.errno not in _UNNAMED_REFUSED
            return None

    def _not_named(self, path: str, error: OSError) -> PutOutcome | None:
        if isinstance(error, FileExistsError):
            return taken(path)
        if error.errno in LINKS_REFUSED:
            self.unnamed = False
            return None
        if error.errno == errno.ENOENT:  # the folder went away, or the list of open files
            return None
        if error.errno in CERTAIN:
            raise error
        return Unknown(error)

    def _put_named(self, path: str, data: bytes) -> PutOutcome:
        folder = os.path.dirname(path)
        if folder in self.known and not os.path.lexists(folder):
            raise FileNotFoundError(errno.ENOENT, "the folder was removed while it was in use")
        temporary = self._write_temporary(path, data)
        try:
            drop_checksum(path)
            return self._claim(temporary, path)
        finally:
            unlink(temporary)

    def _claim(self, temporary: str, path: str) -> PutOutcome:
        """Give the finished file its final name, if it is free.

        A hard link is the one operation that POSIX makes exclusive and that publishes a file whole. Where links are
        refused (FAT, some network and FUSE file systems) the kernel's exclusive rename does the same. A lock file
        would not: other engines ignore it; and if its holder dies, no commit is possible any more. Where both are
        refused, the write is refused too, and ``capabilities.put_if_absent`` is false.
        """
        if self.links:
            try:
                os.link(temporary, path)
            except FileExistsError:
                # A network file system that resent the request answers about our own link.
                return Committed() if link_count(temporary) > 1 else taken(path)
            except OSError as error:
                if error.errno in CERTAIN:
                    raise
                if error.errno not in LINKS_REFUSED:
                    return Committed() if link_count(temporary) > 1 else Unknown(error)
                self.links = False
            else:
                return Committed()
        try:
            rename_noreplace(temporary, path)
        except FileExistsError:
            return taken(path)
        except OSError as error:
            if error.errno in CERTAIN or error.errno == errno.EPERM:
                raise
            if error.errno not in _RENAME_REFUSED:
                return Unknown(error)
            self.exclusive = False
            raise StorageError(
                f"{self.uri} has neither hard links nor an exclusive rename, so two writers could both win; "
                "nothing can be committed there"
            ) from error
        return Committed()

    def begin(self, path: str) -> NewFile:
        """A new file, to be written and then named by :meth:`finish`."""
        descriptor = self._open_unnamed(path) if self.unnamed else None
        if descriptor is not None:
            return NewFile(path, descriptor)
        temporary, descriptor = self.new_temporary(path)
        return NewFile(path, descriptor, temporary)

    def finish(self, file: NewFile) -> None:
        """Put the file, which is written, in the place of whatever has its name."""
        if self.fsync:
            os.fsync(file.descriptor)
        temporary = file.temporary or self._named(file)
        if temporary is None:
            self._sync_folder(os.path.dirname(file.path))
            return
        file.close()
        self.publish(temporary, file.path)

    def claim(self, file: NewFile) -> PutOutcome:
        """Give the file, which is written, its name, if nothing has it."""
        if self.fsync:
            os.fsync(file.descriptor)
        drop_checksum(file.path)
        if file.temporary is None:
            try:
                link_open(file.descriptor, file.path)
            except FileExistsError:
                return taken(file.path)
            except OSError as error:
                if error.errno not in LINKS_REFUSED:
                    raise
                self.unnamed = False
                self._copy(file)
        outcome: PutOutcome = Committed()
        if file.temporary is not None:
            outcome = self._claim(file.temporary, file.path)
        if isinstance(outcome, Committed):
            self._sync_folder(os.path.dirname(file.path))
        return outcome

    def _named(self, file: NewFile) -> str | None:
        """Give a file without a name its own; returns the temporary name that it got instead, if it got one."""
        drop_checksum(file.path)
        try:
            link_open(file.descriptor, file.path)
        except FileExistsError:  # only a file with a name can replace another one
            file.temporary = temporary_beside(file.path)
            link_open(file.descriptor, file.temporary)
        except OSError as error:
            if error.errno not in LINKS_REFUSED:
                raise
            self.unnamed = False
            self._copy(file)
        return file.temporary

    def _copy(self, file: NewFile) -> None:
        """Copy a file to one with a temporary name, where the system refuses links to open files."""
        file.temporary, descriptor = self.new_temporary(file.path)
        try:
            os.lseek(file.descriptor, 0, os.SEEK_SET)
            while data := os.read(file.descriptor, _COPIED):
                self._write(descriptor, data)
            if self.fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def publish(self, temporary: str, path: str) -> None:
        """Put the finished file in the place of whatever has the name."""
        try:
            drop_checksum(path)
            os.replace(temporary, path)
        except BaseException:
            unlink(temporary)
            raise
        self._sync_folder(os.path.dirname(path))

    def _write_temporary(self, path: str, data: bytes) -> str:
        """A finished, synced file beside ``path``, or an exception and no file."""
        temporary, descriptor = self.new_temporary(path)
        try:
            try:
                self._fill(descriptor, data)
            finally:
                os.close(descriptor)
        except BaseException:
            unlink(temporary)
            raise
        return temporary

    def _fill(self, descriptor: int, data: bytes) -> None:
        self._write(descriptor, data)
        if self.fsync:
            os.fsync(descriptor)

    @staticmethod
    def _write(descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def new_temporary(self, path: str) -> tuple[str, int]:
        """The name of a new file beside ``path``, which is open for writing; its folder is made, too."""
        temporary = temporary_beside(path)
        try:
            return temporary, os.open(temporary, _CREATE, 0o666)
        except FileNotFoundError:
            self.make_folder(os.path.dirname(path))
        return temporary, os.open(temporary, _CREATE, 0o666)

    def make_folder(self, folder: str, *, above: bool = True) -> None:
        """Create a folder and those above it; on the disk before anything is put into it."""
        if folder == self.root and self.seen and not os.path.lexists(folder):
            raise FileNotFoundError(errno.ENOENT, "the folder was removed while it was in use")
        parent = os.path.dirname(folder)
        try:
            os.mkdir(folder)
        except FileNotFoundError:
            if not above:  # there are folders in which nothing can be created, such as /proc
                raise
            self.make_folder(parent)
            self.make_folder(folder, above=False)
            return
        except FileExistsError:
            # Another writer was faster; it may not have come to its sync yet.
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, f"not a folder: {folder}") from None
        self.seen = self.seen or folder == self.root
        if not self.fsync:
            self.unsynced.add(parent)
        self._sync_folder(parent)

    def _sync_folder(self, folder: str) -> None:
        if self.fsync:
            sync_folder(folder)


def file_info(key: str, status: os.stat_result) -> ObjectInfo:
    """A file as an object."""
    time_ns = status.st_mtime_ns
    return ObjectInfo(key, status.st_size, time_ns // 1_000_000, (status.st_ino, time_ns))


def temporary_beside(path: str) -> str:
    """A temporary name in the same folder, which no other file has."""
    return f"{os.path.dirname(path)}/{TEMPORARY}{uuid.uuid4().hex}"


def taken(path: str) -> Exists:
    """That a file has the name. Raises ``IsADirectoryError`` where it is a folder."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise IsADirectoryError(errno.EISDIR, "a folder has this name")
    return Exists()


# --- the exclusive rename of the kernel, which Python's `os` does not have ---

_AT_FDCWD = -2 if sys.platform == "darwin" else -100
_RENAME_NOREPLACE = 1  # Linux: renameat2(2)
_RENAME_EXCL = 4  # macOS: renameatx_np(2)


def rename_noreplace(source: str, target: str, folder: int | None = None) -> None:
    """Rename ``source`` to ``target`` in one step, if nothing has that name. Both are in ``folder``, if it is given.

    Raises:
        FileExistsError: something has it.
        OSError: with ``ENOSYS``, ``EINVAL`` or ``ENOTSUP`` where the system or the file system cannot do this.
    """
    call = _system_call()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source)
    if call(_AT_FDCWD if folder is None else folder, os.fsencode(source), os.fsencode(target)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


@cache
def _system_call() -> Callable[[int, bytes, bytes], int] | None:
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            renameatx_np = library.renameatx_np
            return lambda folder, source, target: int(renameatx_np(folder, source, folder, target, _RENAME_EXCL))
        renameat2 = library.renameat2
    except (OSError, AttributeError, TypeError):
        return None  # no such library, or one that is older than the call
    return lambda folder, source, target: int(renameat2(folder, source, folder, target, _RENAME_NOREPLACE))
