"""Single files and names on a disk: what Python's `os` and `io` leave to their callers."""
# ruff: noqa: PTH108, PTH112, PTH116

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from typing import Any

from refdelta_storage.errors import StorageError

TEMPORARY = ".refdelta-tmp-"
"""How the names of files begin that are being written."""

ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""No such object: also if a folder has the name, or a file is in the place of a folder of the key."""

_OPEN_FILES = "/proc/self/fd"

UNNAMED = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC if hasattr(os, "O_TMPFILE") and os.path.isdir(_OPEN_FILES) else None
"""How to open a new file of a folder that has no name yet; None where the system has no such files."""


class OutputFile(io.FileIO):
    """A file whose failed writes are already a ``StorageError``, since they happen in the caller's block. It leaves the
    descriptor open.
    """

    def __init__(self, descriptor: int, translate: Callable[[OSError], StorageError]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._translate = translate

    def write(self, data: Any, /) -> int:
        """Write as usual."""
        try:
            return super().write(data)
        except OSError as error:
            raise self._translate(error) from error


def link_count(path: str) -> int:
    """The number of hard links of a file; 0 if it is unknown."""
    try:
        return os.stat(path).st_nlink
    except OSError:
        return 0


def link_open(descriptor: int, path: str) -> None:
    """Give a name to an open file that has none, if nothing has that name. Raises as ``os.link``."""
    # Naming a folder, though none is needed, is what makes Python follow the link that stands for the open file.
    os.link(f"{_OPEN_FILES}/{descriptor}", path, src_dir_fd=descriptor)


def sync(path: str, flags: int, folder: int | None = None) -> None:
    """Wait until a file or folder is on the disk; it is opened with ``flags``, in a folder if a descriptor is given."""
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: str, within: int | None = None) -> None:
    """Wait until the names in a folder, which may be in one of a descriptor, are on the disk, where the system can do
    this.
    """
    if hasattr(os, "O_DIRECTORY"):
        try:
            sync(folder or "/", os.O_RDONLY | os.O_DIRECTORY, within)
        except OSError as error:
            # Some file systems have no sync of folders, and some folders may be written and not read.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
                raise


def drop_checksum(path: str) -> None:
    """Remove the checksum that Hadoop keeps beside a file, which no longer holds."""
    folder, _, name = path.rpartition("/")
    unlink(f"{folder}/.{name}.crc")


def unlink(path: str) -> None:
    """Remove a file, and ignore errors."""
    try:  # noqa: SIM105 - each commit does this, mostly in vain
        os.unlink(path)
    except OSError:
        pass


def hidden(name: str) -> bool:
    """Whether a file of this name is no object: a temporary one of ours, or a checksum of Hadoop's."""
    return name.startswith(TEMPORARY) or (name.startswith(".") and name.endswith(".crc"))


def wanted(
    folder: str, entry: os.DirEntry[str], prefix: bytes, after: bytes
) -> tuple[bytes, bool, os.DirEntry[str]] | None:
    """The sort key of an entry that a listing shows or descends into, decided before any file is looked at."""
    if hidden(entry.name):
        return None
    try:
        encoded = (f"{folder}/{entry.name}" if folder else entry.name).encode()
    except UnicodeEncodeError:
        return None
    if not entry.is_dir(follow_symlinks=False):
        return (encoded, False, entry) if encoded.startswith(prefix) and encoded > after else None
    encoded += b"/"
    if not encoded.startswith(prefix) and not prefix.startswith(encoded):
        return None
    if encoded <= after and not after.startswith(encoded):
        return None
    return encoded, True, entry
