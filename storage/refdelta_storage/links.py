"""What a key of a local folder may pass through: folders, files, and links that stay within."""
# ruff: noqa: PTH116

from __future__ import annotations

import os
import stat
from pathlib import Path

from refdelta_storage.errors import InvalidKeyError, ObjectNotFoundError, StorageError


def check_links(root: str, key: str) -> os.stat_result | None:
    """Refuse a key that passes through a symbolic link out of the folder, or names what is neither file nor folder.

    One ``lstat`` a segment, more for a link.

    Args:
        root: the folder.
        key: a legal key, or "" for the folder itself.

    Returns:
        What the key names, links followed; None where it names nothing, or nothing that can be seen.

    Raises:
        InvalidKeyError: it leaves the folder.
        ObjectNotFoundError: it is a pipe, a socket or a device.
    """
    path, status = root, None
    for part in key.split("/") if key else ():
        path = f"{path}/{part}"
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                if not inside(root, path):
                    raise InvalidKeyError(f"{key!r} leaves {_uri(root)} through a symbolic link")
                status = os.stat(path)
        except StorageError:
            raise
        except OSError:
            return None  # nothing there, or nothing to see: the operation itself says what is wrong
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise ObjectNotFoundError(f"{key!r} is no file in {_uri(root)}, but a pipe, a socket or a device")
    return status


def inside(root: str, path: str) -> bool:
    """Whether a path, once its links are followed, is within the folder."""
    return os.path.realpath(path).startswith(os.path.realpath(root or "/").rstrip("/") + "/")


def _uri(root: str) -> str:
    return Path(root or "/").as_uri()
