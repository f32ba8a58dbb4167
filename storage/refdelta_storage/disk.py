"""Single files on a disk: what Python's `os` and `io` leave to their callers."""
# ruff: noqa: PTH108, PTH116

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable
from typing import Any

from refdelta_storage.errors import StorageError


class OutputFile(io.FileIO):
    """A file whose failed writes are already a ``StorageError``, since they happen in the caller's block."""

    def __init__(self, descriptor: int, translate: Callable[[OSError], StorageError]) -> None:
        super().__init__(descriptor, "wb")
        self._translate = translate

    def write(self, data: Any, /) -> int:
        """Write as usual."""
        try:
            return super().write(data)
        except OSError as error:
            raise self._translate(error) from error


def link_count(path: str) -> int:
    """How many names a file has; 0 where there is no telling."""
    try:
        return os.stat(path).st_nlink
    except OSError:
        return 0


def sync(path: str, flags: int) -> None:
    """Wait until a file or folder is on the disk; it is opened with ``flags``."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Wait until the names in a folder are on the disk, where the system can do this."""
    if hasattr(os, "O_DIRECTORY"):
        try:
            sync(folder or "/", os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            # Some file systems have no sync of folders, and some folders may be written and not read.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
                raise


def drop_checksum(path: str) -> None:
    """Remove the checksum that Hadoop keeps beside a file, which no longer holds."""
    folder, _, name = path.rpartition("/")
    unlink(f"{folder}/.{name}.crc")


def unlink(path: str) -> None:
    """Remove a file, as far as the system lets us."""
    with contextlib.suppress(OSError):
        os.unlink(path)
