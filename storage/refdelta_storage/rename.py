"""The exclusive rename of the kernel, which Python's `os` does not have: a new name for a file, if nobody has it."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1  # Linux: renameat2(2)
_RENAME_EXCL = 4  # macOS: renamex_np(2)


def rename_noreplace(source: str, target: str) -> None:
    """Rename ``source`` to ``target`` in one step, if nothing has that name.

    Raises:
        FileExistsError: something has it.
        OSError: with ``ENOSYS``, ``EINVAL`` or ``ENOTSUP`` where the system or the file system cannot do this.
    """
    call = _system_call()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source)
    if call(os.fsencode(source), os.fsencode(target)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


@cache
def _system_call() -> Callable[[bytes, bytes], int] | None:
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            renamex_np = library.renamex_np
            return lambda source, target: int(renamex_np(source, target, _RENAME_EXCL))
        renameat2 = library.renameat2
    except (OSError, AttributeError, TypeError):
        return None  # no such library, or one that is older than the call
    return lambda source, target: int(renameat2(_AT_FDCWD, source, _AT_FDCWD, target, _RENAME_NOREPLACE))
