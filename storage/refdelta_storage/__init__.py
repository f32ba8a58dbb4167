"""Put-if-absent, ordered listings and ranged reads over local folders, memory, S3, Azure, GCS and fsspec.

:func:`open_store` opens a :class:`Store` by URI. :mod:`refdelta_storage.testing` is the contract of a store as a test
class, :mod:`refdelta_storage.wrappers` counts, traces, forbids and breaks calls.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from refdelta_storage.base import Capabilities, Committed, Exists, ObjectInfo, PutOutcome, Store, Unknown
from refdelta_storage.errors import (
    InvalidKeyError,
    InvalidOptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
    StorageError,
)
from refdelta_storage.local import LocalStore
from refdelta_storage.opening import open_store

if TYPE_CHECKING:
    from refdelta_storage.azure import AzureStore
    from refdelta_storage.fsspec_store import FsspecStore
    from refdelta_storage.gcs import GcsStore
    from refdelta_storage.memory import MemoryStore
    from refdelta_storage.obstore_store import ObstoreStore
    from refdelta_storage.s3 import S3Store
    from refdelta_storage.wrappers import CountingStore, FaultyStore, ReadOnlyStore, TracingStore

__all__ = [
    "AzureStore",
    "Capabilities",
    "Committed",
    "CountingStore",
    "Exists",
    "FaultyStore",
    "FsspecStore",
    "GcsStore",
    "InvalidKeyError",
    "InvalidOptionError",
    "LocalStore",
    "MemoryStore",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObstoreStore",
    "PutOutcome",
    "ReadOnlyStore",
    "ReadOnlyStoreError",
    "S3Store",
    "StorageError",
    "Store",
    "TracingStore",
    "Unknown",
    "open_store",
]

# Where the stores are that are imported when they are first asked for.
_HOMES = {
    "AzureStore": "azure",
    "CountingStore": "wrappers",
    "FaultyStore": "wrappers",
    "FsspecStore": "fsspec_store",
    "GcsStore": "gcs",
    "MemoryStore": "memory",
    "ObstoreStore": "obstore_store",
    "ReadOnlyStore": "wrappers",
    "S3Store": "s3",
    "TracingStore": "wrappers",
}


def __getattr__(name: str) -> Any:
    if name == "Created":
        from warnings import warn

        warn(
            "refdelta_storage.Created is deprecated, and goes in 0.4: use refdelta_storage.Committed",
            DeprecationWarning,
            stacklevel=2,
        )
        return Committed
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
