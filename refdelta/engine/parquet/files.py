"""Objects of the table's folder, opened for the engine: troubles of the store and of Parquet become errors that name
the file.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from refdelta.errors import (
    DataFileError,
    DataFileNotFoundError,
    DeltaError,
    InvalidLogError,
    NotEnoughMemoryError,
    StoreError,
)
from refdelta_storage.errors import ObjectNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refdelta.engine.parquet.limits import BoundedParquetFile
    from refdelta_storage.base import Store

# What pyarrow raises for content that is not what it should be.
_BAD_CONTENT = (pa.ArrowException, OSError, ValueError, IndexError, KeyError)


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turn the store's own errors into :class:`~refdelta.errors.StoreError`; ``what`` says what was being done."""
    try:
        yield
    except StorageError as error:
        raise StoreError(f"cannot {what}: {error}") from error


@contextmanager
def data_errors(key: str) -> Iterator[None]:
    """Turn whatever reading a data file raises into one :class:`~refdelta.errors.DataFileError` that names it.

    Trouble that is not the file's is raised as :class:`~refdelta.errors.StoreError`, or as it is.
    """
    try:
        yield
    except DeltaError:
        raise
    except MemoryError as error:
        raise NotEnoughMemoryError(f"there is not enough memory to read {key}: {_first_line(error)}") from error
    except FileNotFoundError as error:
        raise DataFileNotFoundError("the log names this file, but it does not exist", file=key) from error
    except _BAD_CONTENT as error:
        _raise_trouble(key, error)
        raise DataFileError(f"cannot be read as Parquet: {_first_line(error)}", file=key) from error


@contextmanager
def log_errors(key: str) -> Iterator[None]:
    """Turn whatever reading a checkpoint raises into one :class:`~refdelta.errors.InvalidLogError` that names it.

    A file that is gone stays ``ObjectNotFoundError``: log cleanup may have been here, and the caller lists again.
    """
    try:
        yield
    except (DeltaError, ObjectNotFoundError):
        raise
    except MemoryError as error:
        raise NotEnoughMemoryError(f"there is not enough memory to read {key}: {_first_line(error)}") from error
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"no object {key!r}") from error
    except _BAD_CONTENT as error:
        _raise_trouble(key, error)
        raise InvalidLogError(f"cannot be read: {_first_line(error)}", file=key) from error


def _raise_trouble(key: str, error: Exception) -> None:
    """Raise a ``StoreError`` for what the store or the system could not do; its number tells it from bad content."""
    if isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno is not None):
        raise StoreError(f"cannot read {key}: {_first_line(error)}") from error


def open_parquet(
    store: Store, key: str, size: int | None = None, *, footer_only: bool = False, **options: Any
) -> BoundedParquetFile:
    """The ``ParquetFile`` of an object: by its path where native code may open it, in few requests where each is a
    round trip, else through the store's stream.

    Args:
        store: the table's folder.
        key: the object.
        size: its size in bytes as the log has it, which saves a request.
        footer_only: whether nothing else will be read of it.
        options: for ``ParquetFile``.
    """
    from refdelta.engine.parquet.limits import BoundedParquetFile  # who only appends reads none

    path = store.local_path(key)
    if path is not None:
        local = pa.OSFile(path)
        return BoundedParquetFile(local, lambda start, length: local.read_at(length, start), **options)
    if store.capabilities.remote:
        from refdelta.engine.parquet.ranged import open_ranged

        return open_ranged(store, key, size, footer_only=footer_only, **options)
    return BoundedParquetFile(
        pa.PythonFile(store.open_input(key), mode="r"), functools.partial(store.get_range, key), **options
    )


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def log_bytes(store: Store, key: str) -> bytes:
    """A whole log file. Raises ``ObjectNotFoundError``, because the caller may list again, and ``StoreError``."""
    with log_errors(key):
        return store.get(key)
