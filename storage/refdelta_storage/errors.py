"""What a store raises. Anything else that leaves a store is a bug of that store."""

from __future__ import annotations


class StorageError(OSError):
    """The root: the store refused or failed. The message never carries credentials."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """No object has this key."""


class InvalidKeyError(StorageError, ValueError):
    """A key that is not a relative, normalised, ``/``-separated path."""


class InvalidOptionError(StorageError, ValueError):
    """A storage option, or a URI, that no store understands."""


class ReadOnlyStoreError(StorageError, PermissionError):
    """A write to a store that was opened for reading."""
