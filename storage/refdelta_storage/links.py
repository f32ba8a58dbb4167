"""What a key of a local folder may pass through: folders, files, and links that stay within."""
# ruff: noqa: PTH116

from __future__ import annotations

import os
import stat
from pathlib import Path

from refdelta_storage.errors import InvalidKeyError, ObjectNotFoundError, StorageError


def check_links(root: str, key: str) -> None:
    """Refuse a key that passes through a symbolic link out of the folder, or names what is neither file nor folder.

    One ``lstat`` a segment, more for a link.

    Args:
        root: the folder.
        key: a legal key, or "" for the folder itself.

    Raises:
        InvalidKeyError: it leaves the folder.
        ObjectNotFoundError: it is a pipe, a socket or a device.
    """
    path = root
    for part in key.split("/") if key else ():
        path = f"{path}/{part}"
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                if not inside(root, path):
                    raise InvalidKeyError(f"{key!r} leaves {_uri(root)} through a symbolic link")
                mode = os.stat(path).st_mode
        except StorageError:
            raise
        except OSError:
            return  # nothing there, or nothing to see: the operation itself says what is wrong
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ObjectNotFoundError(f"{key!r} is no file in {_uri(root)}, but a pipe, a socket or a device")


def inside(root: str, path: str) -> bool:
    """Whether a path, once its links are followed, is within the folder."""
    return os.path.realpath(path).startswith(os.path.realpath(root or "/").rstrip("/") + "/")


def _uri(root: str) -> str:
    return Path(root or "/").as_uri()
